//! The way into the loop thread: a bounded inbox and a wake-up.
//!
//! Rows are counted when they enter and when they finish, so the bound covers everything unfinished,
//! and a full queue is refused at once, on the handler's thread. Leaving is always possible (a client that
//! goes away must not wait) and bounded by the relQueries there are. Must not know HTTP or the scheduler.

use std::collections::VecDeque;
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use base::{Nanos, PinId, ServiceClass, TenantId, Time, WorkItem};
use scheduler::Policy;

use crate::account::Account;
use crate::caller::Caller;
use crate::label::Label;
use crate::live::record::RelQueryRecord;
use crate::pins::PinPermit;
use crate::queue_room::{Full, QueueRoom};
use crate::relquery_state::RelQueryState;
use crate::replicas::FleetMessage;
pub use crate::results::CellKey;

/// Identity within a tenant of what rows may join, for coalescing: a template, or a client's loop.
pub type OpenKey = [u8; 32];

/// What rows may join, and be joined by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenTo {
    /// The same for all of them.
    pub key: OpenKey,
    /// What shuts it, beside its end and its size.
    pub bound: OpenBound,
    /// Whether nothing joins after these rows.
    pub is_last: bool,
}

impl OpenTo {
    /// Rows of one template.
    pub fn template(key: OpenKey) -> Self {
        Self { key, bound: OpenBound::Age, is_last: false }
    }

    /// Requests of one loop of a client.
    pub fn client_loop(key: OpenKey) -> Self {
        Self { key, bound: OpenBound::Idle, is_last: false }
    }
}

/// What shuts an open relQuery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenBound {
    /// Time since it was opened.
    Age,
    /// Time since a row of it last came or ended.
    Idle,
}

/// Rows for the loop thread.
#[derive(Debug)]
pub struct Job {
    /// Where the answers go.
    pub relquery: Arc<RelQueryState>,
    /// Who pays.
    pub account: Account,
    /// Their share of the machine, in thousandths.
    pub weight: u32,
    /// Prefix-cache namespace.
    pub scope: u128,
    /// Who waits.
    pub class: ServiceClass,
    /// When its answer is no longer waited for.
    pub deadline: Option<Time>,
    /// What holds its rows' independent sections after their end.
    pub pin: Option<PinPermit>,
    /// Its rows by template; each part is one relQuery of the scheduler, or joins an open one.
    pub parts: Vec<TemplateRows>,
}

impl Job {
    /// Rows in all parts.
    pub fn rows(&self) -> u64 {
        self.parts.iter().map(|part| part.rows.len() as u64).sum()
    }
}

/// Rows of one template.
#[derive(Debug)]
pub struct TemplateRows {
    /// Present where rows may join, and be joined by, others of the tenant.
    pub open: Option<OpenTo>,
    /// What it is for.
    pub label: Option<Arc<Label>>,
    pub rows: Vec<PendingRow>,
}

/// One row to run.
#[derive(Clone, Debug)]
pub struct PendingRow {
    /// Rows of the relQuery that get its answer; the first is the one that ran.
    pub targets: Vec<u32>,
    /// The request; its row number is given by the loop.
    pub item: WorkItem,
    /// Present where the answer is the same every time: it may be shared in flight and cached.
    pub key: Option<CellKey>,
}

/// What the loop thread is told.
#[derive(Debug)]
pub enum Message {
    /// Run these rows.
    Submit(Job),
    /// Nobody reads this relQuery any more.
    Leave(Arc<RelQueryState>),
    /// Let go what a pin holds.
    Unpin(PinId),
    /// A replica of a fleet reports, or an operator wishes.
    Fleet(FleetMessage),
    /// Hand over what is recorded of relQueries that have not ended.
    Open(SyncSender<Vec<Arc<RelQueryRecord>>>),
    /// Serve by this policy.
    SetPolicy(Policy),
    /// Somebody looks: wake up and show what there is.
    Look,
    /// Fail what is unfinished and end the thread.
    Stop,
}

/// How long to wait for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all.
    No,
    /// So long at most.
    For(Nanos),
    /// Until there is one.
    Forever,
}

/// The bounded inbox.
#[derive(Debug)]
pub struct Intake {
    inbox: Mutex<VecDeque<Message>>,
    wake: Condvar,
    room: Mutex<QueueRoom>,
}

