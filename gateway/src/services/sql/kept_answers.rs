//! Answers of a statement that may have a ticket: they are kept with it, each with what it used in one transaction. After a
//! kill the next start asks for none of them again, and none is counted twice.
//!
//! Before there is a ticket they are counted as any other's, and wait for it; what they used is stored before the ticket is.
//! At most `sql.ticket_bytes_max` of them are kept, and none where those that wait have no room among what the tenant may
//! keep (`limits.tenant_ticket_bytes_max`): others are counted, and run again after a kill.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use actix_web::web::Data;
use base::Bytes;
use serde_json::{Value, json};
use serving::Runtime;
use serving::error::{RequestError, stored};
use serving::relquery_state::RowCharge;
use serving::results::{Answer, CellKey};
use serving::submit::{Prepared, parse_answer, render_answer};
use serving::usage_writer;
use store::{FIRST_WORK_ROW, NewTicket, TicketRow, UnixMillis, UsageRow};

use crate::services::tickets;
use crate::state::App;

/// The answers of a statement.
#[derive(Debug)]
pub struct KeptAnswers {
    /// Those that an earlier start has kept, by [`name_of`] their keys.
    known: HashMap<String, Answer>,
    keeping: tokio::sync::Mutex<Keeping>,
    /// Whether the statement is counted as a request.
    is_counted: AtomicBool,
    /// Whether another gateway, or the next start, goes on with the statement.
    runs_again: AtomicBool,
}

#[derive(Debug)]
struct Keeping {
    place: KeepingPlace,
    size: KeptSize,
}

/// How many rows of a ticket have answers, and their bytes.
#[derive(Debug, Default)]
struct KeptSize {
    rows: u32,
    bytes: u64,
}

impl KeptSize {
    /// The next row, with the answer of a row that ran. `None`: it has none, or there is no room for it.
    fn row_of(&mut self, charge: &RowCharge, bytes_max: Bytes) -> Option<TicketRow> {
        let (key, answer) = charge.answer.as_ref()?;
        let result = json!({ "key": name_of(key), "answer": render_answer(answer) }).to_string();
        let bytes = self.bytes.saturating_add(result.len() as u64);
        if bytes > bytes_max.0 {
            return None;
        }
        let row = FIRST_WORK_ROW.saturating_add(self.rows);
        *self = Self { rows: self.rows.saturating_add(1), bytes };
        Some(TicketRow { row, result, failed: false })
    }
}

/// Where answers go.
#[derive(Debug)]
enum KeepingPlace {
    /// There is no ticket yet. They are counted, and wait for one.
    Waiting(Vec<TicketRow>),
    /// Into the ticket of this name, where they are counted.
    Ticket(String),
    /// Nowhere: the ticket is over, or its tenant has no room for them. They are counted.
    Nowhere,
    /// Another gateway, or another start, runs them again and counts them.
    Elsewhere,
}

/// What became of answers that were to go into a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeepResult {
    Done,
    /// The ticket takes none.
    Refused,
    /// The ticket is another's, or this server ends.
    Elsewhere,
}

impl Default for KeptAnswers {
    fn default() -> Self {
        let place = KeepingPlace::Waiting(Vec::new());
        let keeping = Keeping { place, size: KeptSize::default() };
        let (is_counted, runs_again) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { known: HashMap::new(), keeping: keeping.into(), is_counted, runs_again }
    }
}

impl KeptAnswers {
    /// What an earlier start has kept with a ticket, which goes on.
    pub fn of_ticket(id: &str, kept: &[TicketRow]) -> Self {
        let mut size = KeptSize::default();
        for TicketRow { row, result, .. } in kept {
            size.rows = row.saturating_sub(FIRST_WORK_ROW).saturating_add(1);
            size.bytes += result.len() as u64;
        }
        let keeping = Keeping { place: KeepingPlace::Ticket(id.to_owned()), size };
        let known = kept.iter().filter_map(|row| known_answer(&row.result)).collect();
        // It was counted before there was a ticket.
        let (is_counted, runs_again) = (AtomicBool::new(true), AtomicBool::new(false));
        Self { known, keeping: keeping.into(), is_counted, runs_again }
    }

    /// Another gateway, or the next start, goes on with the statement: it runs the rows again that have no answer here, and
    /// counts them.
    pub fn run_again(&self) {
        self.runs_again.store(true, Ordering::Relaxed);
    }

    /// Whether rows that have no answer here run again elsewhere.
    pub fn runs_again(&self) -> bool {
        self.runs_again.load(Ordering::Relaxed)
    }

    /// Whether the statement is to be counted as a request now: once, over all its starts.
    pub fn counts(&self) -> bool {
        !self.is_counted.swap(true, Ordering::Relaxed)
    }

    /// Answers the rows whose answers are known.
    pub fn answer(&self, prepared: &mut Prepared) {
        if self.known.is_empty() {
            return;
        }
        let Prepared { parts, answered, .. } = prepared;
        for part in parts.iter_mut() {
            part.rows.retain(|row| {
                let Some(answer) = row.key.and_then(|key| self.known.get(&name_of(&key))) else {
                    return true;
                };
                answered.extend(row.targets.iter().map(|target| (*target, answer.clone())));
                false
            });
        }
        parts.retain(|part| !part.rows.is_empty());
    }

