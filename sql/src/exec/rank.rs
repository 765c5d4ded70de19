//! `ORDER BY ai_rank(text, criterion) LIMIT k`: texts are compared with one another, few at a time, until the
//! first `k` rows are known. Each distinct text takes part once; its rows share a rank.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Int64Array, RecordBatch};
use datafusion::arrow::compute::interleave_record_batch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::ExecutionPlan as _;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures_util::{StreamExt as _, stream};
use ir::Cell;

use super::bind::CallArguments;
use super::pending::PendingCalls;
use super::tournament::{Tournament, TournamentGroup, calls_max};
use super::{AiExec, RowProgram};
use crate::cell;
use crate::node::Ranking;
use crate::program::AiCall;
use crate::query::{AnsweredBy, Query, QueryColumn};
use crate::runner::{AiColumn, Outcome};

/// Texts that one call compares: more take fewer calls, and are harder to tell apart.
pub(super) const GROUP_TEXTS: usize = 4;
/// Rows that are given out together where they are many.
const BATCH_ROWS: usize = 8_192;

/// The texts that are ranked, each with its rows.
#[derive(Debug, Default)]
pub(super) struct Texts {
    by_text: HashMap<String, usize>,
    texts: Vec<String>,
    /// Where the rows of each text are, by batch and row.
    rows: Vec<Vec<(usize, usize)>>,
    /// Rows without a text.
    nulls: Vec<(usize, usize)>,
    criterion: Option<String>,
}

impl Texts {
    /// Notes the rows of a batch.
    pub(super) fn look(&mut self, work: &RowProgram, number: usize, batch: &RecordBatch) -> Result<()> {
        let values = CallArguments::of(&work.compiled.calls[0], &work.view(batch.clone())?)?;
        for row in 0..batch.num_rows() {
            let cells = values.cells(row)?;
            let text = match cells.first() {
                None | Some(Cell::Null) => {
                    self.nulls.push((number, row));
                    continue;
                }
                Some(cell) => cell.text().trim().to_owned(),
            };
            if self.criterion.is_none() {
                self.criterion = values.rest(row)?.first().map(|value| cell::of(value).text().into_owned());
            }
            let place = *self.by_text.entry(text.clone()).or_insert_with(|| {
                self.texts.push(text);
                self.rows.push(Vec::new());
                self.texts.len() - 1
            });
            self.rows[place].push((number, row));
        }
        Ok(())
    }

    /// Orders the texts by their letters: the same rows ask the same prompts, in whatever order they come.
    pub(super) fn sort(&mut self) {
        let texts = std::mem::take(&mut self.texts).into_iter().zip(std::mem::take(&mut self.rows));
        let mut texts: Vec<_> = texts.collect();
        texts.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        (self.texts, self.rows) = texts.into_iter().unzip();
        self.by_text.clear();
    }

    /// How many are different.
    pub(super) fn distinct(&self) -> usize {
        self.texts.len()
    }

    /// Calls that the first `wanted` rows take at most.
    pub(super) fn calls_max(&self, wanted: usize) -> usize {
        calls_max(self.distinct(), GROUP_TEXTS, wanted)
    }

    /// The first comparisons, which every text takes part in.
    pub(super) fn first(&self, query: &Query, model: Option<&str>) -> Vec<(AiColumn, Vec<Cell>)> {
        let all: Vec<usize> = (0..self.distinct()).collect();
        let groups = all.chunks(GROUP_TEXTS).filter(|group| group.len() > 1);
        groups.map(|group| self.comparison((query, model), group)).collect()
    }

    /// The prompt that compares some texts: its column, and the texts, cut so that they fit.
    fn comparison(&self, (query, model): (&Query, Option<&str>), texts: &[usize]) -> (AiColumn, Vec<Cell>) {
        let model = query.model(model);
        let chars_max = query.runner.prompt_chars_max(model) / GROUP_TEXTS;
        let cut = |text: &usize| Cell::from(self.texts[*text].chars().take(chars_max).collect::<String>());
        let criterion = self.criterion.as_deref().unwrap_or_default();
        let column = AiColumn::comparison(criterion, texts.len());
        let column = AiColumn { model: model.map(str::to_owned), ..column };
        (column, texts.iter().map(cut).collect())
    }
}

