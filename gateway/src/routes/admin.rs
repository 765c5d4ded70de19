//! What operators see and change over HTTP: keys, tenants with their weights and budgets, usage of all tenants, and the
//! log of what they changed.

use actix_web::http::header::CACHE_CONTROL;
use actix_web::web::{self, Data, Path, Payload, Query, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use serde::{Deserialize, Serialize};
use serde_json::json;
use serving::error::{RequestError, stored};
use store::{KeyRotation, ListedKey, NewKey};

use super::ops::{usage_days, usage_entry};
use crate::auth::{self, Authenticated, Operator};
use crate::error::{ApiError, ErrorBody};
use crate::routes::{
    ENTRY_NUMBER, get_only, number, only_delete, only_get_post, only_post, read_body, read_query,
};
use crate::services::audit::{Change, recorded};
use crate::services::pages::NewestPage;
use crate::services::{limits, tenancy, usage_pages, workbooks};
use crate::state::App;
use crate::wire::admin::{self as wire, AuditReply, CallerReply, TenantReply};
use crate::wire::keys::{self as wire_keys, KeyReply};
use crate::wire::seconds;
use crate::wire::usage_cursor::UsageCursor;

/// The routes.
pub fn configure(routes: &mut ServiceConfig) {
    routes
        .service(
            web::resource("/v1/keys")
                .route(web::get().to(keys))
                .route(web::post().to(create_key))
                .default_service(web::to(only_get_post)),
        )
        .service(
            web::resource("/v1/keys/{id}")
                .route(web::delete().to(revoke_key))
                .default_service(web::to(only_delete)),
        )
        .service(
            web::resource("/v1/keys/{id}/rotate")
                .route(web::post().to(rotate_key))
                .default_service(web::to(only_post)),
        )
        .service(
            web::resource("/v1/tenants")
                .route(web::get().to(tenants))
                .route(web::post().to(create_tenant))
                .default_service(web::to(only_get_post)),
        )
        .service(
            web::resource("/v1/tenants/{name}")
                .route(web::post().to(change_tenant))
                .default_service(web::to(only_post)),
        )
        .service(get_only("/v1/me", me))
        .service(get_only("/v1/usage/tenants", usage))
        .service(get_only("/v1/audit", audit));
}

/// Who calls: the tenant, whether the key is an operator's, and what tells the tenant's workbooks from all others', of
/// other servers too.
#[utoipa::path(
    get, path = "/v1/me", tag = "operation", responses((status = 200, body = CallerReply)), security(("key" = []))
)]
pub async fn me(
    app: Data<App>,
    Authenticated(caller): Authenticated,
    request: HttpRequest,
) -> Result<HttpResponse, ApiError> {
    let is_operator = auth::operator(&app, &request).await.is_ok();
    let tenant = tenancy::name_of(&app, caller.tenant).await?;
    let scope = workbooks::scope(&app, caller.tenant).await?;
    Ok(HttpResponse::Ok().json(CallerReply::new(tenant, is_operator, scope)))
}

/// The most that a page of a list holds.
const PAGE_ROWS_MAX: u32 = 50_000;
/// Keys or tenants of a page where the caller does not say.
const LIST_ROWS: u32 = 1_000;

/// The query of `/v1/keys`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyPage {
    /// Of the tenant of this name alone.
    tenant: Option<String>,
    /// Whose names, or whose tenants' names, begin so.
    name: Option<String>,
    /// Keys before this one.
    before: Option<String>,
    /// So many at most.
    rows: Option<String>,
}

/// The query of `/v1/tenants`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantPage {
    /// Whose names begin so.
    name: Option<String>,
    /// Tenants before this one.
    before: Option<String>,
    /// So many at most.
    rows: Option<String>,
}

/// The entry of such a list before which its page ends.
fn list_before(asked: Option<&str>) -> Result<Option<u64>, ApiError> {
    read_query("before", asked, ENTRY_NUMBER)
}

/// The most entries of a page of such a list.
fn list_rows(asked: Option<&str>) -> Result<u32, ApiError> {
    number("rows", asked, (LIST_ROWS, PAGE_ROWS_MAX))
}

/// A page of a list as it is sent.
fn listed<T, R: Serialize>(page: NewestPage<T>, shown: impl FnMut(T) -> R) -> HttpResponse {
    let NewestPage { entries, before } = page;
    let data: Vec<R> = entries.into_iter().map(shown).collect();
    let reply = json!({ "object": "list", "data": data, "has_more": before.is_some(), "before": before });
    HttpResponse::Ok().json(reply)
}

