//! The local disk, for what is kept there to be at hand: the key index, and parts of objects.

use std::fmt;
use std::path::PathBuf;

/// A place for files that can always be made anew: nothing is synced, and what is read back is verified by the reader.
pub trait LocalDisk: fmt::Debug + Send + Sync {
    /// Writes `bytes` as the file `name`, whose name may contain `/`. Replaces an older file of that name.
    fn write(&self, name: &str, bytes: &[u8]) -> std::io::Result<()>;
    /// The `len` bytes of a file from `offset` on.
    fn read(&self, name: &str, offset: u64, len: usize) -> std::io::Result<Vec<u8>>;
    /// The size of a file.
    fn size(&self, name: &str) -> std::io::Result<u64>;
    /// Removes a file if it is there.
    fn remove(&self, name: &str) -> std::io::Result<()>;
    /// The names of the files in a directory, without it; empty if there is no such directory.
    fn list(&self, directory: &str) -> std::io::Result<Vec<String>>;
}

/// A directory of the local file system.
#[derive(Debug)]
pub struct LocalDirectory {
    root: PathBuf,
}

impl LocalDirectory {
    /// Files go below `root`, which is made when the first one is written.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }
}

impl LocalDisk for LocalDirectory {
    fn write(&self, name: &str, bytes: &[u8]) -> std::io::Result<()> {
        let path = self.root.join(name);
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory)?;
        }
        // A reader never sees half a file, and a file half written by a process that died is not taken for a whole one.
        let unfinished = path.with_extension("unfinished");
        std::fs::write(&unfinished, bytes)?;
        std::fs::rename(unfinished, path)
    }

    fn read(&self, name: &str, offset: u64, len: usize) -> std::io::Result<Vec<u8>> {
        use std::os::unix::fs::FileExt as _;
        let mut bytes = vec![0; len];
        std::fs::File::open(self.root.join(name))?.read_exact_at(&mut bytes, offset)?;
        Ok(bytes)
    }

    fn size(&self, name: &str) -> std::io::Result<u64> {
        Ok(std::fs::metadata(self.root.join(name))?.len())
    }

    fn remove(&self, name: &str) -> std::io::Result<()> {
        match std::fs::remove_file(self.root.join(name)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn list(&self, directory: &str) -> std::io::Result<Vec<String>> {
        let entries = match std::fs::read_dir(self.root.join(directory)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    }
}
