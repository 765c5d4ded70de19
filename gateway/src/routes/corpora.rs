//! `/v1/corpora`: documents in, the fragments nearest to a question out.

use actix_web::web::{self, Data, Path, Payload, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use serde_json::json;

use crate::auth::Authenticated;
use crate::error::ApiError;
use crate::routes::{ask, only_get_delete, only_get_post, only_post};
use crate::services::corpora;
use crate::state::App;
use crate::wire::corpora::{self as wire, CorporaReply, CorpusReply, FoundReply};

/// The routes.
pub fn configure(routes: &mut ServiceConfig) {
    routes
        .service(
            web::resource("/v1/corpora")
                .route(web::get().to(list))
                .route(web::post().to(add))
                .default_service(web::to(only_get_post)),
        )
        .service(
            web::resource("/v1/corpora/{name}")
                .route(web::get().to(read))
                .route(web::delete().to(delete))
                .default_service(web::to(only_get_delete)),
        )
        .service(
            web::resource("/v1/corpora/{name}/search")
                .route(web::post().to(search))
                .default_service(web::to(only_post)),
        );
}

/// Adds documents to a corpus, which is made where there is none of the name.
#[utoipa::path(
    post, path = "/v1/corpora", tag = "corpora",
    request_body(content = Object, description = "name, documents ([{id, text}]; one of an id that is there is \
        replaced, or left as it is where the text is the same), fragment_tokens and overlap (tokens of the embedding \
        model; only where the corpus is made)"),
    responses(
        (status = 200, body = CorpusReply),
        (status = 400, body = crate::error::ErrorBody),
        (status = 429, body = crate::error::ErrorBody),
        (status = 501, body = crate::error::ErrorBody, description = "no embedding model (setting retrieval.model)"),
    ),
    security(("key" = []))
)]
pub async fn add(
    app: Data<App>,
    Authenticated(caller): Authenticated,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, ApiError> {
    let prepare = |context: crate::services::prepare::RequestContext<'_>, fields| {
        wire::addition(fields, &context.app.config.retrieval)
    };
    let (_, addition) = ask((&app, caller), &request, payload, prepare).await?;
    let (corpus, written) = corpora::add(&app, caller.tenant, addition).await?;
    Ok(HttpResponse::Ok().json(CorpusReply::new(&corpus, Some(written))))
}

/// The caller's corpora.
#[utoipa::path(
    get, path = "/v1/corpora", tag = "corpora", responses((status = 200, body = CorporaReply)),
    security(("key" = []))
)]
pub async fn list(app: Data<App>, Authenticated(caller): Authenticated) -> Result<HttpResponse, ApiError> {
    Ok(HttpResponse::Ok().json(CorporaReply::new(&corpora::list(&app, caller.tenant).await?)))
}

/// A corpus.
#[utoipa::path(
    get, path = "/v1/corpora/{name}", tag = "corpora", params(("name" = String, Path)),
    responses((status = 200, body = CorpusReply), (status = 404, body = crate::error::ErrorBody)),
    security(("key" = []))
)]
pub async fn read(
    app: Data<App>,
    Authenticated(caller): Authenticated,
    name: Path<String>,
) -> Result<HttpResponse, ApiError> {
    let corpus = corpora::find(&app, caller.tenant, &name).await?;
    Ok(HttpResponse::Ok().json(CorpusReply::new(&corpus, None)))
}

/// Deletes a corpus with all its documents.
#[utoipa::path(
    delete, path = "/v1/corpora/{name}", tag = "corpora", params(("name" = String, Path)),
    responses((status = 200), (status = 404, body = crate::error::ErrorBody)),
    security(("key" = []))
)]
pub async fn delete(
    app: Data<App>,
    Authenticated(caller): Authenticated,
    name: Path<String>,
) -> Result<HttpResponse, ApiError> {
    corpora::delete(&app, caller.tenant, &name).await?;
    Ok(HttpResponse::Ok().json(json!({ "name": *name, "object": "corpus.deleted", "deleted": true })))
}

/// The fragments of a corpus that are nearest to a question.
#[utoipa::path(
    post, path = "/v1/corpora/{name}/search", tag = "corpora", params(("name" = String, Path)),
    request_body(content = Object, description = "query (a text), k (how many fragments; 5)"),
    responses(
        (status = 200, body = FoundReply),
        (status = 400, body = crate::error::ErrorBody),
        (status = 404, body = crate::error::ErrorBody),
        (status = 429, body = crate::error::ErrorBody),
        (status = 501, body = crate::error::ErrorBody, description = "no embedding model (setting retrieval.model)"),
    ),
    security(("key" = []))
)]
pub async fn search(
    app: Data<App>,
    Authenticated(caller): Authenticated,
    name: Path<String>,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, ApiError> {
    let prepare = |context: crate::services::prepare::RequestContext<'_>, fields| {
        wire::question(fields, &context.app.config.retrieval)
    };
    let (_, question) = ask((&app, caller), &request, payload, prepare).await?;
    let found = corpora::search(&app, caller.tenant, &name, &question.text, question.count).await?;
    Ok(HttpResponse::Ok().json(FoundReply::new(&name, &found)))
}
