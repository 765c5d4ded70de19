//! A client of HTTP servers, and what went wrong with a request in one line.

use std::sync::Once;
use std::time::Duration;

/// A client that gives a connection up after `connect_max`.
pub(crate) fn client(connect_max: Duration) -> reqwest::Result<reqwest::Client> {
    static PROVIDER: Once = Once::new();
    PROVIDER.call_once(|| {
        // Err: this process has one already, which will do.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
    reqwest::Client::builder().connect_timeout(connect_max).build()
}

/// An error with its causes, on one line.
pub(crate) fn cause(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
