//! The rows of AI columns as relQueries: one for each column, which takes rows in windows; answers go to the
//! operator as they come, and what is dropped is cancelled. Must not know the protocol of the client.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use actix_web::web::Data;
use base::{Constraint, End, ServiceClass, TokenCount};
use futures_util::future::BoxFuture;
use ir::Cell;
use serving::account::Account;
use serving::caller::Caller;
use serving::column::{ColumnAnswers, ColumnRows, OpenColumn};
use serving::config::ReplicaSettings;
use serving::error::RequestError;
use serving::label::Label;
use serving::queue_room::rows_at_once_max;
use serving::relquery_state::{AnswerRow, AnswerSource, RelQueryKind, RowProgress};
use serving::submit::{self, Prepared};
use sql::budget::{BudgetSpent, ComputedCalls, Reservation};
use sql::runner::{
    AiColumn, Estimate, Outcome, PromptOrder, Row, RowAnswer, Run, RunError, RunOptions, Runner,
    TextEmbedder, TextVector, TokenPrice, Tokens,
};
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinSet;

use crate::models::ServedModel;
use crate::services::calibration::{self, Learning};
use crate::services::constraints::Purpose;
use crate::services::corpora;
use crate::services::prepare::{RequestContext, cells};
use crate::services::sql::kept_answers::{AnswerKeeper, KeptAnswers};
use crate::services::sql::search;
use crate::state::App;

/// What requests of statements are counted as.
const ROUTE: &str = "sql";
/// A full queue is asked again after this time at most.
const RETRY_MAX: Duration = Duration::from_millis(250);

/// Tokens of a context that are kept for an instruction and an answer.
const AROUND_TOKENS: u64 = 256;
/// Characters of a prompt that texts are put together for, however long the context.
const PROMPT_CHARS_MAX: usize = 16_000;

/// Runs the rows of one caller.
pub struct Rows {
    app: Data<App>,
    caller: Caller,
    /// Where answers are kept, of a statement that may have a ticket.
    kept: Option<Arc<KeptAnswers>>,
}

impl std::fmt::Debug for Rows {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.debug_struct("Rows").field("caller", &self.caller).finish_non_exhaustive()
    }
}

impl Rows {
    /// The rows of a caller, whose answers are kept there.
    pub fn new(app: Data<App>, caller: Caller, kept: Option<Arc<KeptAnswers>>) -> Arc<Self> {
        Arc::new(Self { app, caller, kept })
    }

    /// The model of a column. It was looked for when its statement was planned, and none goes while the server runs.
    fn served(&self, model: Option<&str>) -> Result<&Arc<ServedModel>, RunError> {
        self.app.models.named(model).map_err(refused)
    }
}

/// A column that takes rows.
struct OpenRows {
    app: Data<App>,
    caller: Caller,
    kept: Option<Arc<KeptAnswers>>,
    /// Who answers.
    model: Result<Arc<ServedModel>, RequestError>,
    column: AiColumn,
    options: RunOptions,
    /// What its relQuery is for: the statement.
    label: Option<Arc<Label>>,
    answers: UnboundedSender<RowAnswer>,
    /// Opened with the first rows that are to be computed.
    relquery: Option<OpenColumn>,
    reserved: Arc<ReservedCalls>,
    /// What tells its answers, or looks rows up in a corpus.
    tasks: JoinSet<()>,
}

impl Runner for Rows {
    fn open(
        &self,
        column: &AiColumn,
        options: RunOptions,
        answers: UnboundedSender<RowAnswer>,
    ) -> Box<dyn Run> {
        let (app, caller, kept) = (self.app.clone(), self.caller, self.kept.clone());
        let model = self.app.models.named(column.model.as_deref()).cloned();
        let (column, tasks) = (column.clone(), JoinSet::new());
        let reserved = Arc::default();
        let label = options.statement.as_deref().and_then(Label::of_sql);
        let relquery = None;
        Box::new(OpenRows {
            app,
            caller,
            kept,
            model,
            column,
            options,
            label,
            answers,
            relquery,
            reserved,
            tasks,
        })
    }

