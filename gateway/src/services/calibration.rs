//! Contextual calibration of closed choices (Zhao et al. 2021, arXiv 2102.09690): how likely a model finds each
//! label where there is no content, learned once per template, and what rows are then corrected by.
//!
//! What is asked runs as rows of the tenant whose call it is: they share the prefix of the rows that follow, and
//! count as its usage. Where it cannot be learned the rows run without it. Must not know HTTP.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

use base::ServiceClass;
use serving::caller::Caller;
use serving::error::{RequestError, internal};
use serving::relquery_state::RelQueryKind;
use serving::submit::{self, Prepared, Resumed};
use store::ResultKey;

use crate::config::CellsConfig;
use crate::models::ServedModel;
use crate::services::constraints::Purpose;
use crate::services::prepare::RequestContext;
use crate::services::prepare::cells::{CallGroup, can_calibrate, content_free_parts};
use crate::state::App;

/// Templates of a model that are remembered.
const KEPT_MAX: usize = 1_000;
/// Answers of a choice that is corrected: each is asked for once per content-free text.
pub const ANSWERS_MAX: u64 = 32;
/// What stands where a text would: the paper's, but for the empty one, which no prompt may have.
pub const CONTENT_FREE: [&str; 3] = ["N/A", "[MASK]", "..."];
/// Below this a probability is noise; steps of it are the same on every run.
const STEP: f64 = 1e-4;

/// How likely answers are without content, one for each, in the constraint's order.
pub type Priors = Arc<[f32]>;

/// What was learned of a model's templates.
#[derive(Default)]
pub struct Calibrations {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    priors: HashMap<[u8; 32], Priors>,
    /// Oldest first.
    order: VecDeque<[u8; 32]>,
}

impl Calibrations {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn keep(&self, key: [u8; 32], priors: &Priors) {
        let mut known = self.known();
        if known.priors.insert(key, Arc::clone(priors)).is_none() {
            known.order.push_back(key);
        }
        while known.order.len() > KEPT_MAX {
            if let Some(oldest) = known.order.pop_front() {
                known.priors.remove(&oldest);
            }
        }
    }
}

/// Whether the model may be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Learning {
    Run,
    /// What is known already is all there may be.
    Known,
}

/// How likely the answers of a call's template are without content; `None` where that is not asked for, not
/// possible, or failed.
pub async fn priors(
    app: &Arc<App>,
    model: &Arc<ServedModel>,
    caller: Caller,
    (group, guidance, learning): (&CallGroup, CellsConfig, Learning),
) -> Option<Priors> {
    if !guidance.calibration || !guidance.constraints || !can_calibrate(model.model(), group) {
        return None;
    }
    let key = key(caller, group, guidance);
    let known = model.calibrations.known().priors.get(&key).cloned();
    if known.is_some() {
        return known;
    }
    match learn(app, model, caller, (group.clone(), guidance, learning)).await {
        Ok(priors) => {
            model.calibrations.keep(key, &priors);
            Some(priors)
        }
        Err(_) if learning == Learning::Known => None,
        Err(error) => {
            tracing::warn!(%error, "the labels of a cell function are not calibrated");
            None
        }
    }
}

fn key(caller: Caller, (shared, constraint): &CallGroup, guidance: CellsConfig) -> [u8; 32] {
    let said = format!("{shared:?} {constraint:?} {guidance:?}");
    ResultKey::of(&[&caller.tenant.0.to_le_bytes()[..], said.as_bytes()]).0
}

async fn learn(
    app: &Arc<App>,
    model: &Arc<ServedModel>,
    caller: Caller,
    (group, guidance, learning): (CallGroup, CellsConfig, Learning),
) -> Result<Priors, RequestError> {
    let (state, served) = (Arc::clone(app), Arc::clone(model));
    let arrival = app.runtime.shared.clock.now();
    let parts = tokio::task::spawn_blocking(move || {
        let (tenant, purpose) = (caller.tenant, Purpose::Run);
        let context = RequestContext { app: &state, model: &served, tenant, purpose, arrival };
        content_free_parts(context, &group, guidance)
    });
    let parts = parts.await.map_err(internal)??;
    let answers = parts.len();
    let work = Prepared {
        kind: RelQueryKind::RelQuery,
        route: "cells",
        class: ServiceClass::Interactive,
        rows: answers * CONTENT_FREE.len(),
        failed: Vec::new(),
        deadline: None,
        pin: None,
        parts,
    };
    let relquery = match learning {
        Learning::Known => submit::known_answers(&model.runtime, caller, work).await,
        Learning::Run => {
            let handle = submit::submit(&model.runtime, caller, work, Resumed::default()).await?;
            handle.wait(None).await;
            Arc::clone(handle.relquery())
        }
    };
    let probabilities: Option<Vec<f64>> = relquery.read().rows.iter().map(|row| row.probability).collect();
    let Some(probabilities) = probabilities else {
        let reason = "a probability is not known: what runs the rows does not tell it";
        return Err(RequestError::Row(reason.into()));
    };
    Ok(mean(&probabilities))
}

/// The mean over the content-free texts, of probabilities by answer and then by text.
fn mean(probabilities: &[f64]) -> Priors {
    let means =
        probabilities.chunks(CONTENT_FREE.len()).map(|texts| texts.iter().sum::<f64>() / texts.len() as f64);
    let means: Vec<f64> = means.collect();
    let sum: f64 = means.iter().sum::<f64>().max(f64::MIN_POSITIVE);
    means.into_iter().map(|mean| ((mean / sum / STEP).round().max(1.0) * STEP) as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn priors_are_means_that_add_up_and_are_never_nothing() {
        let priors = mean(&[0.9, 0.7, 0.8, 0.1, 0.3, 0.2, 0.0, 0.0, 0.0]);
        assert_eq!(&*priors, [0.8, 0.2, 1e-4]);
    }

    #[test]
    fn the_oldest_template_is_forgotten_first() {
        let all = Calibrations::default();
        let key = |number: usize| {
            let mut key = [0; 32];
            key[..8].copy_from_slice(&number.to_le_bytes());
            key
        };
        for number in 0..=KEPT_MAX {
            all.keep(key(number), &[number as f32][..].into());
        }
        let known = all.known();
        assert_eq!((known.priors.len(), known.order.len()), (KEPT_MAX, KEPT_MAX));
        assert!(!known.priors.contains_key(&key(0)) && known.priors.contains_key(&key(1)));
    }
}
