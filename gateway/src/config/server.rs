//! The listener and its clients' patience.

use std::net::SocketAddr;
use std::path::PathBuf;

use base::Millis;
use serde::{Deserialize, Serialize};
use serving::config::{InvalidConfig, invalid};

use super::certificate::CertificateFiles;

/// The listener and its clients' patience.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ServerConfig {
    /// Address and port; loopback by default.
    pub listen: SocketAddr,
    /// Address and port on which `/healthz` (`/health`), `/readyz`, `/ping` and `/metrics` are answered too, by a thread
    /// of their own: no number of other connections keeps them waiting. None by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health_listen: Option<SocketAddr>,
    /// Path of a Unix socket on which the API is answered too, in clear text; this process's user and group may
    /// connect. None by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unix_socket: Option<PathBuf>,
    /// The certificates of TLS (PEM), the server's own first: HTTP is then spoken over TLS alone, in versions 1.1 and
    /// 2, on `health_listen` too. SIGHUP has both files read again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// The key of the certificate (PEM).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate_key: Option<PathBuf>,
    /// Where a line of JSON is written for each request: `stdout`, `stderr`, or the path of a file, which SIGHUP has
    /// opened again. None by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access_log: Option<PathBuf>,
    /// Threads that serve connections.
    pub workers: usize,
    /// Open connections per worker; more wait in the kernel's backlog. Where nearly all places are taken, connections
    /// that are idle and have shown no valid key are closed, the oldest first.
    pub connections_max: usize,
    /// Time for a request's head to arrive; slower clients get a 408.
    pub header_ms_max: Millis,
    /// Time for a request's body to arrive; slower clients get a 408.
    pub body_ms_max: Millis,
    /// Where `auth.mode` is `none`: names by which the server may be asked, beside `localhost` and addresses. Any
    /// other could be a foreign page's, made to point here.
    pub hosts: Vec<String>,
    /// Web origins whose pages may call this server (`*` for all); add-ins that run in a browser need it.
    pub cors_origins: Vec<String>,
    /// Idle time after which a kept-alive connection closes.
    pub idle_ms_max: Millis,
    /// Time for which bytes wait for a client that takes none, before it is dropped.
    pub write_ms_max: Millis,
    /// Silence in an event stream after which a comment is sent, so that proxies keep it open.
    pub keep_alive_ms: Millis,
    /// After SIGTERM, time for running relQueries to finish; the rest get an error.
    pub drain_ms_max: Millis,
    /// `/healthz` fails when there is work and no step has finished for this long.
    pub stuck_ms_max: Millis,
    /// `/readyz` stays a 200 while the store is away or takes no writes. Without it a balancer sends nothing then.
    pub ready_without_store: bool,
    /// Whether `/metrics` shows series of single tenants and replicas to everybody. By default it shows them to an
    /// operator's key, and on `health_listen`.
    pub metrics_for_all: bool,
    /// Tenants that have series of their own in `/metrics`; others share one.
    pub metric_tenants_max: usize,
    /// Time without a running relQuery or anything else after which a tenant's series leave `/metrics`.
    pub metric_tenant_idle_ms_max: Millis,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            health_listen: None,
            unix_socket: None,
            certificate: None,
            certificate_key: None,
            access_log: None,
            workers: 2,
            connections_max: 10_000,
            header_ms_max: Millis(10_000),
            body_ms_max: Millis(60_000),
            hosts: Vec::new(),
            cors_origins: Vec::new(),
            idle_ms_max: Millis(75_000),
            write_ms_max: Millis(60_000),
            keep_alive_ms: Millis(15_000),
            drain_ms_max: Millis(30_000),
            stuck_ms_max: Millis(30_000),
            ready_without_store: false,
            metrics_for_all: false,
            metric_tenants_max: 100,
            metric_tenant_idle_ms_max: Millis(15 * 60_000),
        }
    }
}

impl ServerConfig {
    /// Refuses what could not work, and names the field.
    pub(super) fn validate(&self) -> Result<(), InvalidConfig> {
        let positive: &[(&str, u64)] = &[
            ("server.workers", self.workers as u64),
            ("server.connections_max", self.connections_max as u64),
            ("server.header_ms_max", self.header_ms_max.0),
            ("server.body_ms_max", self.body_ms_max.0),
            ("server.keep_alive_ms", self.keep_alive_ms.0),
            ("server.stuck_ms_max", self.stuck_ms_max.0),
            ("server.metric_tenant_idle_ms_max", self.metric_tenant_idle_ms_max.0),
        ];
        for (field, value) in positive {
            if *value == 0 {
                return Err(invalid(field, "must be positive"));
            }
        }
        // The HTTP library reads its clock twice a second: a shorter time would refuse quick clients too.
        if self.header_ms_max.0 < 1_000 {
            return Err(invalid("server.header_ms_max", "must be at least 1000"));
        }
        self.certificate_files().map(|_| ())
    }

    /// The files of TLS.
    pub(crate) fn certificate_files(&self) -> Result<Option<CertificateFiles>, InvalidConfig> {
        CertificateFiles::of("server", self.certificate.as_ref(), self.certificate_key.as_ref())
    }

    /// How the API's addresses begin.
    pub fn scheme(&self) -> &'static str {
        if self.certificate.is_some() { "https" } else { "http" }
    }
}
