//! The independent reader of the tables.

use std::{
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

use crate::{
    canonical::{Shape, assert_same},
    checkpoints,
    gate::Gate,
    pg::TextRow,
    servers::{Server, script},
};

/// Reads mirrored tables with pypaimon and compares them with MySQL's, row by row.
pub async fn assert_pypaimon_reads_the_same(gate: &Gate, server: &Server, database: &str, tables: &[&str]) {
    let state = checkpoints::newest(gate).await;
    let mut conn = server.connect().await;
    let mut shapes = Vec::new();
    let mut request = Vec::new();
    for table in tables {
        let shape = Shape::load(&mut conn, database, table).await;
        let name = format!("{database}.{table}");
        let commit = state.tables.get(&name).unwrap_or_else(|| panic!("no checkpoint has {name}"));
        let columns: Vec<&str> = shape.columns.iter().map(|column| column.name.as_str()).collect();
        let path = Path::new(gate.store()).join(&commit.path);
        request.push(serde_json::json!({ "path": path, "columns": columns }));
        shapes.push(shape);
    }
    let answer = run(&serde_json::Value::from(request).to_string());
    for (shape, rows) in shapes.iter().zip(answer) {
        let mysql = shape.mysql_rows(&mut conn).await;
        let read = shape.canonical_rows("pypaimon", rows);
        assert_same(&format!("{}.{}", shape.database, shape.table), ("MySQL", &mysql), ("pypaimon", &read));
    }
    let _ = conn.disconnect().await;
}

fn run(request: &str) -> Vec<Vec<TextRow>> {
    let installed = Command::new("bash").arg(script("pypaimon.sh")).output().expect("bash can be started");
    assert!(installed.status.success(), "pypaimon cannot be installed: {}", String::from_utf8_lossy(&installed.stderr));
    let python = String::from_utf8_lossy(&installed.stdout).trim().to_owned();
    let reader = Path::new(env!("CARGO_MANIFEST_DIR")).join("pypaimon/read_tables.py");
    let mut process = Command::new(python)
        .arg(reader)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("python can be started");
    process.stdin.take().expect("a pipe was asked for").write_all(request.as_bytes()).expect("python reads its input");
    let output = process.wait_with_output().expect("python ends");
    assert!(output.status.success(), "pypaimon does not read the tables: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("the reader prints JSON")
}
