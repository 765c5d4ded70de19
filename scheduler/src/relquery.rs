//! One relQuery while it lives here: its rows, the order they wait in, its progress.
//!
//! Waiting rows are those that were taken back (in row order), then those never admitted. The latter
//! are a vector with cumulative token counts, so that the priority of a relQuery of any size costs
//! a few binary searches and no walk over its rows.

use std::collections::{BTreeMap, BTreeSet};

use base::{
    Nanos, Periods, PinId, RelQueryId, ServiceClass, StepId, Submission, TenantId, Time, TokenId, WorkItem,
};

use crate::breakdown::PriorityBreakdown;
use crate::event::Usage;
use crate::policy::marginal_work::first_rows::FirstRows;
use crate::policy::marginal_work::instants::Instants;
use crate::policy::marginal_work::lengths::{Ended, LengthKind};
use crate::policy::marginal_work::sharing;
use crate::priority::RelQueryKey;
use crate::row::Row;
use crate::speculate::Drafter;

/// One relQuery.
#[derive(Clone, Debug)]
pub(crate) struct RelQuery {
    pub(crate) id: RelQueryId,
    pub(crate) tenant: TenantId,
    /// Its tenant's share, in thousandths.
    pub(crate) weight: u32,
    pub(crate) scope: u128,
    /// What holds its rows' independent sections after their end.
    pub(crate) pin: Option<PinId>,
    /// As submitted, and as it counts now.
    pub(crate) submitted_class: ServiceClass,
    pub(crate) class: ServiceClass,
    pub(crate) arrival: Time,
    /// When nobody waits for it any longer.
    pub(crate) deadline: Option<Time>,
    /// Rows by index; `None` once a row has ended.
    rows: Vec<Option<Box<Row>>>,
    /// Index by row number, of rows that have not ended.
    by_row: BTreeMap<u32, u32>,
    /// Never admitted rows, from `head` on.
    fresh: Vec<u32>,
    head: usize,
    /// `fresh_tokens[i]`: prompt tokens of `fresh[..i]`.
    fresh_tokens: Vec<u64>,
    /// The same of the tokens that none of the rows before supplies; counted for policy `marginal-work` only.
    fresh_novel: Vec<u64>,
    /// Rows that were admitted and taken back.
    pub(crate) requeued: BTreeSet<u32>,
    /// Rows that hold KV.
    pub(crate) running: BTreeSet<u32>,
    /// OL(R): the greatest output limit of its rows.
    pub(crate) output_max: u64,
    /// Rows ever submitted: `req(R_0)` of Eq. 13.
    pub(crate) rows_submitted: u64,
    /// Prompt tokens and output limits of all of them: what a static priority is made of.
    pub(crate) prompt_submitted: u64,
    pub(crate) output_submitted: u64,
    /// When time alone changes its place under marginal work.
    pub(crate) instants: Instants,
    /// Prio(R), in ns; `None` until first computed.
    pub(crate) priority: Option<u64>,
    /// What it is made of, and the step it was computed for.
    pub(crate) breakdown: PriorityBreakdown,
    pub(crate) priced_for: StepId,
    /// Whether its work counts in the half-life of age (O6).
    pub(crate) is_counted: bool,
    /// How far it is with its first rows.
    pub(crate) first_rows: FirstRows,
    /// Whether its priority is zero, for having waited too long (Eq. 13) or being urgent.
    pub(crate) is_promoted: bool,
    /// Start of its first prefill.
    pub(crate) started: Option<Time>,
    /// End of the last step that completed a prompt of it.
    pub(crate) prefilled: Option<Time>,
    /// The tokens of its ended rows.
    pub(crate) ended: Usage,
    /// What relQueries it is like, and the rows that ended by themselves.
    pub(crate) kind: LengthKind,
    pub(crate) finished: Ended,
    /// What its rows may say next.
    pub(crate) drafter: Drafter,
    /// Where it stands in the scheduler's sets; `None` where it is not in one.
    pub(crate) waiting_key: Option<RelQueryKey>,
    pub(crate) running_key: Option<RelQueryKey>,
    /// Work of it that counts as waiting for its tenant.
    pub(crate) waiting_work: Nanos,
}

