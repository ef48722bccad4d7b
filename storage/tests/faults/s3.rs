//! Servers that speak S3's protocol, each a program of its own. They listen on the loopback address alone.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path as FilePath, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;
use tidegate_storage::ErrorKind;
use tidegate_storage::store::{self, StoreRef, require_conditional_creates};
use uuid::Uuid;

use crate::guard::GuardedProcess;
use crate::race::race;

const BUCKET: &str = "lake";
const KEY: &str = "key-of-the-tests";
const SECRET: &str = "a-secret-of-the-tests-that-is-long-enough";

/// A running server with an empty bucket; it ends with the value, or with this process.
struct Server {
    port: u16,
    _process: GuardedProcess,
    _folder: TempDir,
}

/// What the script of this name installs.
fn installed(script: &str) -> PathBuf {
    let scripts = FilePath::new(env!("CARGO_MANIFEST_DIR")).join("../tests/servers");
    let output = Command::new("bash").arg(scripts.join(script)).output().expect("bash can be started");
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    PathBuf::from(String::from_utf8_lossy(&output.stdout).trim())
}

/// So many ports that nothing listened on a moment ago.
fn free_ports<const N: usize>() -> [u16; N] {
    let listeners = [(); N].map(|()| TcpListener::bind("127.0.0.1:0").expect("there are free ports"));
    listeners.map(|listener| listener.local_addr().expect("it is bound").port())
}

impl Server {
    /// Moto keeps everything in memory, in Python.
    async fn moto() -> Self {
        let [port] = free_ports();
        let arguments = ["-m", "moto.server", "--host", "127.0.0.1", "--port"].map(OsString::from);
        Self::start("moto.sh", port, |_| arguments.into_iter().chain([port.to_string().into()]).collect()).await
    }

    /// `SeaweedFS` keeps files in volumes and their names in a store of its own.
    async fn seaweedfs() -> Self {
        let ports: [u16; 8] = free_ports();
        let options = |folder: &FilePath| {
            let named = ["master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port"];
            let named = named.into_iter().chain(["filer.port.grpc", "s3.port.grpc", "s3.port"]);
            let mut options: Vec<OsString> = ["-logtostderr", "server", "-filer", "-s3"].map(OsString::from).into();
            options.extend(["-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-volume.max=8"].map(OsString::from));
            options
                .extend(["-master.volumeSizeLimitMB=64", "-s3.port.iceberg=0", "-s3.port.lance=0"].map(OsString::from));
            options.extend(named.zip(ports).map(|(name, port)| format!("-{name}={port}").into()));
            for (name, file) in [("dir", ""), ("filer.localSocket", "filer"), ("s3.localSocket", "s3")] {
                options.push(format!("-{name}={}", folder.join(file).display()).into());
            }
            options
        };
        Self::start("seaweedfs.sh", ports[7], options).await
    }

    /// `rclone` serves a folder, and pays no heed to conditions.
    async fn rclone() -> Self {
        let [port] = free_ports();
        let options = |folder: &FilePath| {
            let served = folder.join("served");
            std::fs::create_dir_all(served.join(BUCKET)).expect("the folder is writable");
            let mut options: Vec<OsString> =
                ["serve", "s3", "--config", "/dev/null", "--addr"].map(OsString::from).into();
            options.extend([format!("127.0.0.1:{port}").into(), "--auth-key".into(), format!("{KEY},{SECRET}").into()]);
            options.push(served.into());
            options
        };
        Self::start("rclone.sh", port, options).await
    }

    async fn start(script: &str, port: u16, options: impl FnOnce(&FilePath) -> Vec<OsString>) -> Self {
        let program = installed(script);
        let folder = tempfile::Builder::new().prefix("tidegate-s3-").tempdir().expect("a temporary folder can be made");
        let output = File::create(folder.path().join("output")).expect("the folder is writable");
        let mut command = Command::new(program);
        command.args(options(folder.path())).env("HOME", folder.path()).current_dir(folder.path());
        command.stdout(output.try_clone().expect("a file can be shared")).stderr(output);
        let process = GuardedProcess::spawn(&mut command, Some(folder.path())).expect("the server can be started");
        let server = Self { port, _process: process, _folder: folder };
        let mut answer = String::new();
        for _ in 0..600 {
            answer = make_bucket(port).unwrap_or_else(|error| error.to_string());
            // A server that wants a signature has its bucket already.
            if answer.starts_with("HTTP/1.1 200") || answer.contains("InvalidAccessKeyId") {
                return server;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        let log = std::fs::read_to_string(server._folder.path().join("output")).unwrap_or_default();
        panic!("the server of {script} makes no bucket: {answer}\n{log}");
    }

    /// The store at this prefix of the bucket.
    fn open(&self, prefix: &str) -> StoreRef {
        let endpoint = format!("http://127.0.0.1:{}", self.port);
        let options =
            [("aws_endpoint", endpoint.as_str()), ("aws_access_key_id", KEY), ("aws_secret_access_key", SECRET)];
        let options: Vec<_> = options.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        store::open(&format!("s3://{BUCKET}/{prefix}"), &options).unwrap()
    }
}

fn make_bucket(port: u16) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    // Moto tells services apart by the scope of the signature, which it does not check.
    write!(
        stream,
        "PUT /{BUCKET} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: 0\r\nConnection: close\r\n\
         Authorization: AWS4-HMAC-SHA256 Credential=k/20240101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0\r\n\r\n"
    )?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_ignores_conditions_is_refused() {
    let server = Server::rclone().await;
    let store = server.open("a/store");
    let error = require_conditional_creates(&*store, Uuid::from_u128(1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unconditional, "{error}");
    assert!(error.to_string().contains("created a second time, over the first"), "{error}");
    let probe = object_store::path::Path::from("probe").join(Uuid::from_u128(1).to_string());
    assert_eq!(store::read_optional(&*store, &probe).await.unwrap(), None, "the probe is deleted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_writers_race_on_moto() {
    let server = Server::moto().await;
    require_conditional_creates(&*server.open("a/store"), Uuid::from_u128(1)).await.unwrap();
    race("moto", 1, || server.open("a/store"), 100, Duration::from_millis(40)).await;
}

#[ignore = "long: some hundred commits, each of which waits for a lock of the server"]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_writers_race_on_seaweedfs() {
    let server = Server::seaweedfs().await;
    require_conditional_creates(&*server.open("a/store"), Uuid::from_u128(1)).await.unwrap();
    race("SeaweedFS", 1, || server.open("a/store"), 200, Duration::from_millis(40)).await;
}

#[ignore = "long: some hundred commits"]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_writers_race_on_moto_for_long() {
    let server = Server::moto().await;
    for seed in 2..5 {
        let prefix = format!("{seed}/store");
        race("moto", seed, || server.open(&prefix), 300, Duration::from_millis(40)).await;
    }
}
