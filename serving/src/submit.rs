//! The start of a relQuery: look answers up, hand the rest to the loop, give out the [`OwnerHandle`] that
//! keeps it running. Must not know HTTP or wire shapes.

use std::sync::Arc;

use base::{End, Millis, RelQueryId, ServiceClass, TenantId, TokenCount, TokenId};
use serde_json::{Value, json};
use store::ResultKey;

use crate::account::{Account, BATCHES, Spent};
use crate::budgets::BudgetAmount;
use crate::caller::Caller;
use crate::clock::Deadline;
use crate::error::RequestError;
use crate::intake::{CellKey, Job, PendingRow, TemplateRows};
use crate::label::Label;
use crate::model::Model;
use crate::ownership::OwnerHandle;
use crate::pins::PinPermit;
use crate::price::TokenPrices;
use crate::queue_room::Full;
use crate::relquery_state::{
    AnswerSource, Arrival, QueueDepth, RelQueryKind, RelQueryState, RowProgress, Status, Usage,
};
use crate::results::Answer;
use crate::runtime::Runtime;

/// Which stop string ended a stored answer: its place among those of the request.
const STOP_TEXT: &str = "stop_text";
/// Which of the request's stop tokens ended it.
const STOP_TOKEN: &str = "stop_token";

/// A request, checked and lowered, ready to run.
#[derive(Debug)]
pub struct Prepared {
    /// How its rows are shown.
    pub kind: RelQueryKind,
    /// Where it came in.
    pub route: &'static str,
    /// Who waits.
    pub class: ServiceClass,
    /// Rows of the relQuery.
    pub rows: usize,
    /// Rows that cannot run.
    pub failed: Vec<(u32, RequestError)>,
    /// Rows whose answers were found before.
    pub answered: Vec<(u32, Answer)>,
    /// When a partial reply goes out: the scheduler hurries before it.
    pub deadline: Option<Deadline>,
    /// What holds its rows' independent sections after their end.
    pub pin: Option<PinPermit>,
    /// Rows to run.
    pub parts: Vec<TemplateRows>,
}

impl Prepared {
    /// The same, where parts that do not say what they are for are for this.
    pub fn labelled(mut self, label: Option<&Arc<Label>>) -> Self {
        for part in self.parts.iter_mut().filter(|part| part.label.is_none()) {
            part.label = label.map(Arc::clone);
        }
        self
    }
}

/// The identity of new work, or of work that a restart interrupted: of that, rows are shown once they are recorded.
#[derive(Debug, Default)]
pub struct Resumed {
    /// The id it had.
    pub id: Option<RelQueryId>,
    /// Its rows that were finished.
    pub rows: Vec<(u32, String, RowProgress)>,
    /// Whether new work is to have a ticket before anybody is told of it, or is a batch's: its rows too are shown, and
    /// counted, once they are recorded.
    pub gets_ticket: bool,
}

/// Starts a request: answers what is known, submits the rest.
pub async fn submit(
    runtime: &Arc<Runtime>,
    caller: Caller,
    prepared: Prepared,
    resumed: Resumed,
) -> Result<OwnerHandle, RequestError> {
    takes_work_of(runtime, caller)?;
    let is_resumed = resumed.id.is_some();
    let id = resumed.id.unwrap_or_else(|| runtime.shared.ids.next());
    let relquery = new_relquery(runtime, caller, id, prepared.kind.clone(), prepared.rows);
    relquery.trace.comes_from(runtime.shared.traces.relquery());
    for (index, text, state) in resumed.rows {
        relquery.answer(index, &text, state, relquery.arrival);
    }
    if is_resumed || resumed.gets_ticket {
        relquery.withhold();
    }
    let job = known(runtime, caller, &relquery, prepared).await;
    relquery.hold_scores(runtime.shared.scores.take(scores_asked(&runtime.model, &job.parts))?);
    set_aside(runtime, &job, is_resumed)?;
    // What is resumed was counted when it came, and stored before its ticket was; a batch is, whatever its parts, as it begins.
    if !is_resumed && job.account.route != BATCHES {
        count_request(runtime, caller, job.account.route);
    }
    runtime.registry.insert(&relquery);
    if relquery.read().is_over() {
        runtime.shared.relquery_ended(&relquery, &relquery.read());
    }
    let handle = OwnerHandle::new(runtime, relquery);
    if job.rows() > 0
        && let Err(full) = runtime.shared.submit(job)
    {
        handle.refuse();
        return Err(overloaded(runtime, caller.tenant, full));
    }
    Ok(handle)
}