impl RelQuery {
    /// A relQuery without rows yet, with the identity of `submission`.
    pub(crate) fn new(submission: &Submission) -> Self {
        let Submission { id, tenant, weight, scope, class, arrival, deadline, .. } = *submission;
        Self {
            id,
            tenant,
            weight,
            scope,
            pin: None,
            submitted_class: class,
            class,
            arrival,
            deadline,
            rows: Vec::new(),
            by_row: BTreeMap::new(),
            fresh: Vec::new(),
            head: 0,
            fresh_tokens: vec![0],
            fresh_novel: Vec::new(),
            requeued: BTreeSet::new(),
            running: BTreeSet::new(),
            output_max: 0,
            rows_submitted: 0,
            prompt_submitted: 0,
            output_submitted: 0,
            instants: Instants::default(),
            priority: None,
            breakdown: PriorityBreakdown::default(),
            priced_for: StepId(0),
            is_counted: false,
            first_rows: FirstRows::default(),
            is_promoted: false,
            started: None,
            prefilled: None,
            ended: Usage::default(),
            kind: 0,
            finished: Ended::default(),
            drafter: Drafter::default(),
            waiting_key: None,
            running_key: None,
            waiting_work: Nanos(0),
        }
    }

    /// Appends a row that its caller has checked.
    pub(crate) fn push(&mut self, item: WorkItem) {
        let index = self.rows.len() as u32;
        let tokens = item.prompt.len() as u64;
        let output_max = item.generation.output_max.0;
        self.output_max = self.output_max.max(output_max);
        self.by_row.insert(item.row, index);
        self.fresh.push(index);
        let sum = self.fresh_tokens.last().copied().expect("starts with a zero") + tokens;
        self.fresh_tokens.push(sum);
        self.rows.push(Some(Box::new(Row::new(item))));
        self.rows_submitted += 1;
        self.prompt_submitted += tokens;
        self.output_submitted = self.output_submitted.saturating_add(output_max);
    }

    /// The row at `index`.
    pub(crate) fn row(&self, index: u32) -> &Row {
        self.rows[index as usize].as_deref().expect("queues name only rows that have not ended")
    }

    /// The row at `index`.
    pub(crate) fn row_mut(&mut self, index: u32) -> &mut Row {
        self.rows[index as usize].as_deref_mut().expect("queues name only rows that have not ended")
    }

    /// The row at `index`, and what guesses of it are made of.
    pub(crate) fn row_and_drafter(&mut self, index: u32) -> (&mut Row, &mut Drafter) {
        let row = self.rows[index as usize].as_deref_mut();
        (row.expect("queues name only rows that have not ended"), &mut self.drafter)
    }

    /// The index of a row number, unless the row has ended or never was.
    pub(crate) fn index_of(&self, row: u32) -> Option<u32> {
        self.by_row.get(&row).copied()
    }

    /// Whether a row of this number is or was part of it.
    pub(crate) fn has_open_row(&self, row: u32) -> bool {
        self.by_row.contains_key(&row)
    }

    /// Rows that have not ended.
    pub(crate) fn open_rows(&self) -> u32 {
        self.by_row.len() as u32
    }

