//! What an output must look like: plain data. The engine compiles it to token masks; nothing here knows how.

use std::any::Any;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A form that the whole output of a row has.
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

/// What a constraint was compiled to: opaque here, known to who compiled it. Rows carry it, so that it lives
/// as long as they do and no step compiles.
#[derive(Clone, Default)]
pub struct Compiled(Option<Arc<dyn Any + Send + Sync>>);

impl Compiled {
    /// A compiled form.
    pub fn new(form: impl Any + Send + Sync) -> Self {
        Self(Some(Arc::new(form)))
    }

    /// The form, where it is there and of this type.
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.0.as_deref()?.downcast_ref()
    }

    /// Whether anybody else holds it.
    pub fn is_shared(&self) -> bool {
        self.0.as_ref().is_some_and(|form| Arc::strong_count(form) > 1)
    }
}

/// Says nothing of a generation that its constraint does not say.
impl PartialEq for Compiled {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl std::fmt::Debug for Compiled {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(if self.0.is_some() { "Compiled" } else { "not compiled" })
    }
}

/// Who can compile constraints on the outputs of a model, ahead of any row.
pub trait ConstraintCompiler: Send + Sync {
    /// Compiles the constraint, or says why that cannot be done. Bounded in time and size, but not quick:
    /// call it off the loop.
    fn compile(&self, constraint: &Constraint) -> Result<Compiled, ConstraintError>;
}
