//! `/v1/replicas`: what runs rows, and an operator's ways to add one, to take one out of service, and out.

use actix_web::web::{self, Data, Path, Payload, Query, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use serde::Deserialize;
use serde_json::{Value, json};
use serving::error::RequestError;
use serving::replicas::{ReplicaMembers, ReplicaView, SourceStatus};

use crate::auth::Operator;
use crate::error::ApiError;
use crate::routes::live::{Viewing, shows_replicas};
use crate::routes::{
    ModelQuery, TRUE_OR_FALSE, only_delete, only_get_post, only_post, read_body, read_query,
};
use crate::services::audit::{Change, recorded};
use crate::state::App;
use crate::wire::replica::{self, ReplicaCost, ReplicaKv};

/// The routes.
pub fn configure(routes: &mut ServiceConfig) {
    routes
        .service(
            web::resource("/v1/replicas")
                .route(web::get().to(list))
                .route(web::post().to(add))
                .default_service(web::to(only_get_post)),
        )
        .service(
            web::resource("/v1/replicas/{name}")
                .route(web::delete().to(remove))
                .default_service(web::to(only_delete)),
        )
        .service(
            web::resource("/v1/replicas/{name}/drain")
                .route(web::post().to(drain))
                .default_service(web::to(only_post)),
        )
        .service(
            web::resource("/v1/replicas/{name}/resume")
                .route(web::post().to(resume))
                .default_service(web::to(only_post)),
        );
}

/// What runs rows: its state, load, the tokens that its KV memory holds (and whether they are configured or reported),
/// what its rows cost (once that is fitted), breaker and last error; and how the last reading of what names replicas
/// while the server runs went. Empty where the local engine is alone. To tenants replicas have numbers in place of
/// names, and what went wrong is not told, for both tell of addresses.
#[utoipa::path(
    get, path = "/v1/replicas", tag = "operation", responses((status = 200)), security(("key" = []))
)]
pub async fn list(app: Data<App>, Viewing(viewer): Viewing) -> HttpResponse {
    let (mut data, mut discovery) = (Vec::new(), Vec::new());
    let names = shows_replicas(&app, viewer);
    for runtime in app.models.iter().map(|model| &model.runtime) {
        let name = &runtime.model.name;
        let replicas = &runtime.view().replicas;
        data.extend(replicas.iter().zip(1..).map(|(one, place)| shown(name, one, (!names).then_some(place))));
        let statuses = runtime.members.as_ref().map_or_else(Vec::new, |members| members.statuses());
        discovery.extend(statuses.iter().map(|status| shown_status(name, status, names)));
    }
    HttpResponse::Ok().json(json!({ "object": "list", "data": data, "discovery": discovery }))
}

fn shown_status(model: &str, status: &SourceStatus, names: bool) -> Value {
    json!({
        "model": model,
        "source": status.source.name(),
        "status": if status.error.is_none() { "ok" } else { "failed" },
        "replicas": status.replicas,
        "error": shown_error(status.error.as_ref().filter(|_| names)),
    })
}

/// What went wrong, and when (unix milliseconds).
fn shown_error(error: Option<&(String, u64)>) -> Option<Value> {
    error.map(|(message, at)| json!({ "message": message, "at_ms": at }))
}

/// Under its name, or as the one of this number.
fn shown(model: &str, replica: &ReplicaView, number: Option<usize>) -> Value {
    json!({
        "name": number.map_or_else(|| replica.name.clone(), |number| number.to_string()),
        "object": "replica",
        "model": model,
        "kind": if replica.is_local { "local" } else { "openai" },
        "source": replica.source.name(),
        "state": replica.state,
        "breaker": replica.breaker,
        "in_flight": { "rows": replica.rows, "rows_max": replica.rows_max, "tokens": replica.tokens.0 },
        "kv": ReplicaKv::of(replica),
        "cost": ReplicaCost::of(replica),
        "lease": replica.lease.map(|lease| json!({
            "rows": lease.rows, "tokens": lease.tokens, "gateways": lease.gateways, "held": lease.is_held,
        })),
        "last_error": shown_error(replica.last_error.as_ref().filter(|_| number.is_none())),
    })
}

/// Lets a replica finish what it has and gives it nothing new. Takes an operator's key.
#[utoipa::path(
    post, path = "/v1/replicas/{name}/drain", tag = "operation", params(("name" = String, Path)),
    responses(
        (status = 200), (status = 401, body = crate::error::ErrorBody), (status = 404, body = crate::error::ErrorBody),
        (status = 403, body = crate::error::ErrorBody, description = "not an operator's key"),
    ),
    security(("key" = []))
)]
pub async fn drain(app: Data<App>, operator: Operator, name: Path<String>) -> Result<HttpResponse, ApiError> {
    set(&app, &operator, &name, true).await
}

