//! What comes in: rows join what is in flight, extend an open relQuery or are submitted; relQueries nobody
//! reads leave.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::{RelQueryId, Submission, TenantId, Time, TokenCount, WorkItem};
use scheduler::Refused;

use super::{AnswerTarget, Driver, PlacedRelQuery, RelQueryFlight, RowFlight, RowKey};
use crate::account::Account;
use crate::error::RequestError;
use crate::intake::{Job, OpenBound, OpenTo, PendingRow, TemplateRows};
use crate::label::Label;
use crate::live::RelQueryName;
use crate::live::record::{RowEnd, RowOutcome};
use crate::pins::PinPermit;
use crate::queue_room::QueueBound;
use crate::relquery_state::{AnswerSource, RelQueryKind, RelQueryState, RowProgress, Status};

/// Rows of a column after which the scheduler gets a new relQuery for those that follow: it remembers a few
/// bytes of each row until a relQuery ends, and the live view does.
const COLUMN_ROWS_MAX: u32 = 20_000;
/// Places of a column's rows are looked through for those that have ended once there are twice as many.
const PLACES_MIN: usize = 1_024;

/// Where rows go.
struct Destination {
    account: Account,
    label: Option<Arc<Label>>,
    open: Option<OpenTo>,
    join: bool,
    /// Whether all of its rows are of one relQuery, in windows.
    is_column: bool,
    pin: Option<PinPermit>,
}

impl Driver {
    /// Takes rows in: joins what is in flight already, extends an open relQuery, submits the rest.
    pub(super) fn submit(&mut self, job: Job) {
        let now = self.shared.clock.now();
        self.shared.pulse.busy(now);
        let Job { relquery, account, weight, scope, class, deadline, mut pin, parts } = job;
        let tenant = account.tenant;
        let rows = || parts.iter().map(|part| part.rows.len() as u64).sum();
        if self.shared.pulse.is_dead() {
            relquery.end(Status::Failed(RequestError::Dead), now);
            return self.shared.intake.finished(tenant, rows());
        }
        // Called off while it was prepared, or ended by who ends all: its `Leave` came before it, or comes.
        let (is_over, is_cancelled) = {
            let state = relquery.read();
            (state.is_over(), state.status == Status::Cancelled)
        };
        if is_over {
            if is_cancelled {
                self.shared.relquery_ended(&relquery, &relquery.read());
            }
            self.shared.metrics.rows.cancelled.inc_by(rows());
            return self.shared.intake.finished(tenant, rows());
        }
        let is_column = relquery.kind == RelQueryKind::Column;
        // A window waits from when it comes, not from when its column was opened.
        let arrival = if is_column { now } else { relquery.arrival };
        self.relqueries.entry(relquery.id).or_insert_with(|| PlacedRelQuery {
            relquery: Arc::clone(&relquery),
            places: Vec::new(),
            places_kept: 0,
            last: None,
        });
        for part in parts {
            let label = part.label.clone();
            let (open, fresh) = self.join_in_flight(&relquery, account, part);
            if fresh.is_empty() {
                continue;
            }
            let joined = match open {
                Some(open) => self.open_flight(tenant, open, now),
                None if is_column => self.column_flight(relquery.id),
                None => None,
            };
            let id = joined.unwrap_or_else(|| self.shared.ids.next());
            let items = Vec::new();
            let empty = Submission { id, tenant, weight, scope, class, arrival, deadline, items };
            let join = joined.is_some();
            let destination = Destination { account, label, open, join, is_column, pin: pin.take() };
            self.launch(&relquery, empty, destination, fresh);
        }
        self.touched.insert(relquery.id, relquery);
    }

    /// Rows whose answer is on its way already get it from there. Returns the others.
    fn join_in_flight(
        &mut self,
        relquery: &Arc<RelQueryState>,
        account: Account,
        part: TemplateRows,
    ) -> (Option<OpenTo>, Vec<PendingRow>) {
        let tenant = account.tenant;
        let mut fresh = Vec::new();
        for row in part.rows {
            let place = row.key.and_then(|key| self.in_flight.get(&(tenant, key)).copied());
            let flight = place.and_then(|(id, number)| {
                self.flights.get_mut(&id).and_then(|flight| flight.rows.get_mut(&number))
            });
            let (Some(place), Some(flight)) = (place, flight) else {
                fresh.push(row);
                continue;
            };
            for index in row.targets {
                relquery.token(index, &flight.text, flight.tokens > 0, self.shared.clock.now());
                flight.targets.push(AnswerTarget {
                    relquery: Arc::clone(relquery),
                    index,
                    source: AnswerSource::Shared,
                    account,
                });
                self.shared.metrics.rows.shared.inc();
            }
            if let Some(placed) = self.relqueries.get_mut(&relquery.id) {
                placed.places.push(place);
            }
            self.shared.intake.finished(tenant, 1);
        }
        (part.open, fresh)
    }

