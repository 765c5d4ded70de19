//! One relQuery of a fleet: its rows, which of them wait and in what order, what is left of it.
//!
//! Waiting rows stand in groups of equal beginnings and, inside a group, in the order of their prompts, so
//! that a replica that takes rows of one group one after the other computes what they share once. Rows that
//! were taken back go first.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::{
    Nanos, Periods, RelQueryId, RequestId, ServiceClass, SpanKind, Submission, TenantId, Time, TokenCount,
    TokenId, WorkItem,
};

use super::config::{FleetConfig, ReplicaId};
use super::in_flight::RunningView;
use super::prefixes::{Prefixes, chain, group};
use super::row_group::RowGroup;
use crate::breakdown::PriorityBreakdown;
use crate::config::SchedulerConfig;
use crate::event::Usage;
use crate::kv::{BlockKey, Hasher};
use crate::policy::marginal_work::lengths::{Ended, Expected, LengthKind, Lengths};
use crate::policy::marginal_work::sharing;
use crate::priority::RelQueryKey;

/// A row that has not ended.
#[derive(Clone, Debug)]
pub(crate) struct FleetRow {
    pub(crate) item: WorkItem,
    /// Hashes of the beginnings of its prompt.
    pub(crate) chain: Box<[BlockKey]>,
    /// What it is alike by.
    pub(crate) group: BlockKey,
    /// Prompt tokens that neither a row before it nor a replica's cache is thought to supply.
    pub(crate) novel: u64,
    /// The request it runs as; none: it waits.
    pub(crate) request: Option<RequestId>,
    /// Tries that speak against it.
    pub(crate) tries: u32,
    /// All tries that failed.
    pub(crate) failures: u32,
    /// When the first of them did.
    pub(crate) troubled: Option<Time>,
    /// It is not sent before.
    pub(crate) not_before: Time,
    /// The replica that failed last.
    pub(crate) avoid: Option<ReplicaId>,
    /// Until when it waits aside, for no replica in service can hold it; none: it runs, or waits as others do.
    pub(crate) aside_until: Option<Time>,
    /// What is left of the time for which it may wait so; none: all, for it did not since it was last sent.
    pub(crate) aside_left: Option<Nanos>,
}

/// Where a row that is taken back stands from now on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TakenBack {
    pub(crate) tries: u32,
    pub(crate) failures: u32,
    pub(crate) troubled: Option<Time>,
    pub(crate) not_before: Time,
    pub(crate) avoid: ReplicaId,
}

/// One relQuery.
#[derive(Clone, Debug)]
pub(crate) struct Query {
    pub(crate) id: RelQueryId,
    pub(crate) tenant: TenantId,
    pub(crate) weight: u32,
    pub(crate) scope: u128,
    /// As submitted, and as it counts now.
    pub(crate) submitted_class: ServiceClass,
    pub(crate) class: ServiceClass,
    pub(crate) arrival: Time,
    pub(crate) deadline: Option<Time>,
    /// Boxed: a node of the map has places for eleven, and most relQueries of a cell have one row.
    rows: BTreeMap<u32, Box<FleetRow>>,
    groups: BTreeMap<BlockKey, RowGroup>,
    /// Groups by their size, of which the largest is asked for.
    sizes: BTreeSet<(usize, BlockKey)>,
    /// Rows that were taken back: they wait before all groups.
    requeued: BTreeSet<u32>,
    /// Rows that wait aside: behind none, and none behind them.
    aside: usize,
    waiting: usize,
    /// Rows ever submitted.
    pub(crate) submitted: u64,
    /// Novel prompt tokens of the waiting rows.
    novel: u64,
    /// All prompt tokens of the waiting rows, and of those that run.
    waiting_prompts: u64,
    running_prompts: u64,
    /// Cumulative prompt tokens of rows as they came, for Algorithm 1: as many of the last as wait.
    sums: Vec<u64>,
    /// Prompt tokens and output limits of all rows that were ever submitted.
    pub(crate) prompt_submitted: u64,
    pub(crate) output_submitted: u64,
    /// The greatest output limit of its rows.
    output_max: u64,
    pub(crate) kind: LengthKind,
    /// Rows that ended by themselves.
    pub(crate) finished: Ended,
    /// Tokens of all that ended.
    pub(crate) ended: Usage,
    pub(crate) started: Option<Time>,
    /// When a row of it last began to answer.
    pub(crate) prefilled: Option<Time>,
    /// Whether it goes first, for having waited too long (Eq. 13).
    pub(crate) is_promoted: bool,
    /// Prio(R), what it is made of, and the rows that had come by then.
    pub(crate) priority: Nanos,
    pub(crate) breakdown: PriorityBreakdown,
    pub(crate) priced_rows: u64,
    /// Where it stands among the waiting ones.
    pub(crate) key: Option<RelQueryKey>,
}

