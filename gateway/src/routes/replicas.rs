//! `/v1/replicas`: what runs rows, and an operator's way to take one out of service.

use actix_web::web::{self, Data, Path, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use scheduler::fleet::ReplicaId;
use serde_json::{Value, json};
use serving::error::RequestError;
use serving::replicas::{ReplicaEvent, ReplicaView};

use crate::auth::{self, Authenticated};
use crate::error::ApiError;
use crate::routes::{get_only, only_post};
use crate::state::App;

/// The routes.
pub fn configure(routes: &mut ServiceConfig) {
    routes
        .service(get_only("/v1/replicas", list))
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

/// What runs rows: its state, load, breaker and last error. Empty where the local engine is alone.
#[utoipa::path(
    get, path = "/v1/replicas", tag = "operation", responses((status = 200)), security(("key" = []))
)]
pub async fn list(app: Data<App>, _: Authenticated) -> HttpResponse {
    let data: Vec<Value> = app.runtime.view().replicas.iter().map(shown).collect();
    HttpResponse::Ok().json(json!({ "object": "list", "data": data }))
}

fn shown(replica: &ReplicaView) -> Value {
    json!({
        "name": replica.name,
        "object": "replica",
        "kind": if replica.is_local { "local" } else { "openai" },
        "state": replica.state,
        "breaker": replica.breaker,
        "in_flight": { "rows": replica.rows, "rows_max": replica.rows_max, "tokens": replica.tokens.0 },
        "lease": replica.lease.map(|lease| json!({
            "rows": lease.rows, "tokens": lease.tokens, "gateways": lease.gateways, "held": lease.is_held,
        })),
        "last_error": replica.last_error.as_ref().map(|(message, at)| json!({ "message": message, "at_ms": at })),
    })
}

/// Lets a replica finish what it has and gives it nothing new. Takes the key `auth.admin_key`.
#[utoipa::path(
    post, path = "/v1/replicas/{name}/drain", tag = "operation", params(("name" = String, Path)),
    responses(
        (status = 200), (status = 401, body = crate::error::ErrorBody), (status = 404, body = crate::error::ErrorBody),
        (status = 501, body = crate::error::ErrorBody, description = "no setting auth.admin_key"),
    ),
    security(("key" = []))
)]
pub async fn drain(
    app: Data<App>,
    request: HttpRequest,
    name: Path<String>,
) -> Result<HttpResponse, ApiError> {
    set(&app, &request, &name, true)
}

/// Takes a replica back into service. Takes the key `auth.admin_key`.
#[utoipa::path(
    post, path = "/v1/replicas/{name}/resume", tag = "operation", params(("name" = String, Path)),
    responses(
        (status = 200), (status = 401, body = crate::error::ErrorBody), (status = 404, body = crate::error::ErrorBody),
        (status = 501, body = crate::error::ErrorBody, description = "no setting auth.admin_key"),
    ),
    security(("key" = []))
)]
pub async fn resume(
    app: Data<App>,
    request: HttpRequest,
    name: Path<String>,
) -> Result<HttpResponse, ApiError> {
    set(&app, &request, &name, false)
}

fn set(app: &App, request: &HttpRequest, name: &str, is_drained: bool) -> Result<HttpResponse, ApiError> {
    auth::operator(app, request)?;
    let index =
        (0..app.config.replicas.len()).find(|index| app.config.backend().replica_name(*index) == name);
    let index = index.and_then(|index| u32::try_from(index).ok());
    let index = index.ok_or_else(|| RequestError::NotFound(format!("the replica `{name}`")))?;
    app.runtime.shared.intake.event(ReplicaEvent::Drain { replica: ReplicaId(index), is_drained });
    Ok(HttpResponse::Ok().json(json!({ "name": name, "object": "replica", "draining": is_drained })))
}
