//! Takes the outcome of a step in: tokens, ends, failures, and steps that failed whole.

use base::{
    End, Nanos, PromptOutcome, RelQueryId, RowError, RowOutcome, Sampled, StepId, StepOutcome, Time,
    TokenCount,
};

use crate::Scheduler;
use crate::cost::Sample;
use crate::event::Event;
use crate::flight::{Flight, FlightSlot};
use crate::isolation::FailureScope;
use crate::row::RowState;
use crate::speculate::Speculation;

impl Scheduler {
    /// Takes the outcome of the step in flight in; that of any other step changes nothing. `now` is
    /// the end of the step.
    pub fn apply(&mut self, outcome: &StepOutcome, now: Time) -> Vec<Event> {
        let mut events = self.drain_events(now);
        let Some(flight) = self.steps.flight.take_if(|flight| flight.step == outcome.step) else {
            return events;
        };
        self.kv.ledger.moves_done();
        self.observe(&flight, outcome.elapsed);
        self.charge(&flight, outcome.elapsed);
        let mut results = outcome.rows.iter();
        let mut touched = Vec::new();
        for slot in &flight.slots {
            let result = if slot.samples { find(&mut results, outcome, slot) } else { None };
            if slot.samples && !matches!(result, Some(Ok(_))) {
                self.disown(&flight, slot);
            }
            let Some((id, index)) = self.queues.requests.get(&slot.request).copied() else { continue };
            touched.push(id);
            self.advance(id, index, slot, now, &mut events);
            let is_scored =
                slot.targets.is_none() || self.take_prompt(id, index, slot, &outcome.prompts, &mut events);
            if !is_scored {
                self.disown(&flight, slot);
            } else if slot.samples {
                self.take_result(id, index, slot, result, &mut events);
            }
        }
        self.close_all(&touched, now, &mut events);
        events
    }

    /// A step that failed whole: nothing it promised is there. New rows wait again, running ones keep
    /// their place; all are suspect (see `isolation`), and a row that failed alone too often fails for good.
    pub fn abort_step(&mut self, step: StepId, reason: &str, now: Time) -> Vec<Event> {
        self.abort(step, (FailureScope::Step, reason), now)
    }

    /// A step with which the executor was lost: it failed whole, and the fresh executor has an empty memory
    /// (see [`forget_memory`](Self::forget_memory)). The rows that were in it are tried one by one, and one
    /// that was lost with the executor again is quarantined: it fails.
    pub fn lose_step(&mut self, step: StepId, reason: &str, now: Time) -> Vec<Event> {
        let events = self.abort(step, (FailureScope::Executor, reason), now);
        self.forget_memory();
        events
    }

    fn abort(&mut self, step: StepId, (scope, reason): (FailureScope, &str), now: Time) -> Vec<Event> {
        let mut events = self.drain_events(now);
        let Some(flight) = self.steps.flight.take_if(|flight| flight.step == step) else { return events };
        // The executor may not have seen who ended: it is told again.
        self.steps.retired.extend_from_slice(&flight.retired);
        for (_, block) in flight.published.iter().rev() {
            self.kv.ledger.unpublish(*block);
        }
        self.kv.ledger.moves_failed();
        let rows = flight.slots.iter().filter(|slot| slot.leads).count() as u32;
        let mut touched = Vec::new();
        for slot in flight.slots.iter().rev() {
            let Some((id, index)) = self.queues.requests.get(&slot.request).copied() else { continue };
            touched.push(id);
            let Some(relquery) = self.relqueries.get_mut(&id) else { continue };
            let row = relquery.row_mut(index);
            // Publications of this step are void, so links to them are.
            let part = row.part_at(slot.start);
            let before = (slot.start - row.part_start(part)) / self.config.block_tokens;
            row.chain_mut(part).links.truncate(before as usize);
            if !slot.leads {
                continue; // What becomes of the row is said with the first of its slots, the last here.
            }
            row.faults.add(scope, rows == 1, slot.is_prefill);
            self.isolation.narrow((id, index), scope.bisect_from(rows));
            if let Some(error) = row.faults.row_error(scope, reason, self.config.attempts_max) {
                self.fail(id, index, error, &mut events);
            } else if slot.is_new {
                self.take_back(id, index);
            } else {
                self.trim(id, index);
            }
        }
        self.close_all(&touched, now, &mut events);
        events
    }

