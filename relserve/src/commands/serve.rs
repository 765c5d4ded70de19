//! `relserve serve`: the server, from its first line to the end of its drain.

use std::fs::OpenOptions;
use std::io::{IsTerminal as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use gateway::app;
use gateway::config::{AuthMode, Config, ServerConfig, shows_key};
use gateway::ports::{BindError, Ports};
use gateway::services::reload::reload;
use gateway::services::sql::accounts::user_of;
use gateway::services::sql::tenants;
use scheduler::{Policy, SchedulerConfig};
use serde_json::json;
use serving::clock::Clock;
use serving::known_models::{self, KnownModel};
use serving::load;
use store::{CreatedKey, DEFAULT_TENANT, KeyScope, NewKey, NodeClaim, Store, UnixMillis};
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::measured::{DeviceArgs, Weights};
use super::{Failure, at_start, file_limit, make_folder, port_holder, say, sign_in, start_wait};
use crate::models;
use crate::terminal::with_default;

#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Address and port.
    #[arg(long, help = with_default("Address and port", ServerConfig::default().listen))]
    listen: Option<SocketAddr>,
    /// Address and port of the Postgres protocol [default: it is not served].
    #[arg(long = "sql", value_name = "LISTEN")]
    sql_listen: Option<SocketAddr>,
    /// A Hugging Face folder, a GGUF file, or a name that `relserve pull` lists, which is fetched first where it is
    /// not there [default: the built-in demo model].
    #[arg(long, value_name = "PATH|NAME")]
    model: Option<PathBuf>,
    /// A name that `relserve pull` lists: the model where neither `--model` nor the configuration names one. Where it
    /// cannot be had, the built-in demo model is served, and without it too.
    #[arg(long, value_name = "NAME", conflicts_with = "model", value_parser = known)]
    default_model: Option<&'static KnownModel>,
    #[command(flatten)]
    place: DeviceArgs,
    #[command(flatten)]
    weights: Weights,
    /// Prints the first key of a new database also where the output is no terminal; otherwise it is written to a file.
    /// `RELSERVE_SHOW_KEY=1` does the same.
    #[arg(long)]
    show_key: bool,
    /// The order of work.
    #[arg(long, help = with_default(&policies(), SchedulerConfig::default().policy))]
    policy: Option<Policy>,
}

/// A model of the list.
fn known(name: &str) -> Result<&'static KnownModel, String> {
    known_models::named(name).ok_or_else(|| {
        let names = known_models::all().iter().map(|model| model.name.as_str());
        format!("is none of {}", names.collect::<Vec<_>>().join(", "))
    })
}

/// The policies that can be named.
fn policies() -> String {
    format!("In which order work is done: {}", Policy::WITH_VARIANTS.map(Policy::name).join(", "))
}

impl Serve {
    /// The flags over the configuration.
    pub(crate) fn apply(&self, config: &mut Config) {
        config.server.listen = self.listen.unwrap_or(config.server.listen);
        config.scheduler.policy = self.policy.unwrap_or(config.scheduler.policy);
        config.sql.listen = self.sql_listen.or(config.sql.listen);
        self.weights.apply(config);
        self.place.apply(config);
        if let Some(folder) = &self.model {
            config.model.dir = Some(folder.clone());
        }
    }
}

