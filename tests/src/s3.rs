//! An object store that speaks S3's protocol, in memory.

use std::{fs::File, process::Command, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::{
    await_state::await_value,
    guard::GuardedProcess,
    servers::{free_port, script},
};

/// The bucket that each server has from its start.
pub const BUCKET: &str = "lake";

/// A running server. It is killed when the value is dropped or the test process ends in any other way, and what it held is gone.
#[derive(Debug)]
pub struct S3 {
    pub port: u16,
    _process: GuardedProcess,
    _folder: tempfile::TempDir,
}

impl S3 {
    /// Starts a server with an empty bucket.
    pub async fn start() -> Self {
        let installed = Command::new("bash").arg(script("moto.sh")).output().expect("bash can be started");
        assert!(installed.status.success(), "moto cannot be installed: {}", String::from_utf8_lossy(&installed.stderr));
        let python = String::from_utf8_lossy(&installed.stdout).trim().to_owned();
        let folder = tempfile::Builder::new().prefix("tidegate-s3-").tempdir().expect("a temporary folder can be made");
        let output = File::create(folder.path().join("output")).expect("the folder is writable");
        let port = free_port();
        let mut command = Command::new(python);
        command
            .args(["-m", "moto.server", "--host", "127.0.0.1", "--port", &port.to_string()])
            .stdout(output.try_clone().expect("a file can be shared"))
            .stderr(output);
        let process = GuardedProcess::spawn(&mut command, Some(folder.path())).expect("python can be started");
        let server = Self { port, _process: process, _folder: folder };
        await_value("the object store to make a bucket", Duration::from_secs(60), || async {
            let answer = create_bucket(port).await.map_err(|error| error.to_string())?;
            if answer.starts_with("HTTP/1.1 200") { Ok(()) } else { Err(answer) }
        })
        .await;
        server
    }

    /// Where a server keeps a store in the bucket.
    pub fn url(&self) -> String {
        format!("s3://{BUCKET}/some/prefix")
    }

    /// What it takes to open that store over `port`, which is the server's or that of a proxy before it.
    pub fn options(&self, port: u16) -> Vec<(String, String)> {
        [
            ("aws_endpoint", format!("http://127.0.0.1:{port}")),
            ("aws_access_key_id", "key-of-the-tests".to_owned()),
            ("aws_secret_access_key", "secret-of-the-tests".to_owned()),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
    }
}

async fn create_bucket(port: u16) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    // The server tells services apart by the scope of the signature, which it does not check.
    let request = format!(
        "PUT /{BUCKET} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: 0\r\nConnection: close\r\n\
         Authorization: AWS4-HMAC-SHA256 Credential=k/20240101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}