    /// The executor lost its memory, and with it all that was ever computed: nothing of it is hit again, pins
    /// are lost, and rows that run are computed anew, keeping the tokens they have. A step in flight has
    /// failed too: it is aborted first. Says whether that was so; else nothing happens.
    pub fn forget_memory(&mut self) -> bool {
        if self.steps.flight.is_some() {
            return false;
        }
        let rows: Vec<_> = self.running_rows().collect();
        for (id, index) in rows.iter().rev() {
            self.take_back(*id, *index);
            self.telemetry.counters.preemptions += 1;
        }
        self.place_all(rows.iter().map(|(id, _)| *id));
        self.release_all_pins();
        self.kv.ledger.forget_all();
        true
    }

    /// The model follows the engine.
    fn observe(&mut self, flight: &Flight, elapsed: Nanos) {
        // Logits at each token of a prompt are no part of what a prefill usually takes.
        if !self.config.refit || flight.slots.iter().any(|slot| slot.targets.is_some()) {
            return;
        }
        let prefills = flight.slots.iter().filter(|slot| slot.is_prefill);
        let decodes = flight.slots.iter().filter(|slot| !slot.is_prefill).count() as u64;
        let prompts: u64 = prefills.map(|slot| u64::from(slot.end - slot.start) + slot.opening()).sum();
        // A forced token costs what one of a prompt does: it is computed and not sampled from.
        let forced: u64 = flight.slots.iter().map(FlightSlot::forced).sum();
        let tokens = TokenCount(prompts + forced);
        // A guess is computed and sampled at, as one more sequence is.
        let guessed: u64 = flight.slots.iter().map(FlightSlot::guessed).sum();
        let decodes = decodes + guessed;
        let sample = match (tokens.0, decodes) {
            (_, 0) => Sample::Prefill { tokens, elapsed },
            (0, _) => Sample::Decode { sequences: decodes, elapsed },
            _ => Sample::Mixed { tokens, sequences: decodes, elapsed },
        };
        self.estimates.cost = self.estimates.refit.observe(sample, self.estimates.cost);
    }

    /// Each tenant pays for its rows: of the time that the step took, the part that the model says is theirs.
    fn charge(&mut self, flight: &Flight, elapsed: Nanos) {
        if !self.config.is_fair() {
            return;
        }
        let slots = flight.slots.len() as u64;
        let modelled: u128 = flight.slots.iter().map(|slot| u128::from(self.time_of(slot, slots).0)).sum();
        self.queues.tenants.measured(modelled, elapsed);
        for slot in &flight.slots {
            let Some((id, _)) = self.queues.requests.get(&slot.request) else { continue };
            let part = u128::from(self.time_of(slot, slots).0) * u128::from(elapsed.0) / modelled.max(1);
            let time = Nanos(u64::try_from(part).unwrap_or(u64::MAX));
            self.queues.tenants.charge(self.relqueries[id].tenant, time);
        }
    }

    /// What a slot of a step of so many takes of the machine: its prompt or its sequence, and its part of the
    /// base. A token that is scored has logits made, as a sequence has.
    pub(crate) fn time_of(&self, slot: &FlightSlot, slots: u64) -> Nanos {
        let base = self.estimates.cost.decode_base.0.max(self.estimates.cost.prefill_base.0) / slots.max(1);
        let per_token = self.estimates.cost.prefill_per_token.0;
        let per_sequence = self.estimates.cost.decode_per_sequence.0;
        let own = match slot.is_prefill {
            true => {
                let scored = per_sequence.saturating_mul(slot.targets.unwrap_or_default());
                per_token
                    .saturating_mul(u64::from(slot.end - slot.start) + slot.opening())
                    .saturating_add(scored)
            }
            false => {
                let sequences = per_sequence.saturating_mul(1 + slot.guessed());
                per_token.saturating_mul(slot.forced()).saturating_add(sequences)
            }
        };
        Nanos(base.saturating_add(own))
    }

