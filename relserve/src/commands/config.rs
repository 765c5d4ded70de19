//! `relserve config`: the configuration in force, every default included.

use gateway::config::Config;

use super::{Failure, say};

/// The configuration as a file could hold it; a database URL may carry a password and is left out.
pub(crate) fn print(mut config: Config) -> Result<(), Failure> {
    if config.store.database.take().is_some() {
        say!("# store.database is set and not shown");
    }
    let further = config.models.iter_mut();
    let further = further.flat_map(|model| model.replicas.iter_mut().chain([&mut model.discovery.replica]));
    let own = config.replicas.iter_mut().chain([&mut config.discovery.replica]);
    for replica in own.chain(further) {
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
    // Of all models' servers they are the same.
    let limits = config.backends().into_iter().map(|(_, backend)| backend.limits_of_policy());
    for line in limits.into_iter().find(|lines| !lines.is_empty()).unwrap_or_default() {
        say!("# {line}");
    }
    let memory = config.backends().into_iter().flat_map(|(_, backend)| backend.memory_of_replicas());
    for line in memory.collect::<Vec<String>>() {
        say!("# {line}");
    }
    say!("{}", toml::to_string_pretty(&config)?);
    Ok(())
}
