//! Where in the JSON of a query something stands.

use std::fmt;
use std::sync::Arc;

use super::error::SpanError;

/// Where something stands: `$.g.input.seq[2].user`.
#[derive(Clone, Copy, Debug)]
pub(super) enum Path<'a> {
    /// The whole.
    Root,
    /// Under a key.
    Key(&'a Path<'a>, &'a str),
    /// In an array.
    Index(&'a Path<'a>, usize),
}

impl Path<'_> {
    /// The error of what stands here.
    pub(super) fn error(&self, reason: impl Into<String>) -> SpanError {
        SpanError::At { path: self.to_string(), reason: reason.into() }
    }

    /// The same, as a result.
    pub(super) fn bad<T>(&self, reason: impl Into<String>) -> Result<T, SpanError> {
        Err(self.error(reason))
    }
}

/// Where something stands in the query that was written. Of two things alike it makes no others.
#[derive(Clone)]
pub struct Place(Arc<str>);

impl Place {
    /// The path, `$` for the whole.
    pub fn path(&self) -> &str {
        &self.0
    }
}

impl Default for Place {
    fn default() -> Self {
        Self("$".into())
    }
}

impl From<&Path<'_>> for Place {
    fn from(path: &Path<'_>) -> Self {
        Self(path.to_string().into())
    }
}

impl PartialEq for Place {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Place")
    }
}

/// Longest part of a key that an error shows.
const KEY_SHOWN_MAX: usize = 64;

impl fmt::Display for Path<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => out.write_str("$"),
            Self::Key(parent, key) => write!(out, "{parent}.{}", shown(key)),
            Self::Index(parent, index) => write!(out, "{parent}[{index}]"),
        }
    }
}

/// What an error shows of a text that may be of any length.
pub(super) fn shown(text: &str) -> &str {
    &text[..text.floor_char_boundary(KEY_SHOWN_MAX)]
}
