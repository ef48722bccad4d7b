use std::time::Duration;

use futures::TryStreamExt;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;

use super::durable::DurableFiles;
use super::faulty::{Fault, Faulty, Operation};
use super::retrying::{RetryPolicy, Retrying};
use super::*;
use crate::ErrorKind;

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

/// As many attempts as usual, in less time.
fn quick() -> RetryPolicy {
    RetryPolicy {
        timeout: Duration::from_millis(100),
        first_backoff: Duration::from_millis(1),
        max_backoff: Duration::from_millis(2),
        ..RetryPolicy::default()
    }
}

/// A faulty store, and a retrying one around it.
fn retrying() -> (Arc<Faulty>, StoreRef) {
    let faulty = Arc::new(Faulty::new(Arc::new(InMemory::new())));
    let inner = Arc::clone(&faulty) as StoreRef;
    (faulty, Arc::new(Retrying::new(inner, quick())))
}

#[tokio::test]
async fn of_many_creates_of_a_name_one_succeeds_in_every_store() {
    let directory = tempfile::tempdir().unwrap();
    let durable = directory.path().join("durable");
    let fast = directory.path().join("fast");
    let stores = [
        open("memory:", &[]).unwrap(),
        open(durable.to_str().unwrap(), &[]).unwrap(),
        open(&format!("file://{}", fast.display()), &[("durable".into(), "false".into())]).unwrap(),
    ];
    for store in stores {
        let path = Path::from("deep/down/object");
        let attempts = (0..16).map(|writer| {
            let (store, path) = (Arc::clone(&store), path.clone());
            tokio::spawn(async move {
                (writer, create_if_absent(&*store, &path, bytes(&format!("writer {writer}"))).await.unwrap())
            })
        });
        let outcomes: Vec<_> = futures::future::try_join_all(attempts).await.unwrap();
        let winners: Vec<_> = outcomes
            .into_iter()
            .filter(|(_, outcome)| *outcome == CreateOutcome::Created)
            .map(|(writer, _)| writer)
            .collect();
        let [winner] = winners[..] else { panic!("{store}: {winners:?} all succeeded") };
        assert_eq!(read(&*store, &path).await.unwrap(), format!("writer {winner}"), "{store}");
        let listed: Vec<_> = store.list(None).try_collect().await.unwrap();
        assert_eq!(listed.len(), 1, "{store}: nothing else is left behind");
    }
}

#[tokio::test]
async fn durable_files_behave_like_local_files() {
    let directory = tempfile::tempdir().unwrap();
    let store = DurableFiles::new(LocalFileSystem::new_with_prefix(directory.path()).unwrap());
    let path = Path::from("a/b/ä %20#x");
    write(&store, &path, bytes("one")).await.unwrap();
    write(&store, &path, bytes("two, and longer")).await.unwrap();
    assert_eq!(read(&store, &path).await.unwrap(), "two, and longer");
    assert_eq!(store.get_ranges(&path, &[0..3, 5..8]).await.unwrap(), ["two", "and"]);
    assert_eq!(create_if_absent(&store, &path, bytes("three")).await.unwrap(), CreateOutcome::Exists);
    let mut upload = store.put_multipart(&Path::from("a/parts")).await.unwrap();
    upload.put_part("first,".into()).await.unwrap();
    upload.put_part(" second".into()).await.unwrap();
    upload.complete().await.unwrap();
    assert_eq!(read(&store, &Path::from("a/parts")).await.unwrap(), "first, second");
    // Parts may be written side by side, and an upload that is given up leaves nothing.
    let mut upload = store.put_multipart(&Path::from("a/parts")).await.unwrap();
    let parts = ["third", ", and", " fourth"].map(|part| upload.put_part(part.into()));
    let [first, second, third] = parts;
    third.await.unwrap();
    first.await.unwrap();
    assert_eq!(read(&store, &Path::from("a/parts")).await.unwrap(), "first, second");
    second.await.unwrap();
    upload.complete().await.unwrap();
    assert!(upload.complete().await.is_err());
    drop(upload);
    assert_eq!(read(&store, &Path::from("a/parts")).await.unwrap(), "third, and fourth");
    for aborts in [true, false] {
        let mut upload = store.put_multipart(&Path::from("a/given up")).await.unwrap();
        upload.put_part("x".into()).await.unwrap();
        if aborts {
            upload.abort().await.unwrap();
        }
    }
    let names: Vec<_> =
        store.list(Some(&Path::from("a"))).map_ok(|object| object.location).try_collect().await.unwrap();
    assert_eq!(names.len(), 2, "{names:?}");
    let files = std::fs::read_dir(directory.path().join("a/b")).unwrap().count();
    assert_eq!(files, 1, "no unfinished file is left");
    delete(&store, &path).await.unwrap();
    delete(&store, &path).await.unwrap();
    assert_eq!(read(&store, &path).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(read_optional(&store, &path).await.unwrap(), None);
}

#[tokio::test]
async fn large_objects_are_written_in_parts() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path().to_str().unwrap(), &[]).unwrap();
    let mut large = vec![0_u8; LARGE + 5];
    large.iter_mut().enumerate().for_each(|(i, byte)| *byte = (i / 4096) as u8);
    let large = Bytes::from(large);
    for size in [LARGE, LARGE + 1, LARGE + 5] {
        let path = Path::from("large");
        write(&*store, &path, large.slice(..size)).await.unwrap();
        assert!(read(&*store, &path).await.unwrap() == large.slice(..size), "{size} bytes");
    }
    let (faulty, store) = retrying();
    faulty.inject(Operation::Put, "", Fault::Full, 1);
    assert_eq!(write(&*store, &Path::from("x"), large).await.unwrap_err().kind(), ErrorKind::Full);
}

