//! A list that keeps its first entries and counts the rest.

use serde::Serialize;

/// Most relQueries that a decision tells about; of the others it tells the number.
pub const LISTED_MAX: usize = 16;

/// The first of a list, and how many more there were: a decision is of a bounded size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Truncated<T> {
    /// The first ones.
    pub listed: Vec<T>,
    /// How many are left out.
    pub left_out: u32,
}

impl<T> Default for Truncated<T> {
    fn default() -> Self {
        Self { listed: Vec::new(), left_out: 0 }
    }
}

impl<T> Truncated<T> {
    /// The first of `all`; of the others only the number, and nothing is computed.
    pub(crate) fn of<I>(all: impl Iterator<Item = I>, tell: impl FnMut(I) -> Option<T>) -> Self {
        let mut all = all;
        let listed = all.by_ref().take(LISTED_MAX).filter_map(tell).collect();
        Self { listed, left_out: u32::try_from(all.count()).unwrap_or(u32::MAX) }
    }
}
