//! The model of a server against real ones: the same history gives the same rows, the same positions and the same bytes in
//! the log, but for what depends on time and on who was there before.

#![allow(clippy::disallowed_methods, reason = "tests against real servers are in the time that there is")]

#[path = "../../../cdc/tests/server/mod.rs"]
mod server;

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use server::{Kind, Server};
use tidegate_cdc::mysql::Flavor;
use tidegate_cdc::mysql::binlog::EventHeader;
use tidegate_simulation::history::{Before, Beginning};
use tidegate_simulation::mysql::engine::Variant;
use tidegate_simulation::mysql::sql;
use uuid::Uuid;

const HEADER: usize = EventHeader::SIZE;
const CHECKSUM: usize = 4;

/// An event in which what differs from run to run is blank.
#[derive(PartialEq)]
struct Plain {
    kind: u8,
    log_pos: u32,
    flags: u16,
    body: Vec<u8>,
}

impl std::fmt::Debug for Plain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let hex: String = self.body.iter().map(|byte| format!("{byte:02x}")).collect();
        let text: String = self.body.iter().map(|b| if b.is_ascii_graphic() { char::from(*b) } else { '.' }).collect();
        write!(f, "kind {} to {} flags {:#x}: {hex} {text}", self.kind, self.log_pos, self.flags)
    }
}

/// Blanks events one after the other: tables get numbers in the order in which they appear.
#[derive(Default)]
struct Blank {
    tables: BTreeMap<Vec<u8>, u8>,
}

impl Blank {
    fn event(&mut self, event: &[u8]) -> Plain {
        let number = |at: usize| u32::from_le_bytes(event[at..at + 4].try_into().expect("four bytes"));
        let kind = event[4];
        let mut flags = u16::from_le_bytes([event[17], event[18]]);
        let mut body = event[HEADER..event.len() - CHECKSUM].to_vec();
        match kind {
            // A statement: the session, how long it took, the number of a schema change.
            2 => {
                body[..8].fill(0);
                let status = 13..13 + usize::from(u16::from_le_bytes([body[11], body[12]]));
                blank_number_of_schema_change(&mut body[status]);
            }
            // The beginning of a file: when the server started. A file in use is marked.
            15 => {
                body[52..56].fill(0);
                flags &= !1;
            }
            // The end of a transaction: its number in the engines.
            16 => body.fill(0),
            // The beginning of a transaction: the hints of parallel replay, and when it was committed.
            33 | 34 => body[26..49].fill(0),
            // Tables, and rows of them.
            19 | 23..=25 | 30..=32 => {
                let next = self.tables.len() as u8;
                let id = *self.tables.entry(body[..6].to_vec()).or_insert(next);
                body[..6].fill(0);
                body[0] = id;
            }
            // MariaDB: the oldest file that a crashed server would look at, which its engines decide.
            161 => body.fill(0),
            _ => {}
        }
        Plain { kind, log_pos: number(13), flags, body }
    }
}

/// Blanks the number of the transaction in the data dictionary.
fn blank_number_of_schema_change(status: &mut [u8]) {
    let mut at = 0;
    while let Some(kind) = status.get(at).copied() {
        let length = match kind {
            0 => 4,
            1 | 9 => 8,
            2 | 6 => 1 + usize::from(status[at + 1]),
            4 => 6,
            // The databases that a statement changes, each ended by a zero.
            12 => {
                let names = status[at + 2..].split_inclusive(|byte| *byte == 0).take(usize::from(status[at + 1]));
                1 + names.map(<[u8]>::len).sum::<usize>()
            }
            17 | 129 => {
                status[at + 1..at + 9].fill(0);
                8
            }
            18 => 2,
            16 | 19 | 20 => 1,
            kind => panic!("a status variable of kind {kind} in {status:02x?}"),
        };
        at += 1 + length;
    }
}

