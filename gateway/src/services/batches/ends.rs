//! Batches with which servers have ended: each take is noted in the store before the work begins, and after the last the
//! line that ran alone fails, or the batch where it is no line's fault.

use std::sync::Arc;

use serving::error::RequestError;

use super::Batch;
use super::lines::{LineError, Request};
use super::rows::failure;
use super::watch::{Stop, Watch};
use crate::services::files::Lines;
use crate::services::tickets;
use crate::state::App;

/// Notes that a worker begins, however long the database is away: what may end the server does not begin before.
pub(super) async fn take_up(app: &Arc<App>, batch: &Batch) -> Option<Stop> {
    let mut watch = Watch::new(app, batch);
    loop {
        match app.runtime.store.take_tickets(&[&batch.id], &tickets::lease(app)).await {
            Ok(()) => return None,
            Err(error) => tracing::warn!(%error, batch = batch.id, "a batch is not taken up yet"),
        }
        watch.due().await;
        if let Some(stop) = watch.look().await {
            return Some(stop);
        }
    }
}

/// Notes that nothing of a batch runs here for a while. If that is not written, an end of this server counts against it.
pub(super) async fn give_back(app: &App, batch: &Batch) {
    if let Err(error) = app.runtime.store.give_ticket_back(&batch.id, tickets::process(app)).await {
        tracing::warn!(%error, batch = batch.id, "a batch was not given back");
    }
}

/// Gives up the line with which the last of so many servers ended: lines ran one by one there, so it is the first that is
/// not recorded. The rest goes on. Where there is no such line the batch is given up.
pub(super) async fn give_up(
    app: &Arc<App>,
    batch: &mut Batch,
    ends: u64,
) -> Result<Option<Stop>, store::Error> {
    let error = RequestError::ServerEnded { times: ends };
    let line = match batch.summary.in_progress_at {
        Some(_) => fail_first(app, batch, &error).await?,
        None => None,
    };
    tracing::warn!(batch = batch.id, ?line, %error, "given up: servers end with it");
    app.runtime.shared.metrics.requests.given_up.inc();
    if line.is_some() {
        batch.ends = 0;
        return Ok(None);
    }
    let code = error.code().unwrap_or_default();
    Ok(Some(Stop::GivenUp(LineError::whole(code, error.to_string()))))
}

/// Fails the first line that is not recorded; its number. Tried again it is the same line, which may be recorded though the
/// store answered with an error.
async fn fail_first(
    app: &Arc<App>,
    batch: &mut Batch,
    error: &RequestError,
) -> Result<Option<u32>, store::Error> {
    let done = app.runtime.store.row_numbers(&batch.id).await?;
    let given_up = batch.given_up;
    let is_first = |line: u32| match given_up {
        Some(given_up) => line == given_up,
        None => done.binary_search(&line).is_err(),
    };
    let mut lines = Lines::of(&batch.request.input_file_id);
    while let Some(chunk) = lines.next(app).await? {
        let Some((line, text)) = chunk.lines().find(|(line, _)| is_first(*line)) else { continue };
        batch.given_up = Some(line);
        let request = Request::read(line, text, &batch.request.endpoint);
        let custom_id = request.map(|request| request.custom_id).unwrap_or_default();
        let row = failure(batch, (line, &custom_id), error);
        app.runtime.store.append_rows(&batch.id, &app.config.store.node, &[row]).await?;
        return Ok(Some(line));
    }
    Ok(None)
}
