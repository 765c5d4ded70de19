//! The parts of policy `ours`, each of which can be switched off to see what it gives.

use base::TokenCount;
use serde::{Deserialize, Serialize};

/// How prompts and decodes share steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Steps {
    /// Mixed where the cost model says that mixing saves time, else two-phase.
    #[default]
    Adaptive,
    /// Everything that runs decodes in every step, prompts ride along.
    Mixed,
    /// A step prefills or decodes.
    TwoPhase,
}

/// Settings of policy `ours`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OursConfig {
    /// How prompts and decodes share steps.
    pub steps: Steps,
    /// Key by the work a row adds to a shared batch; off: by the time the relQuery would take alone
    /// (RelServe, Eq. 10).
    pub marginal_key: bool,
    /// Expect output lengths as finished rows had them; off: expect every row to reach its limit.
    pub learned_lengths: bool,
    /// Count prompt tokens that an earlier row of the relQuery supplies as cached; off: sample the
    /// cache as it is (RelServe, Eq. 11).
    pub exact_sharing: bool,
    /// Take rows with equal beginnings one after the other; off: as submitted.
    pub grouped_rows: bool,
    /// Weight of what waiting relQueries gain by a row that joins the batch, against what relQueries
    /// ahead of it lose; absent: rows join as long as they fit.
    pub gain: Option<u32>,
    /// How much a ns of waiting counts against a ns of work, in thousandths; 0: not at all.
    pub age_permille: u32,
    /// Every so many steps the relQuery that arrived first goes first; absent: never.
    pub oldest_every: Option<u32>,
    /// Two-phase: fewest prompt tokens worth a prefill step while memory is what limits it.
    pub prefill_tokens_min: TokenCount,
}

impl Default for OursConfig {
    fn default() -> Self {
        Self {
            steps: Steps::default(),
            marginal_key: true,
            learned_lengths: true,
            exact_sharing: true,
            grouped_rows: true,
            gain: Some(16),
            age_permille: 20,
            oldest_every: None,
            prefill_tokens_min: TokenCount(1_000),
        }
    }
}
