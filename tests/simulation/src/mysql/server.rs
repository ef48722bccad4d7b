//! Connections to the model, as capture makes them.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::stream;
use mysql_async::Value as Cell;
use mysql_async::binlog::BinlogVersion;
use mysql_async::consts::{ColumnFlags, ColumnType};
use mysql_common::binlog::EventStreamReader;
use tidegate_cdc::error::{Code, Error, Result};
use tidegate_cdc::mysql::binlog::EventHeader;
use tidegate_cdc::mysql::binlog::stream::EventStream;
use tidegate_cdc::mysql::catalog::MatchedTable;
use tidegate_cdc::mysql::server::{
    Asked, DefinitionLock, PageConnection, ServerOf, SourceConnection, SourceServer, TakeRow, Visible,
};
use tidegate_cdc::mysql::snapshot::pages::PageQuery;
use tidegate_cdc::mysql::snapshot::{KeyColumn, KeyValue};
use tidegate_cdc::mysql::types::{MysqlTable, MysqlType};
use tidegate_cdc::mysql::wire::row::Form;
use tidegate_cdc::mysql::{Flavor, ServerInfo};
use tidegate_cdc::source::definition::SourceDefinition;
use tidegate_cdc::source::position::{FilePosition, GtidSet, Position};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};
use uuid::Uuid;

use super::durable::number;
use super::engine::{Engine, Mysql};
use super::events;
use super::table::{Row, Value};
use crate::note;

impl Mysql {
    /// How jobs reach this server.
    pub fn server_of(&self, who: &'static str) -> ServerOf {
        let this = self.clone();
        Arc::new(move |_| Arc::new(Reached { mysql: this.clone(), who }))
    }
}

impl fmt::Debug for Mysql {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mysql")
    }
}

/// The server as one process reaches it.
#[derive(Debug)]
struct Reached {
    mysql: Mysql,
    who: &'static str,
}

/// A connection.
struct Link {
    mysql: Mysql,
    who: &'static str,
    epoch: u64,
    page_limits: HashMap<String, usize>,
}

impl Reached {
    async fn open(&self) -> Result<(Link, ServerInfo)> {
        way(&self.mysql).await;
        let (epoch, info) = {
            let engine = self.mysql.lock();
            if !engine.up {
                return Err(Error::new(Code::Unreachable, "nobody listens"));
            }
            (engine.epoch, engine.info())
        };
        way(&self.mysql).await;
        Ok((Link { mysql: self.mysql.clone(), who: self.who, epoch, page_limits: HashMap::new() }, info))
    }
}

/// Half a round trip.
async fn way(mysql: &Mysql) {
    sleep(mysql.world().between(Duration::from_micros(100), Duration::from_millis(5))).await;
}

fn lost() -> Error {
    Error::new(Code::ConnectionLost, "the connection is gone")
}

impl Link {
    /// Asks the server something; the answer is of one moment.
    async fn ask<T>(&self, what: &str, answer: impl FnOnce(&mut Engine) -> Result<T>) -> Result<T> {
        way(&self.mysql).await;
        let answer = {
            let mut engine = self.mysql.lock();
            if engine.epoch != self.epoch || !engine.up {
                return Err(lost());
            }
            answer(&mut engine)
        };
        note!(self.mysql.world(), "{} asks mysql {what}", self.who);
        way(&self.mysql).await;
        if self.mysql.lock().epoch == self.epoch { answer } else { Err(lost()) }
    }

