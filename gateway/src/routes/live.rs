//! `/v1/scheduler/events`, `/trace` and `/what-if`: the scheduler at work, what it did in the last minutes,
//! and what another policy would have made of them.

use std::convert::Infallible;
use std::sync::Arc;

use actix_web::web::{self, Bytes, Data, Payload, Query, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use base::{Millis, Nanos, Time};
use futures_util::Stream;
use serving::clock;
use serving::error::{RequestError, internal};
use serving::live::record::RelQueryRecord;
use serving::live::subscriptions::Subscription;
use serving::live::trace::recorded;
use serving::live::what_if::{self, ReplayDeadline, WhatIfError};
use serving::live::{Cursor, Viewer};
use serving::shared::Shared;
use serving::start::imitated;

use crate::auth;
use crate::config::AuthMode;
use crate::error::ApiError;
use crate::json;
use crate::models::ServedModel;
use crate::routes::{ModelQuery, get_only, only_post, read_body};
use crate::state::App;
use crate::stream::{self, event};
use crate::wire::live::snapshot::LastSent;
use crate::wire::live::{Audience, Goodbye, Hello};
use crate::wire::what_if::{Around, WhatIfReply, WhatIfRequest};

/// The routes.
pub fn configure(routes: &mut ServiceConfig) {
    routes
        .service(get_only("/v1/scheduler/events", events))
        .service(get_only("/v1/scheduler/trace", trace))
        .service(
            web::resource("/v1/scheduler/what-if")
                .route(web::post().to(what_if))
                .default_service(web::to(only_post)),
        );
}

/// The scheduler at work, as server-sent events: `hello`, a `frame` ten times a second while there is news,
/// `end`.
#[utoipa::path(
    get, path = "/v1/scheduler/events", tag = "operation", params(("model" = Option<String>, Query)),
    responses(
        (status = 200, content_type = "text/event-stream", body = String, description = "docs/LIVE.md has the fields. A \
            tenant sees its own relQueries and others as one load; an operator's key sees all"),
        (status = 401, body = crate::error::ErrorBody),
        (status = 429, body = crate::error::ErrorBody, description = "as many look as may; the message names \
            the setting"),
    ),
    security(("key" = []))
)]
pub async fn events(
    app: Data<App>,
    Viewing(viewer): Viewing,
    asked: Query<ModelQuery>,
) -> Result<HttpResponse, ApiError> {
    let model = Arc::clone(asked.of(&app)?);
    let live = &model.runtime.shared.live;
    let subscription = live.join(viewer).map_err(|full| RequestError::Busy {
        what: full.what,
        limit: format!("{} ({})", full.limit, full.setting),
        retry_after: Millis(5_000),
    })?;
    // The loop may be asleep, with a queue that nobody has looked at.
    model.runtime.shared.intake.look();
    let now = model.runtime.shared.clock.now();
    let reader = LiveReader {
        cursor: live.cursor(remembered_since(&model.runtime.shared)),
        last_sent: LastSent::default(),
        end: now + Nanos::from(live.settings().stream_ms_max),
        last_reported: now,
        is_over: false,
        is_greeted: false,
        audience: Audience::new(viewer).with_replicas(shows_replicas(&app, viewer)),
        names_until: now,
        _subscription: subscription,
        model: Arc::clone(&model),
        app,
    };
    Ok(stream::reply(reader.stream()))
}

/// One who follows the stream. It polls the buffer at its own pace: the loop wakes nobody.
struct LiveReader {
    app: Data<App>,
    /// Whose queue is shown.
    model: Arc<ServedModel>,
    /// Held: given back with the reader.
    _subscription: Subscription,
    audience: Audience,
    /// When the tenants' names are to be looked up again.
    names_until: Time,
    cursor: Cursor,
    last_sent: LastSent,
    /// When the client has to ask anew.
    end: Time,
    /// When something was last sent.
    last_reported: Time,
    is_greeted: bool,
    is_over: bool,
}

impl LiveReader {
    fn stream(self) -> impl Stream<Item = Result<Bytes, Infallible>> {
        futures_util::stream::unfold(self, |mut reader| async move {
            let chunk = reader.next().await?;
            Some((Ok(Bytes::from(chunk)), reader))
        })
    }

