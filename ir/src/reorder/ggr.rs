//! Greedy Group Recursion (Algorithm 1), with its early stop (section 4.2.2).
//!
//! The recursion is a stack of sub-tables. In one sub-table all groups are taken one after another, best
//! first: that is the algorithm's recursion over rows, whose next step sees the same columns with fewer
//! rows. Scores only fall as rows leave, so that a heap whose stale entries are rescored yields the
//! maximum of every step without a scan of the table. Each group then is a sub-table of its own, with
//! one field less: the recursion over columns.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::dependency::Dependencies;
use super::fixed::{by_score, sort};
use super::order::{Reordering, worth};
use super::subtable::{Counts, SubTable, ValueGroup};
use super::table::FieldTable;

/// When GGR leaves a sub-table to the fixed order of its statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EarlyStop {
    /// Most groups taken out of one sub-table; the paper's row recursion depth. `None`: all.
    pub row_depth_max: Option<u32>,
    /// Most fields fixed by recursion in front of a sub-table; the paper's column recursion depth. `None`:
    /// all.
    pub column_depth_max: Option<u32>,
    /// A group whose hit count is less is not taken.
    pub hit_count_min: u128,
    /// Most cells looked at, summed over all sub-tables: the bound of time on wide tables.
    pub cells_max: u64,
}

impl EarlyStop {
    /// The settings of section 6.5: row depth 4, column depth 2, threshold 0.1M.
    pub fn of_the_paper() -> Self {
        Self { row_depth_max: Some(4), column_depth_max: Some(2), hit_count_min: 100_000, ..Self::default() }
    }
}

impl Default for EarlyStop {
    /// Full depth: sub-tables cost no scan per group here, so that stopping early saves little time.
    fn default() -> Self {
        Self { row_depth_max: None, column_depth_max: None, hit_count_min: 0, cells_max: 500_000_000 }
    }
}

/// Most groups of equal hit count that are compared by what taking them loses.
pub(super) const TIES_MAX: usize = 8;

/// Reorders rows and, per row, fields. Deterministic: of equal hit counts the one whose rows share least with
/// others, of those the first field's first value.
///
/// Dependencies that hold in a few rows by chance mislead the choice; so where there are any, the order that
/// is found without them is taken if it is worth more.
pub fn ggr(table: &FieldTable, dependencies: &Dependencies, stop: &EarlyStop) -> Reordering {
    let order = steered(table, dependencies, stop);
    if dependencies.pairs().is_empty() {
        return order;
    }
    let plain = steered(table, &Dependencies::none(), stop);
    let hits = |order| worth(table, order).hit_count;
    if hits(&plain) > hits(&order) { plain } else { order }
}

/// Algorithm 1 with these dependencies, right or wrong.
pub(super) fn steered(table: &FieldTable, dependencies: &Dependencies, stop: &EarlyStop) -> Reordering {
    let mut solver = Solver {
        table,
        dependents: dependencies.by_determinant(table),
        counts: Counts::new(table),
        stop,
        cells: 0,
        order: Reordering::with_capacity(table),
    };
    let mut stack = vec![SubTable::whole(table)];
    while let Some(sub) = stack.pop() {
        solver.solve(sub, &mut stack);
    }
    solver.order
}

/// A group that may be taken, ordered by its hit count.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct GroupCandidate {
    hit_count: u128,
    /// Its place in the list of groups: of equal ones, the first is taken.
    group: Reverse<usize>,
    /// `len(v)^2` and those of the inferred values.
    worth: u128,
    /// The rows it had when it was scored.
    rows: u32,
}

impl GroupCandidate {
    /// HITCOUNT (Alg. 1 lines 3-8).
    fn new(group: usize, worth: u128, rows: u32) -> Self {
        Self { hit_count: worth * u128::from(rows - 1), group: Reverse(group), worth, rows }
    }
}

/// The groups of one sub-table while they are being taken.
struct Groups {
    list: Vec<ValueGroup>,
    heap: BinaryHeap<GroupCandidate>,
    /// The fields whose groups these are.
    fields: Vec<u16>,
    /// Per row of the sub-table, whether its group was taken.
    taken: Vec<bool>,
}

impl Groups {
    /// The greatest candidate that is not stale.
    fn greatest(&mut self, counts: &Counts) -> Option<GroupCandidate> {
        loop {
            let top = self.heap.pop()?;
            let rows = counts.count(self.list[top.group.0].cell);
            if rows == top.rows {
                return Some(top);
            }
            if rows > 1 {
                self.heap.push(GroupCandidate::new(top.group.0, top.worth, rows));
            }
        }
    }

    /// The rows of a group that are still there.
    fn rows(&self, sub: &SubTable, candidate: &GroupCandidate) -> Vec<u32> {
        let members = self.list[candidate.group.0].members.iter().map(|position| *position as usize);
        members.filter(|position| !self.taken[*position]).map(|position| sub.rows[position]).collect()
    }
}

struct Solver<'a> {
    table: &'a FieldTable,
    /// Per field, the fields that it determines.
    dependents: Vec<Vec<u16>>,
    counts: Counts,
    stop: &'a EarlyStop,
    /// Cells looked at so far.
    cells: u64,
    order: Reordering,
}

