//! What the loop thread shares with the handlers. Must not know how the loop runs.

use std::sync::{Arc, Mutex, PoisonError};

use base::{PinId, RelQueryId};
use store::UnixMillis;

use crate::account::Accounts;
use crate::budgets::Budgets;
use crate::clock::Clock;
use crate::database_clock::DatabaseClock;
use crate::gateway_ids::GatewayIds;
use crate::health::Pulse;
use crate::intake::{Intake, Job};
use crate::live::Live;
use crate::live::auto::AutoState;
use crate::metrics::{Metrics, TracedAt};
use crate::pins::Pin;
use crate::price::ModelPrices;
use crate::queue_room::Full;
use crate::relquery_state::{RelQueryState, ScoresBudget, State};
use crate::replicas::LeaseSignal;
use crate::results::Results;
use crate::traces::{EndedRelQuery, Traces};
use crate::usage_journal::JournalFolder;
use crate::view::View;

/// What the loop shares with the handlers.
pub struct Shared {
    /// The way in.
    pub intake: Intake,
    /// Health by progress.
    pub pulse: Pulse,
    pub clock: Clock,
    /// By which what is stored begins and ends.
    pub database_clock: Arc<DatabaseClock>,
    /// Every metric.
    pub metrics: Metrics,
    /// Finished cells, of all models: their keys hold the model's revision.
    pub results: Arc<Results>,
    /// Tokens used, by tenant and route.
    pub accounts: Accounts,
    /// Where their journals are, of all models, and what earlier processes left in theirs.
    pub journals: Option<Arc<JournalFolder>>,
    /// What tenants may use, of all models.
    pub budgets: Arc<Budgets>,
    /// What may be in memory of how likely prompts were.
    pub scores: ScoresBudget,
    /// What tokens of this model cost.
    pub prices: ModelPrices,
    /// What the scheduler last said of itself.
    pub view: Arc<Mutex<View>>,
    /// What the live view shows.
    pub live: Arc<Live>,
    /// What policy `auto` chose.
    pub auto: AutoState,
    /// Where other gateways use the replicas too: has leases of them renewed.
    pub leases: Option<Arc<LeaseSignal>>,
    /// What stands behind the names of servers in leases.
    pub(crate) lease_suffix: String,
    /// What this process is called by other gateways.
    pub gateway: Arc<GatewayIds>,
    /// Makes identifiers.
    pub ids: Arc<Ids>,
    /// Spans of what has ended, of all models.
    pub traces: Arc<Traces>,
}

/// Makes relQuery ids that are never used twice, by this process, another start of it or another gateway. From the
/// first bit to the last: a count that begins at the start's wall time, 64 to a millisecond, so that a process that
/// makes fewer than that never comes to where its next start begins; then bits that each process draws, by which those
/// that share a database differ.
#[derive(Debug)]
pub struct Ids(std::sync::atomic::AtomicU64);

impl Ids {
    /// The number of bits that a process draws.
    const DRAWN_BITS: u32 = 16;
    /// The number of bits by which the wall time counts up within a millisecond.
    const COUNT_BITS: u32 = 6;

    /// Ids of a process that started at this wall time and drew these bits.
    pub fn starting_at(unix_ms: u64, drawn: u16) -> Self {
        let first = unix_ms << (Self::COUNT_BITS + Self::DRAWN_BITS) | u64::from(drawn);
        Self(std::sync::atomic::AtomicU64::new(first))
    }

    /// The next id.
    pub fn next(&self) -> RelQueryId {
        RelQueryId(self.0.fetch_add(1 << Self::DRAWN_BITS, std::sync::atomic::Ordering::Relaxed))
    }
}

impl Shared {
    /// The time by the database's clock.
    pub fn unix_now(&self) -> UnixMillis {
        self.database_clock.at(self.clock.now())
    }

    /// A relQuery has ended: it is counted, and its spans are made where it is traced.
    pub(crate) fn relquery_ended(&self, relquery: &RelQueryState, state: &State) {
        let trace = relquery.trace.trace().map(|trace| TracedAt { trace, unix_ms: self.clock.unix_ms() });
        self.metrics.relquery_done(relquery.tenant, state, trace, self.clock.now());
        let (Some(span), Some(periods)) = (relquery.trace.span(), state.periods) else { return };
        self.traces.relquery_ended(EndedRelQuery {
            span: span.clone(),
            request_id: relquery.trace.request_id(),
            model: self.metrics.model().to_owned(),
            route: relquery.trace.route(),
            policy: self.view.lock().unwrap_or_else(PoisonError::into_inner).policy.name(),
            tenant: relquery.tenant,
            status: state.status.clone(),
            rows: state.rows.len(),
            failed: state.failed,
            from_cache: state.from_cache,
            deduplicated: state.deduplicated,
            usage: state.spent(),
            queue: relquery.queue(),
            estimate: relquery.trace.estimate(),
            first_token: state.first_token,
            periods,
            ended: self.clock.wall().at(state.ended.unwrap_or_else(|| self.clock.now())),
        });
    }

