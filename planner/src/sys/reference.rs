//! The reference page of the system views, from their declarations.

use std::fmt::Write;

use super::views;

/// The text of `docs/reference/sys.md`.
pub fn reference_page() -> String {
    let mut page = String::from(
        "# System views\n\nThe schema `sys` says what is defined, what runs, how far it is, and what is wrong. \
         Columns are only ever added.\nTimes end in `_at`, durations in `_ms`, sizes in `_bytes`. \
         `SHOW SOURCES` and its like are selections from these views.\n",
    );
    for view in views() {
        // Writing to a String cannot fail.
        let _ = write!(
            page,
            "\n## sys.{}\n\n{}\n\n| column | type | null | meaning |\n|---|---|---|---|\n",
            view.name(),
            view.doc()
        );
        for column in view.columns() {
            let null = if column.nullable { "yes" } else { "" };
            let _ = writeln!(page, "| `{}` | {} | {null} | {} |", column.name, column.column_type.sql(), column.doc);
        }
    }
    page
}
