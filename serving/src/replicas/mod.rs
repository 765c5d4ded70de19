//! Replicas beside or instead of the local engine: servers that speak the OpenAI API.
//!
//! How a row is asked ([`request`], [`dialect`], [`text`]), what a reply means ([`reply`]), whether it is what
//! was asked for ([`constraint_check`]), when a server is left alone ([`breaker`]), and the fleet on the loop's
//! thread.
//! The queue and the choice of a server are `scheduler::fleet`'s.

pub mod breaker;
pub mod client;
pub mod constraint_check;
pub mod dialect;
mod fleet;
mod local;
pub mod logprobs;
mod replica;
pub mod reply;
pub mod request;
mod start;
mod stream;
pub mod text;
mod unhealthy;
pub mod view;

pub(crate) use fleet::RowLogprobs;
pub use fleet::{Fleet, ReplicaEvent};
pub use start::{ReplicaConstraints, StartError, model, start};
pub use unhealthy::Unhealthy;
pub use view::ReplicaView;