/// Serves until a signal, then drains.
pub(crate) async fn run(
    flags: &Serve,
    mut config: Config,
    read_again: impl Fn() -> Result<Config, Failure>,
) -> Result<(), Failure> {
    let mut asked = config.clone();
    config.take_environment();
    for warning in config.warnings() {
        tracing::warn!("{warning}");
    }
    if let Some(warning) = file_limit::settle(&mut config) {
        tracing::warn!("{warning}");
    }
    // First of all: a port in use is known at once, and a model takes long to read.
    let ports = Ports::bind(&config).map_err(|error| match error {
        BindError::Port(error) => port_holder::explained(&error),
        BindError::Path(error) => error.to_string(),
    })?;
    models::settle(&mut config, flags.default_model)?;
    let (clock, mut caught) = (Clock::start(), None);
    let Some(store) = open_patiently(&config, clock, &mut caught).await? else { return Ok(()) };
    let preparing = async {
        let node = claim(&store, &config.store.node).await?;
        Ok::<_, Failure>((node, load::prepare(config.backend(), &store, clock).await?))
    };
    let (_node, backend) = tokio::select! {
        prepared = preparing => prepared?,
        () = ended_by(caught.as_mut()) => return Ok(()),
    };
    let (mode, command) = (config.auth.mode, command(&config));
    // Signals are caught before the address is announced: whoever reads it may stop the server.
    let mut signals = match caught {
        Some(signals) => signals,
        None => Signals::catch()?,
    };
    // What is read of the store is read before requests are taken: a server that answers does not end because the
    // database is away for a moment.
    let is_new = mode == AuthMode::Keys && store.keys(None, 1).await?.is_empty();
    let tenants = store.tenants().await?;
    let tenant = tenants.into_iter().find(|tenant| tenant.id == DEFAULT_TENANT).map(|tenant| tenant.name);
    let tenant = tenant.unwrap_or_default();
    // With a database elsewhere too: what is counted is written down there until that has it.
    if let Err(error) = std::fs::create_dir_all(&config.store.data_dir) {
        tracing::warn!(%error, folder = %config.store.data_dir.display(), "the data folder cannot be made");
    }
    let running = app::start_on(ports, config, backend, store).await?;
    let _noted = sign_in::note_address(&running.app.config, running.address);
    // Last, when nothing else can fail any more: a key that is made but not shown is lost. Until there is one, nobody is
    // answered.
    let first_key =
        if is_new { Some(first_key(&running.app.runtime.store, &tenant, clock).await?) } else { None };
    // Of a key that is not known here, the tenant's name: it stands for all of them on this machine.
    let user = first_key.as_ref().map_or(tenant.clone(), |key| user_of(&tenant, key.info.id));
    let kept = match &first_key {
        Some(key) if !(flags.show_key || std::io::stdout().is_terminal() || shows_key()) => {
            Some(keep_key(&running.app.config.store.data_dir, &key.plaintext)?)
        }
        Some(_) => None,
        // That of a start before, where it was kept.
        None => Some(key_file(&running.app.config.store.data_dir)).filter(|path| path.is_file()),
    };
    let key = ShownKey::of(mode, first_key.as_ref(), kept.as_deref());
    let (store, config) = (&running.app.runtime.store, &running.app.config);
    let invitation = sign_in::invitation(store, config, running.address, &command).await;
    let invitation = invitation.unwrap_or_else(|error| {
        tracing::warn!(%error, "no link that signs in was made");
        None
    });
    announce(&running, key, &user, &command, invitation.as_deref());
    loop {
        tokio::select! {
            _ = signals.terminate.recv() => break,
            _ = signals.interrupt.recv() => break,
            _ = signals.hangup.recv() => {
                read_files_again(&running);
                if let Some(taken) = reload(&running.current, &asked, read_again()).await {
                    asked = taken;
                }
            }
        }
    }
    tracing::info!("draining; a second signal ends at once");
    running.drain(signals.end()).await;
    Ok(())
}

/// The signals that a server goes by.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// Reads the configuration again.
    hangup: Signal,
}

impl Signals {
    /// From here on none of them ends the process by itself.
    fn catch() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// The next one that asks for the end.
    async fn end(&mut self) {
        tokio::select! { _ = self.terminate.recv() => {} _ = self.interrupt.recv() => {} }
    }
}

/// The next signal that asks for the end, where signals are caught already: those that are not end the process themselves.
async fn ended_by(caught: Option<&mut Signals>) {
    match caught {
        Some(signals) => signals.end().await,
        None => std::future::pending().await,
    }
}

/// Opens the store, making its folder where it is missing. A database that is away is waited for; `None`: a signal came
/// first. From the first wait on signals are `caught`: to the first process of a container they would do nothing.
async fn open_patiently(
    config: &Config,
    clock: Clock,
    caught: &mut Option<Signals>,
) -> Result<Option<Store>, Failure> {
    make_folder(config)?;
    let (url, most) = (config.store.url(), Duration::from_secs(config.store.start_wait_s));
    let away = match Store::open(&url).await {
        Err(away) if away.may_come_up() && !most.is_zero() => away,
        opened => return Ok(Some(opened?)),
    };
    let signals = caught.insert(Signals::catch()?);
    let waited = || Duration::from_nanos(clock.now().0);
    let open = async || Store::open(&url).await;
    tokio::select! {
        opened = start_wait::until_there(away, most, waited, tokio::time::sleep, open) => match opened {
            Err(away) if away.may_come_up() => {
                Err(format!("{away}; it was waited for, {} s (store.start_wait_s)", most.as_secs()).into())
            }
            opened => Ok(Some(opened?)),
        },
        () = signals.end() => {
            tracing::info!("a signal ended the wait for the database");
            Ok(None)
        }
    }
}

