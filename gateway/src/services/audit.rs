//! Operators' changes, written down before they are made: nothing is changed that is not in the log, and no setting
//! switches that off.

use std::future::Future;

use serde_json::Value;
use serving::error::stored;
use store::NewAuditEntry;

use crate::auth::Operator;
use crate::error::ApiError;
use crate::state::App;

/// A change.
#[derive(Debug)]
pub(crate) struct Change<'a> {
    /// What is done: `key.create`.
    pub(crate) action: &'static str,
    /// To what: a tenant's name, a key's number.
    pub(crate) subject: &'a str,
    /// What was asked for; no secrets.
    pub(crate) details: Value,
}

/// Makes a change of an operator's once it stands in the log; then says there whether it was made.
///
/// # Errors
/// Those of the change; and nothing is changed where the log cannot be written.
pub(crate) async fn recorded<T, E>(
    app: &App,
    operator: &Operator,
    change: Change<'_>,
    make: impl Future<Output = Result<T, E>>,
) -> Result<T, ApiError>
where
    ApiError: From<E>,
{
    recorded_of(app, &operator.actor(), change, make).await
}

/// The same of an operator who comes without a key: by a signal.
///
/// # Errors
/// As [`recorded`].
pub(crate) async fn recorded_of<T, E>(
    app: &App,
    actor: &str,
    change: Change<'_>,
    make: impl Future<Output = Result<T, E>>,
) -> Result<T, ApiError>
where
    ApiError: From<E>,
{
    let Change { action, subject, details } = change;
    // Postgres takes no text with a NUL; no subject has one.
    let (subject, details) = (subject.replace('\0', "\u{fffd}"), details.to_string());
    let entry = NewAuditEntry { actor, action, subject: &subject, details: &details };
    let store = &app.runtime.store;
    let now = app.runtime.shared.unix_now();
    let id = stored(store.begin_audit(entry, now).await)?;
    let made = make.await;
    if let Err(error) = store.end_audit(id, made.is_ok()).await {
        tracing::warn!(%error, id, "the audit log does not know how a change ended");
    }
    Ok(made?)
}
