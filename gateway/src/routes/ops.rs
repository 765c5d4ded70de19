//! What operators and tools ask: health, metrics, the scheduler's mind, usage, the API document.

use std::ops::RangeInclusive;

use actix_web::http::header::{Accept, CONTENT_TYPE, Header as _};
use actix_web::web::{Data, Query, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use base::Time;
use ir::catalogue::{AnswerKind, Catalogue, Function, Parameter, ParameterKind};
use serde::Deserialize;
use serde_json::json;
use serving::error::stored;
use serving::health::{Health, Patience, Pulse};
use serving::live::Viewer;
use serving::metrics::Metrics;
use serving::model::Model;
use store::StoreOutage;

use super::live::Viewing;
use crate::auth::{self, Authenticated};
use crate::config::USAGE_DAYS_MAX;
use crate::error::ApiError;
use crate::models::ServedModel;
use crate::routes::{ModelQuery, get_and_head, get_only, number};
use crate::services::cell_budget;
use crate::state::App;
use crate::wire::budget::BudgetReply;

/// Days of usage that are shown where the caller does not say.
const USAGE_DAYS: u32 = 30;

/// The routes.
pub fn configure(routes: &mut ServiceConfig) {
    health_routes(routes).service(get_and_head(SCRAPED, metrics));
    routes
        .service(get_and_head("/openapi.json", document))
        .service(get_only("/version", version))
        .service(get_only("/v1/scheduler", scheduler))
        .service(get_only("/v1/catalogue", catalogue))
        .service(get_only("/v1/usage", usage));
}

/// Where supervisors and scrapers ask.
pub(crate) const HEALTH_PATHS: [&str; 5] = ["/healthz", "/health", "/readyz", "/ping", SCRAPED];
const SCRAPED: &str = "/metrics";

/// What supervisors and scrapers ask, on an address of its own.
pub fn configure_health(routes: &mut ServiceConfig) {
    health_routes(routes).service(get_and_head(SCRAPED, all_metrics));
}

fn health_routes(routes: &mut ServiceConfig) -> &mut ServiceConfig {
    let [health, usual, readiness, of_sagemaker, _] = HEALTH_PATHS;
    routes
        .service(get_and_head(health, healthz))
        .service(get_and_head(usual, health_as_vllm))
        .service(get_and_head(readiness, readyz))
        .service(get_and_head(of_sagemaker, ping))
}

/// [`healthz`] under the name that servers of models have for it.
#[utoipa::path(get, path = "/health", tag = "operation", responses((status = 200), (status = 503)))]
pub async fn health_as_vllm(app: Data<App>) -> HttpResponse {
    healthz(app).await
}

/// Whether steps finish while there is work, of every model; well too while a lost executor is replaced.
#[utoipa::path(get, path = "/healthz", tag = "operation", responses((status = 200), (status = 503)))]
pub async fn healthz(app: Data<App>) -> HttpResponse {
    let health = health(&app);
    let pulses = || app.models.iter().map(|model| &model.runtime.shared.pulse);
    // One that is not well counts for all: only a restart of the process helps it.
    let worst = pulses().map(&health).find(|health| !health.is_well());
    let health = worst.unwrap_or_else(|| health(&app.runtime.shared.pulse));
    let steps: u64 = pulses().map(Pulse::steps).sum();
    let body = json!({ "status": health.name(), "steps": steps });
    if health.is_well() {
        HttpResponse::Ok().json(body)
    } else {
        HttpResponse::ServiceUnavailable().json(body)
    }
}

/// How a loop is now, by its pulse.
fn health(app: &App) -> impl Fn(&Pulse) -> Health {
    let patience = Patience {
        step: app.config.server.stuck_ms_max.into(),
        attempt: app.config.restart.attempt_ms_max.into(),
    };
    let now = app.runtime.shared.clock.now();
    move |pulse| pulse.health(now, patience)
}

/// Whether new work is taken, and the store takes what it leaves: of several models, by one at least; `not_ready`
/// names the others.
#[utoipa::path(get, path = "/readyz", tag = "operation", responses((status = 200), (status = 503)))]
pub async fn readyz(app: Data<App>) -> HttpResponse {
    let (is_ready, body) = readiness(&app);
    if is_ready { HttpResponse::Ok().json(body) } else { HttpResponse::ServiceUnavailable().json(body) }
}

/// [`readyz`] as SageMaker asks for it: it knows an empty body alone.
#[utoipa::path(
    get, path = "/ping", tag = "operation",
    responses(
        (status = 200, description = "new work is taken; the body is empty"),
        (status = 503, description = "it is not; the body is empty")
    )
)]
pub async fn ping(app: Data<App>) -> HttpResponse {
    let (is_ready, _) = readiness(&app);
    if is_ready { HttpResponse::Ok().finish() } else { HttpResponse::ServiceUnavailable().finish() }
}

