//! What comes in and what is called off: submit, extend, cancel.

use std::collections::BTreeSet;

use base::{Nanos, RelQueryId, Submission, Time, TokenCount, WorkItem};

use crate::Scheduler;
use crate::event::{Event, Refused, Usage};
use crate::relquery::RelQuery;
use crate::sections;

impl Scheduler {
    /// Takes a relQuery, or nothing of it.
    pub fn submit(&mut self, submission: Submission) -> Result<(), Refused> {
        let id = submission.id;
        if self.relqueries.contains_key(&id) {
            return Err(Refused::Duplicate(id));
        }
        let limit = self.config.relqueries_max;
        if self.relqueries.len() as u32 >= limit {
            return Err(Refused::TooManyRelQueries { relqueries: self.relqueries.len() as u32, limit });
        }
        self.check(None, &submission.items)?;
        self.relqueries.insert(id, RelQuery::new(&submission));
        if self.config.is_fair() {
            self.queues.tenants.join(submission.tenant, submission.weight);
        }
        self.add(id, submission.items);
        Ok(())
    }

    /// Adds rows to a relQuery that has not ended: single calls coalesce into one.
    pub fn extend(&mut self, id: RelQueryId, items: Vec<WorkItem>) -> Result<(), Refused> {
        let Some(relquery) = self.relqueries.get(&id) else { return Err(Refused::Unknown(id)) };
        self.check(Some(relquery), &items)?;
        self.add(id, items);
        Ok(())
    }

    /// Calls a relQuery off: its rows end without further events, its blocks are free at once. Says
    /// whether there was anything to call off.
    pub fn cancel(&mut self, id: RelQueryId) -> bool {
        let Some(relquery) = self.relqueries.get(&id) else { return false };
        let indices: Vec<u32> = relquery.open_indices().collect();
        for index in indices {
            self.remove_row(id, index);
        }
        self.remove_relquery(id);
        true
    }

    /// Calls one row off, without an event of its own. If it was the relQuery's last, the relQuery is
    /// done: its event comes with the next [`Scheduler::apply`] or [`Scheduler::drain_events`].
    pub fn cancel_row(&mut self, id: RelQueryId, row: u32) -> bool {
        let Some(index) = self.relqueries.get(&id).and_then(|relquery| relquery.index_of(row)) else {
            return false;
        };
        self.remove_row(id, index);
        self.place(id);
        if self.relqueries.get(&id).is_some_and(|relquery| relquery.open_rows() == 0) {
            self.queues.emptied.push(id);
        }
        true
    }

    /// Ends relQueries whose last row was cancelled; for an owner that has no step to apply.
    pub fn drain_events(&mut self, now: Time) -> Vec<Event> {
        let emptied = std::mem::take(&mut self.queues.emptied);
        emptied.into_iter().filter_map(|id| self.close_if_done(id, now)).collect()
    }

    /// The tokens of a relQuery so far; `None` once it has ended.
    pub fn usage(&self, id: RelQueryId) -> Option<Usage> {
        self.relqueries.get(&id).map(RelQuery::usage)
    }

    /// The tokens of a row so far, of its prompt those that it has; `None` before its first step has run, and once it has ended.
    pub fn row_usage(&self, id: RelQueryId, row: u32) -> Option<Usage> {
        let relquery = self.relqueries.get(&id)?;
        let row = relquery.row(relquery.index_of(row)?);
        row.has_started.then(|| row.usage.so_far())
    }

    /// Everything that can be said against new rows.
    fn check(&self, open: Option<&RelQuery>, items: &[WorkItem]) -> Result<(), Refused> {
        if items.is_empty() {
            return Err(Refused::Empty);
        }
        let limit = self.config.rows_max;
        if items.len() > limit.saturating_sub(self.queues.rows) as usize {
            return Err(Refused::QueueFull { rows: self.queues.rows, limit });
        }
        let mut seen = BTreeSet::new();
        for item in items {
            let row = item.row;
            if !seen.insert(row) || open.is_some_and(|relquery| relquery.has_open_row(row)) {
                return Err(Refused::DuplicateRow { row });
            }
            if item.prompt.is_empty() {
                return Err(Refused::EmptyPrompt { row });
            }
            if item.generation.output_max.0 == 0 {
                return Err(Refused::NoOutput { row });
            }
            self.check_memory(item)?;
        }
        Ok(())
    }

    /// A row must fit alone, with its longest output: then something can always run. (The last output
    /// token is never written, so one position fewer would do; the tokens are what users count.)
    fn check_memory(&self, item: &WorkItem) -> Result<(), Refused> {
        if let Some(reason) = sections::problem(&item.sections, item.prompt.len()) {
            return Err(Refused::Sections { row: item.row, reason });
        }
        let tokens = item.kv_tokens_max(self.config.block_tokens);
        let limit = TokenCount(self.config.kv_tokens());
        if tokens > limit {
            return Err(Refused::NeverFits { row: item.row, tokens, limit });
        }
        Ok(())
    }

    /// Appends checked rows.
    fn add(&mut self, id: RelQueryId, items: Vec<WorkItem>) {
        self.queues.rows += items.len() as u32;
        let relquery = self.relqueries.get_mut(&id).expect("the caller has just seen it");
        for item in items {
            relquery.push(item);
        }
        self.on_arrival(id);
        self.update_priority(id);
    }

    /// Ends a row wherever it stands: its blocks go back, its request is retired.
    pub(crate) fn remove_row(&mut self, id: RelQueryId, index: u32) {
        let Some(relquery) = self.relqueries.get_mut(&id) else { return };
        let is_running = relquery.running.contains(&index);
        let mut row = relquery.take(index);
        self.isolation.clear((id, index));
        relquery.ended += row.usage;
        row.release(|block| self.kv.ledger.release(block));
        if let Some(request) = row.request {
            self.queues.requests.remove(&request);
            self.steps.retired.push(request);
        }
        self.queues.rows -= 1;
        self.queues.running_rows -= u32::from(is_running);
    }

    /// Forgets a relQuery without rows.
    pub(crate) fn remove_relquery(&mut self, id: RelQueryId) -> Option<RelQuery> {
        let relquery = self.relqueries.remove(&id)?;
        if let Some(key) = relquery.waiting_key {
            self.queues.waiting.remove(&key);
            self.queues.tenants.place(relquery.tenant, Some(key), None);
        }
        self.queues.tenants.wait_for(relquery.tenant, relquery.waiting_work, Nanos(0));
        if self.config.is_fair() {
            self.queues.tenants.leave(relquery.tenant);
        }
        if let Some(key) = relquery.running_key {
            self.queues.running.remove(&key);
        }
        self.timers.set(id, None);
        Some(relquery)
    }

    /// Ends a relQuery whose rows have all ended.
    pub(crate) fn close_if_done(&mut self, id: RelQueryId, now: Time) -> Option<Event> {
        if self.relqueries.get(&id)?.open_rows() > 0 {
            return None;
        }
        let relquery = self.remove_relquery(id)?;
        let periods = relquery.periods(now);
        Some(Event::RelQueryDone { relquery: id, periods, usage: relquery.ended })
    }
}
