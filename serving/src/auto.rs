//! Policy `auto` on a running server (DESIGN 12): a thread that has the processor only while nobody else
//! wants it replays the last minutes under each candidate, and the loop is asked to serve by the one that comes
//! out best.
//!
//! What is replayed is the record of the live view: relQueries that ended, and those that have not, whose rows
//! are taken to become as long as those like them. After a replay there is a rest of nine times as long as it
//! took, so that no more than a tenth of the time goes to replays.
//!
//! The thread that replays may lose the processor at any place, for long, and so takes no lock of the server's: the
//! loop would wait for it. What it replays is brought to it, and what comes out told to the loop, by a thread like
//! all others.

use std::sync::mpsc::sync_channel;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use base::{Nanos, Time};
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
        let judge = match self.machine.judge(&view, self.shared.live.pace(since, &view.cost)) {
            Ok(Some(judge)) => judge,
            Ok(None) => return Ok(None),
            Err(error) => {
                tracing::warn!(%error, "this machine cannot be imitated");
                return Ok(None);
            }
        };
        // Here, for the loop copies a record that it changes while somebody has it, and an idle thread may have it for long.
        let trace = recorded_with_open(ended, self.open(), self.settings.tokens_max).trace;
        let state = &self.shared.auto;
        let replayed = while_idle(move || choose(trace, view.policy, &judge, &mut UntilStopped(state)));
        replayed.unwrap_or_else(|error| {
            tracing::warn!(%error, "there is no thread to replay on");
            Ok(None)
        })
    }

    /// RelQueries that have not ended, as the loop knows them; none where the loop is over.
    fn open(&self) -> Vec<Arc<RelQueryRecord>> {
        let (to, from) = sync_channel(1);
        self.shared.intake.ask_open(to);
        // The loop answers between two steps, unless it has ended.
        from.recv_timeout(ANSWER).unwrap_or_default()
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

/// Runs `work` on a thread that has the processor only while nobody else wants it, and waits for its end.
fn while_idle<T: Send>(work: impl FnOnce() -> T + Send) -> std::io::Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("relserve-replay".into());
        let thread = thread.spawn_scoped(scope, move || {
            yield_to_all();
            work()
        });
        thread.map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
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

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    #[test]
    fn a_replay_yields_to_all_and_who_locks_what_the_loop_locks_does_not() {
        use thread_priority::{NormalThreadSchedulePolicy, ThreadSchedulePolicy, thread_schedule_policy};
        let policy = || thread_schedule_policy().expect("each thread has one");
        let before = policy();
        let replays = while_idle(policy).expect("there is a thread");
        assert_eq!(replays, ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle));
        assert_eq!(policy(), before);
    }
}