/// One execution of a ranking.
struct RankFlow {
    call: AiCall,
    schema: SchemaRef,
    ranking: Ranking,
    /// Rows still to be ranked.
    left: usize,
    /// Rows still to be given, where no operator above bounds them.
    fetch: Option<usize>,
    pending: PendingCalls<TournamentGroup>,
    window: usize,
    batches: Vec<RecordBatch>,
    texts: Texts,
    tournament: Tournament,
    /// By number of texts that meet.
    columns: HashMap<usize, QueryColumn>,
    /// Groups to play before the next text is known.
    open: Vec<TournamentGroup>,
    is_begun: bool,
    /// Whether a comparison is not known and was not to be computed: the rows that are left have no rank.
    is_unknown: bool,
    given: usize,
    /// Rows without a rank, to be given last.
    unranked: Vec<(usize, usize)>,
    memory: MemoryReservation,
}

/// The rows of an operator in their order.
pub(super) fn stream(
    exec: &AiExec,
    ranking: Ranking,
    query: Arc<Query>,
    partition: usize,
    context: Arc<TaskContext>,
) -> Result<SendableRecordBatchStream> {
    let call = exec.program().calls[0].clone();
    let models = query.models(std::slice::from_ref(&call));
    let progress = query.progress.operator((&call.written, models), &exec.metrics, partition);
    let memory = MemoryConsumer::new("AiRank").register(context.memory_pool());
    let fetch = ranking.fetch.into_iter().chain(exec.fetch).min();
    let flow = RankFlow {
        call,
        schema: exec.schema(),
        ranking,
        left: fetch.unwrap_or(usize::MAX),
        fetch: exec.fetch,
        window: query.limits.window_rows.max(1),
        pending: PendingCalls::new(query, progress),
        batches: Vec::new(),
        texts: Texts::default(),
        tournament: Tournament::new(0, GROUP_TEXTS),
        columns: HashMap::new(),
        open: Vec::new(),
        is_begun: false,
        is_unknown: false,
        given: 0,
        unranked: Vec::new(),
        memory,
    };
    let input = exec.input.execute(partition, context)?;
    let work = exec.work.clone();
    let rows = stream::try_unfold((flow, Some((input, work))), |(mut flow, unread)| async move {
        if let Some((input, work)) = unread {
            flow.collect(&work, input).await?;
        }
        Ok(flow.next().await?.map(|batch| (batch, (flow, None))))
    });
    Ok(Box::pin(RecordBatchStreamAdapter::new(exec.schema(), rows)))
}

impl RankFlow {
    /// Reads all rows: the last may be the best.
    async fn collect(&mut self, work: &RowProgram, mut input: SendableRecordBatchStream) -> Result<()> {
        while let Some(batch) = input.next().await.transpose()? {
            self.pending.progress.rows.add(batch.num_rows());
            self.memory.try_grow(batch.get_array_memory_size())?;
            self.texts.look(work, self.batches.len(), &batch)?;
            self.batches.push(batch);
        }
        self.texts.sort();
        self.tournament = Tournament::new(self.texts.distinct(), GROUP_TEXTS);
        self.unranked = std::mem::take(&mut self.texts.nulls);
        Ok(())
    }