    /// Hands rows to the loop, or refuses. From now on there is work: a loop that never takes it in is stuck.
    pub(crate) fn submit(&self, job: Job) -> Result<(), Full> {
        self.intake.submit(job, || self.pulse.busy(self.clock.now()))
    }

    /// The same of rows that have room.
    pub(crate) fn submit_reserved(&self, job: Job, reserved: u64) {
        self.pulse.busy(self.clock.now());
        self.intake.submit_reserved(job, reserved);
    }

    /// An empty pin, of which the loop hears when it is dropped.
    pub fn pin(self: &Arc<Self>) -> Arc<Pin> {
        let shared = Arc::clone(self);
        Pin::new(PinId(self.ids.next().0), self.clock, Box::new(move |pin| shared.intake.unpin(pin)))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use base::{Nanos, RelQueryId, TenantId, TokenId, WorkItem};

    use super::*;
    use crate::account::Account;
    use crate::config::LiveConfig;
    use crate::health::{Health, Patience};
    use crate::intake::{PendingRow, TemplateRows};
    use crate::relquery_state::{Arrival, RelQueryKind};

    #[test]
    fn ids_of_gateways_that_start_at_once_and_of_later_starts_are_others() {
        const START: u64 = 1_763_700_000_000;
        let ids = |unix_ms, drawn| {
            let ids = Ids::starting_at(unix_ms, drawn);
            std::iter::repeat_with(move || ids.next().0).take(1_000)
        };
        // 1,000 ids are of 16 milliseconds.
        let of_all = ids(START, 0).chain(ids(START, 1)).chain(ids(START, u16::MAX)).chain(ids(START + 16, 0));
        let distinct: std::collections::BTreeSet<u64> = of_all.collect();
        assert_eq!(distinct.len(), 4_000);
        assert!(ids(START, 7).is_sorted(), "later is larger");
        // Until the year 2109.
        let late = Ids::starting_at((1 << 42) - 1, 0);
        assert!(late.next() < late.next());
    }

    /// What a loop shares that does not run.
    pub(crate) fn without_loop(rows_max: u64) -> Shared {
        Shared {
            intake: Intake::new(rows_max),
            pulse: Pulse::default(),
            clock: Clock::start(),
            database_clock: Arc::new(DatabaseClock::guessed(UnixMillis(0), base::Time(0))),
            metrics: crate::metrics::tests::fresh(),
            results: Arc::new(Results::new(0)),
            accounts: Accounts::new("a test".to_owned()),
            journals: None,
            budgets: Arc::default(),
            scores: ScoresBudget::default(),
            prices: ModelPrices::new(crate::price::TokenPrices::default()),
            view: Arc::default(),
            live: Arc::new(Live::new(LiveConfig::default())),
            auto: AutoState::default(),
            leases: None,
            lease_suffix: String::new(),
            gateway: Arc::new(GatewayIds::of(1, 2)),
            ids: Arc::new(Ids::starting_at(0, 0)),
            traces: Arc::new(Traces::off()),
        }
    }

    fn job() -> Job {
        let arrival = Arrival { unix_ms: 0, time: base::Time(0) };
        let item = WorkItem {
            row: 0,
            prompt: Arc::from([TokenId(1)]),
            spans: Arc::from([]),
            sections: Arc::from([]),
            generation: Arc::default(),
            seed: 0,
        };
        let row = PendingRow { targets: vec![0], item, key: None };
        Job {
            relquery: RelQueryState::new(RelQueryId(1), TenantId(1), RelQueryKind::RelQuery, 1, arrival),
            account: Account { tenant: TenantId(1), route: "relqueries" },
            weight: 1_000,
            scope: 0,
            class: base::ServiceClass::default(),
            deadline: None,
            pin: None,
            parts: vec![TemplateRows { open: None, label: None, rows: vec![row] }],
        }
    }

    #[test]
    fn rows_that_a_loop_never_takes_in_are_work_without_progress_and_refused_ones_are_none() {
        let patience = Patience { step: Nanos(30_000_000_000), attempt: Nanos(30_000_000_000) };
        let health = |shared: &Shared, after| {
            let later = base::Time(shared.clock.now().0 + after);
            shared.pulse.health(later, patience)
        };
        const LATER: u64 = 60_000_000_000;
        let shared = without_loop(1);
        assert_eq!(health(&shared, LATER), Health::Ok, "idle");
        shared.submit(job()).expect("there is room");
        assert_eq!((health(&shared, 0), health(&shared, LATER)), (Health::Ok, Health::Stuck));
        let full = without_loop(0);
        full.submit(job()).expect_err("there is no room");
        assert_eq!(health(&full, LATER), Health::Ok, "nothing waits");
    }
}
