//! The transaction of a connection.

use pgwire::messages::response::TransactionStatus;

use super::{Backend, Outcome, limit};
use crate::server::command::{Modes, SessionCommand};
use crate::server::error::{SqlError, code};
use crate::server::settings::Settings;

/// The transaction: nothing is ever rolled back, but its states are those that clients rely on.
#[derive(Debug)]
pub(in crate::server) struct Transaction {
    pub(in crate::server) status: TransactionStatus,
    is_read_only: bool,
    savepoints: Vec<String>,
    /// Settings before the transaction, which `SET LOCAL` and a rollback return to.
    before: Option<Settings>,
    /// What `SET LOCAL` set.
    pub(super) local: Vec<String>,
}

impl Default for Transaction {
    fn default() -> Self {
        Self {
            status: TransactionStatus::Idle,
            is_read_only: false,
            savepoints: Vec::new(),
            before: None,
            local: Vec::new(),
        }
    }
}

impl Backend {
    /// An error ends what was open, and fails the transaction.
    pub(in crate::server) fn fail(&mut self) {
        self.portals.clear();
        if self.transaction.status == TransactionStatus::Transaction {
            self.transaction.status = TransactionStatus::Error;
        }
    }

    /// Refuses statements in a transaction that has failed.
    pub(in crate::server) fn check_transaction(&self, command: &SessionCommand) -> Result<(), SqlError> {
        if self.transaction.status == TransactionStatus::Error && !command.ends_failure() {
            let message = "current transaction is aborted, commands ignored until end of transaction block";
            return Err(SqlError::new(code::IN_FAILED_TRANSACTION, message));
        }
        Ok(())
    }

    pub(super) fn begin(&mut self, modes: &Modes) -> Result<Outcome, SqlError> {
        if self.transaction.status != TransactionStatus::Idle {
            // As in Postgres, the one that is there goes on.
            return Ok(Outcome::Done("BEGIN".to_owned()));
        }
        let is_read_only = self.is_read_only();
        let before = self.settings().clone();
        self.transaction = Transaction {
            status: TransactionStatus::Transaction,
            is_read_only,
            before: Some(before),
            ..Transaction::default()
        };
        self.note(modes);
        Ok(Outcome::Done("BEGIN".to_owned()))
    }

    /// `COMMIT`: a transaction that has failed is rolled back all the same.
    pub(super) fn commit(&mut self) -> Outcome {
        if self.transaction.status == TransactionStatus::Error {
            return self.roll_back();
        }
        self.end(true);
        Outcome::Done("COMMIT".to_owned())
    }

    pub(super) fn roll_back(&mut self) -> Outcome {
        self.end(false);
        Outcome::Done("ROLLBACK".to_owned())
    }

    /// Ends the transaction, and the cursors that do not outlive it.
    fn end(&mut self, is_committed: bool) {
        let transaction = std::mem::take(&mut self.transaction);
        self.portals.clear();
        self.cursors.retain(|_, cursor| cursor.is_held);
        let mut settings = self.settings();
        if let Some(before) = transaction.before {
            if is_committed {
                for name in transaction.local {
                    let value = before.get(&name).unwrap_or_default();
                    settings.note(&name, value);
                }
            } else {
                *settings = before;
            }
        }
        let isolation = settings.get("default_transaction_isolation").unwrap_or_default().to_owned();
        let is_read_only = settings.get("default_transaction_read_only").unwrap_or_default().to_owned();
        settings.note("transaction_isolation", &isolation);
        settings.note("transaction_read_only", &is_read_only);
        drop(settings);
        self.follow_settings();
    }

    /// Keeps what a transaction is to be like; all levels of isolation are alike where nothing is written
    /// twice.
    fn note(&mut self, modes: &Modes) {
        if let Some(is_read_only) = modes.is_read_only {
            self.transaction.is_read_only = is_read_only;
        }
        let is_read_only = if self.transaction.is_read_only { "on" } else { "off" };
        let mut settings = self.settings();
        settings.note("transaction_read_only", is_read_only);
        if let Some(isolation) = &modes.isolation {
            settings.note("transaction_isolation", isolation);
        }
    }

    pub(super) fn set_transaction(&mut self, modes: &Modes, is_session: bool) -> Result<Outcome, SqlError> {
        if is_session {
            let mut settings = self.settings();
            if let Some(is_read_only) = modes.is_read_only {
                let value = if is_read_only { "on" } else { "off" };
                settings.set("default_transaction_read_only", Some(value))?;
                settings.note("transaction_read_only", value);
            }
            if let Some(isolation) = &modes.isolation {
                settings.set("default_transaction_isolation", Some(isolation))?;
                settings.note("transaction_isolation", isolation);
            }
        } else if self.transaction.status != TransactionStatus::Idle {
            self.note(modes);
        }
        Ok(Outcome::Done("SET".to_owned()))
    }

    pub(in crate::server) fn require_transaction(&self, what: &str) -> Result<(), SqlError> {
        match self.transaction.status {
            TransactionStatus::Idle => Err(SqlError::new(
                code::NO_ACTIVE_TRANSACTION,
                format!("{what} can only be used in transaction blocks"),
            )),
            _ => Ok(()),
        }
    }

    pub(super) fn set_savepoint(&mut self, name: &str) -> Result<Outcome, SqlError> {
        self.require_transaction("SAVEPOINT")?;
        limit("number of savepoints", self.transaction.savepoints.len(), self.limits.cursors_max)?;
        self.transaction.savepoints.push(name.to_owned());
        Ok(Outcome::Done("SAVEPOINT".to_owned()))
    }

    pub(super) fn release(&mut self, name: &str) -> Result<Outcome, SqlError> {
        self.require_transaction("RELEASE SAVEPOINT")?;
        let place = self.savepoint(name)?;
        self.transaction.savepoints.truncate(place);
        Ok(Outcome::Done("RELEASE".to_owned()))
    }

    /// `ROLLBACK TO`: the savepoint stays, and a transaction that has failed goes on behind it.
    pub(super) fn roll_back_to(&mut self, name: &str) -> Result<Outcome, SqlError> {
        self.require_transaction("ROLLBACK TO SAVEPOINT")?;
        let place = self.savepoint(name)?;
        self.transaction.savepoints.truncate(place + 1);
        self.transaction.status = TransactionStatus::Transaction;
        Ok(Outcome::Done("ROLLBACK".to_owned()))
    }

    fn savepoint(&self, name: &str) -> Result<usize, SqlError> {
        let place = self.transaction.savepoints.iter().rposition(|savepoint| savepoint == name);
        place.ok_or_else(|| SqlError::new("3B001", format!("savepoint \"{name}\" does not exist")))
    }

    fn is_read_only(&self) -> bool {
        if self.session.only_reads_tables() {
            return true;
        }
        match self.transaction.status {
            TransactionStatus::Idle => self.settings().get("default_transaction_read_only") == Some("on"),
            _ => self.transaction.is_read_only,
        }
    }

    pub(super) fn require_writable(&self, what: &str) -> Result<(), SqlError> {
        if self.is_read_only() {
            let message = format!("cannot execute {what} in a read-only transaction");
            return Err(SqlError::new(code::READ_ONLY, message));
        }
        Ok(())
    }
}
