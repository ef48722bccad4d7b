//! The command line and its counterparts in the environment.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, Parser, Subcommand, ValueEnum};
use tidegate_storage::local_disk::{LocalDirectory, LocalDisk};
use tidegate_storage::store::caching::CacheOptions;
use tidegate_storage::table::{DEFAULT_KEY_MEMORY, KeyCache, MergePool, Resources};

/// Defaults of `--object-cache-memory` and `--object-cache-disk`.
const OBJECT_CACHE_MEMORY: usize = 256 << 20;
const OBJECT_CACHE_DISK: usize = 10 << 30;

/// Mirrors MySQL databases into open tables and answers SQL over them.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, about, propagate_version = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the server: capture the sources defined in the store, and answer SQL over the PostgreSQL protocol.
    Serve(ServeOptions),
}

/// The options of `tidegate serve`.
#[derive(Debug, Clone, Args)]
pub struct ServeOptions {
    /// Where tables and definitions are kept: a directory, `s3://bucket/prefix`, or `memory:` (gone when the server stops).
    #[arg(long, env = "TIDEGATE_STORE", default_value = "./tidegate-data", value_name = "PATH|URL")]
    pub store: String,

    /// An option of the object store, such as `aws_region=eu-central-1`; may be repeated.
    #[arg(long = "store-option", env = "TIDEGATE_STORE_OPTIONS", value_name = "NAME=VALUE", value_parser = name_and_value, value_delimiter = ',')]
    pub store_options: Vec<(String, String)>,

    /// The address to listen on; port 0 takes a free one.
    #[arg(long, env = "TIDEGATE_LISTEN", default_value = "127.0.0.1:5432", value_name = "ADDRESS:PORT")]
    pub listen: SocketAddr,

    /// The file with the key that secrets are encrypted with; made if it is missing. Default: beside a store that is a
    /// directory, with its name and `.key`; for others `./tidegate.key`.
    #[arg(long, env = "TIDEGATE_KEY_FILE", value_name = "PATH")]
    pub key_file: Option<PathBuf>,

    /// The key itself, as 64 hexadecimal digits: meant for the environment, as arguments can be seen by others.
    #[arg(long, env = "TIDEGATE_KEY", hide = true, hide_env_values = true)]
    pub key: Option<String>,

    /// How clients prove who they are. Default: `scram` with a password file; without one `trust`, which is only
    /// taken for an address of this machine itself.
    #[arg(long, env = "TIDEGATE_AUTH", value_name = "METHOD")]
    pub auth: Option<AuthMethod>,

    /// Users and passwords, one `user:password` in a line.
    #[arg(long, env = "TIDEGATE_PASSWORD_FILE", value_name = "PATH")]
    pub password_file: Option<PathBuf>,

    /// Connections at the same time.
    #[arg(long, env = "TIDEGATE_MAX_CONNECTIONS", default_value_t = 100, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub max_connections: u32,

    /// Memory for queries, such as `2GiB`; what needs more goes to disk. Default: half of the machine's.
    #[arg(long, env = "TIDEGATE_MEMORY", value_name = "SIZE", value_parser = memory_size)]
    pub memory: Option<usize>,

    /// The directory on the local disk with what is kept there to be at hand, the key index of the tables and parts of their
    /// files. It can be deleted while the server does not run. Default: beside a store that is a directory, with its name and `.cache`;
    /// for others `./tidegate.cache`.
    #[arg(long, env = "TIDEGATE_CACHE", value_name = "PATH")]
    pub cache: Option<PathBuf>,

    /// Memory for the key index of all tables, such as `128MiB`; the rest of it is on the local disk.
    #[arg(long, env = "TIDEGATE_KEY_INDEX_MEMORY", default_value = "128MiB", value_name = "SIZE", value_parser = memory_size)]
    pub key_index_memory: usize,

    /// Memory for parts of table files in a store that is not on the local disk, such as `256MiB`; 0 for none. Not used
    /// otherwise.
    #[arg(long, env = "TIDEGATE_OBJECT_CACHE_MEMORY", default_value = "256MiB", value_name = "SIZE", value_parser = size_or_none)]
    pub object_cache_memory: usize,

    /// Room on the local disk for more of them, in the directory of `--cache`; 0 for none.
    #[arg(long, env = "TIDEGATE_OBJECT_CACHE_DISK", default_value = "10GiB", value_name = "SIZE", value_parser = size_or_none)]
    pub object_cache_disk: usize,

    /// Merges of table files at the same time, at least two; one of them is kept for short merges. Default: one for each
    /// processor.
    #[arg(long, env = "TIDEGATE_MERGE_THREADS", value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub merge_threads: Option<u16>,