impl Query {
    /// A relQuery without rows yet.
    pub(crate) fn new(submission: &Submission) -> Self {
        let Submission { id, tenant, weight, scope, class, arrival, deadline, .. } = *submission;
        Self {
            id,
            tenant,
            weight,
            scope,
            submitted_class: class,
            class,
            arrival,
            deadline,
            rows: BTreeMap::new(),
            groups: BTreeMap::new(),
            sizes: BTreeSet::new(),
            requeued: BTreeSet::new(),
            aside: 0,
            waiting: 0,
            submitted: 0,
            novel: 0,
            waiting_prompts: 0,
            running_prompts: 0,
            sums: vec![0],
            prompt_submitted: 0,
            output_submitted: 0,
            output_max: 0,
            kind: 0,
            finished: Ended::default(),
            ended: Usage::default(),
            started: None,
            prefilled: None,
            is_promoted: false,
            priority: Nanos(0),
            breakdown: PriorityBreakdown::default(),
            priced_rows: 0,
            key: None,
        }
    }

    /// Takes rows that the caller has checked.
    pub(crate) fn add(
        &mut self,
        items: Vec<WorkItem>,
        hasher: &Hasher,
        config: &FleetConfig,
        seen: &Prefixes,
    ) {
        let block = config.prefix_block;
        for item in items {
            self.output_max = self.output_max.max(item.generation.output_max.0);
            self.submitted += 1;
            self.output_submitted = self.output_submitted.saturating_add(item.generation.output_max.0);
            self.prompt_submitted += item.prompt.len() as u64;
            self.sums.push(self.prompt_submitted);
            if self.kind == 0 {
                self.kind = kind(&item, hasher, self.scope);
            }
            let chain = chain(hasher, self.scope, &item.prompt, block);
            let group = group(hasher, self.scope, &chain);
            let place = (Arc::clone(&item.prompt), item.row);
            let before = self.groups.get(&group).and_then(|rows| rows.before(&place));
            let shared = sharing::novel(before.map(|prompt| &**prompt), &item.prompt, block);
            let cached = seen.depth(&chain) as u64 * u64::from(block);
            let novel = shared.min((item.prompt.len() as u64).saturating_sub(cached).max(1));
            let row = Box::new(FleetRow {
                chain,
                group,
                novel,
                request: None,
                tries: 0,
                failures: 0,
                troubled: None,
                not_before: Time(0),
                avoid: None,
                aside_until: None,
                aside_left: None,
                item,
            });
            self.queue(&row);
            self.rows.insert(row.item.row, row);
        }
        // A relQuery that takes rows for as long as it is open keeps the sums of those that are left.
        if self.sums.len() > 2 * (self.rows.len() + 1) {
            self.sums.drain(..self.sums.len() - self.rows.len() - 1);
        }
    }

    /// A row waits.
    fn queue(&mut self, row: &FleetRow) {
        self.join_group(row);
        self.waiting += 1;
        self.novel += row.novel;
        self.waiting_prompts += row.item.prompt.len() as u64;
    }

    /// Puts a row among the waiting ones of its group.
    fn join_group(&mut self, row: &FleetRow) {
        let place = (Arc::clone(&row.item.prompt), row.item.row);
        let rows = match self.groups.entry(row.group) {
            Entry::Vacant(vacant) => vacant.insert(RowGroup::One(place)).len(),
            Entry::Occupied(mut occupied) => {
                occupied.get_mut().add(place);
                occupied.get().len()
            }
        };
        self.sizes.remove(&(rows - 1, row.group));
        self.sizes.insert((rows, row.group));
    }

    /// A waiting row waits no more.
    fn unqueue(&mut self, row: &FleetRow) {
        self.waiting -= 1;
        self.novel -= row.novel;
        self.waiting_prompts -= row.item.prompt.len() as u64;
        self.leave_group(row);
    }

    /// Takes a waiting row out of its group, from those that were taken back, or from those that are aside.
    fn leave_group(&mut self, row: &FleetRow) {
        if row.aside_until.is_some() {
            self.aside -= 1;
            return;
        }
        if self.requeued.remove(&row.item.row) {
            return;
        }
        let Some(rows) = self.groups.get_mut(&row.group) else { return };
        if rows.remove(&row.item.prompt, row.item.row) {
            self.groups.remove(&row.group);
            self.sizes.remove(&(1, row.group));
        } else {
            let rows = rows.len();
            self.sizes.remove(&(rows + 1, row.group));
            self.sizes.insert((rows, row.group));
        }
    }

