//! Statements over small tables, with a model that answers from a function and counts what it is asked.
#![expect(clippy::unwrap_used, reason = "tests")]

#[path = "sql/calls.rs"]
mod calls;
#[path = "sql/changed.rs"]
mod changed;
#[path = "sql/common.rs"]
mod common;
#[path = "sql/confined.rs"]
mod confined;
#[path = "sql/created.rs"]
mod created;
#[path = "sql/defined.rs"]
mod defined;
#[path = "sql/embed.rs"]
mod embed;
#[path = "sql/files.rs"]
mod files;
#[path = "sql/outer.rs"]
mod outer;
#[path = "sql/partners.rs"]
mod partners;
#[path = "sql/placement.rs"]
mod placement;
#[path = "sql/plans.rs"]
mod plans;
#[path = "../../store/tests/support/mod.rs"]
mod postgres;
#[path = "sql/price.rs"]
mod price;
#[path = "sql/probabilities.rs"]
mod probabilities;
#[path = "sql/rank.rs"]
mod rank;
#[path = "sql/sembench.rs"]
mod sembench;
#[path = "sql/sources.rs"]
mod sources;
#[path = "sql/tenant.rs"]
mod tenant;
#[path = "sql/texts.rs"]
mod texts;
