//! The work that no mirror can avoid, by itself: reading the rows, decoding the log.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use futures::StreamExt;
use mysql_async::{Row, prelude::Queryable};
use tidegate_cdc::{
    mysql::{
        binlog::{Event, RowDecoder, TableMap, parse_event, stream::open_stream},
        catalog::load_table,
        connect::connect,
        types::MysqlTable,
    },
    rows::RowBuffer,
    source::{
        definition::ConnectionOptions,
        position::{FilePosition, Position},
    },
};
use tidegate_storage::paimon::{Field, TableSchema};
use tidegate_tests::servers::{CAPTURER, Server};

use crate::tables::{DATABASE, TABLE};

/// Reads the table once over the binary protocol, looking at no value.
pub(crate) async fn read_table(server: &Server) -> (u64, Duration) {
    let mut conn = server.connect().await;
    let start = Instant::now();
    let statement = conn.prep(format!("SELECT * FROM {DATABASE}.{TABLE}")).await.expect("a statement can be prepared");
    let mut rows = 0;
    {
        let mut stream = conn.exec_stream::<Row, _, _>(&statement, ()).await.expect("the table can be read");
        while let Some(row) = stream.next().await {
            row.expect("a row can be read");
            rows += 1;
        }
    }
    let time = start.elapsed();
    let _ = conn.disconnect().await;
    (rows, time)
}

/// Decodes every row change of the benchmark's table from a position to the end of the log, and drops it.
pub(crate) async fn decode_binlog(server: &Server, (file, offset): &(String, u64)) -> (u64, Duration) {
    let options = ConnectionOptions::new("127.0.0.1", server.port, CAPTURER.0, CAPTURER.1);
    let (mut conn, info) = connect(&options).await.expect("the server can be reached");
    let table =
        load_table(&mut conn, &info, DATABASE, TABLE).await.expect("the table can be read").expect("it is there");
    let schema = Arc::new(schema_of(&table));
    let (end_file, end_offset) = server.log_end().await;
    let position = Position {
        gtid: None,
        file: Some(FilePosition::new(file.clone(), *offset)),
        server_uuid: info.server_uuid.clone(),
    };
    let start = Instant::now();
    let mut stream =
        open_stream(&options, &info, &position, 990_001, Duration::from_secs(10)).await.expect("the log can be read");
    let mut buffer = RowBuffer::new(&schema);
    let mut decoders: HashMap<u64, (TableMap, RowDecoder)> = HashMap::new();
    let mut at_file = file.clone();
    let mut changes = 0;
    loop {
        let raw = stream.next().await.expect("the log goes on");
        match parse_event(info.flavor, &raw.header, &raw.body).expect("an event can be parsed") {
            Event::Rotate { file, .. } => at_file = file,
            Event::TableMap(map)
                if map.database == DATABASE
                    && map.table == TABLE
                    && decoders.get(&map.table_id).is_none_or(|(known, _)| !known.same_columns(&map)) =>
            {
                let decoder = RowDecoder::compile(&map, &table, &schema).expect("the table fits its log");
                decoders.insert(map.table_id, (map, decoder));
            }
            Event::Rows(rows) => {
                if let Some((_, decoder)) = decoders.get(&rows.table_id) {
                    changes += decoder.decode(&rows, &mut buffer).expect("rows can be decoded") as u64;
                    if buffer.bytes() > 16 << 20 {
                        buffer.take().expect("a batch can be built");
                    }
                }
            }
            _ => {}
        }
        if at_file == end_file && u64::from(raw.header.log_pos) >= end_offset {
            return (changes, start.elapsed());
        }
    }
}

fn schema_of(table: &MysqlTable) -> TableSchema {
    let fields: Vec<Field> = (0..)
        .zip(&table.columns)
        .map(|(id, column)| Field {
            id,
            name: column.name.clone(),
            data_type: column.column_type.data_type().expect("the benchmark's types can be mirrored"),
            nullable: !table.primary_key.contains(&column.name),
            description: None,
            initial_default: None,
        })
        .collect();
    TableSchema {
        id: 0,
        highest_field_id: i32::try_from(fields.len()).expect("few columns") - 1,
        fields,
        primary_keys: table.primary_key.clone(),
        options: BTreeMap::new(),
        comment: None,
        time_millis: 0,
    }
}