    async fn next(&mut self) -> Option<String> {
        if self.is_over {
            return None;
        }
        if !std::mem::replace(&mut self.is_greeted, true) {
            return Some(self.hello());
        }
        loop {
            tokio::time::sleep_until(clock::until(self.model.runtime.shared.live.settings().frame_ms)).await;
            let now = self.model.runtime.shared.clock.now();
            if let Some(reason) = self.ends(now) {
                self.is_over = true;
                return Some(event("end", &Goodbye { reason }));
            }
            self.learn_names(now).await;
            if let Some(frame) = self.frame(now) {
                self.last_reported = now;
                return Some(frame);
            }
            if now.since(self.last_reported) >= Nanos::from(self.app.config.server.keep_alive_ms) {
                self.last_reported = now;
                return Some(": nothing new\n\n".into());
            }
        }
    }

    fn hello(&self) -> String {
        let settings = self.model.runtime.shared.live.settings();
        let hello = Hello {
            policy: self.model.runtime.view().policy.name(),
            configured_policy: self.app.config.scheduler.policy.name(),
            limits_of_policy: self.model.limits_of_policy.clone(),
            backend: if self.model.has_fleet() { "fleet" } else { "engine" },
            visible_to: if self.audience.viewer == Viewer::Operator { "all" } else { "own" },
            frame_ms: settings.frame_ms.0,
            snapshot_ms: settings.snapshot_ms.0,
            at_us: self.model.runtime.shared.clock.now().0 / 1_000,
        };
        event("hello", &hello)
    }

    /// Looks the tenants' names up for operators, now and then. Without them they are numbers.
    async fn learn_names(&mut self, now: Time) {
        if now < self.names_until {
            return;
        }
        self.names_until = now + NAMES_KEPT;
        learn_names(&mut self.audience, &self.app).await;
    }

    /// Why the stream ends now, if it does.
    fn ends(&self, now: Time) -> Option<&'static str> {
        match (self.model.runtime.is_draining(), now >= self.end) {
            (true, _) => Some("shutting_down"),
            (_, true) => Some("again"),
            _ => None,
        }
    }

    fn frame(&mut self, now: Time) -> Option<String> {
        let fresh = self.model.runtime.shared.live.read(&mut self.cursor);
        if fresh.is_empty() {
            return None;
        }
        self.model.runtime.shared.metrics.live.lost_steps.inc_by(fresh.lost_steps);
        let replicas = match (self.model.has_fleet(), &fresh.snapshot) {
            (true, Some(_)) => self.model.runtime.view().replicas,
            _ => Vec::new(),
        };
        let mut frame = self.last_sent.frame(&fresh, &self.audience, now, &replicas);
        if let (Some(snapshot), Viewer::Operator) = (&mut frame.snapshot, self.audience.viewer) {
            let last = self.model.runtime.shared.auto.last();
            snapshot.explain_policy(last.map(|chosen| chosen.verdict.to_string()));
        }
        // Of what ended, all may be others'.
        (!frame.is_empty()).then(|| event("frame", &frame))
    }
}

/// How long an operator's stream keeps the tenants' names.
const NAMES_KEPT: Nanos = Nanos(10_000_000_000);

async fn learn_names(audience: &mut Audience, app: &App) {
    if audience.viewer != Viewer::Operator {
        return;
    }
    match app.runtime.store.tenants().await {
        Ok(tenants) => audience.learn(&tenants),
        Err(error) => tracing::warn!(%error, "the tenants' names cannot be read"),
    }
}

/// The beginning of what is remembered.
fn remembered_since(Shared { live, clock, .. }: &Shared) -> Time {
    Time(clock.now().0.saturating_sub(Nanos::from(live.settings().record_ms_max).0))
}

/// What is remembered of the last minutes.
fn remembered(shared: &Shared) -> Vec<Arc<RelQueryRecord>> {
    shared.live.records(remembered_since(shared))
}

/// The last minutes as a trace (`relserve-trace/1`) for `relserve sim`: lengths and times, no text, no names.
#[utoipa::path(
    get, path = "/v1/scheduler/trace", tag = "operation", params(("model" = Option<String>, Query)),
    responses(
        (status = 200, body = Object, description = "of a tenant its own relQueries, with an operator's key all"),
        (status = 401, body = crate::error::ErrorBody),
    ),
    security(("key" = []))
)]
pub async fn trace(
    app: Data<App>,
    Viewing(viewer): Viewing,
    asked: Query<ModelQuery>,
) -> Result<HttpResponse, ApiError> {
    let shared = Arc::clone(&asked.of(&app)?.runtime.shared);
    let work = web::block(move || {
        let mut records = remembered(&shared);
        records.retain(|record| viewer.sees(record.tenant));
        serde_json::to_vec(&recorded(records, shared.live.settings().what_if_tokens_max).trace)
    });
    let json = work.await.map_err(internal)?.map_err(internal)?;
    Ok(HttpResponse::Ok().content_type("application/json").body(json))
}

