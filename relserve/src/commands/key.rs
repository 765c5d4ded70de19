//! `relserve key`: API keys, made, listed and revoked in the store.

use base::Millis;
use clap::{Args, Subcommand};
use gateway::config::Config;
use gateway::services::sql::accounts::user_of;
use serde_json::json;
use serving::clock::Clock;
use store::{DEFAULT_TENANT, KeyInfo, NewAuditEntry, NewKey, Store, Tenant, UnixMillis};

use super::{Failure, open_or_ask, say, tell};

#[derive(Debug, Args)]
pub(crate) struct Key {
    #[command(subcommand)]
    command: KeyCommand,
    /// Makes the database where there is none, and does not ask.
    #[arg(long, global = true)]
    yes: bool,
}

#[derive(Debug, Subcommand)]
enum KeyCommand {
    /// Makes a key and prints it, once.
    Create {
        /// What to call it.
        name: String,
        /// The tenant's name [default: default]; made where there is none of that name.
        #[arg(long)]
        tenant: Option<String>,
        /// Days until it expires [default: never].
        #[arg(long)]
        days: Option<u64>,
        /// Makes it an operator's, who sees all tenants, makes keys and sets weights.
        #[arg(long)]
        operator: bool,
    },
    /// Lists keys.
    List,
    /// Revokes a key by its number.
    Revoke {
        /// The number that `list` shows.
        id: u64,
    },
}

/// Makes, lists or revokes.
pub(crate) async fn run(key: Key, config: &Config) -> Result<(), Failure> {
    let store = open_or_ask(config, key.yes).await?;
    let now = UnixMillis(Clock::start().unix_ms());
    match key.command {
        KeyCommand::Create { name, tenant, days, operator } => {
            let tenant = tenant_of(&store, tenant, now).await?;
            let expires = days.map(|days| now.after(Millis(days.saturating_mul(86_400_000))));
            let new = NewKey { tenant: tenant.id, name: &name, expires, is_operator: operator };
            let details = json!({ "tenant": tenant.name, "days": days, "operator": operator }).to_string();
            let entry = by_command("key.create", &name, &details);
            let created = store.audited(entry, now, store.create_key(new, now)).await?;
            say!("API key: {}", created.plaintext);
            say!("number {}, tenant {} ({}); shown this once", created.info.id, tenant.name, tenant.id);
            say!("SQL user: {} (the key is its password)", user_of(&tenant.name, created.info.id));
        }
        KeyCommand::List => {
            let (tenants, keys) = (store.tenants().await?, store.keys(None).await?);
            if keys.is_empty() {
                tell!("there are no keys; `key create NAME` makes one");
            }
            for key in keys {
                say!("{}", line(&key, &tenants, now));
            }
        }
        KeyCommand::Revoke { id } => {
            let subject = id.to_string();
            let revoke = async {
                match store.revoke_key(id, now).await? {
                    true => Ok(()),
                    false => Err(Failure::from(format!("there is no key {id}"))),
                }
            };
            store.audited(by_command("key.revoke", &subject, "{}"), now, revoke).await?;
            say!("revoked {id}; running servers notice within seconds");
        }
    }
    Ok(())
}

/// An entry of the audit log for what is asked on the command line.
fn by_command<'a>(action: &'a str, subject: &'a str, details: &'a str) -> NewAuditEntry<'a> {
    NewAuditEntry { actor: "command line", action, subject, details }
}

/// What a list says of a key.
fn line(key: &KeyInfo, tenants: &[Tenant], now: UnixMillis) -> String {
    let state = match (key.revoked, key.expires) {
        (Some(_), _) => "revoked",
        (None, Some(expires)) if expires <= now => "expired",
        (None, _) => "valid",
    };
    let name =
        tenants.iter().find(|tenant| tenant.id == key.tenant).map_or("", |tenant| tenant.name.as_str());
    // Without a verifier, the key itself crosses the net.
    let login = if key.verifier.is_some() { "SCRAM" } else { "clear text: TLS or loopback only" };
    let role = if key.is_operator { "\toperator" } else { "" };
    format!(
        "{}\t{}...\ttenant {name} ({})\t{state}\t{}\tSQL user {} ({login}){role}",
        key.id,
        key.shown,
        key.tenant,
        key.name,
        user_of(name, key.id)
    )
}

/// The tenant of a name; made where there is none.
async fn tenant_of(store: &Store, name: Option<String>, now: UnixMillis) -> Result<Tenant, Failure> {
    let Some(name) = name else { return default_tenant(store).await };
    match store.tenant_named(&name).await? {
        Some(tenant) => Ok(tenant),
        None => Ok(store.create_tenant(&name, 1.0, now).await?),
    }
}

async fn default_tenant(store: &Store) -> Result<Tenant, Failure> {
    let is_default = |tenant: &Tenant| tenant.id == DEFAULT_TENANT;
    let found = store.tenants().await?.into_iter().find(is_default);
    found.ok_or_else(|| format!("the database has no tenant {}", DEFAULT_TENANT).into())
}
