//! The engine of this process as one replica of a fleet: a thread with its own scheduler, for which each row
//! is a relQuery of its own.

use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Weak};

use base::{RelQueryId, RequestId, RowError, Submission};
use scheduler::Event;
use scheduler::fleet::ReplicaId;

use super::ReplicaEvent;
use super::unhealthy::Unhealthy;
use crate::driver::{Engine, StepResult};
use crate::shared::Shared;

/// What its thread is told. Bounded by the rows in flight.
pub(super) enum LocalCommand {
    Run(Box<Submission>),
    /// Call that off.
    Cancel(RequestId),
    /// Take a turn: a fresh executor has something to report.
    Wake,
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
            obey(replica, &mut engine, shared, order);
        }
        let result = engine.advance(shared);
        if is_resting && matches!(result, StepResult::Idle | StepResult::Stepped(..)) {
            is_resting = false;
            shared.intake.event(ReplicaEvent::Looked { replica, result: Ok(()) });
        }
        match result {
            StepResult::Idle => is_idle = true,
            // It keeps the rows that it has, and gets no others.
            StepResult::Restarting(_) => {
                is_idle = true;
                if !std::mem::replace(&mut is_resting, true) {
                    let reason = "the engine has lost its device and is made anew".into();
                    let result = Err(Unhealthy { reason, is_gone: false });
                    shared.intake.event(ReplicaEvent::Looked { replica, result });
                }
            }
            StepResult::Stepped(events, ..) => shared.intake.event(ReplicaEvent::Events { replica, events }),
            StepResult::Dead => {
                let reason = "the engine has failed; the server needs a restart".into();
                let result = Err(Unhealthy { reason, is_gone: true });
                return shared.intake.event(ReplicaEvent::Looked { replica, result });
            }
        }
    }
}

fn obey(replica: ReplicaId, engine: &mut Engine, shared: &Shared, order: LocalCommand) {
    match order {
        LocalCommand::Wake => {}
        LocalCommand::Cancel(request) => {
            engine.scheduler.cancel(RelQueryId(request.0));
        }
        LocalCommand::Run(submission) => {
            let (relquery, row) = (submission.id, submission.items.first().map_or(0, |item| item.row));
            if let Err(refused) = engine.scheduler.submit(*submission) {
                let (error, usage) = (RowError::Failed(refused.to_string()), Default::default());
                let events = vec![Event::RowFailed { relquery, row, error, usage }];
                shared.intake.event(ReplicaEvent::Events { replica, events });
            }
        }
    }
}
