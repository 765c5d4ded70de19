//! JSON shapes of the public APIs, one file each. They convert to inner types by hand, so that either
//! side changes alone.

use serving::model::Model;
use store::UnixMillis;

use crate::config::{LimitsConfig, UnknownFields};
use crate::services::constraints::TenantConstraints;

pub mod admin;
pub mod anthropic;
pub mod batches;
pub mod budget;
pub mod cell_details;
pub mod cell_prompts;
pub mod cells;
pub mod constraint;
pub mod corpora;
pub mod embeddings;
pub mod files;
mod joiners;
pub mod keys;
pub mod known_models;
pub mod label;
pub mod live;
pub mod openai;
pub mod pml;
mod public_ids;
pub mod query;
pub mod relquery;
pub mod replica;
pub mod sampling;
pub mod sql;
pub mod uploads;
pub mod usage;
pub mod usage_cursor;
mod variations;
pub mod what_if;
pub mod workbooks;

/// What a request is read against.
#[derive(Clone, Copy)]
pub struct ValidationContext<'a> {
    /// What it may ask.
    pub limits: &'a LimitsConfig,
    /// What will run it.
    pub model: &'a Model,
    /// Compiles its constraints, on its tenant's account.
    pub constraints: TenantConstraints<'a>,
    /// What becomes of fields of OpenAI's routes that those do not know.
    pub unknown_fields: UnknownFields,
}

/// Whether a count is left out of a reply.
pub(crate) fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// An instant as clients read it: whole seconds since 1970.
pub(crate) fn seconds(instant: UnixMillis) -> u64 {
    instant.0 / 1_000
}
