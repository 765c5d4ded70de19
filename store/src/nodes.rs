//! A gateway's name among those that share a database: one process has it at a time. Two of one name would both
//! go on with the same tickets, and every row of them would run, and be billed, twice.

use std::fmt::Write as _;
use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use sqlx::{AnyConnection, Connection as _, Executor as _, Row as _};

use crate::error::Error;
use crate::open::{Store, create_private};

/// Begins the number of a name's advisory lock; see [`crate::open`] for those of writers.
const NODE: i64 = 0x7265_6c10 << 32;
/// A connection whose peer has gone without a word is given up by Postgres within a minute, and so is its lock.
const KEEPALIVES: &str =
    "SET tcp_keepalives_idle = 20; SET tcp_keepalives_interval = 10; SET tcp_keepalives_count = 3";

/// A name that this process has, for as long as this lives. A Postgres that restarts forgets it.
#[derive(Debug)]
pub struct NodeClaim {
    /// SQLite: its lock ends with the file.
    _file: Option<File>,
    /// Postgres: its lock ends with the connection.
    _connection: Option<AnyConnection>,
}

impl Store {
    /// Takes a node's name.
    ///
    /// # Errors
    /// [`Error::Taken`] where another process has it.
    pub async fn claim_node(&self, node: &str) -> Result<NodeClaim, Error> {
        let taken = || Error::Taken { what: "running gateway", name: node.to_owned() };
        if let Some(database) = self.database_file() {
            let path = lock_path(database, node);
            create_private(&path)?;
            let shown = path.display().to_string();
            let opened = File::options().write(true).open(&path);
            let file = opened.map_err(|source| Error::File { path: shown.clone(), source })?;
            return match file.try_lock() {
                Ok(()) => Ok(NodeClaim { _file: Some(file), _connection: None }),
                Err(TryLockError::WouldBlock) => Err(taken()),
                // A file system without locks: nobody can be told apart there.
                Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => {
                    Ok(NodeClaim { _file: None, _connection: None })
                }
                Err(TryLockError::Error(source)) => Err(Error::File { path: shown, source }),
            };
        }
        if !self.is_shared() {
            return Ok(NodeClaim { _file: None, _connection: None });
        }
        let claim = self.bounded(async {
            let mut connection = AnyConnection::connect_with(&self.pool().connect_options()).await?;
            connection.execute(KEEPALIVES).await?;
            let lock = sqlx::query("SELECT pg_try_advisory_lock($1)").bind(lock_number(node));
            let is_free: bool = lock.fetch_one(&mut connection).await?.try_get(0)?;
            Ok(is_free.then_some(connection))
        });
        match claim.await? {
            Some(connection) => Ok(NodeClaim { _file: None, _connection: Some(connection) }),
            None => Err(taken()),
        }
    }

    /// The node that runs on a SQLite file now, or one of them, as its lock's file is named. Nothing is claimed.
    ///
    /// # Errors
    /// A folder or a lock that cannot be read.
    pub fn node_on(database: &Path) -> Result<Option<String>, Error> {
        let failed = |source| Error::File { path: database.display().to_string(), source };
        let (Some(folder), Some(name)) = (database.parent(), database.file_name()) else { return Ok(None) };
        let entries = match std::fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        for entry in entries {
            let entry = entry.map_err(failed)?;
            let beside = entry.file_name();
            let node = beside.to_str().zip(name.to_str());
            let node = node.and_then(|(beside, name)| beside.strip_prefix(name)?.strip_prefix(BETWEEN));
            let Some(node) = node else { continue };
            let lock = File::options().write(true).open(entry.path()).map_err(failed)?;
            match lock.try_lock() {
                Err(TryLockError::WouldBlock) => return Ok(Some(node.to_owned())),
                Err(TryLockError::Error(error)) if error.kind() != ErrorKind::Unsupported => {
                    return Err(failed(error));
                }
                // Free, or on a file system without locks, where nobody can be told.
                Ok(()) | Err(TryLockError::Error(_)) => {}
            }
        }
        Ok(None)
    }
}

/// Stands between a database's name and a node's.
const BETWEEN: &str = "-node-";

/// The file beside a database that a node locks.
fn lock_path(database: &Path, node: &str) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push(BETWEEN);
    let mut name = String::new();
    for byte in node.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' => name.push(char::from(byte)),
            // A `String` takes whatever is written.
            other => drop(write!(name, "%{other:02x}")),
        }
    }
    path.push(name);
    path.into()
}

/// The number of a name's lock: FNV-1a, which no later version of anything changes.
fn lock_number(node: &str) -> i64 {
    let hash =
        node.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    NODE | i64::from(hash)
}
