//! Services of tenants: what a request becomes, and what goes on after it. Must not know HTTP; `routes` calls
//! them.

pub(crate) mod audit;
pub mod batches;
pub mod calibration;
pub mod cell_budget;
mod client_loops;
pub mod constraints;
pub mod corpora;
pub mod embeddings;
pub mod encoded;
pub mod files;
pub mod held_claims;
pub mod idempotency;
pub mod key_claims;
pub mod known_cells;
pub mod limits;
pub mod lookup;
pub mod old_usage;
pub mod openai;
pub mod prepare;
pub mod priors;
pub mod query;
pub mod reload;
pub(crate) mod responses;
pub mod schemas;
pub mod sign_ins;
pub mod sql;
pub mod takes;
pub mod tenancy;
pub mod tickets;
pub(crate) mod tokenize;
mod tools;
pub mod upkeep;
pub mod upload_joins;
pub mod uploads;
pub mod usage_pages;
pub mod workbooks;
