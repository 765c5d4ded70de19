//! What was sent and promised, and how much usage must come of it at least and at most. Pure but for its lock, which
//! its owner holds.

use std::collections::BTreeMap;
use std::time::Duration;

use super::plan::{Fault, FaultKind, GATEWAYS};
use super::request::{ChaosRequest, RequestKind};

/// Time within which a gateway that is well has written what it counted, with much to spare (`store.flush_ms` is a
/// tenth of a second here): until then an end that was seen may not be stored.
const FLUSHED_WITHIN: Duration = Duration::from_secs(5);
/// Time for which a disturbance of writes may go on after its end: one call of the store and a wait for a connection.
const DISTURBED_AFTER: Duration = Duration::from_secs(25);

/// What became of rows that were asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowsOutcome {
    /// All of them came; so many with an error in place of an answer.
    Delivered { failed: u64 },
    /// None ran.
    Refused,
    /// Nobody knows which ran.
    Unknown,
}

/// Rows that were asked and not promised.
#[derive(Clone, Copy, Debug)]
pub(super) struct SentRows {
    pub(super) tenant: usize,
    pub(super) rows: u64,
    pub(super) outcome: RowsOutcome,
}

/// Something that was acknowledged and outlives its request.
#[derive(Clone, Debug)]
pub(super) struct Promise {
    pub(super) request: ChaosRequest,
    /// The ticket, or the batch.
    pub(super) id: String,
    /// Whether it was asked to stop.
    pub(super) is_cancelled: bool,
    /// When the request was first sent.
    pub(super) began: Duration,
    /// When its end was seen.
    pub(super) over: Option<Duration>,
}

/// A fault as it came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Incident {
    pub(super) fault: Fault,
    pub(super) began: Duration,
    pub(super) ended: Duration,
}

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Broken {
    pub(super) promise: &'static str,
    pub(super) what: String,
}

/// All of it.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Requests by kind and by what became of them.
    pub(super) counts: BTreeMap<(&'static str, &'static str), u64>,
    pub(super) sent: Vec<SentRows>,
    pub(super) promises: Vec<Promise>,
    pub(super) incidents: Vec<Incident>,
    pub(super) broken: Vec<Broken>,
    /// Bytes of answers in which other tenants' markers were looked for.
    pub(super) bytes_scanned: u64,
}

/// Between what a sum must be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Bounds {
    pub(super) least: u64,
    pub(super) most: u64,
}

impl Bounds {
    /// The same with rows that are counted exactly.
    pub(super) fn with(self, exactly: u64) -> Self {
        Self { least: self.least + exactly, most: self.most + exactly }
    }

    pub(super) fn holds(self, sum: u64) -> bool {
        (self.least..=self.most).contains(&sum)
    }
}

impl Ledger {
    pub(super) fn broke(&mut self, promise: &'static str, what: impl Into<String>) {
        self.broken.push(Broken { promise, what: what.into() });
    }

    /// Rows of a tenant that usage must show at `now`, but for those of batches and of tickets of relQueries: those are
    /// counted as they are recorded.
    ///
    /// What was delivered is counted, whatever was killed and whatever was away. What nobody knows the end of may be
    /// counted. Rows of a statement's ticket that a kill interrupts are counted once, not at all, or again: the statement
    /// runs anew.
    pub(super) fn bounds(&self, tenant: usize, now: Duration) -> Bounds {
        let mut bounds = Bounds::default();
        for sent in self.sent.iter().filter(|sent| sent.tenant == tenant) {
            match sent.outcome {
                RowsOutcome::Delivered { failed } => {
                    bounds.least += sent.rows - failed;
                    bounds.most += sent.rows;
                }
                RowsOutcome::Refused => {}
                RowsOutcome::Unknown => bounds.most += sent.rows,
            }
        }
        let tickets = self.promises.iter().filter(|promise| promise.request.tenant == tenant);
        for ticket in tickets.filter(|promise| promise.request.kind == RequestKind::SqlTicket) {
            let rows = ticket.request.rows;
            let over = ticket.over.unwrap_or(now);
            let interruptions = self.interruptions(ticket.began, over + FLUSHED_WITHIN + DISTURBED_AFTER);
            let is_whole = interruptions == 0 && !ticket.is_cancelled;
            bounds.least += if is_whole { rows } else { 0 };
            bounds.most += rows * (1 + interruptions);
        }
        bounds.most += self.called_off(tenant, now, |kind| matches!(kind, RequestKind::Ticket { .. }));
        bounds
    }

    /// Rows of such promises of a tenant that were called off, at most, which usage may have besides those that were
    /// recorded: what had begun counts, and begins again where a kill interrupts it.
    pub(super) fn called_off(
        &self,
        tenant: usize,
        now: Duration,
        is_it: impl Fn(RequestKind) -> bool,
    ) -> u64 {
        let own = self.promises.iter().filter(|promise| promise.request.tenant == tenant);
        let called_off = own.filter(|promise| promise.is_cancelled && is_it(promise.request.kind));
        let most = |promise: &Promise| {
            let until = promise.over.unwrap_or(now) + FLUSHED_WITHIN + DISTURBED_AFTER;
            promise.request.rows * (1 + self.interruptions(promise.began, until))
        };
        called_off.map(most).sum()
    }

