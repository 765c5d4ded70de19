//! What Postgres' clients expect to find: a database of the name that they connect to, `pg_catalog` (from
//! `datafusion-pg-catalog`, mended by [`tables`]), `information_schema` as Postgres has it, and functions
//! about the server, the session and its settings.

mod functions;
mod tables;

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use datafusion::catalog::MemoryCatalogProviderList;
use datafusion::catalog::information_schema::InformationSchemaProvider;
use datafusion::catalog::{CatalogProviderList, SchemaProvider};
use datafusion::common::{Result, exec_err};
use datafusion::execution::SessionStateBuilder;
use datafusion::prelude::SessionContext;
use datafusion_pg_catalog::pg_catalog::context::{PgCatalogContextProvider, Role};
use datafusion_pg_catalog::setup_pg_catalog;

use super::settings::Settings;
use crate::tables::temporary;
pub(super) use tables::{is_empty, is_table};

/// Gives a session the catalogue and the functions; its tables are those of `database` then.
pub(super) fn install(
    context: &SessionContext,
    user: &str,
    database: &str,
    pid: i32,
    settings: &Arc<Mutex<Settings>>,
) -> Result<()> {
    rename(context, database)?;
    setup_pg_catalog(context, database, User(user.to_owned())).map_err(|error| *error)?;
    functions::register(context, user, pid, settings);
    let Some(catalog) = context.catalog(database) else {
        return exec_err!("the database `{database}` is not there");
    };
    let Some(base) = catalog.schema("pg_catalog") else { return exec_err!("there is no pg_catalog") };
    let weak = context.state_weak_ref();
    let state: tables::StateOf = Arc::new(move || weak.upgrade().map(|state| state.read().clone()));
    let settings = Arc::clone(settings);
    let (contents, own) = (tables::PG_CATALOG, Arc::clone(&state));
    let pg_catalog = tables::SystemSchema::new(contents, base, own, Arc::clone(&settings));
    catalog.register_schema("pg_catalog", Arc::new(pg_catalog))?;
    let catalogs = Arc::clone(context.state().catalog_list());
    let base: Arc<dyn SchemaProvider> = Arc::new(InformationSchemaProvider::new(catalogs));
    let information = tables::SystemSchema::new(tables::INFORMATION, base, state, settings);
    catalog.register_schema("information_schema", Arc::new(information))?;
    Ok(())
}

/// Lets go what a session holds: its catalogue tables hold the catalogue that they are in, and nothing of it
/// would end with the connection.
pub(super) fn release(context: &SessionContext) {
    temporary::discard(context);
    for catalog in context.catalog_names().iter().filter_map(|name| context.catalog(name)) {
        for schema in ["pg_catalog", "information_schema"] {
            // Where there is none, there is nothing to let go.
            let _ = catalog.deregister_schema(schema, true);
        }
    }
}

/// Makes a session's one catalogue the database of this name: clients write its name before a schema's.
fn rename(context: &SessionContext, database: &str) -> Result<()> {
    let state = context.state_ref();
    let mut state = state.write();
    let before = &state.config_options().catalog.default_catalog;
    let Some(catalog) = state.catalog_list().catalog(before) else {
        return exec_err!("the session has no catalogue `{before}`");
    };
    let catalogs = MemoryCatalogProviderList::new();
    catalogs.register_catalog(database.to_owned(), catalog);
    let mut config = state.config().clone().with_create_default_catalog_and_schema(false);
    config.options_mut().catalog.default_catalog = database.to_owned();
    // In the place of DataFusion's own, which names DataFusion's types, there is one with Postgres'.
    config.options_mut().catalog.information_schema = false;
    *state = SessionStateBuilder::new_from_existing(state.clone())
        .with_catalog_list(Arc::new(catalogs))
        .with_config(config)
        .build();
    Ok(())
}

/// The one role: the user who is connected.
#[derive(Clone, Debug)]
struct User(String);

#[async_trait]
impl PgCatalogContextProvider for User {
    async fn roles(&self) -> Vec<String> {
        vec![self.0.clone()]
    }

    async fn role(&self, name: &str) -> Option<Role> {
        (name == self.0).then(|| Role {
            name: self.0.clone(),
            is_superuser: false,
            can_login: true,
            can_create_db: false,
            can_create_role: false,
            can_create_user: false,
            can_replication: false,
            grants: Vec::new(),
            inherited_roles: Vec::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_session_is_left_behind() {
        let context = SessionContext::new();
        let settings = Arc::new(Mutex::new(Settings::new("anna")));
        install(&context, "anna", "shop", 7, &settings).expect("installed");
        let catalogs = Arc::downgrade(context.state().catalog_list());
        let catalog = Arc::downgrade(&context.catalog("shop").expect("it is there"));
        release(&context);
        drop(context);
        assert!(catalogs.upgrade().is_none() && catalog.upgrade().is_none());
    }
}
