//! psql, the client that most users will meet first.

use std::io::Read as _;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use tidegate::server::Server;

use crate::support::{ENDLESS, soon, start};

fn psql(server: &Server, arguments: &[&str]) -> Command {
    let mut command = Command::new("psql");
    command
        .args(["-X", "-h", "127.0.0.1", "-p", &server.address().port().to_string(), "-U", "tester", "-d", "tidegate"])
        .args(arguments)
        .env_remove("PGOPTIONS")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

async fn finished(child: Child) -> Output {
    let waiting = tokio::task::spawn_blocking(move || child.wait_with_output());
    soon("psql", waiting).await.expect("waits").expect("psql ends")
}

/// What psql printed: standard output, standard error.
async fn run(server: &Server, arguments: &[&str]) -> (String, String) {
    let output = finished(psql(server, arguments).spawn().expect("psql is installed")).await;
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (text(output.stdout), text(output.stderr))
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_and_their_results() {
    let server = start().await;
    let (printed, errors) = run(&server, &["-At", "-c", "SELECT 1, 'a' AS b, NULL, true; SELECT 2.50"]).await;
    assert_eq!((printed.as_str(), errors.as_str()), ("1|a||t\n2.50\n", ""));
    let (printed, _) = run(&server, &["-c", "SELECT 1 AS one"]).await;
    assert_eq!(printed, " one \n-----\n   1\n(1 row)\n\n");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_point_at_their_place() {
    let server = start().await;
    let (_, errors) = run(&server, &["-v", "VERBOSITY=verbose", "-c", "SELECT 1 FROM no_such_table"]).await;
    assert!(errors.starts_with("ERROR:  "), "{errors}");
    assert!(errors.contains("42"), "{errors}");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn control_c_ends_the_query_within_a_second() {
    let server = start().await;
    let mut child = psql(&server, &["-c", r"\echo started", "-c", ENDLESS]).spawn().expect("psql is installed");
    // The line that says so comes right before the query.
    let mut printed = child.stdout.take().expect("a pipe");
    let first = tokio::task::spawn_blocking(move || printed.read(&mut [0; 64]));
    assert!(soon("the first line", first).await.expect("reads").expect("reads") > 0);
    tokio::time::sleep(Duration::from_millis(300)).await;
    interrupt(&child);
    let began = Instant::now();
    let output = finished(child).await;
    assert!(began.elapsed() < Duration::from_secs(1), "took {:?}", began.elapsed());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("canceling statement due to user request"), "{errors}");
    server.stop().await;
}

fn interrupt(child: &Child) {
    let pid = child.id().to_string();
    let killed = Command::new("kill").args(["-INT", &pid]).status().expect("kill is installed");
    assert!(killed.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn listings_answer_on_an_empty_server() {
    let server = start().await;
    for (command, expected) in [(r"\d", "Did not find any relations."), (r"\l", "tidegate"), (r"\dn", "sys")] {
        let (printed, errors) = run(&server, &["-c", command]).await;
        assert!(printed.contains(expected) || errors.contains(expected), "{command}: {printed}{errors}");
        assert!(!errors.contains("ERROR"), "{command}: {errors}");
    }
    server.stop().await;
}
