//! Who calls: API key -> tenant and its weight, whether it is an operator's, and what it may.
//!
//! Keys are looked up by hash in the store; a verdict is remembered for `auth.remember_ms`, which bounds how
//! long a revoked key still works. While the database is away verdicts hold for `auth.away_ms_max`.

pub mod remembered;
pub mod scope;

use std::sync::Arc;

use actix_web::http::Method;
use actix_web::http::header::{AUTHORIZATION, HeaderName};
use actix_web::{FromRequest, HttpMessage as _, HttpRequest, dev::Payload};
use base::{Millis, TenantId, Time};
use futures_util::future::LocalBoxFuture;
use remembered::KeyHolder;
use serving::caller::{Caller, WeightedTenant};
use serving::error::{RequestError, of_store};
use sha2::{Digest, Sha256};
use store::{DEFAULT_TENANT, KeyLookup, KeyScope};

use crate::config::AuthMode;
use crate::current_state;
use crate::error::ApiError;
use crate::listener::connection_of;
use crate::state::App;

/// Longest key that is looked up at all.
const KEY_BYTES_MAX: usize = 256;

/// Where Anthropic's clients put their key.
const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// The key of `Authorization: Bearer KEY`, or of `x-api-key: KEY` where that is missing.
pub(crate) fn bearer(request: &HttpRequest) -> Option<String> {
    let text = |name: HeaderName| request.headers().get(name).map(|value| value.to_str().ok());
    let key = match text(AUTHORIZATION) {
        Some(value) => {
            let (scheme, key) = value?.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then_some(key)?
        }
        None => text(API_KEY)??,
    };
    let key = key.trim();
    (!key.is_empty() && key.len() <= KEY_BYTES_MAX).then(|| key.to_owned())
}

/// Refuses whoever is no operator: neither the key `auth.admin_key` nor an operator's own comes with the request.
pub(crate) async fn operator(app: &App, request: &HttpRequest) -> Result<Operator, ApiError> {
    let given = bearer(request);
    if given.as_deref().is_some_and(|given| is_admin_key(app, given)) {
        keep_connection(request);
        return Ok(Operator { key: None });
    }
    if app.config.auth.mode == AuthMode::None {
        return Err(match &app.config.auth.admin_key {
            None => RequestError::NotConfigured("auth.admin_key").into(),
            Some(_) => ApiError::Unauthorized,
        });
    }
    let holder = authenticate(app, request).await?;
    if holder.is_operator { Ok(Operator { key: holder.key }) } else { Err(ApiError::Forbidden) }
}

/// Whether a key is the one that the configuration names.
fn is_admin_key(app: &App, given: &str) -> bool {
    let key = app.config.auth.admin_key.as_ref();
    // Of hashes, so that the time of comparing says nothing of the key.
    key.is_some_and(|key| Sha256::digest(given.as_bytes()) == Sha256::digest(key.0.as_bytes()))
}

/// Whose key a request carries, where the key may make such a request.
async fn authenticate(app: &App, request: &HttpRequest) -> Result<KeyHolder, ApiError> {
    let holder = holder_of(app, bearer(request)).await?;
    keep_connection(request);
    // As the routes have it, whatever the address was written like; without one nothing is there.
    let pattern = request.match_pattern().unwrap_or_default();
    scope::check(&holder.scope, request.method(), &pattern)?;
    Ok(holder)
}

/// Who asks by a valid key keeps the connection, however many others come.
fn keep_connection(request: &HttpRequest) {
    if let Some(connection) = connection_of(request) {
        connection.has_key();
    }
}

async fn holder_of(app: &App, key: Option<String>) -> Result<KeyHolder, ApiError> {
    holder_at(app, key, app.runtime.shared.clock.now()).await
}

