//! End to end: real MySQL and MariaDB servers, the built binary, and clients that speak PostgreSQL's protocol.

mod bad_input;
mod changelog;
mod crash;
mod ddl;
mod front_end;
mod late_store;
mod local_cache;
mod mirror;
mod ownership;
mod resync;
mod retention;
mod s3;
mod types;
