//! Who calls: API key -> tenant and its weight.
//!
//! Keys are looked up by hash in the store; a verdict is remembered for `auth.remember_ms`, which bounds how
//! long a revoked key still works. The prefix-cache scope comes from here too, so that no client can choose it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use actix_web::http::header::AUTHORIZATION;
use actix_web::web::Data;
use actix_web::{FromRequest, HttpRequest, dev::Payload};
use base::{Nanos, TenantId, Time};
use futures_util::future::LocalBoxFuture;
use sha2::{Digest, Sha256};
use store::{DEFAULT_TENANT, KeyLookup, UnixMillis};

use crate::app::App;
use crate::config::AuthMode;
use crate::error::{ApiError, internal, of_store};

/// Most verdicts remembered; beyond it all are forgotten, which costs one lookup each.
const REMEMBERED_MAX: usize = 10_000;
/// Longest key that is looked up at all.
const KEY_BYTES_MAX: usize = 256;

/// What a key says of its holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The tenant.
    pub tenant: TenantId,
    /// Its weight, in thousandths.
    pub weight: u32,
}

impl Member {
    /// A tenant of the usual weight.
    pub fn usual(tenant: TenantId) -> Self {
        Self { tenant, weight: 1_000 }
    }

    /// A tenant of the store.
    pub fn of(tenant: &store::Tenant) -> Self {
        Self { tenant: tenant.id, weight: thousandths(tenant.weight) }
    }
}

/// A stored weight as the scheduler takes it: a thousandth at least, for nobody is shut out by a weight.
fn thousandths(weight: f64) -> u32 {
    (weight * 1_000.0).round().clamp(1.0, 1e9) as u32
}

/// Verdicts about keys, by hash of the key.
#[derive(Debug, Default)]
pub struct Remembered(Mutex<HashMap<[u8; 32], (Member, Time)>>);

impl Remembered {
    fn get(&self, hash: &[u8; 32], now: Time, lifetime: Nanos) -> Option<Member> {
        let verdicts = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        verdicts.get(hash).filter(|(_, since)| now.since(*since) < lifetime).map(|(tenant, _)| *tenant)
    }

    fn put(&self, hash: [u8; 32], tenant: Member, now: Time) {
        let mut verdicts = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if verdicts.len() >= REMEMBERED_MAX {
            verdicts.clear();
        }
        verdicts.insert(hash, (tenant, now));
    }
}

/// An authenticated caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The tenant.
    pub tenant: TenantId,
    /// Its share of the machine relative to others, in thousandths.
    pub weight: u32,
    /// Its prefix-cache namespace.
    pub scope: u128,
}

impl Caller {
    /// The caller of a tenant, on a model revision.
    pub fn of(Member { tenant, weight }: Member, revision: u128) -> Self {
        let digest = Sha256::new()
            .chain_update(b"relserve prefix scope")
            .chain_update(revision.to_le_bytes())
            .chain_update(tenant.0.to_le_bytes())
            .finalize();
        let half: [u8; 16] = digest[..16].try_into().expect("a SHA-256 has 32 bytes");
        Self { tenant, weight, scope: u128::from_le_bytes(half) }
    }
}

/// The key of `Authorization: Bearer KEY`.
pub(crate) fn bearer(request: &HttpRequest) -> Option<String> {
    let value = request.headers().get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, key) = value.split_once(' ')?;
    let key = key.trim();
    let fits = !key.is_empty() && key.len() <= KEY_BYTES_MAX;
    (scheme.eq_ignore_ascii_case("bearer") && fits).then(|| key.to_owned())
}

/// Refuses whoever does not hold the key of operators.
pub(crate) fn operator(app: &App, request: &HttpRequest) -> Result<(), ApiError> {
    let Some(key) = &app.config.auth.admin_key else { return Err(ApiError::NotConfigured("auth.admin_key")) };
    let given = bearer(request).ok_or(ApiError::Unauthorized)?;
    // Of hashes, so that the time of comparing says nothing of the key.
    if Sha256::digest(given.as_bytes()) != Sha256::digest(key.0.as_bytes()) {
        return Err(ApiError::Unauthorized);
    }
    Ok(())
}

async fn authenticate(app: &App, key: Option<String>) -> Result<Member, ApiError> {
    if app.config.auth.mode == AuthMode::None {
        return Ok(Member::usual(DEFAULT_TENANT));
    }
    let key = key.ok_or(ApiError::Unauthorized)?;
    let hash: [u8; 32] = Sha256::digest(key.as_bytes()).into();
    let now = app.shared.clock.now();
    if let Some(tenant) = app.remembered.get(&hash, now, app.config.auth.remember_ms.into()) {
        return Ok(tenant);
    }
    match app.store.find_key(&key, UnixMillis(app.shared.clock.unix_ms())).await.map_err(of_store)? {
        KeyLookup::Valid { key, weight, .. } => {
            let member = Member { tenant: key.tenant, weight: thousandths(weight) };
            app.remembered.put(hash, member, now);
            Ok(member)
        }
        KeyLookup::Revoked | KeyLookup::Expired | KeyLookup::Unknown => Err(ApiError::Unauthorized),
    }
}

impl FromRequest for Caller {
    type Error = ApiError;
    type Future = LocalBoxFuture<'static, Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        let app = request.app_data::<Data<App>>().map(|data| Arc::clone(data));
        let key = bearer(request);
        Box::pin(async move {
            let app = app.ok_or_else(|| internal("no application state"))?;
            let member = authenticate(&app, key).await?;
            Ok(Self::of(member, app.model.revision))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenants_and_revisions_have_scopes_of_their_own() {
        let scope = |tenant, revision| Caller::of(Member::usual(TenantId(tenant)), revision).scope;
        assert_ne!(scope(1, 1), scope(2, 1));
        assert_ne!(scope(1, 1), scope(1, 2));
        assert_eq!(scope(1, 1), scope(1, 1));
    }

    #[test]
    fn a_verdict_is_forgotten_after_its_lifetime() {
        let remembered = Remembered::default();
        let member = Member::usual(TenantId(4));
        remembered.put([1; 32], member, Time(100));
        assert_eq!(remembered.get(&[1; 32], Time(109), Nanos(10)), Some(member));
        assert_eq!(remembered.get(&[1; 32], Time(110), Nanos(10)), None);
    }
}
