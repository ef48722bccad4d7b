//! The store answers late, not at all, or its answers are lost: nothing is wrong, and what happens is said.

use std::time::{Duration, Instant};

use tidegate_tests::{
    bank::BankWatch,
    canonical::assert_tables_equal,
    checkpoints::assert_bank_total_at_every_checkpoint,
    gate::Gate,
    proxy::{Fault, Proxy},
    s3::S3,
    servers::{Kind, Server},
    workload::{self, DATABASE, Plan, Writers},
};

/// How long a request may take in these tests, and how long after its first attempt another may begin.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(8);
/// Longer than Tidegate waits before it says that an answer is late, and shorter than the limit of a request.
const LATE: Duration = Duration::from_millis(6_500);
/// More than a request with all its attempts takes, with room for a busy machine.
const QUERY_BOUND: Duration = Duration::from_secs(60);

struct Scene {
    // In the order in which they go.
    gate: Gate,
    writers: Writers,
    proxy: Proxy,
    server: Server,
    _s3: S3,
}

async fn scene() -> Scene {
    let s3 = S3::start().await;
    let proxy = Proxy::start(s3.port).await;
    let server = Server::start(Kind::MariaDb, &[]).await;
    let plan = Plan { initial_rows: 200, keys: 400, ..Plan::default() };
    workload::prepare(&server, &plan).await;
    let mut gate = Gate::prepare_anywhere();
    let mut options = s3.options(proxy.port);
    let seconds = format!("{}s", REQUEST_TIMEOUT.as_secs());
    options.extend([("request_timeout".to_owned(), seconds.clone()), ("retry_timeout".to_owned(), seconds)]);
    gate.store_in_s3(&s3.url(), &options);
    gate.resume().await;
    gate.mirror("mix", &server, &format!("{DATABASE}.*")).await;
    let writers = Writers::start(&server, &plan).await;
    Scene { gate, writers, proxy, server, _s3: s3 }
}

impl Scene {
    /// With the writers stopped the mirror equals the database, and every checkpoint on the way was whole.
    async fn ends_well(self) {
        self.proxy.heal();
        self.writers.stop().await;
        self.gate.catch_up("mix").await;
        let mut tables = workload::table_names();
        tables.extend(["bank_a", "bank_b"]);
        assert_tables_equal(&self.server, &self.gate.connect().await, DATABASE, &tables).await;
        assert_bank_total_at_every_checkpoint(&self.gate, "mix").await;
        let pg = self.gate.connect().await;
        assert_eq!(pg.number("SELECT count(*) FROM sys.jobs WHERE error_code IS NOT NULL").await, 0);
        assert_eq!(pg.number("SELECT count(*) FROM sys.jobs WHERE state = 'streaming'").await, 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_store_answers_are_named_and_waited_for() {
    let mut scene = scene().await;
    scene.gate.expect_in_log("TG015").expect_in_log("lease");
    let watch = BankWatch::start(&scene.gate);
    scene.proxy.inject("PUT", "", Fault::Delay(LATE), usize::MAX);
    // The object, how long it has been waited for, what it means, and that it is tried again.
    scene.gate.await_in_view("jobs", &["mix", "streaming", "TG0154", "is being written and has waited"]).await;
    scene.gate.await_in_view("errors", &["TG0154", "object ", "Nothing is lost", "tried again by itself"]).await;
    // Queries read what is there; a slow write is none of theirs.
    let pg = scene.gate.connect().await;
    assert!(pg.number("SELECT count(*) FROM mix.k_int").await > 0);
    let before = pg.number("SELECT max(last_checkpoint) FROM sys.jobs").await;
    // It is late, not stuck.
    let grown = format!("SELECT count(*) FROM sys.jobs WHERE last_checkpoint > {before}");
    tidegate_tests::await_state::await_value("another checkpoint", Duration::from_secs(120), || async {
        if pg.number(&grown).await == 1 { Ok(()) } else { Err("none yet") }
    })
    .await;
    assert!(watch.stop().await > 0);
    scene.ends_well().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_store_that_is_silent_stops_nothing_for_good() {
    let mut scene = scene().await;
    // Warnings of the job, its lease and its retries; the assertions below say what has to be among them.
    scene.gate.expect_in_log("TG015").expect_in_log("lease").expect_in_log("whether the source was dropped");
    for round in 0..2 {
        scene.proxy.inject("", "", Fault::Hang, usize::MAX);
        // A query answers, from what was read before, or fails within a bound and says why.
        let pg = scene.gate.connect().await;
        let began = Instant::now();
        for table in workload::table_names() {
            if let Err(error) = pg.try_rows(&format!("SELECT * FROM mix.{table}")).await {
                assert_eq!(error.sqlstate, "58030", "{error:?}");
                error.assert_names(&["object store", &format!("mix.{table}"), "data is as it was", "try again"]);
                break;
            }
        }
        assert!(began.elapsed() < QUERY_BOUND, "a query took {:?}", began.elapsed());
        scene.gate.await_in_view("jobs", &["mix", "TG0154", "has waited"]).await;
        scene.gate.await_in_view("jobs", &["mix", "retrying", "TG015"]).await;
        // What is in the store decides; views of the job itself stay readable all the time.
        assert_eq!(pg.number("SELECT count(*) FROM sys.jobs").await, 1, "round {round}");
        scene.proxy.heal();
        scene.gate.catch_up("mix").await;
    }
    scene.ends_well().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_store_that_loses_the_answers_of_creates_forks_nothing() {
    let mut scene = scene().await;
    scene.gate.expect_in_log("TG015").expect_in_log("lease").expect_in_log("whether the source was dropped");
    let pg = scene.gate.connect().await;
    // One answer lost, all of one attempt, and so many that the attempts of a request are used up.
    for lost in [1, 3, 8, 24] {
        scene.proxy.inject("PUT", "/checkpoint-", Fault::LoseAnswer, lost);
        let before = scene.proxy.met();
        tidegate_tests::await_state::await_value("lost answers", Duration::from_secs(60), || async {
            if scene.proxy.met() > before { Ok(()) } else { Err("none yet") }
        })
        .await;
        scene.gate.catch_up("mix").await;
        scene.proxy.heal();
    }
    // The outcome cannot even be looked up: the job steps back, looks again, and goes on from what it finds.
    scene.proxy.inject("PUT", "/checkpoint-", Fault::LoseAnswer, usize::MAX);
    scene.proxy.inject("GET", "/checkpoint-", Fault::Hang, usize::MAX);
    scene.gate.await_in_view("jobs", &["mix", "TG015"]).await;
    scene.gate.await_in_view("errors", &["TG0153", "checkpoint-", "outcome"]).await;
    scene.proxy.heal();
    scene.gate.catch_up("mix").await;
    // The same for definitions: what was created is there once, whatever was answered.
    scene.proxy.inject("PUT", "/catalog/", Fault::LoseAnswer, 3);
    pg.execute("CREATE SECRET kept AS 'x'").await;
    assert_eq!(pg.number("SELECT count(*) FROM sys.secrets WHERE name = 'kept'").await, 1);
    scene.ends_well().await;
}
