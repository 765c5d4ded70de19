//! A fresh executor in place of a lost one, made on a thread of its own: the loop never waits for it.
//!
//! The lost one is dropped first, for it may hold the memory that the fresh one needs. It may hang or panic
//! at that, so that has a thread of its own as well, and a bound. An attempt that fails is followed by
//! another, after a pause that doubles each time. Must not know the scheduler.

use std::any::Any;
use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::time::Duration;

use base::{Executor, Millis};

use crate::config::RestartConfig;

/// Makes an executor like the first one. It is called where it may take its time, fail and panic.
pub type ExecutorFactory = Arc<dyn Fn() -> Result<Box<dyn Executor>, String> + Send + Sync>;

/// Has the engine's owner take a turn.
pub(crate) type Wake = Arc<dyn Fn() + Send + Sync>;

/// How it goes.
pub(super) enum Report {
    /// An attempt begins.
    Begins,
    /// It has failed, for this reason.
    Failed(String),
    /// Here it is.
    Made(Box<dyn Executor>),
    /// There will be no other attempt.
    GaveUp,
}

/// A fresh executor that is being made.
pub(super) struct PendingRestart {
    reports: Receiver<Report>,
    /// Dropped with this, which ends the wait for the next attempt.
    _wanted: Sender<Infallible>,
}

impl PendingRestart {
    /// Drops `lost` and begins to make another. `failures_before`: how many executors in a row have run
    /// nothing before.
    pub(super) fn begin(
        lost: Box<dyn Executor>,
        factory: ExecutorFactory,
        config: RestartConfig,
        failures_before: u32,
        wake: Wake,
    ) -> std::io::Result<Self> {
        let (tell, reports) = channel();
        let (wanted, is_wanted) = channel();
        let tell = move |report| {
            let _ = tell.send(report);
            wake();
        };
        let thread = std::thread::Builder::new().name("relserve-restart".into());
        thread.spawn(move || {
            if passes(config.drop_ms_max, &drop_apart(lost)) {
                tracing::warn!("the lost executor does not give its memory back");
            }
            make(&factory, &config, failures_before, &is_wanted, &tell);
        })?;
        Ok(Self { reports, _wanted: wanted })
    }

    /// What there is to hear, if anything.
    pub(super) fn poll(&self) -> Option<Report> {
        match self.reports.try_recv() {
            Ok(report) => Some(report),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Report::GaveUp),
        }
    }
}

/// Makes attempts until one succeeds, too many have failed, or nobody wants one any more.
fn make(
    factory: &ExecutorFactory,
    config: &RestartConfig,
    failures_before: u32,
    is_wanted: &Receiver<Infallible>,
    tell: &dyn Fn(Report),
) {
    for failures in 0..config.failures_max {
        let pause = config.pause(failures_before.saturating_add(failures));
        if !passes(pause, is_wanted) {
            return;
        }
        tell(Report::Begins);
        match catch_unwind(AssertUnwindSafe(|| factory())) {
            Ok(Ok(executor)) => return tell(Report::Made(executor)),
            Ok(Err(reason)) => tell(Report::Failed(reason)),
            Err(panic) => tell(Report::Failed(format!("it panicked: {}", words(&*panic)))),
        }
    }
    tell(Report::GaveUp);
}

/// Drops an executor on a thread of its own; what is given back is disconnected when that is done.
pub(super) fn drop_apart(lost: Box<dyn Executor>) -> Receiver<Infallible> {
    let (done, is_done) = channel();
    let thread = std::thread::Builder::new().name("relserve-drop".into());
    let begun = thread.spawn(move || {
        let _done = done;
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(lost))) {
            tracing::warn!(panic = words(&*panic), "the lost executor panicked as it was dropped");
        }
    });
    if let Err(error) = begun {
        tracing::error!(%error, "no thread to drop the lost executor on");
    }
    is_done
}

/// Whether a span passes before a sender is gone.
fn passes(span: Millis, sender: &Receiver<Infallible>) -> bool {
    sender.recv_timeout(Duration::from_millis(span.0)) == Err(RecvTimeoutError::Timeout)
}

/// What a panic says.
pub(super) fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("without a word")
}
