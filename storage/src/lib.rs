//! Primary-key tables in Apache Paimon's format, and the checkpoints that make them visible.
