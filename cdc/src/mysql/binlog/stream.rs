//! The stream of a server's binlog: one dump connection, its events framed, checked and counted.

use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use mysql_async::prelude::Queryable;
use mysql_async::{BinlogStreamRequest, Sid};
use tokio::time::timeout;

use super::{Event, EventHeader, parse_event};
use crate::error::{Code, Error, Result};
use crate::mysql::connect::{check_resumable, connect, query_failed, server_message};
use crate::mysql::{Flavor, ServerInfo};
use crate::source::definition::ConnectionOptions;
use crate::source::position::{FilePosition, GtidSet, Position};

/// One event as it stands in the log.
#[derive(Debug)]
pub struct RawEvent {
    /// Its header. Inside of a compressed transaction `log_pos` means nothing.
    pub header: EventHeader,
    /// What follows the header, the checksum verified and removed.
    pub body: Vec<u8>,
}

/// Where in the log's files the stream is.
#[derive(Debug, Default)]
struct Place {
    file: String,
    offset: u64,
}

impl Place {
    /// Moves on to the offset that a header names in 32 bits. Offsets only grow within a file, so when the number
    /// shrinks, the file has passed another 4 GiB.
    fn advance(&mut self, log_pos: u32) {
        // Artificial events have no place in the file.
        if log_pos == 0 {
            return;
        }
        let high = self.offset & !u64::from(u32::MAX);
        let next = high | u64::from(log_pos);
        self.offset = if next < self.offset { next + (1 << 32) } else { next };
    }
}

/// Events as a connection frames them.
pub type Events = BoxStream<'static, mysql_async::Result<mysql_async::binlog::events::Event>>;

/// The events of a server's binlog from a position on. Transactions that were compressed as a whole come unpacked.
pub struct EventStream {
    events: Events,
    flavor: Flavor,
    heartbeat: Duration,
    place: Place,
    /// Bytes of the compressed transaction that are still to come.
    payload_left: u64,
    /// Events before this offset in the first file are passed over.
    skip_to: Option<FilePosition>,
}

impl std::fmt::Debug for EventStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventStream").field("flavor", &self.flavor).field("place", &self.place).finish_non_exhaustive()
    }
}

mod kind {
    pub(super) const ROTATE: u8 = 4;
    pub(super) const FORMAT_DESCRIPTION: u8 = 15;
    pub(super) const HEARTBEAT: u8 = 27;
    pub(super) const TRANSACTION_PAYLOAD: u8 = 40;
    pub(super) const HEARTBEAT_V2: u8 = 41;
}

/// Opens the stream at a position: behind the transactions of its GTID set, else at its place in the files.
///
/// The server must have executed what the position covers and must still have the log behind it; else the error is
/// [`Code::OtherServer`] or [`Code::PositionPurged`]. The server sends a heartbeat when nothing else comes for
/// `heartbeat`.
pub async fn open_stream(
    options: &ConnectionOptions,
    server: &ServerInfo,
    position: &Position,
    server_id: u32,
    heartbeat: Duration,
) -> Result<EventStream> {
    let (mut conn, now) = connect(options).await?;
    if now.flavor != server.flavor {
        return Err(Error::new(Code::OtherServer, format!("the server is now {} {}", now.flavor, now.version)));
    }
    now.must_be(server)?;
    check_resumable(&mut conn, &now, position).await?;
    let failed = |error| query_failed("the binlog could not be opened", error);
    let nanos = heartbeat.as_nanos().min(u128::from(u32::MAX) * 1_000_000_000);
    // Slow readers are waited for: capture pauses the stream when its memory is full.
    conn.query_drop(format!(
        "SET @master_heartbeat_period = {nanos}, @source_heartbeat_period = {nanos}, net_write_timeout = 3600"
    ))
    .await
    .map_err(failed)?;

    let mut request = BinlogStreamRequest::new(server_id);
    let mut skip_to = None;
    let file_name;
    match (&position.gtid, &position.file) {
        (Some(GtidSet::MariaDb(set)), _) => {
            conn.query_drop(format!(
                "SET @mariadb_slave_capability = 4, @slave_gtid_strict_mode = 0, @slave_gtid_ignore_duplicates = 0, \
                 @slave_connect_state = '{set}'"
            ))
            .await
            .map_err(failed)?;
        }
        (Some(GtidSet::Mysql(set)), _) => {
            let sids = set.groups().map(|(uuid, tag, intervals)| {
                let tag = if tag.is_empty() { String::new() } else { format!("{tag}:") };
                let intervals: Vec<String> =
                    intervals.iter().map(|(start, end)| format!("{start}-{}", end - 1)).collect();
                format!("{}:{tag}{}", uuid.hyphenated(), intervals.join(":")).parse::<Sid<'_>>()
            });
            let sids: Vec<Sid<'_>> = sids.collect::<std::io::Result<_>>().map_err(|error| {
                Error::new(Code::Internal, format!("the GTID set {set} could not be sent")).with_source(error)
            })?;
            request = request.with_gtid().with_gtid_set(sids);
        }
        (None, Some(file)) => {
            if now.flavor == Flavor::MariaDb {
                conn.query_drop("SET @mariadb_slave_capability = 4").await.map_err(failed)?;
            }
            file_name = file.file.clone().into_bytes();
            request = request.with_filename(&file_name);
            // The command has 32 bits for the offset. Beyond them, the file is read from its start.
            if file.offset > u64::from(u32::MAX) {
                skip_to = Some(file.clone());
            } else {
                request = request.with_pos(file.offset.max(4));
            }
        }
        (None, None) => {
            if now.flavor == Flavor::MariaDb {
                conn.query_drop("SET @mariadb_slave_capability = 4").await.map_err(failed)?;
            }
        }
    }
    let opened = timeout(options.connect_timeout, conn.into_inner().get_binlog_stream(request)).await;
    let stream = opened
        .map_err(|_| Error::new(Code::ConnectionLost, "the server did not answer the request for its binlog"))?
        .map_err(stream_failed)?;
    Ok(EventStream::new(Box::pin(stream), now.flavor, heartbeat, skip_to))
}

