//! The pages of the book that are made from the code.

use std::{collections::BTreeMap, fmt::Write as _, path::PathBuf};

use tidegate_cdc::error::{Code, Retry};

/// The folder of the error pages.
pub fn errors_folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/errors")
}

/// The error pages by file name.
pub fn error_pages() -> BTreeMap<String, String> {
    let mut pages = BTreeMap::new();
    let mut index = String::from(
        "# Error codes\n\nA code never changes its meaning. These pages are made from the table in `cdc/src/error.rs`.\n\n| code | meaning | by itself |\n|---|---|---|\n",
    );
    for code in Code::ALL {
        let info = code.info();
        let next = match info.retry {
            // The class 01 of SQLSTATE is that of warnings.
            _ if info.sqlstate.starts_with("01") => "a warning: capture goes on",
            Retry::Now => "tried again at once",
            Retry::Backoff => "tried again after a growing pause",
            Retry::Never => "stands still until somebody acts",
        };
        // Writing to a string does not fail.
        let _ = writeln!(index, "| [{code}]({code}.md) | {} | {next} |", info.title);
        let page = format!(
            "# {code}: {}\n\nSQLSTATE `{}`. By itself: {next}.\n\n## What it means\n\n{}\n\n## What to do\n\n{}\n",
            info.title, info.sqlstate, info.meaning, info.hint
        );
        pages.insert(format!("{code}.md"), page);
    }
    pages.insert("README.md".to_owned(), index);
    pages
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs};

    use super::*;

    /// `UPDATE_BOOK=1` writes the pages instead of comparing them.
    #[test]
    fn the_book_has_a_page_for_every_error_code_and_no_other() {
        let folder = errors_folder();
        let pages = error_pages();
        if std::env::var_os("UPDATE_BOOK").is_some() {
            let _ = fs::remove_dir_all(&folder);
            fs::create_dir_all(&folder).expect("the folder can be made");
            for (name, text) in &pages {
                fs::write(folder.join(name), text).expect("a page can be written");
            }
        }
        for (name, text) in &pages {
            let written = fs::read_to_string(folder.join(name)).unwrap_or_default();
            assert!(&written == text, "{name} is not up to date: UPDATE_BOOK=1 cargo test -p tidegate-tests book");
        }
        let there: BTreeSet<String> = fs::read_dir(&folder)
            .expect("the folder is there")
            .map(|entry| entry.expect("it can be listed").file_name().to_string_lossy().into_owned())
            .collect();
        assert_eq!(there, pages.into_keys().collect());
    }
}