/// The events in a file of a log, as if nothing had been logged in between that comes when the engines have written what
/// they were given: MariaDB's binlog checkpoints behind the one at the head of a file.
fn events(file: &[u8]) -> Vec<Vec<u8>> {
    let mut rest = &file[4..];
    let mut events: Vec<Vec<u8>> = Vec::new();
    let mut left_out = 0;
    while rest.len() >= HEADER {
        let number = |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().expect("four bytes"));
        let size = number(9);
        let end = number(13) - left_out;
        let (event, behind) = rest.split_at(rest.len().min(size as usize));
        if event[4] == 161 && events.len() > 2 {
            left_out += size;
        } else {
            let mut event = event.to_vec();
            event[13..17].copy_from_slice(&end.to_le_bytes());
            events.push(event);
        }
        rest = behind;
    }
    events
}

async fn compare(kind: Kind, gtid: bool, seed: u64, steps: usize) {
    let options: &[&str] = match (kind, gtid) {
        (Kind::MariaDb, _) => &["--binlog-annotate-row-events=OFF"],
        (Kind::Mysql, true) => &[],
        (Kind::Mysql, false) => &["--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"],
    };
    let server = Server::start(kind, options).await;
    let flavor = if kind == Kind::MariaDb { Flavor::MariaDb } else { Flavor::Mysql };
    let beginning = Beginning::new(seed, Variant { flavor, gtid, unordered: false });
    let run = async |statements: Vec<String>| {
        let all = [vec![sql::begin()], statements].concat();
        server.execute(&all.iter().map(String::as_str).collect::<Vec<_>>()).await;
    };
    run(beginning.tables()).await;
    run(vec!["FLUSH BINARY LOGS".to_owned()]).await;
    let one = async |query: &str| server.rows(query).await.remove(0).remove(0).expect("a value");
    let (uuid, executed) = match flavor {
        Flavor::Mysql => (one("SELECT @@server_uuid").await, one("SELECT @@gtid_executed").await),
        Flavor::MariaDb => (Uuid::nil().to_string(), one("SELECT @@gtid_binlog_pos").await),
    };
    // `uuid:1-7` and `0-1-7`; nothing without GTIDs.
    let transactions = executed.rsplit(['-', ':']).next().and_then(|last| last.parse().ok()).unwrap_or_default();
    assert_eq!(transactions > 0, gtid, "{executed}");
    let listed = server.rows("SHOW BINARY LOGS").await;
    let file = listed.len();
    let before = Before { uuid: uuid.parse().expect("a UUID"), transactions, file };
    let history = beginning.go_on(before, steps);
    for statements in &history.script {
        run(statements.clone()).await;
    }
    for (table, rows) in &history.rows {
        assert_eq!(&server.rows(&format!("SELECT * FROM shop.{table} ORDER BY id")).await, rows, "{table}");
    }
    let (mut ours, mut theirs) = (Blank::default(), Blank::default());
    let mut compared = 0;
    // The last file has been begun and holds nothing.
    for (index, model) in history.files.iter().enumerate().take(history.files.len() - 1) {
        let name = format!("binlog.{:06}", file + index);
        let real = std::fs::read(server.data().join(&name)).expect("a file of the log");
        let real: Vec<Plain> = events(&real).iter().map(|event| theirs.event(event)).collect();
        let model: Vec<Plain> = model.iter().map(|event| ours.event(event)).collect();
        if let Some(place) = real.iter().zip(&model).position(|(real, model)| real != model) {
            let around =
                |events: &[Plain]| format!("{:#?}", &events[place.saturating_sub(4)..events.len().min(place + 3)]);
            let (model, real) = (around(&model), around(&real));
            panic!(
                "{kind:?}, seed {seed}: event {place} of {name} differs; the model's:\n{model}\nthe real ones:\n{real}"
            );
        }
        assert_eq!(model.len(), real.len(), "{kind:?}, seed {seed}: {name}");
        compared += real.len();
    }
    println!("{kind:?}, seed {seed}: {compared} events in {} files", history.files.len() - 1);
}

#[tokio::test]
async fn the_same_history_gives_the_same_log_and_the_same_rows() {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    for kind in Kind::all() {
        for gtid in [true, false] {
            if kind == Kind::MariaDb && !gtid {
                continue;
            }
            // One that is always the same, and one that is not.
            for seed in [1, now] {
                compare(kind, gtid, seed, 120).await;
            }
        }
    }
}
