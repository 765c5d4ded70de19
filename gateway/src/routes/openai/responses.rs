//! `/v1/responses`: one answer to a conversation, in the shape of OpenAI's newer API, and those that are kept.

use actix_web::http::header::ContentType;
use actix_web::web::{self, Data, Path, Payload, Query, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use serde::Deserialize;
use serde_json::{Value, json};
use serving::caller::Caller;
use serving::error::{RequestError, internal};
use serving::ownership;

use super::websocket::connect_responses;
use super::{background, begin, ignored_header, late, of_client, stream, with_ignored};
use crate::auth::Authenticated;
use crate::error::{ApiError, ErrorBody, Refusals, too_late};
use crate::routes::{
    Arrived, ForModel, get_only, lower, number, off_thread, only_get_delete, only_get_post, only_post,
    read_timely,
};
use crate::services::prepare::RequestContext;
use crate::services::responses::background::BackgroundRequest;
use crate::services::{openai, responses};
use crate::state::App;
use crate::wire::openai::{PREVIOUS, ResponseEnvelope, ResponseEvents, ResponseReply};

/// Items of a page, where the request does not say, and at most.
const PAGE: (u32, u32) = (20, 100);

/// The routes.
pub fn configure(routes: &mut ServiceConfig) {
    routes
        .service(
            web::resource("/v1/responses")
                .route(web::post().to(create_response))
                .route(web::get().to(connect_responses))
                .default_service(web::to(only_get_post)),
        )
        // Before the responses that are kept: none has this identity.
        .service(
            web::resource("/v1/responses/input_tokens")
                .route(web::post().to(count_response_input_tokens))
                .default_service(web::to(only_post)),
        )
        .service(
            web::resource("/v1/responses/{id}")
                .route(web::get().to(response))
                .route(web::delete().to(delete_response))
                .default_service(web::to(only_get_delete)),
        )
        .service(
            web::resource("/v1/responses/{id}/cancel")
                .route(web::post().to(cancel_response))
                .default_service(web::to(only_post)),
        )
        .service(get_only("/v1/responses/{id}/input_items", response_input_items));
}

/// Answers a conversation.
#[utoipa::path(
    post, path = "/v1/responses", tag = "openai",
    request_body(content = Object, description = "model, input (a text, or messages whose content is text), instructions, \
        max_output_tokens, tools (functions), tool_choice, parallel_tool_calls, text.format (text, json_object, json_schema), temperature, top_p, stream, metadata, \
        store (whether the response is kept), background (whether it runs whoever waits), \
        previous_response_id (one that is kept: its conversation stands before `input`); and what \
        /v1/chat/completions takes beyond OpenAI."),
    responses(
        (status = 200, body = ResponseReply),
        (status = 404, body = ErrorBody, description = "no response of that identity is kept"),
        Refusals,
    ),
    security(("key" = []))
)]
pub async fn create_response(
    app: Data<App>,
    Authenticated(caller): Authenticated,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, ApiError> {
    let arrived = read_timely(&app, &request, payload).await?;
    let (clock, peek) = (app.runtime.shared.clock, &arrived.peek);
    let Ok(prepared) = clock.within(peek.deadline(), read(&app, caller, &arrived)).await else {
        return Ok(late(peek.is_stream()));
    };
    let (model, openai::PreparedResponse { asked, echo, conversation, background: body }) = prepared?;
    let asked = of_client(asked, request.headers())?;
    let ignored = ignored_header(&asked.ignored);
    if let Some(body) = body {
        let is_stream = asked.stream;
        let wanted = BackgroundRequest { asked, echo, body };
        let reply = responses::background::begin(&app, &model, caller, wanted).await?;
        let reply = if is_stream {
            let events = background::events_of(app, caller.tenant, first_reply(&reply)?, None);
            crate::stream::reply(events)
        } else {
            HttpResponse::Ok().json(reply)
        };
        return Ok(with_ignored(reply, ignored));
    }
    let (is_stream, deadline, tools) = (asked.stream, asked.work.deadline, asked.tools);
    let Ok(handle) = begin(&app, &model, caller, asked.work).await? else { return Ok(late(is_stream)) };
    let envelope = ResponseEnvelope::new(handle.relquery(), model.model(), echo).calling(tools);
    if is_stream {
        let events = Box::new(ResponseEvents::new(envelope));
        let talk = stream::Talk::Events(events, conversation.unwrap_or_default());
        let reply = crate::stream::reply(stream::events_of(app, handle, talk, deadline));
        return Ok(with_ignored(reply, ignored));
    }
    if !handle.wait(deadline).await {
        ownership::cancel(&model.runtime, handle.relquery());
        return Ok(HttpResponse::GatewayTimeout().json(too_late(handle.relquery().read().spent())));
    }
    let to_keep = envelope.to_keep(&handle.relquery().read());
    let mut is_kept = false;
    if let Some((id, reply)) = to_keep {
        let said = conversation.unwrap_or_default();
        is_kept = responses::keep(&app, caller.tenant, (&id, &reply), &said).await;
    }
    let reply = envelope.kept(is_kept).reply(&handle.relquery().read())?;
    Ok(with_ignored(HttpResponse::Ok().json(reply), ignored))
}

/// A reply as its ticket has it. By its text: a `Value` has other digits of a number of 32 bits.
fn first_reply(reply: &ResponseReply) -> Result<Value, RequestError> {
    let text = serde_json::to_string(reply).map_err(internal)?;
    serde_json::from_str(&text).map_err(internal)
}

/// Counts the tokens of a response's input, which is not run.
#[utoipa::path(
    post, path = "/v1/responses/input_tokens", tag = "openai",
    request_body(content = Object, description = "what /v1/responses takes"),
    responses(
        (status = 200, body = Object, description = "input_tokens"),
        (status = 404, body = ErrorBody, description = "no response of that identity is kept"),
        (status = 501, body = ErrorBody, description = "replicas without a tokenizer here (setting model.tokenizer)"),
        Refusals,
    ),
    security(("key" = []))
)]
pub async fn count_response_input_tokens(
    app: Data<App>,
    Authenticated(caller): Authenticated,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, ApiError> {
    let arrived = read_timely(&app, &request, payload).await?;
    let clock = app.runtime.shared.clock;
    let Ok(prepared) = clock.within(arrived.peek.deadline(), read(&app, caller, &arrived)).await else {
        return Err(RequestError::Deadline.into());
    };
    let (model, openai::PreparedResponse { asked, .. }) = prepared?;
    if !model.model().has_ids() {
        return Err(RequestError::NotConfigured("model.tokenizer").into());
    }
    let counted = json!({"object": "response.input_tokens", "input_tokens": asked.prompt_tokens()});
    Ok(with_ignored(HttpResponse::Ok().json(counted), ignored_header(&asked.ignored)))
}

/// Reads a request, with the response that it goes on from.
async fn read(
    app: &Data<App>,
    caller: Caller,
    Arrived { body, peek }: &Arrived,
) -> Result<ForModel<openai::PreparedResponse>, ApiError> {
    let mut previous = None;
    // Few requests go on from another: those that do are read twice.
    if std::str::from_utf8(body).is_ok_and(|text| text.contains(PREVIOUS)) {
        let named = off_thread((app, caller), body, peek.arrival(), |_, mut fields| fields.string(PREVIOUS));
        if let (_, Some(id)) = named.await? {
            previous = Some(responses::conversation(&responses::find(app, caller.tenant, &id).await?)?);
        }
    }
    let prepare = move |context: RequestContext<'_>, fields| openai::response(context, fields, previous);
    lower((app, caller), body, peek.arrival(), prepare).await
}

/// What of a response is asked for.
#[derive(Debug, Deserialize)]
pub struct ResponseQuery {
    stream: Option<String>,
    starting_after: Option<String>,
}

impl ResponseQuery {
    /// Whether events are wanted, and behind which.
    fn events(&self) -> Result<Option<Option<u64>>, ApiError> {
        let number = self.starting_after.as_deref().map(str::parse::<u32>).transpose();
        let Ok(after) = number else {
            let reason = format!("must be the sequence_number of an event, 0 to {}", u32::MAX);
            return Err(ApiError::invalid("starting_after", reason));
        };
        match self.stream.as_deref() {
            Some("true") => Ok(Some(after.map(u64::from))),
            None | Some("false") if after.is_some() => {
                Err(ApiError::invalid("starting_after", "is only allowed with `stream=true`"))
            }
            None | Some("false") => Ok(None),
            Some(_) => Err(ApiError::invalid("stream", "must be true or false")),
        }
    }
}

/// A response that is kept, or runs in the background; of the latter its events too.
#[utoipa::path(
    get, path = "/v1/responses/{id}", tag = "openai",
    params(
        ("id" = String, Path),
        ("stream" = Option<String>, Query, pattern = "^(true|false)$", description = "true: the events of a response \
            in the background, from the first to the last"),
        ("starting_after" = Option<u32>, Query, description = "with `stream=true`: the sequence_number of the event \
            behind which they begin")
    ),
    responses((status = 200, body = ResponseReply), (status = 404, body = ErrorBody)), security(("key" = []))
)]
pub async fn response(
    app: Data<App>,
    Authenticated(caller): Authenticated,
    id: Path<String>,
    query: Query<ResponseQuery>,
) -> Result<HttpResponse, ApiError> {
    if let Some(after) = query.events()? {
        let first_reply = responses::background::first_reply(&app, caller.tenant, &id).await?;
        return Ok(crate::stream::reply(background::events_of(app, caller.tenant, first_reply, after)));
    }
    let found = responses::find(&app, caller.tenant, &id).await?;
    Ok(HttpResponse::Ok().content_type(ContentType::json()).body(found.reply))
}

