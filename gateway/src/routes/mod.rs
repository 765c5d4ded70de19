//! Handlers, one file per public API: extract, call, convert.

pub mod addins;
pub mod admin;
pub mod batches;
pub mod cells;
pub mod corpora;
pub mod embeddings;
pub mod files;
pub mod invocations;
pub mod known_models;
pub mod live;
pub mod messages;
pub mod openai;
pub mod ops;
pub(crate) mod other_names;
pub mod page;
pub mod prompts;
pub mod query;
pub mod relqueries;
pub mod replicas;
pub mod schemas;
pub mod sign_ins;
pub mod sql;
pub(crate) mod start;
pub mod tokenize;
pub mod uploads;
pub mod workbooks;

use std::str::FromStr;
use std::sync::Arc;

use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::middleware::Next;
use actix_web::web::{self, Bytes, Data, Payload, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use base::Time;
use serde::Deserialize;
use serving::caller::Caller;
use serving::clock::Late;
use serving::error::{RequestError, internal};

use crate::arrival::arrival_of;
use crate::body::peek::Peek;
use crate::body::{self, Timely};
use crate::error::ApiError;
use crate::json::JsonFields;
use crate::models::ServedModel;
use crate::services::constraints::Purpose;
use crate::services::prepare::RequestContext;
use crate::state::App;

/// All routes. A known path with another method is a 405 that names the methods.
pub fn configure(routes: &mut ServiceConfig) {
    relqueries::configure(routes);
    cells::configure(routes);
    corpora::configure(routes);
    openai::configure(routes);
    messages::configure(routes);
    embeddings::configure(routes);
    invocations::configure(routes);
    tokenize::configure(routes);
    known_models::configure(routes);
    schemas::configure(routes);
    sql::configure(routes);
    prompts::configure(routes);
    query::configure(routes);
    files::configure(routes);
    uploads::configure(routes);
    batches::configure(routes);
    replicas::configure(routes);
    workbooks::configure(routes);
    sign_ins::configure(routes);
    admin::configure(routes);
    live::configure(routes);
    ops::configure(routes);
    page::configure(routes);
    addins::configure(routes);
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

/// A resource that answers POST, under all names of its route.
pub(crate) fn post_only<F, Args>(route: &'static str, handler: F) -> actix_web::Resource
where
    F: actix_web::Handler<Args>,
    Args: actix_web::FromRequest + 'static,
    F::Output: actix_web::Responder + 'static,
{
    let names = other_names::names_of(route);
    web::resource(names).route(web::post().to(handler)).default_service(web::to(only_post))
}

/// A number of a query, from 1 to `most`; `usual` where none is given.
pub(crate) fn number(field: &str, given: Option<&str>, (usual, most): (u32, u32)) -> Result<u32, ApiError> {
    let number = given.map_or(Some(usual), |text| text.parse().ok());
    let fits = number.filter(|number| (1..=most).contains(number));
    fits.ok_or_else(|| ApiError::invalid(field, format!("must be an integer from 1 to {most}")))
}

/// What a parameter of a query must be that is one of two.
pub(crate) const TRUE_OR_FALSE: &str = "must be true or false";
/// What `before` of a list must be.
pub(crate) const ENTRY_NUMBER: &str =
    "must be a whole number: the `before` of the page after it, or the id of an entry";

/// A parameter of a query. Read here and not with the others, so that an error names it and says what it must be.
pub(crate) fn read_query<T: FromStr>(
    field: &str,
    given: Option<&str>,
    wanted: &str,
) -> Result<Option<T>, ApiError> {
    given.map(|text| text.parse().map_err(|_| ApiError::invalid(field, wanted))).transpose()
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
pub(crate) async fn only_delete() -> Result<HttpResponse, ApiError> {
    Err(ApiError::MethodNotAllowed("DELETE"))
}

/// The answer to a known path with a wrong method, where DELETE is right.
pub(crate) async fn only_get_delete() -> Result<HttpResponse, ApiError> {
    Err(ApiError::MethodNotAllowed("GET, DELETE"))
}

/// The answer to a known path with a wrong method, where GET and POST are right.
pub(crate) async fn only_get_post() -> Result<HttpResponse, ApiError> {
    Err(ApiError::MethodNotAllowed("GET, POST"))
}

/// The answer to a path that is none.
pub async fn not_found(request: HttpRequest) -> Result<HttpResponse, ApiError> {
    Err(RequestError::NotFound(format!("`{}`", request.path())).into())
}

/// Answers what names something with a NUL in it: nothing has such a name, and Postgres takes no text with one.
pub async fn without_nul(
    request: ServiceRequest,
    next: Next<impl MessageBody>,
) -> Result<ServiceResponse<impl MessageBody>, actix_web::Error> {
    const NUL: &str = "%00";
    if request.path().contains(NUL) {
        return Err(ApiError::from(RequestError::NotFound(format!("`{}`", request.path()))).into());
    }
    if request.query_string().contains(NUL) {
        return Err(ApiError::invalid("query", "must not have a NUL (`%00`)").into());
    }
    next.call(request).await
}

/// The query of a route that shows or changes something of one model.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelQuery {
    /// Its name or an alias; by default the default one.
    model: Option<String>,
}

impl ModelQuery {
    /// The model.
    pub(crate) fn of<'a>(&self, app: &'a App) -> Result<&'a Arc<ServedModel>, RequestError> {
        app.models.named(self.model.as_deref())
    }
}

/// What turns a request's fields into work.
pub(crate) type Prepare<T> = fn(RequestContext<'_>, JsonFields) -> Result<T, RequestError>;

/// What a request asks for, with the model that it names.
pub(crate) type ForModel<T> = (Arc<ServedModel>, T);

/// Reads a body and prepares its work.
pub(crate) async fn ask<T: Send + 'static>(
    (app, caller): (&Data<App>, Caller),
    request: &HttpRequest,
    payload: Payload,
    prepare: Prepare<T>,
) -> Result<ForModel<T>, ApiError> {
    let bytes = read_body(app, request, payload).await?;
    lower((app, caller), &bytes, arrival_of(request, app.runtime.shared.clock), prepare).await
}

/// A body that arrived before its deadline.
#[derive(Debug)]
pub(crate) struct Arrived {
    pub(crate) body: Bytes,
    /// What it says of its deadline.
    pub(crate) peek: Peek,
}

/// Reads a body that may name a deadline.
pub(crate) async fn read_timely(
    app: &App,
    request: &HttpRequest,
    payload: Payload,
) -> Result<Arrived, ApiError> {
    let clock = app.runtime.shared.clock;
    let mut peek = Peek::new(arrival_of(request, clock));
    let timely = Timely { clock, peek: &mut peek };
    let body = body::read(request.headers(), payload, app, Some(timely)).await?;
    Ok(Arrived { body, peek })
}

/// Reads a body that may name a deadline and prepares its work. `Err(Late)`: the deadline passed meanwhile;
/// whether the client waits for events stands with it.
pub(crate) async fn ask_timely<T: Send + 'static>(
    (app, caller): (&Data<App>, Caller),
    request: &HttpRequest,
    payload: Payload,
    prepare: Prepare<T>,
) -> Result<(Result<ForModel<T>, Late>, Peek), ApiError> {
    let Arrived { body, peek } = read_timely(app, request, payload).await?;
    let work = lower((app, caller), &body, peek.arrival(), prepare);
    let prepared = app.runtime.shared.clock.within(peek.deadline(), work).await;
    Ok((prepared.map_or(Ok(Err(Late)), |prepared| prepared.map(Ok))?, peek))
}