    /// A tenant's tickets of relQueries.
    pub(super) fn tickets(&self, tenant: usize) -> impl Iterator<Item = &Promise> {
        let is_it = move |promise: &&Promise| {
            promise.request.tenant == tenant && matches!(promise.request.kind, RequestKind::Ticket { .. })
        };
        self.promises.iter().filter(is_it)
    }

    /// Kills of gateways between two times.
    fn interruptions(&self, from: Duration, until: Duration) -> u64 {
        let is_it = |incident: &&Incident| {
            incident.fault.kind == FaultKind::KillGateway && incident.began <= until && incident.ended >= from
        };
        self.incidents.iter().filter(is_it).count() as u64
    }
}

/// The other gateway.
pub(super) fn other(gateway: usize) -> usize {
    (gateway + 1) % GATEWAYS
}

#[cfg(test)]
mod tests {
    use super::super::plan::Subject;
    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn incident(kind: FaultKind, subject: Subject, began: u32, ended: u32) -> Incident {
        let fault = Fault { kind, subject, from: 0, until: 1, permille: 0 };
        Incident { fault, began: S * began, ended: S * ended }
    }

    fn sent(outcome: RowsOutcome) -> SentRows {
        SentRows { tenant: 0, rows: 10, outcome }
    }

    fn bounds(ledger: &Ledger) -> (u64, u64) {
        let Bounds { least, most } = ledger.bounds(0, S * 1_000);
        (least, most)
    }

    #[test]
    fn usage_is_exact_but_for_what_nobody_knows_whatever_is_killed() {
        let mut ledger = Ledger::default();
        ledger.sent.push(sent(RowsOutcome::Delivered { failed: 0 }));
        ledger.sent.push(sent(RowsOutcome::Refused));
        ledger.sent.push(SentRows { tenant: 1, ..sent(RowsOutcome::Delivered { failed: 0 }) });
        assert_eq!(bounds(&ledger), (10, 10));
        ledger.incidents.push(incident(FaultKind::StopDatabase, Subject::Database, 1, 12));
        ledger.incidents.push(incident(FaultKind::KillGateway, Subject::Gateway(0), 10, 12));
        assert_eq!(bounds(&ledger), (10, 10));
        ledger.sent.push(sent(RowsOutcome::Delivered { failed: 4 }));
        assert_eq!(bounds(&ledger), (16, 20));
        ledger.sent.push(sent(RowsOutcome::Unknown));
        assert_eq!(bounds(&ledger), (16, 30));
        assert!(
            !ledger.bounds(0, S).holds(15) && ledger.bounds(0, S).holds(30) && !ledger.bounds(0, S).holds(31)
        );
    }

    #[test]
    fn a_statements_ticket_that_a_kill_interrupts_may_count_its_rows_again_and_no_other() {
        let labels = ["a", "b"].map(str::to_owned);
        let kind = RequestKind::SqlTicket;
        let request = ChaosRequest { kind, tenant: 0, gateway: 0, number: 1, rows: 10, labels };
        let (began, over) = (S * 10, Some(S * 20));
        let ticket = Promise { request, id: "sq-1".into(), is_cancelled: false, began, over };
        let mut ledger = Ledger { promises: vec![ticket.clone()], ..Ledger::default() };
        ledger.incidents.push(incident(FaultKind::JumpClock, Subject::Gateway(1), 11, 13));
        assert_eq!(bounds(&ledger), (10, 10), "a clock that jumps ends no lease");
        ledger.incidents.push(incident(FaultKind::KillGateway, Subject::Gateway(1), 15, 17));
        assert_eq!(bounds(&ledger), (0, 20));
        let of_kind =
            |kind| Promise { request: ChaosRequest { kind, ..ticket.request.clone() }, ..ticket.clone() };
        let exact = [RequestKind::Batch { cancel: false }, RequestKind::Ticket { cancel: true }];
        ledger.promises = exact.map(of_kind).to_vec();
        assert_eq!(bounds(&ledger), (0, 0), "batches and tickets are exact, and counted apart");
        assert_eq!((ledger.tickets(0).count(), ledger.tickets(1).count()), (1, 0));
        ledger.promises.iter_mut().for_each(|promise| promise.is_cancelled = true);
        assert_eq!(bounds(&ledger), (0, 20), "what had begun of a ticket that was called off, twice");
        assert_eq!(ledger.called_off(0, S * 1_000, |kind| matches!(kind, RequestKind::Batch { .. })), 20);
        assert!(Bounds { least: 1, most: 2 }.with(10).holds(11) && !Bounds::default().with(10).holds(11));
    }
}
