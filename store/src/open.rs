//! Opening a database, and what every statement shares: the pool, the time limit, write transactions.
//!
//! sqlx's `Any` driver carries both databases, because the statements are the same; what differs (how a
//! connection is set up, how writers queue) stands here and nowhere else.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base::{Millis, TenantId, Time};
use sqlx::any::{Any, AnyArguments, AnyPoolOptions};
use sqlx::query::Query;
use sqlx::{AnyConnection, AnyPool, AssertSqlSafe, Connection, Executor, Transaction};

use crate::error::{Error, free_bytes};
use crate::health::StoreHealth;
use crate::migrate;
use crate::opened_file::OpenedFile;
use crate::time::{UnixMillis, instant, to_sql};

/// Limits of a store's connections. The defaults suit one gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreOptions {
    /// Most connections held at once.
    pub connections_max: u32,
    /// Longest wait for a free connection, or for an absent database to come up.
    pub acquire_ms_max: Millis,
    /// Longest time for one call of the store as a whole; then it fails as transient.
    pub call_ms_max: Millis,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self { connections_max: 8, acquire_ms_max: Millis(5_000), call_ms_max: Millis(15_000) }
    }
}

/// Longest time in which a file of SQLite is brought up to date: one that writes gigabytes of rows anew takes tens of
/// seconds, and stopped before its end it would be stopped again at each start.
const MIGRATION_MAX: Duration = Duration::from_mins(15);

/// Which database; only this module and the migrations ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dialect {
    Sqlite,
    Postgres,
}

/// Which writers wait for each other on Postgres (SQLite has one writer anyway). The number is the
/// advisory lock's: any constants that other users of the same database are unlikely to take.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Lock {
    /// Changes of the schema.
    Schema = 0x7265_6c01,
    /// Result puts: keeps the bounds strict and upserts free of deadlock.
    Results = 0x7265_6c02,
    /// Usage upserts, for the same reason.
    Usage = 0x7265_6c03,
    /// Claims of tickets.
    Tickets = 0x7265_6c04,
    /// New identifiers.
    Counters = 0x7265_6c05,
    /// New schemas: keeps the bounds strict.
    Schemas = 0x7265_6c06,
    /// Writes of corpora: keeps their bounds strict.
    Corpora = 0x7265_6c07,
    /// What comes of files, and their ends: keeps the bounds strict. Of each tenant one.
    Files = 0x7265_6c08,
    /// Leases of replicas: keeps what all hold within what there is.
    ReplicaLeases = 0x7265_6c09,
    /// Saves of workbooks: keeps versions in order and the bounds strict.
    Workbooks = 0x7265_6c0a,
    /// Idempotent replies: keeps their bound strict.
    Replies = 0x7265_6c0b,
    /// Responses: keeps their bound strict.
    Responses = 0x7265_6c0c,
}

