//! Replicas that DNS names: the addresses of a headless service, or the SRV records of a name.
//!
//! Asked again when an answer's time to live has passed, within bounds. An answer that fails changes nothing;
//! one that is empty is believed when it comes a second time, so that one bad answer cannot empty a fleet.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use base::Millis;
use futures_util::future::try_join_all;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::{RData, Record, RecordType};
use hickory_resolver::{Resolver, TokioResolver};

use super::Findings;
use crate::config::DiscoveryConfig;

/// Empty answers, one after another, of which the last is believed.
const EMPTY_ANSWERS: u32 = 2;
/// Time to live of an answer without records, whose own is nobody's business here.
const NO_RECORDS: Duration = Duration::ZERO;

/// Asks DNS.
pub(in crate::replicas) struct DnsReader {
    resolver: TokioResolver,
    settings: DiscoveryConfig,
}

/// What an answer says: addresses in order, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
struct DnsAnswer {
    addresses: Vec<SocketAddr>,
    ttl: Duration,
}

/// What is to be done about an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
enum DnsVerdict {
    /// These are the replicas.
    Take(Vec<SocketAddr>),
    /// It is empty, which is not believed yet.
    Doubt,
    Fail(String),
}

/// DnsAnswers one after another.
#[derive(Debug)]
struct DnsAnswers {
    bounds: (Millis, Millis),
    empty: u32,
}

impl DnsAnswers {
    /// What to do about an answer, and how long until the next.
    fn judge(&mut self, found: Result<DnsAnswer, String>) -> (DnsVerdict, Duration) {
        let (least, most) = (duration(self.bounds.0), duration(self.bounds.1));
        match found {
            Err(reason) => (DnsVerdict::Fail(reason), least),
            Ok(answer) if answer.addresses.is_empty() => {
                self.empty += 1;
                let verdict =
                    if self.empty < EMPTY_ANSWERS { DnsVerdict::Doubt } else { DnsVerdict::Take(Vec::new()) };
                (verdict, least)
            }
            Ok(answer) => {
                self.empty = 0;
                (DnsVerdict::Take(answer.addresses), answer.ttl.clamp(least, most))
            }
        }
    }
}

fn duration(span: Millis) -> Duration {
    Duration::from_millis(span.0)
}

impl DnsReader {
    /// Asks as these settings say; nothing is asked yet.
    pub(in crate::replicas) fn new(settings: &DiscoveryConfig) -> Result<Self, String> {
        let builder = if settings.name_servers.is_empty() {
            let reason = |error| format!("the system's settings of DNS cannot be read: {error}");
            TokioResolver::builder_tokio().map_err(reason)?
        } else {
            let server = |address: &SocketAddr| {
                let at = |mut connection: ConnectionConfig| {
                    connection.port = address.port();
                    connection
                };
                let connections = vec![at(ConnectionConfig::udp()), at(ConnectionConfig::tcp())];
                NameServerConfig::new(address.ip(), true, connections)
            };
            let servers = settings.name_servers.iter().map(server).collect();
            let config = ResolverConfig::from_name_servers(servers);
            Resolver::builder_with_config(config, TokioRuntimeProvider::default())
        };
        let resolver = builder.build().map_err(|error| error.to_string())?;
        Ok(Self { resolver, settings: settings.clone() })
    }

    /// Records of a name; none where there are none. Else the time to live is the least of theirs.
    async fn records(&self, name: &str, kind: RecordType) -> Result<(Vec<Record>, Duration), NetError> {
        match self.resolver.lookup(name, kind).await {
            Ok(lookup) => {
                // Names that lead to the records live no longer than these.
                let ttl = lookup.answers().iter().map(|record| record.ttl).min();
                let ttl = ttl.map_or(NO_RECORDS, |seconds| Duration::from_secs(seconds.into()));
                let records = lookup.answers().iter().filter(|record| record.record_type() == kind);
                Ok((records.cloned().collect(), ttl))
            }
            Err(error) if error.is_no_records_found() => Ok((Vec::new(), NO_RECORDS)),
            Err(error) => Err(error),
        }
    }

    /// The addresses of a host, at a port: those of IPv4, or where it has none, of IPv6. A server with both
    /// is one server.
    async fn host(&self, name: &str, port: u16) -> Result<DnsAnswer, String> {
        for kind in [RecordType::A, RecordType::AAAA] {
            let (records, ttl) = self.records(name, kind).await.map_err(|error| failed(name, &error))?;
            let address = |record: &Record| match &record.data {
                RData::A(address) => Some(IpAddr::from(address.0)),
                RData::AAAA(address) => Some(IpAddr::from(address.0)),
                _ => None,
            };
            let found = records.iter().filter_map(address).map(|address| SocketAddr::from((address, port)));
            let addresses: Vec<SocketAddr> = found.collect();
            if !addresses.is_empty() {
                return Ok(DnsAnswer { addresses, ttl });
            }
        }
        Ok(DnsAnswer { addresses: Vec::new(), ttl: NO_RECORDS })
    }

