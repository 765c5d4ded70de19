//! What the loop last said of itself: published whole after each round, read by handlers and by `/metrics`.

use scheduler::{CostModel, Policy, Stats};

use crate::replicas::view::ReplicaView;

/// The scheduler's state, for `/v1/scheduler` and `/metrics`.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// The policy in force.
    pub policy: Policy,
    /// Counts.
    pub stats: Stats,
    /// The cost model as refitted so far.
    pub cost: CostModel,
    /// Whether that was measured here: of replicas nothing is known before they have answered some rows.
    pub is_measured: bool,
    /// The last decision, in words.
    pub decision: String,
    /// The replicas of a fleet.
    pub replicas: Vec<ReplicaView>,
}
