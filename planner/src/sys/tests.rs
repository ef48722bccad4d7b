use std::collections::BTreeSet;

use object_store::memory::InMemory;
use tidegate_cdc::capture::{ErrorInfo, JobState, TableProgress, TableRetention, TableStatus};
use tidegate_storage::table::{Hold, Holder};

use super::*;
use crate::catalog::{SecretEntry, SecretPlace, SourceEntry, StoredSelection};

fn state() -> SysState {
    let id = Uuid::from_u128(7);
    let mut catalog = Catalog::default();
    catalog.sources.insert(
        "shop".to_owned(),
        SourceEntry {
            id,
            created_at_ms: 1_000,
            paused: false,
            connection: None,
            selection: StoredSelection::AllTables,
            rules: Vec::new(),
            options: Vec::new(),
            targets: Vec::new(),
        },
    );
    let place = SecretPlace::File("/run/secret".to_owned());
    catalog.secrets.insert("pw".to_owned(), SecretEntry { id: Uuid::from_u128(8), created_at_ms: 1, place });
    let fault = ErrorInfo {
        at_ms: 3_000,
        code: "TG0121".to_owned(),
        message: "a schema change is not understood".to_owned(),
        detail: None,
        hint: Some("RESUME SOURCE".to_owned()),
        table: Some("shop.orders".to_owned()),
    };
    let table = TableStatus {
        name: "shop.orders".to_owned(),
        origin: "shop.Orders".to_owned(),
        state: TableProgress::Error,
        rows_read: 10,
        estimated_rows: 20,
        ranges_total: 2,
        ranges_done: 1,
        ranges: Vec::new(),
        changes: 3,
        error: Some(fault.clone()),
    };
    let status = JobStatus {
        state: JobState::Streaming,
        tables: vec![table],
        errors: vec![fault],
        retention: vec![TableRetention {
            name: "shop.orders".to_owned(),
            earliest_snapshot: Some(3),
            latest_snapshot: 9,
            holds: vec![Hold { holder: Holder::Tag("monday".to_owned()), snapshot_id: 3 }],
            ..TableRetention::default()
        }],
        last_checkpoint: 4,
        last_checkpoint_at_ms: Some(2_000),
        ..JobStatus::default()
    };
    SysState {
        now_ms: 5_000,
        store: Arc::new(InMemory::new()),
        statistics: Arc::default(),
        object_cache: None,
        catalog: Arc::new(catalog),
        sources: vec![SourceState { id, name: "shop".to_owned(), status: Some(Arc::new(status)), view: None }],
        settings: Vec::new(),
    }
}

#[tokio::test]
async fn every_view_gives_rows_of_its_columns() {
    let state = state();
    let mut filled = BTreeSet::new();
    for view in views() {
        let rows = view.rows(&state).await.unwrap();
        let batch = batch_of(view.columns(), &rows).unwrap_or_else(|error| panic!("sys.{}: {error}", view.name()));
        if batch.num_rows() > 0 {
            filled.insert(view.name());
        }
    }
    assert_eq!(
        filled,
        BTreeSet::from([
            "errors",
            "job_tables",
            "jobs",
            "secrets",
            "snapshot_holds",
            "source_positions",
            "sources",
            "store_requests",
            "table_snapshots"
        ])
    );
}

#[tokio::test]
async fn jobs_name_what_is_wrong_and_what_to_do() {
    let rows = jobs::Jobs.rows(&state()).await.unwrap();
    let value = |name: &str| {
        let at = jobs::Jobs.columns().iter().position(|column| column.name == name).unwrap();
        rows[0][at].clone()
    };
    assert_eq!(value("state"), Cell::from("streaming"));
    assert_eq!(value("error_table_count"), Cell::BigInt(1));
    assert_eq!(value("error_code"), Cell::from("TG0121"));
    assert_eq!(value("hint"), Cell::from("RESUME SOURCE"));
    assert_eq!(value("last_checkpoint"), Cell::BigInt(4));
    assert_eq!(value("snapshot_progress"), Cell::Null);
}

#[test]
fn names_follow_the_rules() {
    let mut names = BTreeSet::new();
    for view in views() {
        assert!(names.insert(view.name()), "sys.{} twice", view.name());
        assert!(view.name().ends_with('s') && view.doc().ends_with('.'), "sys.{}", view.name());
        let mut columns = BTreeSet::new();
        for column in view.columns() {
            let at = format!("sys.{}.{}", view.name(), column.name);
            assert!(columns.insert(column.name), "{at} twice");
            assert!(column.doc.ends_with('.') && !column.doc.contains('|'), "{at}");
            assert_eq!(column.column_type == ColumnType::Timestamp, column.name.ends_with("_at"), "{at}");
        }
    }
}

#[test]
fn the_reference_page_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/sys.md");
    let page = reference_page();
    if std::env::var_os("TIDEGATE_WRITE_DOCS").is_some() {
        std::fs::create_dir_all(std::path::Path::new(path).parent().unwrap()).unwrap();
        std::fs::write(path, &page).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(written == page, "docs/reference/sys.md is out of date: run the test with TIDEGATE_WRITE_DOCS=1");
}
