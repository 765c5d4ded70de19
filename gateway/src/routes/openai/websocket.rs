//! `/v1/responses` over a WebSocket, as OpenAI has it: a message asks for a response, whose events are messages back.
//!
//! What is asked for on one connection is answered one after the other. A connection knows its last response, kept or
//! not, so that the next goes on from it. Each counts as a POST of its tenant's, and the key is looked at anew. The work
//! ends with the connection.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use actix_web::http::header::UPGRADE;
use actix_web::web::{self, Bytes, Data, Payload};
use actix_web::{HttpRequest, HttpResponse, ResponseError as _};
use actix_ws::{
    AggregatedMessage, AggregatedMessageStream, CloseCode, CloseReason, Closed, ProtocolError, Session,
};
use base::{Millis, Nanos, TenantId, Time};
use futures_util::StreamExt as _;
use futures_util::stream::LocalBoxStream;
use serde_json::{Value, json};
use serving::error::{RequestError, internal};
use serving::traces::Origin;
use store::StoredResponse;

use super::{begin, of_client, stream};
use crate::auth::{self, Scoped, scope};
use crate::body;
use crate::error::{ApiError, ErrorBody};
use crate::json::{JsonFields, object};
use crate::routes::lower;
use crate::services::prepare::RequestContext;
use crate::services::{openai, responses};
use crate::state::App;
use crate::wire::openai::{PREVIOUS, PreviousResponse, ResponseEnvelope, ResponseEvents, all_said};

/// Requests that wait on a connection while another is answered.
const WAITING_MAX: usize = 8;
/// Age at which a connection takes no further request: an hour, as OpenAI has it.
const CONNECTION_MAX: Millis = Millis(3_600_000);
/// Time between two looks whether the server ends, and whether the client is there.
const LOOK: Duration = Duration::from_secs(1);
/// So many times `server.keep_alive_ms` without an answer to a ping, and the client is gone.
const SILENCES_MAX: u64 = 2;
/// Characters of a `stream_id`.
const STREAM_ID_CHARACTERS_MAX: usize = 256;

/// Answers conversations over a WebSocket.
#[utoipa::path(
    get, path = "/v1/responses", tag = "openai",
    responses(
        (status = 101, description = "a WebSocket: messages of the type `response.create` with what POST takes, and events back"),
        (status = 400, body = ErrorBody, description = "no WebSocket is asked for")
    ),
    security(("key" = []))
)]
pub async fn connect_responses(
    app: Data<App>,
    scoped: Scoped,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, ApiError> {
    scope::check_write(&scoped.scope)?;
    let upgrade = request.headers().get(UPGRADE);
    if !upgrade.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"websocket")) {
        return Err(ApiError::invalid("Upgrade", "must be websocket; without one a response is a POST"));
    }
    let bytes_max = usize::try_from(app.config.limits.body_bytes_max.0).unwrap_or(usize::MAX);
    let (reply, session, messages) = actix_ws::handle(&request, payload)
        .map_err(|error| ApiError::invalid("Upgrade", error.to_string()))?;
    let messages =
        messages.max_frame_size(bytes_max).aggregate_continuations().max_continuation_size(bytes_max);
    let begun = app.runtime.shared.clock.now();
    let (waiting, last, pinged) = Default::default();
    let heard = begun;
    let connection =
        ResponseConnection { app, request, session, messages, waiting, last, begun, heard, pinged };
    actix_web::rt::spawn(Origin::carried(connection.run()));
    Ok(reply)
}

/// A connection.
struct ResponseConnection {
    app: Data<App>,
    /// The request that it began with, for its key and what it says of its client.
    request: HttpRequest,
    session: Session,
    messages: AggregatedMessageStream,
    /// What is asked for and not begun.
    waiting: VecDeque<Bytes>,
    /// The last response, by its identity.
    last: Option<(String, StoredResponse)>,
    begun: Time,
    /// When the client was last heard of, or told something.
    heard: Time,
    /// The first ping that was not answered.
    pinged: Option<Time>,
}

/// Why a connection is over: the client has gone, or is told this.
type Over = Option<CloseReason>;

/// The events of a response, and all that was said before it.
struct StreamedResponse {
    events: LocalBoxStream<'static, Result<Bytes, Infallible>>,
    said: Vec<Value>,
}

/// What a request says beside the response that it asks for.
#[derive(Debug, Default, PartialEq)]
struct ResponseCreate {
    /// Stands in each of its events.
    stream_id: Option<String>,
    previous: Option<String>,
}

