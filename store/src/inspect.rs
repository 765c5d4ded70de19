//! What stands at a database's address, looked at without making or changing anything.

use std::path::PathBuf;
use std::time::Duration;

use base::Millis;
use sqlx::{AnyConnection, Connection};

use crate::error::Error;
use crate::migrate;
use crate::open::{Address, Store, StoreOptions, limit};

/// Whether a database has a table `schema_version`.
const SQLITE_TABLES: &str =
    "SELECT COUNT(*) FROM sqlite_master WHERE type = 'table' AND name = 'schema_version'";
const POSTGRES_TABLES: &str = "SELECT COUNT(*) FROM information_schema.tables \
    WHERE table_schema = ANY (current_schemas(false)) AND table_name = 'schema_version'";

/// What [`Store::inspect`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspection {
    /// The database, in words that hold no password: a file's whole path, or a host and a database's name.
    pub shown: String,
    /// The file, where it is one.
    pub file: Option<PathBuf>,
    /// Whether it is a server's, which copies it by its own means.
    pub is_server: bool,
    /// The version of its schema; `None` where there is no database, or an empty one.
    pub schema: Option<i64>,
}

impl Inspection {
    /// Whether [`Store::open`] would bring an older schema up to date.
    pub fn is_older(&self) -> bool {
        self.schema.is_some_and(|schema| schema < migrate::SCHEMA_VERSION)
    }
}

impl Store {
    /// Looks at a database without opening it as a store: no file, table or upgrade comes of it.
    ///
    /// # Errors
    /// A wrong address, a database that does not answer or is none, and [`Error::Newer`].
    pub async fn inspect(url: &str) -> Result<Inspection, Error> {
        let address = Address::parse(url)?;
        let Millis(call_ms) = StoreOptions::default().call_ms_max;
        let schema = limit(Duration::from_millis(call_ms), schema_of(&address)).await?;
        if let Some(found) = schema.filter(|found| *found > migrate::SCHEMA_VERSION) {
            return Err(Error::Newer { found, known: migrate::SCHEMA_VERSION });
        }
        let file = match &address {
            Address::File(path) => Some(path.clone()),
            Address::Memory | Address::Postgres(_) => None,
        };
        let is_server = matches!(address, Address::Postgres(_));
        Ok(Inspection { shown: Self::shown(url)?, file, is_server, schema })
    }

    /// A database's address in words that hold no password.
    ///
    /// # Errors
    /// An address that is none of [`Store::open`]'s.
    pub fn shown(url: &str) -> Result<String, Error> {
        Ok(match Address::parse(url)? {
            Address::Memory => "sqlite::memory:".to_owned(),
            Address::File(path) => path.display().to_string(),
            Address::Postgres(url) => without_secrets(&url),
        })
    }
}

/// The version of a database's schema, where it has one.
async fn schema_of(address: &Address) -> Result<Option<i64>, Error> {
    let tables = match address {
        Address::Memory => return Ok(None),
        // To connect would make the file.
        Address::File(path) if !path.exists() => return Ok(None),
        Address::File(_) => SQLITE_TABLES,
        Address::Postgres(_) => POSTGRES_TABLES,
    };
    sqlx::any::install_default_drivers();
    let mut connection = AnyConnection::connect(&address.to_url()).await?;
    let (count,): (i64,) = sqlx::query_as(tables).fetch_one(&mut connection).await?;
    let schema = if count == 0 {
        None
    } else {
        let sql = "SELECT COALESCE(MAX(version), 0) FROM schema_version";
        let (version,): (i64,) = sqlx::query_as(sql).fetch_one(&mut connection).await?;
        Some(version)
    };
    connection.close().await?;
    Ok(schema)
}

/// An address without its user, password and parameters.
fn without_secrets(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("postgres", url));
    let shown = rest.split(['?', '#']).next().unwrap_or_default();
    let host = match shown.rsplit_once('@') {
        Some((_, host)) => host,
        // A password that holds one of these marks, which an address must not: what stands before it is a part of it.
        None if rest.contains('@') => "...",
        None => shown,
    };
    format!("{scheme}://{host}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_database_is_looked_at_and_not_made() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.db");
        let url = format!("sqlite://{}", path.display());
        let absent = Store::inspect(&url).await.expect("it may be absent");
        assert_eq!((absent.schema, absent.file.as_deref()), (None, Some(path.as_path())));
        assert_eq!(absent.shown, path.display().to_string());
        assert!(!path.exists());
        std::fs::write(&path, "").expect("it can be written");
        assert_eq!(Store::inspect(&url).await.expect("an empty file is an empty database").schema, None);
        Store::open(&url).await.expect("it opens").close().await;
        let made = Store::inspect(&url).await.expect("it is there");
        assert_eq!(made.schema, Some(migrate::SCHEMA_VERSION));
        assert!(!made.is_older());
        std::fs::write(&path, "no database ".repeat(20)).expect("it can be written");
        assert!(Store::inspect(&url).await.is_err());
    }

    #[test]
    fn an_address_is_shown_without_its_password() {
        let shown = |url: &str| Store::shown(url).expect("an address");
        assert_eq!(shown("postgres://me:se@cret@host:5432/shop?password=x"), "postgres://host:5432/shop");
        assert_eq!(shown("postgresql://host/shop"), "postgresql://host/shop");
        for url in ["postgres://me:se?cret@host/shop", "postgres://me:se#cret@host/shop"] {
            assert_eq!(shown(url), "postgres://...");
        }
        let error = Store::shown("mysql://me:secret@host/shop").expect_err("no such scheme").to_string();
        assert!(!error.contains("secret"), "{error}");
    }
}
