//! What an output must look like: plain data. The engine compiles it to token masks; nothing here knows how.

use serde::{Deserialize, Serialize};

/// A form that the whole output of a row has. Equal constraints share what they are compiled to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Constraint {
    /// One of these texts, to the letter. Never empty, and no text is.
    Choice(Vec<String>),
    /// A decimal integer of this range, both ends included.
    Integer {
        /// Least.
        low: i64,
        /// Greatest; not below `low`.
        high: i64,
    },
    /// Text that a regular expression matches from its first to its last character.
    Regex(String),
    /// JSON that fits this JSON Schema, itself JSON text.
    JsonSchema(String),
}

/// A constraint that cannot be kept to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConstraintError(pub String);

/// Who can say, ahead of any row, whether outputs of a model can be held to a constraint.
pub trait ConstraintCheck: Send + Sync {
    /// Compiles the constraint, or says why that cannot be done. Bounded in time and size, but not quick:
    /// call it off the loop.
    fn check(&self, constraint: &Constraint) -> Result<(), ConstraintError>;
}