    /// A row begins to run.
    pub(crate) fn launch(&mut self, number: u32, request: RequestId, now: Time) {
        let Some(mut row) = self.rows.remove(&number) else { return };
        self.unqueue(&row);
        self.running_prompts += row.item.prompt.len() as u64;
        (row.request, row.aside_until, row.aside_left) = (Some(request), None, None);
        self.started.get_or_insert(now);
        self.prefilled = Some(now);
        self.rows.insert(number, row);
    }

    /// A row that ran waits again, before the others.
    pub(crate) fn requeue(&mut self, number: u32, taken: TakenBack) {
        let Some(row) = self.rows.get_mut(&number) else { return };
        let TakenBack { tries, failures, troubled, not_before, avoid } = taken;
        row.request = None;
        (row.tries, row.failures, row.troubled) = (tries, failures, troubled);
        (row.not_before, row.avoid) = (not_before, Some(avoid));
        self.requeued.insert(number);
        self.waiting += 1;
        self.novel += row.novel;
        self.waiting_prompts += row.item.prompt.len() as u64;
        self.running_prompts -= row.item.prompt.len() as u64;
    }

    /// A waiting row lets others pass, for no replica in service can hold it: for so long, less what it has waited so
    /// since it was last sent. Until when.
    pub(crate) fn set_aside(&mut self, number: u32, now: Time, span: Nanos) -> Option<Time> {
        let mut row = self.rows.remove(&number)?;
        self.leave_group(&row);
        let until = now + row.aside_left.unwrap_or(span);
        row.aside_until = Some(until);
        self.aside += 1;
        self.rows.insert(number, row);
        Some(until)
    }

    /// A replica can hold the row again: it stands where it stood, before the others or in its group.
    pub(crate) fn readmit(&mut self, number: u32, now: Time) {
        let Some(mut row) = self.rows.remove(&number) else { return };
        if let Some(until) = row.aside_until.take() {
            self.aside -= 1;
            row.aside_left = Some(until.since(now));
            // Who was sent has a replica that it avoids.
            if row.avoid.is_some() {
                self.requeued.insert(number);
            } else {
                self.join_group(&row);
            }
        }
        self.rows.insert(number, row);
    }

    /// Takes a row out, wherever it is.
    pub(crate) fn remove(&mut self, number: u32) -> Option<Box<FleetRow>> {
        let row = self.rows.remove(&number)?;
        match row.request {
            None => self.unqueue(&row),
            Some(_) => self.running_prompts -= row.item.prompt.len() as u64,
        }
        Some(row)
    }

    pub(crate) fn row(&self, number: u32) -> Option<&FleetRow> {
        self.rows.get(&number).map(|row| &**row)
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = &FleetRow> {
        self.rows.values().map(|row| &**row)
    }

    /// Rows that have not ended.
    pub(crate) fn open(&self) -> usize {
        self.rows.len()
    }

    /// Rows that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Of those, rows that some replica in service may hold.
    pub(crate) fn in_line(&self) -> usize {
        self.waiting - self.aside
    }

    /// Rows that were taken back and may be sent again at `now`.
    pub(crate) fn requeued(&self, now: Time) -> impl Iterator<Item = &FleetRow> {
        let rows = self.requeued.iter().filter_map(move |number| self.row(*number));
        rows.filter(move |row| row.not_before <= now)
    }

    /// Whether rows of this group wait.
    pub(crate) fn has(&self, group: BlockKey) -> bool {
        self.groups.contains_key(&group)
    }

    /// The groups with waiting rows.
    pub(crate) fn groups(&self) -> impl ExactSizeIterator<Item = BlockKey> + '_ {
        self.groups.keys().copied()
    }

    /// The row of this group that goes first.
    pub(crate) fn first_of(&self, group: BlockKey) -> Option<&FleetRow> {
        self.row(self.groups.get(&group)?.first()?)
    }

    /// The group with the most waiting rows.
    pub(crate) fn largest(&self) -> Option<BlockKey> {
        self.sizes.last().map(|(_, group)| *group)
    }

    /// How many rows wait in it.
    pub(crate) fn largest_len(&self) -> usize {
        self.sizes.last().map_or(0, |(rows, _)| *rows)
    }

    /// How long a row is expected to be.
    pub(crate) fn expected(&self, lengths: &Lengths) -> Expected {
        Expected::of(self.output_max, self.finished, lengths.of(self.kind))
    }

    /// What one of its rows takes up on a replica.
    pub(crate) fn load_of(&self, row: &FleetRow, lengths: &Lengths) -> RowLoad {
        let expected = self.expected(lengths);
        let Expected { tokens, rows } = expected;
        let ended = tokens.saturating_sub(self.output_max).checked_div(rows - 1).unwrap_or_default();
        RowLoad {
            tokens: load(&row.item, expected),
            prompt: row.item.prompt.len() as u64,
            output: ended.min(row.item.generation.output_max.0),
        }
    }