impl Solver<'_> {
    /// Emits a sub-table's rows, or leaves its groups on the stack, the first one on top.
    fn solve(&mut self, mut sub: SubTable, stack: &mut Vec<SubTable>) {
        self.cells += sub.cells();
        let (claimed, mut scores) = self.counts.simplify(self.table, &mut sub);
        self.order.claimed += claimed;
        let is_deep = self.stop.column_depth_max.is_some_and(|depth| sub.depth >= depth);
        if sub.is_leaf || is_deep || sub.open.is_empty() || self.cells > self.stop.cells_max {
            let fields = by_score(&mut scores);
            self.order.claimed += sort(self.table, &mut sub.rows, &fields);
            self.emit(&sub, &fields);
        } else {
            self.take_groups(&sub, stack);
        }
        self.counts.clear(self.table, &sub);
    }

    fn emit(&mut self, sub: &SubTable, fields: &[u16]) {
        for row in &sub.rows {
            let tuple = sub.prefix.iter().chain(fields).chain(&sub.unique);
            self.order.push(*row, tuple.copied());
        }
    }

    /// Lines 17-29, for as long as a group is worth it: `[b_v, inferred values] + L_B`, then `L_A`.
    /// Inferred values are constant in `B`, where they come first.
    fn take_groups(&mut self, sub: &SubTable, stack: &mut Vec<SubTable>) {
        let mut groups = self.groups(sub);
        let first_child = stack.len();
        while let Some(best) = self.best(sub, &mut groups) {
            let depth = (stack.len() - first_child) as u32;
            if best.hit_count < self.stop.hit_count_min
                || self.stop.row_depth_max.is_some_and(|depth_max| depth >= depth_max)
            {
                break;
            }
            let rows = groups.rows(sub, &best);
            rows.iter().for_each(|row| self.counts.remove(self.table, *row, &groups.fields));
            let ValueGroup { cell: (field, value), members } = &groups.list[best.group.0];
            members.iter().for_each(|position| groups.taken[*position as usize] = true);
            let worth = self.table.column(*field).worth(*value);
            self.order.claimed += u128::from(worth) * (rows.len() as u128 - 1);
            stack.push(sub.group(*field, rows));
        }
        stack.push(sub.rest(&groups.taken));
        stack[first_child..].reverse();
    }

    fn groups(&mut self, sub: &SubTable) -> Groups {
        let fields = self.considered(&sub.open);
        let list = self.counts.groups(self.table, sub, &fields);
        let score = |(place, group): (usize, &ValueGroup)| {
            GroupCandidate::new(place, self.worth(sub, group), group.members.len() as u32)
        };
        let heap = list.iter().enumerate().map(score).collect();
        Groups { list, heap, fields, taken: vec![false; sub.rows.len()] }
    }

    /// The next group: the greatest hit count, and of equal ones the least loss. The algorithm says nothing
    /// of ties, and there it is that greedy choice falls behind the exact search (section 4.2.3).
    fn best(&mut self, sub: &SubTable, groups: &mut Groups) -> Option<GroupCandidate> {
        let mut tied = vec![groups.greatest(&self.counts)?];
        let hit_count = tied[0].hit_count;
        while tied.len() < TIES_MAX && self.cells <= self.stop.cells_max {
            let Some(next) = groups.greatest(&self.counts) else { break };
            if next.hit_count < hit_count {
                groups.heap.push(next);
                break;
            }
            tied.push(next);
        }
        if tied.len() > 1 {
            tied.sort_by_cached_key(|candidate| {
                let rows = groups.rows(sub, candidate);
                self.cells += (rows.len() * groups.fields.len()) as u64;
                (self.counts.shared_with_others(self.table, &rows, &groups.fields), candidate.group.0)
            });
        }
        groups.heap.extend(tied.drain(1..));
        tied.pop()
    }

    /// The open fields whose groups are looked at: of fields that determine each other, the first.
    fn considered(&self, open: &[u16]) -> Vec<u16> {
        let determines = |field: u16, other: u16| self.dependents[usize::from(field)].contains(&other);
        let mut considered: Vec<u16> = Vec::with_capacity(open.len());
        for field in open {
            if !considered.iter().any(|first| determines(*first, *field) && determines(*field, *first)) {
                considered.push(*field);
            }
        }
        considered
    }

    /// What one hit of a group is worth: its value, and what that infers of the fields still open (lines
    /// 5-6; the printed line averages the inferred lengths, Eq. 2 squares all).
    fn worth(&self, sub: &SubTable, group: &ValueGroup) -> u128 {
        let row = sub.rows[group.members[0] as usize];
        let is_open = |field: &&u16| sub.open.binary_search(field).is_ok();
        let inferred = self.dependents[usize::from(group.cell.0)].iter().filter(is_open);
        let fields = inferred.chain([&group.cell.0]).map(|field| self.table.column(*field));
        fields.map(|column| u128::from(column.worth(column.value(row)))).sum()
    }
}
