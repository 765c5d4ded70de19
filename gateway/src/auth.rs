//! Who calls: API key -> tenant and its weight, and whether it is an operator's.
//!
//! Keys are looked up by hash in the store; a verdict is remembered for `auth.remember_ms`, which bounds how
//! long a revoked key still works. While the database is away verdicts hold for `auth.away_ms_max`.

pub mod remembered;

use std::sync::Arc;

use actix_web::http::Method;
use actix_web::http::header::AUTHORIZATION;
use actix_web::web::Data;
use actix_web::{FromRequest, HttpRequest, dev::Payload};
use base::TenantId;
use futures_util::future::LocalBoxFuture;
use remembered::KeyHolder;
use serving::caller::{Caller, WeightedTenant};
use serving::error::{RequestError, internal, of_store};
use sha2::{Digest, Sha256};
use store::{DEFAULT_TENANT, KeyLookup, StoreOutage, UnixMillis};

use crate::config::AuthMode;
use crate::error::ApiError;
use crate::state::App;

/// Longest key that is looked up at all.
const KEY_BYTES_MAX: usize = 256;

/// The key of `Authorization: Bearer KEY`.
pub(crate) fn bearer(request: &HttpRequest) -> Option<String> {
    let value = request.headers().get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, key) = value.split_once(' ')?;
    let key = key.trim();
    let fits = !key.is_empty() && key.len() <= KEY_BYTES_MAX;
    (scheme.eq_ignore_ascii_case("bearer") && fits).then(|| key.to_owned())
}

/// Refuses whoever is no operator: neither the key `auth.admin_key` nor an operator's own comes with the request.
pub(crate) async fn operator(app: &App, request: &HttpRequest) -> Result<Operator, ApiError> {
    let given = bearer(request);
    if given.as_deref().is_some_and(|given| is_admin_key(app, given)) {
        return Ok(Operator { key: None });
    }
    if app.config.auth.mode == AuthMode::None {
        return Err(match &app.config.auth.admin_key {
            None => RequestError::NotConfigured("auth.admin_key").into(),
            Some(_) => ApiError::Unauthorized,
        });
    }
    let holder = authenticate(app, given).await?;
    if holder.is_operator { Ok(Operator { key: holder.key }) } else { Err(ApiError::Forbidden) }
}

/// Whether a key is the one that the configuration names.
fn is_admin_key(app: &App, given: &str) -> bool {
    let key = app.config.auth.admin_key.as_ref();
    // Of hashes, so that the time of comparing says nothing of the key.
    key.is_some_and(|key| Sha256::digest(given.as_bytes()) == Sha256::digest(key.0.as_bytes()))
}

async fn authenticate(app: &App, key: Option<String>) -> Result<KeyHolder, ApiError> {
    if app.config.auth.mode == AuthMode::None {
        let tenant = WeightedTenant::usual(DEFAULT_TENANT);
        return Ok(KeyHolder { tenant, key: None, is_operator: false, expires: None });
    }
    let key = key.ok_or(ApiError::Unauthorized)?;
    let hash: [u8; 32] = Sha256::digest(key.as_bytes()).into();
    let now = app.runtime.shared.clock.now();
    if let Some(holder) = app.remembered.get(&hash, now, app.config.auth.remember_ms.into()) {
        return Ok(holder);
    }
    let unix_now = UnixMillis(app.runtime.shared.clock.unix_ms());
    let store = &app.runtime.store;
    let worked_before = || {
        let holder = app.remembered.get(&hash, now, app.config.auth.away_ms_max.into());
        holder.filter(|holder| holder.expires.is_none_or(|expires| expires > unix_now))
    };
    let is_away = || store.health().outage() == Some(StoreOutage::Away);
    // Nobody waits for a database that is known to be away.
    if is_away()
        && let Some(holder) = worked_before()
    {
        return Ok(holder);
    }
    match store.find_key(&key, unix_now).await {
        Ok(KeyLookup::Valid { key, weight, .. }) => {
            let tenant = WeightedTenant::weighted(key.tenant, weight);
            let holder =
                KeyHolder { tenant, key: Some(key.id), is_operator: key.is_operator, expires: key.expires };
            app.remembered.put(hash, holder, now);
            Ok(holder)
        }
        Ok(KeyLookup::Revoked | KeyLookup::Expired | KeyLookup::Unknown) => {
            app.remembered.forget(&hash);
            Err(ApiError::Unauthorized)
        }
        Err(error) => worked_before().filter(|_| is_away()).ok_or_else(|| of_store(error).into()),
    }
}

/// Whose request it is.
pub(crate) async fn tenant_of(app: &App, request: &HttpRequest) -> Result<TenantId, ApiError> {
    Ok(authenticate(app, bearer(request)).await?.tenant.tenant)
}

/// The caller of a request that carries a valid key. A POST counts as one of its tenant's requests.
pub struct Authenticated(pub Caller);

impl FromRequest for Authenticated {
    type Error = ApiError;
    type Future = LocalBoxFuture<'static, Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let app = request.app_data::<Data<App>>().map(|data| Arc::clone(data));
        let key = bearer(request);
        let is_post = request.method() == Method::POST;
        Box::pin(async move {
            let app = app.ok_or_else(|| internal("no application state"))?;
            let holder = authenticate(&app, key).await?;
            if is_post {
                app.runtime.shared.budgets.admit_request(holder.tenant.tenant)?;
            }
            Ok(Self(Caller::of(holder.tenant)))
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
            let app = request.app_data::<Data<App>>().ok_or_else(|| internal("no application state"))?;
            operator(app, &request).await
        })
    }
}
