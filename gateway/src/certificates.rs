//! Certificates of listeners: read from files, and read again while connections are open.
//!
//! A new pair is taken by connections that begin after it; whatever is wrong with it leaves the old one in place.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::config::CertificateFiles;

/// A certificate that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", file.display())]
pub struct CertificateError {
    file: PathBuf,
    reason: String,
}

/// A listener's certificate.
pub(crate) struct Certificate {
    files: CertificateFiles,
    provider: Arc<CryptoProvider>,
    current: RwLock<Arc<CertifiedKey>>,
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate").field("files", &self.files).finish_non_exhaustive()
    }
}

impl Certificate {
    /// Reads it.
    ///
    /// # Errors
    /// Where a file cannot be read, or the key is not the certificate's.
    pub(crate) fn open(files: CertificateFiles) -> Result<Arc<Self>, CertificateError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let current = RwLock::new(read(&files, &provider)?);
        Ok(Arc::new(Self { files, provider, current }))
    }

    /// Reads the files again.
    ///
    /// # Errors
    /// As [`Self::open`]; nothing changes then.
    pub(crate) fn reload(&self) -> Result<(), CertificateError> {
        let read = read(&self.files, &self.provider)?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = read;
        Ok(())
    }

    /// TLS with it, whichever is the current one.
    ///
    /// # Errors
    /// None that depends on the files.
    pub(crate) fn server_config(self: &Arc<Self>) -> Result<ServerConfig, CertificateError> {
        let failed = |error: rustls::Error| self.files.wrong(&error);
        let builder = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_safe_default_protocol_versions()
            .map_err(failed)?;
        Ok(builder.with_no_client_auth().with_cert_resolver(Arc::<Self>::clone(self)))
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _client: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl CertificateFiles {
    /// What is wrong with the pair.
    fn wrong(&self, reason: &dyn fmt::Display) -> CertificateError {
        CertificateError { file: self.certificate.clone(), reason: reason.to_string() }
    }
}

fn read(files: &CertificateFiles, provider: &CryptoProvider) -> Result<Arc<CertifiedKey>, CertificateError> {
    let chain: Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(&files.certificate).and_then(Iterator::collect);
    let chain = chain.map_err(|error| files.wrong(&error))?;
    let key = PrivateKeyDer::from_pem_file(&files.key)
        .map_err(|error| CertificateError { file: files.key.clone(), reason: error.to_string() })?;
    let pair = CertifiedKey::from_der(chain, key, provider).map_err(|error| files.wrong(&error))?;
    Ok(Arc::new(pair))
}
