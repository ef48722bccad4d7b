//! A child process that never outlives the test that started it, however the test ends.

use std::{
    io,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

/// A running process together with a watcher that kills it when this process dies.
///
/// The watcher is a shell that reads a pipe whose other end is ours: the kernel closes it when we are gone, even after `kill -9`. It then kills the
/// process and removes its folder. Dropping the value does the same at once.
#[derive(Debug)]
pub struct GuardedProcess {
    child: Child,
    watcher: Child,
}

impl GuardedProcess {
    /// Starts `command`; `folder`, when given, is removed if this process dies before the value is dropped.
    pub fn spawn(command: &mut Command, folder: Option<&Path>) -> io::Result<Self> {
        let mut child = command.stdin(Stdio::null()).spawn()?;
        let mut shell = Command::new("sh");
        shell
            .arg("-c")
            .arg("trap '' INT TERM HUP; cat >/dev/null; kill -9 \"$0\" 2>/dev/null; [ -z \"$1\" ] || rm -rf -- \"$1\"")
            .arg(child.id().to_string())
            .arg(folder.map(Path::as_os_str).unwrap_or_default())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        match shell.spawn() {
            Ok(watcher) => Ok(Self { child, watcher }),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The exit status when the process has ended.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Ends the process as `kill -9` does and waits until it is gone.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends a signal by its name, as `TERM` or `STOP`.
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status();
        assert!(status.is_ok_and(|status| status.success()), "process {} takes no signal {name}", self.child.id());
    }

    /// Waits until the process has ended by itself.
    pub fn wait(&mut self, timeout: Duration) -> Option<ExitStatus> {
        let step = Duration::from_millis(20);
        let mut waited = Duration::ZERO;
        loop {
            if let Some(status) = self.exited() {
                return Some(status);
            }
            if waited >= timeout {
                return None;
            }
            std::thread::sleep(step);
            waited += step;
        }
    }

    /// The most memory that the process has had resident, in bytes.
    pub fn peak_resident_bytes(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
        let kibibytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
        Some(kibibytes * 1024)
    }
}

impl Drop for GuardedProcess {
    fn drop(&mut self) {
        // The watcher goes first: afterwards the process's number may belong to another.
        let _ = self.watcher.kill();
        let _ = self.watcher.wait();
        self.kill();
    }
}