impl EventStream {
    /// The stream of a server's events, framed as they came and not yet checked. Those before `skip_to` in the first file
    /// are passed over.
    pub fn new(events: Events, flavor: Flavor, heartbeat: Duration, skip_to: Option<FilePosition>) -> Self {
        Self { events, flavor, heartbeat, place: Place::default(), payload_left: 0, skip_to }
    }

    /// The same stream, whose framed events pass through something first, such as the faults of a test.
    #[must_use]
    pub fn through(mut self, pass: impl FnOnce(Events) -> Events) -> Self {
        self.events = pass(self.events);
        self
    }

    /// The next event. Waits as long as the server sends heartbeats, which are events as well.
    ///
    /// A call that is cancelled loses nothing. After an error the stream is over.
    pub async fn next(&mut self) -> Result<RawEvent> {
        loop {
            // A busy server may be late with its heartbeats; a connection that is gone is noticed all the same.
            let patience = (self.heartbeat * 3).max(Duration::from_secs(30));
            let event = match timeout(patience, self.events.next()).await {
                Err(_) => {
                    return Err(Error::new(Code::ConnectionLost, format!("the server sent nothing for {patience:?}"))
                        .with_detail("It should have sent a heartbeat at least."));
                }
                Ok(None) => return Err(Error::new(Code::ConnectionLost, "the server ended the binlog's stream")),
                Ok(Some(event)) => event.map_err(stream_failed)?,
            };
            let event = self.accept(&event)?;
            if !self.is_before_start(&event) {
                return Ok(event);
            }
        }
    }

    /// The place behind the last event; inside of a compressed transaction, behind all of it.
    pub fn position(&self) -> Option<FilePosition> {
        (!self.place.file.is_empty()).then(|| FilePosition::new(self.place.file.clone(), self.place.offset))
    }

    /// The file the stream is in; empty before its first event.
    pub fn file(&self) -> &str {
        &self.place.file
    }

    /// The offset behind the last event in [`Self::file`].
    pub fn offset(&self) -> u64 {
        self.place.offset
    }

    /// Checks an event and counts it.
    fn accept(&mut self, event: &mysql_async::binlog::events::Event) -> Result<RawEvent> {
        let raw = event.header();
        let header = EventHeader {
            timestamp: raw.timestamp(),
            kind: raw.event_type_raw(),
            server_id: raw.server_id(),
            size: raw.event_size(),
            log_pos: raw.log_pos(),
            flags: raw.flags_raw(),
        };
        let mut body = Vec::with_capacity(event.data().len() + 1);
        body.extend_from_slice(event.data());
        if header.kind == kind::FORMAT_DESCRIPTION {
            // The library takes the number of the checksum's algorithm off.
            body.push(event.footer().get_checksum_alg().ok().flatten().map_or(0, |algorithm| algorithm as u8));
        }

        if !event.footer().get_checksum_enabled() {
            // Inside of a compressed transaction. The library drops what it cannot unpack, so bytes are counted.
            let size = u64::from(header.size);
            self.payload_left =
                self.payload_left.checked_sub(size).ok_or_else(|| payload_broken("it is longer than announced"))?;
            return Ok(RawEvent { header, body });
        }
        if self.payload_left > 0 {
            return Err(payload_broken("it ends early"));
        }
        if let Some(stored) = event.checksum() {
            verify(&header, &body, u32::from_le_bytes(stored), &self.place)?;
        }
        match header.kind {
            kind::ROTATE | kind::HEARTBEAT | kind::HEARTBEAT_V2 | kind::TRANSACTION_PAYLOAD => {
                self.follow(&header, &body)?;
            }
            _ => self.place.advance(header.log_pos),
        }
        Ok(RawEvent { header, body })
    }

