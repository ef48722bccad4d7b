//! Where work is done that computes for long, or that has to stand back: on threads, or, where every run has to go as
//! the last one did, on the thread that asks for it.

#![allow(clippy::disallowed_methods, reason = "these are the threads that are passed in everywhere else")]

use std::thread::{self, available_parallelism};

use futures::future::{self, BoxFuture, Either};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;

use crate::error::{Error, Result};

/// Whose threads do the work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Workers {
    /// The runtime's threads for blocking work, and threads of their own for merges.
    #[default]
    Threads,
    /// The task that asks. Nothing runs beside anything else, and a merge does not stand back.
    Caller,
}

impl Workers {
    /// How many pieces of work are worth doing at once.
    pub(crate) fn parallelism(self) -> usize {
        match self {
            Self::Threads => available_parallelism().map_or(2, usize::from),
            Self::Caller => 1,
        }
    }

    /// Does what computes; `what` names it should it break off.
    pub(crate) async fn compute<T: Send + 'static>(
        self,
        what: &'static str,
        work: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> Result<T> {
        match self {
            Self::Threads => spawn_blocking(work).await.map_err(|error| broke_off(what, error))?,
            Self::Caller => work(),
        }
    }

    /// Does what computes and waits for the store now and then.
    pub(crate) async fn drive<T: Send + 'static>(
        self,
        what: &'static str,
        work: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        match self {
            Self::Threads => {
                let runtime = Handle::current();
                let polled = spawn_blocking(move || runtime.block_on(work));
                polled.await.map_err(|error| broke_off(what, error))?
            }
            Self::Caller => work.await,
        }
    }

    /// Does what stands back behind all other work until `hurry` ends.
    pub(crate) async fn stand_back<T: Send + 'static>(
        self,
        work: BoxFuture<'static, Result<T>>,
        hurry: BoxFuture<'static, ()>,
    ) -> Result<T> {
        match self {
            Self::Threads => on_a_thread(work, hurry).await,
            Self::Caller => work.await,
        }
    }
}

fn broke_off(what: &str, error: impl std::fmt::Display) -> Error {
    Error::Invalid(format!("{what} broke off: {error}"))
}

/// Where that policy is refused, the lowest ordinary priority.
#[cfg(target_os = "linux")]
const NICE: i32 = 19;

/// Lets the calling thread have the time that no other wants, where that is possible.
///
/// On Linux that is a policy of its own. A thread that is merely nice makes its processor count as busy: the two halves
/// of a flush then share the other one, though each could have one to itself.
fn stand_back() {
    #[cfg(target_os = "linux")]
    let refused = {
        let parameters = libc::sched_param { sched_priority: 0 };
        // SAFETY: the parameters outlive the call, which only reads them. On Linux 0 means the calling thread.
        let refused = unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const parameters) } != 0;
        // SAFETY: the function takes numbers only.
        refused && unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) } != 0
    };
    #[cfg(not(target_os = "linux"))]
    let refused = true;
    if refused {
        tracing::debug!("a merge runs at the priority of everything else");
    }
}

/// Polls `work` on a thread of its own, which stands back behind others until `hurry` ends. A thread that stood back may
/// not come forward again without privileges, so the work moves to another one then.
async fn on_a_thread<T: Send + 'static>(
    work: BoxFuture<'static, Result<T>>,
    hurry: BoxFuture<'static, ()>,
) -> Result<T> {
    let runtime = Handle::current();
    let polled = on_new_thread(move || {
        stand_back();
        match runtime.block_on(future::select(work, hurry)) {
            Either::Left((output, _)) => Either::Right(output),
            Either::Right(((), work)) => Either::Left(work),
        }
    });
    match polled.await? {
        Either::Right(output) => output,
        Either::Left(work) => {
            let runtime = Handle::current();
            on_new_thread(move || runtime.block_on(work)).await?
        }
    }
}

/// The outcome of `work` on a thread of its own.
async fn on_new_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let (sender, receiver) = oneshot::channel();
    let thread = thread::Builder::new().name("merge".to_owned()).spawn(move || {
        // Nobody waits any more if the writer is gone.
        let _ = sender.send(work());
    });
    thread.map_err(|error| Error::Invalid(format!("no thread could be started for a merge: {error}")))?;
    receiver.await.map_err(|_| Error::invalid("a merge broke off"))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::task::Poll;

    use futures::FutureExt;
    use tokio::task::yield_now;

    use super::*;

    /// Work that ends as soon as it is polled on a second thread.
    fn moves_on() -> BoxFuture<'static, Result<u32>> {
        let mut first = None;
        future::poll_fn(move |_| {
            let here = thread::current().id();
            if *first.get_or_insert(here) == here { Poll::Pending } else { Poll::Ready(Ok(7)) }
        })
        .boxed()
    }

    #[tokio::test]
    async fn work_moves_to_another_thread_in_haste() {
        let (haste, hurry) = oneshot::channel::<()>();
        let work = tokio::spawn(on_a_thread(moves_on(), hurry.map(drop).boxed()));
        yield_now().await;
        assert!(!work.is_finished());
        haste.send(()).unwrap();
        assert_eq!(work.await.unwrap().unwrap(), 7);
    }

    #[tokio::test]
    async fn work_ends_where_it_began_without_haste() {
        assert_eq!(on_a_thread(async { Ok(7) }.boxed(), future::pending().boxed()).await.unwrap(), 7);
        let fails = async { Err::<(), _>(Error::invalid("x")) };
        assert!(on_a_thread(fails.boxed(), future::ready(()).boxed()).await.is_err());
    }

    /// How the system schedules the calling thread.
    #[cfg(target_os = "linux")]
    fn policy() -> i32 {
        // SAFETY: the function takes a number only. On Linux 0 means the calling thread.
        unsafe { libc::sched_getscheduler(0) }
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn requests_of_a_thread_that_stands_back_are_not_carried_out_by_such_threads() {
        use object_store::ObjectStoreExt;

        let seen = Arc::new(Mutex::new(0));
        let directory = tempfile::tempdir().unwrap();
        let store = crate::store::open(directory.path().to_str().unwrap(), &[]).unwrap();
        let path = object_store::path::Path::from("a");
        store.put(&path, "x".into()).await.unwrap();
        let on_runtime = crate::store::on_runtime::OnRuntime::new(store, Handle::current());
        let noted = Arc::clone(&seen);
        let work = async move {
            *noted.lock().unwrap() = policy();
            assert_eq!(on_runtime.get(&path).await.unwrap().bytes().await.unwrap(), "x");
            Ok(())
        };
        on_a_thread(work.boxed(), future::pending().boxed()).await.unwrap();
        let here = tokio::task::spawn_blocking(policy).await.unwrap();
        assert_eq!((*seen.lock().unwrap(), here), (libc::SCHED_IDLE, libc::SCHED_OTHER));
    }
}