    /// Writes down the ticket of the statement with the answers that wait for it. Others go into it from now on.
    pub async fn begin(&self, app: &App, ticket: NewTicket<'_>, now: UnixMillis) -> Result<(), RequestError> {
        // Held to the end: no answer is counted meanwhile.
        let mut keeping = self.keeping.lock().await;
        for model in app.models.iter() {
            stored(usage_writer::store_usage(&model.runtime).await)?;
        }
        let id = ticket.id.to_owned();
        let waiting = match &keeping.place {
            KeepingPlace::Waiting(rows) => rows.as_slice(),
            KeepingPlace::Ticket(_) | KeepingPlace::Nowhere | KeepingPlace::Elsewhere => &[],
        };
        let made = tickets::create(app, ticket.clone(), waiting, now).await;
        keeping.place = match made {
            // It ends without them, as those do beyond what one ticket keeps.
            Err(RequestError::TicketsFull { .. }) if !waiting.is_empty() => {
                tickets::create(app, ticket, &[], now).await?;
                KeepingPlace::Nowhere
            }
            made => {
                made?;
                KeepingPlace::Ticket(id)
            }
        };
        Ok(())
    }

    /// Counts what rows used that ran, and keeps their answers.
    async fn take(&self, app: &App, runtime: &Runtime, charges: Vec<RowCharge>) {
        let shared = &runtime.shared;
        let mut keeping = self.keeping.lock().await;
        let Keeping { place, size } = &mut *keeping;
        let mut row_of = |charge: &RowCharge| size.row_of(charge, app.config.sql.ticket_bytes_max);
        let id = match place {
            KeepingPlace::Elsewhere => return shared.leave_charges(charges),
            KeepingPlace::Nowhere => return shared.count_charges(charges),
            KeepingPlace::Waiting(waiting) => {
                waiting.extend(charges.iter().filter_map(row_of));
                return shared.count_charges(charges);
            }
            KeepingPlace::Ticket(id) => id,
        };
        let model_day = (runtime.model.name.as_str(), shared.unix_now().day());
        let (mut rows, mut kept, mut others) = (Vec::new(), Vec::new(), Vec::new());
        for charge in charges {
            match row_of(&charge) {
                Some(row) => {
                    let usage = usage_writer::row_of(model_day, charge.account, &charge.spent);
                    rows.push((row, Some(usage)));
                    kept.push(charge);
                }
                None => others.push(charge),
            }
        }
        shared.count_charges(others);
        match write(app, id, &rows).await {
            KeepResult::Done => shared.recorded_charges(kept),
            KeepResult::Refused => {
                *place = KeepingPlace::Nowhere;
                shared.count_charges(kept);
            }
            KeepResult::Elsewhere => {
                *place = KeepingPlace::Elsewhere;
                shared.leave_charges(kept);
            }
        }
    }
}

/// Writes answers into a ticket, however long the database is away.
async fn write(app: &App, id: &str, rows: &[(TicketRow, Option<UsageRow>)]) -> KeepResult {
    if rows.is_empty() {
        return KeepResult::Done;
    }
    loop {
        match app.runtime.store.keep_work_rows(id, &app.config.store.node, rows).await {
            Ok(()) => return KeepResult::Done,
            Err(store::Error::Missing("lease")) => return KeepResult::Elsewhere,
            // It was called off, say.
            Err(store::Error::Missing(_)) => return KeepResult::Refused,
            Err(error) if !error.is_transient() => {
                tracing::warn!(%error, ticket = id, "answers of a statement are not kept");
                return KeepResult::Refused;
            }
            Err(error) => tracing::warn!(%error, ticket = id, "answers of a statement are not kept yet"),
        }
        if !tickets::is_retried(app).await {
            return KeepResult::Elsewhere;
        }
    }
}

/// How a ticket names the key of an answer.
fn name_of(key: &CellKey) -> String {
    key.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// An answer that a ticket has kept, by the name of its key.
fn known_answer(result: &str) -> Option<(String, Answer)> {
    let kept: Value = serde_json::from_str(result).ok()?;
    Some((kept["key"].as_str()?.to_owned(), parse_answer(kept["answer"].as_str()?)?))
}

/// Who keeps the answers of one column.
#[derive(Clone)]
pub struct AnswerKeeper {
    pub app: Data<App>,
    /// That of the column's model.
    pub runtime: Arc<Runtime>,
    pub answers: Arc<KeptAnswers>,
}

impl AnswerKeeper {
    /// Counts what rows used that ran, and keeps their answers. A task of its own: whoever waits may leave.
    pub async fn take(&self, charges: Vec<RowCharge>) {
        if charges.is_empty() {
            return;
        }
        let Self { app, runtime, answers } = self.clone();
        let taking = tokio::spawn(async move { answers.take(&app, &runtime, charges).await });
        if let Err(error) = taking.await {
            tracing::error!(%error, "answers of a statement were not counted");
        }
    }
}

#[cfg(test)]
mod tests {
    use base::{End, TokenCount};

    use super::*;

    #[test]
    fn an_answer_that_a_ticket_has_kept_is_found_by_its_key() {
        let answer = Answer {
            text: "yes".into(),
            end: End::Stop,
            prompt: TokenCount(9),
            output: TokenCount(3),
            probability: Some(0.5),
        };
        let result = json!({ "key": name_of(&[171; 32]), "answer": render_answer(&answer) }).to_string();
        let kept = [
            TicketRow { row: FIRST_WORK_ROW, result: "{}".to_owned(), failed: false },
            TicketRow { row: FIRST_WORK_ROW + 4, result, failed: false },
        ];
        let mut answers = KeptAnswers::of_ticket("sq-1", &kept);
        assert_eq!(answers.known, HashMap::from([("ab".repeat(32), answer)]));
        let size = &answers.keeping.get_mut().size;
        assert_eq!((size.rows, size.bytes), (5, 2 + kept[1].result.len() as u64), "others go behind it");
    }
}
