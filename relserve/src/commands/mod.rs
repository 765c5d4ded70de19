//! The commands that are not modules of their own: what each is told, and what it does. One file per command.

pub(crate) mod bench;
pub(crate) mod calibrate;
pub(crate) mod config;
pub(crate) mod eval;
pub(crate) mod key;
pub(crate) mod measured;
pub(crate) mod model_info;
pub(crate) mod pull;
pub(crate) mod serve;

use gateway::config::Config;
use store::Store;

/// What went wrong, for a person at a terminal.
pub(crate) type Failure = Box<dyn std::error::Error>;

/// Prints what the command was asked for.
macro_rules! say {
    ($($arg:tt)*) => {{
        use std::io::Write;
        // Nobody listens any more: nothing is left to do about it.
        let _ = writeln!(std::io::stdout(), $($arg)*);
    }};
}
pub(crate) use say;

/// Opens the store, making its folder where it is missing.
pub(crate) async fn open(config: &Config) -> Result<Store, Failure> {
    if config.store.database.is_none() {
        let folder = &config.store.data_dir;
        std::fs::create_dir_all(folder)
            .map_err(|error| format!("cannot make the data folder {}: {error}", folder.display()))?;
    }
    Ok(Store::open(&config.store.url()).await?)
}
