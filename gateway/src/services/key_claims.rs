//! Claims of idempotency keys in a store that several gateways share: while one of them runs a key's request, no other
//! begins it. Whoever comes second waits a while for the first to be over, and takes what it left: its reply or its
//! ticket, or the key itself where it failed.
//!
//! In a store of one machine there is nobody to tell: [`crate::services::idempotency`] is enough. A gateway that is
//! killed leaves its claims until it is started again, or their time is over. Must not know HTTP.

use std::sync::Arc;

use base::{Millis, TenantId, Time};
use serving::clock::Deadline;
use serving::error::{RequestError, internal, stored};
use store::{KeyClaim, KeyClaimed};

use crate::services::held_claims::HeldClaim;
use crate::services::idempotency::RequestKey;
use crate::state::App;

/// How long a gateway may be silent before others take its keys over: as long as of tickets.
const SPAN: Millis = Millis(60_000);
/// Time between two looks at whether another gateway is done.
const LOOK: Millis = Millis(200);

/// A key that may be used.
#[derive(Debug)]
pub struct ClaimedKey {
    /// What keeps it from other gateways, where there are any.
    pub claim: Option<Arc<HeldClaim>>,
    /// Its request was answered meanwhile, or has a ticket: nothing may begin.
    pub is_answered: bool,
}

/// Claims a key for a request that arrived at `arrival`; waits while another gateway runs the same request, but not for
/// longer than `limits.idempotency_wait_ms_max` and the request's deadline.
///
/// # Errors
/// [`RequestError::KeyInUse`] where it still runs then.
pub async fn claim(
    app: &App,
    tenant: TenantId,
    key: &RequestKey,
    (arrival, deadline): (Time, Option<Deadline>),
) -> Result<ClaimedKey, RequestError> {
    let store = &app.runtime.store;
    if !store.is_shared() {
        return Ok(ClaimedKey { claim: None, is_answered: false });
    }
    let clock = app.runtime.shared.clock;
    let until = Deadline::new(arrival, app.config.limits.idempotency_wait_ms_max).at();
    let until = deadline.map_or(until, |deadline| until.min(deadline.at()));
    let claim = KeyClaim {
        tenant,
        name: key.name.clone(),
        request: key.digest,
        node: app.config.store.node.clone(),
        token: KeyClaim::token().map_err(internal)?,
    };
    let ours = HeldClaim::new(claim, store, &app.key_claims);
    loop {
        // The database may keep it, and its answer be lost.
        ours.note(true);
        let claimed = stored(store.claim_key(&ours.claim, SPAN, app.runtime.shared.unix_now()).await)?;
        if let KeyClaimed::Granted { is_answered } = claimed {
            return Ok(ClaimedKey { claim: Some(Arc::new(ours)), is_answered });
        }
        ours.note(false);
        if claimed == KeyClaimed::Reused {
            return Err(RequestError::KeyReused("Idempotency-Key"));
        }
        let now = clock.now();
        if now >= until {
            return Err(RequestError::KeyInUse("Idempotency-Key"));
        }
        tokio::time::sleep_until(clock.timer(until.min(now + LOOK.into()))).await;
    }
}

/// Prolongs all claims of this gateway.
pub async fn renew(app: &App) {
    let tokens = app.key_claims.tokens();
    if let Err(error) = app.runtime.store.renew_key_claims(&app.config.store.node, &tokens, SPAN).await {
        tracing::warn!(%error, "claims of idempotency keys were not renewed");
    }
}

/// Gives back whatever a gateway of this name has, which runs nothing: it has not begun, or it ends.
pub async fn end_all(app: &App) {
    if app.runtime.store.is_shared()
        && let Err(error) = app.runtime.store.end_key_claims_of(&app.config.store.node).await
    {
        tracing::warn!(%error, "idempotency keys stay claimed for up to {SPAN}");
    }
}
