//! `/v1/query`: a span query, answered.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use actix_web::web::{self, Bytes, Data, Payload, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use base::Time;
use futures_util::stream;
use serde_json::json;
use serving::caller::Caller;
use serving::clock::{Deadline, Late};
use serving::error::{RequestError, internal};
use serving::relquery_state::Usage;
use serving::traces::Origin;
use tokio::sync::mpsc;

use crate::auth::Authenticated;
use crate::error::ApiError;
use crate::error::Refusals;
use crate::error::too_late;
use crate::json::JsonFields;
use crate::models::ServedModel;
use crate::routes::{ask_timely, only_post};
use crate::services::constraints::Purpose;
use crate::services::prepare::RequestContext;
use crate::services::query::{self, Asker, Planned, QueryEvent, QueryOutcome};
use crate::state::App;
use crate::stream::{event, reply};
use crate::wire::query::QueryRequest;
use crate::wire::query::reply::{CallReply, QueryEntry, QueryList, QueryReply};

/// Events that a client may be behind.
const EVENTS_MAX: usize = 64;

/// The route.
pub fn configure(routes: &mut ServiceConfig) {
    routes.service(
        web::resource("/v1/query").route(web::post().to(create)).default_service(web::to(only_post)),
    );
}

/// Runs a span query: an expression of model calls whose inputs may commute.
#[utoipa::path(
    post, path = "/v1/query", tag = "span queries",
    request_body(content = Object, description = "query: {system|user|assistant: TEXT}, {seq|cross|plus: [query, ..]}, \
        {g: {input: query, model, max_tokens, temperature, top_p, top_k, seed, stop, constraint}}, {chat: {input: [..], ..}}, \
        {retrieval: {corpus, query, k}}, {repeat: {n, g}}, {print: TEXT}; or queries: [query, ..], which fail one by one. \
        rules_off: [name, ..], tree_reduce: candidates that one judge sees, repair_tokens: first tokens of each span \
        that are computed again, explain, class, stream, deadline_ms. What stands in a plus is computed seeing only itself and \
        reused wherever it stands: an approximation."),
    responses(
        (status = 200, body = QueryReply),
        Refusals,
    ),
    security(("key" = []))
)]
pub async fn create(
    app: Data<App>,
    Authenticated(caller): Authenticated,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, ApiError> {
    let ((model, asked), peek) = match ask_timely((&app, caller), &request, payload, read).await? {
        (Ok((model, asked)), peek) => ((model, Arc::new(asked)), peek),
        (Err(Late), peek) => return Ok(late(peek.is_stream())),
    };
    let deadline = asked.deadline.map(|span| Deadline::new(peek.arrival(), span));
    let asker = Asker { caller, class: asked.class, deadline };
    let planned = plan(&app, &model, (caller, peek.arrival()), &asked);
    let Ok(planned) = app.runtime.shared.clock.within(deadline, planned).await else {
        return Ok(late(asked.stream));
    };
    let planned = planned?;
    if asked.stream {
        let planned =
            planned.into_iter().next().ok_or(RequestError::Internal)?.map_err(|(_, error)| error)?;
        return Ok(reply(events(app, model, asker, asked, planned)));
    }
    answer(&model, asker, &asked, planned).await
}

fn read(context: RequestContext<'_>, fields: JsonFields) -> Result<QueryRequest, RequestError> {
    QueryRequest::read(fields, context.validation())
}

/// The reply where the deadline passed before any call was planned.
fn late(is_stream: bool) -> HttpResponse {
    let too_late = too_late(Usage::default());
    if is_stream {
        let only = Ok::<_, Infallible>(Bytes::from(event("error", &too_late)));
        return reply(stream::once(std::future::ready(only)));
    }
    HttpResponse::GatewayTimeout().json(too_late)
}

/// Searches what the queries ask for, and plans them off the connection's thread.
async fn plan(
    app: &Data<App>,
    model: &Arc<ServedModel>,
    (caller, arrival): (Caller, Time),
    asked: &Arc<QueryRequest>,
) -> Result<Vec<Result<Planned, (usize, RequestError)>>, RequestError> {
    let searched = query::search(app, caller, &asked.queries).await;
    let (state, model, asked) = (app.clone(), Arc::clone(model), Arc::clone(asked));
    let planned = web::block(move || {
        let (tenant, purpose) = (caller.tenant, Purpose::Run);
        let context = RequestContext { app: &state, model: &model, tenant, purpose, arrival };
        query::plan(context, &asked, &searched)
    });
    planned.await.map_err(internal)
}

/// Runs planned queries and replies when all have ended.
async fn answer(
    model: &Arc<ServedModel>,
    asker: Asker,
    asked: &QueryRequest,
    planned: Vec<Result<Planned, (usize, RequestError)>>,
) -> Result<HttpResponse, ApiError> {
    let mut entries: Vec<(usize, Result<QueryReply, RequestError>)> = Vec::with_capacity(planned.len());
    let mut ready = Vec::with_capacity(planned.len());
    for planned in planned {
        match planned {
            Ok(planned) => ready.push(planned),
            Err((index, error)) => entries.push((index, Err(error))),
        }
    }
    let outcomes = query::run(model, asker, &ready, None).await;
    let mut spent = Usage::default();
    for (planned, QueryOutcome { ended, usage }) in ready.iter().zip(outcomes) {
        spent += usage;
        let reply =
            |ended: Vec<_>| QueryReply::new(&model.model().name, planned, &ended, usage, asked.explain);
        entries.push((planned.index, ended.map(reply)));
    }
    if !asked.is_bulk {
        return match entries.pop().ok_or(RequestError::Internal)?.1 {
            Err(RequestError::Deadline) => Ok(HttpResponse::GatewayTimeout().json(too_late(spent))),
            only => Ok(HttpResponse::Ok().json(only?)),
        };
    }
    entries.sort_by_key(|(index, _)| *index);
    let data = entries.into_iter().map(|(index, made)| {
        let (reply, error) = match made {
            Ok(reply) => (Some(reply), None),
            Err(error) => (None, Some(crate::error::body(&error).error)),
        };
        QueryEntry { index, reply, error }
    });
    Ok(HttpResponse::Ok().json(QueryList { object: "list", data: data.collect(), usage: spent.into() }))
}

/// What happens while a query runs: `delta` for text of the result, `call` for a call that has ended, then
/// `done` with the reply, or `error`.
fn events(
    app: Data<App>,
    model: Arc<ServedModel>,
    asker: Asker,
    asked: Arc<QueryRequest>,
    planned: Planned,
) -> impl futures_util::Stream<Item = Result<Bytes, Infallible>> {
    let (sender, receiver) = mpsc::channel(EVENTS_MAX);
    let keep_alive = Duration::from_millis(app.config.server.keep_alive_ms.0);
    actix_web::rt::spawn(Origin::carried(async move {
        let gone = sender.clone();
        tokio::select! {
            () = tell(&model, asker, &asked, &planned, &sender) => {}
            // The client left: what runs for it is called off with the future.
            () = gone.closed() => {}
        }
    }));
    stream::unfold(receiver, move |mut receiver| async move {
        let next = tokio::time::timeout(keep_alive, receiver.recv()).await;
        let event = next.unwrap_or_else(|_| Some(": waiting\n\n".to_owned()))?;
        Some((Ok(Bytes::from(event)), receiver))
    })
}

/// Runs a query and tells how it goes.
async fn tell(
    model: &Arc<ServedModel>,
    asker: Asker,
    asked: &QueryRequest,
    planned: &Planned,
    to: &mpsc::Sender<String>,
) {
    let (sender, mut updates) = mpsc::channel(EVENTS_MAX);
    let run = query::run(model, asker, std::slice::from_ref(planned), Some(sender));
    let pass = async {
        while let Some(one) = updates.recv().await {
            // Nobody listens any more: the caller drops this.
            let _ = to.send(shown(planned, &one)).await;
        }
    };
    let (outcomes, ()) = tokio::join!(run, pass);
    let last = match outcomes.into_iter().next() {
        Some(QueryOutcome { ended: Ok(ended), usage }) => {
            event("done", &QueryReply::new(&model.model().name, planned, &ended, usage, asked.explain))
        }
        Some(QueryOutcome { ended: Err(RequestError::Deadline), usage }) => event("error", &too_late(usage)),
        Some(QueryOutcome { ended: Err(error), .. }) => event("error", &crate::error::body(&error)),
        None => event("error", &crate::error::body(&RequestError::Internal)),
    };
    let _ = to.send(last).await;
}

fn shown(planned: &Planned, one: &QueryEvent) -> String {
    match one {
        QueryEvent::Delta(_, id, text) => event("delta", &json!({ "call": id.0, "text": text })),
        QueryEvent::Ended(_, id, ended) => event("call", &CallReply::new(planned, *id, ended)),
    }
}
