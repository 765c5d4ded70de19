//! Executors beside or instead of the local engine: servers that speak the OpenAI API.
//!
//! How a row is asked ([`ask`], [`dialect`], [`text`]), what a reply means ([`reply`]), whether it is what was asked for ([`held`]), when a server is left alone
//! ([`breaker`]), and the fleet on the loop's thread. The queue and the choice of a server are `scheduler::fleet`'s.

pub mod ask;
pub mod breaker;
pub mod client;
pub mod dialect;
mod fleet;
pub mod held;
mod lane;
mod local;
pub mod reply;
mod start;
pub mod text;
mod unwell;
pub mod view;

pub use fleet::{Fleet, News};
pub use start::{Expressible, StartError, model, start};
pub use unwell::Unwell;
pub use view::ExecutorView;
