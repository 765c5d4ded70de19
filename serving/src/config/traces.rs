//! Where traces are sent, and how many.

use base::Millis;
use serde::{Deserialize, Serialize};

use super::{InvalidConfig, invalid};

/// Traces of requests and relQueries, sent over OTLP (protobuf over HTTP). `OTEL_EXPORTER_OTLP_ENDPOINT` and the other
/// variables of OpenTelemetry's exporters hold where a key is not set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TracesConfig {
    /// The collector's address, `http://HOST:4318`; `/v1/traces` is put behind it, unless it ends so. Without it, and without
    /// `OTEL_EXPORTER_OTLP_ENDPOINT` or `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`, nothing is recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// What the server is called in traces; by default `OTEL_SERVICE_NAME`, or `relserve`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_name: Option<String>,
    /// How many of all traces that begin here are recorded, from 0 to 1. Of a request with `traceparent` the caller
    /// has decided.
    pub sample_ratio: f64,
    /// Requests and relQueries that wait to be sent; what ends beyond them is dropped and counted.
    pub queue_max: usize,
    /// Spans of one message to the collector.
    pub batch_spans_max: usize,
    /// Time after which what has ended is sent.
    pub batch_ms: Millis,
}

impl Default for TracesConfig {
    fn default() -> Self {
        Self {
            endpoint: None,
            service_name: None,
            sample_ratio: 1.0,
            queue_max: 2_048,
            batch_spans_max: 512,
            batch_ms: Millis(2_000),
        }
    }
}

impl TracesConfig {
    /// Refuses what could not work, and names the field.
    pub fn validate(&self) -> Result<(), InvalidConfig> {
        let positive: &[(&str, u64)] = &[
            ("traces.queue_max", self.queue_max as u64),
            ("traces.batch_spans_max", self.batch_spans_max as u64),
            ("traces.batch_ms", self.batch_ms.0),
        ];
        if let Some((field, _)) = positive.iter().find(|(_, value)| *value == 0) {
            return Err(invalid(field, "must be positive"));
        }
        if !(0.0..=1.0).contains(&self.sample_ratio) {
            return Err(invalid("traces.sample_ratio", "must be from 0 to 1"));
        }
        let is_address = |url: &String| ["http://", "https://"].iter().any(|scheme| url.starts_with(scheme));
        match &self.endpoint {
            Some(url) if !is_address(url) => {
                Err(invalid("traces.endpoint", "must start with http:// or https://"))
            }
            _ => Ok(()),
        }
    }

    /// Takes what the environment says where nothing is set, by the variables of OpenTelemetry.
    pub fn take_environment(&mut self, variable: super::Variable<'_>) {
        let set = |name: &str| variable(name).filter(|value| !value.trim().is_empty());
        let is_off = set("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"))
            || set("OTEL_TRACES_EXPORTER").is_some_and(|value| value == "none");
        let named = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
        if self.endpoint.is_none() && !is_off {
            self.endpoint = named.iter().find_map(|name| set(name));
        }
        self.service_name = self.service_name.take().or_else(|| set("OTEL_SERVICE_NAME"));
    }

    /// Whether anything is recorded.
    pub fn is_on(&self) -> bool {
        self.endpoint.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(variables: &[(&str, &str)], endpoint: Option<&str>) -> TracesConfig {
        let mut config = TracesConfig { endpoint: endpoint.map(Into::into), ..TracesConfig::default() };
        config.take_environment(&|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        });
        config
    }

    #[test]
    fn the_environment_turns_traces_on_and_off() {
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c:4318");
        assert!(!from(&[], None).is_on());
        assert!(from(&[endpoint], None).is_on());
        assert!(!from(&[endpoint, ("OTEL_SDK_DISABLED", "true")], None).is_on());
        assert!(!from(&[endpoint, ("OTEL_TRACES_EXPORTER", "none")], None).is_on());
        let own = from(&[endpoint, ("OTEL_SERVICE_NAME", "cells")], Some("http://mine:4318"));
        assert_eq!(own.endpoint.as_deref(), Some("http://mine:4318"), "what the file says holds");
        assert_eq!(own.service_name.as_deref(), Some("cells"));
    }

    #[test]
    fn what_could_not_work_is_refused_by_name() {
        let refused = |config: TracesConfig| config.validate().expect_err("it cannot work").field;
        let usual = TracesConfig::default;
        assert_eq!(usual().validate(), Ok(()));
        assert_eq!(refused(TracesConfig { queue_max: 0, ..usual() }), "traces.queue_max");
        assert_eq!(refused(TracesConfig { sample_ratio: 1.5, ..usual() }), "traces.sample_ratio");
        assert_eq!(
            refused(TracesConfig { endpoint: Some("collector".into()), ..usual() }),
            "traces.endpoint"
        );
    }
}
