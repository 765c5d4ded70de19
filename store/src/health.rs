//! Whether the database answers and takes what is written, as the calls of late found it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use base::{Bytes, Millis, Nanos, Time};

use crate::error::{Error, StoreOutage};

/// How long a disk is told as full after the last write that found no room. A small write often succeeds on a full disk,
/// in room that the database already has, so one that does says little; and an alert must have the time to see it.
const FULL_FOR: Millis = Millis(60_000);

/// Room of a disk that is none, and what ends that at once: a disk that was seen without room and has some.
const NO_ROOM: Bytes = Bytes(1 << 20);
const ROOM: Bytes = Bytes(4 << 20);

/// When a write was last known to have found no room.
#[derive(Clone, Copy, Debug, Default)]
struct LastFull {
    /// Such writes, when they were last looked at.
    writes: u64,
    /// When there were first so many.
    seen: Time,
    /// Whether the disk was seen without room since.
    had_no_room: bool,
}

impl LastFull {
    /// With what is known now. Only who tries to write has a clock, so the instant is that of the first try since.
    fn at(self, writes: u64, now: Time, free: Option<Bytes>) -> Self {
        let last = if writes == self.writes { self } else { Self { writes, seen: now, had_no_room: false } };
        Self { had_no_room: last.had_no_room || free.is_some_and(|free| free < NO_ROOM), ..last }
    }

    /// Whether that is long ago, or the disk, which was seen without room, has some.
    fn is_over(self, now: Time, free: Option<Bytes>) -> bool {
        let has_room = free.is_some_and(|free| free >= ROOM);
        now.since(self.seen) >= Nanos::from(FULL_FOR) || (self.had_no_room && has_room)
    }
}

/// What calls of a store came to. Shared by all clones of it.
#[derive(Debug, Default)]
pub struct StoreHealth {
    is_away: AtomicBool,
    is_unwritable: AtomicBool,
    is_full: AtomicBool,
    is_file_gone: AtomicBool,
    /// Writes that found no room.
    full_writes: AtomicU64,
    last_full: Mutex<LastFull>,
    away: AtomicU64,
    unwritable: AtomicU64,
    disk_full: AtomicU64,
    file_gone: AtomicU64,
    failed: AtomicU64,
}

/// Calls that failed, by what was to blame, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreErrors {
    /// The database did not answer in time.
    pub away: u64,
    /// It took nothing, though its disk has room.
    pub unwritable: u64,
    /// Its disk had no room, or that of the temporary files of a read.
    pub disk_full: u64,
    /// Its file was gone, and they were refused; and each time that it went.
    pub file_gone: u64,
    /// It refused the call itself, or what it holds is broken: trying again does not help.
    pub failed: u64,
}

impl StoreHealth {
    /// What is wrong now. Any call that is answered ends [`StoreOutage::Away`]; only
    /// [`Store::try_to_write`](crate::Store::try_to_write) ends the others: many a call that could write has nothing
    /// to. [`StoreOutage::DiskFull`] ends a minute after the last write that found no room, or once a disk that was seen
    /// without room has some. [`StoreOutage::FileGone`] ends when [`Store::look_at_file`](crate::Store::look_at_file) finds
    /// the very file, and is told before all others, which come of it.
    pub fn outage(&self) -> Option<StoreOutage> {
        if self.is_file_gone() {
            return Some(StoreOutage::FileGone);
        }
        if self.is_away() {
            return Some(StoreOutage::Away);
        }
        if self.is_full.load(Ordering::Relaxed) {
            return Some(StoreOutage::DiskFull);
        }
        self.is_unwritable.load(Ordering::Relaxed).then_some(StoreOutage::Unwritable)
    }

    /// Whether it did not answer the last time that it was asked, whatever else is wrong.
    pub fn is_away(&self) -> bool {
        self.is_away.load(Ordering::Relaxed)
    }

    /// Whether its file was gone when it was last looked at.
    pub(crate) fn is_file_gone(&self) -> bool {
        self.is_file_gone.load(Ordering::Relaxed)
    }

    /// Its file was looked at. Whether that is another state than before.
    pub(crate) fn saw_file(&self, is_there: bool) -> bool {
        let is_news = self.is_file_gone.swap(!is_there, Ordering::Relaxed) == is_there;
        if is_news && !is_there {
            self.file_gone.fetch_add(1, Ordering::Relaxed);
        }
        is_news
    }

    /// How many calls failed.
    pub fn errors(&self) -> StoreErrors {
        StoreErrors {
            away: self.away.load(Ordering::Relaxed),
            unwritable: self.unwritable.load(Ordering::Relaxed),
            disk_full: self.disk_full.load(Ordering::Relaxed),
            file_gone: self.file_gone.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
        }
    }

