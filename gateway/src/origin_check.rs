//! What a server without keys asks of a request: that no foreign web page has sent it.
//!
//! A browser lets any page send requests to any address, the visitor's own machine too, and tells where the page
//! is from (`Origin`). A page whose own name was made to point at this address (DNS rebinding) is of the same
//! origin to the browser, but its name stands in `Host`. With keys none of this matters: a page does not know one.

use std::net::IpAddr;

use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderName, ORIGIN};
use actix_web::http::{Method, Uri};
use actix_web::middleware::Next;
use actix_web::web::Data;

use crate::config::{AuthMode, Config};
use crate::error::ApiError;
use crate::routes::ops::HEALTH_PATHS;
use crate::state::App;

/// Refuses what a foreign page may have sent, where requests need no key. Supervisors and scrapers may ask by any
/// name.
pub(crate) async fn of_no_foreign_page(
    request: ServiceRequest,
    next: Next<impl MessageBody>,
) -> Result<ServiceResponse<impl MessageBody>, actix_web::Error> {
    if let Some(app) = request.app_data::<Data<App>>()
        && app.config.auth.mode == AuthMode::None
        && !HEALTH_PATHS.contains(&request.path())
    {
        check(request.method(), request.headers(), &app.config)?;
    }
    next.call(request).await
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name).map(|value| value.to_str().unwrap_or_default())
}

fn check(method: &Method, headers: &HeaderMap, config: &Config) -> Result<(), ApiError> {
    // HTTP/1.0 knows no host; no browser speaks it.
    let host = text(headers, HOST);
    if let Some(host) = host.filter(|host| !is_ours(host, &config.server.hosts)) {
        return Err(ApiError::UnknownHost(host.chars().take(200).collect()));
    }
    match text(headers, ORIGIN) {
        Some(origin)
            if config.server.cors_origins.iter().any(|allowed| allowed == "*" || allowed == origin) =>
        {
            Ok(())
        }
        Some(origin) if origin.split_once("://").map(|(_, at)| at) != host => {
            Err(ApiError::ForeignOrigin(origin.chars().take(200).collect()))
        }
        // A form, or a script that asks nobody first, cannot send JSON as such.
        _ if *method == Method::POST && is_plain_text(headers) => Err(ApiError::MediaType),
        _ => Ok(()),
    }
}

/// Whether a browser sends such a body to anyone without asking.
fn is_plain_text(headers: &HeaderMap) -> bool {
    let kind = text(headers, CONTENT_TYPE).unwrap_or_default();
    kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("text/plain")
}

/// Whether a host can be nobody else's name: an address, this machine, or one of the configuration.
fn is_ours(host: &str, names: &[String]) -> bool {
    let Ok(uri) = host.parse::<Uri>() else { return false };
    let Some(name) = uri.host() else { return false };
    let address = name.trim_start_matches('[').trim_end_matches(']');
    let is_this_machine = name.eq_ignore_ascii_case("localhost");
    is_this_machine
        || address.parse::<IpAddr>().is_ok()
        || names.iter().any(|known| known.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_names_of_the_configuration_are_ours() {
        let names = ["cells.example".to_owned()];
        for host in
            ["127.0.0.1:8080", "[::1]:8080", "localhost", "LOCALHOST:1", "192.168.0.7", "Cells.example:80"]
        {
            assert!(is_ours(host, &names), "{host}");
        }
        for host in
            ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "", "a b", "localhost.evil"]
        {
            assert!(!is_ours(host, &names), "{host}");
        }
    }
}
