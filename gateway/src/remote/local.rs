//! The engine of this process as one executor of a fleet: a thread with its own scheduler, for which each row is a relQuery
//! of its own.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};

use base::{RelQueryId, RequestId, RowError, Submission};
use scheduler::Event;
use scheduler::fleet::ReplicaId;

use super::News;
use super::lane::Unwell;
use crate::driver::{Engine, Shared, Turn};

/// What its thread is told. Bounded by the rows in flight.
pub(super) enum Order {
    /// Run this.
    Run(Box<Submission>),
    /// Call that off.
    Cancel(RequestId),
}

/// A way to the thread; dropping it ends the thread.
pub(super) struct Local(Sender<Order>);

impl Local {
    /// Starts the thread.
    pub(super) fn start(replica: ReplicaId, engine: Engine, shared: Arc<Shared>) -> std::io::Result<Self> {
        let (sender, orders) = channel();
        let thread = std::thread::Builder::new().name("relserve-engine".into());
        thread.spawn(move || run(replica, engine, &shared, &orders))?;
        Ok(Self(sender))
    }

    /// Tells it something. A thread that is gone has said so.
    pub(super) fn tell(&self, order: Order) {
        let _ = self.0.send(order);
    }
}

fn run(replica: ReplicaId, mut engine: Engine, shared: &Shared, orders: &Receiver<Order>) {
    let mut is_idle = true;
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
        match engine.turn(shared) {
            Turn::Idle => is_idle = true,
            Turn::Stepped(events, ..) => shared.intake.news(News::Events { replica, events }),
            Turn::Dead => {
                let reason = "the engine has failed; the server needs a restart".into();
                let result = Err(Unwell { reason, is_gone: true });
                return shared.intake.news(News::Looked { replica, result });
            }
        }
    }
}

fn obey(replica: ReplicaId, engine: &mut Engine, shared: &Shared, order: Order) {
    match order {
        Order::Cancel(request) => {
            engine.scheduler.cancel(RelQueryId(request.0));
        }
        Order::Run(submission) => {
            let (relquery, row) = (submission.id, submission.items.first().map_or(0, |item| item.row));
            if let Err(refused) = engine.scheduler.submit(*submission) {
                let (error, usage) = (RowError::Failed(refused.to_string()), Default::default());
                let events = vec![Event::RowFailed { relquery, row, error, usage }];
                shared.intake.news(News::Events { replica, events });
            }
        }
    }
}
