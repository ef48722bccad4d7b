//! Runs the capture jobs of this server, on a runtime of their own.
//!
//! Leases, retries and pauses are a job's own business (`tidegate_cdc::capture`). What is added here: one job for a
//! source, a new one when a job broke off by a fault of the program, and an orderly end of all of them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::future::join_all;
use tidegate_cdc::capture::{CaptureEnv, CaptureHandle, CaptureJob, JobState};
use tidegate_cdc::source::definition::SourceDefinition;
use tidegate_planner::Jobs;
use tidegate_storage::checkpoint::Holder;
use tokio::runtime::Handle;
use tracing::{error, warn};
use uuid::Uuid;

/// How long after a job broke off the next one begins.
const RESTART_PAUSE: Duration = Duration::from_secs(5);

/// The jobs of this server.
pub(crate) struct Supervisor {
    runtime: Handle,
    env: CaptureEnv,
    jobs: Arc<Mutex<Running>>,
}

#[derive(Default)]
struct Running {
    handles: HashMap<Uuid, CaptureHandle>,
    /// Set when the server stops: nothing is started any more.
    closed: bool,
}

impl Supervisor {
    /// Jobs will run on `runtime`.
    pub(crate) fn new(runtime: Handle, env: CaptureEnv) -> Self {
        Self { runtime, env, jobs: Arc::default() }
    }

    /// Ends every job behind a last checkpoint, all at the same time.
    pub(crate) async fn stop_all(&self) {
        let handles: Vec<_> = {
            let mut jobs = lock(&self.jobs);
            jobs.closed = true;
            jobs.handles.drain().map(|(_, handle)| handle).collect()
        };
        join_all(handles.iter().map(stop)).await;
    }
}

fn lock(jobs: &Mutex<Running>) -> std::sync::MutexGuard<'_, Running> {
    jobs.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn stop(handle: &CaptureHandle) {
    if let Err(error) = handle.stop().await {
        warn!(source = handle.definition().name, %error, "the job did not stop in order");
    }
}

/// A job that has ended without being told to.
fn broke_off(handle: &CaptureHandle) -> bool {
    handle.statuses().has_changed().is_err() && handle.status().state != JobState::Stopped
}

/// Starts a job and, should its task break off, another in its place for as long as it is registered.
fn launch(runtime: Handle, env: CaptureEnv, jobs: Arc<Mutex<Running>>, definition: SourceDefinition) {
    let id = definition.id;
    let handle = {
        let mut running = lock(&jobs);
        if running.closed || running.handles.get(&id).is_some_and(|handle| !broke_off(handle)) {
            return;
        }
        let _entered = runtime.enter();
        let handle = CaptureJob::start(definition, env.clone());
        running.handles.insert(id, handle.clone());
        handle
    };
    let next = runtime.clone();
    runtime.spawn(async move {
        let mut statuses = handle.statuses();
        while statuses.changed().await.is_ok() {}
        if handle.status().state == JobState::Stopped {
            return;
        }
        error!(source = handle.definition().name, "the job broke off and is started again");
        tokio::time::sleep(RESTART_PAUSE).await;
        let registered = lock(&jobs).handles.contains_key(&id);
        if registered {
            launch(next, env, jobs, handle.definition().clone());
        }
    });
}

#[async_trait]
impl Jobs for Supervisor {
    fn start(&self, definition: SourceDefinition) {
        launch(self.runtime.clone(), self.env.clone(), Arc::clone(&self.jobs), definition);
    }

    async fn stop(&self, source: Uuid) {
        let handle = lock(&self.jobs).handles.remove(&source);
        if let Some(handle) = handle {
            stop(&handle).await;
        }
    }

    fn handle(&self, source: Uuid) -> Option<CaptureHandle> {
        lock(&self.jobs).handles.get(&source).cloned()
    }

    fn handles(&self) -> Vec<CaptureHandle> {
        lock(&self.jobs).handles.values().cloned().collect()
    }
}

/// How this process describes itself to other servers that want the same source.
pub(crate) fn describe_process(owner: Uuid, address: String, now_ms: i64) -> Holder {
    Holder {
        owner,
        host: machine(),
        pid: std::process::id(),
        process_start: process_start(std::process::id()).unwrap_or(0),
        address,
        since_ms: now_ms,
        renewed_at_ms: now_ms,
    }
}

/// Whether a holder is a process of this machine that is gone. Unknown is no.
pub(crate) fn is_dead(holder: &Holder) -> bool {
    holder.process_start != 0
        && holder.host == machine()
        && std::path::Path::new("/proc/self/stat").exists()
        && process_start(holder.pid) != Some(holder.process_start)
}

/// The machine's name, with its boot and process id namespace: only inside one of those do two process ids compare.
fn machine() -> String {
    let read = |path| std::fs::read_to_string(path).map(|text| text.trim().to_owned());
    let name = read("/proc/sys/kernel/hostname").unwrap_or_else(|_| "unknown".to_owned());
    let boot = read("/proc/sys/kernel/random/boot_id").unwrap_or_else(|_| "unknown".to_owned());
    let namespace = std::fs::read_link("/proc/self/ns/pid").map_or(String::new(), |link| link.display().to_string());
    let digits: String = namespace.chars().filter(char::is_ascii_digit).collect();
    format!("{name} (boot {}, pid namespace {digits})", boot.split('-').next().unwrap_or_default())
}

/// When a process started, in clock ticks since boot (proc(5), `/proc/pid/stat`, field 22).
fn process_start(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field, the name, is in parentheses and may hold blanks.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_is_dead_when_its_process_is_gone_from_this_machine() {
        let me = describe_process(Uuid::nil(), "here".into(), 0);
        assert_ne!(me.process_start, 0);
        assert!(!is_dead(&me));
        assert!(is_dead(&Holder { process_start: me.process_start + 1, ..me.clone() }), "another process with the id");
        assert!(is_dead(&Holder { pid: u32::MAX, ..me.clone() }));
        assert!(!is_dead(&Holder { pid: u32::MAX, host: "elsewhere".into(), ..me.clone() }));
        assert!(!is_dead(&Holder { pid: u32::MAX, process_start: 0, ..me }));
    }
}
