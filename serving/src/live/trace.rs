//! The last minutes as a trace that the simulator reads (`relserve-trace/1`): lengths and times, no names.
//!
//! Tenants, templates and relQueries are numbered in the order of their first appearance. What a trace cannot
//! say is left out: rows that a cache answered never ran; rows that joined an open relQuery count as there
//! from its beginning; a relQuery that was called off counts with the tokens that it had got.

use std::collections::HashMap;
use std::sync::Arc;

use base::{TenantId, Time, TokenCount};
use sim::trace::{Trace, TraceRelQuery, TraceTemplate, replay_weight};

use super::record::{RecordedRow, RelQueryRecord};

/// A trace, and what it says of how things went.
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    pub trace: Trace,
    /// The records that it is made of, in its order.
    pub records: Vec<Arc<RelQueryRecord>>,
}

impl Recorded {
    /// What the trace calls a tenant, if it has relQueries of it.
    pub fn name_of(&self, tenant: TenantId) -> Option<&str> {
        let place = self.records.iter().position(|record| record.tenant == tenant)?;
        Some(&self.trace.relqueries.get(place)?.tenant)
    }

    /// Each record with what the trace has of it.
    pub fn of_trace(&self) -> impl Iterator<Item = (&RelQueryRecord, &TraceRelQuery)> {
        self.records.iter().map(|record| &**record).zip(&self.trace.relqueries)
    }
}

/// What a relQuery weighs in a replay.
fn weight(record: &RelQueryRecord) -> u64 {
    replay_weight(record.prompt_tokens(), record.output_tokens())
}

/// The newest of these records that together weigh no more than `most`, in the order of their arrival. Those
/// of which no row got a token are left out.
pub fn recorded(records: Vec<Arc<RelQueryRecord>>, most: TokenCount) -> Recorded {
    let mut left = most.0;
    let has_run = |record: &Arc<RelQueryRecord>| record.rows.iter().any(|row| row.output > 0);
    let fits = |record: &Arc<RelQueryRecord>| {
        let after = left.checked_sub(weight(record));
        left = after.unwrap_or(left);
        after.is_some()
    };
    let mut records: Vec<Arc<RelQueryRecord>> =
        records.into_iter().rev().filter(has_run).take_while(fits).collect();
    records.sort_by_key(|record| (record.arrival, record.id));
    let from = records.first().map(|record| record.arrival).unwrap_or_default();
    // A row that got nothing took no more than its place in the queue.
    let trace = write(&records, from, |row| row.output > 0);
    Recorded { trace, records }
}

/// The same with relQueries that have not ended, all of whose rows are in it: those that have not ended, or
/// got nothing, with an output of 0, which is to be filled in.
pub fn recorded_with_open(
    ended: Vec<Arc<RelQueryRecord>>,
    open: Vec<Arc<RelQueryRecord>>,
    most: TokenCount,
) -> Recorded {
    let mut left = most.0;
    let mut records: Vec<Arc<RelQueryRecord>> = ended.into_iter().chain(open).collect();
    records.sort_by_key(|record| (record.arrival, record.id));
    records.dedup_by_key(|record| record.id);
    let fits = |record: &Arc<RelQueryRecord>| {
        let after = left.checked_sub(weight(record));
        left = after.unwrap_or(left);
        after.is_some()
    };
    let mut records: Vec<_> = records.into_iter().rev().take_while(fits).collect();
    records.reverse();
    let from = records.first().map(|record| record.arrival).unwrap_or_default();
    let trace = write(&records, from, |_| true);
    Recorded { trace, records }
}

/// The records as a trace, of their rows those that count.
fn write(records: &[Arc<RelQueryRecord>], from: Time, counts: fn(&RecordedRow) -> bool) -> Trace {
    let mut templates: HashMap<(u64, u32), u64> = HashMap::new();
    let mut tenants: HashMap<TenantId, usize> = HashMap::new();
    let mut trace = Trace { schema: "relserve-trace/1".into(), name: "recorded".into(), ..Trace::default() };
    for (record, rel_id) in records.iter().zip(1..) {
        let next = templates.len() as u64;
        let template_id = *templates.entry((record.template, record.template_tokens)).or_insert_with(|| {
            trace.templates.push(TraceTemplate { id: next, tokens: record.template_tokens.into() });
            next
        });
        let next = tenants.len() + 1;
        let tenant = *tenants.entry(record.tenant).or_insert(next);
        let rows = || record.rows.iter().filter(|row| counts(row));
        let row = |row: &RecordedRow| match row.group {
            Some(group) => {
                let shared = record.groups[group as usize];
                [group.into(), (row.own - shared).into(), row.output.into()]
            }
            None => [-1, row.own.into(), row.output.into()],
        };
        trace.relqueries.push(TraceRelQuery {
            rel_id,
            tenant: format!("tenant-{tenant}"),
            weight: Some(f64::from(record.weight) / 1_000.0),
            task: None,
            class: Some(record.class),
            arrival: record.arrival.since(from).as_seconds(),
            template_id,
            ol: record.output_max,
            groups: record.groups.iter().map(|tokens| u64::from(*tokens)).collect(),
            rows: rows().map(row).collect(),
            samplings: samplings(rows()),
        });
    }
    trace
}

