//! What a GGUF file says before its numbers: metadata, and where its tensors lie.

use std::ops::Range;

/// A value of the metadata.
#[derive(Clone, Debug, PartialEq)]
pub enum MetaValue {
    /// Any unsigned number.
    Unsigned(u64),
    /// Any signed number.
    Signed(i64),
    /// A single or double.
    Float(f64),
    /// True or false.
    Flag(bool),
    /// UTF-8.
    Text(String),
    /// Values of one type, no lists among them.
    List(List),
}

/// A list that stays in its file until it is asked for: a byte there would become many here.
#[derive(Clone, Debug, PartialEq)]
pub struct List {
    /// The file's number of the values' type.
    pub(super) kind: u32,
    pub(super) count: usize,
    pub(super) bytes: Range<usize>,
}

/// Where a tensor lies and how.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    /// The file's number of its format.
    pub(super) kind: u32,
    pub(super) shape: Vec<usize>,
    /// `None` where the format is not known: its length is not, either.
    pub(super) bytes: Option<Range<usize>>,
}
