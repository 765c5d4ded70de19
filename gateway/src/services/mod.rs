//! Services of tenants: what a request becomes, and what goes on after it. Must not know HTTP; `routes` calls
//! them.

pub mod batches;
mod columns;
pub mod constraints;
pub mod corpora;
pub mod files;
pub mod idempotency;
pub mod lookup;
pub mod openai;
pub mod prepare;
pub mod query;
pub mod schemas;
pub mod tickets;
pub mod upkeep;