/// Keys of all tenants, of one, or those whose names or tenants' names begin with `name`, revoked ones too: the newest `rows` (1000), the oldest of them first; with `has_more`, those
/// before `before`, a number, are there too. Takes an operator's key.
#[utoipa::path(
    get, path = "/v1/keys", tag = "operation",
    params(
        ("tenant" = Option<String>, Query, nullable = false, description = "a tenant's name"),
        ("name" = Option<String>, Query, nullable = false, description = "the beginning of a key's name, or of its tenant's"),
        ("before" = Option<u64>, Query), ("rows" = Option<u64>, Query, minimum = 1, maximum = 50000),
    ),
    responses(
        (status = 200, body = Vec<KeyReply>), (status = 400, body = ErrorBody), (status = 403, body = ErrorBody),
        (status = 404, body = ErrorBody, description = "no such tenant"),
    ),
    security(("key" = []))
)]
pub async fn keys(app: Data<App>, _: Operator, query: Query<KeyPage>) -> Result<HttpResponse, ApiError> {
    let (rows_max, before) = (list_rows(query.rows.as_deref())?, list_before(query.before.as_deref())?);
    let store = &app.runtime.store;
    let of_last =
        |read: Vec<ListedKey>| NewestPage::of_last(read, rows_max, |listed: &ListedKey| listed.key.id);
    let page = match (&query.tenant, &query.name) {
        (None, None) => of_last(stored(store.keys(before, rows_max + 1).await)?),
        (Some(name), None) => {
            let tenant = tenancy::named(&app, name).await?.id;
            of_last(stored(store.keys_of(tenant, before, rows_max + 1).await)?)
        }
        (None, Some(prefix)) => tenancy::keys_begun(&app, prefix, (before, rows_max)).await?,
        (Some(_), Some(_)) => return Err(ApiError::invalid("name", "has no place beside `tenant`")),
    };
    Ok(listed(page, |ListedKey { key, tenant_name }| KeyReply::new(key, &tenant_name)))
}

/// Makes a key of a tenant and tells its text, once. Takes an operator's key.
#[utoipa::path(
    post, path = "/v1/keys", tag = "operation",
    request_body(content = Object, description = "name, tenant (its name), days (until it expires; never) or expires \
        (unix seconds, later than now), operator (whether it is an operator's), read_only (whether it only looks), routes (the groups \
        of routes that it may use: admin, batches, cells, completions, corpora, files, prompts, queries, relqueries, \
        scheduler, sql, workbooks; all), tables (those that its SQL may read; all)"),
    responses(
        (status = 200, body = KeyReply), (status = 403, body = ErrorBody),
        (status = 404, body = ErrorBody, description = "no such tenant"),
    ),
    security(("key" = []))
)]
pub async fn create_key(
    app: Data<App>,
    operator: Operator,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, ApiError> {
    let asked = wire_keys::key(crate::json::object(&read_body(&app, &request, payload).await?)?)?;
    let now = app.runtime.shared.unix_now();
    let expires = asked.expiry.from(now)?;
    let tenant = tenancy::named(&app, &asked.tenant).await?;
    let details = json!({
        "tenant": tenant.name,
        "expires": expires.map(seconds),
        "operator": asked.is_operator,
        "read_only": asked.scope.is_read_only,
        "routes": asked.scope.routes,
        "tables": asked.scope.tables,
    });
    let (tenant_id, name, is_operator) = (tenant.id, &asked.name, asked.is_operator);
    let new = NewKey { tenant: tenant_id, name, expires, is_operator, scope: asked.scope };
    let change = Change { action: "key.create", subject: &asked.name, details };
    let make = async { stored(app.runtime.store.create_key(new, now).await) };
    let created = recorded(&app, &operator, change, make).await?;
    Ok(HttpResponse::Ok()
        .insert_header((CACHE_CONTROL, "no-store"))
        .json(KeyReply::created(created, &tenant.name)))
}

/// Makes a key of the same tenant and scope in place of one, which goes on for a while and then ends by itself. The
/// new one lives as long as the old one was given. Takes an operator's key.
#[utoipa::path(
    post, path = "/v1/keys/{id}/rotate", tag = "operation", params(("id" = u64, Path)),
    request_body(content = Object, description = "overlap_ms: for how long the old key goes on (a day); it ends no \
        later than it would have"),
    responses(
        (status = 200, body = KeyReply, description = "the new key, with its text"),
        (status = 400, body = ErrorBody, description = "also: another came in its place before"),
        (status = 403, body = ErrorBody), (status = 404, body = ErrorBody, description = "no such key works"),
    ),
    security(("key" = []))
)]
pub async fn rotate_key(
    app: Data<App>,
    operator: Operator,
    id: Path<String>,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, ApiError> {
    let overlap = wire_keys::overlap(crate::json::object(&read_body(&app, &request, payload).await?)?)?;
    let unknown = || RequestError::NotFound(format!("the working key `{id}`"));
    let number: u64 = id.parse().map_err(|_| unknown())?;
    let now = app.runtime.shared.unix_now();
    let ends = now.after(overlap);
    let details = json!({ "overlap_ms": overlap.0, "ends": seconds(ends) });
    let change = Change { action: "key.rotate", subject: &id, details };
    let make = async {
        match stored(app.runtime.store.rotate_key(number, overlap, now).await)? {
            KeyRotation::Done(created) => Ok(created),
            KeyRotation::Before(other) => {
                Err(RequestError::invalid("id", format!("key {other} came in place of {number} before")))
            }
            KeyRotation::NoSuchKey => Err(unknown()),
        }
    };
    let created = recorded(&app, &operator, change, make).await?;
    app.remembered.forget_all();
    let tenant = tenancy::name_of(&app, created.info.tenant).await?;
    Ok(HttpResponse::Ok()
        .insert_header((CACHE_CONTROL, "no-store"))
        .json(KeyReply::created(created, &tenant)))
}

/// Revokes a key: it stops working at once, at other servers of the database within `auth.remember_ms`. Takes an
/// operator's key.
#[utoipa::path(
    delete, path = "/v1/keys/{id}", tag = "operation", params(("id" = u64, Path)),
    responses((status = 200), (status = 403, body = ErrorBody), (status = 404, body = ErrorBody)),
    security(("key" = []))
)]
pub async fn revoke_key(
    app: Data<App>,
    operator: Operator,
    id: Path<String>,
) -> Result<HttpResponse, ApiError> {
    let unknown = || RequestError::NotFound(format!("the key `{id}`"));
    let number: u64 = id.parse().map_err(|_| unknown())?;
    let now = app.runtime.shared.unix_now();
    let change = Change { action: "key.revoke", subject: &id, details: json!({}) };
    let make = async {
        let is_revoked = stored(app.runtime.store.revoke_key(number, now).await)?;
        is_revoked.then_some(()).ok_or_else(unknown)
    };
    recorded(&app, &operator, change, make).await?;
    app.remembered.forget_all();
    Ok(HttpResponse::Ok().json(json!({ "id": number, "object": "key", "revoked": true })))
}

