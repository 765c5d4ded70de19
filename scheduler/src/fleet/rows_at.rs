//! The rows of one relQuery at one replica: how many, and when they were sent.

use super::cost_fit::SentAt;

/// A relQuery's rows at one replica.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RowsAtReplica {
    pub(crate) rows: u32,
    /// The relQuery among those in flight.
    pub(crate) index: u32,
    /// Times at which they were sent, ns, all together, and the prompt tokens that the replica had been sent by
    /// then.
    sent: u128,
    prompts: u128,
    /// The last of them.
    last: SentAt,
}

impl RowsAtReplica {
    pub(crate) fn add(&mut self, at: SentAt, index: u32) {
        self.rows += 1;
        self.index = index;
        self.sent += u128::from(at.time.0);
        self.prompts += u128::from(at.prompts);
        self.last = at;
    }

    pub(crate) fn remove(&mut self, at: SentAt) {
        self.rows -= 1;
        self.sent -= u128::from(at.time.0);
        self.prompts -= u128::from(at.prompts);
    }

    /// When they were sent in the mean, ns, and the prompt tokens that the replica had been sent by then.
    pub(crate) fn mean(&self) -> (u128, u128) {
        match self.rows {
            0 | 1 => (self.sent, self.prompts),
            rows => (self.sent / u128::from(rows), self.prompts / u128::from(rows)),
        }
    }

    /// The same of the last that was sent.
    pub(crate) fn last(&self) -> (u128, u128) {
        (self.last.time.0.into(), self.last.prompts.into())
    }
}