    /// Follows what an event says about the stream itself.
    fn follow(&mut self, header: &EventHeader, body: &[u8]) -> Result<()> {
        let event = parse_event(self.flavor, header, body).map_err(|error| {
            let code = if header.kind == kind::TRANSACTION_PAYLOAD {
                Code::PayloadNotUnpacked
            } else {
                Code::EventNotUnderstood
            };
            Error::new(code, format!("a binlog event of kind {} is not understood", header.kind))
                .with_detail(format!("It ends at {}:{}.", self.place.file, header.log_pos))
                .with_source(error)
        })?;
        match event {
            Event::Rotate { file, offset } => self.place = Place { file, offset },
            Event::Heartbeat { file, offset } => {
                // Everything up to there was sent, or need not be.
                if file == self.place.file {
                    match offset {
                        Some(offset) => self.place.offset = self.place.offset.max(offset),
                        None => self.place.advance(header.log_pos),
                    }
                }
            }
            Event::TransactionPayload(payload) => {
                self.payload_left = payload.uncompressed_size;
                self.place.advance(header.log_pos);
            }
            _ => self.place.advance(header.log_pos),
        }
        Ok(())
    }

    /// Whether an event lies before the place that was asked for. What later events are read with is never passed over.
    fn is_before_start(&mut self, event: &RawEvent) -> bool {
        let Some(start) = &self.skip_to else { return false };
        if self.place.file != start.file || self.place.offset > start.offset {
            self.skip_to = None;
            return false;
        }
        !matches!(event.header.kind, kind::ROTATE | kind::FORMAT_DESCRIPTION | kind::HEARTBEAT | kind::HEARTBEAT_V2)
    }
}

fn payload_broken(why: &str) -> Error {
    Error::new(Code::PayloadNotUnpacked, "a compressed transaction of the binlog cannot be unpacked")
        .with_detail(format!("The reason: {why}."))
}

/// The flag of a file that is being written; it is not part of the checksum.
const IN_USE: u16 = 1;

fn verify(header: &EventHeader, body: &[u8], stored: u32, place: &Place) -> Result<()> {
    let mut covered = *header;
    if header.kind == kind::FORMAT_DESCRIPTION {
        covered.flags &= !IN_USE;
    }
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&covered.to_bytes());
    hasher.update(body);
    if hasher.finalize() == stored {
        return Ok(());
    }
    Err(Error::new(Code::ChecksumMismatch, "an event of the binlog fails its checksum").with_detail(format!(
        "It is of kind {} and {} bytes, behind {}:{}.",
        header.kind, header.size, place.file, place.offset
    )))
}

/// The server's error number for everything about a dump connection.
const FATAL_DUMP_ERROR: u16 = 1236;
/// MariaDB's own number for two replicas with one id.
const SAME_SERVER_ID: u16 = 4052;

fn stream_failed(error: mysql_async::Error) -> Error {
    let mysql_async::Error::Server(server) = &error else {
        return match &error {
            // What the library could not frame: nothing is skipped, the stream ends here.
            mysql_async::Error::Io(mysql_async::IoError::Io(io))
                if matches!(io.kind(), std::io::ErrorKind::InvalidData | std::io::ErrorKind::InvalidInput) =>
            {
                Error::new(Code::EventNotUnderstood, "an event of the binlog could not be read")
                    .with_detail(format!("The reason: {io}."))
                    .with_source(error)
            }
            _ => query_failed("the connection to the binlog was lost", error),
        };
    };
    let detail = server_message(server);
    let (code, message) = match server.code {
        FATAL_DUMP_ERROR => classify_dump_error(&server.message),
        SAME_SERVER_ID => (Code::ServerIdTaken, "another replica uses the same server id"),
        1227 | 1045 => (Code::MissingRight, "the binlog may not be read"),
        1053 | 1317 | 1927 => (Code::ConnectionLost, "the server ended the binlog's stream"),
        _ => return query_failed("the binlog could not be read", error),
    };
    let mut failed = Error::new(code, message).with_detail(detail);
    if code == Code::MissingRight {
        failed = failed.with_hint("GRANT REPLICATION SLAVE ON *.* TO the capturing user.");
    }
    failed.with_source(error)
}

/// Error 1236 has one number for many things; its text tells them apart. Wordings of MySQL 5.7 to 9 and MariaDB.
fn classify_dump_error(message: &str) -> (Code, &'static str) {
    let text = message.to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
    if has(&["same server_uuid/server_id", "same server_id", "same server-id", "server_uuid/server_id as this"]) {
        (Code::ServerIdTaken, "another replica uses the same server id")
    } else if has(&["purged", "could not find first log file name", "too old"]) {
        (Code::PositionPurged, "the binlog position that is needed was purged")
    } else if has(&[
        "more gtids than",
        "not in the master's binlog",
        "impossible position",
        "position > file size",
        "diverged",
        "could not find gtid state",
    ]) {
        (Code::OtherServer, "the server's binlog does not continue what was captured")
    } else if has(&["binary log is not open", "binary logging is not enabled"]) {
        (Code::BinlogOff, "the server writes no binlog")
    } else if has(&["gtid_mode"]) {
        (Code::OtherServer, "the server has no GTIDs any more")
    } else if has(&["misconfigured master", "server_id was not set"]) {
        (Code::BinlogOff, "the server has no server_id")
    } else {
        (Code::QueryFailed, "the server cannot send its binlog")
    }
}

#[cfg(test)]
mod tests;
