//! A replica of a fleet as it is shown.

use base::TokenCount;

use super::lease::LeaseView;
use super::source::ReplicaSource;

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
    /// What this gateway may use of it; none: all.
    pub lease: Option<LeaseView>,
    /// What went wrong last, and when (unix milliseconds).
    pub last_error: Option<(String, u64)>,
}
