//! Users of the Postgres protocol. A key's own name proves it by SCRAM; its tenant's name stands for all of
//! the tenant's keys, sent as they are.

use std::sync::Arc;
use std::time::Duration;

use actix_web::web::Data;
use futures_util::future::BoxFuture;
use serving::caller::{Caller, WeightedTenant};
use serving::error::RequestError;
use sql::server::{AccountError, Accounts, Login, Verifier};
use sql::{Session, SessionAccess};
use store::{KeyInfo, KeyLookup, KeyScope, UnixMillis};

use crate::auth::scope;
use crate::config::AuthMode;
use crate::state::{App, CurrentApp};

/// The least time between two looks at the key of an open session, however short `auth.remember_ms` is.
const LOOK_MIN: Duration = Duration::from_millis(100);

/// The user that is one key: its tenant's name and its number.
pub fn user_of(tenant: &str, key: u64) -> String {
    format!("{tenant}-{key}")
}

/// The number of the key that a user may be.
fn key_of(user: &str) -> Option<u64> {
    user.rsplit_once('-')?.1.parse().ok()
}

/// The tenants of a server. A session keeps the configuration that it began with.
pub struct SqlAccounts(pub Arc<CurrentApp>);

impl std::fmt::Debug for SqlAccounts {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("SqlAccounts")
    }
}

impl SqlAccounts {
    fn app(&self) -> Arc<App> {
        self.0.get()
    }

    fn is_open(&self) -> bool {
        self.app().config.auth.mode == AuthMode::None
    }

    fn now(&self) -> UnixMillis {
        self.app().runtime.shared.unix_now()
    }

    /// The working key that a user is, with its tenant's weight.
    async fn key(&self, user: &str) -> Result<Option<(KeyInfo, f64)>, AccountError> {
        let Some(number) = key_of(user) else { return Ok(None) };
        let found = self.app().runtime.store.key_by_id(number, self.now()).await.map_err(away)?;
        Ok(match found {
            KeyLookup::Valid { key, tenant_name, weight } if user_of(&tenant_name, key.id) == user => {
                Some((key, weight))
            }
            _ => None,
        })
    }
}

impl Accounts for SqlAccounts {
    fn login<'a>(&'a self, user: &'a str) -> BoxFuture<'a, Result<Option<Login>, AccountError>> {
        Box::pin(async move {
            if self.is_open() {
                return Ok(Some(Login::Open));
            }
            if let Some((key, _)) = self.key(user).await? {
                let verifier = key.verifier.as_deref().and_then(Verifier::parse);
                return Ok(Some(verifier.map_or(Login::ClearText, Login::Scram)));
            }
            let tenant = self.app().runtime.store.tenant_named(user).await.map_err(away)?;
            Ok(tenant.map(|_| Login::ClearText))
        })
    }

    fn accepts<'a>(
        &'a self,
        user: &'a str,
        key: &'a str,
    ) -> BoxFuture<'a, Result<Option<String>, AccountError>> {
        Box::pin(async move {
            let found = self.app().runtime.store.find_key(key, self.now()).await.map_err(away)?;
            let KeyLookup::Valid { key, tenant_name, .. } = found else { return Ok(None) };
            let own = user_of(&tenant_name, key.id);
            Ok((user == tenant_name || user == own).then_some(own))
        })
    }

    fn session<'a>(&'a self, user: &'a str) -> BoxFuture<'a, Result<Session, AccountError>> {
        Box::pin(async move {
            let (member, access) = if self.is_open() {
                (WeightedTenant::usual(store::DEFAULT_TENANT), SessionAccess::default())
            } else {
                let Some((key, weight)) = self.key(user).await? else { return Err(revoked()) };
                let denied = |error: RequestError| AccountError::Denied(error.to_string());
                scope::check_group(&key.scope, scope::SQL).map_err(denied)?;
                self.app().runtime.store.use_key(&key, self.now()).await.map_err(away)?;
                let KeyScope { is_read_only, tables, .. } = key.scope;
                (WeightedTenant::weighted(key.tenant, weight), SessionAccess { is_read_only, tables })
            };
            let session = super::session(&Data::from(self.app()), Caller::of(member), access, None).await;
            session.map_err(|error| AccountError::Unavailable(error.to_string()))
        })
    }

    fn ended<'a>(&'a self, user: &'a str) -> BoxFuture<'a, AccountError> {
        Box::pin(async move {
            if self.is_open() {
                return std::future::pending().await;
            }
            loop {
                let pause = Duration::from_millis(self.app().config.auth.remember_ms.0).max(LOOK_MIN);
                tokio::time::sleep(pause).await;
                // While the database is away, who is in stays in.
                if matches!(self.key(user).await, Ok(None)) {
                    return revoked();
                }
            }
        })
    }
}

fn revoked() -> AccountError {
    AccountError::Unavailable("the API key was revoked or has expired".to_owned())
}

fn away(error: store::Error) -> AccountError {
    AccountError::Unavailable(serving::error::of_store(error).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_a_tenant_and_a_number() {
        assert_eq!(user_of("acme-eu", 7), "acme-eu-7");
        for (user, key) in [("acme-eu-7", Some(7)), ("default", None), ("a-b", None), ("-3", Some(3))] {
            assert_eq!(key_of(user), key, "{user}");
        }
    }
}
