//! Executors that are lost by a script, and what makes the next ones.

use std::collections::HashSet;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use base::{BatchPlan, ExecError, Executor, RequestId, StepOutcome};
use serving::driver::ExecutorFactory;

/// What goes wrong, over all executors that follow one another.
#[derive(Default)]
pub struct Script {
    state: Mutex<State>,
    changed: Condvar,
}

/// How an executor is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// It says so.
    Lost,
    /// It panics.
    Panic,
}

/// What a lost executor does when it is dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Last {
    /// It goes.
    #[default]
    Goes,
    /// It panics.
    Panics,
    /// It stays until the script is released.
    Hangs,
}

#[derive(Default)]
struct State {
    steps: u64,
    /// Steps with which the executor is lost, counted from 1.
    at: Vec<(u64, Way)>,
    /// A word that loses the executor with each step its prompt is in; in decodes only, if so.
    poison: Option<(&'static str, bool)>,
    poisoned: HashSet<RequestId>,
    last: Last,
    /// Attempts to make another that fail first.
    failing: u64,
    is_shut: bool,
    attempts: u64,
    hanging: u64,
}

impl Script {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Loses the executor with this step.
    pub fn at(&self, step: u64, way: Way) {
        self.state().at.push((step, way));
    }

    /// Loses none by number any more.
    pub fn forgive(&self) {
        self.state().at.clear();
    }

    /// Loses it with each step, or each decode, of a prompt with this word.
    pub fn poison(&self, word: &'static str, only_decodes: bool) {
        self.state().poison = Some((word, only_decodes));
    }

    /// Has lost executors do this when they are dropped.
    pub fn last(&self, last: Last) {
        self.state().last = last;
    }

    /// The next attempts to make one fail: by an error and by a panic, in turn.
    pub fn fail(&self, attempts: u64) {
        self.state().failing = attempts;
    }

    /// Attempts wait from now on.
    pub fn shut(&self) {
        self.state().is_shut = true;
    }

    /// What waits goes on.
    pub fn release(&self) {
        let mut state = self.state();
        (state.is_shut, state.last) = (false, Last::Goes);
        self.changed.notify_all();
    }

    /// Attempts begun.
    pub fn attempts(&self) -> u64 {
        self.state().attempts
    }

    /// Executors that hang in their drop.
    pub fn hanging(&self) -> u64 {
        self.state().hanging
    }

    /// An executor that follows the script.
    pub fn executor(self: &Arc<Self>, inner: Box<dyn Executor>) -> Box<dyn Executor> {
        Box::new(Faulty { inner, script: Arc::clone(self), is_lost: false })
    }

    /// Makes the next ones.
    pub fn executor_factory(
        self: &Arc<Self>,
        inner: impl Fn() -> Result<Box<dyn Executor>, String> + Send + Sync + 'static,
    ) -> ExecutorFactory {
        let script = Arc::clone(self);
        Arc::new(move || {
            let mut state = script.state();
            state.attempts += 1;
            while state.is_shut {
                state = script.changed.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
            }
            let fails = state.failing > 0;
            state.failing -= u64::from(fails);
            let number = state.attempts;
            drop(state);
            assert!(!fails || number.is_multiple_of(2), "the test asked for a panic");
            if fails { Err("the test asked for a failure".into()) } else { Ok(script.executor(inner()?)) }
        })
    }

    /// What becomes of a step.
    fn way(&self, plan: &BatchPlan) -> Option<Way> {
        let mut state = self.state();
        state.steps += 1;
        let step = state.steps;
        let Some((word, only_decodes)) = state.poison else {
            return state.at.iter().find(|(at, _)| *at == step).map(|(_, way)| *way);
        };
        for slot in &plan.slots {
            let bytes: Vec<u8> = slot.input.iter().filter_map(|token| u8::try_from(token.0).ok()).collect();
            if bytes.windows(word.len()).any(|window| window == word.as_bytes()) {
                state.poisoned.insert(slot.request);
            }
        }
        let fatal =
            |slot: &base::Slot| state.poisoned.contains(&slot.request) && !(only_decodes && slot.is_prefill);
        plan.slots.iter().any(fatal).then_some(Way::Lost)
    }
}

/// An executor that follows a script.
struct Faulty {
    inner: Box<dyn Executor>,
    script: Arc<Script>,
    is_lost: bool,
}

impl Executor for Faulty {
    fn step(&mut self, plan: &BatchPlan) -> Result<StepOutcome, ExecError> {
        assert!(!self.is_lost, "a lost executor is given work");
        let way = self.script.way(plan);
        self.is_lost = way.is_some();
        match way {
            None => self.inner.step(plan),
            Some(Way::Lost) => Err(ExecError::Lost("the test asked for it".into())),
            Some(Way::Panic) => panic!("the test asked for a panic"),
        }
    }
}

impl Drop for Faulty {
    fn drop(&mut self) {
        let mut state = self.script.state();
        if !self.is_lost {
            return;
        }
        if state.last == Last::Hangs {
            state.hanging += 1;
            while state.last == Last::Hangs {
                state = self.script.changed.wait(state).unwrap_or_else(|poisoned| poisoned.into_inner());
            }
        }
        let panics = state.last == Last::Panics;
        drop(state);
        assert!(!panics, "the test asked for a panic in a drop");
    }
}