impl ResponseCreate {
    /// Reads a message; where it is refused, with the `stream_id` of its error.
    fn read(body: &[u8]) -> Result<Self, (Option<String>, RequestError)> {
        let mut fields = object(body).map_err(|error| (None, error))?;
        let stream_id = fields.text("stream_id").filter(|id| is_stream_id(id)).map(str::to_owned);
        match Self::previous(&mut fields, stream_id.is_some()) {
            Ok(previous) => Ok(Self { stream_id, previous }),
            Err(error) => Err((stream_id, error)),
        }
    }

    fn previous(fields: &mut JsonFields, has_id: bool) -> Result<Option<String>, RequestError> {
        if fields.string("type")?.as_deref() != Some("response.create") {
            return fields.bad("type", "must be response.create");
        }
        if fields.take("stream_id").is_some() && !has_id {
            let reason = format!("must be 1 to {STREAM_ID_CHARACTERS_MAX} letters, digits, `_`, `-` and `.`");
            return fields.bad("stream_id", reason);
        }
        if fields.bool("generate")? == Some(false) {
            return fields.bad("generate", "must be true: nothing is prepared without an answer");
        }
        if fields.bool("background")? == Some(true) {
            return fields.bad("background", "must be false over a WebSocket: POST what goes on without one");
        }
        fields.string(PREVIOUS)
    }

    /// Leaves the fields of a response that is streamed.
    fn leave_response(fields: &mut JsonFields) {
        for field in ["type", "stream_id", "generate"] {
            fields.take(field);
        }
        fields.insert("stream", true.into());
    }
}

fn is_stream_id(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    (1..=STREAM_ID_CHARACTERS_MAX).contains(&name.len()) && name.bytes().all(is_plain)
}

impl ResponseConnection {
    async fn run(mut self) {
        let over = self.talk().await;
        if let Err(Some(reason)) = over {
            // An error: the client has gone first.
            let _ = self.session.close(Some(reason)).await;
        }
    }

    /// Answers until the connection is over.
    async fn talk(&mut self) -> Result<(), Over> {
        loop {
            self.end_when_old().await?;
            if let Some(body) = self.waiting.pop_front() {
                self.answer(body).await?;
                continue;
            }
            if self.app.runtime.is_draining() {
                return Err(Some(closed(CloseCode::Away, "the server shuts down")));
            }
            match tokio::time::timeout(LOOK, self.messages.recv()).await {
                Ok(message) => self.take(message).await?,
                Err(_) => self.look_after_client().await?,
            }
        }
    }

    fn now(&self) -> Time {
        self.app.runtime.shared.clock.now()
    }

    /// Sees whether the client is still there.
    async fn look_after_client(&mut self) -> Result<(), Over> {
        let (now, silence) = (self.now(), Nanos::from(self.app.config.server.keep_alive_ms));
        match self.pinged {
            Some(pinged) if now.since(pinged) >= silence * SILENCES_MAX => Err(None),
            None if now.since(self.heard) >= silence => {
                self.pinged = Some(now);
                self.session.ping(b"").await.map_err(|Closed| None)
            }
            Some(_) | None => Ok(()),
        }
    }

    async fn end_when_old(&mut self) -> Result<(), Over> {
        if self.now().since(self.begun) < Nanos::from(CONNECTION_MAX) {
            return Ok(());
        }
        let message = format!("a connection takes requests for {CONNECTION_MAX}: open another");
        let (code, kind) = ("websocket_connection_limit_reached", "invalid_request_error");
        let error = json!({"message": message, "type": kind, "param": null, "code": code});
        self.say(json!({"type": "error", "status": 400, "error": error}).to_string()).await?;
        Err(Some(closed(CloseCode::Normal, code)))
    }

    /// Takes what the client says.
    async fn take(&mut self, message: Option<Result<AggregatedMessage, ProtocolError>>) -> Result<(), Over> {
        let message = match message {
            None => return Err(None),
            Some(Ok(message)) => message,
            Some(Err(ProtocolError::Overflow)) => {
                let limit = self.app.config.limits.body_bytes_max.0;
                let why = format!("a message has more than {limit} bytes (limits.body_bytes_max)");
                return Err(Some(closed(CloseCode::Size, &why)));
            }
            Some(Err(error)) => return Err(Some(closed(CloseCode::Protocol, &error.to_string()))),
        };
        (self.heard, self.pinged) = (self.now(), None);
        match message {
            AggregatedMessage::Text(text) => match self.hold(text.as_bytes()) {
                Ok(body) => {
                    self.waiting.push_back(body);
                    Ok(())
                }
                Err(error) => self.refuse(&error, None).await,
            },
            AggregatedMessage::Binary(_) => {
                Err(Some(closed(CloseCode::Unsupported, "a message must be text: JSON")))
            }
            AggregatedMessage::Ping(bytes) => self.session.pong(&bytes).await.map_err(|Closed| None),
            AggregatedMessage::Pong(_) => Ok(()),
            AggregatedMessage::Close(_) => Err(Some(CloseReason::from(CloseCode::Normal))),
        }
    }

