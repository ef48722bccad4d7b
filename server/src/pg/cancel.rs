//! Cancel requests: a second connection names the first by its number and secret.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio_util::sync::CancellationToken;

/// The switch that ends the running statement of one connection. Between statements it does nothing, so that a late
/// request cannot hit the next one.
#[derive(Debug, Default)]
pub(crate) struct Interrupt(Mutex<Option<CancellationToken>>);

impl Interrupt {
    /// The token of a statement that begins now; it is armed until the guard is dropped.
    pub(crate) fn arm(self: &Arc<Self>) -> Armed {
        let token = CancellationToken::new();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(token.clone());
        Armed { interrupt: Arc::clone(self), token }
    }

    /// Cancels the statement that runs, if one does.
    pub(crate) fn fire(&self) {
        if let Some(token) = &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            token.cancel();
        }
    }
}

/// A statement that can be cancelled.
#[derive(Debug)]
pub(crate) struct Armed {
    interrupt: Arc<Interrupt>,
    token: CancellationToken,
}

impl Armed {
    pub(crate) fn token(&self) -> &CancellationToken {
        &self.token
    }
}

impl Drop for Armed {
    fn drop(&mut self) {
        *self.interrupt.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// The connections of a server, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    connections: Mutex<HashMap<i32, (i32, Arc<Interrupt>)>>,
    last: AtomicI32,
}

impl Registry {
    /// Registers a connection until the returned entry is dropped.
    pub(crate) fn register(self: &Arc<Self>, secret: i32, interrupt: Arc<Interrupt>) -> Registered {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        let pid = loop {
            // Positive numbers only, as process ids are; a number still in use is passed over.
            let pid = self.last.fetch_add(1, Ordering::Relaxed).wrapping_add(1) & i32::MAX;
            if pid != 0 && !connections.contains_key(&pid) {
                break pid;
            }
        };
        connections.insert(pid, (secret, interrupt));
        Registered { registry: Arc::clone(self), pid, secret }
    }

    /// Cancels what the connection runs, if the secret is its own.
    pub(crate) fn cancel(&self, pid: i32, secret: i32) {
        let connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((expected, interrupt)) = connections.get(&pid)
            && *expected == secret
        {
            interrupt.fire();
        }
    }
}

/// A connection's entry in the registry.
#[derive(Debug)]
pub(crate) struct Registered {
    registry: Arc<Registry>,
    pub(crate) pid: i32,
    pub(crate) secret: i32,
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.registry.connections.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.pid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_secret_cancels_and_only_a_running_statement() {
        let registry = Arc::new(Registry::default());
        let interrupt = Arc::new(Interrupt::default());
        let entry = registry.register(77, Arc::clone(&interrupt));
        registry.cancel(entry.pid, 77); // nothing runs
        let armed = interrupt.arm();
        assert!(!armed.token().is_cancelled());
        registry.cancel(entry.pid, 78);
        registry.cancel(entry.pid + 1, 77);
        assert!(!armed.token().is_cancelled());
        registry.cancel(entry.pid, 77);
        assert!(armed.token().is_cancelled());
        drop(armed);
        assert!(!interrupt.arm().token().is_cancelled());
    }

    #[test]
    fn numbers_are_positive_and_free() {
        let registry = Arc::new(Registry::default());
        registry.last.store(i32::MAX - 1, Ordering::Relaxed);
        let first = registry.register(0, Arc::default());
        let second = registry.register(0, Arc::default());
        assert_eq!(first.pid, i32::MAX);
        assert_eq!(second.pid, 1);
        drop(second);
        assert_eq!(registry.connections.lock().map(|map| map.len()).ok(), Some(1));
    }
}