/// Calls a response off that runs in the background. One that is over stays as it is.
#[utoipa::path(
    post, path = "/v1/responses/{id}/cancel", tag = "openai", params(("id" = String, Path)),
    responses(
        (status = 200, body = ResponseReply),
        (status = 400, body = ErrorBody, description = "it is not one of the background"),
        (status = 404, body = ErrorBody)
    ),
    security(("key" = []))
)]
pub async fn cancel_response(
    app: Data<App>,
    Authenticated(caller): Authenticated,
    id: Path<String>,
) -> Result<HttpResponse, ApiError> {
    let found = responses::background::cancel(&app, caller.tenant, &id).await?;
    Ok(HttpResponse::Ok().content_type(ContentType::json()).body(found.reply))
}

/// Forgets a response that is kept. Those that go on from it keep their own conversations.
#[utoipa::path(
    delete, path = "/v1/responses/{id}", tag = "openai", params(("id" = String, Path)),
    responses((status = 200, body = Object), (status = 404, body = ErrorBody)), security(("key" = []))
)]
pub async fn delete_response(
    app: Data<App>,
    Authenticated(caller): Authenticated,
    id: Path<String>,
) -> Result<HttpResponse, ApiError> {
    responses::forget(&app, caller.tenant, &id).await?;
    Ok(HttpResponse::Ok().json(json!({"id": *id, "object": "response", "deleted": true})))
}

