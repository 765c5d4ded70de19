//! Users of the Postgres protocol: a user is a tenant's name, its password one of the tenant's keys.

use actix_web::web::Data;
use async_trait::async_trait;
use serving::caller::{Caller, WeightedTenant};
use sql::Session;
use sql::server::{AccountError, Accounts, Login};
use store::{KeyLookup, Tenant, UnixMillis};

use crate::config::AuthMode;
use crate::state::App;

/// The tenants of a server.
pub struct Tenants(pub Data<App>);

impl std::fmt::Debug for Tenants {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("Tenants")
    }
}

impl Tenants {
    fn is_open(&self) -> bool {
        self.0.config.auth.mode == AuthMode::None
    }

    async fn tenant(&self, user: &str) -> Result<Option<Tenant>, AccountError> {
        self.0.runtime.store.tenant_named(user).await.map_err(away)
    }
}

#[async_trait]
impl Accounts for Tenants {
    async fn login(&self, user: &str) -> Result<Option<Login>, AccountError> {
        if self.is_open() {
            return Ok(Some(Login::Open));
        }
        Ok(self.tenant(user).await?.map(|_| Login::ClearText))
    }

    async fn accepts(&self, user: &str, key: &str) -> Result<bool, AccountError> {
        let Some(tenant) = self.tenant(user).await? else { return Ok(false) };
        let now = UnixMillis(self.0.runtime.shared.clock.unix_ms());
        let found = self.0.runtime.store.find_key(key, now).await.map_err(away)?;
        Ok(matches!(found, KeyLookup::Valid { key, .. } if key.tenant == tenant.id))
    }

    async fn session(&self, user: &str) -> Result<Session, AccountError> {
        let revision = self.0.runtime.model.revision;
        let member = if self.is_open() {
            WeightedTenant::usual(store::DEFAULT_TENANT)
        } else {
            match self.tenant(user).await? {
                Some(tenant) => WeightedTenant::of(&tenant),
                None => return Err(AccountError(format!("there is no tenant `{user}`"))),
            }
        };
        let session = super::session(&self.0, Caller::of(member, revision)).await;
        session.map_err(|error| AccountError(error.to_string()))
    }
}

fn away(error: store::Error) -> AccountError {
    AccountError(serving::error::of_store(error).to_string())
}
