//! What reaches the fleet from outside its thread.

use base::{RequestId, Time, TokenCount};
use scheduler::Event;
use scheduler::fleet::ReplicaId;
use tokio::sync::oneshot;

use super::lease::{LeaseGrant, LeaseReport};
use super::members::ReplicaMember;
use super::reply::Outcome;
use super::unhealthy::FoundHealth;

/// What replicas report, and operators wish.
#[derive(Debug)]
pub enum FleetMessage {
    /// What became of a request.
    Ended { request: RequestId, outcome: Outcome },
    /// A server says more of an answer that streams.
    Said { request: RequestId, text: String },
    /// What a look at a server found.
    Looked {
        /// The server.
        replica: ReplicaId,
        /// Well, or why not.
        result: FoundHealth,
    },
    /// What a server says of its KV memory: the tokens that it holds, or nothing.
    Reported { replica: ReplicaId, kv_tokens: Option<TokenCount> },
    /// Events of the local engine.
    Events {
        /// The engine.
        replica: ReplicaId,
        /// What happened.
        events: Vec<Event>,
    },
    /// Asks what is held of servers that other gateways use too, and what there is to do for them.
    LeaseDemand(oneshot::Sender<Vec<LeaseReport>>),
    /// Brings what may be used of them.
    Leased {
        grants: Vec<LeaseGrant>,
        /// For how long.
        until: Time,
    },
    /// The replicas that there should be.
    Members(Vec<ReplicaMember>),
    /// An operator takes the rows of a replica back that leaves.
    Evict { name: String },
}