/// Takes a replica back into service. Takes an operator's key.
#[utoipa::path(
    post, path = "/v1/replicas/{name}/resume", tag = "operation", params(("name" = String, Path)),
    responses(
        (status = 200), (status = 401, body = crate::error::ErrorBody), (status = 404, body = crate::error::ErrorBody),
        (status = 403, body = crate::error::ErrorBody, description = "not an operator's key"),
    ),
    security(("key" = []))
)]
pub async fn resume(
    app: Data<App>,
    operator: Operator,
    name: Path<String>,
) -> Result<HttpResponse, ApiError> {
    set(&app, &operator, &name, false).await
}

async fn set(app: &App, operator: &Operator, name: &str, is_drained: bool) -> Result<HttpResponse, ApiError> {
    let action = if is_drained { "replica.drain" } else { "replica.resume" };
    let change = Change { action, subject: name, details: json!({}) };
    let make = async { of_any_model(app, name, |members| members.drain(name, is_drained)) };
    recorded(app, operator, change, make).await?;
    Ok(HttpResponse::Ok().json(json!({ "name": name, "object": "replica", "draining": is_drained })))
}

/// Does something with the replica of a name, whichever model it runs.
fn of_any_model(
    app: &App,
    name: &str,
    act: impl Fn(&ReplicaMembers) -> Result<(), RequestError>,
) -> Result<(), RequestError> {
    for members in app.models.iter().filter_map(|model| model.runtime.members.as_deref()) {
        match act(members) {
            Err(RequestError::NotFound(_)) => {}
            done => return done,
        }
    }
    Err(RequestError::NotFound(format!("the replica `{name}`")))
}

/// Adds a replica: the fields of an entry of `[[replicas]]`. An entry for a server that is there replaces its
/// settings. It is forgotten when the process ends. Of several models, `model` in the query names the one that it
/// runs (that of the body is the model's name at the server). Takes an operator's key.
#[utoipa::path(
    post, path = "/v1/replicas", tag = "operation", params(("model" = Option<String>, Query)),
    request_body(content = Object, description = "the fields of an entry of `[[replicas]]`: url (required), name, model, \
        api_key, dialect, prompt, rows_max, tokens_max, priority, salt, and the rest"),
    responses(
        (status = 200), (status = 400, body = crate::error::ErrorBody), (status = 401, body = crate::error::ErrorBody),
        (status = 501, body = crate::error::ErrorBody, description = "no fleet"),
        (status = 403, body = crate::error::ErrorBody, description = "not an operator's key"),
    ),
    security(("key" = []))
)]
pub async fn add(
    app: Data<App>,
    operator: Operator,
    request: HttpRequest,
    asked: Query<ModelQuery>,
    payload: Payload,
) -> Result<HttpResponse, ApiError> {
    let members = asked.of(&app)?.runtime.members.as_deref();
    let members = members.ok_or(RequestError::NotConfigured("replicas"))?;
    let entry = replica::entry(crate::json::value(&read_body(&app, &request, payload).await?)?)?;
    let subject = entry.url.clone().unwrap_or_default();
    let change = Change { action: "replica.add", subject: &subject, details: json!({ "name": entry.name }) };
    let name = recorded(&app, &operator, change, async { members.add(entry) }).await?;
    Ok(HttpResponse::Ok().json(json!({ "name": name, "object": "replica", "source": "route" })))
}

/// How a replica is taken out.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Removal {
    /// Its rows go elsewhere at once.
    now: Option<String>,
}

/// Takes a replica out: it finishes what it has, or with `now=true` its rows go elsewhere at once. It stays out
/// until it is added, what names it stops doing so, or the process ends. Takes an operator's key.
#[utoipa::path(
    delete, path = "/v1/replicas/{name}", tag = "operation",
    params(("name" = String, Path), ("now" = Option<bool>, Query)),
    responses(
        (status = 200), (status = 401, body = crate::error::ErrorBody), (status = 404, body = crate::error::ErrorBody),
        (status = 403, body = crate::error::ErrorBody, description = "not an operator's key"),
    ),
    security(("key" = []))
)]
pub async fn remove(
    app: Data<App>,
    operator: Operator,
    name: Path<String>,
    removal: Query<Removal>,
) -> Result<HttpResponse, ApiError> {
    let now = read_query("now", removal.now.as_deref(), TRUE_OR_FALSE)?.unwrap_or(false);
    let change = Change { action: "replica.remove", subject: &name, details: json!({ "now": now }) };
    let make = async { of_any_model(&app, &name, |members| members.remove(&name, now)) };
    recorded(&app, &operator, change, make).await?;
    Ok(HttpResponse::Ok().json(json!({ "name": *name, "object": "replica", "deleted": true })))
}
