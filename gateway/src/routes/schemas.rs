//! `/v1/schemas`: register a PML schema, look at it, forget it.

use actix_web::web::{self, Data, Path, Payload, Query, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use serde_json::json;
use serving::error::RequestError;
use serving::error::stored;

use crate::auth::Authenticated;
use crate::error::ApiError;
use crate::error::ErrorBody;
use crate::json::JsonFields;
use crate::models::ServedModel;
use crate::routes::{ModelQuery, ask, only_get_delete, only_get_post};
use crate::services::prepare::RequestContext;
use crate::services::schemas::ready::Ready;
use crate::services::schemas::{self, SchemaDraft};
use crate::state::App;
use crate::wire::pml::{SchemaEntry, SchemaList, SchemaReply, SchemaRequest};

/// The routes.
pub fn configure(routes: &mut ServiceConfig) {
    routes
        .service(
            web::resource("/v1/schemas")
                .route(web::post().to(create))
                .route(web::get().to(list))
                .default_service(web::to(only_get_post)),
        )
        .service(
            web::resource("/v1/schemas/{name}")
                .route(web::get().to(read))
                .route(web::delete().to(delete))
                .default_service(web::to(only_get_delete)),
        );
}

/// Registers a schema, in place of the one of its name, and computes its modules.
#[utoipa::path(
    post, path = "/v1/schemas", tag = "pml",
    request_body(content = Object, description = "schema (PML: `<schema name=\"...\">` with module, union, param and \
        system, user, assistant; required), pin (whether its modules stay in the engine's memory), model"),
    responses(
        (status = 200, body = SchemaReply),
        (status = 400, body = ErrorBody, description = "what is wrong with the schema, by line and column"),
        (status = 413, body = ErrorBody),
        (status = 429, body = ErrorBody),
    ),
    security(("key" = []))
)]
pub async fn create(
    app: Data<App>,
    Authenticated(caller): Authenticated,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, ApiError> {
    let (model, wanted) = ask((&app, caller), &request, payload, read_request).await?;
    let (ready, usage) = schemas::register((&app, &model), caller, wanted).await?;
    Ok(HttpResponse::Ok().json(SchemaReply { usage: Some(usage.into()), ..shown(&model, &ready) }))
}

fn read_request(context: RequestContext<'_>, fields: JsonFields) -> Result<SchemaDraft, RequestError> {
    let SchemaRequest { pml, is_pinned } = SchemaRequest::read(fields, context.validation())?;
    let layout = schemas::lay_out(context.model, &pml)?;
    Ok(SchemaDraft { pml, layout, is_pinned })
}

fn shown(model: &ServedModel, ready: &Ready) -> SchemaReply {
    let Ready { stored, layout, pin } = ready;
    let held = pin.as_ref().map(|pin| pin.is_held());
    SchemaReply::new(layout, model.model(), (stored.created.0, stored.updated.0), held)
}

/// The names of the caller's schemas.
#[utoipa::path(
    get, path = "/v1/schemas", tag = "pml", responses((status = 200, body = SchemaList)), security(("key" = []))
)]
pub async fn list(app: Data<App>, Authenticated(caller): Authenticated) -> Result<HttpResponse, ApiError> {
    let schemas = stored(app.runtime.store.schemas(caller.tenant).await)?;
    let data = schemas.iter().map(SchemaEntry::from).collect();
    Ok(HttpResponse::Ok().json(SchemaList { object: "list", data }))
}

/// A schema with its modules, positions and text, as it lies in the tokens of a model.
#[utoipa::path(
    get, path = "/v1/schemas/{name}", tag = "pml",
    params(("name" = String, Path), ("model" = Option<String>, Query)),
    responses((status = 200, body = SchemaReply), (status = 404, body = ErrorBody)), security(("key" = []))
)]
pub async fn read(
    app: Data<App>,
    Authenticated(caller): Authenticated,
    name: Path<String>,
    asked: Query<ModelQuery>,
) -> Result<HttpResponse, ApiError> {
    let model = asked.of(&app)?;
    let Some(ready) = schemas::find((&app, model), caller.tenant, &name).await? else {
        return Err(not_found(&name).into());
    };
    let reply = SchemaReply { schema: Some(ready.stored.pml.clone()), ..shown(model, &ready) };
    Ok(HttpResponse::Ok().json(reply))
}

/// Forgets a schema. What was computed of its modules leaves the engine's memory when that is needed.
#[utoipa::path(
    delete, path = "/v1/schemas/{name}", tag = "pml", params(("name" = String, Path)),
    responses((status = 200), (status = 404, body = ErrorBody)), security(("key" = []))
)]
pub async fn delete(
    app: Data<App>,
    Authenticated(caller): Authenticated,
    name: Path<String>,
) -> Result<HttpResponse, ApiError> {
    if !schemas::remove(&app, caller.tenant, &name).await? {
        return Err(not_found(&name).into());
    }
    Ok(HttpResponse::Ok().json(json!({ "name": *name, "object": "schema.deleted", "deleted": true })))
}

fn not_found(name: &str) -> RequestError {
    RequestError::NotFound(format!("the schema `{name}`"))
}