    fn model(&self, name: &str) -> Result<String, RunError> {
        self.served(Some(name)).map(|served| served.model().name.clone())
    }

    fn prompt_chars_max(&self, model: Option<&str>) -> usize {
        let model = self.served(model).unwrap_or(self.app.models.usual()).model();
        let tokens = model.context_max.0.min(model.kv_tokens()).saturating_sub(AROUND_TOKENS);
        // Seldom fewer than two characters a token, whatever the language.
        usize::try_from(tokens.max(64) * 2).unwrap_or(usize::MAX).min(PROMPT_CHARS_MAX)
    }

    fn embedder(&self) -> Result<Arc<dyn TextEmbedder>, RunError> {
        corpora::check_embeds(&self.app).map_err(refused)?;
        Ok(Arc::new(CallerEmbedder { app: self.app.clone(), caller: self.caller }))
    }

    fn price(&self, model: Option<&str>) -> Option<TokenPrice> {
        let served = self.served(model).ok()?;
        let found = served.runtime.members.as_ref().map_or_else(Vec::new, |members| members.list());
        let found: Vec<ReplicaSettings> = found.into_iter().map(|member| member.settings).collect();
        // Backends stand in the order of their models.
        let place = self.app.models.iter().position(|one| Arc::ptr_eq(one, served))?;
        let (_, backend) = self.app.config.backends().into_iter().nth(place)?;
        let (prompt, output) = backend.price(&found)?;
        Some(TokenPrice { prompt, output })
    }

    fn estimate<'a>(
        &'a self,
        column: &'a AiColumn,
        rows: Vec<Vec<Cell>>,
    ) -> BoxFuture<'a, Result<Estimate, RunError>> {
        Box::pin(async move {
            if column.search.is_some() {
                return Ok(Estimate::default());
            }
            let (count, named) = (rows.len(), column.model.as_deref());
            let model = self.served(named)?;
            let column = (column, PromptOrder::Exact, Learning::Known);
            let context = (&self.app, model);
            let prepared = prepared(context, self.caller, column, rows).await.map_err(refused)?;
            let items = prepared.parts.iter().flat_map(|part| &part.rows);
            let (prompt, output) = items.fold((0, 0), |(prompt, output), row| {
                (prompt + row.item.prompt.len() as u64, output + row.item.generation.output_max.0)
            });
            let known = submit::known_answers(&model.runtime, self.caller, prepared).await;
            let known = known.read().finished.len();
            let cost = model.runtime.view().cost;
            // Rows that are known cost nothing; of the others each prompt token is computed, which prefixes
            // that rows share make less.
            let share = (count - known.min(count)) as f64 / count.max(1) as f64;
            let prefill = cost.prefill_per_token.0 as f64 * prompt as f64;
            let decode = cost.decode_per_sequence.0 as f64 * output as f64;
            let seconds = Some((prefill + decode) * share / 1e9);
            let price = self.price(named).map(|price| price.of(prompt, output) * share);
            Ok(Estimate { prompt: TokenCount(prompt), known, seconds, price })
        })
    }
}

/// Embeds the texts of one caller with the model that corpora have.
struct CallerEmbedder {
    app: Data<App>,
    caller: Caller,
}

impl std::fmt::Debug for CallerEmbedder {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.debug_struct("CallerEmbedder").field("caller", &self.caller).finish_non_exhaustive()
    }
}