/// The steps that gave rows their outputs; nothing where all took a step a token.
fn samplings<'a>(rows: impl Iterator<Item = &'a RecordedRow>) -> Vec<u64> {
    let listed = |row: &RecordedRow| if row.samplings < row.output { row.samplings } else { 0 };
    let steps: Vec<u64> = rows.map(|row| listed(row).into()).collect();
    if steps.iter().any(|steps| *steps > 0) { steps } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use base::{Nanos, Periods, RelQueryId};

    use super::*;
    use crate::live::record::tests::{NAME, ended, item, submission};
    use crate::live::record::{Outcome, RowOutcome};

    fn record(id: u64, tenant: u64, arrival: u64, outputs: &[u64]) -> Arc<RelQueryRecord> {
        let mut record = RelQueryRecord::begun(&submission(id, tenant, arrival), NAME);
        let items: Vec<_> =
            (0..).zip(outputs).map(|(row, _)| item(row, 2, &[1, 2, 3, 40 + row, 50 + row])).collect();
        record.add(u128::from(tenant), &items);
        (0..).zip(outputs).for_each(|(row, output)| record.row_ended(row, ended(*output, RowOutcome::Done)));
        record.end = Time(arrival + 1_000_000_000);
        let periods = Periods { waiting: Nanos(0), core: Nanos(1), tail: Nanos(2) };
        record.outcome = Outcome::Completed { periods };
        Arc::new(record)
    }

    #[test]
    fn the_simulator_reads_what_was_recorded_and_no_name_is_in_it() {
        let second = 1_000_000_000;
        let records = vec![
            record(70, 9, 6 * second, &[2, 0, 3]),
            record(71, 8, 5 * second, &[1]),
            record(72, 9, 7 * second, &[4, 4]),
        ];
        let recorded = recorded(records, TokenCount(10_000));
        let json = serde_json::to_string(&recorded.trace).expect("plain data");
        let trace = Trace::parse(&json).expect("a trace");
        assert_eq!(trace, recorded.trace);
        let arrivals: Vec<_> = trace.relqueries.iter().map(|one| (one.rel_id, one.arrival)).collect();
        assert_eq!(arrivals, [(1, 0.0), (2, 1.0), (3, 2.0)]);
        let tenants: Vec<_> = trace.relqueries.iter().map(|one| one.tenant.as_str()).collect();
        assert_eq!(tenants, ["tenant-1", "tenant-2", "tenant-2"]);
        assert_eq!(recorded.name_of(TenantId(9)), Some("tenant-2"));
        assert_eq!(recorded.name_of(TenantId(1)), None);
        assert_eq!(trace.templates.len(), 2, "a tenant's templates are its own");
        assert_eq!(trace.relqueries[1].rows, [[0, 2, 2], [0, 2, 3]], "a row without output is left out");
        assert_eq!(trace.relqueries[1].groups, [1]);
        let lowered = trace.lower().expect("it can be replayed");
        assert_eq!(lowered.submissions[1].items[0].prompt.len(), 5);
    }

    #[test]
    fn the_newest_stay_where_not_all_fit() {
        let records: Vec<_> = (1..=5).map(|id| record(id, 1, id, &[1])).collect();
        let one = weight(&records[0]);
        let kept = recorded(records.clone(), TokenCount(2 * one));
        let ids: Vec<RelQueryId> = kept.records.iter().map(|record| record.id).collect();
        assert_eq!(ids, [RelQueryId(4), RelQueryId(5)]);
        let none = recorded(vec![record(1, 1, 1, &[0])], TokenCount(1_000));
        assert!(none.records.is_empty());
    }

    #[test]
    fn rows_whose_tokens_came_several_a_step_say_so() {
        let row = |output, samplings| RecordedRow { group: None, own: 3, output, samplings };
        let listed = |rows: &[RecordedRow]| samplings(rows.iter());
        assert_eq!(listed(&[row(8, 8), row(5, 5)]), Vec::<u64>::new(), "a step a token goes without saying");
        assert_eq!(listed(&[row(8, 2), row(5, 5), row(7, 0)]), [2, 0, 0], "0: one a token, or unknown");
    }
}
