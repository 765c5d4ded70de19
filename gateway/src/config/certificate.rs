//! Where a listener's certificate lies.

use std::path::PathBuf;

use serving::config::{InvalidConfig, invalid};

/// A chain of certificates and the key of its first, both PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CertificateFiles {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl CertificateFiles {
    /// Those that `section` names; none or both.
    pub(super) fn of(
        section: &str,
        certificate: Option<&PathBuf>,
        key: Option<&PathBuf>,
    ) -> Result<Option<Self>, InvalidConfig> {
        let (of_certificate, of_key) =
            (format!("{section}.certificate"), format!("{section}.certificate_key"));
        match (certificate, key) {
            (Some(certificate), Some(key)) => {
                Ok(Some(Self { certificate: certificate.clone(), key: key.clone() }))
            }
            (None, None) => Ok(None),
            (Some(_), None) => Err(invalid(&of_key, &format!("is required with {of_certificate}"))),
            (None, Some(_)) => Err(invalid(&of_certificate, &format!("is required with {of_key}"))),
        }
    }
}
