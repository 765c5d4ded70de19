//! The add-ins, carried inside the program: what `addins/build.sh` builds, served at `/addins` with this server's own
//! address filled in.
//!
//! Where the program was built without Node there are none; the page then says so.

use std::io::{Cursor, Write as _};

use actix_web::http::header::{CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY};
use actix_web::middleware::Compress;
use actix_web::web::ServiceConfig;
use actix_web::{HttpRequest, HttpResponse};
use rust_embed::{Embed, EmbeddedFile};
use serving::error::RequestError;
use zip::write::{SimpleFileOptions, ZipWriter};

use crate::error::ApiError;
use crate::routes::get_and_head;
use crate::routes::page::static_file;

#[derive(Embed)]
#[folder = "../addins/dist"]
struct AddIns;

/// What the build writes where the address of the server belongs.
const PLACEHOLDER: &str = "https://relserve.invalid";
const ENTRY: &str = "page/index.html";
/// What stands at `/addins` in a program that was built without the add-ins.
const WITHOUT_ADDINS: &str = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>RelServe</title>\
    <h1>Add-ins</h1><p>The add-ins are not in this build: <code>./run</code> builds them too, with Node 20 or later.";
/// The page of the three steps loads nothing from anywhere else.
const PAGE_POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; \
                           frame-ancestors 'none'";
/// Excel shows its pane in a frame and requires Office.js from Microsoft's address.
const EXCEL_POLICY: &str =
    "script-src 'self' https://appsforoffice.microsoft.com; object-src 'none'; base-uri 'none'";

/// The routes.
pub fn configure(routes: &mut ServiceConfig) {
    for path in ["/addins", "/addins/page/{name}", "/addins/excel/{name}", "/addins/sheets/{name}"] {
        routes.service(get_and_head(path, file).wrap(Compress::default()));
    }
    routes.service(get_and_head("/addins/relserve.oxt", extension));
}

async fn file(request: HttpRequest) -> Result<HttpResponse, ApiError> {
    let path = request.path().strip_prefix("/addins").unwrap_or_default().trim_start_matches('/');
    let name = if path.is_empty() { ENTRY } else { path };
    let (kind, body) = match AddIns::get(name) {
        Some(EmbeddedFile { data, metadata }) => (metadata.mimetype().to_owned(), data.into_owned()),
        None if name == ENTRY => ("text/html".to_owned(), WITHOUT_ADDINS.into()),
        None => return Err(RequestError::NotFound(format!("`{}`", request.path())).into()),
    };
    // Scripts are texts for people here: they are copied, or read by Excel, which asks for no type.
    let kind = if name.ends_with(".gs") { "text/plain".to_owned() } else { kind };
    let body = with_address(&request, body)?;
    let policy = if name.starts_with("excel/") { EXCEL_POLICY } else { PAGE_POLICY };
    Ok(static_file(kind, false).insert_header((CONTENT_SECURITY_POLICY, policy)).body(body))
}

/// LibreOffice's extension: a zip of the build's files, made here because one of them holds the address.
async fn extension(request: HttpRequest) -> Result<HttpResponse, ApiError> {
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    let mut count = 0;
    for path in AddIns::iter() {
        let Some(name) = path.strip_prefix("libreoffice/") else { continue };
        let file = AddIns::get(&path).expect("a file that is listed is there");
        let body = with_address(&request, file.data.into_owned())?;
        let stored = SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
        archive.start_file(name, stored).expect("a name of ours, in memory");
        archive.write_all(&body).expect("memory takes it");
        count += 1;
    }
    if count == 0 {
        return Err(RequestError::NotFound(format!("`{}`", request.path())).into());
    }
    let body = archive.finish().expect("memory takes it").into_inner();
    Ok(static_file("application/vnd.openofficeorg.extension".to_owned(), false)
        .insert_header((CONTENT_DISPOSITION, "attachment; filename=\"relserve.oxt\""))
        .body(body))
}

/// A file with this server's address in place of the build's placeholder.
fn with_address(request: &HttpRequest, body: Vec<u8>) -> Result<Vec<u8>, ApiError> {
    match std::str::from_utf8(&body) {
        Ok(text) if text.contains(PLACEHOLDER) => {
            Ok(text.replace(PLACEHOLDER, &address(request)?).into_bytes())
        }
        _ => Ok(body),
    }
}

/// The address at which the client reached this server, also through a proxy that says so
/// (`X-Forwarded-Proto`, `X-Forwarded-Host`, `Forwarded`).
fn address(request: &HttpRequest) -> Result<String, ApiError> {
    let connection = request.connection_info();
    let (scheme, host) = (connection.scheme(), connection.host());
    // It goes into scripts and XML: nothing but what names a host may stand in it.
    let is_host =
        !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-:[]".contains(&byte));
    if !is_host || !matches!(scheme, "http" | "https") {
        return Err(ApiError::invalid("Host", "must name this server, with http or https before it"));
    }
    Ok(format!("{scheme}://{host}"))
}