/// Whose files change.
#[derive(Clone, Copy, Debug)]
pub(crate) enum FilesOf<'a> {
    Tenant(TenantId),
    /// The tenant that has the file of this identity.
    File(&'a str),
    /// The tenant that has the upload of this identity.
    Upload(&'a str),
}

/// Takes the lock of the files of a tenant. Numbers of tenants may meet in it, 2^32 apart: they wait for each other.
const LOCK_TENANT: &str = "SELECT pg_advisory_xact_lock($1 | ($2 & 4294967295))";
/// The same of the tenant of a file. Without the file nothing is locked, nor found later.
const LOCK_OF_FILE: &str =
    "SELECT pg_advisory_xact_lock($1 | (tenant & 4294967295)) FROM files WHERE id = $2";
/// The same of the tenant of an upload.
const LOCK_OF_UPLOAD: &str =
    "SELECT pg_advisory_xact_lock($1 | (tenant & 4294967295)) FROM uploads WHERE id = $2";

/// The database. Cheap to clone; clones share the connections.
#[derive(Clone, Debug)]
pub struct Store {
    pool: AnyPool,
    dialect: Dialect,
    /// The database, where it is a file.
    file: Option<Arc<OpenedFile>>,
    call_max: Duration,
    health: Arc<StoreHealth>,
}

impl Store {
    /// Opens `sqlite:PATH`, `sqlite::memory:` or `postgres://...` with default limits; makes the file
    /// (readable by its owner alone) and the schema where they are missing.
    pub async fn open(url: &str) -> Result<Self, Error> {
        Self::open_with(url, StoreOptions::default()).await
    }

    /// Opens with limits of the caller's choice.
    pub async fn open_with(url: &str, options: StoreOptions) -> Result<Self, Error> {
        sqlx::any::install_default_drivers();
        let address = Address::parse(url)?;
        let call_max = Duration::from_millis(options.call_ms_max.0);
        let (mut file, health) = (None, Arc::<StoreHealth>::default());
        if let Address::File(path) = &address {
            // What a first start leaves that was cut off, or what is left of a database that was emptied.
            if std::fs::metadata(path).is_ok_and(|file| file.len() == 0) {
                tracing::warn!(file = %path.display(), "the file is empty: a new database is made in it");
            }
            create_private(path)?;
            let checked = limit(call_max, check_is_database(&address)).await;
            checked.map_err(|error| error.of_file(Some(path)))?;
            let failed = |source| Error::File { path: path.display().to_string(), source };
            file = Some(Arc::new(OpenedFile::at(path).map_err(failed)?));
        }
        let mut pool = AnyPoolOptions::new()
            .max_connections(options.connections_max)
            .acquire_timeout(Duration::from_millis(options.acquire_ms_max.0));
        let dialect = match address {
            Address::Postgres(_) => Dialect::Postgres,
            Address::Memory | Address::File(_) => Dialect::Sqlite,
        };
        if dialect == Dialect::Sqlite {
            let watched = file.clone().map(|file| (file, Arc::clone(&health)));
            pool = pool.after_connect(move |connection, _| {
                let watched = watched.clone();
                Box::pin(async move {
                    // Before SQLite reads anything: by the name of a file that took the place of the database lies the
                    // database's log, which is not that file's.
                    if let Some((file, health)) = watched
                        && file.is_there() == Some(false)
                    {
                        note_file(&health, &file, false);
                        return Err(sqlx::Error::Io(ErrorKind::NotFound.into()));
                    }
                    connection.execute(SQLITE_SETTINGS).await.map(|_| ())
                })
            });
        }
        if dialect == Dialect::Postgres {
            let settings = postgres_settings(options.call_ms_max);
            pool = pool.after_connect(move |connection, _| {
                let settings = AssertSqlSafe(settings.clone());
                Box::pin(async move { connection.execute(settings).await.map(|_| ()) })
            });
        }
        if address == Address::Memory {
            // An in-memory database belongs to its connection: exactly one, never replaced. A call that is dropped while its
            // connection is tried, as that of a request that is refused meanwhile, would take it along.
            pool = pool.max_connections(1).idle_timeout(None).max_lifetime(None).test_before_acquire(false);
        } else {
            pool = pool.before_acquire(|connection, _| Box::pin(async move { Ok(is_at_rest(connection)) }));
        }
        let pool = limit(call_max, async { Ok(pool.connect(&address.to_url()).await?) }).await?;
        let store = Self { pool, dialect, file, call_max, health };
        match dialect {
            Dialect::Sqlite => {
                let done = limit(call_max.max(MIGRATION_MAX), store.migrate()).await;
                done.map_err(|error| error.of_file(store.database_file()))?;
            }
            Dialect::Postgres => store.bounded(store.migrate()).await?,
        }
        Ok(store)
    }

    /// Brings the schema up to date.
    async fn migrate(&self) -> Result<(), Error> {
        let mut tx = self.begin_write(Lock::Schema).await?;
        migrate::migrate(&mut tx).await?;
        Ok(tx.commit().await?)
    }

    /// Asks the database for a sign of life.
    pub async fn ping(&self) -> Result<(), Error> {
        self.bounded(async {
            sqlx::query("SELECT 1").execute(&self.pool).await?;
            Ok(())
        })
        .await
    }

    /// Waits for calls in progress and closes the connections. Later calls fail.
    pub async fn close(&self) {
        self.pool.close().await;
    }

    /// The connections, for single statements.
    pub(crate) fn pool(&self) -> &AnyPool {
        &self.pool
    }

    /// The database, where it is a file.
    pub(crate) fn database_file(&self) -> Option<&Path> {
        self.file.as_deref().map(OpenedFile::path)
    }

    /// Whether other processes may use it too: all but a database in memory.
    pub fn outlives_its_process(&self) -> bool {
        self.is_shared() || self.file.is_some()
    }

    /// Whether other machines may use it too.
    pub fn is_shared(&self) -> bool {
        self.dialect == Dialect::Postgres
    }

    /// Runs one call of the store under its time limit, so that a database that hangs gives an error. A call that may
    /// write is refused where the database's file is gone.
    pub(crate) async fn bounded<T>(&self, call: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let result = self.lasting(call).await;
        self.health.called(&result);
        result
    }

    /// The same of upkeep that may be long: that it took too long says nothing of the database.
    pub(crate) async fn in_background<T>(
        &self,
        call: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let result = self.lasting(call).await;
        if !matches!(result, Err(Error::Away(_))) {
            self.health.called(&result);
        }
        result
    }

    /// The same of a call that only reads.
    pub(crate) async fn reading<T>(&self, call: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let result = limit(self.call_max, call).await.map_err(|error| error.of_file(self.database_file()));
        self.health.read(&result);
        result
    }

    /// The same of a call whose writes must outlive the process.
    async fn lasting<T>(&self, call: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        match self.file.as_deref().filter(|_| self.health.is_file_gone()) {
            Some(file) => Err(Error::FileGone(file.path().to_owned())),
            None => limit(self.call_max, call).await.map_err(|error| error.of_file(self.database_file())),
        }
    }

    /// Looks whether the database's file is still the one that was opened, and logs where that is news. While it is not,
    /// calls that may write are refused: what they wrote would be lost when the process ends. Only the very file ends that;
    /// a copy of it has not what was written since. Of a database in memory or on a server there is nothing to look at.
    pub async fn look_at_file(&self) {
        let Some(file) = self.file.clone() else { return };
        // Not on a thread that serves others: a file system may hang.
        let look = tokio::task::spawn_blocking(move || (file.is_there(), file));
        let Ok(Ok((Some(is_there), file))) = tokio::time::timeout(self.call_max, look).await else { return };
        note_file(&self.health, &file, is_there);
    }

    /// What its calls came to.
    pub fn health(&self) -> &Arc<StoreHealth> {
        &self.health
    }

    /// Runs one statement; says how many rows it changed.
    pub(crate) async fn changed(&self, statement: Query<'_, Any, AnyArguments>) -> Result<u64, Error> {
        self.bounded(async { Ok(statement.execute(self.pool()).await?.rows_affected()) }).await
    }

    /// Writes and takes it back, to learn whether the database takes writes again. A server without work writes
    /// nothing else. `now`: of a clock that only goes forward, the same each time.
    pub async fn try_to_write(&self, now: Time) -> Result<(), Error> {
        let tried = self.bounded(async {
            let mut tx = self.begin_write(Lock::Schema).await?;
            // A row that comes and goes: SQLite leaves a page alone whose bytes stay as they are.
            sqlx::query("INSERT INTO schema_version (version) VALUES (-1)").execute(&mut *tx).await?;
            sqlx::query("DELETE FROM schema_version WHERE version = -1").execute(&mut *tx).await?;
            Ok(tx.commit().await?)
        });
        let tried = tried.await;
        let folder = self.database_file().and_then(Path::parent);
        self.health.tried_to_write(tried.is_ok(), now, folder.and_then(free_bytes));
        tried
    }

    /// The time by the database's own clock.
    pub async fn now(&self) -> Result<UnixMillis, Error> {
        self.reading(async {
            let mut connection = self.pool().acquire().await?;
            Ok(instant(self.database_now(&mut connection).await?))
        })
        .await
    }

    /// The database's own clock, in unix milliseconds: the one that all who use it share.
    pub(crate) async fn database_now(&self, tx: &mut AnyConnection) -> Result<i64, Error> {
        // Safe: a constant.
        let sql = AssertSqlSafe(format!("SELECT {}", self.database_clock()));
        let (now,): (i64,) = sqlx::query_as(sql).fetch_one(tx).await?;
        Ok(now)
    }

    /// What reads it, as part of a statement.
    pub(crate) fn database_clock(&self) -> &'static str {
        match self.dialect {
            Dialect::Sqlite => "CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS BIGINT)",
            Dialect::Postgres => "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)",
        }
    }

    /// Begins a transaction that will write, having waited for the writers it could collide with. A SQLite
    /// transaction that began as a reader could not wait: it would fail at its first write.
    pub(crate) async fn begin_write(&self, lock: Lock) -> Result<Transaction<'static, Any>, Error> {
        match self.dialect {
            Dialect::Sqlite => Ok(self.pool.begin_with("BEGIN IMMEDIATE").await?),
            Dialect::Postgres => {
                let mut tx = self.pool.begin().await?;
                self.wait_for_writers(&mut tx, lock).await?;
                Ok(tx)
            }
        }
    }

    /// The same for files of one tenant: it waits for writers of the same tenant's files alone, as what clients send is
    /// written a chunk at a time.
    pub(crate) async fn begin_write_of_files(
        &self,
        of: FilesOf<'_>,
    ) -> Result<Transaction<'static, Any>, Error> {
        match self.dialect {
            Dialect::Sqlite => Ok(self.pool.begin_with("BEGIN IMMEDIATE").await?),
            Dialect::Postgres => {
                let mut tx = self.pool.begin().await?;
                let kind = (Lock::Files as i64) << 32;
                let lock: Query<'_, Any, AnyArguments> = match of {
                    FilesOf::Tenant(tenant) => sqlx::query(LOCK_TENANT).bind(kind).bind(to_sql(tenant.0)),
                    FilesOf::File(id) => sqlx::query(LOCK_OF_FILE).bind(kind).bind(id),
                    FilesOf::Upload(id) => sqlx::query(LOCK_OF_UPLOAD).bind(kind).bind(id),
                };
                lock.execute(&mut *tx).await?;
                Ok(tx)
            }
        }
    }

    /// Has a transaction that writes wait for further writers it could collide with. Where one waits for several kinds
    /// it does so in the order of [`Lock`].
    pub(crate) async fn wait_for_writers(&self, tx: &mut AnyConnection, lock: Lock) -> Result<(), Error> {
        // SQLite has one writer at a time.
        if self.dialect == Dialect::Postgres {
            sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(lock as i64).execute(tx).await?;
        }
        Ok(())
    }
}