/// Tenants: weight, working keys, workbooks, cached answers, and what SQL computed today, each with its bound
/// and the setting that sets it. The newest `rows` (1000), the oldest of them first; with `has_more`, those before `before`, a
/// number, are there too. With `name`, those whose names begin so; the one that is called just that comes last of the first page.
/// Takes an operator's key.
#[utoipa::path(
    get, path = "/v1/tenants", tag = "operation",
    params(
        ("name" = Option<String>, Query, nullable = false, description = "the beginning of a tenant's name"),
        ("before" = Option<u64>, Query), ("rows" = Option<u64>, Query, minimum = 1, maximum = 50000),
    ),
    responses(
        (status = 200, body = Vec<TenantReply>), (status = 400, body = ErrorBody), (status = 403, body = ErrorBody),
    ),
    security(("key" = []))
)]
pub async fn tenants(
    app: Data<App>,
    _: Operator,
    query: Query<TenantPage>,
) -> Result<HttpResponse, ApiError> {
    let (rows_max, before) = (list_rows(query.rows.as_deref())?, list_before(query.before.as_deref())?);
    let page = tenancy::overviews(&app, query.name.as_deref(), (before, rows_max)).await?;
    Ok(listed(page, |overview| TenantReply::with_amounts(overview, &app.config)))
}

