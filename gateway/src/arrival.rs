//! When a request's head was read: where its deadline counts from, whatever time its body, its key and its
//! turn take.

use actix_web::dev::ServiceRequest;
use actix_web::web::Data;
use actix_web::{HttpMessage, HttpRequest};
use base::Time;
use serving::clock::Clock;

use crate::state::App;

#[derive(Clone, Copy)]
struct Arrival(Time);

/// Notes it; the outermost of all middleware.
pub fn note(request: &ServiceRequest) {
    if let Some(app) = request.app_data::<Data<App>>() {
        request.extensions_mut().insert(Arrival(app.runtime.shared.clock.now()));
    }
}

/// When a request's head was read.
pub fn arrival_of(request: &HttpRequest, clock: Clock) -> Time {
    request.extensions().get().map_or_else(|| clock.now(), |Arrival(at)| *at)
}
