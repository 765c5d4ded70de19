//! One error for the crate: the caller's only question is whether trying again may help.

use std::path::{Path, PathBuf};

use base::Bytes;
use rustix::fs::StatVfsMountFlags;

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
    /// The database takes nothing for now: it may only be read, or its disk fails. Trying again may help.
    #[error("the store cannot be written: {0}")]
    Unwritable(String),
    /// The database's file is gone, or another one stands in its place. Trying again helps once the very file is back.
    #[error("the store's file `{}` is gone, or another one stands in its place", .0.display())]
    FileGone(PathBuf),
    /// The disk of the database has no room, or that of temporary files of a read. Trying again helps once it has.
    #[error("the disk of the store or of its temporary files is full: {0}")]
    DiskFull(String),
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
    /// The database's own file is not what a database wrote.
    #[error(
        "the database{} is damaged: {reason}; restore it from a backup",
        .file.as_ref().map_or(String::new(), |file| format!(" `{}`", file.display()))
    )]
    Damaged {
        /// The file, where it is one.
        file: Option<PathBuf>,
        /// What the database said.
        reason: String,
    },
    /// Anything else the database refused; trying again will not help.
    #[error("the store failed: {0}")]
    Sql(sqlx::Error),
}

impl Error {
    /// The same, with the file that is the database.
    pub(crate) fn of_file(self, path: Option<&Path>) -> Self {
        match self {
            Self::Damaged { file: None, reason } => Self::Damaged { file: path.map(Path::to_owned), reason },
            other => other.of_disk(|| path.and_then(Path::parent).is_some_and(is_on_full_disk)),
        }
    }

    /// The same, where an error of the disk is told as what it is: on a full one SQLite fails with one (4874, where the
    /// index of its log does not fit) before a write meets the end of the room.
    fn of_disk(self, is_full: impl FnOnce() -> bool) -> Self {
        match self {
            Self::Unwritable(reason) if is_full() => Self::DiskFull(reason),
            other => other,
        }
    }

    /// What is wrong with the database for the moment, where that is why.
    pub fn outage(&self) -> Option<StoreOutage> {
        match self {
            Self::Away(_) => Some(StoreOutage::Away),
            Self::Unwritable(_) => Some(StoreOutage::Unwritable),
            Self::DiskFull(_) => Some(StoreOutage::DiskFull),
            Self::FileGone(_) => Some(StoreOutage::FileGone),
            _ => None,
        }
    }

    /// Whether a database that is away may come up by itself: not where the two ends do not agree on TLS, which somebody has to
    /// mend first.
    pub fn may_come_up(&self) -> bool {
        matches!(self, Self::Away(reason) if !TLS_REFUSED.iter().any(|part| reason.contains(part)))
    }

    /// Whether the same call may succeed later: the database was away, restarting, locked, without room or without its file.
    pub fn is_transient(&self) -> bool {
        self.outage().is_some()
    }
}

/// Whether the disk of a folder has no room; `false` where nobody can say.
fn is_on_full_disk(folder: &Path) -> bool {
    rustix::fs::statvfs(folder)
        .is_ok_and(|disk| is_full(free_of(&disk), disk.f_flag.contains(StatVfsMountFlags::RDONLY)))
}

/// The room of a folder's disk, where somebody can say.
pub(crate) fn free_bytes(folder: &Path) -> Option<Bytes> {
    rustix::fs::statvfs(folder).ok().map(|disk| free_of(&disk))
}

