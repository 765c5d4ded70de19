//! What replicas report: text, ends, failures.
//!
//! A row whose text has begun to go out cannot move any more: another replica may say something else, and
//! nothing can be taken back. Any other row is tried again elsewhere, a bounded number of times.

use base::{End, RelQueryId, RequestId, RowError, Time, TokenCount, TokenId};

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

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The row itself: it fails wherever it runs.
    Row(RowError),
    /// The replica, in words: the row is tried on another.
    Replica(String),
    /// The replica did not even begin, in words: nobody was there, or it asked to be left alone. As before,
    /// but the row's tries are as they were: it says nothing of the row.
    Untried(String),
}

impl Fleet {
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
        let Flying { relquery, row, .. } = flying;
        let mut events = Vec::new();
        if !flying.has_begun {
            events.push(Event::Started { relquery, row });
        }
        events.extend(said(relquery, row, finish.text, &finish.tokens));
        let Some(query) = self.queries.get_mut(&relquery) else { return events };
        let gateway = query.row(row).map_or(0, |row| row.item.prompt.len() as u64);
        let prompt = finish.prompt.unwrap_or(TokenCount(gateway));
        let cached = finish.cached.min(prompt);
        let computed = prompt - cached;
        let usage = Usage { prompt, cached, computed, output: finish.output, ..Usage::default() };
        query.finished.add(finish.output.0);
        query.ended += usage;
        self.lengths.add(query.kind, finish.output.0);
        self.counters.ended(usage);
        events.push(Event::RowDone { relquery, row, end: finish.end, usage });
        self.remove_row(relquery, row);
        self.place(relquery);
        events.extend(self.close_if_done(relquery, now));
        events
    }

    /// A row or its replica has failed. A row that may be tried again waits before all others of its
    /// relQuery.
    pub fn failed(&mut self, request: RequestId, failure: Failure, now: Time) -> Vec<Event> {
        let Some(flying) = self.requests.get(&request).copied() else { return Vec::new() };
        match failure {
            Failure::Row(error) => self.fail_row(flying.relquery, flying.row, error),
            Failure::Replica(reason) => self.take_back(request, &reason, true),
            Failure::Untried(reason) => self.take_back(request, &reason, false),
        }
        self.drain_events(now)
    }

    /// A row leaves its replica: it waits again, or fails for good. `is_try`: the replica failed under it.
    pub(crate) fn take_back(&mut self, request: RequestId, reason: &str, is_try: bool) {
        let Some(flying) = self.requests.get(&request).copied() else { return };
        let Flying { relquery, row, replica, .. } = flying;
        let tries = self.queries.get(&relquery).and_then(|query| query.row(row)).map_or(0, |row| row.tries);
        let problem = if flying.has_begun {
            Some(format!("replica {replica} failed after the answer had begun: {reason}"))
        } else if is_try && tries + 1 >= self.config.tries_max {
            Some(format!("{} tries failed, the last on replica {replica}: {reason}", tries + 1))
        } else {
            None
        };
        match problem {
            Some(problem) => self.fail_row(relquery, row, RowError::Failed(problem)),
            None => {
                self.requests.remove(&request);
                self.router.end(replica, flying.tokens, flying.group);
                if let Some(query) = self.queries.get_mut(&relquery) {
                    query.requeue(row, replica, is_try);
                }
                self.counters.retries += 1;
                self.place(relquery);
            }
        }
    }

    /// A row that no replica there is can hold.
    pub(crate) fn give_up(&mut self, id: RelQueryId, row: u32) {
        let problem = RowError::Failed("no replica is large enough for this row any more".to_owned());
        self.fail_row(id, row, problem);
    }

    fn fail_row(&mut self, relquery: RelQueryId, row: u32, error: RowError) {
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
fn said(relquery: RelQueryId, row: u32, text: String, tokens: &[TokenId]) -> Vec<Event> {
    let Some((last, earlier)) = tokens.split_last() else {
        let is_said = !text.is_empty();
        return is_said.then_some(Event::Text { relquery, row, text }).into_iter().collect();
    };
    let token = |token: &TokenId, text| Event::Token { relquery, row, token: *token, text };
    let mut events: Vec<Event> = earlier.iter().map(|one| token(one, String::new())).collect();
    events.push(token(last, text));
    events
}