/// Whether new work is taken, and what is told of it.
fn readiness(app: &App) -> (bool, serde_json::Value) {
    let health = health(app);
    let is_stuck = |model: &ServedModel| health(&model.runtime.shared.pulse) == Health::Stuck;
    let not_ready = |model| ServedModel::not_ready(model).or_else(|| is_stuck(model).then_some("stuck"));
    let models = app.models.iter().map(|model| (model.model().name.as_str(), not_ready(model)));
    let (ready, not_ready): (Vec<_>, Vec<_>) = models.partition(|(_, reason)| reason.is_none());
    let outage = app.runtime.store.health().outage();
    let is_ready = !ready.is_empty() && (outage.is_none() || app.config.server.ready_without_store);
    let status = match (not_ready.first().and_then(|(_, reason)| *reason), outage) {
        (Some(reason), _) if ready.is_empty() => reason,
        (_, Some(StoreOutage::Away)) => "the store is away",
        (_, Some(StoreOutage::Unwritable)) => "the store cannot be written",
        (_, Some(StoreOutage::DiskFull)) => "the disk of the store is full",
        (_, Some(StoreOutage::FileGone)) => "the file of the store is gone",
        _ if app.models.iter().any(|model| model.runtime.shared.pulse.is_resting()) => "restarting",
        _ => "ready",
    };
    let mut body = json!({ "status": status });
    if app.models.are_several() {
        let one = |(model, reason)| json!({ "model": model, "status": reason });
        body["not_ready"] = not_ready.into_iter().map(one).collect();
    }
    (is_ready, body)
}

/// Prometheus text, or OpenMetrics where `Accept` asks for it. Series of single tenants and replicas, and exemplars,
/// are an operator's alone, unless `server.metrics_for_all` shows them to everybody.
#[utoipa::path(get, path = "/metrics", tag = "operation", responses((status = 200, body = String)))]
pub async fn metrics(app: Data<App>, request: HttpRequest) -> HttpResponse {
    let shows_all = app.config.server.metrics_for_all || auth::operator(&app, &request).await.is_ok();
    scraped(&app, shows_all, &request)
}

/// The same on an address of its own, which only operators reach.
async fn all_metrics(app: Data<App>, request: HttpRequest) -> HttpResponse {
    scraped(&app, true, &request)
}

fn scraped(app: &App, shows_all: bool, request: &HttpRequest) -> HttpResponse {
    let all: Vec<&Metrics> = app.models.iter().map(|model| &model.runtime.shared.metrics).collect();
    // An exemplar is of a single request.
    let (mut text, kind) = if wants_open_metrics(request) {
        (Metrics::render_open(&all, shows_all), "application/openmetrics-text; version=1.0.0; charset=utf-8")
    } else {
        (Metrics::render_all(&all), "text/plain; version=0.0.4; charset=utf-8")
    };
    if !shows_all {
        text = text.split_inclusive('\n').filter(|line| !is_of_one(line)).collect();
    }
    HttpResponse::Ok().insert_header((CONTENT_TYPE, kind)).body(text)
}

/// Whether a scraper would rather have OpenMetrics than the older text.
fn wants_open_metrics(request: &HttpRequest) -> bool {
    let ranked = Accept::parse(request).map(|accept| accept.ranked()).unwrap_or_default();
    let known = ranked.iter().find(|kind| match (kind.type_().as_str(), kind.subtype().as_str()) {
        ("application", "openmetrics-text") => {
            kind.get_param("version").is_none_or(|version| version == "1.0.0")
        }
        ("text" | "*", _) => true,
        _ => false,
    });
    known.is_some_and(|kind| kind.subtype() == "openmetrics-text")
}

