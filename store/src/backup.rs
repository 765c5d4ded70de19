//! A copy of a database that is in use: what it held at one instant, however much is written meanwhile.
//!
//! Of a SQLite file alone. A Postgres server makes its copies itself (`pg_dump`).

use std::path::Path;

use sqlx::{AnyConnection, Connection as _};

use crate::error::Error;
use crate::open::{Address, Store, create_private};

impl Store {
    /// Copies the SQLite file at `url` into a new file, which its owner alone may read. Whoever has it open goes on: who
    /// reads a file with a WAL keeps no writer waiting. The schema is copied as it is, not brought up to date.
    ///
    /// # Errors
    /// [`Error::Missing`] where `url` names no file that is there.
    pub async fn copy_file(url: &str, copy: &Path) -> Result<(), Error> {
        let address = Address::parse(url)?;
        let Address::File(file) = &address else { return Err(Error::Missing("SQLite file")) };
        // To connect would make it.
        if !file.exists() {
            return Err(Error::Missing("SQLite file"));
        }
        let Some(target) = copy.to_str() else {
            return Err(Error::Address(format!("the copy's path `{}` is not UTF-8", copy.display())));
        };
        sqlx::any::install_default_drivers();
        // SQLite takes an empty file, and would make one that others may read.
        create_private(copy)?;
        let copied = async {
            let mut connection = AnyConnection::connect(&address.to_url()).await?;
            sqlx::query("VACUUM INTO $1").bind(target).execute(&mut connection).await?;
            connection.close().await
        };
        copied.await.map_err(|error| Error::from(error).of_file(Some(file)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_copy_has_what_was_committed_and_nothing_else_and_takes_no_file_that_is_there() {
        let folder = tempfile::tempdir().expect("a folder");
        let [file, copy] = ["a.db", "b.db"].map(|name| folder.path().join(name));
        let [url, copied] = [&file, &copy].map(|path| format!("sqlite:{}", path.display()));
        assert!(matches!(Store::copy_file(&url, &copy).await, Err(Error::Missing(_))));
        assert!(!copy.exists() && !file.exists(), "nothing was made");
        let store = Store::open(&url).await.expect("it opens");
        store.create_tenant("zeta", 1.0, crate::UnixMillis(1)).await.expect("made");
        let mut open = store.begin_write(crate::open::Lock::Counters).await.expect("it begins");
        sqlx::query("DELETE FROM tenants WHERE name = 'zeta'").execute(&mut *open).await.expect("deleted");
        Store::copy_file(&url, &copy).await.expect("a writer is in nobody's way");
        open.commit().await.expect("it ends");
        let names = Store::open(&copied).await.expect("it opens").tenants().await.expect("read");
        assert_eq!(names.iter().map(|tenant| tenant.name.as_str()).collect::<Vec<_>>(), ["default", "zeta"]);
        assert!(Store::copy_file(&url, &copy).await.is_err(), "a file that is there is not written over");
        assert!(Store::copy_file("sqlite::memory:", &copy).await.is_err());
    }
}
