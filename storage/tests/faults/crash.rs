//! A process that captures a source dies at every request that it makes of the store. Whatever is left then is whole,
//! one state of the source, and what the next process goes on from; and in the end nothing lies about.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path as FilePath, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use futures::stream::{self, StreamExt};
use object_store::memory::InMemory;
use object_store::path::Path;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tempfile::TempDir;
use tidegate_storage::store::dying::{Death, Dying, Moment};
use tidegate_storage::store::faulty::Operation;
use tidegate_storage::store::{self, StoreRef};
use tidegate_storage::table::TableOptions;

use crate::world::{Observer, Phase, Process, Progress, Script, Spec};

/// Where a process of a test keeps its objects.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Memory,
    Directory,
}

struct Place {
    store: StoreRef,
    directory: Option<TempDir>,
}

impl Place {
    fn new(kind: Kind) -> Self {
        match kind {
            Kind::Memory => Self { store: Arc::new(InMemory::new()), directory: None },
            Kind::Directory => {
                // What is looked at is which files there are. Memory keeps them without a disk that has to be waited for.
                let memory = FilePath::new("/dev/shm");
                let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
                let directory = tempfile::Builder::new().prefix("tidegate-crash-").tempdir_in(parent).unwrap();
                let store = store::open(directory.path().to_str().unwrap(), &[]).unwrap();
                Self { store, directory: Some(directory) }
            }
        }
    }

    fn path(&self) -> Option<PathBuf> {
        self.directory.as_ref().map(|directory| directory.path().to_owned())
    }

    /// The store as another process opens it.
    fn reopen(&self) -> StoreRef {
        match &self.directory {
            Some(directory) => store::open(directory.path().to_str().unwrap(), &[]).unwrap(),
            None => Arc::clone(&self.store),
        }
    }

    /// Everything that is there, whatever it is called.
    async fn everything(&self, observer: &Observer<'_>) -> BTreeSet<Path> {
        match &self.directory {
            Some(directory) => {
                let mut files = BTreeSet::new();
                walk(directory.path(), directory.path(), &mut files);
                files
            }
            None => observer.all().await,
        }
    }
}

fn walk(root: &FilePath, directory: &FilePath, files: &mut BTreeSet<Path>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            walk(root, &path, files);
        } else {
            let name = path.strip_prefix(root).unwrap().to_str().unwrap();
            files.insert(Path::parse(name).unwrap());
        }
    }
}

/// A table that merges beside its flushes, and one that merges within them and is being loaded at first.
fn two_tables() -> Vec<Spec> {
    let [_, mut items, mut notes] = three_tables();
    items.options.buckets = 2;
    notes.options.inline_merge_rows = 1000;
    vec![items, notes]
}

/// A table that merges within its flushes, one that merges beside them, and one that is being loaded at first.
fn three_tables() -> [Spec; 3] {
    let options = |buckets, inline_merge_rows| TableOptions {
        buckets,
        inline_merge_rows,
        rows_per_file: 10_000,
        ..TableOptions::default()
    };
    [
        Spec { name: "orders", options: options(2, 1000), loading: false },
        Spec { name: "items", options: options(1, 1), loading: false },
        Spec { name: "notes", options: options(1, 1), loading: true },
    ]
}

/// What an object is.
fn class(place: &str) -> &'static str {
    let name = place.rsplit('/').next().unwrap_or_default();
    let known = [
        ("checkpoint-", "checkpoint record"),
        ("snapshot-", "snapshot"),
        ("schema-", "schema"),
        ("LATEST", "hint"),
        ("EARLIEST", "hint"),
        ("manifest-list-", "manifest list"),
        ("index-manifest-", "index manifest"),
        ("manifest-", "manifest"),
        ("index-", "deletion vectors"),
        ("data-", "data file"),
        ("changelog-", "changelog"),
    ];
    known.iter().find(|(prefix, _)| name.starts_with(prefix)).map_or("directory", |(_, class)| class)
}