/// Whether a line is the sample of one tenant or one replica.
fn is_of_one(line: &str) -> bool {
    let labels = line.split_once('{').filter(|_| !line.starts_with('#')).map_or("", |(_, labels)| labels);
    ["tenant=\"", "replica=\""].iter().any(|label| {
        labels.match_indices(label).any(|(place, _)| place == 0 || labels.as_bytes()[place - 1] == b',')
    })
}

/// The OpenAPI document of all routes, made at the start.
pub struct Description(pub serde_json::Value);

/// The server's own version, where vLLM tells its.
#[utoipa::path(get, path = "/version", tag = "operation", responses((status = 200)))]
pub async fn version() -> HttpResponse {
    HttpResponse::Ok().json(json!({ "version": env!("CARGO_PKG_VERSION") }))
}

async fn document(description: Data<Description>) -> HttpResponse {
    HttpResponse::Ok().json(&description.0)
}

/// The policy, the fitted cost model, the limits of a step, counts, and the last decision in words: to an
/// operator with the relQueries that it compared, to a tenant without, for they may be another's.
#[utoipa::path(
    get, path = "/v1/scheduler", tag = "operation", params(("model" = Option<String>, Query)),
    responses((status = 200)), security(("key" = []))
)]
pub async fn scheduler(
    app: Data<App>,
    Viewing(viewer): Viewing,
    asked: Query<ModelQuery>,
) -> Result<HttpResponse, ApiError> {
    let runtime = &asked.of(&app)?.runtime;
    let view = runtime.view();
    let reason = view.decision.split(';').next().unwrap_or_default();
    let decision = if viewer == Viewer::Operator { &view.decision } else { reason };
    let stats = view.stats;
    // It tells of all tenants' latencies.
    let choice = runtime.shared.auto.last().filter(|_| viewer == Viewer::Operator);
    // Of all steps that are kept; a fleet has none of its own.
    let pace = runtime.shared.live.pace(Time(0), &view.cost);
    let choice = choice.map(|chosen| json!({ "at_us": chosen.at.0 / 1_000, "verdict": chosen.verdict }));
    Ok(HttpResponse::Ok().json(json!({
        "model": runtime.model.name,
        "policy": view.policy,
        "configured_policy": app.config.scheduler.policy,
        "choice": choice,
        "cost": {
            "prefill_ns_per_token": view.cost.prefill_per_token.0,
            "prefill_ns": view.cost.prefill_base.0,
            "decode_ns_per_sequence": view.cost.decode_per_sequence.0,
            "decode_ns": view.cost.decode_base.0,
            "mixed_hidden_ns": view.cost.mixed_hidden,
            "mixed_hidden_few_ns": view.cost.mixed_hidden_few,
            "hide_permille": view.cost.hide_permille(),
        },
        "pace": {
            "steps": pace.steps,
            "measured_ns": pace.measured.0,
            "modelled_ns": pace.modelled.0,
        },
        "limits": limits(&app, &runtime.model),
        "relqueries": {
            "held": stats.relqueries,
            "waiting": stats.relqueries_waiting,
            "running": stats.relqueries_running,
        },
        "rows": { "waiting": stats.rows_waiting, "running": stats.rows_running },
        "kv_blocks": {
            "total": stats.kv_total_blocks,
            "used": stats.kv_used_blocks,
            "cached": stats.kv_cached_blocks,
            "free": stats.kv_free_blocks,
            "pinned": stats.kv_pinned_blocks,
        },
        "host_kv_blocks": {
            "total": stats.tier.total,
            "used": stats.tier.used,
            "moved_out": stats.tier.moved_out,
            "moved_back": stats.tier.moved_back,
        },
        "steps": stats.steps,
        "prompt_tokens": stats.prompt_tokens,
        "prefix_hit_tokens": stats.prefix_hit_tokens,
        "restored_tokens": stats.tier.restored_tokens,
        "output_tokens": stats.output_tokens,
        "forced_tokens": stats.forced_tokens,
        "draft_tokens": stats.guessed_tokens,
        "accepted_tokens": stats.accepted_tokens,
        "preemptions": stats.preemptions,
        "last_decision": decision,
    })))
}

