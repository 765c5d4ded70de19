//! What was used for lines that were called off with their batch, so that no line is recorded with it: it is written with what
//! is said of the batch, in one transaction. A kill leaves it out of both or of neither, and whoever ends the batch finds it.
//! Must not know how lines run.

use std::sync::Arc;
use std::time::Duration;

use store::UsageRow;

use super::rows::LineUsage;
use super::watch::Stop;
use super::{Batch, Summary, note};
use crate::state::App;

/// Time between two tries, while the database is away or full.
const RETRY: Duration = Duration::from_secs(1);

/// Writes it down before the batch ends. How the worker stops then: not at the batch's end, where that is not its own any more
/// or the server ends first.
pub(super) async fn keep(app: &Arc<App>, batch: &mut Batch, stop: Stop, used: Vec<LineUsage>) -> Stop {
    if used.is_empty() {
        return stop;
    }
    if stop == Stop::Left {
        // The next start ends the batch, and tells nothing of this: usage is not to have it either, as after a kill. Of one that
        // is lost nobody runs these lines again: they were called off before.
        let end = if app.runtime.is_draining() { LineUsage::left } else { LineUsage::counted };
        used.into_iter().for_each(end);
        return stop;
    }
    let mut tokens = batch.summary.called_off;
    used.iter().for_each(|lines| tokens = tokens.plus(lines.tokens().into()));
    let summary = Summary { called_off: tokens, ..batch.summary.clone() };
    let mut may_be_kept = false;
    loop {
        let day = app.runtime.shared.unix_now().day();
        let rows: Vec<UsageRow> = used.iter().map(|lines| lines.row(batch.tenant, day)).collect();
        match note(app, &batch.id, &summary, &rows).await {
            Ok(()) => {
                batch.summary = summary;
                used.into_iter().for_each(LineUsage::recorded);
                return stop;
            }
            Err(store::Error::Missing(what)) => {
                tracing::warn!(batch = batch.id, "a batch has no {what} any more: it is another's to end");
                // A try before may have been kept all the same: memory would count it twice.
                let end = if may_be_kept { LineUsage::left } else { LineUsage::counted };
                used.into_iter().for_each(end);
                return Stop::Left;
            }
            Err(error) => {
                tracing::warn!(%error, batch = batch.id, "what was called off of a batch is not written yet");
                may_be_kept = true;
            }
        }
        if app.runtime.is_draining() {
            used.into_iter().for_each(LineUsage::left);
            return Stop::Left;
        }
        tokio::time::sleep(RETRY).await;
    }
}
