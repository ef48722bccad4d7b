//! No code. Cargo resolves the features of a dependency over the packages being built; building one crate alone would
//! otherwise choose another set than building the workspace does, and compile DataFusion a second time. Every member
//! depends on this crate, and this crate on every third-party dependency, so that the set is always the same.