/// Replays the last minutes in the simulator under other policies and under the present one, on the cost
/// model as it is fitted now. One at a time. A tenant is told of its own relQueries among all that ran, an
/// operator of all.
#[utoipa::path(
    post, path = "/v1/scheduler/what-if", tag = "operation", params(("model" = Option<String>, Query)),
    request_body(content = Object, description = "policy: one, several with commas between them, or `all`"),
    responses(
        (status = 200, body = WhatIfReply),
        (status = 400, body = crate::error::ErrorBody),
        (status = 429, body = crate::error::ErrorBody, description = "another replay runs"),
        (status = 503, body = crate::error::ErrorBody, description = "no replica is in service"),
        (status = 504, body = crate::error::ErrorBody, description = "it took longer than live.what_if_ms_max"),
    ),
    security(("key" = []))
)]
pub async fn what_if(
    app: Data<App>,
    Viewing(viewer): Viewing,
    of: Query<ModelQuery>,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, ApiError> {
    let model = Arc::clone(of.of(&app)?);
    let body = read_body(&app, &request, payload).await?;
    let asked = WhatIfRequest::read(json::object(&body)?, model.runtime.view().policy, model.has_fleet())?;
    let mut audience = Audience::new(viewer).with_replicas(shows_replicas(&app, viewer));
    learn_names(&mut audience, &app).await;
    let permit = model.runtime.shared.live.begin_replay().ok_or(RequestError::Busy {
        what: "replay at a time",
        limit: "one".into(),
        retry_after: Millis(1_000),
    })?;
    model.runtime.shared.metrics.live.what_ifs.inc();
    let work = web::block(move || {
        let reply = replayed(&app, &model, &audience, &asked);
        drop(permit);
        reply
    });
    let reply = work.await.map_err(internal)??;
    Ok(HttpResponse::Ok().json(reply))
}

fn replayed(
    app: &App,
    model: &ServedModel,
    audience: &Audience,
    asked: &WhatIfRequest,
) -> Result<WhatIfReply, RequestError> {
    let Shared { clock, live, .. } = &*model.runtime.shared;
    let begun = clock.now();
    let records = remembered(&model.runtime.shared);
    let ended = records.iter().filter(|record| audience.sees(record.tenant)).count() as u64;
    let recorded = recorded(records, live.settings().what_if_tokens_max);
    let view = model.runtime.view();
    let from = recorded.records.first().map(|record| record.arrival).unwrap_or_default();
    let pace = live.pace(from, &view.cost);
    let replays = if recorded.records.iter().any(|record| audience.sees(record.tenant)) {
        let machine = imitated(&app.config.scheduler, model.fleet.clone(), &model.runtime.model);
        let judge = machine.judge(&view, pace).map_err(|error| failed(error.into()))?;
        let judge = judge.ok_or_else(|| failed(WhatIfError::NoReplica))?;
        let patience: Nanos = live.settings().what_if_ms_max.into();
        let deadline = ReplayDeadline { clock: *clock, end: clock.now() + patience };
        what_if::replay(&recorded.trace, &asked.policies, &judge, deadline).map_err(failed)?
    } else {
        Vec::new()
    };
    let running = model.runtime.registry.running();
    let running = running.iter().filter(|relquery| audience.sees(relquery.tenant)).count() as u64;
    let took = clock.now().since(begun);
    Ok(WhatIfReply::new(&replays, Around { recorded: &recorded, audience, ended, running, pace, took }))
}

fn failed(error: WhatIfError) -> RequestError {
    match error {
        WhatIfError::TooLong => RequestError::Deadline,
        WhatIfError::NoReplica => RequestError::NoReplica,
        error @ (WhatIfError::Machine(_) | WhatIfError::Replay(_)) => internal(error),
    }
}

/// Whether names and errors of replicas are told: to operators, and where nobody has a key.
pub(crate) fn shows_replicas(app: &App, viewer: Viewer) -> bool {
    viewer == Viewer::Operator || app.config.auth.mode == AuthMode::None
}

/// Who looks: an operator by a key of operators, else the caller's tenant.
pub struct Viewing(pub Viewer);

impl actix_web::FromRequest for Viewing {
    type Error = ApiError;
    type Future = futures_util::future::LocalBoxFuture<'static, Result<Self, ApiError>>;

    fn from_request(request: &HttpRequest, payload: &mut actix_web::dev::Payload) -> Self::Future {
        let operator = auth::Operator::from_request(request, payload);
        let caller = auth::Authenticated::from_request(request, payload);
        Box::pin(async move {
            if operator.await.is_ok() {
                return Ok(Self(Viewer::Operator));
            }
            Ok(Self(Viewer::Tenant(caller.await?.0.tenant)))
        })
    }
}
