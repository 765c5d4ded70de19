//! `relserve key`: API keys, made, listed and revoked in the store.

use base::{Millis, TenantId};
use clap::Subcommand;
use gateway::services::sql::accounts::user_of;
use serving::clock::Clock;
use store::{DEFAULT_TENANT, NewKey, Store, UnixMillis};

use super::{Failure, say};

#[derive(Debug, Subcommand)]
pub(crate) enum Key {
    /// Makes a key and prints it, once.
    Create {
        /// What to call it.
        name: String,
        /// The tenant's name; made where there is none of that name.
        #[arg(long)]
        tenant: Option<String>,
        /// Days until it expires.
        #[arg(long)]
        days: Option<u64>,
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
pub(crate) async fn run(command: Key, store: &Store) -> Result<(), Failure> {
    let now = UnixMillis(Clock::start().unix_ms());
    match command {
        Key::Create { name, tenant, days } => {
            let tenant = tenant_of(store, tenant, now).await?;
            let expires = days.map(|days| now.after(Millis(days.saturating_mul(86_400_000))));
            let created = store.create_key(NewKey { tenant, name: &name, expires }, now).await?;
            say!("API key: {}", created.plaintext);
            say!("number {}, tenant {}; shown this once", created.info.id, created.info.tenant);
            say!(
                "SQL user: {} (the key is its password)",
                user_of(&tenant_name(store, tenant).await?, created.info.id)
            );
        }
        Key::List => {
            let tenants = store.tenants().await?;
            for key in store.keys(None).await? {
                let state = if key.revoked.is_some() { "revoked" } else { "valid" };
                let tenant = tenants.iter().find(|tenant| tenant.id == key.tenant);
                let user = tenant.map(|tenant| user_of(&tenant.name, key.id)).unwrap_or_default();
                // Without a verifier, the key itself crosses the net.
                let login = if key.verifier.is_some() { "SCRAM" } else { "clear text: TLS or loopback only" };
                let (id, shown, tenant, name) = (key.id, key.shown, key.tenant, key.name);
                say!("{id}\t{shown}...\ttenant {tenant}\t{state}\t{name}\tSQL user {user} ({login})");
            }
        }
        Key::Revoke { id } => {
            if !store.revoke_key(id, now).await? {
                return Err(format!("there is no key {id}").into());
            }
            say!("revoked {id}; running servers notice within seconds");
        }
    }
    Ok(())
}

async fn tenant_name(store: &Store, id: TenantId) -> Result<String, Failure> {
    let tenants = store.tenants().await?;
    Ok(tenants.into_iter().find(|tenant| tenant.id == id).map(|tenant| tenant.name).unwrap_or_default())
}

async fn tenant_of(store: &Store, name: Option<String>, now: UnixMillis) -> Result<TenantId, Failure> {
    let Some(name) = name else { return Ok(DEFAULT_TENANT) };
    match store.tenant_named(&name).await? {
        Some(tenant) => Ok(tenant.id),
        None => Ok(store.create_tenant(&name, 1.0, now).await?.id),
    }
}