/// Reads a body.
pub(crate) async fn read_body(app: &App, request: &HttpRequest, payload: Payload) -> Result<Bytes, ApiError> {
    body::read(request.headers(), payload, app, None).await
}

/// Prepares a body's work off the connection's thread: large tables take a while.
pub(crate) async fn lower<T: Send + 'static>(
    (app, caller): (&Data<App>, Caller),
    body: &Bytes,
    arrival: Time,
    prepare: impl FnOnce(RequestContext<'_>, JsonFields) -> Result<T, RequestError> + Send + 'static,
) -> Result<ForModel<T>, ApiError> {
    let clock = app.runtime.shared.clock;
    let begun = clock.now();
    let prepared = off_thread((app, caller), body, arrival, prepare).await;
    let runtime = prepared.as_ref().map_or(&app.runtime, |(model, _)| &model.runtime);
    runtime.shared.metrics.requests.prepare_seconds.observe(clock.now().since(begun).as_seconds());
    prepared
}

/// Reads a body's fields off the connection's thread.
pub(crate) async fn off_thread<T: Send + 'static>(
    (app, caller): (&Data<App>, Caller),
    body: &Bytes,
    arrival: Time,
    prepare: impl FnOnce(RequestContext<'_>, JsonFields) -> Result<T, RequestError> + Send + 'static,
) -> Result<ForModel<T>, ApiError> {
    let (state, body) = (app.clone(), body.clone());
    let work = web::block(move || -> Result<_, RequestError> {
        let fields = crate::json::object(&body)?;
        let model = state.models.of_request(caller.tenant, &fields)?;
        let (tenant, purpose) = (caller.tenant, Purpose::Run);
        let context = RequestContext { app: &state, model, tenant, purpose, arrival };
        Ok((Arc::clone(model), prepare(context, fields)?))
    });
    Ok(work.await.map_err(internal)??)
}
