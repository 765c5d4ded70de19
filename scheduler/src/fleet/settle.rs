//! What replicas report: text, ends, failures.
//!
//! A row whose text has begun to go out cannot move any more: another replica may say something else, and
//! nothing can be taken back. Any other row is tried again, elsewhere where that can be. Trouble upstream is
//! not the row's fault: a failed try counts against it only where its replica answered others meanwhile.

use base::{End, Millis, Nanos, RelQueryId, RequestId, RowError, Time, TokenCount, TokenId};

use super::config::ReplicaId;
use super::query::{FleetRow, TakenBack};
use super::{Fleet, Flying};
use crate::event::{Event, Usage};

/// How a row ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finish {
    pub end: End,
    /// Prompt tokens as the replica counted them; absent: as the gateway did.
    pub prompt: Option<TokenCount>,
    /// Of those, tokens that its cache supplied.
    pub cached: TokenCount,
    pub output: TokenCount,
    /// Text that [`Fleet::text`] has not brought yet: all of it, where nothing streamed.
    pub text: String,
    /// The tokens of that text, where they are known.
    pub tokens: Vec<TokenId>,
}

/// Tokens that a server's markup, with a system prompt of its own, may add to a prompt.
pub const MARKUP_TOKENS_MAX: u64 = 4_096;

impl Finish {
    /// Holds the counts to what can be true of a row with a prompt of so many tokens (or bytes) and at most so many
    /// tokens of output: tenants pay by them. Whether one was more.
    fn hold_to(&mut self, prompt: u64, output_max: TokenCount) -> bool {
        let before = (self.prompt, self.cached, self.output);
        // A text has at most a token for each byte.
        let prompt_max = TokenCount(prompt.saturating_add(MARKUP_TOKENS_MAX));
        self.prompt = self.prompt.map(|prompt| prompt.min(prompt_max));
        self.cached = self.cached.min(self.prompt.unwrap_or(TokenCount(prompt)));
        self.output = self.output.min(output_max);
        before != (self.prompt, self.cached, self.output)
    }
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The row itself: it fails wherever it runs.
    Row(RowError),
    /// The replica, in words: the row is tried again, later or on another.
    Replica(String),
    /// The replica works, and its answer is not what was asked for, in words: another's may be.
    Unfit(String),
    /// The replica did not even begin, in words: nobody was there, or it asked to be left alone. As before,
    /// but the row's tries are as they were: it says nothing of the row.
    Untried(String),
}

/// Why a row leaves its replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The replica failed, then.
    Failed(Time),
    /// It went down.
    Down,
    /// Its answer was not what was asked for.
    Unfit,
    /// It did not begin.
    Untried,
}

impl Fleet {
    /// Holds what a replica says that a request used to what it was asked for. Whether it said more.
    pub fn hold_usage(&self, request: RequestId, finish: &mut Finish) -> bool {
        let flying = self.requests.get(&request);
        let row = flying.and_then(|flying| self.queries.get(&flying.relquery)?.row(flying.row));
        let Some(FleetRow { item, .. }) = row else { return false };
        finish.hold_to(item.prompt.len() as u64, item.generation.output_max)
    }

    /// What a row that a replica runs has used so far, of which so many tokens were heard, with that replica. Its reply would
    /// tell how much of the prompt was cached: all of it counts as computed. What it put out unheard is
    /// [estimated](Self::estimated_output). `None`: it runs nowhere.
    pub fn row_usage(&self, id: RelQueryId, row: u32, output: TokenCount) -> Option<(ReplicaId, Usage)> {
        let row = self.queries.get(&id)?.row(row)?;
        let replica = self.requests.get(&row.request?)?.replica;
        let prompt = TokenCount(row.item.prompt.len() as u64);
        let output = output.min(row.item.generation.output_max);
        Some((replica, Usage { prompt, computed: prompt, output, ..Usage::default() }))
    }

    /// Text of a row that streams.
    pub fn text(&mut self, request: RequestId, text: String, now: Time) -> Vec<Event> {
        let Some(flying) = self.requests.get_mut(&request) else { return Vec::new() };
        let begun = std::mem::replace(&mut flying.has_begun, true);
        let (relquery, row) = (flying.relquery, flying.row);
        let mut events = Vec::new();
        if !begun {
            events.push(Event::Started { relquery, row });
            if let Some(query) = self.queries.get_mut(&relquery) {
                query.prefilled = Some(now);
            }
        }
        events.push(Event::Text { relquery, row, text });
        events
    }

    /// A row has ended. Of a request that was cancelled or moved, nothing is heard any more.
    pub fn finished(&mut self, request: RequestId, finish: Finish, now: Time) -> Vec<Event> {
        let Some(flying) = self.requests.get(&request).copied() else { return Vec::new() };
        self.router.now = self.router.now.max(now);
        let Flying { relquery, row, .. } = flying;
        let mut events = Vec::new();
        if !flying.has_begun {
            events.push(Event::Started { relquery, row });
        }
        events.extend(text_events(relquery, row, finish.text, &finish.tokens));
        let Some(query) = self.queries.get_mut(&relquery) else { return events };
        let gateway = query.row(row).map_or(0, |row| row.item.prompt.len() as u64);
        let prompt = finish.prompt.unwrap_or(TokenCount(gateway));
        let cached = finish.cached.min(prompt);
        let computed = prompt - cached;
        let usage = Usage { prompt, cached, computed, output: finish.output, ..Usage::default() };
        self.caches.answered(flying.seen, gateway, usage);
        query.finished.add(finish.output.0);
        query.ended += usage;
        self.lengths.add(query.kind, finish.output.0);
        self.counters.ended(usage);
        events.push(Event::RowDone { relquery, row, end: finish.end, usage, probability: None });
        if let Some(lane) = self.router.lanes.get_mut(&flying.replica) {
            lane.answered += 1;
            lane.fit.answered(&lane.clock, flying.sent_at, now, finish.output.0);
            lane.cost = lane.fit.cost(&self.prior);
            if let Some(told) = finish.prompt {
                lane.scale.answered(gateway, told.0);
            }
        }
        self.remove_row(relquery, row);
        self.refit();
        match self.close_if_done(relquery, now) {
            Some(done) => events.push(done),
            None => self.place(relquery),
        }
        events
    }

