//! SQL: a tenant's statements, whose AI columns run as relQueries of class `dashboard`.

pub mod accounts;
pub mod budgets;
pub mod kept_answers;
mod reserved;
pub mod runner;
pub mod running;
mod search;
pub mod tenants;
pub mod tickets;
pub mod uploads;

use std::sync::Arc;

use actix_web::web::Data;
use serving::caller::Caller;
use serving::error::{RequestError, internal};
use sql::access::AccessDenied;
use sql::budget::BudgetSpent;
use sql::runner::RunError;
use sql::{DataFusionError, Session, SessionAccess, SessionPolicy, reason};

use self::kept_answers::KeptAnswers;
use crate::state::App;

/// A session of a caller, with the tables of its tenant, of which it may read what its key may. `kept`: where the answers of
/// its statement are kept, if that may have a ticket.
pub async fn session(
    app: &Data<App>,
    caller: Caller,
    access: SessionAccess,
    kept: Option<&Arc<KeptAnswers>>,
) -> Result<Session, RequestError> {
    let tables =
        app.sql.tables(&app.runtime, &app.config, caller.tenant).await.map_err(|error| match error {
            DataFusionError::IoError(error) => internal(error),
            error => RequestError::invalid("sql.sources", reason(&error)),
        })?;
    let policy = SessionPolicy {
        budget: app.sql.budgets.of(&app.runtime, &app.config.sql, caller.tenant).await?,
        scans: app.config.sql.scanning_tools().map_err(internal)?,
        access,
    };
    let runner = runner::Rows::new(app.clone(), caller, kept.cloned());
    let session = Session::new(runner, app.sql.registry(caller.tenant));
    let session = session.with_policy(policy);
    tables.install(session.context()).map_err(internal)?;
    session.restore_views().await.map_err(internal)?;
    Ok(session)
}

/// Sets a setting of a session.
pub async fn set(session: &Session, name: &str, value: &str) -> Result<(), RequestError> {
    let done = session.set(name, value).await;
    done.map_err(|error| {
        let reason = reason(&error);
        // The field names it.
        let own = reason.strip_prefix(&format!("{name} ")).unwrap_or(&reason);
        RequestError::invalid(format!("settings.{name}"), own)
    })
}

/// Why a statement has no result.
pub fn failed(error: DataFusionError) -> RequestError {
    if let Some(AccessDenied(scope)) = AccessDenied::of(&error) {
        return RequestError::OutOfScope(scope.clone());
    }
    if let Some(cause) = RunError::cause_of::<RequestError>(&error) {
        return cause.clone();
    }
    if let Some(spent) = BudgetSpent::of(&error) {
        return RequestError::StatementBudget { reason: spent.to_string(), retry_after: None };
    }
    match error.find_root() {
        DataFusionError::Internal(_) => internal(error),
        DataFusionError::ResourcesExhausted(limit) => {
            RequestError::TooLarge { what: "the statement's memory".into(), limit: limit.clone() }
        }
        _ => RequestError::invalid("query", reason(&error)),
    }
}
