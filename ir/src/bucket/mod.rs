//! Local prefix bucketing (*Dynamic Prefix Bucketing at Scale*): rows of a stream, put so that those with a
//! common prefix leave together, without sorting the stream first.
//!
//! A bounded [`Buffer`] keeps rows in the order of their prompts. Neighbours with enough in common are in one
//! bucket, and the largest bucket leaves first. Rows come and go one by one: order and buckets are kept up as
//! they do, so nothing ever waits for a sort. This module must not know tokenizers, replicas, clocks or
//! threads.

mod buffer;
mod settings;
#[cfg(test)]
mod tests;

pub use buffer::{Bucket, Buffer};
pub use settings::{BucketSettings, SettingsError};
