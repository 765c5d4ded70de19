//! Rows that no replica in service can hold, while one that is known could: it is down, drained or paused, or it has
//! left. They let others pass and wait for it, for as long as trouble upstream is borne; then they fail.

use base::{Nanos, RelQueryId, RowError, Time};

use super::Fleet;
use super::intake::tokens_max;

/// A row that waits aside, behind the time at which it fails.
pub(super) type Aside = (Time, RelQueryId, u32);

impl Fleet {
    /// Whether a row of so many tokens could run on some replica that is there, or left lately, were it empty and up.
    pub(super) fn fits_known(&self, tokens: u64) -> bool {
        let is_held = self.router.lanes.values().any(|lane| lane.holds(tokens));
        is_held || self.departed.holds(tokens, self.router.now)
    }

    /// How long a row waits for a replica that could hold it.
    pub(super) fn aside_span(&self) -> Nanos {
        self.config.trouble_ms_max.into()
    }

    /// A row that no replica in service can hold waits aside; it fails where none that is known could.
    pub(super) fn set_aside(&mut self, id: RelQueryId, number: u32, now: Time) {
        let row = self.queries.get(&id).and_then(|query| query.row(number));
        let Some(tokens) = row.map(|row| tokens_max(&row.item)) else { return };
        if !self.fits_known(tokens) {
            let problem = "no replica is large enough for this row any more";
            return self.fail_row(id, number, RowError::Failed(problem.to_owned()));
        }
        let span = self.aside_span();
        let since = self.queries.get_mut(&id).and_then(|query| query.set_aside(number, now));
        let Some(since) = since else { return };
        self.aside.insert((since + span, id, number));
        self.place(id);
    }

    /// Rows wait as others do again that a replica in service can hold by now.
    pub(super) fn readmit(&mut self) {
        let fits = |(_, id, number): &&Aside| {
            let row = self.queries.get(id).and_then(|query| query.row(*number));
            row.is_some_and(|row| self.router.serves(self.load_of(*id, row).tokens))
        };
        let back: Vec<Aside> = self.aside.iter().filter(fits).copied().collect();
        for one @ (_, id, number) in back {
            self.aside.remove(&one);
            if let Some(query) = self.queries.get_mut(&id) {
                query.readmit(number);
            }
            self.place(id);
        }
    }

    /// Ends rows that have waited aside too long.
    pub(super) fn end_aside(&mut self, now: Time) {
        while let Some(first) = self.aside.first().copied().filter(|(until, ..)| *until <= now) {
            self.aside.remove(&first);
            let (_, id, number) = first;
            let row = self.queries.get(&id).and_then(|query| query.row(number));
            let tokens = row.map_or(0, |row| tokens_max(&row.item));
            let seconds = self.aside_span().as_seconds();
            let problem = format!(
                "it may take {tokens} tokens with its longest output, no replica in service has room for them, and \
                 none that has came back within {seconds:.0} s"
            );
            self.fail_row(id, number, RowError::Failed(problem));
        }
    }
}
