//! The rows of AI columns as relQueries: one for each column, which takes rows in windows; answers go to the
//! operator as they come, and what is dropped is cancelled. Must not know the protocol of the client.

use std::sync::Arc;
use std::time::Duration;

use actix_web::web::Data;
use base::{Constraint, End, Money, ServiceClass, TokenCount};
use futures_util::future::BoxFuture;
use ir::Cell;
use serving::account::Account;
use serving::budgets::{self, BudgetAmount, BudgetReservation};
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
    TextEmbedder, TextVector, TokenPrice, Tokens, Unsent,
};
use store::UnixMillis;
use tokio::sync::mpsc::UnboundedSender;
use tokio::task::JoinSet;

use crate::models::ServedModel;
use crate::services::calibration::{self, Learning};
use crate::services::constraints::Purpose;
use crate::services::corpora;
use crate::services::prepare::{RequestContext, cells};
use crate::services::sql::kept_answers::{AnswerKeeper, KeptAnswers};
use crate::services::sql::reserved::{AwaitedCalls, ReservedCalls, RowMost};
use crate::services::sql::search;
use crate::state::App;

/// What requests of statements are counted as.
pub(super) const ROUTE: &str = "sql";
/// A full queue is asked again after this time at most.
const RETRY_MAX: Duration = Duration::from_millis(250);

/// What lowers what a row sets aside, for whoever is refused.
const LESS_TOKENS: &str = "A row is set aside at its prompt and an answer of full length: `max_tokens => n` in the call \
    lowers that. `relserve.max_tokens` and `relserve.window_rows` bound what one statement takes, and sets aside at a time";

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
        self.app.models.named_for(self.caller.tenant, model).map_err(refused)
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
    /// What looks rows up in a corpus.
    tasks: JoinSet<()>,
}

/// Rows that the budgets have room for, and what is set aside for them.
struct FittingRows {
    prepared: Prepared,
    most: Vec<RowMost>,
    /// In budgets of SQL.
    reserved: Option<Reservation>,
    /// In those of the tenant.
    held: Option<Arc<BudgetReservation>>,
}

impl Runner for Rows {
    fn open(
        &self,
        column: &AiColumn,
        options: RunOptions,
        answers: UnboundedSender<RowAnswer>,
    ) -> Box<dyn Run> {
        let (app, caller, kept) = (self.app.clone(), self.caller, self.kept.clone());
        let model = self.app.models.named_for(caller.tenant, column.model.as_deref()).cloned();
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
    fn send(&mut self, rows: Vec<Row>) -> BoxFuture<'_, Result<(), Unsent>> {
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
                None if self.options.cached_only => {
                    self.tell_known(&ids, &cells).await.map_err(|error| refused(error).into())
                }
                None => self.extend(&ids, &cells).await,
            }
        })
    }

    fn is_limited(&self) -> bool {
        let any = BudgetAmount { tokens: u64::MAX, cost: Money(u64::MAX) };
        let own = self.options.budget.as_ref().is_some_and(|own| own.is_limited());
        own || !self.app.runtime.shared.budgets.fits_at_once(self.caller.tenant, any)
    }
}