/// The script is followed once without a fault. The requests it makes, and what they were made for.
async fn rehearse(script: &Script, kind: Kind) -> Vec<(Moment, Phase)> {
    let place = Place::new(kind);
    let dying = Arc::new(Dying::new(Arc::clone(&place.store), place.path(), None));
    let phases = Arc::new(Mutex::new(Vec::new()));
    let (noted, requests) = (Arc::clone(&phases), Arc::clone(&dying));
    let on_phase = move |phase| noted.lock().unwrap().push((requests.moments().len(), phase));
    let progress = Progress { on_phase: Some(Box::new(on_phase)), ..Progress::default() };
    let store: StoreRef = Arc::clone(&dying) as StoreRef;
    Process::start(script, &store, &progress).await.unwrap().run().await.unwrap();
    let last = script.models.len() as u64 - 1;
    assert_eq!(progress.acknowledged.load(Ordering::SeqCst), last);
    assert!(progress.merges.load(Ordering::SeqCst) > 0, "no merge ended beside a writer");
    let mut observer = Observer::new(script, &place.reopen());
    assert_eq!(observer.check().await, last);
    assert_eq!(place.everything(&observer).await, observer.reachable().await);
    let phases = phases.lock().unwrap();
    let phase = |index| phases[phases.partition_point(|(from, _)| *from <= index) - 1].1;
    dying.moments().into_iter().enumerate().map(|(index, moment)| (moment, phase(index))).collect()
}

/// One process follows the script and dies; the next one takes over. If `whole`, that one follows the rest of the
/// script too, before it comes to an end.
async fn die_and_recover(script: Arc<Script>, kind: Kind, moment: Moment, death: Death, whole: bool) {
    let place = Place::new(kind);
    let dying = Arc::new(Dying::new(Arc::clone(&place.store), place.path(), Some((moment.clone(), death))));
    let progress = Progress::default();
    let store: StoreRef = Arc::clone(&dying) as StoreRef;
    // Whether it hears of its death is another matter: some requests are not waited for, or may fail.
    let _ = async { Process::start(&script, &store, &progress).await?.run().await }.await;
    assert!(dying.is_dead(), "the moment never came");
    dying.settled().await;
    drop(store);

    let acknowledged = progress.acknowledged.load(Ordering::SeqCst);
    let attempted = progress.attempted.load(Ordering::SeqCst);
    let store = place.reopen();
    let mut observer = Observer::new(&script, &store);
    let found = observer.check().await;
    assert!(found == acknowledged || found == attempted, "{found} is neither {acknowledged} nor {attempted}");
    if moment.operation == Operation::Create && class(&moment.place) == "checkpoint record" {
        let carried_out = matches!(death, Death::After | Death::StillLinked);
        assert_eq!(found, if carried_out { attempted } else { acknowledged });
    }

    let next = script.continued(found, whole);
    let progress = Progress::default();
    let mut process = Process::start(&next, &store, &progress).await.unwrap();
    assert_eq!(observer.newest().await, found, "to recover is not to commit");
    process.run().await.unwrap();
    drop(process);
    observer.follow(&next);
    assert_eq!(observer.check().await, next.models.len() as u64 - 1);
    assert_eq!(place.everything(&observer).await, observer.reachable().await, "what nobody needs is gone");
}

/// How much is tried.
#[derive(Debug, Clone, Copy)]
struct Extent {
    /// Whether to die at reads and listings too. What is in the store is then the same as before the write that follows.
    reads: bool,
    /// Whether the process that takes over follows the rest of the script.
    whole: bool,
    /// Of all deaths so many are tried, chosen by the seed.
    deaths: usize,
}

