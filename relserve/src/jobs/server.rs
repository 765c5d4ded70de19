//! The server of a job: the one at an address, or one of its own in this process, on a loopback port that
//! nobody is told of.

use std::path::Path;
use std::time::Duration;

use gateway::app::{self, Running};
use gateway::config::Config;
use serving::clock::Clock;
use serving::load;
use store::{DEFAULT_TENANT, KeyScope, NewKey, Store, UnixMillis};

use super::Failure;
use super::client::Client;
use super::options::Options;

/// A server.
pub(super) struct Server {
    client: Client,
    own: Option<Running>,
}

impl Server {
    /// Finds or starts the server of a job. One that cannot be reached is an error at once.
    pub(super) async fn of(options: &Options, config: Config, folder: &Path) -> Result<Self, Failure> {
        let patience = Duration::from_secs(options.patience);
        if let Some(address) = &options.server {
            let client = Client::new(address, options.key()?, patience)?;
            client.reach().await?;
            return Ok(Self { client, own: None });
        }
        let (running, key) = start(options, config, folder).await?;
        let client = Client::new(&format!("http://{}", running.address), Some(key), patience)?;
        Ok(Self { client, own: Some(running) })
    }

    /// What sends requests to it.
    pub(super) fn client(&self) -> Client {
        self.client.clone()
    }

    /// Ends a server of one's own.
    pub(super) async fn stop(&mut self) {
        if let Some(running) = self.own.take() {
            running.drain(std::future::ready(())).await;
        }
    }
}

/// Starts a server of the job's own: its database is in the job's folder, so that it is no other server's.
async fn start(options: &Options, mut config: Config, folder: &Path) -> Result<(Running, String), Failure> {
    config.server.listen = ([127, 0, 0, 1], 0).into();
    config.model.dir = options.model.clone().or(config.model.dir);
    config.store.data_dir = folder.to_owned();
    config.store.database = None;
    config.validate()?;
    let store = Store::open(&config.store.url()).await?;
    let clock = Clock::start();
    let new = NewKey {
        tenant: DEFAULT_TENANT,
        name: "job",
        expires: None,
        is_operator: false,
        scope: KeyScope::ALL,
    };
    let key = store.create_key(new, UnixMillis(clock.unix_ms())).await?.plaintext;
    let engine = load::load(config.backend())?;
    let backend = load::ready(engine, config.backend(), &store, clock).await?;
    Ok((app::start(config, backend, store).await?, key))
}
