//! SQL: a tenant's statements, whose AI columns run as relQueries of class `dashboard`.

pub mod accounts;
pub mod runner;
mod search;
pub mod tenants;

use actix_web::web::Data;
use serving::caller::Caller;
use serving::error::{RequestError, internal};
use sql::{DataFusionError, Session};

use crate::state::App;

/// A session of a caller, with the tables that it may read.
pub async fn session(app: &Data<App>, caller: Caller) -> Result<Session, RequestError> {
    let clock = app.runtime.shared.clock;
    let tables = app.sql.tables(&app.config, clock, caller.tenant).await.map_err(|error| match error {
        DataFusionError::IoError(error) => internal(error),
        error => RequestError::invalid("sql.sources", plain(&error)),
    })?;
    let session = Session::new(runner::Rows::new(app.clone(), caller), app.sql.registry(caller.tenant));
    tables.install(session.context()).map_err(internal)?;
    Ok(session)
}

/// Sets a setting of a session.
pub async fn set(session: &Session, name: &str, value: &str) -> Result<(), RequestError> {
    let field = || format!("settings.{name}");
    if name.is_empty() || !name.chars().all(|letter| letter.is_ascii_alphanumeric() || "._".contains(letter))
    {
        return Err(RequestError::invalid(field(), "must be a setting's name: letters, digits, `_` and `.`"));
    }
    let statement = format!("SET {name} = '{}'", value.replace('\'', "''"));
    let done = session.query(&statement).await;
    done.map(drop).map_err(|error| RequestError::invalid(field(), plain(&error)))
}

/// Why a statement has no result.
pub fn failed(error: DataFusionError) -> RequestError {
    match error.find_root() {
        DataFusionError::Internal(_) => internal(error),
        DataFusionError::ResourcesExhausted(reason) => {
            RequestError::TooLarge { what: "the statement's memory".into(), limit: reason.clone() }
        }
        _ => RequestError::invalid("query", plain(&error)),
    }
}

/// An error's cause, without the names of rules that it passed.
fn plain(error: &DataFusionError) -> String {
    error.find_root().strip_backtrace()
}