    /// Keeps a request until its turn.
    fn hold(&self, text: &[u8]) -> Result<Bytes, ApiError> {
        if self.waiting.len() < WAITING_MAX {
            return Ok(body::hold(text, &self.app)?);
        }
        let what = "requests that wait on one connection";
        let (limit, retry_after) = (WAITING_MAX.to_string(), Millis(1_000));
        Err(RequestError::Busy { what, limit, retry_after }.into())
    }

    async fn say(&mut self, text: String) -> Result<(), Over> {
        self.heard = self.now();
        self.session.text(text).await.map_err(|Closed| None)
    }

    async fn refuse(&mut self, error: &ApiError, stream_id: Option<&str>) -> Result<(), Over> {
        let status = error.status_code().as_u16();
        let event = json!({"type": "error", "status": status, "error": error.body().error});
        self.say(named(&event.to_string(), stream_id)).await
    }

    /// Answers a request, and takes what comes meanwhile.
    async fn answer(&mut self, body: Bytes) -> Result<(), Over> {
        let copy = body.clone();
        let read = web::block(move || ResponseCreate::read(&copy)).await.map_err(internal);
        let create = match read.unwrap_or_else(|error| Err((None, error))) {
            Ok(create) => create,
            Err((stream_id, error)) => {
                self.last = None;
                return self.refuse(&error.into(), stream_id.as_deref()).await;
            }
        };
        let stream_id = create.stream_id.as_deref();
        match self.begin(&body, create.previous.as_deref()).await {
            Ok(answering) => self.tell(answering, stream_id).await,
            Err(error) => self.refuse(&error, stream_id).await,
        }
    }

    async fn begin(&mut self, body: &Bytes, previous: Option<&str>) -> Result<StreamedResponse, ApiError> {
        // What is gone on from in vain is forgotten, as OpenAI has it.
        let last = self.last.take();
        let caller = auth::again(&self.app, &self.request).await?;
        let previous = match previous {
            Some(id) => Some(self.conversation(caller.tenant, id, last).await?),
            None => None,
        };
        let prepare = move |context: RequestContext<'_>, mut fields: JsonFields| {
            ResponseCreate::leave_response(&mut fields);
            // One that is not kept is gone on from here.
            let said = all_said(previous.as_ref(), fields.copy("input"))?;
            Ok::<_, RequestError>((openai::response(context, fields, previous)?, said))
        };
        let arrival = self.now();
        let (model, (prepared, said)) = lower((&self.app, caller), body, arrival, prepare).await?;
        let openai::PreparedResponse { asked, echo, conversation, .. } = prepared;
        let asked = of_client(asked, self.request.headers())?;
        let (deadline, tools) = (asked.work.deadline, asked.tools);
        let Ok(handle) = begin(&self.app, &model, caller, asked.work).await? else {
            return Err(ApiError::Late);
        };
        let envelope = ResponseEnvelope::new(handle.relquery(), model.model(), echo).calling(tools);
        let events = Box::new(ResponseEvents::new(envelope));
        let talk = stream::Talk::Events(events, conversation.unwrap_or_default());
        let events = stream::events_of(self.app.clone(), handle, talk, deadline).boxed_local();
        Ok(StreamedResponse { events, said })
    }

    /// What was said up to and with the response that a request goes on from.
    async fn conversation(
        &self,
        tenant: TenantId,
        id: &str,
        last: Option<(String, StoredResponse)>,
    ) -> Result<PreviousResponse, ApiError> {
        let response = match last {
            Some((known, response)) if known == id => response,
            Some(_) | None => responses::find(&self.app, tenant, id).await?,
        };
        Ok(responses::conversation(&response)?)
    }

    async fn tell(
        &mut self,
        StreamedResponse { mut events, said }: StreamedResponse,
        stream_id: Option<&str>,
    ) -> Result<(), Over> {
        let mut end = String::new();
        loop {
            tokio::select! {
                chunk = events.next() => {
                    let Some(Ok(chunk)) = chunk else { break };
                    for event in events_in(&chunk) {
                        event.clone_into(&mut end);
                        self.say(named(event, stream_id)).await?;
                    }
                }
                message = tokio::time::timeout(LOOK, self.messages.recv()) => match message {
                    Ok(message) => self.take(message).await?,
                    Err(_) => self.look_after_client().await?,
                }
            }
        }
        self.last = answered(&end, said);
        Ok(())
    }
}