    /// The slot's input is in the pool now.
    fn advance(&mut self, id: RelQueryId, index: u32, slot: &FlightSlot, now: Time, events: &mut Vec<Event>) {
        let Some(relquery) = self.relqueries.get_mut(&id) else { return };
        if slot.is_prefill && slot.samples {
            relquery.prefilled = Some(now);
        }
        self.telemetry.counters.guessed_tokens += slot.guessed();
        let row = relquery.row_mut(index);
        row.computed = slot.end;
        if slot.samples {
            row.state = RowState::Running;
            if row.faults.is_cleared_by(slot.is_prefill) {
                self.isolation.clear((id, index));
            }
        }
        if !slot.is_prefill {
            return;
        }
        let prompt = row.prompt_len();
        let computed = slot.end.min(prompt).saturating_sub(slot.start);
        row.usage.computed += TokenCount(u64::from(computed));
        // Of a cut prompt that was taken back, the cache may supply more than it had computed.
        let supplied = row.reached..slot.start.min(prompt).max(row.reached);
        row.usage.cached += TokenCount(u64::from(supplied.end - supplied.start));
        row.usage.shifted += TokenCount(u64::from(row.independent(supplied)));
        row.reached = row.reached.max(slot.end.min(prompt));
        if !row.has_started {
            row.has_started = true;
            let repaired = row.repaired();
            row.usage.prompt = TokenCount(u64::from(prompt - repaired));
            row.usage.repaired = TokenCount(u64::from(repaired));
            events.push(Event::Started { relquery: id, row: row.item.row });
        }
    }

    /// What a failed row wrote may be as broken as its logits: nobody shall hit it, even if the row
    /// was called off meanwhile.
    fn disown(&mut self, flight: &Flight, slot: &FlightSlot) {
        for (_, block) in flight.published.iter().filter(|(owner, _)| *owner == slot.request) {
            self.kv.ledger.unpublish(*block);
        }
    }

    /// How likely tokens of the slot's prompt were. False: the row has failed.
    fn take_prompt(
        &mut self,
        id: RelQueryId,
        index: u32,
        slot: &FlightSlot,
        prompts: &[PromptOutcome],
        events: &mut Vec<Event>,
    ) -> bool {
        let found = prompts.iter().find(|found| found.request == slot.request);
        let tokens = match found.map(|found| &found.result) {
            Some(Ok(tokens)) => tokens,
            failed => {
                let missing = || RowError::Failed("the executor did not score this row's prompt".to_owned());
                let error = failed.and_then(|result| result.as_ref().err()).cloned().unwrap_or_else(missing);
                self.fail(id, index, error, events);
                return false;
            }
        };
        let Some(relquery) = self.relqueries.get_mut(&id) else { return true };
        let row = relquery.row_mut(index);
        let tokens = row.take_scored(slot.start, tokens);
        if !tokens.is_empty() {
            events.push(Event::Prompt { relquery: id, row: row.item.row, tokens });
        }
        true
    }