impl Intake {
    /// An empty inbox that admits at most `rows_max` unfinished rows.
    pub fn new(rows_max: u64) -> Self {
        Self {
            inbox: Mutex::new(VecDeque::new()),
            wake: Condvar::new(),
            room: Mutex::new(QueueRoom::new(rows_max)),
        }
    }

    fn inbox(&self) -> MutexGuard<'_, VecDeque<Message>> {
        self.inbox.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn room(&self) -> MutexGuard<'_, QueueRoom> {
        self.room.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Hands rows to the loop, or refuses; `taken` comes before the loop can have seen them.
    pub fn submit(&self, job: Job, taken: impl FnOnce()) -> Result<(), Full> {
        let mut inbox = self.inbox();
        self.room().take(job.account.tenant, job.weight, job.rows())?;
        taken();
        inbox.push_back(Message::Submit(job));
        self.wake.notify_one();
        Ok(())
    }

    /// Keeps room for rows that are not ready yet; [`Intake::submit_reserved`] or [`Intake::finished`] gives
    /// it back.
    pub fn reserve(&self, caller: Caller, rows: u64) -> Result<(), Full> {
        self.room().take(caller.tenant, caller.weight, rows)
    }

    /// Hands rows to the loop that have room; what they do not need of it is free again.
    pub fn submit_reserved(&self, job: Job, reserved: u64) {
        let (tenant, unused) = (job.account.tenant, reserved.saturating_sub(job.rows()));
        self.push(Message::Submit(job));
        self.finished(tenant, unused);
    }

    /// Says that nobody reads a relQuery any more.
    pub fn leave(&self, relquery: Arc<RelQueryState>) {
        self.push(Message::Leave(relquery));
    }

    /// Says that nobody keeps a pin any more.
    pub fn unpin(&self, pin: PinId) {
        self.push(Message::Unpin(pin));
    }

    /// Tells a fleet what a replica of it reports. Bounded by the rows in flight.
    pub fn tell_fleet(&self, message: FleetMessage) {
        self.push(Message::Fleet(message));
    }

    /// Says that somebody looks. Bounded by those who may.
    pub fn look(&self) {
        self.push(Message::Look);
    }

    /// Asks for what is recorded of relQueries that have not ended.
    pub fn ask_open(&self, to: SyncSender<Vec<Arc<RelQueryRecord>>>) {
        self.push(Message::Open(to));
    }

    /// Asks the loop to serve by this policy.
    pub fn set_policy(&self, policy: Policy) {
        self.push(Message::SetPolicy(policy));
    }

    /// Ends the loop.
    pub fn stop(&self) {
        self.push(Message::Stop);
    }

    fn push(&self, message: Message) {
        self.inbox().push_back(message);
        self.wake.notify_one();
    }

    /// Rows of a tenant finished (or were joined to others): room for new ones.
    pub fn finished(&self, tenant: TenantId, rows: u64) {
        self.room().give_back(tenant, rows);
    }

    /// Unfinished rows.
    pub fn unfinished(&self) -> u64 {
        self.room().unfinished()
    }

    /// Unfinished rows that are admitted.
    pub fn rows_max(&self) -> u64 {
        self.room().rows_max()
    }

    /// From now on so many unfinished rows are admitted.
    pub fn set_rows_max(&self, rows_max: u64) {
        self.room().set_rows_max(rows_max);
    }

    /// Takes what is there, waiting for it as said.
    pub fn take(&self, wait: Wait) -> VecDeque<Message> {
        let mut inbox = self.inbox();
        match wait {
            Wait::No => {}
            Wait::For(span) => {
                let span = std::time::Duration::from_nanos(span.0);
                let waited = self.wake.wait_timeout_while(inbox, span, |inbox| inbox.is_empty());
                inbox = waited.unwrap_or_else(|poisoned| poisoned.into_inner()).0;
            }
            Wait::Forever => {
                let waited = self.wake.wait_while(inbox, |inbox| inbox.is_empty());
                inbox = waited.unwrap_or_else(|poisoned| poisoned.into_inner());
            }
        }
        std::mem::take(&mut *inbox)
    }
}
