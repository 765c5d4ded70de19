//! How it is known what replicas' KV memory holds, for `relserve config`, which asks none of them.

use super::{BackendConfig, ReplicaKind, ReplicaSettings};

impl BackendConfig<'_> {
    /// How it is known what each replica's KV memory holds, a line each; of those that DNS finds one for all.
    pub fn memory_of_replicas(&self) -> Vec<String> {
        let line = |replica: &ReplicaSettings| {
            let name = replica.name.as_deref().unwrap_or_default();
            format!("replica {name}: {}", memory(replica))
        };
        let mut lines: Vec<String> = self.named_replicas().iter().map(line).collect();
        if self.discovery.asks_dns() {
            lines.push(format!("each replica that DNS finds: {}", memory(&self.discovery.replica)));
        }
        lines
    }
}

fn memory(replica: &ReplicaSettings) -> String {
    match (replica.kind, replica.tokens_max, replica.dialect.kv_path()) {
        (_, Some(tokens), _) => format!("KV memory of {} tokens, as configured (tokens_max)", tokens.0),
        (ReplicaKind::Local, None, _) => "the engine keeps its own KV memory".to_owned(),
        (ReplicaKind::Openai, None, Some(path)) => {
            format!("KV memory as the server reports it (GET {path}); where it does not, rows_max alone counts")
        }
        (ReplicaKind::Openai, None, None) => {
            "KV memory is not known: no tokens_max, and servers of its dialect report none; rows_max alone counts"
                .to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use base::TokenCount;
    use scheduler::SchedulerConfig;
    use scheduler::fleet::FleetConfig;

    use super::*;
    use crate::config::{Dialect, DiscoveryConfig, ModelConfig};

    #[test]
    fn of_each_replica_it_is_said_whether_its_memory_is_configured_reported_or_not_known() {
        let of =
            |dialect| ReplicaSettings { url: Some("http://h".into()), dialect, ..ReplicaSettings::default() };
        let configured = ReplicaSettings { tokens_max: Some(TokenCount(9_000)), ..of(Dialect::Vllm) };
        let local = ReplicaSettings { kind: ReplicaKind::Local, ..ReplicaSettings::default() };
        let (model, discovery) = (
            ModelConfig::default(),
            DiscoveryConfig {
                dns: Some("vllm".into()),
                replica: ReplicaSettings { dialect: Dialect::LlamaCpp, ..ReplicaSettings::default() },
                ..DiscoveryConfig::default()
            },
        );
        let config = BackendConfig {
            model: model.settings(),
            engine: &engine::EngineConfig::default(),
            scheduler: &SchedulerConfig::default(),
            fleet: &FleetConfig::default(),
            replicas: &[configured, of(Dialect::Vllm), of(Dialect::Openai), local],
            discovery: &discovery,
            variable: |_| None,
            output_tokens_max: 1,
            is_further: false,
        };
        let lines = config.memory_of_replicas();
        let parts = [
            "0: KV memory of 9000 tokens",
            "1: KV memory as the server reports it (GET /metrics)",
            "2: KV memory is not known",
            "3: the engine keeps",
            "DNS finds: KV memory as the server reports it (GET /props)",
        ];
        assert_eq!(lines.len(), parts.len(), "{lines:?}");
        for (line, part) in lines.iter().zip(parts) {
            assert!(line.contains(part), "{line:?} lacks {part:?}");
        }
    }
}