    /// Waits until something is so.
    async fn until(&self, patience: Duration, is_so: impl Fn(&Engine) -> bool) -> Result<bool> {
        let deadline = Instant::now() + patience;
        loop {
            if self.ask("whether it is so", |engine| Ok(is_so(engine))).await? {
                return Ok(true);
            }
            if Instant::now() >= deadline {
                return Ok(false);
            }
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Looks at a table's rows once no schema change has it for itself.
    async fn with_rows<T>(&self, table: &MysqlTable, look: impl Fn(&super::table::Table) -> Result<T>) -> Result<T> {
        let free = |engine: &Engine| !engine.exclusive.contains(&table.name);
        if !self.until(Duration::from_secs(50), free).await? {
            return Err(Error::new(Code::QueryFailed, "a lock was waited for too long"));
        }
        self.ask("rows", |engine| match engine.seen.get(&table.name) {
            _ if engine.exclusive.contains(&table.name) => {
                Err(Error::new(Code::QueryFailed, "a lock was waited for too long"))
            }
            Some(table) => look(table),
            None => Err(Error::new(Code::TableGone, format!("there is no table {}", table.name))),
        })
        .await
    }
}

#[async_trait]
impl SourceServer for Reached {
    async fn connect(&self) -> Result<(Box<dyn SourceConnection>, ServerInfo)> {
        let (link, info) = self.open().await?;
        Ok((Box::new(link), info))
    }

    async fn connect_for_rows(&self, info: &ServerInfo) -> Result<Box<dyn PageConnection>> {
        let (link, now) = self.open().await?;
        now.must_be(info)?;
        Ok(Box::new(link))
    }

    async fn open_stream(
        &self,
        info: &ServerInfo,
        position: &Position,
        _: u32,
        heartbeat: Duration,
    ) -> Result<EventStream> {
        let (link, now) = self.open().await?;
        now.must_be(info)?;
        let dump = link.ask("for its log", |engine| Dump::open(engine, &link, position, heartbeat)).await?;
        let events = stream::unfold(dump, async |mut dump| {
            let next = dump.next().await;
            Some((next, dump))
        });
        Ok(EventStream::new(Box::pin(events), info.flavor, heartbeat, None))
    }

    async fn lock_definitions(&self, info: &ServerInfo, tables: &[(String, String)]) -> Result<Asked> {
        let (link, now) = self.open().await?;
        now.must_be(info)?;
        let names: Vec<String> = tables.iter().map(|(_, name)| name.clone()).collect();
        let deadline = Instant::now() + Duration::from_secs(3);
        loop {
            let locked = link
                .ask("for locks", |engine| {
                    if names.iter().any(|name| engine.exclusive.contains(name)) {
                        return Ok(false);
                    }
                    for name in &names {
                        *engine.shared.entry(name.clone()).or_default() += 1;
                    }
                    Ok(true)
                })
                .await?;
            if locked {
                return Ok(Asked::Locked(Box::new(Held { link, names })));
            }
            if Instant::now() > deadline {
                return Ok(Asked::Missed(Error::new(Code::QueryFailed, "a lock was waited for too long")));
            }
            sleep(Duration::from_millis(10)).await;
        }
    }
}

/// Locks on definitions.
struct Held {
    link: Link,
    names: Vec<String>,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut engine = self.link.mysql.lock();
        // The locks of an earlier time went with its connections.
        if engine.epoch == self.link.epoch {
            for name in &self.names {
                if let Some(count) = engine.shared.get_mut(name) {
                    *count -= 1;
                }
            }
        }
    }
}

#[async_trait]
impl DefinitionLock for Held {
    async fn release(self: Box<Self>) {
        way(&self.link.mysql).await;
    }
}

#[async_trait]
impl SourceConnection for Link {
    async fn start_position(&mut self, _: &ServerInfo) -> Result<Visible> {
        self.ask("where it is", |engine| Ok(engine.visible_position())).await
    }

    async fn log_end(&mut self, _: &ServerInfo) -> Result<FilePosition> {
        self.ask("where its log ends", |engine| Ok(engine.log_end())).await
    }

    async fn wait_visible(&mut self, _: &ServerInfo, position: &Position, patience: Duration) -> Result<()> {
        if self.until(patience, |engine| engine.covered(position) <= engine.visible).await? {
            return Ok(());
        }
        Err(Error::new(Code::NotVisible, format!("{position} did not become visible")))
    }

    async fn prepared(&mut self, info: &ServerInfo) -> Result<Vec<String>> {
        self.ask("what is prepared", |engine| {
            let counts = info.flavor == Flavor::MariaDb;
            Ok(engine.prepared.keys().filter(|_| counts).cloned().collect())
        })
        .await
    }

    async fn list_tables(&mut self, _: &ServerInfo, definition: &SourceDefinition) -> Result<Vec<MatchedTable>> {
        self.ask("for its tables", |engine| {
            let matches = |table: &&super::table::Table| {
                definition.matches(&table.definition.database, &table.definition.name, false)
            };
            let listed = engine.seen.values().filter(matches).map(|table| MatchedTable {
                database: table.definition.database.clone(),
                name: table.definition.name.clone(),
                target_schema: table.definition.database.clone(),
                target_table: table.definition.name.clone(),
                estimated_rows: table.rows.len() as u64,
                key: Some(table.definition.primary_key.clone()),
                left_out: None,
            });
            Ok(listed.collect())
        })
        .await
    }

    async fn load_tables(&mut self, _: &ServerInfo, _: &str, names: &[&str]) -> Result<Vec<MysqlTable>> {
        self.ask("for definitions", |engine| {
            Ok(names.iter().filter_map(|name| engine.seen.get(*name)).map(|table| table.definition.clone()).collect())
        })
        .await
    }

