//! An eye on GPUs that wait for one another: a rank that hangs would hold all of them for ever.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Ends all ranks together where a step does not end.
pub(super) struct Watchdog {
    state: Arc<WatchState>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct WatchState {
    now: Mutex<Watched>,
    wake: Condvar,
}

/// What is watched.
#[derive(Default)]
struct Watched {
    /// Number of the step that runs, while one does.
    step: Option<u64>,
    steps: u64,
    is_over: bool,
}

/// A step that is watched until this is dropped.
pub(super) struct Watch<'a>(&'a WatchState);

impl Watchdog {
    /// Watches steps, each of which may take `limit`; `end` ends all ranks.
    pub(super) fn new(limit: Duration, end: impl Fn() + Send + 'static) -> Self {
        let state = Arc::new(WatchState::default());
        let own = Arc::clone(&state);
        let thread = std::thread::spawn(move || own.run(limit, end));
        Self { state, thread: Some(thread) }
    }

    /// A step begins.
    pub(super) fn watch(&self) -> Watch<'_> {
        self.state.change(|now| {
            now.steps += 1;
            now.step = Some(now.steps);
        });
        Watch(&self.state)
    }
}

impl WatchState {
    fn change(&self, change: impl FnOnce(&mut Watched)) {
        change(&mut self.now.lock().unwrap_or_else(PoisonError::into_inner));
        self.wake.notify_all();
    }

    fn run(&self, limit: Duration, end: impl Fn()) {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        while !now.is_over {
            let Some(step) = now.step else {
                now = self.wake.wait(now).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let is_running = |now: &mut Watched| now.step == Some(step) && !now.is_over;
            let waited = self.wake.wait_timeout_while(now, limit, is_running);
            let (after, waiting) = waited.unwrap_or_else(PoisonError::into_inner);
            now = after;
            if waiting.timed_out() {
                tracing::error!(
                    step,
                    seconds = limit.as_secs(),
                    "a step of several GPUs does not end: all ranks are ended"
                );
                end();
                now.step = None;
            }
        }
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.0.change(|now| now.step = None);
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.state.change(|now| now.is_over = true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_step_that_does_not_end_is_ended_and_others_are_left_alone() {
        let (sender, ended) = mpsc::channel();
        let end = move || sender.send(()).expect("the test listens");
        let watchdog = Watchdog::new(Duration::from_millis(20), end);
        let hanging = watchdog.watch();
        ended.recv().expect("it is ended, however long that takes");
        drop(hanging);
        drop(watchdog);
        assert!(ended.recv().is_err(), "once, and the thread is gone");

        let (sender, ended) = mpsc::channel();
        let end = move || sender.send(()).expect("the test listens");
        let watchdog = Watchdog::new(Duration::MAX, end);
        (0..100).for_each(|_| drop(watchdog.watch()));
        drop(watchdog);
        assert!(ended.recv().is_err(), "steps that end are not");
    }
}