/// WAL lets readers and one writer work side by side, across processes; `FULL` makes an acknowledged commit
/// survive a power failure too; the busy timeout (ms) is how long a writer waits for another.
const SQLITE_SETTINGS: &str = "PRAGMA busy_timeout = 5000; PRAGMA journal_mode = WAL; \
    PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;";

/// A lock does not outlive the call that took it or waits for it, where the database is not told of its end (a machine
/// without power, a broken network): a transaction that says nothing for longer than a call may take is ended, and a
/// wait for a lock that is longer fails. Statements themselves have no limit here: whoever brings a large schema up to
/// date opens the store with as much time as that takes, and both limits follow it.
fn postgres_settings(call_max: Millis) -> String {
    // To Postgres 0 is no limit, and so many milliseconds are the most.
    let ms = call_max.0.clamp(1, 2_147_483_647);
    format!("SET idle_in_transaction_session_timeout = {ms}; SET lock_timeout = {ms}")
}

/// Whether a connection has no transaction. SQLite ends one by itself where the disk is full or fails; the driver's
/// own end of it then fails too, and the driver counts it as open for as long as the connection lives.
fn is_at_rest(connection: &AnyConnection) -> bool {
    !connection.is_in_transaction()
}

/// Notes whether the database's file is still the one that was opened, and logs where that is news.
fn note_file(health: &StoreHealth, file: &OpenedFile, is_there: bool) {
    if !health.saw_file(is_there) {
        return;
    }
    let file = file.path().display();
    if is_there {
        tracing::warn!(%file, "the store's file is back in its place: what is written is kept again");
    } else {
        tracing::error!(
            %file,
            "THE STORE'S FILE IS GONE, or another one stands in its place. What was written into it is lost when this \
             server ends, so no tickets, batches or files are taken. Put the very file back while the server runs; or stop \
             the server, restore a backup, and start it again"
        );
    }
}