    /// The open relQuery of a tenant's template or loop, where one may be joined.
    fn open_flight(&self, tenant: TenantId, open: OpenTo, now: Time) -> Option<RelQueryId> {
        let id = *self.open.get(&(tenant, open.key))?;
        let flight = self.flights.get(&id)?;
        let is_open = match open.bound {
            OpenBound::Age => now.since(flight.opened) < self.coalescing.age_max,
            OpenBound::Idle => now.since(flight.moved) < self.coalescing.idle_max,
        };
        (is_open && (flight.next_row as usize) < self.coalescing.rows_max).then_some(id)
    }

    /// The scheduler's relQuery that took the windows of a column before, while it runs and is not too long.
    fn column_flight(&mut self, id: RelQueryId) -> Option<RelQueryId> {
        let placed = self.relqueries.get_mut(&id)?;
        if placed.places.len() > 2 * placed.places_kept.max(PLACES_MIN) {
            let flights = &self.flights;
            let runs =
                |(id, row): &RowKey| flights.get(id).is_some_and(|flight| flight.rows.contains_key(row));
            placed.places.retain(runs);
            placed.places_kept = placed.places.len();
        }
        let last = placed.last?;
        let flight = self.flights.get(&last)?;
        (flight.next_row < COLUMN_ROWS_MAX).then_some(last)
    }

    /// Hands rows to the scheduler, as a new relQuery or into an open one.
    fn launch(
        &mut self,
        relquery: &Arc<RelQueryState>,
        mut submission: Submission,
        Destination { account, label, open, join, is_column, pin }: Destination,
        rows: Vec<PendingRow>,
    ) {
        let (id, tenant, now) = (submission.id, submission.tenant, self.shared.clock.now());
        let first = self.flights.get(&id).filter(|_| join).map_or(0, |flight| flight.next_row);
        let (items, flights) = numbered((relquery, account), first, rows);
        submission.items = items;
        let count = submission.items.len();
        let arrival = submission.arrival;
        let request = (is_column || !join).then_some(relquery.id);
        // Rows that join an open relQuery go by its name.
        let known = self.flights.get(&id).filter(|_| join).and_then(|flight| flight.label.clone());
        let label = known.or(label);
        let name = RelQueryName { route: account.route, request, label: label.clone() };
        let measured = self.publisher.measure(&submission, name);
        let result = if join {
            if !is_column {
                self.shared.metrics.rows.coalesced.inc_by(count as u64);
            }
            self.backend.extend(id, submission.items)
        } else {
            self.backend.submit(submission)
        };
        if let Err(refused) = result {
            return self.refuse(tenant, flights, &refused);
        }
        self.publisher.arrived(measured);
        if !join {
            self.backend.comes_from(id, &relquery.trace);
        }
        self.remember_places(relquery.id, (tenant, id), &flights);
        // One that nobody keeps any more was let go before its rows came: nothing would let it go again.
        if let Some(filling) = &pin
            && filling.pin().upgrade().is_some()
        {
            self.backend.pin(id, filling.id());
            self.pins.insert(filling.id(), filling.pin());
        }
        let owner = (!join).then(|| Arc::clone(relquery));
        let flight = self.flights.entry(id).or_insert(RelQueryFlight {
            account,
            label,
            open: open.map(|open| open.key),
            opened: arrival,
            moved: arrival,
            owner: None,
            rows: BTreeMap::new(),
            next_row: 0,
            pin: None,
        });
        flight.owner = owner;
        flight.pin = pin;
        flight.moved = now;
        flight.next_row = first + u32::try_from(count).unwrap_or(u32::MAX);
        flight.rows.extend(flights);
        match open {
            Some(OpenTo { key, is_last: true, .. }) => self.open.remove(&(tenant, key)),
            Some(OpenTo { key, .. }) => self.open.insert((tenant, key), id),
            None => None,
        };
    }

    /// Notes where rows of a relQuery run, for who calls it off and for equal rows that come later.
    fn remember_places(
        &mut self,
        relquery: RelQueryId,
        (tenant, id): (TenantId, RelQueryId),
        flights: &BTreeMap<u32, RowFlight>,
    ) {
        if let Some(placed) = self.relqueries.get_mut(&relquery) {
            placed.places.extend(flights.keys().map(|number| (id, *number)));
            placed.last = Some(id);
        }
        for (number, row) in flights {
            if let Some(key) = row.key {
                self.in_flight.insert((tenant, key), (id, *number));
            }
        }
    }

