//! Health by progress: not "the process is up" but "steps finish while there is work".
//!
//! Written by the loop thread, read by `/healthz`; `now` is an argument.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::{Nanos, Time};

/// How the loop is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// It is idle, or steps finish.
    Ok,
    /// The executor was lost and another is being made: work is taken and waits.
    Restarting,
    /// There is work, and nothing has come of it for too long.
    Stuck,
    /// The executor is gone for good.
    Dead,
}

impl Health {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Restarting => "restarting",
            Self::Stuck => "stuck",
            Self::Dead => "dead",
        }
    }

    /// Whether nobody needs to do anything.
    pub fn is_well(self) -> bool {
        matches!(self, Self::Ok | Self::Restarting)
    }
}

/// How long the loop may show no progress.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    pub step: Nanos,
    /// In one attempt to make an executor.
    pub attempt: Nanos,
}

/// The loop's pulse.
#[derive(Debug, Default)]
pub struct Pulse {
    busy: AtomicBool,
    resting: AtomicBool,
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

    /// The executor is gone, and an attempt to make another began then.
    pub fn rest(&self, since: Time) {
        self.progress.store(since.0, Ordering::Release);
        self.resting.store(true, Ordering::Release);
    }

    /// There is an executor again, or never will be.
    pub fn wake(&self, now: Time) {
        self.progress.store(now.0, Ordering::Release);
        self.resting.store(false, Ordering::Release);
    }

    /// Whether another executor is being made.
    pub fn is_resting(&self) -> bool {
        self.resting.load(Ordering::Acquire)
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

    /// Whether work gets done: idle, or with a step finished a short while ago.
    pub fn health(&self, now: Time, patience: Patience) -> Health {
        let passed = now.since(Time(self.progress.load(Ordering::Acquire)));
        match (self.is_dead(), self.is_resting(), self.busy.load(Ordering::Acquire)) {
            (true, ..) => Health::Dead,
            (_, true, _) if passed <= patience.attempt => Health::Restarting,
            (_, false, is_busy) if !is_busy || passed <= patience.step => Health::Ok,
            _ => Health::Stuck,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_work_without_progress_is_unhealthy() {
        let pulse = Pulse::default();
        let patience = Patience { step: Nanos(30), attempt: Nanos(300) };
        let health = |now| pulse.health(Time(now), patience);
        assert_eq!(health(1_000), Health::Ok, "idle is healthy however long");
        pulse.busy(Time(1_000));
        assert_eq!(health(1_030), Health::Ok);
        assert_eq!(health(1_031), Health::Stuck);
        pulse.step(Time(1_031));
        pulse.busy(Time(1_050));
        assert_eq!(health(1_061), Health::Ok);
        assert_eq!(health(1_062), Health::Stuck, "being busy is not progress");
        pulse.idle();
        assert_eq!(health(9_999), Health::Ok);
        pulse.die();
        assert_eq!(health(9_999), Health::Dead);
    }

    #[test]
    fn an_attempt_to_make_an_executor_may_take_longer_than_a_step_and_not_for_ever() {
        let pulse = Pulse::default();
        let patience = Patience { step: Nanos(30), attempt: Nanos(300) };
        let health = |now| pulse.health(Time(now), patience);
        pulse.busy(Time(1_000));
        pulse.rest(Time(1_000));
        assert_eq!(health(1_300), Health::Restarting);
        assert_eq!(health(1_301), Health::Stuck);
        pulse.rest(Time(1_400));
        pulse.idle();
        assert_eq!(health(1_700), Health::Restarting);
        assert_eq!(health(1_701), Health::Stuck, "without work too: the next would wait");
        pulse.busy(Time(1_705));
        pulse.wake(Time(1_710));
        assert_eq!(health(1_740), Health::Ok);
        pulse.rest(Time(1_750));
        pulse.die();
        assert_eq!(health(1_751), Health::Dead);
    }
}