/// `call`, or a transient error after `span`.
pub(crate) async fn limit<T>(
    span: Duration,
    call: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    tokio::time::timeout(span, call)
        .await
        .unwrap_or_else(|_| Err(Error::Away(format!("no answer within {span:?}"))))
}

/// Reads the file's header and what tables it has. The pool itself takes any failure of a new connection for "not up
/// yet" and tries on, which would hide what is wrong with a file that is no database.
async fn check_is_database(address: &Address) -> Result<(), Error> {
    let mut connection = AnyConnection::connect(&address.to_url()).await?;
    connection.execute("SELECT COUNT(*) FROM sqlite_schema").await?;
    connection.close().await?;
    Ok(())
}

/// A database's address, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    Memory,
    File(PathBuf),
    Postgres(String),
}

impl Address {
    pub(crate) fn parse(url: &str) -> Result<Self, Error> {
        if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            return Ok(Self::Postgres(url.to_owned()));
        }
        let Some(path) = url.strip_prefix("sqlite:") else {
            // The scheme alone: the rest may hold a password.
            let scheme = url.split(':').next().unwrap_or_default();
            return Err(Error::Address(format!("`{scheme}` is neither `sqlite:` nor `postgres:`")));
        };
        if path == ":memory:" {
            return Ok(Self::Memory);
        }
        let path = path.strip_prefix("//").unwrap_or(path);
        if path.is_empty() || path.contains('?') {
            return Err(Error::Address(
                "`sqlite:` must be followed by a file's path, without parameters".into(),
            ));
        }
        let path =
            std::path::absolute(path).map_err(|source| Error::File { path: path.to_owned(), source })?;
        Ok(Self::File(path))
    }

    /// The address in sqlx's form: a path's odd bytes are percent-encoded.
    pub(crate) fn to_url(&self) -> String {
        match self {
            Self::Memory => "sqlite::memory:".to_owned(),
            Self::Postgres(url) => url.clone(),
            Self::File(path) => {
                let mut url = "sqlite://".to_owned();
                for byte in path.as_os_str().as_encoded_bytes() {
                    match byte {
                        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' => {
                            url.push(*byte as char)
                        }
                        other => url.push_str(&format!("%{other:02X}")),
                    }
                }
                url
            }
        }
    }
}

