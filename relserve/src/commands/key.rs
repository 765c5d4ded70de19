//! `relserve key`: API keys, made, listed, rotated and revoked in the store.

use base::{Millis, TenantId};
use clap::{Args, Subcommand};
use gateway::config::Config;
use gateway::services::sql::accounts::user_of;
use gateway::wire::admin::{check_in_path, checked_name};
use gateway::wire::keys::scope_of;
use serde_json::json;
use store::{
    CreatedKey, DEFAULT_TENANT, KeyRotation, KeyScope, ListedKey, NewKey, Store, Tenant, UnixMillis,
};

use super::{Failure, by_command, open_or_ask, say, tell};

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
        /// Has it only look: it changes nothing and has nothing computed.
        #[arg(long)]
        read_only: bool,
        /// Groups of routes that it may use: admin, batches, cells, completions, corpora, files, prompts, queries,
        /// relqueries, scheduler, sql, workbooks [default: all].
        #[arg(long, value_delimiter = ',')]
        routes: Option<Vec<String>>,
        /// Tables that its SQL may read; without --routes it is then a key of SQL alone [default: all].
        #[arg(long, value_delimiter = ',')]
        tables: Option<Vec<String>>,
    },
    /// Lists keys.
    List,
    /// Makes a key in place of another, of the same tenant and scope, and prints it, once.
    Rotate {
        /// The number that `list` shows.
        id: u64,
        /// For how long the old key goes on before it ends by itself: 90m, 24h, 7d.
        #[arg(long, default_value = "24h", value_parser = overlap)]
        overlap: Millis,
    },
    /// Revokes a key by its number.
    Revoke {
        /// The number that `list` shows.
        id: u64,
    },
}