    /// The hosts and ports that SRV records name; their priorities and weights are the router's business.
    async fn services(&self, name: &str) -> Result<DnsAnswer, String> {
        let (records, ttl) =
            self.records(name, RecordType::SRV).await.map_err(|error| failed(name, &error))?;
        let target = |record: &Record| match &record.data {
            RData::SRV(service) => Some((service.target.to_string(), service.port)),
            _ => None,
        };
        let targets: Vec<(String, u16)> = records.iter().filter_map(target).collect();
        let hosts = targets.iter().map(|(host, port)| self.host(host, *port));
        let hosts = try_join_all(hosts).await?;
        let known = hosts.iter().filter(|host| !host.addresses.is_empty());
        let ttl = known.map(|host| host.ttl).fold(ttl, Duration::min);
        Ok(DnsAnswer { addresses: hosts.into_iter().flat_map(|host| host.addresses).collect(), ttl })
    }

    /// Asks once.
    async fn ask(&self) -> Result<DnsAnswer, String> {
        // How long an answer is true is decided here.
        self.resolver.clear_cache();
        let mut answer = match (&self.settings.dns, &self.settings.srv) {
            (Some(name), _) => self.host(name, self.settings.port).await?,
            (None, Some(name)) => self.services(name).await?,
            (None, None) => DnsAnswer { addresses: Vec::new(), ttl: NO_RECORDS },
        };
        answer.addresses.sort_unstable();
        answer.addresses.dedup();
        Ok(answer)
    }
}

fn failed(name: &str, error: &NetError) -> String {
    format!("DNS does not say what `{name}` is: {error}")
}

/// Asks for as long as the fleet lives.
pub(in crate::replicas) async fn follow(reader: DnsReader, findings: Findings) {
    let settings = &reader.settings;
    let mut answers = DnsAnswers { bounds: (settings.ttl_ms_min, settings.ttl_ms_max), empty: 0 };
    let mut last: Option<Vec<SocketAddr>> = None;
    loop {
        let (verdict, pause) = answers.judge(reader.ask().await);
        match verdict {
            DnsVerdict::Take(addresses) => {
                let found = addresses.iter().map(|address| settings.found(*address)).collect();
                if findings.tell(Ok(found)) && last.as_ref() != Some(&addresses) {
                    tracing::info!(replicas = addresses.len(), "DNS names other replicas");
                    last = Some(addresses);
                }
            }
            DnsVerdict::Doubt => {
                tracing::warn!("DNS names no replica; if it says so again, they all leave");
            }
            DnsVerdict::Fail(reason) => {
                findings.tell(Err(reason));
            }
        }
        tokio::time::sleep(pause).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(ports: &[u16], seconds: u64) -> Result<DnsAnswer, String> {
        let addresses = ports.iter().map(|port| SocketAddr::from(([10, 0, 0, 1], *port))).collect();
        Ok(DnsAnswer { addresses, ttl: Duration::from_secs(seconds) })
    }

    #[test]
    fn an_answer_is_true_for_its_time_to_live_within_bounds_and_an_empty_one_when_it_comes_twice() {
        let mut answers = DnsAnswers { bounds: (Millis(1_000), Millis(30_000)), empty: 0 };
        let empty = || answer(&[], 60);
        let fails = || Err("SERVFAIL".to_owned());
        let steps = [
            (answer(&[1, 2], 5), Some(2), 5),
            (answer(&[1], 0), Some(1), 1),
            (answer(&[1], 3_600), Some(1), 30),
            (empty(), None, 1),
            (answer(&[1], 5), Some(1), 5),
            (empty(), None, 1),
            (fails(), None, 1),
            (empty(), Some(0), 1),
            (empty(), Some(0), 1),
        ];
        for (number, (found, taken, seconds)) in steps.into_iter().enumerate() {
            let (verdict, pause) = answers.judge(found);
            let count = match &verdict {
                DnsVerdict::Take(addresses) => Some(addresses.len()),
                DnsVerdict::Doubt | DnsVerdict::Fail(_) => None,
            };
            assert_eq!((count, pause.as_secs()), (taken, seconds), "step {number}: {verdict:?}");
        }
    }
}
