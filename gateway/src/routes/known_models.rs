//! `/v1/known-models`: what could be served here instead, and how.

use actix_web::HttpResponse;
use actix_web::web::{self, Data, ServiceConfig};
use serving::error::internal;
use serving::known_models::{self, KnownModel};

use crate::auth::Authenticated;
use crate::error::{ApiError, ErrorBody};
use crate::routes::get_only;
use crate::state::App;
use crate::wire::known_models::{KnownModelList, KnownModelObject, LocalMachine};

/// The routes.
pub fn configure(routes: &mut ServiceConfig) {
    routes.service(get_only("/v1/known-models", list));
}

/// Models that can be served on this machine by their names, from the smallest: as `relserve pull` lists them.
#[utoipa::path(
    get, path = "/v1/known-models", tag = "operation",
    responses((status = 200, body = KnownModelList), (status = 401, body = ErrorBody)), security(("key" = []))
)]
pub async fn list(app: Data<App>, _: Authenticated) -> Result<HttpResponse, ApiError> {
    // Files are looked at.
    let listed = web::block(move || {
        let memory = known_models::memory_after_restart();
        let machine = LocalMachine { data_dir: &app.config.store.data_dir, memory };
        let one = |model| KnownModelObject::new(model, machine, is_served(&app, model));
        let data = known_models::all().iter().map(one).collect();
        KnownModelList { object: "list", data, memory_bytes: memory.map(|memory| memory.0) }
    });
    Ok(HttpResponse::Ok().json(listed.await.map_err(internal)?))
}

/// Whether a model answers here, by whatever name.
fn is_served(app: &App, model: &KnownModel) -> bool {
    let dir = app.config.model.dir.as_deref();
    let is_dir = dir.is_some() && dir == model.fetched(&app.config.store.data_dir).as_deref();
    is_dir || app.models.iter().any(|served| served.model().is_called(&model.name))
}
