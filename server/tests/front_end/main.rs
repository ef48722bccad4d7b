//! The front end as clients see it: a server in this process on a free port, over a store in memory.

mod clients;
mod interruption;
mod malformed;
mod psql;
mod startup;
mod support;