/// Takes what has become of certificates, and begins the access log's file anew.
fn read_files_again(running: &app::Running) {
    running.reopen_access_log();
    match running.reload_certificates() {
        Ok(count) => tracing::info!(count, "read the certificates again"),
        Err(error) => tracing::error!(%error, "a certificate stays as it was"),
    }
}

/// Time for which a name is asked for that another gateway has: a database learns late that a machine is gone.
const CLAIM_MAX: Duration = Duration::from_secs(60);
/// Time between two tries.
const CLAIM_EVERY: Duration = Duration::from_secs(2);

/// Takes this gateway's name among those that share the database, which no other may have meanwhile.
async fn claim(store: &Store, node: &str) -> Result<NodeClaim, Failure> {
    let trying = async {
        let mut is_reported = false;
        loop {
            match store.claim_node(node).await {
                Err(store::Error::Taken { .. }) if store.is_shared() => {
                    if !std::mem::replace(&mut is_reported, true) {
                        tracing::warn!(
                            node,
                            "another gateway has this name on this database; trying for a minute"
                        );
                    }
                    tokio::time::sleep(CLAIM_EVERY).await;
                }
                claimed => return claimed,
            }
        }
    };
    let refused = || {
        format!(
            "invalid `store.node`: another gateway runs as `{node}` on this database; give each a name of its own"
        )
    };
    match tokio::time::timeout(CLAIM_MAX, trying).await {
        Ok(Ok(claim)) => Ok(claim),
        Ok(Err(store::Error::Taken { .. })) | Err(_) => Err(refused().into()),
        Ok(Err(error)) => Err(error.into()),
    }
}

/// Makes the first key of a new database, of its first tenant, which has this name.
async fn first_key(store: &Store, tenant: &str, clock: Clock) -> Result<CreatedKey, Failure> {
    let new = NewKey {
        tenant: DEFAULT_TENANT,
        name: "first",
        expires: None,
        is_operator: false,
        scope: KeyScope::ALL,
    };
    let now = UnixMillis(clock.unix_ms());
    let details = json!({ "tenant": tenant, "operator": new.is_operator }).to_string();
    let entry = at_start("key.create", "first", &details);
    Ok(store.audited(entry, now, store.create_key(new, now)).await?)
}

/// Where the first key is kept.
fn key_file(folder: &Path) -> PathBuf {
    folder.join("first-key")
}

/// Writes the first key to a file that its owner alone may read: what a service prints ends up in a journal, which
/// more people read.
fn keep_key(folder: &Path, key: &str) -> Result<PathBuf, Failure> {
    let path = key_file(folder);
    let failed =
        |cause: std::io::Error| format!("{}: the first key cannot be written: {cause}", path.display());
    std::fs::create_dir_all(folder).map_err(failed)?;
    // One of a database that is gone would keep its mode.
    match std::fs::remove_file(&path) {
        Err(cause) if cause.kind() != std::io::ErrorKind::NotFound => return Err(failed(cause).into()),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).map_err(failed)?;
    writeln!(file, "{key}").and_then(|()| file.sync_all()).map_err(failed)?;
    Ok(path)
}