/// Makes, lists or revokes.
pub(crate) async fn run(key: Key, config: &Config) -> Result<(), Failure> {
    let store = open_or_ask(config, key.yes).await?;
    // As the servers that judge it.
    let now = store.now().await?;
    match key.command {
        KeyCommand::Create { name, tenant, days, operator, read_only, routes, tables } => {
            let scope = scope_of(read_only, routes, tables).map_err(|error| error.to_string())?;
            let name = checked_name("name", &name).map_err(|error| error.to_string())?;
            let tenant = tenant_of(&store, tenant, now).await?;
            let expires = days.map(|days| now.after(Millis(days.saturating_mul(86_400_000))));
            let details = json!({
                "tenant": tenant.name,
                "days": days,
                "operator": operator,
                "read_only": scope.is_read_only,
                "routes": scope.routes,
                "tables": scope.tables,
            })
            .to_string();
            let new = NewKey { tenant: tenant.id, name, expires, is_operator: operator, scope };
            let entry = by_command("key.create", name, &details);
            let created = store.audited(entry, now, store.create_key(new, now)).await?;
            tell_key(&created, &tenant.name);
        }
        KeyCommand::Rotate { id, overlap } => rotate(&store, (id, overlap), now).await?,
        KeyCommand::List => {
            let lines = lines(&store, now, PAGE_KEYS).await?;
            if lines.is_empty() {
                tell!("there are no keys; `key create NAME` makes one");
            }
            for line in lines {
                say!("{line}");
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

/// Makes a key in place of another.
async fn rotate(store: &Store, (id, overlap): (u64, Millis), now: UnixMillis) -> Result<(), Failure> {
    let (subject, ends) = (id.to_string(), now.after(overlap).0 / 1_000);
    let details = json!({ "overlap_ms": overlap.0, "ends": ends }).to_string();
    let rotate = async {
        match store.rotate_key(id, overlap, now).await? {
            KeyRotation::Done(created) => Ok(created),
            KeyRotation::Before(other) => Err(format!("key {other} came in place of {id} before").into()),
            KeyRotation::NoSuchKey => Err(Failure::from(format!("there is no key {id} that works"))),
        }
    };
    let created = store.audited(by_command("key.rotate", &subject, &details), now, rotate).await?;
    let tenants = store.tenants().await?;
    tell_key(&created, name_of(&tenants, created.info.tenant));
    say!("key {id} ends in {} minutes at the latest", overlap.0 / 60_000);
    Ok(())
}

/// Prints a key, which nobody can do again.
fn tell_key(CreatedKey { info, plaintext }: &CreatedKey, tenant: &str) {
    say!("API key: {plaintext}");
    say!("number {}, tenant {tenant} ({}); shown this once", info.id, info.tenant);
    say!("SQL user: {} (the key is its password)", user_of(tenant, info.id));
}

/// Reads a span: a number and `m`, `h` or `d`.
fn overlap(text: &str) -> Result<Millis, String> {
    let unit = |unit: char| match unit {
        'm' => Some(60_000),
        'h' => Some(3_600_000),
        'd' => Some(86_400_000_u64),
        _ => None,
    };
    let parsed = text.chars().last().and_then(unit).and_then(|unit| {
        let number: u64 = text[..text.len() - 1].parse().ok()?;
        number.checked_mul(unit)
    });
    parsed.map(Millis).ok_or_else(|| "must be a number and m, h or d, such as 24h".to_owned())
}

/// Keys that are read at once.
const PAGE_KEYS: u32 = 10_000;

/// What a list says of all keys, the oldest first: they are read page by page, from the newest back.
async fn lines(store: &Store, now: UnixMillis, page_keys: u32) -> Result<Vec<String>, Failure> {
    let (mut lines, mut before) = (Vec::new(), None);
    loop {
        let page = store.keys(before, page_keys).await?;
        let Some(first) = page.first() else { break };
        before = Some(first.key.id);
        lines.extend(page.iter().rev().map(|listed| line(listed, now)));
    }
    lines.reverse();
    Ok(lines)
}

/// What a list says of a key.
fn line(ListedKey { key, tenant_name }: &ListedKey, now: UnixMillis) -> String {
    let state = match (key.revoked, key.expires) {
        (Some(_), _) => "revoked",
        (None, Some(expires)) if expires <= now => "expired",
        (None, _) => "valid",
    };
    // Without a verifier, the key itself crosses the net.
    let login = if key.verifier.is_some() { "SCRAM" } else { "clear text: TLS or loopback only" };
    let role = if key.is_operator { "\toperator" } else { "" };
    let scope = scope_words(&key.scope);
    format!(
        "{}\t{}...\ttenant {tenant_name} ({})\t{state}\t{}\tSQL user {} ({login}){role}{scope}",
        key.id,
        key.shown,
        key.tenant,
        key.name,
        user_of(tenant_name, key.id)
    )
}

/// What a list says of a key that may less than its tenant.
fn scope_words(scope: &KeyScope) -> String {
    let list = |what: &str, names: &Option<Vec<String>>| {
        names.as_ref().map(|names| format!("\t{what}: {}", names.join(", "))).unwrap_or_default()
    };
    let read_only = if scope.is_read_only { "\tread-only" } else { "" };
    format!("{read_only}{}{}", list("routes", &scope.routes), list("tables", &scope.tables))
}

fn name_of(tenants: &[Tenant], id: TenantId) -> &str {
    tenants.iter().find(|tenant| tenant.id == id).map_or("", |tenant| tenant.name.as_str())
}

/// The tenant of a name; made where there is none.
async fn tenant_of(store: &Store, name: Option<String>, now: UnixMillis) -> Result<Tenant, Failure> {
    let Some(name) = name else { return default_tenant(store).await };
    match store.tenant_named(name.trim()).await? {
        Some(tenant) => Ok(tenant),
        None => {
            let name = checked_name("tenant", &name).map_err(|error| error.to_string())?;
            check_in_path("tenant", name).map_err(|error| error.to_string())?;
            Ok(store.create_tenant(name, 1.0, now).await?)
        }
    }
}

/// The tenant that every database begins with, under the name that it has now.
pub(super) async fn default_tenant(store: &Store) -> Result<Tenant, Failure> {
    let is_default = |tenant: &Tenant| tenant.id == DEFAULT_TENANT;
    let found = store.tenants().await?.into_iter().find(is_default);
    found.ok_or_else(|| format!("the database has no tenant {}", DEFAULT_TENANT).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overlap_is_a_number_and_a_unit() {
        for (text, expected) in [("90m", 5_400_000), ("24h", 86_400_000), ("7d", 604_800_000), ("0m", 0)] {
            assert_eq!(overlap(text), Ok(Millis(expected)), "{text}");
        }
        for text in ["", "h", "24", "1.5h", "-1h", "24 h", "24ü", "99999999999999999999d"] {
            assert!(overlap(text).is_err(), "{text}");
        }
    }

    #[tokio::test]
    async fn a_list_has_all_keys_the_oldest_first_however_many_are_read_at_once() {
        let store = Store::open("sqlite::memory:").await.expect("it opens");
        for number in 1..=5 {
            let (name, now) = (format!("key {number}"), UnixMillis(number));
            let (tenant, scope) = (DEFAULT_TENANT, KeyScope::ALL);
            let new = NewKey { tenant, name: &name, expires: None, is_operator: false, scope };
            store.create_key(new, now).await.expect("made");
        }
        for page_keys in [1, 2, 5, 9] {
            let lines = lines(&store, UnixMillis(9), page_keys).await.expect("read");
            let told: Vec<_> = lines.iter().map(|line| line.split('\t').next().expect("a number")).collect();
            assert_eq!(told, ["1", "2", "3", "4", "5"]);
            assert!(lines[0].contains("tenant default (") && lines[0].contains("key 1"), "{lines:?}");
        }
    }

    #[test]
    fn a_list_says_what_a_key_may() {
        assert_eq!(scope_words(&KeyScope::ALL), "");
        let list = |name: &str| Some(vec![name.to_owned()]);
        let scope = KeyScope { is_read_only: true, routes: list("sql"), tables: list("orders") };
        assert_eq!(scope_words(&scope), "\tread-only\troutes: sql\ttables: orders");
    }
}
