//! The commands that are not modules of their own: what each is told, and what it does. One file per command.

pub(crate) mod backup;
pub(crate) mod bench;
pub(crate) mod calibrate;
pub(crate) mod config;
pub(crate) mod doctor;
pub(crate) mod eval;
pub(crate) mod file_limit;
pub(crate) mod key;
pub(crate) mod measured;
pub(crate) mod model_info;
pub(crate) mod port_holder;
pub(crate) mod pull;
pub(crate) mod restore;
pub(crate) mod serve;
pub(crate) mod sign_in;
mod start_wait;

use gateway::config::Config;
use store::{NewAuditEntry, Store};

use crate::terminal::confirm;
pub(crate) use crate::terminal::{Failure, say, tell};

/// Opens the store, making its folder where it is missing.
pub(crate) async fn open(config: &Config) -> Result<Store, Failure> {
    make_folder(config)?;
    Ok(Store::open(&config.store.url()).await?)
}

/// Makes the folder of the store where the store is a file of it.
fn make_folder(config: &Config) -> Result<(), Failure> {
    if config.store.database.is_none() {
        let folder = &config.store.data_dir;
        std::fs::create_dir_all(folder)
            .map_err(|error| format!("cannot make the data folder {}: {error}", folder.display()))?;
    }
    Ok(())
}

/// Opens the database and says which it is. A new one is made only where the person at the terminal, or
/// `--yes`, says so: in another folder than the server's a command would list no keys, and make some for no
/// server.
pub(crate) async fn open_or_ask(config: &Config, is_agreed: bool) -> Result<Store, Failure> {
    let url = config.store.url();
    let shown = Store::shown(&url)?;
    let found = Store::inspect(&url).await.map_err(|error| format!("{shown}: {error}"))?;
    if found.schema.is_none() && !is_agreed {
        match confirm(&format!("There is no database of RelServe at {shown}. Make one?")) {
            Some(true) => {}
            Some(false) => return Err(format!("no database was made at {shown}").into()),
            None => {
                return Err(format!(
                    "there is no database of RelServe at {shown}: name the server's by --data-dir or \
                     --database, or make this one with --yes"
                )
                .into());
            }
        }
    }
    tell!("database: {shown}");
    open(config).await
}

/// An entry of the audit log for what is asked on the command line.
fn by_command<'a>(action: &'a str, subject: &'a str, details: &'a str) -> NewAuditEntry<'a> {
    NewAuditEntry { actor: "command line", action, subject, details }
}

/// An entry of the audit log for what a server does at its start.
fn at_start<'a>(action: &'a str, subject: &'a str, details: &'a str) -> NewAuditEntry<'a> {
    NewAuditEntry { actor: "server start", action, subject, details }
}