/// Dies at every moment of the script, in every way; says how many there were of each kind.
async fn die_everywhere(script: Script, kind: Kind, extent: Extent) {
    let moments = rehearse(&script, kind).await;
    let mut kinds = BTreeMap::<_, usize>::new();
    let mut cases = Vec::new();
    for (moment, phase) in moments {
        if !extent.reads && matches!(moment.operation, Operation::Get | Operation::List) {
            continue;
        }
        *kinds.entry((phase, format!("{:?}", moment.operation), class(&moment.place))).or_default() += 1;
        let mut deaths = vec![Death::Before];
        // To die after a request that changes nothing is to die before the next one.
        if !matches!(moment.operation, Operation::Get | Operation::List) {
            deaths.push(Death::After);
        }
        if matches!(kind, Kind::Directory) && matches!(moment.operation, Operation::Put | Operation::Create) {
            deaths.push(Death::HalfWritten);
        }
        if matches!(kind, Kind::Directory) && moment.operation == Operation::Create {
            deaths.push(Death::StillLinked);
        }
        cases.extend(deaths.into_iter().map(|death| (moment.clone(), death)));
    }
    let mut random = StdRng::seed_from_u64(script.seed);
    while cases.len() > extent.deaths {
        cases.swap_remove(random.random_range(0..cases.len()));
    }
    let mut report = format!("seed {}, {kind:?}: {} deaths at the following moments\n", script.seed, cases.len());
    for ((phase, operation, class), count) in &kinds {
        let _ = writeln!(report, "{count:6} {phase:?} {operation} {class}");
    }
    println!("{report}");
    for (phase, operation, class) in [
        (Phase::Flush, "Put", "data file"),
        (Phase::Prepare, "Put", "deletion vectors"),
        (Phase::Prepare, "Put", "index manifest"),
        (Phase::Prepare, "Put", "manifest"),
        (Phase::Prepare, "Put", "manifest list"),
        (Phase::Commit, "Create", "checkpoint record"),
        (Phase::Publish, "Create", "snapshot"),
        (Phase::Publish, "Put", "hint"),
        (Phase::Publish, "Create", "hint"),
        (Phase::Evolve, "Create", "schema"),
        (Phase::Expire, "Put", "hint"),
        (Phase::Expire, "Delete", "snapshot"),
        (Phase::Expire, "Delete", "data file"),
        (Phase::Expire, "Delete", "deletion vectors"),
        (Phase::Expire, "Delete", "index manifest"),
        (Phase::Expire, "Delete", "manifest list"),
        (Phase::Expire, "Delete", "checkpoint record"),
        (Phase::Orphans, "Delete", "data file"),
        (Phase::Orphans, "Delete", "deletion vectors"),
        (Phase::Orphans, "Delete", "manifest"),
        (Phase::Orphans, "Delete", "manifest list"),
    ] {
        assert!(kinds.contains_key(&(phase, operation.to_owned(), class)), "no {operation} of a {class} in {phase:?}");
    }
    let merged = |operation: &str| {
        [Phase::Prepare, Phase::Merge]
            .iter()
            .any(|phase| kinds.contains_key(&(*phase, operation.to_owned(), "data file")))
    };
    assert!((merged("Get") || !extent.reads) && merged("Put"), "no merge beside the writers was cut off");

    let script = Arc::new(script);
    let runs = cases.into_iter().map(|(moment, death)| {
        let run = die_and_recover(Arc::clone(&script), kind, moment.clone(), death, extent.whole);
        let seed = script.seed;
        async move {
            if let Err(error) = tokio::spawn(run).await {
                panic!("seed {seed}, {kind:?}, {death:?} {moment:?}: {error}");
            }
        }
    });
    stream::iter(runs).buffer_unordered(4).collect::<()>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_death_at_any_write_leaves_a_whole_state_in_memory() {
    let extent = Extent { reads: false, whole: false, deaths: usize::MAX };
    die_everywhere(Script::new(1, two_tables(), 3, 4), Kind::Memory, extent).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_death_at_any_request_leaves_a_whole_state_in_a_directory() {
    let extent = Extent { reads: true, whole: false, deaths: usize::MAX };
    die_everywhere(Script::new(2, two_tables(), 3, 4), Kind::Directory, extent).await;
}

#[ignore = "long: some thousand deaths"]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_death_at_any_request_is_followed_by_the_rest_of_the_script() {
    let extent = Extent { reads: true, whole: true, deaths: usize::MAX };
    for kind in [Kind::Memory, Kind::Directory] {
        die_everywhere(Script::new(seed(), three_tables().into(), 6, 6), kind, extent).await;
    }
}

#[ignore = "long: some hundred deaths of a process that ran for long"]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_death_after_many_checkpoints_is_like_any_other() {
    let extent = Extent { reads: false, whole: false, deaths: 400 };
    die_everywhere(Script::new(seed(), three_tables().into(), 40, 8), Kind::Directory, extent).await;
}

fn seed() -> u64 {
    std::env::var("TIDEGATE_TEST_SEED").map_or_else(|_| rand::random(), |seed| seed.parse().unwrap())
}