    /// A call ended. What the caller asked wrongly (a name that is taken, a thing that is missing) says nothing of
    /// the database but that it answers.
    pub(crate) fn called<T>(&self, result: &Result<T, Error>) {
        match result {
            Err(Error::Away(_)) => {
                self.away.fetch_add(1, Ordering::Relaxed);
                self.is_away.store(true, Ordering::Relaxed);
            }
            Err(Error::Unwritable(_)) => {
                self.unwritable.fetch_add(1, Ordering::Relaxed);
                self.is_unwritable.store(true, Ordering::Relaxed);
                self.is_full.store(false, Ordering::Relaxed);
                self.is_away.store(false, Ordering::Relaxed);
            }
            Err(Error::DiskFull(_)) => {
                self.disk_full.fetch_add(1, Ordering::Relaxed);
                self.full_writes.fetch_add(1, Ordering::Relaxed);
                self.is_full.store(true, Ordering::Relaxed);
                self.is_unwritable.store(false, Ordering::Relaxed);
                self.is_away.store(false, Ordering::Relaxed);
            }
            // It was not asked.
            Err(Error::FileGone(_)) => {
                self.file_gone.fetch_add(1, Ordering::Relaxed);
            }
            Err(Error::Sql(_) | Error::Broken { .. } | Error::Damaged { .. }) => {
                self.failed.fetch_add(1, Ordering::Relaxed);
                self.is_away.store(false, Ordering::Relaxed);
            }
            _ => self.is_away.store(false, Ordering::Relaxed),
        }
    }

    /// A call ended that only reads. One that finds no room has none for its temporary files (a sort writes some), which
    /// need not lie on the disk of the database: it says nothing of writes. One that cannot open a file that is gone has no
    /// answer.
    pub(crate) fn read<T>(&self, result: &Result<T, Error>) {
        match result {
            Err(Error::DiskFull(_)) => {
                self.disk_full.fetch_add(1, Ordering::Relaxed);
                self.is_away.store(false, Ordering::Relaxed);
            }
            Err(Error::Unwritable(_)) if self.is_file_gone() => {
                self.unwritable.fetch_add(1, Ordering::Relaxed);
                self.is_away.store(true, Ordering::Relaxed);
            }
            other => self.called(other),
        }
    }

