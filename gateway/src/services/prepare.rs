//! From a request's fields to work: read, build the span tree, rewrite, lower.
//!
//! Pure but for randomness where the caller gives no seed; slow for large tables, so handlers call it off
//! their thread. A row that cannot run fails alone; where no row can run, its error is the request's.

pub mod call_group;
pub mod cells;
mod columns;
pub mod relquery;
pub mod rows;

use std::sync::Arc;

use base::{Millis, TenantId, Time};
use serving::caller::Caller;
use serving::error::RequestError;
use serving::relquery_state::RelQueryKind;
use serving::submit::Prepared;

use crate::json::JsonFields;
use crate::models::ServedModel;
use crate::services::constraints::Purpose;
use crate::state::App;
use crate::wire::ValidationContext;

/// Where a tenant's requests are prepared.
#[derive(Clone, Copy)]
pub struct RequestContext<'a> {
    /// The server's state.
    pub app: &'a App,
    /// What will run them.
    pub model: &'a Arc<ServedModel>,
    /// Whose requests.
    pub tenant: TenantId,
    /// Why they are prepared.
    pub purpose: Purpose,
    /// When they arrived: their deadlines count from there.
    pub arrival: Time,
}

impl<'a> RequestContext<'a> {
    /// What its requests are read against.
    pub fn validation(self) -> ValidationContext<'a> {
        let config = &self.app.config;
        let constraints = self.model.constraints.of(self.tenant, self.purpose, &config.limits);
        ValidationContext {
            limits: &config.limits,
            model: self.model.model(),
            constraints,
            unknown_fields: config.openai.unknown_fields,
        }
    }
}

/// A request, ready to run, and how its client wants the reply.
#[derive(Debug)]
pub struct PreparedRequest {
    /// What to run.
    pub work: Prepared,
    /// As events.
    pub stream: bool,
}

/// A request for rows, read and checked. To lower it takes a while: its rows are tokenized.
pub trait Wanted: Send + Sized + 'static {
    /// Refuses a tenant that may have no more of it now; work that has begun is joined without being asked.
    fn admit(_: &App, _: TenantId) -> impl Future<Output = Result<(), RequestError>> {
        std::future::ready(Ok(()))
    }
    /// Learns what its rows need that only the model can say. Waits for the model.
    fn settle(&mut self, _: &Arc<App>, _: &Arc<ServedModel>, _: Caller) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }
    /// Reads a body's fields.
    fn read(context: RequestContext<'_>, fields: JsonFields) -> Result<Self, RequestError>;
    /// Whether these fields of a short body are read in no time: nothing is compiled for them.
    fn is_light(_: &JsonFields) -> bool {
        false
    }
    /// What is known of it before it is lowered.
    fn outline(&self) -> Outline;
    /// The request with all its answers, where these are in memory: found in no time.
    fn known(&self, _: RequestContext<'_>) -> Option<Prepared> {
        None
    }
    /// Makes its rows ready to run.
    fn lower(self, context: RequestContext<'_>) -> Result<PreparedRequest, RequestError>;

    /// Reads a body's fields and makes its rows ready to run.
    fn prepare(context: RequestContext<'_>, fields: JsonFields) -> Result<PreparedRequest, RequestError> {
        Self::read(context, fields)?.lower(context)
    }
}

/// What a partial reply needs of a request.
#[derive(Clone, Debug)]
pub struct Outline {
    /// Where it came in.
    pub route: &'static str,
    /// How its rows are shown.
    pub kind: RelQueryKind,
    /// How many they are.
    pub rows: usize,
    /// As events.
    pub stream: bool,
    /// After which time a partial reply goes out.
    pub deadline: Option<Millis>,
}
