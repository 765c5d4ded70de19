//! Span queries: from the query's JSON to calls of the model, side by side where none waits for another (Span
//! Queries, sections 4.3 and 5).
//!
//! Searches first, then the rules, then the plan; [`run`] submits its calls as rows of relQueries and puts
//! their outputs where the plan says. Must not know HTTP.

mod progress;
mod prompt;
mod run;

use std::collections::BTreeMap;
use std::sync::Arc;

use base::Generation;
use ir::rewrite::Applied;
use ir::span::{
    Call, Found, Item, Plan, Retrieval, Rewriting, SpanPart, SpanQuery, cluster_bulk, lower_plain, rewrite,
};
pub use progress::{Ended, QueryOutcome};
pub use prompt::ahead;
pub use run::{Asker, QueryEvent, run};
use serving::caller::Caller;
use serving::error::RequestError;

use crate::services::corpora;
use crate::services::prepare::RequestContext;
use crate::state::App;
use crate::wire::query::{QueryRequest, limits, span_error};

/// A query that is ready to run.
#[derive(Debug)]
pub struct Planned {
    /// Its place in the request.
    pub index: usize,
    /// Its calls.
    pub plan: Arc<Plan>,
    /// How each call generates.
    pub generations: Arc<[Arc<Generation>]>,
    /// First tokens of each span that are computed again.
    pub repair_tokens: u32,
    /// The query as the rules left it.
    pub rewritten: SpanQuery,
    /// What each rule did.
    pub log: Vec<Applied>,
}

/// The rule that reads an output behind its own input, where both lie in the engine's memory.
const DISTRIBUTE: &str = "distribute_plus";

/// Rewrites and plans each query of a request; of many, those that share fragments are made neighbours
/// (section 5.8). A query that cannot run fails alone. Where servers run rows, the calls are plain prompts.
pub fn plan(
    context: RequestContext<'_>,
    request: &QueryRequest,
    searched: &Searched,
) -> Vec<Result<Planned, (usize, RequestError)>> {
    let is_plain = !context.model.model().has_sections();
    let rules = request.rules.clone();
    let rewriting = Rewriting {
        rules: if is_plain { rules.without(DISTRIBUTE) } else { rules },
        judges: request.judges,
        found: &searched.found,
        limits: limits(&context.app.config.limits),
    };
    let mut known = prompt::GenerationsByParams::new();
    let plans = request.queries.iter().enumerate().map(|(index, query)| {
        let at = request.path(index);
        let unfound = query.retrievals().iter().find_map(|retrieval| searched.failed.get(retrieval).cloned());
        let planned = match unfound {
            None => {
                let explains = request.explain;
                let repair_tokens = request.repair_tokens.unwrap_or(context.app.config.reuse.repair_tokens);
                let at = QueryAt { index, path: &at, query, explains, repair_tokens };
                plan_one(context, at, &rewriting, &mut known)
            }
            Some(error) => Err(error),
        };
        planned.map_err(|error| (index, error))
    });
    let mut plans: Vec<_> = plans.collect();
    let order: Vec<usize> = if is_plain {
        let ready = plans.iter_mut().enumerate().filter_map(|(number, planned)| {
            let planned = planned.as_mut().ok()?;
            Some((number, Arc::make_mut(&mut planned.plan)))
        });
        let (numbers, mut ready): (Vec<usize>, Vec<&mut Plan>) = ready.unzip();
        lower_plain(&mut ready).into_iter().map(|plan| numbers[plan]).collect()
    } else {
        let fragments: Vec<Vec<&str>> =
            plans.iter().map(|planned| planned.as_ref().map(fragments).unwrap_or_default()).collect();
        cluster_bulk(&fragments)
    };
    let mut place = vec![0; plans.len()];
    for (number, query) in order.into_iter().enumerate() {
        place[query] = number;
    }
    let mut place = place.into_iter();
    plans.sort_by_cached_key(|_| place.next());
    plans
}

/// A query and where it stands in its request.
struct QueryAt<'a> {
    index: usize,
    path: &'a str,
    query: &'a SpanQuery,
    /// Whether it is to be explained, which a query without a call can be too.
    explains: bool,
    repair_tokens: u32,
}

fn plan_one(
    context: RequestContext<'_>,
    QueryAt { index, path, query, explains, repair_tokens }: QueryAt<'_>,
    rewriting: &Rewriting<'_>,
    known: &mut prompt::GenerationsByParams,
) -> Result<Planned, RequestError> {
    let (rewritten, log) = rewrite(query.clone(), rewriting).map_err(|error| span_error(path, error))?;
    let plan = if explains { Plan::to_explain(&rewritten) } else { Plan::new(&rewritten) };
    let plan = plan.map_err(|error| span_error(path, error))?;
    let generations = plan.calls.iter().map(|call| prompt::generation(context, path, &call.params, known));
    let generations = generations.collect::<Result<_, _>>()?;
    if context.model.model().has_sections() {
        prompt::check_reuse(context.model.model(), path, &plan)?;
    }
    Ok(Planned { index, plan: Arc::new(plan), generations, repair_tokens, rewritten, log })
}

/// The texts of a query's spans.
fn fragments(planned: &Planned) -> Vec<&str> {
    let groups =
        planned.plan.calls.iter().flat_map(|call: &Call| &call.items).filter_map(|item| match item {
            Item::Group(members) => Some(members),
            Item::Part(_) => None,
        });
    let parts = groups.flatten().flat_map(|member| &member.parts);
    parts
        .filter_map(|part| match part {
            SpanPart::Message(_, text) => Some(&**text),
            SpanPart::Output(_) | SpanPart::Whole(_) => None,
        })
        .collect()
}

/// What was found of all that queries search for.
#[derive(Debug, Default)]
pub struct Searched {
    /// Fragments, best first.
    found: Found,
    /// Searches that could not be made: the queries with them fail, and no others.
    failed: BTreeMap<Retrieval, RequestError>,
}

/// What the corpora of a tenant have on what queries ask for; each search is made once.
pub async fn search(app: &Arc<App>, caller: Caller, queries: &[SpanQuery]) -> Searched {
    let mut searched = Searched::default();
    for retrieval in queries.iter().flat_map(SpanQuery::retrievals) {
        if searched.found.contains_key(&retrieval) || searched.failed.contains_key(&retrieval) {
            continue;
        }
        let Retrieval { corpus, query, k } = &retrieval;
        match corpora::retrieve(app, caller.tenant, corpus, query, *k as usize).await {
            Ok(fragments) => drop(searched.found.insert(retrieval, fragments)),
            Err(error) => drop(searched.failed.insert(retrieval, error)),
        }
    }
    searched
}
