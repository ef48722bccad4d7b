//! A proxy before an HTTP server that delays, loses and withholds answers as it is told.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
};

/// What goes wrong with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It is passed on, and its answer held back for so long.
    Delay(Duration),
    /// It is passed on and carried out, and the connection ends instead of answering.
    LoseAnswer,
    /// It is not passed on, and nothing is answered until the proxy heals.
    Hang,
    /// It is passed on without its condition (`If-None-Match`), as to a server that does not know it.
    DropCondition,
}

/// A running proxy.
#[derive(Debug)]
pub struct Proxy {
    pub port: u16,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    server: u16,
    rules: Mutex<Rules>,
    /// Counts the times the proxy healed.
    healed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Rules {
    rules: Vec<Rule>,
    met: usize,
}

#[derive(Debug)]
struct Rule {
    method: &'static str,
    path_contains: String,
    fault: Fault,
    times: usize,
}

impl Proxy {
    /// A proxy before the server at `port` of the loopback address, without faults so far.
    pub async fn start(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("the loopback address has a free port");
        let port = listener.local_addr().expect("a listener has an address").port();
        let shared = Arc::new(Shared { server, rules: Mutex::default(), healed: watch::Sender::new(0) });
        let task = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Self { port, shared, task }
    }

    /// Lets the next `times` requests of this method (any if empty), on paths that contain `path_contains`, meet `fault`. Of several rules that
    /// apply, the first one given is used up first.
    pub fn inject(&self, method: &'static str, path_contains: &str, fault: Fault, times: usize) {
        let rule = Rule { method, path_contains: path_contains.to_owned(), fault, times };
        self.shared.rules().rules.push(rule);
    }

    /// How many requests have met a fault.
    pub fn met(&self) -> usize {
        self.shared.rules().met
    }

    /// Ends all faults. Connections that hang are closed.
    pub fn heal(&self) {
        self.shared.rules().rules.clear();
        self.shared.healed.send_modify(|times| *times += 1);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    fn rules(&self) -> std::sync::MutexGuard<'_, Rules> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn meet(&self, method: &str, path: &str) -> Option<Fault> {
        let mut rules = self.rules();
        let applies = |rule: &&mut Rule| {
            rule.times > 0 && (rule.method.is_empty() || rule.method == method) && path.contains(&rule.path_contains)
        };
        let rule = rules.rules.iter_mut().find(applies)?;
        rule.times -= 1;
        let fault = rule.fault;
        rules.met += 1;
        Some(fault)
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((client, _)) = listener.accept().await {
        let shared = Arc::clone(&shared);
        // A client that goes away in the middle is none of the proxy's business.
        tokio::spawn(async move { serve(client, &shared).await });
    }
}

/// Serves one request; the connection is closed behind it, so that each request is seen.
async fn serve(mut client: TcpStream, shared: &Shared) -> io::Result<()> {
    let Some((head, mut request)) = read_request(&mut client).await? else { return Ok(()) };
    let mut words = head.split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let mut healed = shared.healed.subscribe();
    healed.mark_unchanged();
    let fault = shared.meet(method, path);
    if fault == Some(Fault::Hang) {
        // The sender lives as long as the proxy.
        let _ = healed.changed().await;
        return Ok(());
    }
    if fault == Some(Fault::DropCondition) {
        request = without_condition(&head, &request);
    }
    let mut server = TcpStream::connect(("127.0.0.1", shared.server)).await?;
    server.write_all(&request).await?;
    let mut answer = Vec::new();
    server.read_to_end(&mut answer).await?;
    match fault {
        Some(Fault::LoseAnswer) => return Ok(()),
        Some(Fault::Delay(pause)) => {
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                _ = healed.changed() => {}
            }
        }
        _ => {}
    }
    client.write_all(&answer).await?;
    client.shutdown().await
}

/// The head of a request, and all of it with a header that asks the server to close the connection behind its answer. Nothing if the client sent
/// none.
async fn read_request(client: &mut TcpStream) -> io::Result<Option<(String, Vec<u8>)>> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
        if client.read_buf(&mut bytes).await? == 0 {
            return Ok(None);
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let length = header(&head, "content-length").and_then(|value| value.parse::<usize>().ok()).unwrap_or(0);
    while bytes.len() < end + length {
        if client.read_buf(&mut bytes).await? == 0 {
            return Ok(None);
        }
    }
    let line = head.find("\r\n").map_or(0, |at| at + 2);
    bytes.splice(line..line, *b"Connection: close\r\n");
    Ok(Some((head, bytes)))
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found.eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

fn without_condition(head: &str, request: &[u8]) -> Vec<u8> {
    let Some(line) = head.lines().find(|line| line.to_ascii_lowercase().starts_with("if-none-match:")) else {
        return request.to_vec();
    };
    let line = format!("{line}\r\n").into_bytes();
    let at = request.windows(line.len()).position(|window| window == line).expect("the head is part of the request");
    [&request[..at], &request[at + line.len()..]].concat()
}
