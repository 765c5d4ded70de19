//! First come, first served, prefill first: vLLM's default, and the baseline of every comparison.

use super::rules::{Rules, by_arrival, no_arrival, no_update};
use crate::Scheduler;

pub(super) const RULES: Rules = Rules {
    priority: by_arrival,
    choose: Scheduler::prefill_first,
    on_arrival: no_arrival,
    on_plan: no_update,
    sends: None,
};