/// Makes the file where it is missing, for its owner's eyes alone; SQLite gives the WAL beside it the same
/// mode.
pub(crate) fn create_private(path: &Path) -> Result<(), Error> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    match options.open(path) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(source) => Err(Error::File { path: path.display().to_string(), source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::StoreOutage;

    #[test]
    fn addresses_are_understood_and_never_repeated_in_an_error() {
        assert_eq!(Address::parse("sqlite::memory:").ok(), Some(Address::Memory));
        assert_eq!(Address::parse("sqlite:/a/b.db").ok(), Some(Address::File("/a/b.db".into())));
        assert_eq!(Address::parse("sqlite:///a/b.db").ok(), Some(Address::File("/a/b.db".into())));
        assert!(matches!(Address::parse("postgres://u:secret@h/db"), Ok(Address::Postgres(_))));
        for bad in ["mysql://u:secret@h/db", "", "sqlite:", "sqlite:a.db?mode=ro"] {
            let error = Address::parse(bad).expect_err("refused").to_string();
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[tokio::test]
    async fn no_connection_is_made_to_a_file_that_took_the_databases_place() {
        let folder = tempfile::tempdir().expect("a folder");
        let [path, other] = ["a.db", "b.db"].map(|name| folder.path().join(name));
        let [url, others] = [&path, &other].map(|path| format!("sqlite:{}", path.display()));
        let another = Store::open(&others).await.expect("it opens");
        another.create_tenant("zeta", 1.0, UnixMillis(1)).await.expect("made");
        another.close().await;
        let options = StoreOptions { connections_max: 2, ..StoreOptions::default() };
        let store = Store::open_with(&url, options).await.expect("it opens");
        let acquire = async || store.pool().acquire().await.expect("there is one");
        let [mut first, second] = [acquire().await, acquire().await];
        std::fs::rename(&other, &path).expect("it takes its place");
        second.close().await.expect("closed");
        let is_told = async {
            while store.health().outage() != Some(StoreOutage::FileGone) {
                tokio::task::yield_now().await;
            }
        };
        // The read has to make a connection, and waits for one that it may have.
        tokio::select! {
            biased;
            read = store.tenants() => panic!("not of the database that was opened: {read:?}"),
            () = is_told => {}
        }
        let (tenants,): (i64,) =
            sqlx::query_as("SELECT COUNT(*) FROM tenants").fetch_one(&mut *first).await.expect("read");
        assert_eq!(tenants, 1, "the first one reads the database that was opened");
    }

    #[test]
    fn the_limits_of_postgres_follow_a_calls_and_are_never_none() {
        for (ms, limit) in [(0, 1), (15_000, 15_000), (u64::MAX, 2_147_483_647)] {
            let expected =
                format!("SET idle_in_transaction_session_timeout = {limit}; SET lock_timeout = {limit}");
            assert_eq!(postgres_settings(Millis(ms)), expected);
        }
    }

    #[test]
    fn odd_characters_of_a_path_are_encoded() {
        assert_eq!(Address::File("/a b/c#1%.db".into()).to_url(), "sqlite:///a%20b/c%231%25.db");
    }
}