/// The key of the commands that are printed.
#[derive(Clone, Copy)]
enum ShownKey<'a> {
    /// The first one, which was just made.
    New(&'a str),
    /// The same, in this file.
    Kept(&'a Path),
    /// One of those that were made before, of which only hashes are known; the file that a start before wrote the
    /// first one to, where it is still there.
    Old(Option<&'a Path>),
    NotNeeded,
}

impl<'a> ShownKey<'a> {
    /// `first`: the key that was just made; `kept`: the file that has it, or has that of a start before, where it is not
    /// printed.
    fn of(mode: AuthMode, first: Option<&'a CreatedKey>, kept: Option<&'a Path>) -> Self {
        match (mode, first) {
            (AuthMode::None, _) => Self::NotNeeded,
            (AuthMode::Keys, Some(key)) => kept.map_or(Self::New(&key.plaintext), Self::Kept),
            (AuthMode::Keys, None) => Self::Old(kept),
        }
    }
}

impl ShownKey<'_> {
    /// How it stands between double quotes of a shell.
    fn in_shell(&self) -> &str {
        match self {
            Self::New(key) => key,
            Self::Old(_) | Self::Kept(_) => "$RELSERVE_KEY",
            Self::NotNeeded => "none",
        }
    }

    /// Its header, as an argument of curl.
    fn header(&self) -> String {
        match self {
            Self::NotNeeded => String::new(),
            Self::New(_) | Self::Old(_) | Self::Kept(_) => {
                format!("-H \"Authorization: Bearer {}\" ", self.in_shell())
            }
        }
    }
}

/// The program with what makes it mean this server's database from any folder; a command follows.
fn command(config: &Config) -> String {
    let program = std::env::args_os().next().unwrap_or_else(|| "relserve".into());
    let data = std::path::absolute(&config.store.data_dir).unwrap_or_else(|_| config.store.data_dir.clone());
    // An address may hold a password.
    let database = if config.store.database.is_some() { " --database URL" } else { "" };
    format!("{} --data-dir {}{database}", program.display(), data.display())
}

/// Texts of the commands that are printed: one of each label.
const TRIED: [&str; 2] = ["A wonderful film.", "The worst film of the year."];

fn announce(running: &app::Running, key: ShownKey<'_>, user: &str, command: &str, invitation: Option<&str>) {
    let models: Vec<&str> = running.app.models.iter().map(|model| model.model().name.as_str()).collect();
    say!("RelServe serves {} on {}", models.join(", "), running.url());
    if let Some(invitation) = invitation {
        say!("{invitation}");
    }
    match key {
        ShownKey::New(key) => {
            say!("API key: {key}");
            say!("(shown this once; `{command} key create NAME` makes more)");
        }
        ShownKey::Kept(path) => {
            say!("API key: in {0} (RELSERVE_KEY=$(cat {0}))", path.display());
            say!("(this once; `{command} key create NAME` makes more)");
        }
        ShownKey::Old(Some(path)) => {
            say!(
                "Put a key of yours into RELSERVE_KEY: the first start wrote one to {}, `{command} key create NAME` \
                 makes more",
                path.display()
            );
        }
        ShownKey::Old(None) => {
            say!(
                "Put a key of yours into RELSERVE_KEY: the first start showed one, `{command} key create NAME` \
                 makes more"
            );
        }
        ShownKey::NotNeeded => {}
    }
    // Double quotes around the header: a shell puts the variable's value in. Cells, as the sheet asks for them: a small
    // model that is asked plainly says one label of everything.
    let call =
        |text: &str| format!(r#"{{"function": "classify", "args": ["{text}", "positive, negative"]}}"#);
    let calls = TRIED.map(call).join(", ");
    say!(
        "Try: curl -s {}/v1/cells {}\
         -H 'Content-Type: application/json' -d '{{\"calls\": [{calls}]}}'",
        running.url(),
        key.header()
    );
    let key = key.in_shell();
    if let Some(address) = running.sql_address {
        let (host, port) = (address.ip(), address.port());
        say!(
            "SQL: PGPASSWORD={key} psql -h {host} -p {port} -U {user} relserve -c \
             \"SELECT text, ai_sentiment(text) FROM (VALUES ('{}'), ('{}')) AS t(text)\"",
            TRIED[0],
            TRIED[1]
        );
        let folder = tenants::folder(&running.app.config, DEFAULT_TENANT);
        say!("SQL tables: CSV, Parquet and JSON lines files in {}", folder.display());
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct ServeLine {
        #[command(flatten)]
        serve: Serve,
    }

    fn policy(name: &str) -> Result<Option<Policy>, String> {
        let line = ServeLine::try_parse_from(["serve", "--policy", name]);
        line.map(|line| line.serve.policy).map_err(|error| error.to_string())
    }

    #[test]
    fn every_policy_that_a_file_may_name_can_be_named_by_a_flag() {
        for known in Policy::WITH_VARIANTS {
            assert_eq!(policy(known.name()), Ok(Some(known)));
        }
        assert!(policy("ours").is_err_and(|error| error.contains("is called `marginal-work` now")));
        assert!(policy("best").is_err_and(|error| error.contains("static-priority-weak")));
    }
}