    /// What merges of table files may write in a second, all together, such as `50MiB`. Default: no limit.
    #[arg(long, env = "TIDEGATE_MERGE_RATE", value_name = "SIZE", value_parser = memory_size)]
    pub merge_rate: Option<usize>,

    /// The form of the log, which goes to standard error.
    #[arg(long, env = "TIDEGATE_LOG_FORMAT", default_value = "text", value_name = "FORMAT")]
    pub log: LogFormat,

    /// What is logged: a level, or `target=level` pairs.
    #[arg(long, env = "TIDEGATE_LOG", default_value = "info", value_name = "FILTER")]
    pub log_filter: String,

    /// A file that is written with the address, once connections are answered.
    #[arg(long, env = "TIDEGATE_READY_FILE", value_name = "PATH")]
    pub ready_file: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AuthMethod {
    Trust,
    Scram,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}

impl ServeOptions {
    /// The options of a server for tests and embedding: everything by default but the store and the address.
    pub fn new(store: impl Into<String>, listen: SocketAddr) -> Self {
        Self {
            store: store.into(),
            store_options: Vec::new(),
            listen,
            key_file: None,
            key: None,
            auth: None,
            password_file: None,
            max_connections: 100,
            memory: None,
            cache: None,
            key_index_memory: DEFAULT_KEY_MEMORY,
            object_cache_memory: OBJECT_CACHE_MEMORY,
            object_cache_disk: OBJECT_CACHE_DISK,
            merge_threads: None,
            merge_rate: None,
            log: LogFormat::Text,
            log_filter: "info".to_owned(),
            ready_file: None,
        }
    }

    /// The method that holds, or why there is none.
    pub(crate) fn auth_method(&self) -> Result<AuthMethod, &'static str> {
        match (self.auth, &self.password_file) {
            (Some(AuthMethod::Trust), Some(_)) => {
                Err("--auth trust makes no use of --password-file: leave one of them out")
            }
            (Some(AuthMethod::Scram), None) => Err("--auth scram needs --password-file"),
            (Some(method), _) => Ok(method),
            (None, Some(_)) => Ok(AuthMethod::Scram),
            (None, None) if self.listen.ip().is_loopback() => Ok(AuthMethod::Trust),
            (None, None) => {
                Err("an address that other machines can reach needs --password-file, or --auth trust to let anyone in")
            }
        }
    }

    /// Where the key of the secrets is.
    pub(crate) fn key_path(&self) -> PathBuf {
        self.key_file.clone().unwrap_or_else(|| self.beside_the_store("key"))
    }

    /// The directory for what is kept on the local disk.
    pub(crate) fn cache_path(&self) -> PathBuf {
        self.cache.clone().unwrap_or_else(|| self.beside_the_store("cache"))
    }

    /// A path for something of this server that is not in the store.
    fn beside_the_store(&self, extension: &str) -> PathBuf {
        let local = self.store.strip_prefix("file://").unwrap_or(&self.store).trim_end_matches('/');
        if local.contains("://") || self.in_memory() || local.is_empty() {
            PathBuf::from(format!("tidegate.{extension}"))
        } else {
            PathBuf::from(format!("{local}.{extension}"))
        }
    }

    /// What the writers of all tables share. A store in memory needs no disk.
    pub(crate) fn resources(&self) -> Resources {
        let keys = match self.in_memory() {
            true => KeyCache::unbounded(),
            false => {
                KeyCache::new(Arc::new(LocalDirectory::new(self.cache_path().join("keys"))), self.key_index_memory)
            }
        };
        let threads = self.merge_threads.map_or_else(default_merge_threads, usize::from);
        Resources {
            keys,
            merges: MergePool::new(threads, self.merge_rate.map(|bytes| bytes as u64)),
            ..Resources::default()
        }
    }

    /// What is kept of the objects of a store that is far away.
    pub(crate) fn object_cache(&self) -> Option<CacheOptions> {
        if !self.is_remote() || (self.object_cache_memory == 0 && self.object_cache_disk == 0) {
            return None;
        }
        let disk: Arc<dyn LocalDisk> = Arc::new(LocalDirectory::new(self.cache_path().join("objects")));
        let disk = (self.object_cache_disk > 0).then_some((disk, self.object_cache_disk as u64));
        Some(CacheOptions { memory_bytes: self.object_cache_memory, disk })
    }

    /// Whether the store is neither a directory nor in memory.
    fn is_remote(&self) -> bool {
        self.store.contains("://") && !self.store.starts_with("file:") && !self.in_memory()
    }

    /// Whether the store is gone when the server stops.
    pub(crate) fn in_memory(&self) -> bool {
        self.store.starts_with("memory:")
    }
}

/// The address that a client on this machine connects to.
pub(crate) fn reachable(address: SocketAddr) -> IpAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::from([127, 0, 0, 1]),
        ip => ip,
    }
}