    /// Indices of the rows that have not ended, in row-number order.
    pub(crate) fn open_indices(&self) -> impl Iterator<Item = u32> + '_ {
        self.by_row.values().copied()
    }

    /// How many rows never ran.
    pub(crate) fn fresh_len(&self) -> usize {
        self.fresh.len() - self.head
    }

    /// The never admitted row that is taken first.
    pub(crate) fn fresh_head(&self) -> Option<u32> {
        self.fresh.get(self.head).copied()
    }

    /// How many rows wait.
    pub(crate) fn waiting_len(&self) -> usize {
        self.requeued.len() + self.fresh_len()
    }

    /// Waiting rows in the order they are taken.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = u32> + '_ {
        self.requeued.iter().copied().chain(self.fresh[self.head..].iter().copied())
    }

    /// The waiting row at `position` of that order.
    pub(crate) fn waiting_at(&self, position: usize) -> Option<u32> {
        match position.checked_sub(self.requeued.len()) {
            None => self.requeued.iter().nth(position).copied(),
            Some(fresh) => self.fresh.get(self.head + fresh).copied(),
        }
    }

    /// Cumulative prompt tokens of the never admitted rows: the first entry is the offset.
    pub(crate) fn fresh_tokens(&self) -> &[u64] {
        &self.fresh_tokens[self.head..]
    }

    /// Counts what each never admitted row adds to those before it, after sorting them if `grouped`.
    pub(crate) fn share(&mut self, grouped: bool, block_tokens: u32) {
        let rows = &self.rows;
        let prompt = |index: u32| -> &[TokenId] {
            &rows[index as usize].as_deref().expect("fresh rows have not ended").item.prompt
        };
        self.fresh.drain(..self.head);
        self.head = 0;
        if grouped {
            sharing::group(&mut self.fresh, prompt);
        }
        self.fresh_tokens.clear();
        self.fresh_novel.clear();
        self.fresh_tokens.push(0);
        self.fresh_novel.push(0);
        let (mut tokens, mut novel, mut before) = (0, 0, None);
        for index in &self.fresh {
            let row = prompt(*index);
            tokens += row.len() as u64;
            novel += sharing::novel(before.replace(row), row, block_tokens);
            self.fresh_tokens.push(tokens);
            self.fresh_novel.push(novel);
        }
    }

    /// Cumulative tokens that no row before supplies; empty unless [`RelQuery::share`] counted them.
    pub(crate) fn fresh_novel(&self) -> &[u64] {
        self.fresh_novel.get(self.head..).unwrap_or_default()
    }

    /// Mean prompt tokens of a never admitted row, without what earlier ones supply.
    pub(crate) fn fresh_tokens_mean(&self) -> u64 {
        let novel = self.fresh_novel();
        let (Some(first), Some(last)) = (novel.first(), novel.last()) else { return 0 };
        (last - first) / (novel.len() as u64 - 1).max(1)
    }

    /// Moves a waiting row among the running ones.
    pub(crate) fn admit(&mut self, index: u32) {
        if !self.requeued.remove(&index) {
            assert_eq!(self.fresh.get(self.head), Some(&index), "rows are admitted in their order");
            self.head += 1;
        }
        self.running.insert(index);
    }

    /// Moves a running row to the front of the waiting ones.
    pub(crate) fn requeue(&mut self, index: u32) {
        assert!(self.running.remove(&index), "only running rows are taken back");
        self.requeued.insert(index);
    }

    /// Removes a row wherever it stands and hands it over.
    pub(crate) fn take(&mut self, index: u32) -> Box<Row> {
        let row = self.rows[index as usize].take().expect("a row ends once");
        self.by_row.remove(&row.item.row);
        if !self.running.remove(&index) && !self.requeued.remove(&index) {
            self.take_fresh(index);
        }
        row
    }

    /// Removes a never admitted row; what is left is counted anew (a cancelled row is rare). What the
    /// rows add to each other stays as it was for those before it, and is an upper bound behind it.
    fn take_fresh(&mut self, index: u32) {
        let Some(at) = self.fresh[self.head..].iter().position(|other| *other == index) else { return };
        let at = self.head + at;
        self.fresh.remove(at);
        for sums in [&mut self.fresh_tokens, &mut self.fresh_novel] {
            if let Some(row) = sums.get(at + 1).map(|sum| sum - sums[at]) {
                sums.remove(at + 1);
                sums[at + 1..].iter_mut().for_each(|sum| *sum -= row);
            }
        }
    }

    /// The three periods of Eq. 2, once `end` is the end of its last decode.
    pub(crate) fn periods(&self, end: Time) -> Periods {
        Periods::between(self.arrival, self.started, self.prefilled, end)
    }

    /// The tokens of all its rows so far.
    pub(crate) fn usage(&self) -> Usage {
        let mut usage = self.ended;
        for index in self.open_indices() {
            usage += self.row(index).usage;
        }
        usage
    }

    /// Each open row stands in exactly one place and its state says so.
    pub(crate) fn check(&self) -> Result<(), String> {
        use crate::row::RowState;
        let places = self.waiting_len() + self.running.len();
        if places != self.by_row.len() {
            return Err(format!("relQuery {}: {} rows in {places} places", self.id, self.by_row.len()));
        }
        for index in self.waiting() {
            let row = self.rows[index as usize].as_deref().ok_or("an ended row waits")?;
            if row.state != RowState::Waiting || row.holds_blocks() {
                return Err(format!("relQuery {}: waiting row {} holds blocks", self.id, row.item.row));
            }
        }
        for index in &self.running {
            let row = self.rows[*index as usize].as_deref().ok_or("an ended row runs")?;
            if row.state == RowState::Waiting || row.own.blocks.is_empty() {
                return Err(format!("relQuery {}: running row {} holds nothing", self.id, row.item.row));
            }
        }
        let tokens: u64 =
            self.fresh[self.head..].iter().map(|index| u64::from(self.row(*index).prompt_len())).sum();
        let counted = self.fresh_tokens();
        if counted[counted.len() - 1] - counted[0] != tokens {
            return Err(format!("relQuery {}: waiting tokens are miscounted", self.id));
        }
        Ok(())
    }
}