    /// The slot's tokens, or its failure.
    fn take_result(
        &mut self,
        id: RelQueryId,
        index: u32,
        slot: &FlightSlot,
        result: Option<&Result<Sampled, RowError>>,
        events: &mut Vec<Event>,
    ) {
        let sampled = match result {
            Some(Ok(sampled)) if !sampled.tokens.is_empty() => sampled,
            failed => {
                let missing = || RowError::Failed("the executor returned nothing for this row".to_owned());
                let error = failed.and_then(|result| result.as_ref().err()).cloned().unwrap_or_else(missing);
                return self.fail(id, index, error, events);
            }
        };
        let Some(relquery) = self.relqueries.get_mut(&id) else { return };
        let row = relquery.row_mut(index);
        // What does not fit is not output; an executor that keeps its word sends no more than fits.
        let left = usize::try_from(row.output_max()).unwrap_or(usize::MAX) - row.generated.len();
        let tokens = &sampled.tokens[..sampled.tokens.len().min(left)];
        row.generated.extend_from_slice(tokens);
        row.usage.output += TokenCount(tokens.len() as u64);
        self.telemetry.counters.output_tokens += tokens.len() as u64;
        let kept = slot.drafted.as_ref().map_or(0, |drafted| drafted.kept(tokens));
        row.computed += kept;
        let accepted = if slot.guessed() > 0 { u64::from(kept) } else { 0 };
        self.telemetry.counters.accepted_tokens += accepted;
        self.telemetry.counters.forced_tokens += (tokens.len() as u64).saturating_sub(1 + accepted);
        let number = row.item.row;
        let is_full = row.generated.len() as u64 >= row.output_max();
        let usage = row.usage;
        if let Some(drafted) = &slot.drafted {
            relquery.drafter.count(drafted, kept);
            self.take_drafted(id, index, slot.end, kept);
        }
        for (at, token) in tokens.iter().enumerate() {
            let text = if at + 1 == tokens.len() { sampled.text.clone() } else { String::new() };
            let logprob = sampled.logprobs.get(at).cloned().flatten().map(Box::new);
            events.push(Event::Token { relquery: id, row: number, token: *token, text, logprob });
        }
        if let Some(end) = sampled.end.or(is_full.then_some(End::Length)) {
            let Some(relquery) = self.relqueries.get_mut(&id) else { return };
            relquery.finished.add(usage.output.0);
            self.estimates.lengths.add(relquery.kind, usage.output.0);
            if self.config.speculation == Speculation::Auto {
                let (row, drafter) = relquery.row_and_drafter(index);
                drafter.learn(&row.generated);
            }
            events.push(Event::RowDone {
                relquery: id,
                row: number,
                end,
                usage,
                probability: sampled.probability,
            });
            self.keep_sections(id, index);
            self.remove_row(id, index);
        }
    }

    /// What was right of a guess behind position `end` is output, and published like it; the blocks of the
    /// rest go back.
    fn take_drafted(&mut self, id: RelQueryId, index: u32, end: u32, kept: u32) {
        if self.config.publish_generated {
            // They are computed: no failure takes them back.
            self.publish(id, index, end, end + kept, &mut Vec::new());
        }
        self.trim(id, index);
    }

    /// A row gives back the blocks that it was granted for guesses and does not need.
    fn trim(&mut self, id: RelQueryId, index: u32) {
        let Some(relquery) = self.relqueries.get_mut(&id) else { return };
        let row = relquery.row_mut(index);
        let needed = row.own_total().div_ceil(self.config.block_tokens) as usize;
        for block in row.own.blocks.split_off(needed.min(row.own.blocks.len())).iter().rev() {
            self.kv.ledger.release(*block);
        }
    }

    /// Ends a row with an error.
    fn fail(&mut self, id: RelQueryId, index: u32, error: RowError, events: &mut Vec<Event>) {
        let Some(relquery) = self.relqueries.get(&id) else { return };
        let row = relquery.row(index);
        events.push(Event::RowFailed { relquery: id, row: row.item.row, error, usage: row.usage });
        self.remove_row(id, index);
    }

    /// Ends the relQueries that are done, puts the others where they belong.
    fn close_all(&mut self, touched: &[RelQueryId], now: Time, events: &mut Vec<Event>) {
        let mut touched = touched.to_vec();
        touched.sort_unstable();
        touched.dedup();
        for id in touched {
            events.extend(self.close_if_done(id, now));
            self.place(id);
        }
    }
}

/// The result of a slot: the next one, unless the executor changed the order.
fn find<'a>(
    results: &mut std::slice::Iter<'a, RowOutcome>,
    outcome: &'a StepOutcome,
    slot: &FlightSlot,
) -> Option<&'a Result<Sampled, RowError>> {
    let next = results.next().filter(|row| row.request == slot.request);
    let row = next.or_else(|| outcome.rows.iter().find(|row| row.request == slot.request))?;
    Some(&row.result)
}
