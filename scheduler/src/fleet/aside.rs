//! Rows that no replica in service can hold, while one that is known could: it is down, drained or paused, or it has
//! left. They let others pass and wait for it, for as long as trouble upstream is borne; then they fail.

use std::collections::BTreeSet;

use base::{Nanos, RelQueryId, RowError, Time};

use super::Fleet;
use super::intake::tokens_max;
use super::query::{FleetRow, load};

/// A row that waits aside, behind the time at which it fails.
pub(super) type Aside = (Time, RelQueryId, u32);

impl Fleet {
    /// Whether a row of so many tokens could run on some replica that is there, or left lately, were it empty and up.
    pub(super) fn fits_known(&self, tokens: u64) -> bool {
        let is_held = self.router.lanes.values().any(|lane| lane.holds(tokens));
        is_held || self.departed.holds(tokens, self.router.now)
    }

    /// How long a row waits for a replica that could hold it, in all since it was last sent.
    pub(super) fn aside_span(&self) -> Nanos {
        self.config.trouble_ms_max.into()
    }

    /// A row that no replica in service can hold waits aside; it fails where none that is known could. Others of its
    /// relQuery that are as large wait aside at once: looked for one by one, each would cost a whole choice.
    pub(super) fn set_aside(&mut self, id: RelQueryId, number: u32, now: Time) {
        let Some(query) = self.queries.get(&id) else { return };
        let Some(tokens) = query.row(number).map(|row| tokens_max(&row.item)) else { return };
        if !self.fits_known(tokens) {
            let problem = "no replica is large enough for this row any more";
            return self.fail_row(id, number, RowError::Failed(problem.to_owned()));
        }
        let expected = query.expected(&self.lengths);
        let waits = |row: &&FleetRow| {
            let is_in_line = row.request.is_none() && row.aside_until.is_none();
            let is_served = || self.router.serves(load(&row.item, expected));
            is_in_line && !is_served() && self.fits_known(tokens_max(&row.item))
        };
        let numbers: Vec<u32> = query.rows().filter(waits).map(|row| row.item.row).collect();
        let span = self.aside_span();
        let Some(query) = self.queries.get_mut(&id) else { return };
        for number in numbers {
            let until = query.set_aside(number, now, span);
            self.aside.extend(until.map(|until| (until, id, number)));
        }
        self.place(id);
    }

    /// Rows wait as others do again that a replica in service can hold by now. Looked for only where a replica has
    /// come, is up again or holds other rows since.
    pub(super) fn readmit(&mut self, now: Time) {
        if !std::mem::take(&mut self.may_readmit) {
            return;
        }
        let back = self.aside.iter().filter(|(_, id, number)| self.is_served(*id, *number));
        let back: Vec<Aside> = back.copied().collect();
        self.take_in(back, now);
    }

    /// Ends rows that have waited aside too long. As rows end, others are thought to be shorter: those that a replica
    /// in service holds by now wait as others do.
    pub(super) fn end_aside(&mut self, now: Time) {
        let due = self.aside.iter().take_while(|(until, ..)| *until <= now);
        let (back, ended): (Vec<Aside>, Vec<Aside>) =
            due.copied().partition(|(_, id, number)| self.is_served(*id, *number));
        self.take_in(back, now);
        let seconds = self.aside_span().as_seconds();
        for (_, id, number) in ended {
            let row = self.queries.get(&id).and_then(|query| query.row(number));
            let Some(tokens) = row.map(|row| tokens_max(&row.item)) else { continue };
            let problem = format!(
                "it may take {tokens} tokens with its longest output, no replica in service has room for them, and \
                 none that has came back within {seconds:.0} s"
            );
            self.fail_row(id, number, RowError::Failed(problem));
        }
    }

    /// Whether a replica in service could hold a row, were it empty.
    fn is_served(&self, id: RelQueryId, number: u32) -> bool {
        let row = self.queries.get(&id).and_then(|query| query.row(number));
        row.is_some_and(|row| self.router.serves(self.load_of(id, row).tokens))
    }

    /// Rows that waited aside wait as others do.
    fn take_in(&mut self, rows: Vec<Aside>, now: Time) {
        let mut relqueries = BTreeSet::new();
        for one @ (_, id, number) in rows {
            self.aside.remove(&one);
            if let Some(query) = self.queries.get_mut(&id) {
                query.readmit(number, now);
            }
            relqueries.insert(id);
        }
        for id in relqueries {
            self.place(id);
        }
    }
}