/// Opens the relQuery of a request that is still being prepared, for who cannot wait for that, and keeps room
/// for its rows. [`submit_late`] starts it. It is counted now: there may be a ticket before it has started.
pub fn open(
    runtime: &Arc<Runtime>,
    caller: Caller,
    (kind, route): (RelQueryKind, &'static str),
    rows: usize,
) -> Result<OwnerHandle, RequestError> {
    takes_work_of(runtime, caller)?;
    let reserved = runtime.shared.intake.reserve(caller, rows as u64);
    reserved.map_err(|full| overloaded(runtime, caller.tenant, full))?;
    let relquery = new_relquery(runtime, caller, runtime.shared.ids.next(), kind, rows);
    relquery.trace.comes_from(runtime.shared.traces.relquery());
    count_request(runtime, caller, route);
    runtime.registry.insert(&relquery);
    Ok(OwnerHandle::new(runtime, relquery))
}

/// Starts the work of a relQuery that was opened before it was prepared. What is wrong with it ends the
/// relquery: its client has its reply already.
pub async fn submit_late(
    runtime: &Arc<Runtime>,
    caller: Caller,
    relquery: &Arc<RelQueryState>,
    prepared: Result<Prepared, RequestError>,
) {
    let reserved = relquery.read().rows.len() as u64;
    let job = match prepared.and_then(|prepared| takes_work(runtime).map(|()| prepared)) {
        Err(error) => {
            relquery.end(Status::Failed(error), runtime.shared.clock.now());
            None
        }
        // Called off while it was prepared.
        Ok(_) if relquery.read().is_over() => None,
        Ok(prepared) => {
            let job = known(runtime, caller, relquery, prepared).await;
            if let Err(error) = set_aside(runtime, &job, false) {
                relquery.end(Status::Failed(error), runtime.shared.clock.now());
            }
            // Who waits for it waits already, and the loop wakes nobody for rows that it does not run.
            relquery.notify();
            if relquery.read().is_over() {
                runtime.shared.relquery_ended(relquery, &relquery.read());
            }
            Some(job).filter(|job| job.rows() > 0 && !relquery.read().is_over())
        }
    };
    match job {
        Some(job) => runtime.shared.submit_reserved(job, reserved),
        None => runtime.shared.intake.finished(caller.tenant, reserved),
    }
}

/// What is known of a request's rows without running any: the others stay pending. Nobody else sees it.
pub async fn known_answers(
    runtime: &Arc<Runtime>,
    caller: Caller,
    mut prepared: Prepared,
) -> Arc<RelQueryState> {
    let id = runtime.shared.ids.next();
    let relquery = new_relquery(runtime, caller, id, prepared.kind, prepared.rows);
    for (index, error) in prepared.failed {
        relquery.settle(index, RowProgress::Failed(error), runtime.shared.clock.now());
    }
    answer_known(runtime, &relquery, prepared.answered);
    drop_settled(&relquery, &mut prepared.parts);
    answer_from_cache(runtime, caller, &relquery, &mut prepared.parts).await;
    relquery
}

/// The most that a row may take: its prompt and the longest answer that was asked for.
pub fn most(row: &PendingRow, prices: TokenPrices) -> BudgetAmount {
    let (prompt, output) = (row.item.prompt.len() as u64, row.item.generation.output_max.0);
    BudgetAmount { tokens: prompt.saturating_add(output), cost: prices.cost_max(prompt, output) }
}

/// How many log probabilities rows ask for that are counted: of prompts, and of named tokens beside an answer's.
fn scores_asked(model: &Model, parts: &[TemplateRows]) -> u64 {
    let asked = |row: &PendingRow| {
        let generation = &row.item.generation;
        let of_prompt = |top: u32| model.scored_tokens(&row.item.prompt).saturating_mul(u64::from(top) + 1);
        let named = generation.output_max.0.saturating_mul(generation.logprob_tokens.len() as u64);
        generation.prompt_logprobs.map_or(0, of_prompt).saturating_add(named)
    };
    parts.iter().flat_map(|part| &part.rows).map(asked).fold(0, u64::saturating_add)
}

/// Sets what rows may take aside in their tenant's budget, or refuses them.
pub(crate) fn set_aside(runtime: &Runtime, job: &Job, is_resumed: bool) -> Result<(), RequestError> {
    let now = runtime.shared.unix_now();
    let prices = runtime.shared.prices.dearest();
    let rows = job.parts.iter().flat_map(|part| &part.rows);
    let rows = rows.filter_map(|row| Some((*row.targets.first()?, most(row, prices))));
    let rows = job.relquery.not_reserved(rows.collect());
    let reserved = runtime.shared.budgets.reserve(job.account.tenant, rows, now, is_resumed)?;
    if let Some(reservation) = reserved {
        job.relquery.keep_reservation(reservation);
    }
    Ok(())
}

/// Whether new work is taken at all.
pub(crate) fn takes_work(runtime: &Runtime) -> Result<(), RequestError> {
    if runtime.is_draining() {
        return Err(RequestError::ShuttingDown);
    }
    if runtime.shared.pulse.is_dead() {
        return Err(RequestError::Dead);
    }
    Ok(())
}

/// The same, and whether the caller's tenant may have the model work.
pub(crate) fn takes_work_of(runtime: &Runtime, caller: Caller) -> Result<(), RequestError> {
    takes_work(runtime)?;
    runtime.shared.budgets.allows(caller.tenant, &runtime.model.name)
}

/// A relQuery of a caller's that arrives now. Nobody else sees it yet.
pub(crate) fn new_relquery(
    runtime: &Runtime,
    caller: Caller,
    id: RelQueryId,
    kind: RelQueryKind,
    rows: usize,
) -> Arc<RelQueryState> {
    let clock = runtime.shared.clock;
    let arrival = Arrival { unix_ms: clock.unix_ms(), time: clock.now() };
    RelQueryState::new(id, caller.tenant, kind, rows, arrival)
}

/// A request of a caller's came in.
pub fn count_request(runtime: &Runtime, caller: Caller, route: &'static str) {
    let account = Account { tenant: caller.tenant, route };
    runtime.shared.accounts.add(account, Spent { requests: 1, ..Spent::default() });
}

/// Puts on the relQuery what is known; the rest is for the loop.
pub(crate) async fn known(
    runtime: &Runtime,
    caller: Caller,
    relquery: &Arc<RelQueryState>,
    prepared: Prepared,
) -> Job {
    let Prepared { route, class, failed, answered, deadline, pin, mut parts, .. } = prepared;
    let now = runtime.shared.clock.now();
    relquery.trace.came_by(route);
    let tells_tokens = |row: &PendingRow| row.item.generation.tells_tokens;
    if parts.iter().flat_map(|part| &part.rows).any(tells_tokens) {
        relquery.keep_tokens();
    }
    for (index, error) in failed {
        relquery.settle(index, RowProgress::Failed(error), now);
    }
    let stats = runtime.view().stats;
    relquery.came_behind(QueueDepth { waiting: stats.rows_waiting, running: stats.rows_running });
    runtime.shared.metrics.rows.cache_hits.inc_by(answered.len() as u64);
    answer_known(runtime, relquery, answered);
    drop_settled(relquery, &mut parts);
    answer_from_cache(runtime, caller, relquery, &mut parts).await;
    let account = Account { tenant: caller.tenant, route };
    let (relquery, deadline) = (Arc::clone(relquery), deadline.map(Deadline::at));
    let scope = caller.scope(runtime.model.revision);
    Job { relquery, account, weight: caller.weight, scope, class, deadline, pin, parts }
}

/// Rows that are answered already need not run.
fn drop_settled(relquery: &RelQueryState, parts: &mut Vec<TemplateRows>) {
    let state = relquery.read();
    for part in parts.iter_mut() {
        part.rows.retain_mut(|row| {
            row.targets.retain(|index| state.rows[*index as usize].state == RowProgress::Pending);
            !row.targets.is_empty()
        });
    }
    parts.retain(|part| !part.rows.is_empty());
}

/// Puts answers on rows, out of the result cache.
fn answer_known(
    runtime: &Runtime,
    relquery: &RelQueryState,
    answers: impl IntoIterator<Item = (u32, Answer)>,
) {
    let now = runtime.shared.clock.now();
    for (index, Answer { text, end, prompt, output, probability }) in answers {
        let usage = Usage { prompt, cached: prompt, output, ..Usage::default() };
        let state = RowProgress::Done { end, usage, source: AnswerSource::Cache };
        relquery.keep_probability(index, probability);
        relquery.answer(index, &text, state, now);
    }
}

/// Answers rows out of the tenant's result cache, memory first.
async fn answer_from_cache(
    runtime: &Runtime,
    caller: Caller,
    relquery: &RelQueryState,
    parts: &mut Vec<TemplateRows>,
) {
    if !runtime.cache.enabled {
        return;
    }
    let wanted: Vec<CellKey> = parts.iter().flat_map(|part| &part.rows).filter_map(|row| row.key).collect();
    if wanted.is_empty() {
        return;
    }
    let unknown: Vec<ResultKey> = wanted
        .iter()
        .filter(|key| runtime.shared.results.get(caller.tenant, key).is_none())
        .map(|key| ResultKey(*key))
        .collect();
    let now = runtime.shared.unix_now();
    // A cache that cannot be read is a slower server, not a broken one; and nobody waits for one that is known to be
    // away.
    let is_away = runtime.store.health().is_away();
    let unknown = if is_away { Vec::new() } else { unknown };
    let stored = match runtime.store.results(caller.tenant, &unknown, now).await {
        Ok(stored) => stored,
        Err(error) => {
            tracing::warn!(%error, "the result cache cannot be read");
            Vec::new()
        }
    };
    for (key, value) in unknown.iter().zip(stored) {
        if let Some(answer) = value.and_then(|value| parse_answer(&value)) {
            runtime.shared.results.put_in_memory(caller.tenant, key.0, answer);
        }
    }
    let hit = |row: &PendingRow| row.key.and_then(|key| runtime.shared.results.get(caller.tenant, &key));
    for part in parts.iter_mut() {
        part.rows.retain(|row| {
            let Some(answer) = hit(row) else {
                runtime.shared.metrics.rows.cache_misses.inc_by(u64::from(row.key.is_some()));
                return true;
            };
            runtime.shared.metrics.rows.cache_hits.inc();
            answer_known(runtime, relquery, row.targets.iter().map(|index| (*index, answer.clone())));
            false
        });
    }
    parts.retain(|part| !part.rows.is_empty());
}

/// An answer as the stored cache keeps it.
pub fn render_answer(answer: &Answer) -> String {
    let Answer { text, end, prompt, output, probability } = answer;
    let stop = end.is_stop();
    let mut value = json!({ "text": **text, "stop": stop, "prompt": prompt.0, "output": output.0 });
    match end {
        End::StopText(place) => value[STOP_TEXT] = (*place).into(),
        End::StopToken(token) => value[STOP_TOKEN] = token.0.into(),
        End::Stop | End::Length => {}
    }
    if let Some(probability) = probability {
        value["probability"] = (*probability).into();
    }
    value.to_string()
}

/// Why a stored answer ended; none where it does not say.
fn parse_end(value: &Value) -> Option<End> {
    let number = |field: &str| value[field].as_u64().and_then(|number| u32::try_from(number).ok());
    Some(match (value["stop"].as_bool()?, number(STOP_TEXT), number(STOP_TOKEN)) {
        (false, ..) => End::Length,
        (true, Some(place), _) => End::StopText(place),
        (true, None, Some(token)) => End::StopToken(TokenId(token)),
        (true, None, None) => End::Stop,
    })
}

/// An answer that [`render_answer`] wrote.
pub fn parse_answer(value: &str) -> Option<Answer> {
    let value: Value = serde_json::from_str(value).ok()?;
    Some(Answer {
        text: value["text"].as_str()?.into(),
        end: parse_end(&value)?,
        prompt: TokenCount(value["prompt"].as_u64()?),
        output: TokenCount(value["output"].as_u64()?),
        probability: value["probability"].as_f64(),
    })
}

pub(crate) fn overloaded(runtime: &Runtime, tenant: TenantId, full: Full) -> RequestError {
    // An empty queue would not take it either: telling it to come back would be a lie.
    if full.asked > full.at_once_max {
        let limit =
            format!("{} rows, all that the queue takes at once (limits.queue_rows_max)", full.at_once_max);
        return RequestError::TooLarge { what: format!("a request of {} rows", full.asked), limit };
    }
    runtime.shared.metrics.overloaded(tenant, runtime.shared.clock.now());
    // Rows leave at some rate; half the queue gone is a fair time to come back. Without a measured rate: a
    // second.
    let elapsed = runtime.shared.clock.now().0 / 1_000_000_000;
    let rate = runtime.shared.pulse.rows() / elapsed.max(1);
    let seconds = (full.unfinished / 2).checked_div(rate).unwrap_or(1).clamp(1, 60);
    let Full { bound, rows, limit, .. } = full;
    RequestError::Overloaded { bound, rows, limit, retry_after: Millis(seconds * 1_000) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_answer_says_what_ended_it() {
        let answer = |end| Answer {
            text: "a".into(),
            end,
            prompt: TokenCount(1),
            output: TokenCount(2),
            probability: None,
        };
        for end in [End::Stop, End::StopText(3), End::StopToken(TokenId(7)), End::Length] {
            assert_eq!(parse_answer(&render_answer(&answer(end))), Some(answer(end)));
        }
        let before = r#"{"text":"a","stop":true,"prompt":1,"output":2}"#;
        assert_eq!(parse_answer(before), Some(answer(End::Stop)), "of a release that did not tell");
    }
}