#[tokio::test]
async fn a_disk_without_room_is_told_as_such() {
    let (faulty, store) = retrying();
    faulty.inject(Operation::Put, "", Fault::Full, 1);
    faulty.inject(Operation::Create, "", Fault::Full, 1);
    let error = write(&*store, &Path::from("x/y"), bytes("z")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Full);
    assert!(error.to_string().contains("x/y"), "{error}");
    assert_eq!(create_if_absent(&*store, &Path::from("x"), bytes("z")).await.unwrap_err().kind(), ErrorKind::Full);
    assert_eq!(faulty.count(Operation::Put) + faulty.count(Operation::Create), 2, "a full store is not tried again");
}

#[tokio::test]
async fn requests_are_tried_again_for_so_long_and_no_longer() {
    let (faulty, store) = retrying();
    let path = Path::from("x");
    for fault in [Fault::Refuse, Fault::LoseAnswer, Fault::Hang] {
        faulty.inject(Operation::Put, "x", fault, 4);
        faulty.inject(Operation::Get, "x", fault, 4);
        write(&*store, &path, bytes("z")).await.unwrap();
        assert_eq!(read(&*store, &path).await.unwrap(), "z", "{fault:?}");
    }
    faulty.inject(Operation::Put, "x", Fault::Hang, 5);
    let error = write(&*store, &path, bytes("z")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.is_retryable());
    assert_eq!(error.to_string(), "object x could not be written: the store is unavailable");
    // What is not there is not looked for again.
    let gets = faulty.count(Operation::Get);
    assert_eq!(read(&*store, &Path::from("y")).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(faulty.count(Operation::Get), gets + 1);
}

#[tokio::test]
async fn a_create_whose_answers_are_lost_is_decided_by_what_is_stored() {
    let (faulty, store) = retrying();
    let path = Path::from("x");
    // Carried out at the first attempt; the second finds it there.
    faulty.inject(Operation::Create, "x", Fault::LoseAnswer, 1);
    assert_eq!(create_if_absent(&*store, &path, bytes("ours")).await.unwrap(), CreateOutcome::Created);
    // No answer at all, but the object tells.
    faulty.inject(Operation::Create, "y", Fault::LoseAnswer, 5);
    assert_eq!(create_if_absent(&*store, &Path::from("y"), bytes("ours")).await.unwrap(), CreateOutcome::Created);
    // Another writer's is not taken for ours, with or without an answer.
    faulty.inject(Operation::Create, "x", Fault::LoseAnswer, 5);
    assert_eq!(create_if_absent(&*store, &path, bytes("another's")).await.unwrap(), CreateOutcome::Exists);
    assert_eq!(create_if_absent(&*store, &path, bytes("another's")).await.unwrap(), CreateOutcome::Exists);
    // Nothing can be read either.
    faulty.inject(Operation::Create, "z", Fault::LoseAnswer, 5);
    faulty.inject(Operation::Get, "z", Fault::Refuse, 5);
    let error = create_if_absent(&*store, &Path::from("z"), bytes("ours")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
    assert!(error.to_string().contains('z'));
    create_own(&*store, &Path::from("z"), bytes("ours")).await.unwrap();
    assert_eq!(create_own(&*store, &Path::from("z"), bytes("other")).await.unwrap_err().kind(), ErrorKind::Conflict);
}

#[tokio::test]
async fn a_create_is_not_carried_out_twice() {
    let (faulty, store) = retrying();
    let path = Path::from("x");
    // The answer to the first attempt is lost; before the second, another writer tries and must fail.
    faulty.inject(Operation::Create, "x", Fault::LoseAnswer, 1);
    let (ours, theirs) = tokio::join!(create_if_absent(&*store, &path, bytes("ours")), async {
        tokio::task::yield_now().await;
        create_if_absent(&*faulty, &path, bytes("theirs")).await
    });
    assert_eq!((ours.unwrap(), theirs.unwrap()), (CreateOutcome::Created, CreateOutcome::Exists));
    assert_eq!(read(&*store, &path).await.unwrap(), "ours");
}

#[tokio::test]
async fn a_store_that_ignores_the_condition_of_a_create_is_found_out() {
    let names = || (1..).map(uuid::Uuid::from_u128);
    let directory = tempfile::tempdir().unwrap();
    for store in [open("memory:", &[]).unwrap(), open(directory.path().to_str().unwrap(), &[]).unwrap()] {
        require_conditional_creates(&*store, uuid::Uuid::from_u128(1)).await.unwrap();
        let left: Vec<_> = store.list(None).try_collect().await.unwrap();
        assert!(left.is_empty(), "{store}: the probe is left behind");
    }
    let (faulty, store) = retrying();
    faulty.inject(Operation::Create, "probe/", Fault::Unconditional, 2);
    let mut names = names();
    let mut probe = || require_conditional_creates(&*store, names.next().unwrap());
    let error = probe().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unconditional);
    assert!(error.to_string().contains("created a second time"), "{error}");
    // A lost answer is not taken for a fault of the store.
    for lost in [1, 4] {
        faulty.inject(Operation::Create, "probe/", Fault::LoseAnswer, lost);
        probe().await.unwrap();
    }
    faulty.inject_after(Operation::Create, "probe/", Fault::LoseAnswer, 1, 4);
    probe().await.unwrap();
    faulty.inject(Operation::Create, "probe/", Fault::Refuse, 5);
    assert_ne!(probe().await.unwrap_err().kind(), ErrorKind::Unconditional);
    faulty.heal();
    let left: Vec<_> = store.list(None).try_collect().await.unwrap();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn a_request_ends_within_its_budget() {
    let faulty = Arc::new(Faulty::new(Arc::new(InMemory::new())));
    let policy = RetryPolicy { attempts: 1_000, budget: Duration::from_millis(250), ..quick() };
    let store = Retrying::new(Arc::clone(&faulty) as StoreRef, policy);
    faulty.inject(Operation::Put, "x", Fault::Hang, 1_000);
    let began = tokio::time::Instant::now();
    let error = write(&store, &Path::from("x"), bytes("z")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(faulty.count(Operation::Put), 3, "one attempt at 0, 100 and 200 ms each");
    assert!(began.elapsed() < Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn what_comes_in_pieces_does_not_wait_for_ever() {
    let (faulty, store) = retrying();
    write(&*store, &Path::from("x"), bytes("z")).await.unwrap();
    faulty.inject(Operation::List, "", Fault::Hang, 1);
    let listed: Result<Vec<_>, _> = store.list(None).try_collect().await;
    assert!(listed.unwrap_err().to_string().contains("no answer within"));
    faulty.inject(Operation::Delete, "", Fault::Hang, 1);
    assert_eq!(super::delete(&*store, &Path::from("x")).await.unwrap_err().kind(), ErrorKind::Unavailable);
    let listed: Vec<_> = store.list(None).try_collect().await.unwrap();
    assert_eq!(listed.len(), 1);
}

#[tokio::test]
async fn requests_under_way_are_seen_until_they_are_answered() {
    let faulty = Arc::new(Faulty::new(Arc::new(InMemory::new())));
    let (store, requests) = watched::Watched::new(Arc::clone(&faulty) as StoreRef);
    assert!(requests.oldest().is_none());
    write(&store, &Path::from("a"), bytes("z")).await.unwrap();
    assert!(requests.oldest().is_none());
    faulty.inject(Operation::Put, "b", Fault::Hang, 1);
    let (path, ours) = (Path::from("b"), bytes("z"));
    let mut hanging = Box::pin(write(&store, &path, ours));
    assert!(futures::poll!(&mut hanging).is_pending());
    let oldest = requests.oldest().unwrap();
    assert_eq!((oldest.object.as_str(), oldest.action), ("b", "written"));
    drop(hanging);
    assert!(requests.oldest().is_none(), "a request that was given up is not under way");
    // A body that is not read to its end yet is part of its request.
    let body = store.get(&Path::from("a")).await.unwrap();
    assert_eq!(requests.oldest().unwrap().action, "read");
    body.bytes().await.unwrap();
    assert!(requests.oldest().is_none());
}

#[test]
fn locations_that_make_no_sense_are_refused() {
    for (url, option, what) in [
        ("", None, "empty"),
        ("ftp://host/x", None, "ftp is not supported"),
        ("s3://", None, "needs a bucket"),
        ("file://relative", None, "absolute path"),
        ("memory:", Some(("durable", "true")), "no option \"durable\""),
        ("/tmp", Some(("durable", "perhaps")), "true or false"),
        ("/tmp", Some(("speed", "high")), "no option \"speed\""),
        ("s3://bucket/x", Some(("speed", "high")), "no option \"speed\""),
        ("s3://bucket/x", Some(("request_timeout", "soon")), "as 500ms, 30s or 2min"),
        ("s3://bucket/x", Some(("retry_timeout", "1ms")), "as 500ms, 30s or 2min"),
        ("s3://bucket/x", Some(("retry_timeout", "99999999999999999999s")), "as 500ms, 30s or 2min"),
        ("/dev/null/x", None, "cannot be made"),
    ] {
        let options: Vec<_> = option.map(|(name, value)| (name.to_owned(), value.to_owned())).into_iter().collect();
        let error = open(url, &options).expect_err(url);
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(what), "{error}");
    }
    let options =
        [("aws_region", "eu-central-1"), ("aws_endpoint", "http://127.0.0.1:9000"), ("request_timeout", "500ms")];
    let options: Vec<_> = options.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let store = open("s3://bucket/some/prefix", &options).unwrap();
    assert_eq!(store.to_string(), "PrefixObjectStore(some/prefix), retrying");
}

#[tokio::test]
async fn file_urls_and_paths_name_the_same_directory() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path().join("with space");
    let by_path = open(root.to_str().unwrap(), &[]).unwrap();
    let by_url = open(&format!("file://{}", root.display()).replace(' ', "%20"), &[]).unwrap();
    write(&*by_path, &Path::from("a/b"), bytes("x")).await.unwrap();
    assert_eq!(read(&*by_url, &Path::from("a/b")).await.unwrap(), "x");
}

#[tokio::test]
async fn what_a_dead_process_was_writing_is_found_and_deleted() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path().to_str().unwrap(), &[]).unwrap();
    write(&*store, &Path::from("a/b/whole"), bytes("x")).await.unwrap();
    let left = durable::unfinished_name(&directory.path().join("a/b/half"), 7);
    std::fs::write(&left, "ha").unwrap();
    // Not of our making: it is left alone, as any name that is none of an object.
    std::fs::write(directory.path().join("a/b/half#7b"), "").unwrap();
    let found: Vec<_> = store.list(Some(&Path::from("a"))).try_collect().await.unwrap();
    let unfinished: Vec<_> = found.iter().filter(|object| durable::is_unfinished(&object.location)).collect();
    assert_eq!((found.len(), unfinished.len()), (3, 1));
    assert_eq!(unfinished[0].size, 2);
    let listed = store.list_with_delimiter(Some(&Path::from("a/b"))).await.unwrap();
    assert_eq!(listed.objects.len(), 2, "who looks for an object does not find what is none yet");
    delete(&*store, &unfinished[0].location).await.unwrap();
    assert!(!left.exists());
    assert!(directory.path().join("a/b/whole").exists());
    // One of this process's number, as there are in containers, left names that are used again.
    let store = DurableFiles::new(LocalFileSystem::new_with_prefix(directory.path()).unwrap());
    let path = Path::from("a/b/new");
    for number in 0..3 {
        std::fs::write(durable::unfinished_name(&directory.path().join("a/b/new"), number), "old").unwrap();
    }
    assert_eq!(create_if_absent(&store, &path, bytes("new")).await.unwrap(), CreateOutcome::Created);
    assert_eq!(read(&store, &path).await.unwrap(), "new");
    let mut upload = store.put_multipart(&path).await.unwrap();
    upload.put_part("newer".into()).await.unwrap();
    upload.complete().await.unwrap();
    assert_eq!(read(&store, &path).await.unwrap(), "newer");
    assert!(store.list(Some(&Path::from("nowhere"))).try_collect::<Vec<_>>().await.unwrap().is_empty());
}
