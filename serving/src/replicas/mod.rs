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

use base::TokenCount;
pub use fleet::{Fleet, News};
pub use lane::Unwell;
pub use start::{Expressible, StartError, model, start};

/// An executor, as it is shown.
#[derive(Clone, Debug)]
pub struct ExecutorView {
    /// Its name.
    pub name: String,
    /// Whether it is the engine of this process.
    pub is_local: bool,
    /// Whether it gets rows.
    pub is_up: bool,
    /// In a word: up, trying, paused, draining or down.
    pub state: &'static str,
    /// Its breaker: closed, open or half_open.
    pub breaker: &'static str,
    /// Rows in flight.
    pub rows: u32,
    /// Most of them.
    pub rows_max: u32,
    /// Their unfinished tokens.
    pub tokens: TokenCount,
    /// What went wrong last, and when (unix milliseconds).
    pub last_error: Option<(String, u64)>,
}
