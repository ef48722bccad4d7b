//! Encryption of a connection.

use std::path::Path;
use std::sync::Arc;

use mysql_async::{Error, IoError, TlsError};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio_rustls::TlsConnector;

use super::{Result, Transport};

/// Whose certificate a server must show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trust<'a> {
    /// Anybody's.
    Anybody,
    /// One for the host's name, from the authorities in a file, or from the public ones.
    Authorities(Option<&'a Path>),
}

fn refused(error: impl Into<TlsError>) -> Error {
    Error::Io(IoError::Tls(error.into()))
}

/// Encrypts a connection on which both sides have agreed to do so.
pub(super) async fn connect(stream: Box<dyn Transport>, host: &str, trust: Trust<'_>) -> Result<Box<dyn Transport>> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(refused)?;
    let config = match trust {
        Trust::Anybody => {
            let verifier = Arc::new(AnyCertificate(provider));
            builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth()
        }
        Trust::Authorities(file) => {
            let mut roots = RootCertStore::empty();
            match file {
                Some(file) => {
                    for certificate in certificates(file).await? {
                        roots.add(certificate).map_err(refused)?;
                    }
                }
                None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
            }
            builder.with_root_certificates(roots).with_no_client_auth()
        }
    };
    let name = ServerName::try_from(host.to_owned()).map_err(refused)?;
    Ok(Box::new(TlsConnector::from(Arc::new(config)).connect(name, stream).await?))
}

/// The certificates in a file: several as PEM, or one as DER.
async fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let bytes = tokio::fs::read(file).await?;
    let pem = CertificateDer::pem_slice_iter(&bytes).collect::<std::result::Result<Vec<_>, _>>();
    match pem.map_err(refused)? {
        none if none.is_empty() => Ok(vec![CertificateDer::from(bytes)]),
        certificates => Ok(certificates),
    }
}

/// Checks that the server has the key of the certificate it shows, and nothing else.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
