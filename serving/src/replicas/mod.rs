//! Replicas beside or instead of the local engine: servers that speak the OpenAI API.
//!
//! How a row is asked ([`request`], [`dialect`], [`text`]), what a reply means ([`reply`], [`logprobs`],
//! [`prompt_scores`]), whether it is what was asked for ([`constraint_check`]), when a server is left alone
//! ([`breaker`]), what it says of its memory ([`kv_report`]), what other gateways leave of it ([`lease`]), which
//! servers there are ([`members`]) and how they are found, and the fleet on the loop's thread.
//! The queue and the choice of a server are `scheduler::fleet`'s.

mod adjusted;
pub mod breaker;
pub mod client;
pub mod constraint_check;
pub mod dialect;
mod discovery;
mod factory;
mod fleet;
mod kv_report;
mod lease;
mod local;
pub mod logprobs;
pub mod members;
mod membership;
mod message;
mod names;
pub mod prompt_scores;
mod replica;
pub mod reply;
pub mod request;
mod retry_after;
mod source;
mod start;
mod start_error;
mod stream;
pub mod text;
mod unhealthy;
mod used;
pub mod view;

pub use fleet::Fleet;
pub(crate) use fleet::{RowLikelihood, RowPrices};
pub use lease::{LeaseGrant, LeaseReport, LeaseSignal, LeaseView};
pub use members::{ReplicaMembers, SourceStatus};
pub use message::FleetMessage;
pub use names::ReplicaNames;
pub use source::ReplicaSource;
pub use start::{ReplicaConstraints, StartedFleet, model, start};
pub use start_error::FleetStartError;
pub use unhealthy::{FoundHealth, Unhealthy};
pub(crate) use used::RowUse;
pub use view::{KvSource, ReplicaView};
