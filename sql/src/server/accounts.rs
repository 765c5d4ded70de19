//! Who may connect, and what they get: implemented by whoever has tenants, keys and tables.

use std::fmt::Debug;

use futures_util::future::BoxFuture;

use super::scram::Verifier;
use crate::Session;

/// How a user proves who it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Login {
    /// Not at all: a server without keys.
    Open,
    /// By SCRAM-SHA-256 against a verifier that was made with the key.
    Scram(Verifier),
    /// By the key itself, which [`Accounts::accepts`] checks: for names of several keys, and for keys that
    /// have no verifier. The server asks for it only over TLS or from this machine.
    ClearText,
}

/// Why an account cannot be looked up or opened, or is open no longer; the client is told.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccountError {
    #[error("{0}")]
    Unavailable(String),
    /// Its key may not open a session.
    #[error("{0}")]
    Denied(String),
}

/// Users of the Postgres protocol. The password is an API key; the user name says whose key it is. A name
/// that has a verifier is one key's.
pub trait Accounts: Debug + Send + Sync + 'static {
    /// How the user proves who it is; `None` where nobody has that name.
    fn login<'a>(&'a self, user: &'a str) -> BoxFuture<'a, Result<Option<Login>, AccountError>>;

    /// The name of the one key that a user sent as it is; `None` where it is no key of the user's.
    fn accepts<'a>(
        &'a self,
        user: &'a str,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Option<String>, AccountError>>;

    /// A session for a new connection of the user, with its tables. After a login in clear text, `user` is
    /// the name of the key.
    fn session<'a>(&'a self, user: &'a str) -> BoxFuture<'a, Result<Session, AccountError>>;

    /// Returns when the user that a session was opened for may be connected no longer, and says why.
    fn ended<'a>(&'a self, user: &'a str) -> BoxFuture<'a, AccountError>;
}
