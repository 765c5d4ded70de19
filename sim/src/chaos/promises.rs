//! What a plan must look like, and what each policy promises about waiting.

use std::collections::BTreeSet;

use base::{BatchKind, BatchPlan};
use scheduler::{Policy, Reason, Scheduler, Speculation};

/// How far a policy lets others go before a relQuery that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bound {
    /// No row starts while one of an earlier relQuery has not.
    InOrder,
    /// It states none that holds whatever arrives.
    None,
}

/// What a policy states. One that states another bound gets its name above, and its check where this is
/// asked.
pub(super) fn starvation_bound(policy: Policy) -> Bound {
    if policy.is_prioritised() { Bound::None } else { Bound::InOrder }
}

/// A plan has work, no request twice, nobody who was retired, and keeps to its limits.
pub(super) fn check_plan(plan: &BatchPlan, scheduler: &Scheduler) -> Result<(), String> {
    let config = scheduler.config();
    // Some rows of a failed step run, others were taken back: they are tried together. First rows of a relQuery that is
    // alone have prompts ride with them under `auto`, whatever it names.
    let may_mix = matches!(scheduler.last_decision().reason, Reason::Trial | Reason::FirstRows);
    let requests: BTreeSet<_> = plan.slots.iter().map(|slot| slot.request).collect();
    if requests.is_empty() || requests.len() < plan.slots.len() {
        return Err("a plan is empty or names a request twice".into());
    }
    if plan.retired.iter().any(|request| requests.contains(request)) {
        return Err("a plan names a retired request".into());
    }
    if plan.slots.len() > config.sequences_max as usize {
        return Err(format!("{} slots in a step", plan.slots.len()));
    }
    let mixes = config.mixes_prefill_and_decode();
    if plan.kind() == BatchKind::Mixed && !mixes && !may_mix {
        return Err("a policy of two phases mixes them".into());
    }
    let prefills = plan.slots.iter().filter(|slot| slot.is_prefill).count();
    let guesses = plan.guesses();
    if guesses > 0 && (config.speculation == Speculation::Off || prefills > 0) {
        return Err(format!("{guesses} guesses where none are made"));
    }
    if guesses > u64::from(config.sequences_max) {
        return Err(format!("{guesses} guesses in a step"));
    }
    let (tokens, decodes) = (plan.prefill_tokens().0, plan.decode_sequences() + plan.decode_extra().0);
    let (limit, used) = (config.computed_tokens_max(), if mixes { tokens + decodes } else { tokens });
    // A row larger than a step goes alone.
    let is_larger = prefills == 1 && !config.policy.always_cuts_prompts();
    if prefills > 0 && used > limit && !is_larger {
        return Err(format!("{used} tokens in a step of {limit}"));
    }
    Ok(())
}
