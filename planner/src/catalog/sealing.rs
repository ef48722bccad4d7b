//! Encryption of secrets at rest: XChaCha20-Poly1305 with one key per installation, which is kept outside the store.

use std::fmt;
use std::io::Write;
use std::path::Path;

use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{Key, XChaCha20Poly1305, XNonce};
use rand::TryRngCore;
use serde::{Deserialize, Serialize};

use crate::error::{SqlError, sqlstate};

/// Where random bytes come from.
pub trait Entropy: Send + Sync + fmt::Debug {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), SqlError>;
}

/// The operating system's.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemEntropy;

impl Entropy for SystemEntropy {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), SqlError> {
        rand::rngs::OsRng
            .try_fill_bytes(bytes)
            .map_err(|error| SqlError::internal(format!("the system gave no random bytes: {error}")))
    }
}

/// A text that only the holder of the key can read: hexadecimal nonce and ciphertext.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
pub struct Sealed {
    nonce: String,
    ciphertext: String,
}

impl fmt::Debug for Sealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sealed(***)")
    }
}

/// The key. It is bound to a purpose on each use, so that one sealed text cannot be put in the place of another.
pub struct Sealer {
    cipher: XChaCha20Poly1305,
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sealer(***)")
    }
}

const KEY_BYTES: usize = 32;
const NONCE_BYTES: usize = 24;

impl Sealer {
    pub fn new(key: &[u8; KEY_BYTES]) -> Self {
        Self { cipher: XChaCha20Poly1305::new(Key::from_slice(key)) }
    }

    /// A key of 64 hexadecimal digits.
    pub fn from_hex(text: &str) -> Result<Self, SqlError> {
        let bytes =
            from_hex(text.trim()).and_then(|bytes| <[u8; KEY_BYTES]>::try_from(bytes).ok()).ok_or_else(|| {
                SqlError::new(sqlstate::INVALID_PARAMETER_VALUE, "the key of the secrets is not 64 hexadecimal digits")
            })?;
        Ok(Self::new(&bytes))
    }

    /// Reads the key file, or creates it, readable by its owner alone.
    pub fn from_file(path: &Path, entropy: &dyn Entropy) -> Result<Self, SqlError> {
        let failed = |action: &str, error: &std::io::Error| {
            SqlError::new(sqlstate::IO_ERROR, format!("cannot {action} the key file \"{}\": {error}", path.display()))
        };
        match std::fs::read_to_string(path) {
            Ok(text) => return Self::from_hex(&text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed("read", &error)),
        }
        let mut key = [0; KEY_BYTES];
        entropy.fill(&mut key)?;
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).map_err(|error| failed("create", &error))?;
        }
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        match options.open(path) {
            Ok(mut file) => {
                let text = format!("{}\n", to_hex(&key));
                file.write_all(text.as_bytes())
                    .and_then(|()| file.sync_all())
                    .map_err(|error| failed("write", &error))?;
                Ok(Self::new(&key))
            }
            // Another process was first; its key is the one.
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                let text = std::fs::read_to_string(path).map_err(|error| failed("read", &error))?;
                Self::from_hex(&text)
            }
            Err(error) => Err(failed("create", &error)),
        }
    }

    pub fn seal(&self, text: &str, purpose: &str, entropy: &dyn Entropy) -> Result<Sealed, SqlError> {
        let mut nonce = [0; NONCE_BYTES];
        entropy.fill(&mut nonce)?;
        let payload = Payload { msg: text.as_bytes(), aad: purpose.as_bytes() };
        let ciphertext = self
            .cipher
            .encrypt(XNonce::from_slice(&nonce), payload)
            .map_err(|_| SqlError::internal("a secret could not be encrypted"))?;
        Ok(Sealed { nonce: to_hex(&nonce), ciphertext: to_hex(&ciphertext) })
    }

    pub fn open(&self, sealed: &Sealed, purpose: &str) -> Result<String, SqlError> {
        let nonce = from_hex(&sealed.nonce).filter(|nonce| nonce.len() == NONCE_BYTES);
        let text = nonce.zip(from_hex(&sealed.ciphertext)).and_then(|(nonce, ciphertext)| {
            let payload = Payload { msg: &ciphertext, aad: purpose.as_bytes() };
            let plain = self.cipher.decrypt(XNonce::from_slice(&nonce), payload).ok()?;
            String::from_utf8(plain).ok()
        });
        text.ok_or_else(|| {
            SqlError::new(sqlstate::DATA_CORRUPTED, format!("the {purpose} cannot be decrypted with this server's key"))
                .with_hint("Start the server with the key file it was created with, or drop and create it again.")
        })
    }
}

pub(crate) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn from_hex(text: &str) -> Option<Vec<u8>> {
    if !text.is_ascii() || !text.len().is_multiple_of(2) {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok()).collect()
}
