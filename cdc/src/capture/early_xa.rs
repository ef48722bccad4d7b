//! XA transactions that are being committed when a source begins.
//!
//! On MariaDB a first position may lie behind an XA COMMIT that the engine has not carried out yet. The stream will not
//! repeat it, so pages have to see it: they wait. The server lists such a transaction like those that are merely prepared,
//! which may stay so for days. The log tells them apart: the last that it says of a name before the position is XA COMMIT.

use std::collections::BTreeSet;
use std::time::Duration;

use tracing::info;

use crate::error::{Code, Error};
use crate::mysql::ServerInfo;
use crate::mysql::binlog::stream::RawEvent;
use crate::mysql::binlog::{Event, parse_event};
use crate::mysql::connect::{VISIBILITY_TIMEOUT, wait_completed};
use crate::mysql::server::{SourceConnection, SourceServer};
use crate::source::position::{FilePosition, Position};

/// Silence of the log that is being searched.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// Waits until a SELECT sees all that was committed before the first position. `server_id` is that of the stream to come.
pub(super) async fn wait(
    server: &dyn SourceServer,
    conn: &mut dyn SourceConnection,
    info: &ServerInfo,
    server_id: u32,
    first: &Position,
) -> Result<(), Error> {
    let listed = conn.prepared(info).await?;
    let Some(until) = first.file.as_ref().filter(|_| !listed.is_empty()) else { return Ok(()) };
    let listed: BTreeSet<String> = listed.into_iter().collect();
    for xid in committed(server, info, server_id, until, &listed).await? {
        info!(xid, "an XA transaction is being committed; the snapshot waits until it is visible");
        wait_completed(conn, info, &xid, VISIBILITY_TIMEOUT).await?;
    }
    Ok(())
}

/// Which of the transactions the log commits before `until`. The file of the position and the one before are searched.
async fn committed(
    server: &dyn SourceServer,
    info: &ServerInfo,
    server_id: u32,
    until: &FilePosition,
    listed: &BTreeSet<String>,
) -> Result<BTreeSet<String>, Error> {
    let here = FilePosition::new(until.file.clone(), 4);
    let mut stream = None;
    if let Some(before) = until.file_before() {
        let start = Position { file: Some(FilePosition::new(before, 4)), ..Position::default() };
        stream = match server.open_stream(info, &start, server_id, HEARTBEAT).await {
            Ok(stream) => Some(stream),
            Err(error) if error.code == Code::PositionPurged => None,
            Err(error) => return Err(error),
        };
    }
    let mut stream = match stream {
        Some(stream) => stream,
        None => {
            let start = Position { file: Some(here), ..Position::default() };
            server.open_stream(info, &start, server_id, HEARTBEAT).await?
        }
    };
    let mut committed = BTreeSet::new();
    while stream.position().is_none_or(|reached| reached < *until) {
        let event = stream.next().await?;
        // What comes behind the position is for the source's own stream.
        if stream.position().is_some_and(|reached| reached > *until) {
            break;
        }
        note(info, &event, listed, &mut committed)?;
    }
    Ok(committed)
}

fn note(
    info: &ServerInfo,
    raw: &RawEvent,
    listed: &BTreeSet<String>,
    committed: &mut BTreeSet<String>,
) -> Result<(), Error> {
    let event = parse_event(info.flavor, &raw.header, &raw.body).map_err(|error| {
        Error::new(Code::EventNotUnderstood, "an event before the source's first position is not understood")
            .with_source(error)
    })?;
    match event {
        Event::XaPrepare { xid, .. } => drop(committed.remove(&xid.to_string())),
        Event::Query(query) => {
            let mut words = query.sql.split_whitespace();
            if let (Some("XA"), Some("COMMIT"), Some(xid)) = (words.next(), words.next(), words.next()) {
                let xid = xid.to_ascii_lowercase();
                if listed.contains(&xid) {
                    committed.insert(xid);
                }
            }
        }
        _ => {}
    }
    Ok(())
}