/// What bounds a step, under the names of the configuration's section `scheduler`: a simulation can run on
/// it.
fn limits(app: &App, model: &Model) -> serde_json::Value {
    let limits = &app.config.scheduler;
    json!({
        "step_tokens_max": limits.step_tokens_max,
        "chunk_tokens": limits.chunk_tokens,
        "sequences_max": limits.sequences_max,
        // The pool is the engine's.
        "kv_blocks": model.kv_blocks,
        "host_kv_blocks": model.host_kv_blocks,
        "host_kv_reused_only": limits.host_kv_reused_only,
        "block_tokens": model.block_tokens,
        "watermark_permille": limits.watermark_permille,
        "sample_rows": limits.sample_rows,
        "unit_waiting_ms_max": limits.unit_waiting_ms_max,
        "prefix_cache": limits.prefix_cache,
        "publish_generated": limits.publish_generated,
        "marginal_work": limits.marginal_work,
        "fairness": limits.is_fair(),
        "refit": limits.refit,
        "auto": limits.auto,
    })
}

/// The cell functions: what each takes and how its answer is read.
#[utoipa::path(get, path = "/v1/catalogue", tag = "cells", responses((status = 200)))]
pub async fn catalogue() -> HttpResponse {
    let parameter = |parameter: &Parameter| {
        json!({
            "name": parameter.name,
            "kind": match parameter.kind {
                ParameterKind::Text => "text",
                ParameterKind::List => "list",
                ParameterKind::Pairs => "pairs",
                ParameterKind::Number => "number",
            },
            "optional": parameter.optional,
            "default": parameter.default,
        })
    };
    let function = |function: &Function| {
        json!({
            "name": function.name,
            "summary": function.summary,
            "parameters": function.parameters.iter().map(parameter).collect::<Vec<_>>(),
            "template": function.template.to_string(),
            "max_tokens": function.output_max.0,
            "answer": match function.answer {
                AnswerKind::Text
                | AnswerKind::Excerpt
                | AnswerKind::Tags
                | AnswerKind::Format
                | AnswerKind::Pair => "text",
                AnswerKind::Label => "label",
                AnswerKind::Lines => "lines",
                AnswerKind::Integer => "integer",
            },
        })
    };
    let data: Vec<_> = Catalogue::built_in().functions().map(function).collect();
    HttpResponse::Ok().json(json!({ "object": "list", "data": data }))
}

/// The query of `/v1/usage`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Days {
    days: Option<String>,
}

/// What the caller's tenant has used, by day, model and route, what its cells may still compute today, and how it
/// stands with its limits.
#[utoipa::path(
    get, path = "/v1/usage", tag = "operation", params(("days" = Option<u64>, Query, minimum = 1, maximum = 400)),
    responses((status = 200)), security(("key" = []))
)]
pub async fn usage(
    app: Data<App>,
    Authenticated(caller): Authenticated,
    query: Query<Days>,
) -> Result<HttpResponse, ApiError> {
    let days = usage_days(&app, query.days.as_deref())?;
    let rows = stored(app.runtime.store.usage(Some(caller.tenant), days).await)?;
    let data: Vec<_> = rows.iter().map(usage_entry).collect();
    let max = app.config.limits.tenant_day_cell_tokens_max;
    let cells = json!({
        "used": cell_budget::used(&app, caller.tenant).await?,
        "max": max,
        "setting": max.map(|_| cell_budget::SETTING),
    });
    let limits = BudgetReply::from(app.runtime.shared.budgets.status(caller.tenant));
    let reply = json!({ "object": "list", "data": data, "cells_day_tokens": cells, "limits": limits });
    Ok(HttpResponse::Ok().json(reply))
}

/// The days that are asked for, counted from 1970-01-01, up to today.
pub(super) fn usage_days(app: &App, days: Option<&str>) -> Result<RangeInclusive<u64>, ApiError> {
    let days = u64::from(number("days", days, (USAGE_DAYS, USAGE_DAYS_MAX))?);
    let today = app.runtime.shared.unix_now().day();
    Ok((today + 1).saturating_sub(days)..=today)
}

/// A sum of usage.
pub(super) fn usage_entry(row: &store::UsageRow) -> serde_json::Value {
    json!({
        "day": row.key.day,
        "model": row.key.model,
        "route": row.key.route,
        "requests": row.used.requests,
        "rows": row.used.rows,
        "prompt_tokens": row.used.prompt.0,
        "cached_tokens": row.used.cached.0,
        "computed_tokens": row.used.computed.0,
        "completion_tokens": row.used.output.0,
        "cost": row.used.cost.as_units(),
    })
}
