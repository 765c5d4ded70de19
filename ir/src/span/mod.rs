//! Span queries: expression trees of model calls with their order made explicit (Span Queries, section 4).
//!
//! [`SpanQuery`] is the tree as its JSON says it, [`rewrite()`] gives an equal tree with the sugar taken out
//! and outputs put where their keys and values already lie (section 5.1), [`Plan`] the calls that it takes
//! and what each one reads, and [`Plan::assemble`] the tokens of a call with the boundaries of its spans as
//! metadata (section 5.2, without its parentheses, padding and cropping). Must not know who runs the calls,
//! nor what lies in which block.

mod assemble;
mod cluster;
mod error;
mod explain;
mod items;
mod params;
mod path;
mod plain;
mod plan;
mod query;
mod read;
mod rules;
#[cfg(test)]
mod tests;

pub use assemble::{Output, Outputs};
pub use cluster::cluster_bulk;
pub use error::SpanError;
pub use explain::{explain, explain_rules};
pub use path::Place;
pub use plain::lower_plain;
pub use plan::{Call, CallId, Item, Plan, SpanMember, SpanPart};
pub use query::{Generate, Params, Retrieval, SpanQuery};
pub use read::SpanLimits;
pub use rules::{Found, RULES, Rewriting, Rule, rewrite};