/// Whose key it is, at an instant of the server's clock: by the database, or by what that said of it before.
pub async fn holder_at(app: &App, key: Option<String>, now: Time) -> Result<KeyHolder, ApiError> {
    if app.config.auth.mode == AuthMode::None {
        let (tenant, scope) = (WeightedTenant::usual(DEFAULT_TENANT), Arc::default());
        return Ok(KeyHolder { tenant, key: None, is_operator: false, expires: None, scope });
    }
    let key = key.ok_or(ApiError::Unauthorized)?;
    if is_admin_key(app, &key) {
        return Err(ApiError::TenantKeyRequired);
    }
    let hash: [u8; 32] = Sha256::digest(key.as_bytes()).into();
    let unix_now = app.runtime.shared.unix_now();
    let known = |lifetime: Millis| {
        let holder = app.remembered.get(&hash, now, lifetime.into());
        holder.filter(|holder| holder.expires.is_none_or(|expires| expires > unix_now))
    };
    if let Some(holder) = known(app.config.auth.remember_ms) {
        return Ok(holder);
    }
    let store = &app.runtime.store;
    let worked_before = || known(app.config.auth.away_ms_max);
    let is_away = || store.health().is_away();
    // Nobody waits for a database that is known to be away.
    if is_away()
        && let Some(holder) = worked_before()
    {
        return Ok(holder);
    }
    match store.find_key(&key, unix_now).await {
        Ok(KeyLookup::Valid { key, weight, .. }) => {
            let tenant = WeightedTenant::weighted(key.tenant, weight);
            let holder = KeyHolder {
                tenant,
                key: Some(key.id),
                is_operator: key.is_operator,
                expires: key.expires,
                scope: Arc::new(key.scope),
            };
            app.remembered.put(hash, holder.clone(), now);
            Ok(holder)
        }
        Ok(lost @ (KeyLookup::Revoked | KeyLookup::Expired | KeyLookup::Unknown)) => {
            app.remembered.forget(&hash);
            Err(if lost == KeyLookup::Expired { ApiError::KeyExpired } else { ApiError::Unauthorized })
        }
        Err(error) => worked_before().filter(|_| is_away()).ok_or_else(|| of_store(error).into()),
    }
}

/// Whose request it is.
pub(crate) async fn tenant_of(app: &App, request: &HttpRequest) -> Result<TenantId, ApiError> {
    Ok(authenticate(app, request).await?.tenant.tenant)
}

/// The caller of a connection that stays open, for what is asked on it now: its key may have ended since, and this counts
/// as a POST of its own.
pub(crate) async fn again(app: &App, request: &HttpRequest) -> Result<Caller, ApiError> {
    let holder = authenticate(app, request).await?;
    scope::check_write(&holder.scope)?;
    app.runtime.shared.budgets.admit_request(holder.tenant.tenant)?;
    Ok(Caller::of(holder.tenant))
}

/// Put into a request's extensions: whose key it carries.
#[derive(Clone, Copy)]
pub(crate) struct KeyHolderTenant(pub(crate) TenantId);

/// The caller of a request that carries a valid key. A POST counts as one of its tenant's requests.
pub struct Authenticated(pub Caller);

impl FromRequest for Authenticated {
    type Error = ApiError;
    type Future = LocalBoxFuture<'static, Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, payload: &mut Payload) -> Self::Future {
        let scoped = Scoped::from_request(request, payload);
        Box::pin(async move { Ok(Self(scoped.await?.caller)) })
    }
}

/// The same with what its key may.
pub struct Scoped {
    pub caller: Caller,
    pub scope: Arc<KeyScope>,
}

impl FromRequest for Scoped {
    type Error = ApiError;
    type Future = LocalBoxFuture<'static, Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let request = request.clone();
        Box::pin(async move {
            let app = current_state::of_request(&request)?;
            let holder = authenticate(app, &request).await?;
            request.extensions_mut().insert(KeyHolderTenant(holder.tenant.tenant));
            if request.method() == Method::POST {
                app.runtime.shared.budgets.admit_request(holder.tenant.tenant)?;
            }
            Ok(Self { caller: Caller::of(holder.tenant), scope: holder.scope })
        })
    }
}

/// An operator: the request carries the key `auth.admin_key`, or an operator's own.
pub struct Operator {
    /// The number of its key; none of `auth.admin_key`.
    key: Option<u64>,
}

impl Operator {
    /// Who it is, in words of the audit log.
    pub(crate) fn actor(&self) -> String {
        self.key.map_or_else(|| "auth.admin_key".to_owned(), |key| format!("key {key}"))
    }
}

impl FromRequest for Operator {
    type Error = ApiError;
    type Future = LocalBoxFuture<'static, Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let request = request.clone();
        Box::pin(async move {
            let app = current_state::of_request(&request)?;
            operator(app, &request).await
        })
    }
}