fn name_and_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => Ok((name.trim().to_owned(), value.to_owned())),
        _ => Err("expected NAME=VALUE".to_owned()),
    }
}

/// A size, or nothing at all.
fn size_or_none(text: &str) -> Result<usize, String> {
    if text.trim() == "0" { Ok(0) } else { memory_size(text) }
}

/// Bytes from `1048576`, `512MiB`, `2GB`, `1.5g`.
fn memory_size(text: &str) -> Result<usize, String> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor: f64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "k" | "kb" | "kib" => 1024.0,
        "m" | "mb" | "mib" => 1024.0 * 1024.0,
        "g" | "gb" | "gib" => 1024.0 * 1024.0 * 1024.0,
        _ => return Err("expected a size such as 512MiB or 2GiB".to_owned()),
    };
    let bytes = number.parse::<f64>().map_err(|_| "expected a size such as 512MiB or 2GiB".to_owned())? * factor;
    if bytes < 16.0 * 1024.0 * 1024.0 {
        return Err("it must be at least 16MiB".to_owned());
    }
    Ok(bytes as usize)
}

fn default_merge_threads() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from)
}

/// Half of the machine's memory; 1 GiB where that is unknown.
pub(crate) fn default_memory() -> usize {
    std::fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
            line.split_whitespace().nth(1)?.parse::<usize>().ok()
        })
        .map_or(1 << 30, |kilobytes| kilobytes * 512)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<ServeOptions, clap::Error> {
        let Cli { command: Command::Serve(options) } =
            Cli::try_parse_from(["tidegate", "serve"].iter().chain(arguments))?;
        Ok(options)
    }

    #[test]
    fn defaults_need_no_argument() {
        let options = parse(&[]).expect("defaults");
        assert_eq!(options.store, "./tidegate-data");
        assert_eq!(options.auth_method(), Ok(AuthMethod::Trust));
        assert_eq!(options.key_path(), PathBuf::from("./tidegate-data.key"));
        assert_eq!(options.cache_path(), PathBuf::from("./tidegate-data.cache"));
        assert_eq!(options.key_index_memory, DEFAULT_KEY_MEMORY);
        assert_eq!((options.object_cache_memory, options.object_cache_disk), (OBJECT_CACHE_MEMORY, OBJECT_CACHE_DISK));
    }

    #[test]
    fn objects_are_kept_of_stores_far_away() {
        let cache = |arguments: &[&str]| parse(arguments).expect("valid").object_cache();
        for near in ["./data", "/data", "file:///data", "memory:", "memory://"] {
            assert!(cache(&["--store", near]).is_none(), "{near}");
        }
        let kept = cache(&["--store", "s3://b/p"]).expect("it is far away");
        assert_eq!((kept.memory_bytes, kept.disk.map(|disk| disk.1)), (256 << 20, Some(10 << 30)));
        let kept = cache(&["--store", "s3://b/p", "--object-cache-disk", "0"]).expect("memory is left");
        assert!(kept.disk.is_none());
        let neither = ["--store", "s3://b", "--object-cache-disk", "0", "--object-cache-memory", "0"];
        assert!(cache(&neither).is_none());
    }

    #[test]
    fn options_of_the_store() {
        let options =
            parse(&["--store", "s3://b/p", "--store-option", "a=1", "--store-option", "b==x"]).expect("valid");
        assert_eq!(options.store_options, [("a".into(), "1".into()), ("b".into(), "=x".into())]);
        assert_eq!(options.key_path(), PathBuf::from("tidegate.key"));
        assert!(parse(&["--store-option", "a"]).is_err());
        assert_eq!(parse(&["--store", "/data/t/"]).expect("valid").key_path(), PathBuf::from("/data/t.key"));
    }

    #[test]
    fn other_machines_are_let_in_only_when_asked_for() {
        let method = |arguments: &[&str]| parse(arguments).expect("valid").auth_method();
        assert!(method(&["--listen", "0.0.0.0:5432"]).is_err());
        assert_eq!(method(&["--listen", "0.0.0.0:5432", "--auth", "trust"]), Ok(AuthMethod::Trust));
        assert_eq!(method(&["--listen", "0.0.0.0:5432", "--password-file", "p"]), Ok(AuthMethod::Scram));
        assert!(method(&["--auth", "scram"]).is_err());
        assert!(method(&["--auth", "trust", "--password-file", "p"]).is_err());
    }

    #[test]
    fn sizes() {
        assert_eq!(memory_size("512MiB"), Ok(512 << 20));
        assert_eq!(memory_size("1.5 g"), Ok(3 << 29));
        assert_eq!(memory_size("104857600"), Ok(104_857_600));
        for wrong in ["", "x", "1KiB", "1tb", "-1g"] {
            assert!(memory_size(wrong).is_err(), "{wrong}");
        }
    }
}
