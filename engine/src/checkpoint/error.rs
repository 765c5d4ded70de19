//! Why a checkpoint cannot be used, naming the file and the field or tensor at fault.

use std::path::PathBuf;

/// A checkpoint that cannot be read, or that this engine does not support.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The file system refused.
    #[error("cannot read {}: {source}", file.display())]
    Io {
        file: PathBuf,
        /// What it said.
        source: std::io::Error,
    },
    /// A file does not hold what its name promises.
    #[error("{file}: {reason}")]
    Malformed {
        file: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A field has a value that is wrong or not supported.
    #[error("{file}: field `{field}`: {reason}")]
    Field {
        file: String,
        /// The field, as a dotted path.
        field: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The weights lack a tensor that the configuration asks for.
    #[error("the weights have no tensor `{name}`")]
    MissingTensor { name: String },
    /// A tensor's shape is not the one that the configuration asks for.
    #[error("tensor `{name}` has shape {found:?}, the configuration asks for {expected:?}")]
    WrongShape {
        name: String,
        /// The shape in the file.
        found: Vec<usize>,
        /// The shape that config.json implies.
        expected: Vec<usize>,
    },
}

impl CheckpointError {
    /// A file that does not hold what its name promises.
    pub fn malformed(file: impl Into<String>, reason: impl std::fmt::Display) -> Self {
        Self::Malformed { file: file.into(), reason: reason.to_string() }
    }

    /// A field with a wrong or unsupported value.
    pub fn field(file: impl Into<String>, field: impl Into<String>, reason: impl std::fmt::Display) -> Self {
        Self::Field { file: file.into(), field: field.into(), reason: reason.to_string() }
    }
}