    /// The next rows, the best first.
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        if self.left == 0 || self.batches.is_empty() {
            return Ok(None);
        }
        if self.ranking.nulls_first && !self.unranked.is_empty() {
            return self.without_rank();
        }
        if !self.is_begun {
            self.is_begun = true;
            for level in 1..=self.tournament.top() {
                self.play(self.tournament.groups(level).collect()).await?;
            }
        }
        for group in std::mem::take(&mut self.open) {
            self.play(vec![group]).await?;
        }
        if self.is_unknown {
            let rows = std::mem::take(&mut self.texts.rows);
            self.unranked.splice(0..0, rows.into_iter().flatten());
        } else if let Some((best, groups)) = self.tournament.take_best() {
            self.open = groups;
            let rows = std::mem::take(&mut self.texts.rows[best]);
            let rank = self.given + 1;
            return self.give(&rows, Some(rank)).map(Some);
        }
        self.without_rank()
    }

    /// Rows that have none.
    fn without_rank(&mut self) -> Result<Option<RecordBatch>> {
        if self.unranked.is_empty() {
            return Ok(None);
        }
        let rest = self.unranked.split_off(self.unranked.len().min(BATCH_ROWS));
        let rows = std::mem::replace(&mut self.unranked, rest);
        self.give(&rows, None).map(Some)
    }

    /// Rows of one rank.
    fn give(&mut self, rows: &[(usize, usize)], rank: Option<usize>) -> Result<RecordBatch> {
        self.pending.progress.decided.add(rows.len());
        self.given += rows.len();
        // Further keys may order rows of one rank: all of them go on.
        self.left = self.left.saturating_sub(rows.len());
        let rows = &rows[..rows.len().min(self.fetch.unwrap_or(usize::MAX))];
        self.fetch = self.fetch.map(|fetch| fetch - rows.len());
        let batches: Vec<&RecordBatch> = self.batches.iter().collect();
        let input = interleave_record_batch(&batches, rows)?;
        let rank = rank.and_then(|rank| i64::try_from(rank).ok());
        let ranks: ArrayRef = Arc::new(Int64Array::from(vec![rank; rows.len()]));
        let columns = input.columns().iter().cloned().chain([ranks]).collect();
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), columns)?)
    }

    /// Decides groups that do not depend on one another, a window at a time.
    async fn play(&mut self, groups: Vec<TournamentGroup>) -> Result<()> {
        for window in groups.chunks(self.window) {
            if self.is_unknown {
                return Ok(());
            }
            for group in window {
                self.compare(*group)?;
            }
            self.pending.send().await;
            while self.pending.is_waiting() && !self.pending.is_stopped() {
                let answer = self.pending.answer().await;
                let Some((column, groups)) = self.pending.take(&answer) else { continue };
                for group in groups {
                    self.decide(group, &column, &answer.outcome)?;
                }
            }
            // Comparisons are no rows: those that are under way show none.
            if let Some(error) = self.pending.take_stopped() {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Asks which text of a group fits best, unless that is known.
    fn compare(&mut self, group: TournamentGroup) -> Result<()> {
        let candidates = self.tournament.candidates(group);
        if candidates.len() < 2 {
            self.tournament.decide(group, candidates.first().copied());
            return Ok(());
        }
        let query = Arc::clone(&self.pending.query);
        let model = self.call.options.model.as_deref();
        let (column, cells) = self.texts.comparison((&query, model), &candidates);
        let column =
            self.columns.entry(candidates.len()).or_insert_with(|| query.column(AnsweredBy::Model, column));
        let known = self.pending.put(column, cells, group);
        let column = Arc::clone(&column.column);
        match known {
            Some(outcome) => self.decide(group, &column, &outcome),
            None => Ok(()),
        }
    }

    /// Takes a comparison in. Where it failed, the first of its texts goes on.
    fn decide(&mut self, group: TournamentGroup, column: &AiColumn, outcome: &Outcome) -> Result<()> {
        let candidates = self.tournament.candidates(group);
        self.is_unknown |= *outcome == Outcome::Unknown;
        let named = match self.pending.value(&self.call, column, outcome)? {
            ScalarValue::Int64(Some(number)) => usize::try_from(number - 1).ok(),
            _ => None,
        };
        let winner = named.and_then(|place| candidates.get(place)).or_else(|| candidates.first());
        self.tournament.decide(group, winner.copied());
        Ok(())
    }
}

/// Refuses a ranking whose rows nobody bounds.
pub(super) fn check(ranking: Ranking) -> Result<()> {
    if ranking.fetch.is_none() {
        return plan_err!(
            "ai_rank: needs a LIMIT: ORDER BY ai_rank(..) LIMIT k finds the first k rows by comparing texts; a \
             number for each row is ai_score(text, criterion, low, high)"
        );
    }
    Ok(())
}