impl Drop for OpenRows {
    fn drop(&mut self) {
        let runs_again = self.kept.as_ref().is_some_and(|kept| kept.runs_again());
        if let Some(column) = self.relquery.as_ref().filter(|_| runs_again) {
            column.run_again();
        }
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
                let shared = (self.answers.clone(), AwaitedCalls::new(Arc::clone(&self.reserved)));
                let keeper = self.kept.clone().map(|answers| {
                    relquery.withhold();
                    AnswerKeeper { app: self.app.clone(), runtime: Arc::clone(&model.runtime), answers }
                });
                // It goes on when the statement is over: calls that were made are counted.
                tokio::spawn(tell(answers, shared, is_whole_only(&self.column), keeper));
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

    /// Hands rows to the loop, some at a time.
    async fn extend(&mut self, ids: &[u64], cells: &[Vec<Cell>]) -> Result<(), Unsent> {
        let mut handed = 0;
        while handed < ids.len() {
            let more = self.extend_first(&ids[handed..], &cells[handed..]).await;
            handed += more.map_err(|error| Unsent { handed, error })?;
        }
        Ok(())
    }

    /// Hands the first of these rows to the loop, and says how many: as many as a relQuery may have are held at a time, and
    /// of those as many as the budget surely has room for; while the queue is full the others wait.
    async fn extend_first(&mut self, ids: &[u64], cells: &[Vec<Cell>]) -> Result<usize, RunError> {
        let rows_max = self.app.config.limits.rows_max;
        let queue_max = self.model().map_err(refused)?.runtime.shared.intake.rows_max();
        let queue_max = usize::try_from(rows_at_once_max(queue_max)).unwrap_or(usize::MAX);
        let held_max = rows_max.min(queue_max).max(1);
        let most = held_max.min(ids.len());
        self.open().map_err(refused)?.has_room(most, held_max).await;
        let fitting = self.set_aside(&cells[..most]).await?;
        let ids = &ids[..fitting.prepared.rows];
        self.reserved.add(ids, fitting.reserved, &fitting.most);
        self.hand_over(ids, fitting.prepared, fitting.held).await.map_err(refused)?;
        self.begin();
        Ok(ids.len())
    }

    /// The first of these rows, as many as the budgets surely have room for, one at least; their most is set aside. Waits
    /// while none fits and rows under way may turn out to take less.
    async fn set_aside(&self, cells: &[Vec<Cell>]) -> Result<FittingRows, RunError> {
        let mut prepared = self.prepared(cells).await.map_err(refused)?;
        let (app, tenant, own) = (&self.app, self.caller.tenant, self.options.budget.as_ref());
        let runtime = &self.model().map_err(refused)?.runtime;
        let shared = &runtime.shared;
        let mut most = RowMost::of(&prepared, shared.prices.dearest());
        let all = most.iter().fold(BudgetAmount::default(), |sum, row| sum.plus(row.amount));
        if own.is_some_and(|own| own.is_limited()) || !shared.budgets.has_room(tenant, all) {
            let again = self.prepared(cells).await.map_err(refused)?;
            let known = submit::known_answers(runtime, self.caller, again).await;
            for row in &known.read().finished {
                most[*row as usize] = RowMost::default();
            }
        }
        let mut reserved = None;
        if let Some(own) = own {
            let calls: Vec<ComputedCalls> = most.iter().map(|row| row.calls).collect();
            let fitting = own.reserve(&calls).await.map_err(|error| spent(&error, shared.unix_now()))?;
            most.truncate(fitting.count());
            reserved = Some(fitting);
        }
        let amounts: Vec<BudgetAmount> = most.iter().map(|row| row.amount).collect();
        let fitting = shared.budgets.reserve_first(tenant, &amounts, || shared.unix_now()).await;
        let held = fitting.map_err(tenant_spent)?.map(|(count, held)| {
            most.truncate(count);
            held
        });
        if let Some(mut own) = reserved.take() {
            own.keep(most.len());
            let holding = app.sql.budgets.hold(&app.runtime, tenant, own).await;
            reserved = Some(holding.map_err(refused)?);
        }
        if most.len() < cells.len() {
            prepared = self.prepared(&cells[..most.len()]).await.map_err(refused)?;
        }
        Ok(FittingRows { prepared, most, reserved, held })
    }

    /// Hands rows over once the queue has room for them.
    async fn hand_over(
        &mut self,
        ids: &[u64],
        prepared: Prepared,
        held: Option<Arc<BudgetReservation>>,
    ) -> Result<(), RequestError> {
        let relquery = self.open()?;
        let room = loop {
            match relquery.reserve(ids.len()) {
                Err(RequestError::Overloaded { retry_after, .. }) => {
                    tokio::time::sleep(Duration::from_millis(retry_after.0).min(RETRY_MAX)).await;
                }
                reserved => break reserved?,
            }
        };
        relquery.extend(ids, prepared, (room, held)).await
    }

    /// Rows of the statement are let in: it is counted with the first of all its columns. One that has a ticket is counted
    /// with that, however often it is gone on with.
    fn begin(&self) {
        let is_first = self.options.budget.as_ref().is_some_and(|own| own.begin());
        if is_first
            && self.kept.as_ref().is_none_or(|kept| kept.counts())
            && let Ok(model) = &self.model
        {
            submit::count_request(&model.runtime, self.caller, ROUTE);
        }
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

/// Why a budget of SQL has no room.
fn spent(error: &BudgetSpent, now: UnixMillis) -> RunError {
    let reason = if error.is_of_tokens() { format!("{error}. {LESS_TOKENS}") } else { error.to_string() };
    let retry_after = error.is_of_day().then(|| budgets::until_tomorrow(now));
    refused(RequestError::StatementBudget { reason, retry_after })
}

/// Why the tenant's budget has no room.
fn tenant_spent(error: RequestError) -> RunError {
    refused(match error {
        RequestError::TenantBudget { limit, period, max, used, asked, retry_after, .. } => {
            let left = max.after(used);
            let reason = format!(
                "the tenant's budget is {max} a {period} (`limits.{limit}`): {used:#} are spent, {left:#} are left, and \
                 a row of this statement may take {asked:#}; the count begins anew in {retry_after:#}. {LESS_TOKENS}"
            );
            RequestError::StatementBudget { reason, retry_after: Some(retry_after) }
        }
        RequestError::TooLarge { what, limit } => RequestError::TooLarge {
            what: format!("a row of this statement: {what}"),
            limit: format!("{limit}. {LESS_TOKENS}"),
        },
        error => error,
    })
}

fn refused(error: RequestError) -> RunError {
    RunError::caused_by(error)
}

/// Tells the answers of a column as they come, once they are kept where they are to be; and counts the calls that were made,
/// those too whose answers nobody takes any more.
async fn tell(
    mut column: ColumnAnswers,
    (answers, reserved): (UnboundedSender<RowAnswer>, AwaitedCalls),
    is_whole_only: bool,
    keeper: Option<AnswerKeeper>,
) {
    // Whoever asked may be gone.
    let tell = |answer| drop(answers.send(answer));
    while let Some(ColumnRows { rows, unanswered, charges }) = column.next().await {
        if let Some(keeper) = &keeper {
            keeper.take(charges).await;
        }
        for (id, row) in rows {
            reserved.calls().settle(id, &row);
            let (outcome, tokens, is_computed) = outcome(&row, is_whole_only);
            tell(RowAnswer { id, outcome, tokens, is_computed });
        }
        for (id, error) in unanswered {
            let (outcome, tokens) = (failed(&error), Tokens::default());
            tell(RowAnswer { id, outcome, tokens, is_computed: false });
        }
    }
    column.left_calls().await.into_iter().for_each(|call| reserved.calls().settle_left(call));
    reserved.end();
}

/// Whether a part of an answer is none: of a JSON document, say.
fn is_whole_only(column: &AiColumn) -> bool {
    column.constraint.is_some() || matches!(column.shared.form, Some(Constraint::Items(_)))
}

fn outcome(row: &AnswerRow, is_whole_only: bool) -> (Outcome, Tokens, bool) {
    match &row.state {
        RowProgress::Pending => (Outcome::Unknown, Tokens::default(), false),
        RowProgress::Failed(error) => (failed(error), Tokens::default(), false),
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

/// What becomes of a row that fails, alone or with its column.
fn failed(error: &RequestError) -> Outcome {
    match error {
        // No word about the row: a table made of such NULLs would look complete.
        RequestError::ShuttingDown
        | RequestError::Dead
        | RequestError::Cancelled
        | RequestError::TenantBudget { .. } => Outcome::Stopped(refused(error.clone())),
        _ => Outcome::Failed(error.to_string()),
    }
}