    /// The key that orders it.
    pub(crate) fn key_under(&self, config: &SchedulerConfig) -> RelQueryKey {
        RelQueryKey::new(config, self.class, self.priority, self.arrival, self.id)
            .late(self.breakdown.is_late)
    }

    /// How those see it that wait for it while it runs.
    pub(crate) fn running_view(&self, config: &SchedulerConfig) -> RunningView {
        RunningView {
            key: self.key_under(config),
            class: self.class,
            output_max: self.output_max,
            kind: self.kind,
            finished: self.finished,
        }
    }

    /// The greatest output limit of its rows.
    pub(crate) fn output_max(&self) -> u64 {
        self.output_max
    }

    /// Prompt tokens of waiting rows that neither an earlier row nor a replica's cache is thought to supply.
    pub(crate) fn novel(&self) -> u64 {
        self.novel
    }

    /// All prompt tokens of waiting rows.
    pub(crate) fn waiting_prompts(&self) -> u64 {
        self.waiting_prompts
    }

    /// Prompt tokens of rows that run.
    pub(crate) fn running_prompts(&self) -> u64 {
        self.running_prompts
    }

    /// Cumulative prompt tokens of as many rows as wait, the first an offset. Rows go in the order of what they
    /// share, so which of them wait is not a stretch of those that came: the last ones stand for them.
    pub(crate) fn waiting_sums(&self) -> &[u64] {
        &self.sums[self.sums.len() - 1 - self.waiting..]
    }

    /// The three periods of RelServe's Eq. 2, as they look from outside the replicas.
    pub(crate) fn periods(&self, end: Time) -> Periods {
        Periods::between(self.arrival, self.started, self.prefilled, end)
    }

    /// Each waiting row stands in one place, and the sums are theirs.
    pub(crate) fn check(&self) -> Result<(), String> {
        let waiting: Vec<&FleetRow> = self.rows().filter(|row| row.request.is_none()).collect();
        let grouped: usize = self.groups.values().map(RowGroup::len).sum();
        let aside = self.rows().filter(|row| row.aside_until.is_some()).count();
        if waiting.len() != self.waiting
            || grouped + self.requeued.len() + aside != self.waiting
            || aside != self.aside
        {
            return Err(format!("relQuery {}: waiting rows are miscounted", self.id));
        }
        let prompts = |waits: bool| {
            let rows = self.rows().filter(|row| row.request.is_none() == waits);
            rows.map(|row| row.item.prompt.len() as u64).sum::<u64>()
        };
        if (prompts(true), prompts(false)) != (self.waiting_prompts, self.running_prompts)
            || self.sums.len() <= self.waiting
        {
            return Err(format!("relQuery {}: prompts are miscounted", self.id));
        }
        if waiting.iter().map(|row| row.novel).sum::<u64>() != self.novel {
            return Err(format!("relQuery {}: waiting tokens are miscounted", self.id));
        }
        let mut groups = self.groups.iter();
        let is_sized = groups.all(|(group, rows)| self.sizes.contains(&(rows.len(), *group)));
        if !is_sized
            || self.sizes.len() != self.groups.len()
            || self.groups.values().any(|group| group.len() == 0)
        {
            return Err(format!("relQuery {}: groups are misplaced", self.id));
        }
        Ok(())
    }
}

/// What a row takes up on a replica while it runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RowLoad {
    /// Its prompt and as much output as is expected of it: all that it may say where no row like it has ended.
    pub(crate) tokens: u64,
    /// Its prompt.
    pub(crate) prompt: u64,
    /// The output that rows like it had; nothing where none has ended, for a server takes a row in by its prompt.
    pub(crate) output: u64,
}

/// Tokens of a row on a replica while it runs: its prompt and as much output as is expected of it.
pub(crate) fn load(item: &WorkItem, expected: Expected) -> u64 {
    let output = expected.remaining(0, item.generation.output_max.0);
    (item.prompt.len() as u64).saturating_add(output)
}

/// What makes relQueries alike: scope, template and output limit.
fn kind(item: &WorkItem, hasher: &Hasher, scope: u128) -> LengthKind {
    let template = item.spans.first().filter(|span| span.kind == SpanKind::Template);
    let template = template.map_or(TokenCount(0), |span| span.tokens).0 as usize;
    let key = hasher.block(scope, None, &item.prompt[..template.min(item.prompt.len())]);
    let limit = TokenId(u32::try_from(item.generation.output_max.0).unwrap_or(u32::MAX));
    hasher.block(scope, Some(key), &[limit]).0
}
