//! The OpenAPI document, made from the handlers and wire types themselves.

use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi};

use crate::routes::{
    admin, batches, cells, corpora, files, known_models, live, openai, ops, prompts, query, relqueries,
    replicas, schemas, sign_ins, sql, workbooks,
};

/// The document.
#[derive(OpenApi)]
#[openapi(
    info(title = "RelServe", description = "A backend for LLM spreadsheet functions and dashboard columns."),
    paths(
        relqueries::create,
        relqueries::read,
        relqueries::delete,
        cells::create,
        cells::read,
        cells::delete,
        cells::prompts,
        corpora::add,
        corpora::list,
        corpora::read,
        corpora::delete,
        corpora::search,
        openai::models,
        openai::model,
        openai::completions,
        openai::chat_completions,
        known_models::list,
        files::upload,
        files::list,
        files::read,
        files::delete,
        files::content,
        batches::create,
        batches::list,
        batches::read,
        batches::cancel,
        schemas::create,
        schemas::list,
        schemas::read,
        schemas::delete,
        prompts::create,
        query::create,
        sql::run,
        sql::read,
        sql::delete,
        replicas::list,
        replicas::add,
        replicas::remove,
        replicas::drain,
        replicas::resume,
        workbooks::list,
        workbooks::save,
        workbooks::read,
        workbooks::versions,
        workbooks::delete,
        workbooks::share,
        workbooks::shares,
        workbooks::end_share,
        workbooks::shared,
        sign_ins::exchange,
        sign_ins::create,
        admin::me,
        admin::keys,
        admin::create_key,
        admin::revoke_key,
        admin::tenants,
        admin::create_tenant,
        admin::change_tenant,
        admin::usage,
        admin::audit,
        live::events,
        live::trace,
        live::what_if,
        ops::healthz,
        ops::readyz,
        ops::metrics,
        ops::scheduler,
        ops::catalogue,
        ops::usage,
    ),
    modifiers(&Keys)
)]
pub struct Document;

/// Adds how a key is sent.
struct Keys;

impl Modify for Keys {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let scheme = SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build());
        let components = document.components.get_or_insert_with(Default::default);
        components.add_security_scheme("key", scheme);
    }
}