impl TextEmbedder for CallerEmbedder {
    fn embed(&self, texts: Vec<String>) -> BoxFuture<'_, Result<Vec<Result<TextVector, String>>, RunError>> {
        Box::pin(async move {
            let bytes_max = self.app.config.limits.cell_bytes_max.0;
            let fits = |text: &String| text.len() as u64 <= bytes_max;
            let sound: Vec<String> = texts.iter().filter(|text| fits(text)).cloned().collect();
            let payer = Account { tenant: self.caller.tenant, route: corpora::ROUTE };
            let vectors = loop {
                match corpora::vectors(&self.app, payer, sound.clone()).await {
                    Ok(vectors) => break vectors,
                    Err(RequestError::Busy { retry_after, .. }) => {
                        tokio::time::sleep(Duration::from_millis(retry_after.0).min(RETRY_MAX)).await;
                    }
                    // Of one of the texts: nobody says of which.
                    Err(error @ RequestError::Row(_)) => {
                        let failed: Vec<Result<TextVector, String>> =
                            texts.iter().map(|_| Err(error.to_string())).collect();
                        return Ok(failed);
                    }
                    Err(error) => return Err(refused(error)),
                }
            };
            let mut vectors = vectors.into_iter();
            let mut one = |text: &String| match fits(text).then(|| vectors.next()).flatten() {
                Some(found) => {
                    Ok(TextVector { vector: found.vector.into(), tokens: TokenCount(found.tokens as u64) })
                }
                None => Err(format!("a text of {} bytes is over the limit of {bytes_max} bytes", text.len())),
            };
            Ok(texts.iter().map(&mut one).collect())
        })
    }
}

impl Run for OpenRows {
    fn send(&mut self, rows: Vec<Row>) -> BoxFuture<'_, Result<(), RunError>> {
        Box::pin(async move {
            while self.tasks.try_join_next().is_some() {}
            let (ids, cells): (Vec<u64>, Vec<Vec<Cell>>) =
                rows.into_iter().map(|row| (row.id, row.cells)).unzip();
            match &self.column.search {
                Some(search) => {
                    self.tasks.spawn(search::look_up(
                        self.app.clone(),
                        (self.caller.tenant, search.clone(), self.options.cached_only),
                        ids.into_iter().zip(cells).collect(),
                        self.answers.clone(),
                    ));
                    Ok(())
                }
                None if self.options.cached_only => self.tell_known(&ids, &cells).await.map_err(refused),
                None => self.extend(&ids, &cells).await,
            }
        })
    }
}

impl OpenRows {
    fn model(&self) -> Result<&Arc<ServedModel>, RequestError> {
        self.model.as_ref().map_err(Clone::clone)
    }

    /// The relQuery of the column; opened where it is not.
    fn open(&mut self) -> Result<&OpenColumn, RequestError> {
        let model = Arc::clone(self.model()?);
        match &mut self.relquery {
            Some(relquery) => Ok(relquery),
            none => {
                let (relquery, answers) = OpenColumn::open(&model.runtime, self.caller, ROUTE)?;
                let shared = (self.answers.clone(), Arc::clone(&self.reserved));
                let keeper = self.kept.clone().map(|answers| {
                    relquery.withhold();
                    AnswerKeeper { app: self.app.clone(), runtime: Arc::clone(&model.runtime), answers }
                });
                self.tasks.spawn(tell(answers, shared, is_whole_only(&self.column), keeper));
                Ok(none.insert(relquery))
            }
        }
    }

    async fn prepared(&self, cells: &[Vec<Cell>]) -> Result<Prepared, RequestError> {
        let learning = if self.options.cached_only { Learning::Known } else { Learning::Run };
        let column = (&self.column, self.options.order, learning);
        let context = (&self.app, self.model()?);
        let mut prepared = prepared(context, self.caller, column, cells.to_vec()).await?;
        if let Some(kept) = &self.kept {
            kept.answer(&mut prepared);
        }
        Ok(prepared.labelled(self.label.as_ref()))
    }