/// Which items of a conversation are wanted.
#[derive(Debug, Deserialize)]
pub struct ItemsQuery {
    limit: Option<String>,
    order: Option<String>,
    after: Option<String>,
}

/// What was sent up to a response that is kept: its whole conversation, the newest item first.
#[utoipa::path(
    get, path = "/v1/responses/{id}/input_items", tag = "openai",
    params(
        ("id" = String, Path), ("limit" = Option<u32>, Query, minimum = 1, maximum = 100, description = "1 to 100, by default 20"),
        ("order" = Option<String>, Query, pattern = "^(asc|desc)$", description = "asc or desc, by default desc"),
        ("after" = Option<String>, Query, description = "an item's identity: the page begins behind it")
    ),
    responses((status = 200, body = Object), (status = 404, body = ErrorBody)), security(("key" = []))
)]
pub async fn response_input_items(
    app: Data<App>,
    Authenticated(caller): Authenticated,
    id: Path<String>,
    query: Query<ItemsQuery>,
) -> Result<HttpResponse, ApiError> {
    let limit = number("limit", query.limit.as_deref(), PAGE)? as usize;
    let found = responses::find(&app, caller.tenant, &id).await?;
    let mut items = responses::input_items(&found)?;
    match query.order.as_deref() {
        None | Some("desc") => items.reverse(),
        Some("asc") => {}
        Some(_) => return Err(ApiError::invalid("order", "must be asc or desc")),
    }
    if let Some(after) = query.after.as_deref() {
        let place = items.iter().position(|item| item["id"] == after);
        let place = place.ok_or_else(|| RequestError::NotFound(format!("item `{after}`")))?;
        items.drain(..=place);
    }
    let has_more = items.len() > limit;
    items.truncate(limit);
    let id_of = |item: Option<&Value>| item.map_or(Value::Null, |item| item["id"].clone());
    let (first_id, last_id) = (id_of(items.first()), id_of(items.last()));
    let page = json!({
        "object": "list", "data": items, "first_id": first_id, "last_id": last_id, "has_more": has_more,
    });
    Ok(HttpResponse::Ok().json(page))
}
