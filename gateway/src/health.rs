//! Health by progress: not "the process is up" but "steps finish while there is work".
//!
//! Written by the loop thread, read by `/healthz`; `now` is an argument.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::{Nanos, Time};

/// The loop's pulse.
#[derive(Debug, Default)]
pub struct Pulse {
    busy: AtomicBool,
    dead: AtomicBool,
    progress: AtomicU64,
    steps: AtomicU64,
    rows: AtomicU64,
}

impl Pulse {
    /// There is work from `now` on; the stretch starts where it was idle before.
    pub fn busy(&self, now: Time) {
        if !self.busy.swap(true, Ordering::AcqRel) {
            self.progress.store(now.0, Ordering::Release);
        }
    }

    /// There is no work.
    pub fn idle(&self) {
        self.busy.store(false, Ordering::Release);
    }

    /// A step finished.
    pub fn step(&self, now: Time) {
        self.progress.store(now.0, Ordering::Release);
        self.steps.fetch_add(1, Ordering::AcqRel);
    }

    /// Something was taken in that is progress, and no step.
    pub fn turned(&self, now: Time) {
        self.progress.store(now.0, Ordering::Release);
    }

    /// A row finished.
    pub fn row(&self) {
        self.rows.fetch_add(1, Ordering::AcqRel);
    }

    /// Rows finished since the start.
    pub fn rows(&self) -> u64 {
        self.rows.load(Ordering::Acquire)
    }

    /// The executor is gone for good.
    pub fn die(&self) {
        self.dead.store(true, Ordering::Release);
    }

    /// Whether the executor is gone for good.
    pub fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Acquire)
    }

    /// Steps finished since the start.
    pub fn steps(&self) -> u64 {
        self.steps.load(Ordering::Acquire)
    }

    /// Whether work gets done: alive, and idle or with a step finished within `stuck_max`.
    pub fn is_healthy(&self, now: Time, stuck_max: Nanos) -> bool {
        let last = Time(self.progress.load(Ordering::Acquire));
        !self.is_dead() && (!self.busy.load(Ordering::Acquire) || now.since(last) <= stuck_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_work_without_progress_is_unhealthy() {
        let pulse = Pulse::default();
        let stuck = Nanos(30);
        assert!(pulse.is_healthy(Time(1_000), stuck), "idle is healthy however long");
        pulse.busy(Time(1_000));
        assert!(pulse.is_healthy(Time(1_030), stuck));
        assert!(!pulse.is_healthy(Time(1_031), stuck));
        pulse.step(Time(1_031));
        pulse.busy(Time(1_050));
        assert!(pulse.is_healthy(Time(1_061), stuck));
        assert!(!pulse.is_healthy(Time(1_062), stuck), "being busy is not progress");
        pulse.idle();
        assert!(pulse.is_healthy(Time(9_999), stuck));
        pulse.die();
        assert!(!pulse.is_healthy(Time(9_999), stuck));
    }
}