    /// Hands rows to the loop: as many as a relQuery may have are held at a time, and of those as many as the
    /// budget surely has room for; while the queue is full the others wait.
    async fn extend(&mut self, ids: &[u64], cells: &[Vec<Cell>]) -> Result<(), RunError> {
        let rows_max = self.app.config.limits.rows_max;
        let queue_max = self.model().map_err(refused)?.runtime.shared.intake.rows_max();
        let queue_max = usize::try_from(rows_at_once_max(queue_max)).unwrap_or(usize::MAX);
        let held_max = rows_max.min(queue_max).max(1);
        let mut from = 0;
        while from < ids.len() {
            let most = held_max.min(ids.len() - from);
            self.open().map_err(refused)?.has_room(most, held_max).await;
            let (prepared, reserved) = self.set_aside(&cells[from..from + most]).await?;
            let ids = &ids[from..from + prepared.rows];
            from += ids.len();
            self.reserved.add(ids, reserved);
            self.hand_over(ids, prepared).await.map_err(refused)?;
        }
        Ok(())
    }

    /// The first of these rows, as many as the budget surely has room for, one at least; their most is set
    /// aside.
    async fn set_aside(&self, cells: &[Vec<Cell>]) -> Result<(Prepared, Option<Reservation>), RunError> {
        let prepared = self.prepared(cells).await.map_err(refused)?;
        let Some(budget) = &self.options.budget else { return Ok((prepared, None)) };
        let mut most = computed_at_most(&prepared);
        if budget.is_limited() {
            let again = self.prepared(cells).await.map_err(refused)?;
            let model = self.model().map_err(refused)?;
            let known = submit::known_answers(&model.runtime, self.caller, again).await;
            for row in &known.read().finished {
                most[*row as usize] = ComputedCalls::default();
            }
        }
        let reserved = budget.reserve(&most).await.map_err(spent)?;
        if reserved.count() == cells.len() {
            return Ok((prepared, Some(reserved)));
        }
        let prepared = self.prepared(&cells[..reserved.count()]).await.map_err(refused)?;
        Ok((prepared, Some(reserved)))
    }

    /// Hands rows over once the queue has room for them.
    async fn hand_over(&mut self, ids: &[u64], prepared: Prepared) -> Result<(), RequestError> {
        let relquery = self.open()?;
        let room = loop {
            match relquery.reserve(ids.len()) {
                Err(RequestError::Overloaded { retry_after, .. }) => {
                    tokio::time::sleep(Duration::from_millis(retry_after.0).min(RETRY_MAX)).await;
                }
                reserved => break reserved?,
            }
        };
        relquery.extend(ids, prepared, room).await
    }

    /// Tells what is known of rows, and that the others are not.
    async fn tell_known(&self, ids: &[u64], cells: &[Vec<Cell>]) -> Result<(), RequestError> {
        let prepared = self.prepared(cells).await?;
        let known = submit::known_answers(&self.model()?.runtime, self.caller, prepared).await;
        let state = known.read();
        for (row, id) in state.rows.iter().zip(ids) {
            let (outcome, tokens, _) = outcome(row, is_whole_only(&self.column));
            // Whoever asked may be gone.
            let _ = self.answers.send(RowAnswer { id: *id, outcome, tokens, is_computed: false });
        }
        Ok(())
    }
}

/// What is set aside for rows that are under way, by their names.
#[derive(Default)]
struct ReservedCalls(Mutex<HashMap<u64, Reservation>>);

impl ReservedCalls {
    fn rows(&self) -> MutexGuard<'_, HashMap<u64, Reservation>> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn add(&self, ids: &[u64], reserved: Option<Reservation>) {
        let rows = reserved.into_iter().flat_map(Reservation::into_rows);
        self.rows().extend(ids.iter().copied().zip(rows));
    }

    /// A row is over: it computed so many tokens, or nothing.
    fn settle(&self, id: u64, computed: Option<u64>) {
        if let Some(mut reserved) = self.rows().remove(&id) {
            reserved.settle(0, computed);
        }
    }
}

/// The most that each row may compute: its prompt, and an answer of full length. Nothing of a row that cannot
/// run, or that gets another's answer.
fn computed_at_most(prepared: &Prepared) -> Vec<ComputedCalls> {
    let mut most = vec![ComputedCalls::default(); prepared.rows];
    for row in prepared.parts.iter().flat_map(|part| &part.rows) {
        if let Some(own) = row.targets.first().and_then(|target| most.get_mut(*target as usize)) {
            let tokens = row.item.prompt.len() as u64 + row.item.generation.output_max.0;
            *own = ComputedCalls::one(tokens);
        }
    }
    most
}

