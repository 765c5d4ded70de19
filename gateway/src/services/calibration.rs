//! Contextual calibration of closed choices (Zhao et al. 2021, arXiv 2102.09690): how likely a model finds each
//! label where there is no content, learned once per template, and what rows are then corrected by.
//!
//! What is asked runs as rows of the tenant whose call it is: they share the prefix of the rows that follow, and
//! count as its usage. Where it cannot be learned the rows run without it. Must not know HTTP.

use std::sync::Arc;

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
use crate::services::prepare::call_group::{CONTENT_FREE, CallGroup, can_calibrate, content_free_parts};
use crate::services::priors::Priors;
use crate::state::App;

/// Below this a probability is noise; steps of it are the same on every run.
const STEP: f64 = 1e-4;

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
    let known = model.calibrations.known(&key);
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
    let identity = format!("{shared:?} {constraint:?} {guidance:?}");
    ResultKey::of(&[&caller.tenant.0.to_le_bytes()[..], identity.as_bytes()]).0
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
        answered: Vec::new(),
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
}
