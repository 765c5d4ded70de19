//! The web app, carried inside the program: what `dashboards/web` builds into its `dist`, served at `/`.
//!
//! Where the program was built without Node there is no `dist`; a page then says so, and all else works.

use actix_web::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use actix_web::middleware::Compress;
use actix_web::web::ServiceConfig;
use actix_web::{HttpRequest, HttpResponse, HttpResponseBuilder};
use rust_embed::{Embed, EmbeddedFile};
use serving::error::RequestError;

use crate::error::ApiError;
use crate::routes::get_and_head;

#[derive(Embed)]
#[folder = "../dashboards/web/dist"]
struct Web;

const ENTRY: &str = "index.html";
/// What stands at `/` in a program that was built without the web app.
const WITHOUT_WEB: &str = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>RelServe</title>\
    <h1>RelServe</h1><p>The server runs. Its page is not in this build: <code>./run</code> builds both, with Node 20 or \
    later. The API is described in <a href=\"openapi.json\">openapi.json</a>.";
/// The page loads nothing from anywhere else, runs no inline script, and talks to this server only.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
/// The build names these files by their contents.
const FOREVER: &str = "public, max-age=31536000, immutable";

/// The routes.
pub fn configure(routes: &mut ServiceConfig) {
    for path in ["/", "/icon.svg", "/licenses.txt", "/assets/{name}"] {
        routes.service(get_and_head(path, file).wrap(Compress::default()));
    }
}

async fn file(request: HttpRequest) -> Result<HttpResponse, ApiError> {
    let path = request.path().trim_start_matches('/');
    let name = if path.is_empty() { ENTRY } else { path };
    let (kind, body) = match Web::get(name) {
        Some(EmbeddedFile { data, metadata }) => (metadata.mimetype().to_owned(), data.into_owned()),
        None if name == ENTRY => ("text/html".to_owned(), WITHOUT_WEB.into()),
        None => return Err(RequestError::NotFound(format!("`{}`", request.path())).into()),
    };
    Ok(static_file(kind, name.starts_with("assets/"))
        .insert_header((CONTENT_SECURITY_POLICY, POLICY))
        .body(body))
}

/// The reply with a file of this type; `forever`: its name changes with its contents.
pub(super) fn static_file(kind: String, forever: bool) -> HttpResponseBuilder {
    let kind = if kind.starts_with("text/") { format!("{kind}; charset=utf-8") } else { kind };
    let mut reply = HttpResponse::Ok();
    reply
        .insert_header((CONTENT_TYPE, kind))
        .insert_header((REFERRER_POLICY, "no-referrer"))
        .insert_header((X_CONTENT_TYPE_OPTIONS, "nosniff"))
        .insert_header((CACHE_CONTROL, if forever { FOREVER } else { "no-cache" }));
    reply
}