    async fn key_ends(&mut self, table: &MysqlTable) -> Result<Option<(Cell, Cell)>> {
        self.with_rows(table, |table| {
            let end = |key: Option<&i64>| key.map_or(Cell::NULL, |key| Cell::Int(*key));
            let mut keys = table.rows.keys();
            Ok(Some((end(table.rows.keys().next()), end(keys.next_back()))))
        })
        .await
    }

    async fn key_behind(
        &mut self,
        table: &MysqlTable,
        _: &[KeyColumn],
        after: Option<&[KeyValue]>,
        rows: u64,
    ) -> Result<Option<Vec<Cell>>> {
        self.with_rows(table, |table| {
            let mut keys = table.rows.keys().filter(|key| after.is_none_or(|after| **key > number(after)));
            Ok(keys.nth(rows.saturating_sub(1) as usize).map(|key| vec![Cell::Int(*key)]))
        })
        .await
    }

    async fn close(self: Box<Self>) {}
}

#[async_trait]
impl PageConnection for Link {
    async fn log_end(&mut self, _: &ServerInfo) -> Result<FilePosition> {
        self.ask("where its log ends", |engine| Ok(engine.log_end())).await
    }

    async fn select(&mut self, query: &PageQuery<'_>, take: TakeRow<'_>) -> Result<()> {
        let names: Vec<String> = query.selected.iter().map(|name| name.trim_matches('`').to_owned()).collect();
        let (after, up_to) = (query.after.map(number), query.up_to.map(number));
        if self.mysql.lock().durable.has_page(&query.table.name, after, up_to) {
            let table = &query.table.name;
            self.mysql.world().violate(format!("rows of {table} behind {after:?} are durable and are read again"));
        }
        let wait = || sleep(self.mysql.world().between(Duration::ZERO, self.mysql.page_lag));
        wait().await;
        let (forms, rows) = self
            .with_rows(query.table, |table| {
                let columns: Option<Vec<usize>> =
                    names.iter().map(|name| table.definition.column_index(name)).collect();
                let Some(columns) = columns else {
                    return Err(Error::new(Code::TableChanged, "there is no such column"));
                };
                let types: Vec<&MysqlType> =
                    columns.iter().map(|index| &table.definition.columns[*index].column_type).collect();
                let rows = table.rows.iter().filter(|(key, _)| {
                    after.is_none_or(|after| **key > after) && up_to.is_none_or(|up_to| **key <= up_to)
                });
                let packets = rows.take(query.limit).map(|(_, row)| packet(row, &columns, &types)).collect::<Vec<_>>();
                Ok((types.into_iter().map(form).collect::<Vec<_>>(), packets))
            })
            .await?;
        wait().await;
        for row in rows {
            take(&forms, &row);
        }
        Ok(())
    }

    fn page_limits(&mut self) -> &mut HashMap<String, usize> {
        &mut self.page_limits
    }

