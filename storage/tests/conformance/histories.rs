//! Tables with values of every type, through loads, updates, deletes and merges of every kind.

use tidegate_storage::paimon::DataType;
use tidegate_storage::table::{RowKind, TableOptions};

use crate::mirror::{Mirror, field};
use crate::texts::Line;
use crate::values::{borders, scatter, value};

/// The columns behind the key.
pub(crate) fn value_types() -> Vec<(&'static str, DataType)> {
    let decimal = |precision, scale| DataType::Decimal { precision, scale };
    vec![
        ("flag", DataType::Boolean),
        ("tiny", DataType::TinyInt),
        ("small", DataType::SmallInt),
        ("int", DataType::Int),
        ("big", DataType::BigInt),
        ("float", DataType::Float),
        ("double", DataType::Double),
        ("price", decimal(9, 2)),
        ("amount", decimal(18, 6)),
        ("unsigned", decimal(20, 0)),
        ("huge", decimal(38, 38)),
        ("code", DataType::Char(5)),
        ("name", DataType::Varchar(100)),
        ("text", DataType::String),
        ("digest", DataType::Binary(16)),
        ("bits", DataType::Varbinary(8)),
        ("blob", DataType::Bytes),
        ("day", DataType::Date),
        ("at", DataType::Timestamp(6)),
        ("since", DataType::TimestampLtz(6)),
    ]
}

/// A row of each id: the first versions go through all borders of all types, one value in nine is NULL.
pub(crate) fn rows(ids: impl IntoIterator<Item = u64>, version: u64) -> Vec<Line> {
    let of_id = |id: u64| {
        let column = |(n, (_, data_type)): (u64, (&str, DataType))| {
            let salt = id * 1000 + version * 31 + n;
            if scatter(salt).is_multiple_of(9) {
                return None;
            }
            let borders = borders(&data_type);
            Some(borders.get((id + version) as usize % 40).cloned().unwrap_or_else(|| value(&data_type, salt)))
        };
        let id_text = Some((id as i64 - 20).to_string());
        std::iter::once(id_text).chain((0..).zip(value_types()).map(column)).collect()
    };
    ids.into_iter().map(of_id).collect()
}

pub(crate) async fn table(options: TableOptions) -> Mirror {
    let values = value_types().into_iter().map(|(name, data_type)| field(name, data_type, true));
    let id = field("id", DataType::BigInt, false);
    Mirror::new(std::iter::once(id).chain(values).collect(), options).await
}

fn levels(version: &tidegate_storage::table::TableVersion) -> usize {
    version.files.iter().map(|file| file.meta.level).collect::<std::collections::BTreeSet<_>>().len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn values_of_every_type_at_many_levels() {
    let options = TableOptions { compaction: false, rows_per_file: 100, ..TableOptions::default() };
    let mut mirror = table(options).await;
    mirror.apply(RowKind::Upsert, &rows(0..250, 1));
    mirror.commit().await;
    // The first file's rows all go.
    mirror.apply(RowKind::Delete, &rows(0..120, 0));
    let id = mirror.commit().await;
    assert!(mirror.load(id).await.unwrap().files.iter().all(|file| file.row_count() > 0));
    for version in 2..18 {
        mirror.apply(RowKind::Upsert, &rows((0..12).map(|n| scatter(n + version * 100) % 300), version));
        mirror.apply(RowKind::Delete, &rows((0..4).map(|n| scatter(n + version * 77) % 300), version));
        mirror.commit().await;
    }
    // Vectors alone.
    mirror.apply(RowKind::Delete, &rows((0..30).map(|n| n * 10), 18));
    let id = mirror.commit().await;
    assert!(levels(&mirror.load(id).await.unwrap()) > 10);
    let compared = mirror.check_all().await;
    let columns: Vec<_> = value_types().into_iter().map(|(name, _)| name).collect();
    let found = mirror.check_filters(&columns);
    println!("{} states with {} rows, {found} rows found by filters", compared.states, compared.rows);
    assert_eq!(compared.states, 19);
    assert!(found > 500, "{found}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_of_several_buckets_that_are_merged() {
    let mut states = 0;
    for (buckets, inline_merge_rows) in [(1, 50), (5, 100_000)] {
        let options = TableOptions { buckets, inline_merge_rows, rows_per_file: 60, ..TableOptions::default() };
        let mut mirror = table(options).await;
        mirror.writer.begin_loading();
        for page in 0..3 {
            mirror.apply(RowKind::Upsert, &rows([page * 80 + 7, page * 80 + 90, 500], 2));
            mirror.apply(RowKind::InsertAbsent, &rows(page * 80..page * 80 + 80, 1));
            mirror.commit().await;
        }
        mirror.writer.end_loading();
        for version in 3..8 {
            mirror.apply(RowKind::Upsert, &rows((0..25).map(|n| scatter(n + version * 100) % 300), version));
            mirror.apply(RowKind::Delete, &rows((0..9).map(|n| scatter(n + version * 77) % 300), version));
            mirror.commit().await;
        }
        mirror.writer.compact().await.unwrap();
        let id = mirror.commit().await;
        mirror.reopen(id).await.unwrap();
        // Every row of the table, then none, then some again.
        mirror.apply(RowKind::Upsert, &rows(0..300, 8));
        mirror.commit().await;
        mirror.truncate().await;
        mirror.commit().await;
        mirror.apply(RowKind::Upsert, &rows(40..60, 9));
        mirror.commit().await;
        mirror.apply(RowKind::Delete, &rows(40..60, 9));
        mirror.commit().await;
        assert_eq!(mirror.state().rows.len(), 0);
        let compared = mirror.check_all().await;
        println!("{} states with {} rows", compared.states, compared.rows);
        states += compared.states;
    }
    assert_eq!(states, 26);
}
