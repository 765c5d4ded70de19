//! Handlers, one file per public API: extract, call, convert.

pub mod batches;
pub mod cells;
pub mod corpora;
pub mod files;
pub mod live;
pub mod openai;
pub mod ops;
pub mod page;
pub mod prompts;
pub mod query;
pub mod relqueries;
pub mod replicas;
pub mod schemas;
pub(crate) mod start;

use actix_web::web::{self, Bytes, Data, Payload, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use serde_json::json;
use serving::caller::Caller;
use serving::error::{RequestError, internal};
use serving::relquery_state::Usage;

use crate::body;
use crate::error::ApiError;
use crate::services::constraints::Purpose;
use crate::services::prepare::RequestContext;
use crate::state::App;
use crate::wire::usage::UsageReply;

/// All routes. A known path with another method is a 405 that names the methods.
pub fn configure(routes: &mut ServiceConfig) {
    relqueries::configure(routes);
    cells::configure(routes);
    corpora::configure(routes);
    openai::configure(routes);
    schemas::configure(routes);
    prompts::configure(routes);
    query::configure(routes);
    files::configure(routes);
    batches::configure(routes);
    replicas::configure(routes);
    live::configure(routes);
    ops::configure(routes);
    page::configure(routes);
}

/// A resource that answers GET.
pub(crate) fn get_only<F, Args>(path: &'static str, handler: F) -> actix_web::Resource
where
    F: actix_web::Handler<Args>,
    Args: actix_web::FromRequest + 'static,
    F::Output: actix_web::Responder + 'static,
{
    web::resource(path).route(web::get().to(handler)).default_service(web::to(only_get))
}

/// A resource that answers GET, and HEAD with its head alone.
pub(crate) fn get_and_head<F, Args>(path: &'static str, handler: F) -> actix_web::Resource
where
    F: actix_web::Handler<Args>,
    Args: actix_web::FromRequest + 'static,
    F::Output: actix_web::Responder + 'static,
{
    let head = web::head().to(handler.clone());
    web::resource(path).route(web::get().to(handler)).route(head).default_service(web::to(only_get_head))
}

/// A number of a query, from 1 to `most`; `usual` where none is given.
pub(crate) fn number(field: &str, given: Option<&str>, (usual, most): (u32, u32)) -> Result<u32, ApiError> {
    let number = given.map_or(Some(usual), |text| text.parse().ok());
    let fits = number.filter(|number| (1..=most).contains(number));
    fits.ok_or_else(|| ApiError::invalid(field, format!("must be an integer from 1 to {most}")))
}

async fn only_get_head() -> Result<HttpResponse, ApiError> {
    Err(ApiError::MethodNotAllowed("GET, HEAD"))
}

async fn only_get() -> Result<HttpResponse, ApiError> {
    Err(ApiError::MethodNotAllowed("GET"))
}

/// The answer to a known path with a wrong method, where POST is right.
pub(crate) async fn only_post() -> Result<HttpResponse, ApiError> {
    Err(ApiError::MethodNotAllowed("POST"))
}

/// The answer to a known path with a wrong method, where GET and DELETE are right.
pub(crate) async fn only_get_delete() -> Result<HttpResponse, ApiError> {
    Err(ApiError::MethodNotAllowed("GET, DELETE"))
}

/// The answer to a known path with a wrong method, where GET and POST are right.
pub(crate) async fn only_get_post() -> Result<HttpResponse, ApiError> {
    Err(ApiError::MethodNotAllowed("GET, POST"))
}

/// The error of a deadline, with the tokens that were spent until then.
pub(crate) fn too_late(spent: Usage) -> serde_json::Value {
    let mut body = json!(crate::error::body(&RequestError::Deadline));
    body["usage"] = json!(UsageReply::from(spent));
    body
}

/// The answer to a path that is none.
pub async fn not_found(request: HttpRequest) -> Result<HttpResponse, ApiError> {
    Err(RequestError::NotFound(format!("`{}`", request.path())).into())
}

/// What turns a request's fields into work.
pub(crate) type Prepare<T> = fn(RequestContext<'_>, crate::json::JsonFields) -> Result<T, RequestError>;

/// Reads a body and prepares its work.
pub(crate) async fn ask<T: Send + 'static>(
    (app, caller): (&Data<App>, Caller),
    request: &HttpRequest,
    payload: Payload,
    prepare: Prepare<T>,
) -> Result<T, ApiError> {
    let bytes = read_body(app, request, payload).await?;
    lower((app, caller), &bytes, prepare).await
}

/// Reads a body.
pub(crate) async fn read_body(app: &App, request: &HttpRequest, payload: Payload) -> Result<Bytes, ApiError> {
    body::read(request.headers(), payload, &app.config).await
}

/// Prepares a body's work off the connection's thread: large tables take a while.
pub(crate) async fn lower<T: Send + 'static>(
    (app, caller): (&Data<App>, Caller),
    body: &Bytes,
    prepare: Prepare<T>,
) -> Result<T, ApiError> {
    let (state, body) = (app.clone(), body.clone());
    let clock = app.runtime.shared.clock;
    let begun = clock.now();
    let work = web::block(move || {
        let context = RequestContext { app: &state, tenant: caller.tenant, purpose: Purpose::Run };
        crate::json::object(&body).and_then(|fields| prepare(context, fields))
    });
    let prepared = work.await.map_err(internal)?;
    app.runtime.shared.metrics.requests.prepare_seconds.observe(clock.now().since(begun).as_seconds());
    Ok(prepared?)
}
