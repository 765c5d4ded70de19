//! Policy `auto` on a running server (DESIGN 12): a thread that has the processor only while nobody else
//! wants it replays the last minutes under each candidate, and asks the loop to serve by the one that comes
//! out best.
//!
//! What is replayed is the record of the live view: relQueries that ended, and those that have not, whose rows
//! are taken to become as long as those like them. After a replay the thread rests nine times as long as it
//! took, so that it is never at work for more than a tenth of the time.

use std::collections::BTreeMap;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use base::{Nanos, RelQueryId, Time};
use scheduler::AutoConfig;
use sim::SimError;
use sim::auto::{Verdict, choose};
use sim::watch::{Mark, Watcher};

use crate::live::auto::{AutoState, Chosen};
use crate::live::record::RelQueryRecord;
use crate::live::trace::recorded_with_open;
use crate::live::what_if::ReplayMachine;
use crate::shared::Shared;

/// The thread rests this many times as long as its last replay took.
const REST: u64 = 9;
/// Longest wait for the loop.
const ANSWER: Duration = Duration::from_secs(10);

/// Ends a replay when the server ends.
struct UntilStopped<'a>(&'a AutoState);

impl Watcher for UntilStopped<'_> {
    fn mark(&mut self, _: Mark) {}

    fn is_over(&mut self) -> bool {
        self.0.is_stopped()
    }
}

/// What is imitated.
pub(crate) struct AutoPolicy {
    shared: Arc<Shared>,
    machine: ReplayMachine,
    settings: AutoConfig,
}

impl AutoPolicy {
    /// For a server like this machine.
    pub(crate) fn new(shared: Arc<Shared>, machine: ReplayMachine) -> Self {
        Self { settings: machine.limits.auto.clone(), shared, machine }
    }

    /// Begins, on a thread of its own.
    pub(crate) fn spawn(self) -> std::io::Result<()> {
        std::thread::Builder::new().name("relserve-auto".into()).spawn(move || self.run()).map(drop)
    }

    fn run(self) {
        yield_to_all();
        let mut rest = Nanos::from(self.settings.every_ms);
        let mut newest = None;
        while !self.shared.auto.rest(rest) {
            rest = Nanos::from(self.settings.every_ms);
            let begun = self.shared.clock.now();
            let since = Time(begun.0.saturating_sub(Nanos::from(self.settings.window_ms).0));
            let ended = self.shared.live.records(since);
            // Without news the answer is the one that there is.
            let last = ended.last().map(|record| record.id);
            if last.is_none() || last == std::mem::replace(&mut newest, last) {
                continue;
            }
            match self.choose(ended, since) {
                Ok(Some(verdict)) => self.chosen(begun, verdict),
                Ok(None) => {}
                Err(SimError::Stopped) => return,
                Err(error) => tracing::warn!(%error, "the last minutes cannot be replayed"),
            }
            let took = self.shared.clock.now().since(begun);
            self.shared.metrics.live.auto_seconds.observe(took.as_seconds());
            rest = rest.max(Nanos(took.0.saturating_mul(REST)));
        }
    }

    /// Replays what there is, as quickly as steps went since `since`.
    fn choose(&self, ended: Vec<Arc<RelQueryRecord>>, since: Time) -> Result<Option<Verdict>, SimError> {
        let view = self.shared.view.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // A replay on a machine that is not the one that runs would choose for that one.
        if !view.is_measured {
            return Ok(None);
        }
        let open: BTreeMap<RelQueryId, Arc<RelQueryRecord>> = self.open();
        let trace = recorded_with_open(ended, open.into_values().collect(), self.settings.tokens_max).trace;
        let judge = match self.machine.judge(&view, self.shared.live.pace(since, &view.cost)) {
            Ok(Some(judge)) => judge,
            Ok(None) => return Ok(None),
            Err(error) => {
                tracing::warn!(%error, "this machine cannot be imitated");
                return Ok(None);
            }
        };
        choose(trace, view.policy, &judge, &mut UntilStopped(&self.shared.auto))
    }

    /// RelQueries that have not ended, as the loop knows them; none where the loop is over.
    fn open(&self) -> BTreeMap<RelQueryId, Arc<RelQueryRecord>> {
        let (to, from) = sync_channel(1);
        self.shared.intake.ask_open(to);
        // The loop answers between two steps, unless it has ended.
        let open: Vec<RelQueryRecord> = from.recv_timeout(ANSWER).unwrap_or_default();
        open.into_iter().map(|record| (record.id, Arc::new(record))).collect()
    }

    fn chosen(&self, at: Time, verdict: Verdict) {
        if verdict.chosen != verdict.present {
            tracing::info!(%verdict, "policy `auto` changes");
            self.shared.metrics.live.policy_changes.inc();
            self.shared.intake.set_policy(verdict.chosen);
        }
        self.shared.auto.chose(Chosen { at, verdict });
    }
}

/// Gives the processor to whoever else wants it.
fn yield_to_all() {
    #[cfg(target_os = "linux")]
    {
        use thread_priority::{
            NormalThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy, set_thread_priority_and_policy,
            thread_native_id,
        };
        let idle = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
        let set = set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, idle);
        if let Err(error) = set {
            tracing::warn!(?error, "replays of policy `auto` run at the priority of all else");
        }
    }
}
