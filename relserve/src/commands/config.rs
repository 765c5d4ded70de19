//! `relserve config`: the configuration in force, every default included.

use gateway::config::Config;

use super::{Failure, say};

/// The configuration as a file could hold it; a database URL may carry a password and is left out.
pub(crate) fn print(mut config: Config) -> Result<(), Failure> {
    if config.store.database.take().is_some() {
        say!("# store.database is set and not shown");
    }
    for replica in config.replicas.iter_mut().chain([&mut config.discovery.replica]) {
        if replica.api_key.take().is_some() {
            say!("# a replica's api_key is set and not shown");
        }
    }
    for name in std::mem::take(&mut config.sql.sources).into_keys() {
        say!("# sql.sources.{name} is set and not shown");
    }
    if config.auth.admin_key.take().is_some() {
        say!("# auth.admin_key is set and not shown");
    }
    for line in config.backend().limits_of_policy() {
        say!("# {line}");
    }
    say!("{}", toml::to_string_pretty(&config)?);
    Ok(())
}