    /// A row or its replica has failed. A row that may be tried again waits before all others of its
    /// relQuery.
    pub fn failed(&mut self, request: RequestId, failure: Failure, now: Time) -> Vec<Event> {
        let Some(flying) = self.requests.get(&request).copied() else { return Vec::new() };
        match failure {
            Failure::Row(error) => self.fail_row(flying.relquery, flying.row, error),
            Failure::Replica(reason) => self.take_back(request, &reason, Cause::Failed(now)),
            Failure::Unfit(reason) => self.take_back(request, &reason, Cause::Unfit),
            Failure::Untried(reason) => self.take_back(request, &reason, Cause::Untried),
        }
        self.drain_events(now)
    }

    /// A row leaves its replica: it waits again, or fails for good.
    pub(crate) fn take_back(&mut self, request: RequestId, reason: &str, cause: Cause) {
        let Some(flying) = self.requests.get(&request).copied() else { return };
        let Flying { relquery, row, replica, .. } = flying;
        let Some(query) = self.queries.get(&relquery) else { return };
        let Some(taken) = query.row(row).map(|row| self.taken_back(row, &flying, cause)) else { return };
        let TakenBack { tries, failures, troubled, .. } = taken;
        let tries_max = self.config.tries_max;
        let span = match (cause, troubled) {
            (Cause::Failed(now), Some(first)) => now.since(first),
            _ => Nanos(0),
        };
        let is_failed = matches!(cause, Cause::Failed(_));
        let problem = if flying.has_begun {
            Some(format!("replica {replica} failed after the answer had begun: {reason}"))
        } else if tries >= tries_max {
            Some(format!("{tries} tries failed, the last on replica {replica}: {reason}"))
        } else if is_failed && failures >= tries_max && span >= Nanos::from(self.config.trouble_ms_max) {
            let seconds = span.as_seconds();
            Some(format!(
                "{failures} tries failed in {seconds:.0} s, the last on replica {replica}: {reason}"
            ))
        } else {
            None
        };
        match problem {
            Some(problem) => self.fail_row(relquery, row, RowError::Failed(problem)),
            None => {
                self.requests.remove(&request);
                self.router.end(&flying);
                if let Some(query) = self.queries.get_mut(&relquery) {
                    query.requeue(row, taken);
                }
                if taken.not_before > Time(0) {
                    self.retries.insert(taken.not_before);
                }
                self.counters.retries += 1;
                self.place(relquery);
            }
        }
    }

    /// What a row that leaves its replica is from now on. A try counts against the row where its replica
    /// answered others while it ran there; the wait doubles with each failure.
    fn taken_back(&self, row: &FleetRow, flying: &Flying, cause: Cause) -> TakenBack {
        let replica = flying.replica;
        let has_answered_others = self.router.answered(replica) > flying.answered_before;
        let is_try = match cause {
            Cause::Unfit => true,
            Cause::Failed(_) | Cause::Down => has_answered_others,
            Cause::Untried => false,
        };
        let mut taken = TakenBack {
            tries: row.tries + u32::from(is_try),
            failures: row.failures,
            troubled: row.troubled,
            not_before: Time(0),
            avoid: replica,
        };
        let Cause::Failed(now) = cause else { return taken };
        taken.failures += 1;
        taken.troubled.get_or_insert(now);
        if row.failures > 0 || !self.router.has_other_up(replica, flying.tokens) {
            let doubled = self.config.retry_ms.0.saturating_mul(1 << row.failures.min(31));
            taken.not_before = now + Nanos::from(Millis(doubled).min(self.config.retry_ms_max));
        }
        taken
    }

    /// Ends a row with an error.
    pub(crate) fn fail_row(&mut self, relquery: RelQueryId, row: u32, error: RowError) {
        self.remove_row(relquery, row);
        self.pending.push(Event::RowFailed { relquery, row, error, usage: Usage::default() });
        self.place(relquery);
        if self.queries.get(&relquery).is_some_and(|query| query.open() == 0) {
            self.emptied.push(relquery);
        }
    }

    /// Ends a relQuery whose rows have all ended.
    pub(crate) fn close_if_done(&mut self, id: RelQueryId, now: Time) -> Option<Event> {
        if self.queries.get(&id)?.open() > 0 {
            return None;
        }
        let query = self.remove_query(id)?;
        Some(Event::RelQueryDone { relquery: id, periods: query.periods(now), usage: query.ended })
    }
}

/// The events of a text: one for each token where they are known, the text with the last.
fn text_events(relquery: RelQueryId, row: u32, text: String, tokens: &[TokenId]) -> Vec<Event> {
    let Some((last, earlier)) = tokens.split_last() else {
        let has_text = !text.is_empty();
        return has_text.then_some(Event::Text { relquery, row, text }).into_iter().collect();
    };
    let token = |token: &TokenId, text| Event::Token { relquery, row, token: *token, text, logprob: None };
    let mut events: Vec<Event> = earlier.iter().map(|one| token(one, String::new())).collect();
    events.push(token(last, text));
    events
}
