//! Where a page of all tenants' usage ends: `DAY`, or, where it parts a day, `DAY.TENANT.ROUTE.MODEL`.

use std::fmt;

use base::TenantId;
use serving::error::RequestError;
use store::UsageKey;

/// Sums that are asked for stand before this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UsageCursor {
    /// The first of a day.
    Day(u64),
    /// One sum of a day.
    Key(UsageKey),
}

impl UsageCursor {
    /// Reads one that a page had.
    pub fn parse(text: &str) -> Result<Self, RequestError> {
        let refused = || RequestError::invalid("before", "must be the `before` of another page");
        Self::found(text).ok_or_else(refused)
    }

    fn found(text: &str) -> Option<Self> {
        // A model's name may have dots, so it is the last.
        let mut parts = text.splitn(4, '.');
        let day = parts.next()?.parse().ok()?;
        let Some(tenant) = parts.next() else { return Some(Self::Day(day)) };
        let tenant = TenantId(tenant.parse().ok()?);
        let (route, model) = (parts.next()?.to_owned(), parts.next()?.to_owned());
        Some(Self::Key(UsageKey { tenant, day, model, route }))
    }
}

impl fmt::Display for UsageCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Day(day) => write!(f, "{day}"),
            Self::Key(UsageKey { tenant, day, model, route }) => {
                write!(f, "{day}.{}.{route}.{model}", tenant.0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_was_written_whatever_a_model_is_called() {
        for model in ["demo", "org/model-1.5.Q4", "ein Modell & mehr", ""] {
            let key = UsageKey { tenant: TenantId(7), day: 20_783, model: model.into(), route: "sql".into() };
            let cursor = UsageCursor::Key(key);
            assert_eq!(UsageCursor::found(&cursor.to_string()), Some(cursor));
        }
        assert_eq!(UsageCursor::found("20783"), Some(UsageCursor::Day(20_783)));
        for bad in ["", "x", "-1", "20783.", "20783.7", "20783.7.sql", "20783.x.sql.demo"] {
            assert_eq!(UsageCursor::found(bad), None, "{bad:?}");
        }
    }
}
