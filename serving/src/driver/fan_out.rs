//! What goes out: each event of the scheduler is written to the relQueries it concerns, and their readers are
//! woken once.

use std::sync::Arc;

use base::{End, Money, RelQueryId, RowError, Time, TokenCount, TokenId, TokenLogprob};
use scheduler::Event;

use super::{AnswerTarget, Driver, RowFlight, RowKey};
use crate::account::{Account, Spent};
use crate::error::RequestError;
use crate::intake::CellKey;
use crate::live::record::{RowEnd, RowOutcome};
use crate::relquery_state::{AnswerSource, RowCharge, RowProgress, Status, Usage};
use crate::replicas::{RowLikelihood, RowPrices, RowUse};
use crate::results::Answer;

impl RowFlight {
    /// One that begins with this text.
    pub(super) fn new(targets: Vec<AnswerTarget>, text: String, key: Option<CellKey>) -> Self {
        Self { targets, text, tokens: 0, samplings: 0, last_text: None, probability: None, prices: None, key }
    }

    /// Its end, as it is recorded.
    pub(super) fn end(&self, usage: Usage, outcome: RowOutcome) -> RowEnd {
        RowEnd { output: usage.output.0, samplings: self.samplings, outcome }
    }
}

impl Driver {
    /// Writes one event to the relQueries it concerns.
    pub(super) fn event(&mut self, event: Event, now: Time) {
        match event {
            Event::Started { relquery, row } => {
                let row = self.flights.get(&relquery).and_then(|flight| flight.rows.get(&row));
                let begun = self.backend.step_begun().unwrap_or(now);
                for target in row.into_iter().flat_map(|row| &row.targets) {
                    target.relquery.started(target.index, begun, now);
                }
            }
            Event::Prompt { relquery, row, tokens } => {
                let row = self.flights.get(&relquery).and_then(|flight| flight.rows.get(&row));
                for target in row.into_iter().flat_map(|row| &row.targets) {
                    target.relquery.keep_prompt(target.index, Arc::clone(&tokens));
                }
            }
            Event::Token { relquery, row, token, text, logprob } => {
                self.keep_logprobs(relquery, row, logprob.as_deref().map(std::slice::from_ref));
                self.keep_text(relquery, row, (Some(token), &text), now);
            }
            Event::Text { relquery, row, text } => self.keep_text(relquery, row, (None, &text), now),
            Event::RowDone { relquery, row, end, usage, probability } => {
                self.row_done((relquery, row), (end, usage, probability), now);
            }
            Event::RowFailed { relquery, row, error, usage } => {
                let Some((account, flight)) = self.finish_row((relquery, row), now) else { return };
                if let Some(flight) = self.flights.get_mut(&relquery) {
                    flight.pin = None;
                }
                let spent = one_row(usage, self.cost(&flight, usage));
                self.publisher.row_ended(relquery, row, flight.end(usage, RowOutcome::Failed));
                self.shared.metrics.rows.failed.inc();
                let error = match error {
                    RowError::Refused(reason) => RequestError::RowRefused(reason),
                    error => RequestError::Row(error.to_string()),
                };
                let charge = RowCharge { account, spent, answer: None };
                self.settle(charge, flight.targets, |_| RowProgress::Failed(error.clone()), now);
            }
            Event::RelQueryDone { relquery, periods, .. } => {
                self.publisher.ended(relquery, Some(periods), now);
                let Some(flight) = self.close(relquery) else { return };
                if let Some(filling) = flight.pin.filter(|pin| self.backend.is_pinned(pin.id())) {
                    filling.done();
                }
                if let Some(owner) = flight.owner {
                    owner.set_periods(periods);
                }
            }
        }
    }

    /// A piece of a row's output; its token where it is one.
    fn keep_text(&mut self, id: RelQueryId, number: u32, (token, text): (Option<TokenId>, &str), now: Time) {
        let row = self.flights.get_mut(&id).and_then(|flight| flight.rows.get_mut(&number));
        let Some(row) = row else { return };
        row.tokens += 1;
        // Tokens of one step come together.
        let is_further = row.last_text.is_none_or(|before| before < now);
        row.samplings += u32::from(token.is_some() && is_further);
        row.text.push_str(text);
        if let Some(before) = row.last_text.replace(now).filter(|before| *before < now) {
            self.shared.metrics.token_after(now.since(before));
        }
        for target in &row.targets {
            if let Some(token) = token {
                target.relquery.keep_token(target.index, token);
            }
            target.relquery.token(target.index, text, row.tokens == 1, now);
            self.touched.entry(target.relquery.id).or_insert_with(|| Arc::clone(&target.relquery));
        }
    }

    /// Puts log probabilities beside the output that they are of.
    fn keep_logprobs(&self, id: RelQueryId, number: u32, logprobs: Option<&[TokenLogprob]>) {
        let Some(logprobs) = logprobs else { return };
        let row = self.flights.get(&id).and_then(|flight| flight.rows.get(&number));
        for target in row.into_iter().flat_map(|row| &row.targets) {
            target.relquery.keep_logprobs(target.index, logprobs);
        }
    }

    /// Puts how likely an answer was beside it, where that comes before its end.
    pub(super) fn keep_likelihood(&mut self, reported: &RowLikelihood) {
        let RowLikelihood { relquery, row, probability, logprobs } = reported;
        self.keep_logprobs(*relquery, *row, Some(logprobs));
        let row = self.flights.get_mut(relquery).and_then(|flight| flight.rows.get_mut(row));
        row.into_iter().for_each(|row| row.probability = *probability);
    }

