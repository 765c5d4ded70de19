//! Reordering rows and the fields of each row, so that neighbours share long prefixes (*Optimizing LLM
//! Queries in Relational Data Analytics Workloads*; errata in `docs/REORDERING.md`).
//!
//! Unlike the rules of [`mod@crate::rewrite`], an order of fields changes prompts: it is for callers that
//! say that their fields commute. The solvers see numbers only ([`FieldTable`]) and answer with
//! permutations ([`Reordering`]); they must not know texts, tokenizers, prompts, clocks or threads.

mod best;
mod dependency;
mod fixed;
mod ggr;
mod ophr;
mod order;
mod partition;
mod search;
mod subtable;
mod table;
#[cfg(test)]
mod tests;

pub use best::{BestOrder, Method, best_order};
pub use dependency::{Dependencies, Dependency};
pub use fixed::{fixed_order, sort_rows};
pub use ggr::{EarlyStop, ggr};
pub use ophr::{GaveUp, ophr};
pub use order::{Reordering, Worth, worth};
pub use search::{FixedOrder, FixedSearch, best_fixed_order};
pub use table::{Column, FieldTable, TableError};
