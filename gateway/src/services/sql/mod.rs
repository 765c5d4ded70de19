//! SQL: a tenant's statements, whose AI columns run as relQueries of class `dashboard`.

pub mod runner;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use actix_web::web::Data;
use base::TenantId;
use serving::caller::Caller;
use serving::error::RequestError;
use sql::{DataFusionError, Session};
use sql::registry::Registry;

use crate::state::App;

/// What all sessions share.
#[derive(Debug, Default)]
pub struct Sql {
    registries: Mutex<HashMap<TenantId, Arc<Registry>>>,
}

impl Sql {
    /// The queries of a tenant.
    pub fn registry(&self, tenant: TenantId) -> Arc<Registry> {
        let mut registries = self.registries.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        Arc::clone(registries.entry(tenant).or_default())
    }
}

/// A session of a caller, with the tables that it may read.
pub fn session(app: &Data<App>, caller: Caller) -> Session {
    Session::new(runner::Rows::new(app.clone(), caller), app.sql.registry(caller.tenant))
}

/// Sets a setting of a session.
pub async fn set(session: &Session, name: &str, value: &str) -> Result<(), RequestError> {
    let field = || format!("settings.{name}");
    if name.is_empty() || !name.chars().all(|letter| letter.is_ascii_alphanumeric() || "._".contains(letter)) {
        return Err(RequestError::invalid(field(), "must be a setting's name: letters, digits, `_` and `.`"));
    }
    let statement = format!("SET {name} = '{}'", value.replace('\'', "''"));
    let done = session.query(&statement).await;
    done.map(drop).map_err(|error| RequestError::invalid(field(), plain(&error)))
}

/// Why a statement has no result.
pub fn failed(error: DataFusionError) -> RequestError {
    match error.find_root() {
        DataFusionError::Internal(_) => serving::error::internal(error),
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
