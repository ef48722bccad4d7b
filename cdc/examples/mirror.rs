//! Mirrors tables without a front end, and prints how it goes: `mirror HOST PORT USER PASSWORD PATTERN STORE SECONDS`.
//!
//! For profiling capture alone. Ends when the snapshot is complete and SECONDS have passed.

#![allow(clippy::disallowed_methods, reason = "a program of its own, in the time and by the chance that there are")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_cdc::capture::{CaptureEnv, CaptureJob};
use tidegate_cdc::mysql::server::NetworkServer;
use tidegate_cdc::source::definition::{CaptureOptions, ConnectionOptions, SourceDefinition, TablePattern, TableRule};
use tidegate_storage::checkpoint::Holder;
use tidegate_storage::clock::{Clock, SystemClock};
use tidegate_storage::table::TableOptions;
use uuid::Uuid;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, host, port, user, password, pattern, store, seconds] = arguments.as_slice() else {
        return Err("usage: mirror HOST PORT USER PASSWORD PATTERN STORE SECONDS".into());
    };
    let definition = SourceDefinition {
        id: Uuid::from_u128(1),
        name: "mirror".to_owned(),
        connection: ConnectionOptions::new(host, port.parse()?, user, password),
        tables: vec![TableRule::new(pattern.parse::<TablePattern>()?)],
        exclude: Vec::new(),
        options: CaptureOptions::default(),
    };
    let store = tidegate_storage::store::open(store, &[])?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let owner = Uuid::from_bytes(rand::random());
    let holder = Holder {
        owner,
        host: "local".to_owned(),
        pid: std::process::id(),
        process_start: 0,
        address: String::new(),
        since_ms: clock.now_ms(),
        renewed_at_ms: clock.now_ms(),
    };
    let env = CaptureEnv {
        store,
        server_of: NetworkServer::of_options(),
        clock,
        resources: Arc::default(),
        layout: TableOptions::default(),
        owner,
        holder,
        holder_is_dead: Arc::new(|_| true),
    };
    let began = Instant::now();
    let job = CaptureJob::start(definition, env);
    let until = Duration::from_secs(seconds.parse()?);
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let (status, view) = (job.status(), job.view());
        let rows: u64 = status.tables.iter().map(|t| t.rows_read).sum();
        let live: u64 = view.tables.iter().filter_map(|t| t.version.as_ref()).map(|v| v.row_count()).sum();
        println!(
            "{:6.1} s  {:<9}  checkpoint {:>4}  read {rows:>9}  changes {:>9}  visible rows {live:>9}  {}",
            began.elapsed().as_secs_f64(),
            status.state.as_str(),
            view.checkpoint,
            status.changes_total,
            view.position,
        );
        for error in &status.errors {
            println!("          {} {} {:?}", error.code, error.message, error.detail);
        }
        if began.elapsed() > until {
            break;
        }
    }
    job.stop().await?;
    Ok(())
}
