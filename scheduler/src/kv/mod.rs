//! The KV pool and its host tier as numbers: who holds which block, and which prefix lies where. The memory
//! itself is the engine's; nothing here knows tensors.

pub mod ledger;
mod lru;
pub mod prefix;
mod tier;

pub use ledger::Ledger;
pub(crate) use prefix::SeenTokens;
pub use prefix::{BlockKey, BlockPlace, Hasher, PublicationId};
pub use tier::TierStats;