fn closed(code: CloseCode, why: &str) -> CloseReason {
    CloseReason { code, description: Some(why.to_owned()) }
}

/// The events in a piece of a stream; comments, which say that it goes on, are none.
fn events_in(chunk: &[u8]) -> impl Iterator<Item = &str> {
    let text = std::str::from_utf8(chunk).unwrap_or_default();
    text.lines().filter_map(|line| line.strip_prefix("data: "))
}

/// An event with the `stream_id` of its request.
fn named(event: &str, stream_id: Option<&str>) -> String {
    match (stream_id, event.strip_prefix('{')) {
        (Some(id), Some(fields)) => format!("{{\"stream_id\":\"{id}\",{fields}"),
        (Some(_) | None, _) => event.to_owned(),
    }
}

/// A response that ended well, by its last event.
fn answered(end: &str, said: Vec<Value>) -> Option<(String, StoredResponse)> {
    let mut event: Value = serde_json::from_str(end).ok()?;
    let response = event["response"].take();
    let is_whole = ["completed", "incomplete"].contains(&response["status"].as_str()?);
    let id = response["id"].as_str().filter(|_| is_whole)?.to_owned();
    Some((id, StoredResponse { input: Value::Array(said).to_string(), reply: response.to_string() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_message_says_beside_its_response_is_read_and_wrong_is_named() {
        let read = |body: &str| ResponseCreate::read(body.as_bytes());
        let create =
            read(r#"{"type":"response.create","stream_id":"a_B-1.","previous_response_id":"resp-1"}"#);
        let expected = ResponseCreate { stream_id: Some("a_B-1.".into()), previous: Some("resp-1".into()) };
        assert_eq!(create, Ok(expected));
        let plain = read(r#"{"type":"response.create","generate":true,"background":false,"input":"a"}"#);
        assert_eq!(plain, Ok(ResponseCreate::default()));
        for (body, blamed, id) in [
            (r#"{"input":"a"}"#, "type", None),
            (r#"{"type":"response.cancel","stream_id":"a"}"#, "type", Some("a")),
            (r#"{"type":"response.create","stream_id":"a b"}"#, "stream_id", None),
            (r#"{"type":"response.create","stream_id":""}"#, "stream_id", None),
            (r#"{"type":"response.create","stream_id":7}"#, "stream_id", None),
            (r#"{"type":"response.create","generate":false}"#, "generate", None),
            (r#"{"type":"response.create","background":true}"#, "background", None),
            (r#"{"type":"response.create","previous_response_id":1}"#, PREVIOUS, None),
        ] {
            match read(body) {
                Err((stream_id, RequestError::Invalid { field, .. })) => {
                    assert_eq!((field.as_str(), stream_id.as_deref()), (blamed, id), "{body}");
                }
                other => panic!("{body} gave {other:?}"),
            }
        }
        assert!(matches!(read("{"), Err((None, RequestError::Malformed(_)))));
        assert!(is_stream_id(&"a".repeat(256)) && !is_stream_id(&"a".repeat(257)));
    }

    #[test]
    fn events_are_messages_and_the_last_is_gone_on_from() {
        let chunk = b": waiting\n\nevent: a\ndata: {\"type\":\"a\"}\n\nevent: b\ndata: {\"type\":\"b\"}\n\n";
        assert_eq!(events_in(chunk).collect::<Vec<_>>(), [r#"{"type":"a"}"#, r#"{"type":"b"}"#]);
        assert_eq!(named(r#"{"type":"a"}"#, Some("x")), r#"{"stream_id":"x","type":"a"}"#);
        assert_eq!(named(r#"{"type":"a"}"#, None), r#"{"type":"a"}"#);
        let end = |status: &str| {
            let response = json!({"id": "resp-1", "status": status, "output": [{"type": "message"}]});
            answered(&json!({"response": response}).to_string(), vec![json!({"role": "user"})])
        };
        let (id, response) = end("completed").expect("it ended well");
        assert_eq!((id.as_str(), response.input.as_str()), ("resp-1", r#"[{"role":"user"}]"#));
        let previous = responses::conversation(&response).expect("it is gone on from");
        assert_eq!(previous.items, [json!({"role": "user"}), json!({"type": "message"})]);
        assert!(end("incomplete").is_some() && end("failed").is_none() && answered("", Vec::new()).is_none());
    }
}