    async fn close(self: Box<Self>) {}
}

fn form(column_type: &MysqlType) -> Form {
    let number = match column_type {
        MysqlType::Int { .. } => ColumnType::MYSQL_TYPE_LONG,
        MysqlType::BigInt { .. } => ColumnType::MYSQL_TYPE_LONGLONG,
        _ => ColumnType::MYSQL_TYPE_VAR_STRING,
    };
    Form::of(number, ColumnFlags::empty())
}

/// A row of the binary protocol.
fn packet(row: &Row, columns: &[usize], types: &[&MysqlType]) -> Vec<u8> {
    let mut nulls = vec![0_u8; (columns.len() + 2).div_ceil(8)];
    let mut values = Vec::new();
    for (place, (index, column_type)) in columns.iter().zip(types).enumerate() {
        match (&row[*index], column_type) {
            (Value::Null, _) => nulls[(place + 2) / 8] |= 1 << ((place + 2) % 8),
            (Value::Int(value), MysqlType::Int { .. }) => values.extend_from_slice(&(*value as i32).to_le_bytes()),
            (Value::Int(value), _) => values.extend_from_slice(&value.to_le_bytes()),
            (Value::Text(text), _) => {
                values.push(text.len() as u8);
                values.extend_from_slice(text.as_bytes());
            }
        }
    }
    [vec![0], nulls, values].concat()
}

/// A connection that is sent the log.
struct Dump {
    mysql: Mysql,
    who: &'static str,
    epoch: u64,
    uuid: Uuid,
    /// The transactions that are not sent.
    known: Option<GtidSet>,
    /// The place in the log: the file, and the event in it.
    file: usize,
    event: usize,
    heartbeat: Duration,
    reader: EventStreamReader,
    /// Events that were read from the log and are on their way.
    waiting: VecDeque<Vec<u8>>,
    changes: watch::Receiver<u64>,
}

type Framed = mysql_async::Result<mysql_async::binlog::events::Event>;

impl Dump {
    fn open(engine: &mut Engine, link: &Link, position: &Position, heartbeat: Duration) -> Result<Self> {
        if engine.covered(position) > engine.length() {
            engine.refused.insert(link.who);
            return Err(Error::new(Code::OtherServer, "the server lacks transactions that were captured"));
        }
        if engine.covered(position) < engine.durable.transactions {
            let durable = engine.durable.transactions;
            link.mysql
                .world()
                .violate(format!("the log is read from {position} on, and {durable} transactions are durable"));
        }
        if position.gtid.is_some() && engine.covered(position) < engine.purged_transactions() {
            return Err(Error::new(Code::PositionPurged, "the binlog position that is needed was purged"));
        }
        engine.refused.remove(link.who);
        let (mut file, mut event) = (engine.purged, 0);
        let mut offset = 4;
        if let (None, Some(start)) = (&position.gtid, &position.file) {
            file = engine
                .files
                .iter()
                .position(|file| file.name == start.file)
                .filter(|file| *file >= engine.purged)
                .ok_or_else(|| Error::new(Code::PositionPurged, "the file is not there"))?;
            offset = start.offset.max(4);
            event = engine.files[file].events.partition_point(|event| event.start < offset);
        }
        let mut dump = Self {
            mysql: link.mysql.clone(),
            who: link.who,
            epoch: link.epoch,
            uuid: engine.uuid,
            known: position.gtid.clone(),
            file,
            event,
            heartbeat,
            reader: EventStreamReader::new(BinlogVersion::Version4),
            waiting: VecDeque::new(),
            changes: link.mysql.changes.subscribe(),
        };
        dump.announce(engine, offset);
        if event > 0 {
            let description = &engine.files[file].events[0];
            dump.waiting.push_back(description.body.event(description.timestamp, description.server_id, 0, 0));
        }
        Ok(dump)
    }

    /// Says where in the log the next event is.
    fn announce(&mut self, engine: &Engine, offset: u64) {
        let name = &engine.files[self.file].name;
        self.waiting.push_back(events::rotate(name, offset).event(0, 1, 0, EventHeader::ARTIFICIAL));
    }

    /// Takes what is in the log and was not sent.
    fn read(&mut self, engine: &Engine) {
        while self.waiting.len() < 64 {
            let file = &engine.files[self.file];
            let Some(logged) = file.events.get(self.event) else {
                if self.file + 1 >= engine.files.len() {
                    return;
                }
                self.file += 1;
                self.event = 0;
                self.announce(engine, 4);
                continue;
            };
            self.event += 1;
            let is_known = logged.number > 0 && self.known.as_ref().is_some_and(|set| engine.has(set, logged.number));
            if !is_known {
                self.waiting.push_back(logged.body.event(logged.timestamp, logged.server_id, logged.end, 0));
            }
        }
    }

    async fn next(&mut self) -> Framed {
        let broken = || mysql_async::Error::Io(std::io::Error::from(std::io::ErrorKind::ConnectionReset).into());
        if self.waiting.is_empty() {
            let deadline = Instant::now() + self.heartbeat;
            loop {
                self.changes.mark_unchanged();
                let mysql = self.mysql.clone();
                let other = {
                    let engine = mysql.lock();
                    if engine.epoch == self.epoch {
                        self.read(&engine);
                        None
                    } else {
                        Some(engine.uuid != self.uuid)
                    }
                };
                if let Some(is_another_server) = other {
                    // A server that is gone may not have said so, and a way on which nothing comes looks like a quiet one.
                    if mysql.world().chance(if is_another_server { 0.4 } else { 0.05 }) {
                        note!(mysql.world(), "{} is not told that its stream is broken", self.who);
                        sleep(Duration::from_secs(3600)).await;
                    }
                    return Err(broken());
                }
                if !self.waiting.is_empty() {
                    // On the way.
                    sleep(mysql.world().between(Duration::from_micros(100), mysql.stream_lag)).await;
                    break;
                }
                let silence = timeout_at(deadline, self.changes.changed()).await.is_err();
                if silence {
                    let engine = mysql.lock();
                    let file = &engine.files[self.file];
                    let heartbeat = events::heartbeat(&file.name);
                    self.waiting.push_back(heartbeat.event(0, 1, file.size, EventHeader::ARTIFICIAL));
                    break;
                }
            }
        }
        let Some(event) = self.waiting.pop_front() else { return Err(broken()) };
        note!(self.mysql.world(), "mysql sends an event of kind {} and {} bytes", event[4], event.len());
        self.reader.read(event.as_slice())?.ok_or_else(broken)
    }
}
