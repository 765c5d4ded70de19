//! `/v1/sign-in`: a link's token for a key, once; `/v1/sign-in/links`: an operator makes one for somebody.

use actix_web::http::header::CACHE_CONTROL;
use actix_web::web::{self, Data, Payload, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use serde_json::json;
use serving::error::stored;
use store::SignIn;

use crate::auth::Operator;
use crate::error::{ApiError, ErrorBody};
use crate::routes::{only_post, read_body};
use crate::services::audit::{Change, recorded};
use crate::services::{sign_ins, tenancy};
use crate::state::App;
use crate::wire::admin::{SignInReply, required};
use crate::wire::seconds;
use crate::{body, json};

/// The routes.
pub fn configure(routes: &mut ServiceConfig) {
    routes
        .service(
            web::resource("/v1/sign-in").route(web::post().to(exchange)).default_service(web::to(only_post)),
        )
        .service(
            web::resource("/v1/sign-in/links")
                .route(web::post().to(create))
                .default_service(web::to(only_post)),
        );
}

/// Exchanges the token of a sign-in link for a new key. A token works once and for minutes.
#[utoipa::path(
    post, path = "/v1/sign-in", tag = "operation",
    request_body(content = Object, description = "token (what follows `#sign-in=` in the link)"),
    responses(
        (status = 200, body = SignInReply),
        (status = 401, body = ErrorBody, description = "the link was used, is too old, or never was"),
        (status = 413, body = ErrorBody, description = "the body has more than 4 KiB"),
    )
)]
pub async fn exchange(
    app: Data<App>,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, ApiError> {
    let body = body::read_of_anybody(request.headers(), payload, &app).await?;
    let mut fields = json::object(&body)?;
    let token = required(&mut fields, "token")?;
    fields.finish()?;
    let now = app.runtime.shared.unix_now();
    let span = app.config.auth.sign_in_key_ms_max;
    let created = stored(sign_ins::exchange(&app.runtime.store, &token, span, now).await)?;
    let used = "this link was used, or is too old; `relserve sign-in` prints another";
    let created = created.ok_or(ApiError::InvalidToken(used))?;
    let tenant = tenancy::name_of(&app, created.info.tenant).await?;
    Ok(HttpResponse::Ok().insert_header((CACHE_CONTROL, "no-store")).json(SignInReply::new(created, tenant)))
}

/// Makes a link that signs somebody in, once and within minutes (`auth.sign_in_ms_max`). Takes an operator's key.
#[utoipa::path(
    post, path = "/v1/sign-in/links", tag = "operation",
    request_body(content = Object, description = "tenant (its name; required), operator (whether the link makes an \
        operator of who opens it)"),
    responses(
        (status = 200), (status = 403, body = ErrorBody, description = "not an operator's key"),
        (status = 404, body = ErrorBody, description = "no such tenant"),
    ),
    security(("key" = []))
)]
pub async fn create(
    app: Data<App>,
    operator: Operator,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, ApiError> {
    let mut fields = json::object(&read_body(&app, &request, payload).await?)?;
    let name = required(&mut fields, "tenant")?;
    let is_operator = fields.bool("operator")?.unwrap_or(false);
    fields.finish()?;
    let tenant = tenancy::named(&app, &name).await?.id;
    let (now, span) = (app.runtime.shared.unix_now(), app.config.auth.sign_in_ms_max);
    let sign_in = SignIn { tenant, is_operator };
    let change =
        Change { action: "sign_in.link", subject: &name, details: json!({ "operator": is_operator }) };
    let make = async { stored(sign_ins::create(&app.runtime.store, sign_in, span, now).await) };
    let token = recorded(&app, &operator, change, make).await?;
    Ok(HttpResponse::Ok().insert_header((CACHE_CONTROL, "no-store")).json(json!({
        "object": "sign_in.link",
        "path": sign_ins::path(&token),
        "token": token,
        "tenant": name,
        "operator": is_operator,
        "expires": seconds(now.after(span)),
    })))
}
