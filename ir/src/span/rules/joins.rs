//! The parts of joins, and how a part that is taken apart leaves its own in its place.

use crate::span::query::SpanQuery;

/// The parts of a join, whichever it is.
pub(super) fn parts(query: &mut SpanQuery) -> Option<&mut Vec<SpanQuery>> {
    match query {
        SpanQuery::Seq(parts) | SpanQuery::Cross(parts) | SpanQuery::Plus(parts) => Some(parts),
        _ => None,
    }
}

/// Puts in place of each part that `open` takes apart what it was made of; whether there was any.
pub(super) fn splice(
    parts: &mut Vec<SpanQuery>,
    open: impl Fn(SpanQuery) -> Result<Vec<SpanQuery>, SpanQuery>,
) -> bool {
    let mut has_any = false;
    let mut spliced = Vec::with_capacity(parts.len());
    for part in parts.drain(..) {
        match open(part) {
            Ok(inner) => {
                has_any = true;
                spliced.extend(inner);
            }
            Err(part) => spliced.push(part),
        }
    }
    *parts = spliced;
    has_any
}
