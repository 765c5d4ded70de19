//! Responses that are kept, so that a later request may go on from one by its identity, and those that run in the
//! background.

pub(crate) mod background;
pub(crate) mod elsewhere;
pub(crate) mod progress;
pub(crate) mod running;

use std::str::FromStr as _;

use base::TenantId;
use serde_json::Value;
use serving::error::{RequestError, internal, stored};
use store::{NewResponse, StoredResponse};

use crate::state::App;
use crate::wire::openai::{PREVIOUS, PreviousResponse};

/// A tenant's response, as it stands.
pub(crate) async fn find(app: &App, tenant: TenantId, id: &str) -> Result<StoredResponse, RequestError> {
    let now = app.runtime.shared.unix_now();
    if let Some(found) = stored(app.runtime.store.response(tenant, id, now).await)? {
        return Ok(found);
    }
    background::find(app, tenant, id).await?.ok_or_else(|| not_kept(id))
}

/// Forgets a tenant's response.
pub(crate) async fn forget(app: &App, tenant: TenantId, id: &str) -> Result<(), RequestError> {
    let was_kept = stored(app.runtime.store.delete_response(tenant, id).await)?;
    if was_kept || background::forget(app, tenant, id).await? { Ok(()) } else { Err(not_kept(id)) }
}

fn not_kept(id: &str) -> RequestError {
    RequestError::ResponseNotFound(id.to_owned())
}

/// What was said up to and with a response.
pub(crate) fn conversation(response: &StoredResponse) -> Result<PreviousResponse, RequestError> {
    let mut items = input_items(response)?;
    let reply = Value::from_str(&response.reply).map_err(internal)?;
    let status = reply["status"].as_str().unwrap_or_default();
    if !["completed", "incomplete"].contains(&status) {
        let reason = format!("is `{status}`: it has no answer to go on from");
        return Err(RequestError::invalid(PREVIOUS, reason));
    }
    items.extend(reply["output"].as_array().into_iter().flatten().cloned());
    Ok(PreviousResponse { items })
}

/// What was sent up to a response.
pub(crate) fn input_items(response: &StoredResponse) -> Result<Vec<Value>, RequestError> {
    serde_json::from_str(&response.input).map_err(internal)
}

/// Keeps a tenant's response; says whether it is kept. An answer is not withheld because it cannot be.
pub(crate) async fn keep(app: &App, tenant: TenantId, (id, reply): (&str, &str), said: &[Value]) -> bool {
    let config = &app.config.openai;
    let now = app.runtime.shared.unix_now();
    let Ok(input) = serde_json::to_string(&listed(id, said)) else { return false };
    let new = NewResponse { tenant, id, input: &input, reply, expires: now.after(config.responses_ms_max) };
    match app.runtime.store.keep_response(new, config.tenant_responses_bytes_max, now).await {
        Ok(is_kept) => is_kept,
        Err(error) => {
            tracing::warn!(%error, "a response was not kept");
            false
        }
    }
}

/// The items of a conversation, each with an identity of its own.
fn listed(id: &str, said: &[Value]) -> Vec<Value> {
    let identified = |(place, item): (usize, &Value)| {
        let mut item = item.clone();
        if let Some(fields) = item.as_object_mut().filter(|fields| !fields.contains_key("id")) {
            fields.insert("id".into(), format!("item-{}-{place}", id.trim_start_matches("resp-")).into());
        }
        item
    };
    said.iter().enumerate().map(identified).collect()
}
