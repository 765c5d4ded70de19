//! What the list of replicas and the live view tell alike of one: what its KV memory holds, and what its rows cost.

use scheduler::CostModel;
use serde::Serialize;
use serving::replicas::ReplicaView;

/// Tokens that a replica's KV memory holds, and how that is known: `configured` or `reported`.
#[derive(Debug, Serialize)]
pub struct ReplicaKv {
    tokens: u64,
    source: &'static str,
}

impl ReplicaKv {
    /// Where it is known.
    pub fn of(replica: &ReplicaView) -> Option<Self> {
        replica.kv().map(|(tokens, source)| Self { tokens: tokens.0, source: source.name() })
    }
}

/// What a replica's rows cost, as the fleet fitted it to their times. A row takes `decode_ns` for each token of its
/// output, `decode_ns_per_sequence` more for each row there, and `prefill_ns_per_token` for each prompt token that the
/// replica is sent meanwhile.
#[derive(Debug, Serialize)]
pub struct ReplicaCost {
    decode_ns: u64,
    decode_ns_per_sequence: u64,
    prefill_ns_per_token: u64,
}

impl ReplicaCost {
    /// Once it is fitted.
    pub fn of(replica: &ReplicaView) -> Option<Self> {
        replica.cost.map(|CostModel { decode_base, decode_per_sequence, prefill_per_token, .. }| Self {
            decode_ns: decode_base.0,
            decode_ns_per_sequence: decode_per_sequence.0,
            prefill_ns_per_token: prefill_per_token.0,
        })
    }
}
