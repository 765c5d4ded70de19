//! The KV pool as numbers: who holds which block, and which prefix lies where. The memory itself is
//! the engine's; nothing here knows tensors.

pub mod ledger;
pub mod prefix;

pub use ledger::Ledger;
pub use prefix::{BlockKey, Hasher, Link};
