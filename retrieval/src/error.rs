//! What can go wrong, with the file and field to blame where there is one.

use std::path::{Path, PathBuf};

/// Why a folder, a text or an index cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file of the model's folder cannot be read, or is not what it must be.
    #[error("{path}: {reason}")]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A field of a file has a value that cannot be used.
    #[error("{path}: `{field}` {reason}")]
    Field {
        /// The file.
        path: PathBuf,
        field: String,
        /// What is wrong with it.
        reason: String,
    },
    /// An argument is out of its range.
    #[error("`{field}` {reason}")]
    Invalid {
        /// The argument.
        field: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// The model gave no direction for a text: a vector of zeros, or one with a value that is no number.
    #[error("the embedding model gave no usable vector for text {text}")]
    Unsound {
        /// The place of the text among those of the call.
        text: usize,
    },
    /// The caller wanted no more.
    #[error("stopped")]
    Stopped {
        /// Texts whose vectors were computed by then.
        texts: u64,
        /// Their tokens.
        tokens: u64,
    },
    /// The model's arithmetic failed.
    #[error("the embedding model failed: {0}")]
    Model(String),
}

impl Error {
    /// A file to blame.
    pub(crate) fn file(path: &Path, reason: impl ToString) -> Self {
        Self::File { path: path.to_owned(), reason: reason.to_string() }
    }

    /// A field of a file to blame.
    pub(crate) fn field(path: &Path, field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Field { path: path.to_owned(), field: field.into(), reason: reason.into() }
    }
}

impl From<candle_core::Error> for Error {
    fn from(error: candle_core::Error) -> Self {
        Self::Model(error.to_string())
    }
}