    /// The scheduler does not take the rows: they fail, each alone.
    fn refuse(&mut self, tenant: TenantId, rows: BTreeMap<u32, RowFlight>, refused: &Refused) {
        let now = self.shared.clock.now();
        tracing::warn!(%refused, rows = rows.len(), "the scheduler refused rows that the gateway admitted");
        let count = rows.len() as u64;
        for target in rows.into_values().flat_map(|row| row.targets) {
            let error = match refused {
                Refused::QueueFull { rows, limit } => RequestError::Overloaded {
                    bound: QueueBound::Whole,
                    rows: u64::from(*rows),
                    limit: u64::from(*limit),
                    retry_after: base::Millis(1_000),
                },
                other => RequestError::Row(other.to_string()),
            };
            target.relquery.settle(target.index, RowProgress::Failed(error), now);
            self.touched.insert(target.relquery.id, target.relquery);
        }
        self.shared.intake.finished(tenant, count);
    }

    /// Nobody reads a relQuery any more: rows that nobody else wants are cancelled, and what they have used is counted. What
    /// goes on for others is theirs.
    pub(super) fn leave(&mut self, relquery: &Arc<RelQueryState>) {
        let Some(PlacedRelQuery { places, .. }) = self.relqueries.remove(&relquery.id) else {
            return relquery.let_go();
        };
        self.shared.relquery_ended(relquery, &relquery.read());
        let is_called_off = relquery.read().is_called_off();
        let now = self.shared.clock.now();
        let sent = self.sent(places.iter().map(|(id, _)| *id));
        for (id, number) in places {
            let Some(flight) = self.flights.get_mut(&id) else { continue };
            let Some(row) = flight.rows.get_mut(&number) else { continue };
            let is_own = |target: &AnswerTarget| target.relquery.id == relquery.id;
            // None where it was taken out with an equal row of another window.
            let Some(own) = row.targets.iter().find(|target| is_own(target)) else { continue };
            let (index, account, has_asked) = (own.index, own.account, own.source == AnswerSource::Model);
            row.targets.retain(|target| !is_own(target));
            if let Some(next) = row.targets.first_mut() {
                if has_asked {
                    hand_over((relquery, index), next, now);
                }
                continue;
            }
            if has_asked {
                let is_sent = sent.contains(&(id, number));
                relquery.leave_call(index, is_sent, (!is_sent).then_some(TokenCount(row.tokens)));
            }
            let (output, samplings, outcome) = (row.tokens, row.samplings, RowOutcome::Cancelled);
            let key = row.key;
            flight.pin = None;
            flight.rows.remove(&number);
            let is_last = flight.rows.is_empty();
            if is_called_off
                && let Some(charge) = self.charge_so_far((id, number), account, TokenCount(output))
            {
                self.shared.count_left(relquery, index, charge);
            }
            self.publisher.row_ended(id, number, RowEnd { output, samplings, outcome });
            if let Some(key) = key {
                self.in_flight.remove(&(account.tenant, key));
            }
            self.shared.intake.finished(account.tenant, 1);
            self.shared.metrics.rows.cancelled.inc();
            if is_last {
                self.backend.cancel(id);
                self.close(id);
                self.publisher.ended(id, None, now);
            } else {
                self.backend.cancel_row(id, number);
            }
        }
        relquery.let_go();
    }

    /// The rows of these relQueries of the scheduler that were sent to a replica and have not ended.
    pub(super) fn sent(&self, ids: impl Iterator<Item = RelQueryId>) -> BTreeSet<RowKey> {
        let ids: BTreeSet<RelQueryId> = ids.collect();
        let rows = |id| self.backend.sent(id).into_iter().map(move |row| (id, row));
        ids.into_iter().flat_map(rows).collect()
    }
}

/// A row that a relQuery has asked for goes on for another one, which pays for it from now on and is told so.
fn hand_over((relquery, index): (&RelQueryState, u32), next: &mut AnswerTarget, now: Time) {
    next.source = AnswerSource::Model;
    let has_begun = relquery.read().rows[index as usize].start.is_some();
    if has_begun {
        next.relquery.started(next.index, now, now);
    }
}

/// Rows as the scheduler takes them, numbered from `first` on, and who waits for their answers.
fn numbered(
    (relquery, account): (&Arc<RelQueryState>, Account),
    first: u32,
    rows: Vec<PendingRow>,
) -> (Vec<WorkItem>, BTreeMap<u32, RowFlight>) {
    let (mut items, mut flights) = (Vec::new(), BTreeMap::new());
    for (number, row) in (first..).zip(rows) {
        items.push(WorkItem { row: number, ..row.item });
        let targets = row.targets.into_iter().enumerate().map(|(i, index)| AnswerTarget {
            relquery: Arc::clone(relquery),
            index,
            source: if i == 0 { AnswerSource::Model } else { AnswerSource::Shared },
            account,
        });
        flights.insert(number, RowFlight::new(targets.collect(), String::new(), row.key));
    }
    (items, flights)
}
