//! A replica of a fleet as it is shown.

use base::TokenCount;
use scheduler::CostModel;
use scheduler::fleet::PromptScale;

use super::lease::LeaseView;
use super::source::ReplicaSource;
use crate::gateway_ids::GatewayPaths;

/// A replica, as it is shown.
#[derive(Clone, Debug)]
pub struct ReplicaView {
    pub name: String,
    /// Who named it.
    pub source: ReplicaSource,
    /// Whether it is the engine of this process.
    pub is_local: bool,
    /// Whether it gets rows.
    pub is_up: bool,
    /// In a word: up, trying, paused, draining, leaving or down.
    pub state: &'static str,
    /// Its breaker: closed, open or half_open.
    pub breaker: &'static str,
    /// Rows in flight.
    pub rows: u32,
    /// Most of them.
    pub rows_max: u32,
    /// Their unfinished tokens.
    pub tokens: TokenCount,
    /// Most of those; none: no limit but rows.
    pub tokens_max: Option<TokenCount>,
    /// Tokens that its KV memory holds, as it says itself.
    pub kv_reported: Option<TokenCount>,
    /// How its prompts are counted here and there.
    pub prompt_scale: PromptScale,
    /// What its rows cost, fitted to their times; none before it has answered enough of them.
    pub cost: Option<CostModel>,
    /// What this gateway may use of it; none: all.
    pub lease: Option<LeaseView>,
    /// The gateways that it leads to, itself among them, where it is one.
    pub gateways: GatewayPaths,
    /// What went wrong last, and when (unix milliseconds).
    pub last_error: Option<(String, u64)>,
}

/// How it is known what a replica's KV memory holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvSource {
    /// By its `tokens_max`.
    Configured,
    /// By what it says itself.
    Reported,
}

impl KvSource {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Configured => "configured",
            Self::Reported => "reported",
        }
    }
}

impl ReplicaView {
    /// Tokens that its KV memory holds, and how that is known, if it is: what is configured counts before what it says.
    pub fn kv(&self) -> Option<(TokenCount, KvSource)> {
        let configured = self.tokens_max.map(|tokens| (tokens, KvSource::Configured));
        configured.or(self.kv_reported.map(|tokens| (tokens, KvSource::Reported)))
    }
}
