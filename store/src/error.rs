//! One error for the crate: the caller's only question is whether trying again may help.

/// Why the store could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is not one of `sqlite:PATH`, `sqlite::memory:`, `postgres://...`.
    #[error("invalid store address: {0}")]
    Address(String),
    /// The database file cannot be made or opened.
    #[error("cannot open the store's file `{path}`: {source}")]
    File {
        /// The file.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The database is away, restarting, or locked by another writer. Trying again may help.
    #[error("the store is away or busy: {0}")]
    Away(String),
    /// The name is taken.
    #[error("a {what} named `{name}` exists already")]
    Taken {
        /// What kind of thing.
        what: &'static str,
        name: String,
    },
    /// There is no room for more.
    #[error("more than {limit} {what}")]
    Full {
        /// Of what there is too much.
        what: &'static str,
        /// How much there may be.
        limit: u64,
    },
    /// No such thing (any more).
    #[error("no such {0}")]
    Missing(&'static str),
    /// The database was made by a newer program.
    #[error(
        "the store's schema is version {found}, this program knows up to {known}: a newer one has made it, and only \
         such a one can read it"
    )]
    Newer {
        /// What the database says.
        found: i64,
        /// The last version of this program.
        known: i64,
    },
    /// A stored value is not what this program writes.
    #[error("the store holds a broken {what}: {reason}")]
    Broken {
        /// Which value.
        what: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// The operating system gave no random bytes for a new key.
    #[error("no randomness for a new key: {0}")]
    Entropy(String),
    /// Anything else the database refused; trying again will not help.
    #[error("the store failed: {0}")]
    Sql(sqlx::Error),
}

impl Error {
    /// Whether the same call may succeed later: the database was away, restarting or locked.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Away(_))
    }
}

/// SQLite: 5 busy, 6 locked (primary result codes; extended codes carry them in the low byte).
const SQLITE_TRANSIENT: [u32; 2] = [5, 6];
/// Postgres: connection lost, transaction rolled back by the server, out of resources, lock not
/// available, operator intervention (shutting down, starting up).
const POSTGRES_TRANSIENT: [&str; 5] = ["08", "40", "53", "55P03", "57P"];

/// Whether a database's own error code says that trying again may help.
fn is_transient_code(code: &str) -> bool {
    if code.len() == 5 {
        return POSTGRES_TRANSIENT.iter().any(|prefix| code.starts_with(prefix));
    }
    code.parse::<u32>().is_ok_and(|code| SQLITE_TRANSIENT.contains(&(code & 0xff)))
}

impl From<sqlx::Error> for Error {
    fn from(error: sqlx::Error) -> Self {
        use sqlx::Error as E;
        let transient = match &error {
            E::Io(_) | E::Tls(_) | E::PoolTimedOut | E::WorkerCrashed => true,
            E::Database(refusal) => refusal.code().is_some_and(|code| is_transient_code(&code)),
            _ => false,
        };
        if transient { Self::Away(error.to_string()) } else { Self::Sql(error) }
    }
}

/// `taken` where the database refused because of a unique column, else the general error.
pub(crate) fn unique(error: sqlx::Error, taken: Error) -> Error {
    match &error {
        sqlx::Error::Database(refusal) if refusal.is_unique_violation() => taken,
        _ => error.into(),
    }
}

/// What a refused insert of a tenant's `what` says: the tenant is gone, or the identity is taken.
pub(crate) fn new_of(what: &'static str, id: &str) -> impl FnOnce(sqlx::Error) -> Error {
    let taken = Error::Taken { what, name: id.to_owned() };
    move |error| match &error {
        sqlx::Error::Database(refusal) if refusal.is_foreign_key_violation() => Error::Missing("tenant"),
        _ => unique(error, taken),
    }
}

/// `missing` where the database refused because the row referred to is gone, else the general error.
pub(crate) fn foreign(error: sqlx::Error, missing: Error) -> Error {
    match &error {
        sqlx::Error::Database(refusal) if refusal.is_foreign_key_violation() => missing,
        _ => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_both_databases_tell_transient_from_permanent() {
        for code in ["5", "6", "261", "517", "08006", "40001", "40P01", "53300", "55P03", "57P01", "57P03"] {
            assert!(is_transient_code(code), "{code}");
        }
        for code in ["1", "19", "2067", "23505", "42601", "42P01", "57014", "not a code"] {
            assert!(!is_transient_code(code), "{code}");
        }
    }

    #[test]
    fn a_database_that_cannot_be_reached_is_transient() {
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        assert!(Error::from(sqlx::Error::Io(refused)).is_transient());
        assert!(Error::from(sqlx::Error::PoolTimedOut).is_transient());
        assert!(!Error::from(sqlx::Error::RowNotFound).is_transient());
    }
}
