//! Instants as the store keeps them.

use base::Millis;
use serde::{Deserialize, Serialize};

/// An instant, in milliseconds since 1970-01-01 UTC. Given by the caller, never read from a clock here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UnixMillis(pub u64);

impl UnixMillis {
    /// The instant `span` later.
    pub fn after(self, span: Millis) -> Self {
        Self(self.0.saturating_add(span.0))
    }

    /// The instant `span` earlier.
    pub fn before(self, span: Millis) -> Self {
        Self(self.0.saturating_sub(span.0))
    }

    /// The UTC day that holds the instant, counted from 1970-01-01.
    pub fn day(self) -> u64 {
        self.0 / 86_400_000
    }

    /// As SQL's BIGINT.
    pub(crate) fn to_sql(self) -> i64 {
        to_sql(self.0)
    }
}

/// A count as SQL's BIGINT; what would not fit stays at the largest BIGINT.
pub(crate) fn to_sql(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// A BIGINT that was written by [`to_sql`].
pub(crate) fn from_sql(count: i64) -> u64 {
    u64::try_from(count).unwrap_or(0)
}

/// An instant that was written by [`UnixMillis::to_sql`].
pub(crate) fn instant(count: i64) -> UnixMillis {
    UnixMillis(from_sql(count))
}