    /// Something was written to try it, at `now`: whether it lasts or not. What had room once may have no more. `free`:
    /// the room of its disk, where that is here.
    pub(crate) fn tried_to_write(&self, is_written: bool, now: Time, free: Option<Bytes>) {
        let writes = self.full_writes.load(Ordering::Relaxed);
        let mut last = self.last_full.lock().unwrap_or_else(PoisonError::into_inner);
        *last = last.at(writes, now, free);
        if is_written {
            self.is_unwritable.store(false, Ordering::Relaxed);
            if last.is_over(now, free) {
                self.is_full.store(false, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Store, StoreOptions, UnixMillis};

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_read_that_works_does_not_end_what_keeps_writes_away() {
        let health = StoreHealth::default();
        assert_eq!(health.outage(), None);
        health.called(&Err::<(), _>(Error::Unwritable("read-only".into())));
        health.called(&Ok(()));
        assert_eq!(health.outage(), Some(StoreOutage::Unwritable));
        health.called(&Err::<(), _>(Error::Away("gone".into())));
        assert_eq!(health.outage(), Some(StoreOutage::Away));
        health.called(&Err::<(), _>(Error::Missing("tenant")));
        assert_eq!(health.outage(), Some(StoreOutage::Unwritable), "it answered");
        health.tried_to_write(true, Time(1), None);
        assert_eq!(health.outage(), None);
        assert_eq!(health.errors(), StoreErrors { away: 1, unwritable: 1, ..StoreErrors::default() });
    }

    #[test]
    fn what_keeps_writes_away_is_what_the_last_write_met() {
        let health = StoreHealth::default();
        for (error, outage) in [
            (Error::DiskFull("full".into()), StoreOutage::DiskFull),
            (Error::Unwritable("read-only".into()), StoreOutage::Unwritable),
            (Error::DiskFull("full".into()), StoreOutage::DiskFull),
        ] {
            health.called(&Err::<(), _>(error));
            health.called(&Ok(()));
            assert_eq!(health.outage(), Some(outage));
        }
        health.tried_to_write(false, Time(0), None);
        health.tried_to_write(true, Time(60 * SECOND), None);
        assert_eq!(health.outage(), None);
        assert_eq!(health.errors(), StoreErrors { unwritable: 1, disk_full: 2, ..StoreErrors::default() });
    }

    #[test]
    fn a_full_disk_is_told_until_no_write_has_found_it_full_for_a_minute() {
        let health = StoreHealth::default();
        let full = || health.called(&Err::<(), _>(Error::DiskFull("full".into())));
        let try_at = |second: u64| {
            health.tried_to_write(true, Time(second * SECOND), None);
            health.outage()
        };
        full();
        // Small writes succeed between those that find no room.
        for second in [1_000, 1_001, 1_030, 1_059] {
            assert_eq!(try_at(second), Some(StoreOutage::DiskFull), "{second}");
        }
        full();
        for second in [1_060, 1_090, 1_119] {
            assert_eq!(try_at(second), Some(StoreOutage::DiskFull), "{second}");
        }
        assert_eq!(try_at(1_120), None);
        assert_eq!(try_at(1_121), None);
        full();
        assert_eq!(try_at(2_000), Some(StoreOutage::DiskFull), "it is full again");
    }

    #[test]
    fn a_disk_that_was_seen_without_room_is_full_until_it_has_some() {
        let health = StoreHealth::default();
        let full = || health.called(&Err::<(), _>(Error::DiskFull("full".into())));
        let try_with = |free: u64| {
            health.tried_to_write(true, Time(0), Some(Bytes(free)));
            health.outage()
        };
        full();
        assert_eq!(try_with(1 << 40), Some(StoreOutage::DiskFull), "a limit of another kind");
        assert_eq!(try_with(4_096), Some(StoreOutage::DiskFull));
        assert_eq!(try_with(2 << 20), Some(StoreOutage::DiskFull), "too little");
        assert_eq!(try_with(4 << 20), None);
        full();
        assert_eq!(try_with(1 << 40), Some(StoreOutage::DiskFull), "it was not seen without room since");
    }

    #[test]
    fn a_read_without_room_for_its_temporary_files_says_nothing_of_writes() {
        let health = StoreHealth::default();
        health.read(&Err::<(), _>(Error::Away("gone".into())));
        assert_eq!(health.outage(), Some(StoreOutage::Away));
        health.read(&Err::<(), _>(Error::DiskFull("13".into())));
        assert_eq!(health.outage(), None, "it answered");
        assert_eq!(health.errors(), StoreErrors { away: 1, disk_full: 1, ..StoreErrors::default() });
    }

    #[test]
    fn a_file_that_is_gone_is_told_once_and_before_all_that_comes_of_it() {
        let health = StoreHealth::default();
        assert!(!health.saw_file(true), "as ever");
        assert!(health.saw_file(false));
        assert!(!health.saw_file(false), "that is no news");
        health.called(&Ok(()));
        health.called(&Err::<(), _>(Error::FileGone("a.db".into())));
        assert_eq!((health.outage(), health.is_away()), (Some(StoreOutage::FileGone), false));
        health.read(&Err::<(), _>(Error::Unwritable("14".into())));
        assert!(health.is_away(), "it cannot be opened again to be read");
        assert_eq!(health.outage(), Some(StoreOutage::FileGone));
        health.read(&Ok(()));
        assert!(!health.is_away());
        health.tried_to_write(true, Time(60 * SECOND), None);
        assert_eq!(
            health.outage(),
            Some(StoreOutage::FileGone),
            "a write that works says nothing of the file"
        );
        assert!(health.saw_file(true));
        assert_eq!(health.outage(), None);
        assert_eq!(health.errors(), StoreErrors { unwritable: 1, file_gone: 2, ..StoreErrors::default() });
    }

    #[tokio::test]
    async fn a_database_without_room_says_so_until_it_has_some() {
        let folder = tempfile::tempdir().expect("a folder");
        let url = format!("sqlite:{}", folder.path().join("store.db").display());
        let options = StoreOptions { connections_max: 1, ..StoreOptions::default() };
        let store = Store::open_with(&url, options).await.expect("it opens");
        let limit = async |pages: u32| {
            // To SQLite it is what a full disk is, for as long as the one connection lives.
            let sql = sqlx::AssertSqlSafe(format!("PRAGMA max_page_count = {pages}"));
            sqlx::query(sql).execute(store.pool()).await.expect("it is set");
        };
        // That means as many as there are.
        limit(1).await;
        let mut number = 0;
        let error = loop {
            let name = format!("{number} {}", "x".repeat(4_000));
            let made = store.create_tenant(&name, 1.0, UnixMillis(0)).await;
            number += 1;
            assert!(number < 10_000, "there is always room");
            if let Err(error) = made {
                break error;
            }
        };
        assert_eq!(error.outage(), Some(StoreOutage::DiskFull), "{error}");
        assert_eq!(store.health().outage(), Some(StoreOutage::DiskFull));
        assert!(!store.tenants().await.expect("it is read").is_empty());
        assert_eq!(store.health().outage(), Some(StoreOutage::DiskFull), "a read says nothing of room");
        store.try_to_write(Time(0)).await.expect("it needs no more room than there is");
        assert_eq!(store.health().outage(), Some(StoreOutage::DiskFull));
        limit(1_000_000).await;
        store.try_to_write(Time(59 * SECOND)).await.expect("there is room");
        assert_eq!(store.health().outage(), Some(StoreOutage::DiskFull), "it is not long ago");
        store.try_to_write(Time(60 * SECOND)).await.expect("there is room");
        assert_eq!(store.health().outage(), None);
    }
}
