//! The engine of this process as one replica of a fleet: a thread with its own scheduler. A relQuery is one
//! there too, of the rows that the fleet has sent so far, so that its order is that of a machine that runs alone.

use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Weak};

use base::{PromptToken, RelQueryId, RowError, Submission, TokenLogprob};
use scheduler::fleet::ReplicaId;
use scheduler::{Event, Scheduler};

use super::FleetMessage;
use super::unhealthy::Unhealthy;
use crate::driver::{Engine, StepResult};
use crate::shared::Shared;

/// What its thread is told. Bounded by the rows in flight.
pub(super) enum LocalCommand {
    /// Run rows of a relQuery, which may be there already.
    Run(Box<Submission>),
    /// Call a row off.
    Cancel(RelQueryId, u32),
    /// Take a turn: a fresh executor has something to report.
    Wake,
}

/// What the engine has told of a row so far, and nobody else has been told yet.
#[derive(Default)]
pub(super) struct LocalAnswer {
    /// How likely the tokens of its prompt were, piece by piece.
    pub(super) prompt: Vec<Arc<[PromptToken]>>,
    /// The same of its own tokens.
    pub(super) logprobs: Vec<TokenLogprob>,
    /// Its text, where it does not stream, and the tokens that it is of.
    pub(super) text: String,
    pub(super) tokens: u64,
}

impl LocalAnswer {
    /// A further token of one that does not stream.
    pub(super) fn say(&mut self, text: &str) {
        self.text.push_str(text);
        self.tokens += 1;
    }
}

/// A way to the thread; dropping it ends the thread.
pub(super) struct Local(Arc<Sender<LocalCommand>>);

impl Local {
    /// Starts the thread.
    pub(super) fn start(replica: ReplicaId, engine: Engine, shared: Arc<Shared>) -> std::io::Result<Self> {
        let (sender, orders) = channel();
        let sender = Arc::new(sender);
        let woken: Weak<Sender<LocalCommand>> = Arc::downgrade(&sender);
        let engine = engine.woken_by(Arc::new(move || {
            // A thread that nobody needs any more has ended.
            let _ = woken.upgrade().map(|sender| sender.send(LocalCommand::Wake));
        }));
        let thread = std::thread::Builder::new().name("relserve-engine".into());
        thread.spawn(move || run(replica, engine, &shared, &orders))?;
        Ok(Self(sender))
    }

    /// Tells it something. A thread that is gone has said so.
    pub(super) fn tell(&self, order: LocalCommand) {
        let _ = self.0.send(order);
    }
}

fn run(replica: ReplicaId, mut engine: Engine, shared: &Shared, orders: &Receiver<LocalCommand>) {
    let (mut is_idle, mut is_resting) = (true, false);
    loop {
        loop {
            let order = match orders.try_recv() {
                Ok(order) => order,
                Err(TryRecvError::Disconnected) => return,
                Err(TryRecvError::Empty) if !is_idle => break,
                Err(TryRecvError::Empty) => match orders.recv() {
                    Ok(order) => order,
                    Err(_) => return,
                },
            };
            is_idle = false;
            let events = obey(&mut engine.scheduler, order);
            if !events.is_empty() {
                shared.intake.tell_fleet(FleetMessage::Events { replica, events });
            }
        }
        let result = engine.advance(shared);
        if is_resting && matches!(result, StepResult::Idle | StepResult::Stepped(..)) {
            is_resting = false;
            shared.intake.tell_fleet(FleetMessage::Looked { replica, result: Ok(Arc::default()) });
        }
        match result {
            StepResult::Idle => is_idle = true,
            // It keeps the rows that it has, and gets no others.
            StepResult::Restarting(_) => {
                is_idle = true;
                if !std::mem::replace(&mut is_resting, true) {
                    let reason = "the engine has lost its device and is made anew".into();
                    let result = Err(Unhealthy { reason, is_gone: false });
                    shared.intake.tell_fleet(FleetMessage::Looked { replica, result });
                }
            }
            StepResult::Stepped(events, ..) => {
                shared.intake.tell_fleet(FleetMessage::Events { replica, events })
            }
            StepResult::Dead => {
                let reason = "the engine has failed; the server needs a restart".into();
                let result = Err(Unhealthy { reason, is_gone: true });
                return shared.intake.tell_fleet(FleetMessage::Looked { replica, result });
            }
        }
    }
}

/// Does what it is told. Returns the ends of rows that the scheduler does not take.
fn obey(scheduler: &mut Scheduler, order: LocalCommand) -> Vec<Event> {
    match order {
        LocalCommand::Wake => Vec::new(),
        LocalCommand::Cancel(relquery, row) => {
            scheduler.cancel_row(relquery, row);
            Vec::new()
        }
        LocalCommand::Run(submission) => {
            let relquery = submission.id;
            let rows: Vec<u32> = submission.items.iter().map(|item| item.row).collect();
            let taken = match scheduler.tenant_of(relquery) {
                Some(_) => scheduler.extend(relquery, submission.items),
                None => scheduler.submit(*submission),
            };
            let Err(refused) = taken else { return Vec::new() };
            let failed = |row| {
                let (error, usage) = (RowError::Failed(refused.to_string()), Default::default());
                Event::RowFailed { relquery, row, error, usage }
            };
            rows.into_iter().map(failed).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use base::{Generation, ServiceClass, TenantId, Time, TokenCount, TokenId, WorkItem};
    use scheduler::{CostModel, SchedulerConfig};

    use super::*;

    fn run(relquery: u64, row: u32, tokens: usize) -> LocalCommand {
        let generation = Generation { output_max: TokenCount(4), ..Generation::default() };
        let prompt: Arc<[TokenId]> = vec![TokenId(row); tokens].into();
        let (spans, sections, seed) = (Arc::default(), Arc::default(), 0);
        let item = WorkItem { row, prompt, spans, sections, generation: Arc::new(generation), seed };
        LocalCommand::Run(Box::new(Submission {
            id: RelQueryId(relquery),
            tenant: TenantId(1),
            weight: 1,
            scope: 0,
            class: ServiceClass::Interactive,
            arrival: Time(0),
            deadline: None,
            items: vec![item],
        }))
    }

    #[test]
    fn an_answer_that_does_not_stream_knows_of_how_many_tokens_it_is() {
        let mut answer = LocalAnswer::default();
        ["a", "", "b"].into_iter().for_each(|text| answer.say(text));
        assert_eq!((answer.text.as_str(), answer.tokens), ("ab", 3), "a token may give no text");
    }

    #[test]
    fn rows_that_come_one_by_one_are_one_relquery() {
        let mut scheduler =
            Scheduler::new(SchedulerConfig::default(), CostModel::default()).expect("it is valid");
        for row in 0..3 {
            assert_eq!(obey(&mut scheduler, run(7, row, 20)), []);
        }
        assert_eq!(obey(&mut scheduler, run(8, 0, 20)), []);
        let stats = scheduler.stats();
        assert_eq!((stats.relqueries, stats.rows_waiting), (2, 4));
        obey(&mut scheduler, LocalCommand::Cancel(RelQueryId(7), 1));
        assert_eq!(scheduler.stats().rows_waiting, 3);
        let refused = obey(&mut scheduler, run(7, 5, 1 << 20));
        assert!(matches!(refused[..], [Event::RowFailed { row: 5, .. }]), "{refused:?}");
        assert_eq!(scheduler.stats().rows_waiting, 3, "its neighbours run on");
    }
}
