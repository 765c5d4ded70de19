//! Links that sign the page in: `relserve sign-in` prints one, and so does `relserve serve` on a terminal.
//!
//! A link works once and for minutes, and is exchanged for a key, so that nobody has to copy keys about. A server
//! whose output goes to a file prints none: what stands in a log is read by others, later.

use std::io::IsTerminal as _;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use gateway::config::{AuthMode, Config};
use gateway::services::sign_ins;
use serde_json::json;
use store::{NewAuditEntry, SignIn, Store, Tenant};

use super::key::default_tenant;
use super::{Failure, at_start, by_command, open_or_ask, say};

/// How `relserve sign-in` is told whom the link signs in.
#[derive(Debug, Args)]
pub(crate) struct SignInArgs {
    /// The tenant whose member the link signs in [default: an operator of the tenant `default`].
    #[arg(long)]
    tenant: Option<String>,
    /// Makes an operator of the member: who sees all tenants, makes keys and sets weights.
    #[arg(long)]
    operator: bool,
    /// The server's address as browsers reach it [default: where the server of the data folder listens; where none runs, that
    /// of `server.listen`].
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// Makes the database where there is none, and does not ask.
    #[arg(long)]
    yes: bool,
}

/// Prints a link for a server on this database.
pub(crate) async fn run(asked: SignInArgs, config: &Config) -> Result<(), Failure> {
    if config.auth.mode == AuthMode::None {
        return Err("auth.mode is \"none\": nobody has to sign in".into());
    }
    let store = open_or_ask(config, asked.yes).await?;
    let tenant = match &asked.tenant {
        None => default_tenant(&store).await?,
        Some(name) => {
            store.tenant_named(name).await?.ok_or_else(|| format!("there is no tenant `{name}`"))?
        }
    };
    let is_operator = asked.operator || asked.tenant.is_none();
    let path = path(&store, config, (&tenant, is_operator), by_command).await?;
    let address = asked.url.or_else(|| noted_url(config));
    let address = address.unwrap_or_else(|| url_of(config, config.server.listen));
    say!("{}{path}", address.trim_end_matches('/'));
    Ok(())
}

/// What tells whoever starts a server how to sign in: by a link on a terminal, else by the command that makes one.
/// `command` is the program with what makes it mean this server's database.
pub(crate) async fn invitation(
    store: &Store,
    config: &Config,
    address: SocketAddr,
    command: &str,
) -> Result<Option<String>, Failure> {
    if config.auth.mode == AuthMode::None {
        return Ok(None);
    }
    let url = url_of(config, address);
    let another = match url == url_of(config, Config::default().server.listen) {
        true => format!("`{command} sign-in`"),
        // It reads no flags of the server's.
        false => format!("`{command} sign-in --url {url}`"),
    };
    if !std::io::stdout().is_terminal() {
        return Ok(Some(format!("Page: {another} prints a link that signs a browser in")));
    }
    let minutes = config.auth.sign_in_ms_max.0.div_ceil(60_000);
    let path = path(store, config, (&default_tenant(store).await?, true), at_start).await?;
    let more = format!("(signs in once, within {minutes} min; {another} prints another)");
    Ok(Some(format!("Open: {url}{path}\n{more}")))
}

/// Where a server says how it is reached, and on which database it runs, for as long as it does: flags and port 0 have it
/// listen elsewhere than the configuration says.
fn note_file(config: &Config) -> PathBuf {
    config.store.data_dir.join("address")
}

/// What a server has said there; taken back when it is dropped.
pub(crate) struct AddressNote {
    file: PathBuf,
    text: String,
}

impl Drop for AddressNote {
    fn drop(&mut self) {
        // Another server of the folder may have said more since.
        if std::fs::read_to_string(&self.file).is_ok_and(|text| text == self.text)
            && let Err(error) = std::fs::remove_file(&self.file)
        {
            tracing::debug!(%error, "the note of the server's address stays");
        }
    }
}

/// Says where a server listens. Where that cannot be written, links lead to the address of the configuration.
pub(crate) fn note_address(config: &Config, address: SocketAddr) -> Option<AddressNote> {
    let database = Store::shown(&config.store.url()).ok()?;
    let (file, text) = (note_file(config), format!("{}\n{database}\n", url_of(config, address)));
    match std::fs::write(&file, &text) {
        Ok(()) => Some(AddressNote { file, text }),
        Err(error) => {
            tracing::debug!(%error, "the server's address is not noted");
            None
        }
    }
}

/// Time for a server of this machine to take a connection.
const CONNECT_MAX: Duration = Duration::from_secs(1);

/// The address of a server of the data folder that runs on this database.
fn noted_url(config: &Config) -> Option<String> {
    let text = std::fs::read_to_string(note_file(config)).ok()?;
    let (url, database) = text.trim_end().split_once('\n')?;
    let address: SocketAddr = url.split_once("://")?.1.parse().ok()?;
    if Store::shown(&config.store.url()).ok()? != database {
        return None;
    }
    // One that was killed leaves its note.
    TcpStream::connect_timeout(&address, CONNECT_MAX).ok()?;
    Some(url.to_owned())
}

/// Makes a link, once that stands in the audit log as `entry` has it; what stands behind the server's address in it.
async fn path(
    store: &Store,
    config: &Config,
    (tenant, is_operator): (&Tenant, bool),
    entry: for<'a> fn(&'a str, &'a str, &'a str) -> NewAuditEntry<'a>,
) -> Result<String, Failure> {
    // As the servers that judge it.
    let now = store.now().await?;
    let details = json!({ "operator": is_operator }).to_string();
    let sign_in = SignIn { tenant: tenant.id, is_operator };
    let make = sign_ins::create(store, sign_in, config.auth.sign_in_ms_max, now);
    let token = store.audited(entry("sign_in.link", &tenant.name, &details), now, make).await?;
    Ok(sign_ins::path(&token))
}

/// Where a browser on this machine finds a server. One that listens everywhere is found on loopback too.
fn url_of(config: &Config, address: SocketAddr) -> String {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::from([127, 0, 0, 1]),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]),
        ip => ip,
    };
    format!("{}://{}", config.server.scheme(), SocketAddr::new(ip, address.port()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_listens_everywhere_is_opened_on_loopback() {
        for (listen, url) in [
            ("127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("0.0.0.0:80", "http://127.0.0.1:80"),
            ("[::]:81", "http://[::1]:81"),
            ("10.0.0.7:82", "http://10.0.0.7:82"),
        ] {
            assert_eq!(url_of(&Config::default(), listen.parse().expect("an address")), url);
        }
        let mut config = Config::default();
        config.server.certificate = Some("server.crt".into());
        assert_eq!(url_of(&config, config.server.listen), "https://127.0.0.1:8080");
    }
}