fn free_of(disk: &rustix::fs::StatVfs) -> Bytes {
    Bytes(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// What SQLite's index of its log grows by.
const ROOM_LEAST: Bytes = Bytes(32 << 10);

/// Whether so much room is none. A file system that can only be read, an image for one, often has no byte free and is not
/// to blame for that.
fn is_full(free: Bytes, is_read_only: bool) -> bool {
    free < ROOM_LEAST && !is_read_only
}

/// What is wrong with a database for the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreOutage {
    /// It does not answer, or is busy for longer than a call may wait.
    Away,
    /// It is read, and takes nothing: an error of the disk, a file system that is read-only.
    Unwritable,
    /// It is read, and takes nothing: its disk has no room.
    DiskFull,
    /// It is read for as long as its connections live, and takes nothing: its file was deleted, moved or replaced, and what
    /// is written into one that has no name is lost when the process ends.
    FileGone,
}

/// SQLite: 5 busy, 6 locked (primary result codes; extended codes carry them in the low byte).
const SQLITE_AWAY: [u32; 2] = [5, 6];
/// SQLite: 8 read-only, 10 an error of the disk, 14 a file cannot be opened.
const SQLITE_UNWRITABLE: [u32; 3] = [8, 10, 14];
/// SQLite: a write found no room.
const SQLITE_FULL: u32 = 13;
/// Postgres: connection lost, a transaction that said nothing for too long, one rolled back by the server, out of
/// resources, lock not available, operator intervention (shutting down, starting up).
const POSTGRES_AWAY: [&str; 6] = ["08", "25P03", "40", "53", "55P03", "57P"];
/// Postgres: a transaction that may not write (a standby), an error of the disk.
const POSTGRES_UNWRITABLE: [&str; 2] = ["25006", "58030"];
/// Postgres: `disk_full`, one of those that are out of resources.
const POSTGRES_FULL: &str = "53100";

/// What Postgres says with that code too where its shared memory, a file system of its own, has no room for a query.
const POSTGRES_SHARED_MEMORY: &str = "shared memory segment";

/// How the driver tells that a connection was closed in the place of the first answer, as a proxy does before its Postgres is
/// up: by the byte that it has not read.
const CLOSED_INSTEAD: &str = "response from SSLRequest: 0x00";

/// What the driver says of a certificate that is not trusted, and of a server that speaks no TLS where it has to.
const TLS_REFUSED: [&str; 2] = ["invalid peer certificate", "while attempting to establish a TLS connection"];

/// What a database's own error says of it, where trying again may help.
fn outage_of(code: &str, message: &str) -> Option<StoreOutage> {
    let (is_full, is_unwritable, is_away) = if code.len() == 5 {
        let is_in = |prefixes: &[&str]| prefixes.iter().any(|prefix| code.starts_with(prefix));
        let is_full = code == POSTGRES_FULL && !message.contains(POSTGRES_SHARED_MEMORY);
        (is_full, is_in(&POSTGRES_UNWRITABLE), is_in(&POSTGRES_AWAY))
    } else {
        let primary = code.parse::<u32>().ok()? & 0xff;
        (primary == SQLITE_FULL, SQLITE_UNWRITABLE.contains(&primary), SQLITE_AWAY.contains(&primary))
    };
    match (is_full, is_unwritable, is_away) {
        (true, ..) => Some(StoreOutage::DiskFull),
        (_, true, _) => Some(StoreOutage::Unwritable),
        (.., true) => Some(StoreOutage::Away),
        _ => None,
    }
}

/// SQLite: 11 corrupt, 26 no database. Postgres: corrupt data or index.
const DAMAGED: [&str; 4] = ["11", "26", "XX001", "XX002"];

/// Whether the database found that its own file is wrong.
fn is_damage(error: &sqlx::Error) -> bool {
    let sqlx::Error::Database(refusal) = error else { return false };
    let Some(code) = refusal.code() else { return false };
    // SQLite's extended codes carry the primary one in the low byte.
    let primary = code.parse::<u32>().map_or_else(|_| code.to_string(), |code| (code & 0xff).to_string());
    DAMAGED.contains(&&*primary) || DAMAGED.contains(&&*code)
}

impl From<sqlx::Error> for Error {
    fn from(error: sqlx::Error) -> Self {
        use sqlx::Error as E;
        let outage = match &error {
            E::Io(cause) if cause.kind() == std::io::ErrorKind::StorageFull => Some(StoreOutage::DiskFull),
            E::Io(_) | E::Tls(_) | E::PoolTimedOut | E::WorkerCrashed => Some(StoreOutage::Away),
            E::Protocol(reason) if reason.contains(CLOSED_INSTEAD) => Some(StoreOutage::Away),
            E::Database(refusal) => refusal.code().and_then(|code| outage_of(&code, refusal.message())),
            _ => None,
        };
        match outage {
            Some(StoreOutage::Away) => Self::Away(error.to_string()),
            Some(StoreOutage::Unwritable) => Self::Unwritable(error.to_string()),
            Some(StoreOutage::DiskFull) => Self::DiskFull(error.to_string()),
            None if is_damage(&error) => Self::Damaged { file: None, reason: error.to_string() },
            // That the file is gone is found by looking, not told by the database.
            Some(StoreOutage::FileGone) | None => Self::Sql(error),
        }
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
        let away =
            ["5", "6", "261", "517", "08006", "25P03", "40001", "40P01", "53300", "55P03", "57P01", "57P03"];
        for code in away {
            assert_eq!(outage_of(code, ""), Some(StoreOutage::Away), "{code}");
        }
        for code in ["8", "10", "778", "4874", "14", "25006", "58030"] {
            assert_eq!(outage_of(code, ""), Some(StoreOutage::Unwritable), "{code}");
        }
        for code in ["13", "53100"] {
            assert_eq!(outage_of(code, ""), Some(StoreOutage::DiskFull), "{code}");
        }
        let memory = "could not resize shared memory segment \"/PostgreSQL.1\" to 8388608 bytes";
        assert_eq!(outage_of("53100", memory), Some(StoreOutage::Away));
        // Among them a wrong password, no such role and no such database.
        for code in
            ["1", "19", "2067", "23505", "28000", "28P01", "3D000", "42601", "42P01", "57014", "not a code"]
        {
            assert_eq!(outage_of(code, ""), None, "{code}");
        }
    }

    #[test]
    fn an_error_of_a_disk_is_that_of_a_full_one_where_it_has_no_room() {
        let broken = || Error::Unwritable("(code: 4874) disk I/O error".into());
        assert_eq!(broken().of_disk(|| true).outage(), Some(StoreOutage::DiskFull));
        assert_eq!(broken().of_disk(|| false).outage(), Some(StoreOutage::Unwritable));
        assert_eq!(Error::Away("busy".into()).of_disk(|| true).outage(), Some(StoreOutage::Away));
        assert!(is_full(Bytes(0), false) && is_full(Bytes(32_767), false));
        assert!(!is_full(Bytes(32_768), false) && !is_full(Bytes(0), true));
        assert!(!is_on_full_disk(Path::new("/no/such/folder")));
    }

    #[test]
    fn a_full_disk_may_be_that_of_temporary_files() {
        let error = Error::DiskFull("(code: 13) database or disk is full".into());
        assert!(error.to_string().contains("of the store or of its temporary files"), "{error}");
    }

    #[test]
    fn a_database_that_cannot_be_reached_is_transient() {
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        assert!(Error::from(sqlx::Error::Io(refused)).is_transient());
        assert!(Error::from(sqlx::Error::PoolTimedOut).is_transient());
        let protocol = |reason: &str| Error::from(sqlx::Error::Protocol(reason.to_owned()));
        assert!(protocol("unexpected response from SSLRequest: 0x00 (driver::tls:90)").is_transient());
        assert!(!protocol("unexpected response from SSLRequest: 0x48 (driver::tls:90)").is_transient());
        assert!(!Error::from(sqlx::Error::RowNotFound).is_transient());
    }

    #[test]
    fn a_database_whose_certificate_is_not_trusted_does_not_come_up_by_itself() {
        let io = |kind, reason: &str| sqlx::Error::Io(std::io::Error::new(kind, reason.to_owned()));
        let untrusted = io(std::io::ErrorKind::InvalidData, "invalid peer certificate: UnknownIssuer");
        for error in [untrusted, sqlx::Error::Tls("server does not support TLS".into())] {
            let error = Error::from(error);
            assert!(error.is_transient() && !error.may_come_up(), "{error}");
        }
        let refused = io(std::io::ErrorKind::ConnectionRefused, "connection refused");
        assert!(Error::from(refused).may_come_up());
        assert!(!Error::DiskFull("no room".into()).may_come_up());
    }

    #[test]
    fn a_system_without_room_is_no_database_that_is_away() {
        let full = std::io::Error::from(std::io::ErrorKind::StorageFull);
        let error = Error::from(sqlx::Error::Io(full));
        assert_eq!(error.outage(), Some(StoreOutage::DiskFull), "{error}");
        assert!(error.is_transient());
    }
}