    /// Keeps what tokens cost where a row ran.
    pub(super) fn keep_prices(&mut self, cost: &RowPrices) {
        let row = self.flights.get_mut(&cost.relquery).and_then(|flight| flight.rows.get_mut(&cost.row));
        row.into_iter().for_each(|row| row.prices = Some(cost.prices));
    }

    /// What a row cost that ends: at the dearest prices where nothing says where it ran.
    fn cost(&self, row: &RowFlight, usage: Usage) -> Money {
        row.prices.unwrap_or_else(|| self.shared.prices.dearest()).cost(usage)
    }

    fn row_done(
        &mut self,
        (id, number): (RelQueryId, u32),
        (end, usage, probability): (End, Usage, Option<f64>),
        now: Time,
    ) {
        let Some((account, row)) = self.finish_row((id, number), now) else { return };
        let cost = self.cost(&row, usage);
        self.publisher.row_ended(id, number, row.end(usage, RowOutcome::Done));
        self.shared.metrics.row_done(account.tenant, end, usage, now);
        let probability = probability.or(row.probability);
        for target in &row.targets {
            target.relquery.keep_probability(target.index, probability);
        }
        let answer = row.key.map(|key| {
            let text = row.text.as_str().into();
            let answer = Answer { text, end, prompt: usage.prompt, output: usage.output, probability };
            self.shared.results.put_in_memory(account.tenant, key, answer.clone());
            (key, answer)
        });
        let charge = RowCharge { account, spent: one_row(usage, cost), answer };
        let done = |source| {
            let usage = match source {
                AnswerSource::Model => usage,
                AnswerSource::Shared | AnswerSource::Cache => {
                    Usage { cached: usage.prompt, repaired: TokenCount(0), computed: TokenCount(0), ..usage }
                }
            };
            RowProgress::Done { end, usage, source }
        };
        self.settle(charge, row.targets, done, now);
    }

    /// Tells all who wait for a row how it ended, and gives its room back: whoever sees the room free can
    /// read the answer. What the row used is counted once, with the first of them that still runs, who is told that it was
    /// computed.
    fn settle(
        &mut self,
        charge: RowCharge,
        mut targets: Vec<AnswerTarget>,
        state: impl Fn(AnswerSource) -> RowProgress,
        now: Time,
    ) {
        let (tenant, output) = (charge.account.tenant, charge.spent.usage.output);
        // Who was called off, and is not taken out yet, leaves the row to the others.
        targets.sort_by_cached_key(|target| target.relquery.read().is_over());
        let mut charge = Some(charge);
        let mut ended = Vec::new();
        for target in targets {
            self.touched.insert(target.relquery.id, Arc::clone(&target.relquery));
            let Some(uncounted) = charge.take() else {
                target.relquery.settle(target.index, state(AnswerSource::Shared), now);
                continue;
            };
            let uncounted = RowCharge { account: target.account, ..uncounted };
            let row = (target.index, state(AnswerSource::Model));
            charge = self.shared.settle_run(&target.relquery, row, uncounted, now);
            if charge.is_some() {
                ended.push(target);
            }
        }
        if let (Some(uncounted), Some(first)) = (charge, ended.first()) {
            first.relquery.leave_finished(first.index, output);
            match ended.iter().find(|target| target.relquery.read().is_called_off()) {
                Some(target) => {
                    let charge = RowCharge { account: target.account, ..uncounted };
                    self.shared.count_left(&target.relquery, target.index, charge);
                }
                None => self.shared.forget_answer(&uncounted),
            }
        }
        self.shared.intake.finished(tenant, 1);
    }

    /// What a row has used that was called off and ends now, without its end. `told`: the tokens that it was heard to
    /// put out. One that has not begun has used nothing.
    pub(super) fn charge_so_far(
        &self,
        (id, number): RowKey,
        account: Account,
        told: TokenCount,
    ) -> Option<RowCharge> {
        let RowUse { usage, prices } = self.backend.used_so_far(id, number, told)?;
        let cost = prices.unwrap_or_else(|| self.shared.prices.dearest()).cost(usage);
        // Rows that end too late to be called off are in the metrics as finished ones.
        self.shared.metrics.row_called_off(account.tenant, usage, self.shared.clock.now());
        Some(RowCharge { account, spent: one_row(usage, cost), answer: None })
    }

    /// Takes a row that ended out of the books, but for its room: [`Self::settle`] gives that back.
    fn finish_row(&mut self, (id, number): RowKey, now: Time) -> Option<(Account, RowFlight)> {
        let flight = self.flights.get_mut(&id)?;
        flight.moved = now;
        let row = flight.rows.remove(&number)?;
        if let Some(key) = row.key {
            self.in_flight.remove(&(flight.account.tenant, key));
        }
        self.shared.pulse.row();
        Some((flight.account, row))
    }

    /// Wakes the readers of all relQueries that changed, once.
    pub(super) fn wake_readers(&mut self) {
        for (id, relquery) in self.touched.drain() {
            let state = relquery.read();
            // A relQuery that was ended early still has rows in flight: its `Leave` is on the way and takes
            // them out.
            if state.status == Status::Completed {
                self.relqueries.remove(&id);
                self.shared.relquery_ended(&relquery, &state);
            }
            drop(state);
            relquery.notify();
        }
    }
}

/// What a row used.
fn one_row(usage: Usage, cost: Money) -> Spent {
    Spent { requests: 0, rows: 1, usage, cost }
}
