//! First come, first served, in mixed steps (Sarathi): all that runs decodes, and what is left of
//! `chunk_tokens` goes to prompts, which are cut to fit.

use super::rules::{Rules, by_arrival, no_arrival, no_update};
use crate::Scheduler;
use crate::choice::Choice;

pub(super) const RULES: Rules =
    Rules { priority: by_arrival, choose, on_arrival: no_arrival, on_plan: no_update, sends: None };

fn choose(scheduler: &mut Scheduler) -> Choice {
    scheduler.mixed(scheduler.config.chunk_tokens.0, |scheduler| scheduler.offers(false))
}