/// Lowers rows of a column, off the thread: a window's prompts are tokenized.
async fn prepared(
    (app, model): (&Data<App>, &Arc<ServedModel>),
    caller: Caller,
    (column, order, learning): (&AiColumn, PromptOrder, Learning),
    rows: Vec<Vec<Cell>>,
) -> Result<Prepared, RequestError> {
    let (app, model, column) = (app.clone(), Arc::clone(model), column.clone());
    let arrival = app.runtime.shared.clock.now();
    let group = (column.shared.clone(), column.constraint.clone());
    let asked = (&group, cells::usual(&app, model.model()), learning);
    let priors = calibration::priors(&app, &model, caller, asked).await;
    let lowered = tokio::task::spawn_blocking(move || {
        let (tenant, purpose) = (caller.tenant, Purpose::Run);
        let context = RequestContext { app: &app, model: &model, tenant, purpose, arrival };
        let count = rows.len();
        let (part, failed) = cells::column(context, (column, priors), order, rows)?;
        Ok(Prepared {
            kind: RelQueryKind::Column,
            route: ROUTE,
            class: ServiceClass::Dashboard,
            rows: count,
            failed,
            answered: Vec::new(),
            deadline: None,
            pin: None,
            parts: vec![part],
        })
    });
    lowered.await.map_err(serving::error::internal)?
}

fn spent(error: BudgetSpent) -> RunError {
    RunError(error.to_string())
}

fn refused(error: RequestError) -> RunError {
    RunError(error.to_string())
}

/// Tells the answers of a column as they come, once they are kept where they are to be.
async fn tell(
    mut column: ColumnAnswers,
    (answers, reserved): (UnboundedSender<RowAnswer>, Arc<ReservedCalls>),
    is_whole_only: bool,
    keeper: Option<AnswerKeeper>,
) {
    while let Some(ColumnRows { rows, charges }) = column.next().await {
        if let Some(keeper) = &keeper {
            keeper.take(charges).await;
        }
        for (id, row) in rows {
            let (outcome, tokens, is_computed) = outcome(&row, is_whole_only);
            reserved.settle(id, is_computed.then_some(tokens.prompt.0 + tokens.output.0));
            if answers.send(RowAnswer { id, outcome, tokens, is_computed }).is_err() {
                return;
            }
        }
    }
}

/// Whether a part of an answer is none: of a JSON document, say.
fn is_whole_only(column: &AiColumn) -> bool {
    column.constraint.is_some() || matches!(column.shared.form, Some(Constraint::Items(_)))
}

fn outcome(row: &AnswerRow, is_whole_only: bool) -> (Outcome, Tokens, bool) {
    match &row.state {
        RowProgress::Pending => (Outcome::Unknown, Tokens::default(), false),
        RowProgress::Failed(error) => {
            let reason = error.to_string();
            let outcome = match error {
                // No word about the row: a table made of such NULLs would look complete.
                RequestError::ShuttingDown | RequestError::Dead | RequestError::Cancelled => {
                    Outcome::Stopped(reason)
                }
                _ => Outcome::Failed(reason),
            };
            (outcome, Tokens::default(), false)
        }
        RowProgress::Done { end, usage, source } => {
            let tokens = Tokens { prompt: usage.prompt, cached: usage.cached, output: usage.output };
            let outcome = match end {
                End::Length if is_whole_only => Outcome::Failed(format!(
                    "the answer does not keep to its schema in {} tokens: max_tokens is the limit",
                    usage.output.0
                )),
                _ => Outcome::Text { text: row.text.clone(), probability: row.probability },
            };
            (outcome, tokens, *source == AnswerSource::Model)
        }
    }
}
