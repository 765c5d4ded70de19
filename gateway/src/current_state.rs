//! Which state a request sees: the one that is current when it arrives, to its end. What is read of it in several
//! places is of one configuration, whatever is taken meanwhile.

use std::rc::Rc;

use actix_web::HttpRequest;
use actix_web::body::MessageBody;
use actix_web::dev::{Extensions, ServiceRequest, ServiceResponse};
use actix_web::middleware::Next;
use actix_web::web::Data;
use serving::error::internal;

use crate::error::ApiError;
use crate::state::{App, CurrentApp};

/// Gives the request its state; before all other middleware, for these read it.
pub(crate) async fn hold(
    mut request: ServiceRequest,
    next: Next<impl MessageBody>,
) -> Result<ServiceResponse<impl MessageBody>, actix_web::Error> {
    if let Some(app) = request.app_data::<Data<CurrentApp>>().map(|current| current.get()) {
        let mut held = Extensions::new();
        held.insert(Data::from(app));
        // Nobody else has the request yet.
        request.add_data_container(Rc::new(held));
    }
    next.call(request).await
}

/// The state of a request that is held.
pub(crate) fn of_request(request: &HttpRequest) -> Result<&Data<App>, ApiError> {
    let app = request.app_data::<Data<App>>().ok_or_else(|| internal("no application state"));
    app.map_err(ApiError::from)
}