/// Makes a tenant. Takes an operator's key.
#[utoipa::path(
    post, path = "/v1/tenants", tag = "operation",
    request_body(content = Object, description = "name, weight (its share of the machine relative to others; 1)"),
    responses(
        (status = 200, body = TenantReply), (status = 400, body = ErrorBody, description = "also: the name is taken"),
        (status = 403, body = ErrorBody),
    ),
    security(("key" = []))
)]
pub async fn create_tenant(
    app: Data<App>,
    operator: Operator,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, ApiError> {
    let (name, weight) = wire::tenant(crate::json::object(&read_body(&app, &request, payload).await?)?)?;
    let change = Change { action: "tenant.create", subject: &name, details: json!({ "weight": weight }) };
    let tenant = recorded(&app, &operator, change, tenancy::create(&app, &name, weight)).await?;
    Ok(HttpResponse::Ok().json(TenantReply::from(tenant)))
}

/// Changes a tenant's weight, by which what it sends from now on counts (at other servers of the database within
/// `auth.remember_ms`), and its limits, which hold from now on. What is not named stays; of limits, what is not named has no bound. Takes an operator's key.
#[utoipa::path(
    post, path = "/v1/tenants/{name}", tag = "operation", params(("name" = String, Path)),
    request_body(content = Object, description = "weight (its share of the machine relative to others), \
        limits (day_tokens and month_tokens, UTC: prompts that no cache had, and answers, on all routes; \
        day_cost and month_cost: what those cost at the models' prices; minute_requests; models, a list of names)"),
    responses(
        (status = 200, body = TenantReply), (status = 403, body = ErrorBody), (status = 404, body = ErrorBody),
    ),
    security(("key" = []))
)]
pub async fn change_tenant(
    app: Data<App>,
    operator: Operator,
    name: Path<String>,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, ApiError> {
    let asked = wire::tenant_change(crate::json::object(&read_body(&app, &request, payload).await?)?)?;
    let details = json!({ "weight": asked.weight, "limits": asked.limits.as_ref().map(|(_, text)| text) });
    let change = Change { action: "tenant.change", subject: &name, details };
    let make = async {
        if let Some((limits, _)) = &asked.limits {
            limits::set(&app, &name, limits).await?;
        }
        match asked.weight {
            Some(weight) => tenancy::set_weight(&app, &name, weight).await,
            None => tenancy::named(&app, &name).await,
        }
    };
    let tenant = recorded(&app, &operator, change, make).await?;
    Ok(HttpResponse::Ok().json(TenantReply::from(tenant)))
}

/// The query of `/v1/usage/tenants`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UsagePage {
    days: Option<String>,
    /// Sums before this.
    before: Option<String>,
    /// So many sums at most.
    rows: Option<String>,
}

/// What every tenant has used, by day, tenant, model and route: the newest of the days that are asked for, until there are `rows` sums, which
/// may part a day; with `has_more`, those before `before` are there too. Takes an operator's key.
#[utoipa::path(
    get, path = "/v1/usage/tenants", tag = "operation",
    params(
        ("days" = Option<u64>, Query, minimum = 1, maximum = 400),
        ("before" = Option<String>, Query, nullable = false, pattern = "^[0-9]{1,6}([.][0-9]{1,9}[.][a-z_]{1,40}[.][!-~]{1,200})?$",
            description = "that of the page before: a day, or one sum of it"),
        ("rows" = Option<u64>, Query, minimum = 1, maximum = 50000),
    ),
    responses((status = 200), (status = 400, body = ErrorBody), (status = 403, body = ErrorBody)), security(("key" = []))
)]
pub async fn usage(app: Data<App>, _: Operator, query: Query<UsagePage>) -> Result<HttpResponse, ApiError> {
    let rows_max = number("rows", query.rows.as_deref(), (PAGE_ROWS_MAX, PAGE_ROWS_MAX))? as usize;
    let days = usage_days(&app, query.days.as_deref())?;
    let before = query.before.as_deref().map(UsageCursor::parse).transpose()?;
    let names = tenancy::names(&app).await?;
    let page = usage_pages::read(&app, days, before, rows_max).await?;
    let entry = |row: &store::UsageRow| {
        let mut entry = usage_entry(row);
        entry["tenant"] = json!(names.get(&row.key.tenant));
        entry
    };
    let data: Vec<_> = page.rows.iter().map(entry).collect();
    let before = page.before.map(|cursor| cursor.to_string());
    let reply = json!({ "object": "list", "data": data, "has_more": before.is_some(), "before": before });
    Ok(HttpResponse::Ok().json(reply))
}

/// Entries of a page of the log.
const AUDIT_PAGE: u64 = 100;

/// A page of the log.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuditPage {
    /// Entries before this one.
    before: Option<String>,
}

/// What operators changed, the newest first, a hundred at a time; `before`, a number, for older ones. Nothing is ever
/// taken out. Takes an operator's key.
#[utoipa::path(
    get, path = "/v1/audit", tag = "operation", params(("before" = Option<u64>, Query)),
    responses((status = 200, body = Vec<AuditReply>), (status = 403, body = ErrorBody)), security(("key" = []))
)]
pub async fn audit(app: Data<App>, _: Operator, page: Query<AuditPage>) -> Result<HttpResponse, ApiError> {
    let before = list_before(page.before.as_deref())?;
    let entries = stored(app.runtime.store.audit(before, AUDIT_PAGE + 1).await)?;
    let has_more = entries.len() as u64 > AUDIT_PAGE;
    let data: Vec<AuditReply> = entries.into_iter().take(AUDIT_PAGE as usize).map(AuditReply::from).collect();
    Ok(HttpResponse::Ok().json(json!({ "object": "list", "data": data, "has_more": has_more })))
}
