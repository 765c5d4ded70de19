//! Optimal Prefix Hit Recursion (section 4.1): the yardstick of GGR on small tables.
//!
//! It tries every split of a table into the rows with a value (without its field) and the rest, and
//! keeps the best. Sub-tables are solved once and remembered. Left out are only splits that cannot be
//! better than one that is tried:
//!
//! - a field equal in all rows goes first, for it then hits in all of them;
//! - a value of one row hits nothing, nor does a row without a repeated value;
//! - of two values with the same rows one is enough, the other is then equal in all of them;
//! - rows that share no value, not even through others, are solved apart;
//! - a split whose bound, each field sorted by itself, does not beat the best so far.
//!
//! All rows with the value always go together. That is the paper's recursion, and the sense in which it is
//! optimal: a list in which they do not can be better (`docs/REORDERING.md`).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::rc::Rc;

use super::order::Reordering;
use super::table::FieldTable;

/// Most steps that splits may nest: each takes two rows or a field.
const NESTED_MAX: usize = 1_000;

/// Why there is no exact answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GaveUp {
    /// The table is beyond any exact search.
    #[error("{rows} rows and {columns} columns are too many for an exact answer")]
    TooLarge {
        /// How many rows it has.
        rows: u32,
        /// How many columns it has.
        columns: usize,
    },
    /// The search took longer than it was allowed to.
    #[error("no exact answer after {splits} splits")]
    TooManySplits {
        /// How many splits were tried.
        splits: u64,
    },
}

/// The best schedule that recursive splits give, or why `splits_max` tries did not find it. Every try may
/// leave a sub-table in memory.
pub fn ophr(table: &FieldTable, splits_max: u64) -> Result<Reordering, GaveUp> {
    let (rows, columns) = (table.rows(), table.columns().len());
    if rows as usize / 2 + columns > NESTED_MAX {
        return Err(GaveUp::TooLarge { rows, columns });
    }
    let mut search = Search { table, solved: HashMap::new(), splits: 0, splits_max };
    let whole = Subproblem { rows: (0..table.rows()).collect(), fields: table.fields().collect() };
    let claimed = search.solve(&whole)?;
    let mut order = Reordering::with_capacity(table);
    order.claimed = claimed;
    search.emit(whole, &mut order)?;
    Ok(order)
}

/// Rows and fields of a sub-table, both rising.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Subproblem {
    rows: Vec<u32>,
    fields: Vec<u16>,
}

/// The rows that share a value of a field.
type ValueRows = (u16, Vec<u32>);

/// A sub-table without what its solution does not depend on.
struct Simplified {
    /// Fields equal in all rows, first in the prompt.
    constant: Vec<u16>,
    /// Their hit count.
    claimed: u128,
    /// Parts whose rows share no value.
    components: Vec<Rc<Subproblem>>,
}

/// The best way through a connected part.
#[derive(Clone)]
struct Solved {
    claimed: u128,
    /// The group that is split off; none where no value is repeated.
    split: Option<ValueRows>,
}

struct Search<'a> {
    table: &'a FieldTable,
    solved: HashMap<Rc<Subproblem>, Solved>,
    splits: u64,
    splits_max: u64,
}

impl Search<'_> {
    fn solve(&mut self, part: &Subproblem) -> Result<u128, GaveUp> {
        let Simplified { claimed, components, .. } = self.simplify(part);
        components.into_iter().try_fold(claimed, |sum, part| Ok(sum + self.solve_connected(part)?))
    }

    /// The best split of a part whose rows hang together.
    fn solve_connected(&mut self, part: Rc<Subproblem>) -> Result<u128, GaveUp> {
        if let Some(solved) = self.solved.get(&part) {
            return Ok(solved.claimed);
        }
        let mut best = Solved { claimed: 0, split: None };
        for (field, rows) in self.distinct_groups(&part) {
            self.splits += 1;
            if self.splits > self.splits_max {
                return Err(GaveUp::TooManySplits { splits: self.splits_max });
            }
            let hits = self.hits(field, &rows);
            let (group, rest) = split(&part, field, &rows);
            let (group_max, rest_max) = (self.bound(&group), self.bound(&rest));
            if best.split.is_some() && hits + group_max + rest_max <= best.claimed {
                continue;
            }
            let of_group = self.solve(&group)?;
            if best.split.is_some() && hits + of_group + rest_max <= best.claimed {
                continue;
            }
            let claimed = hits + of_group + self.solve(&rest)?;
            if best.split.is_none() || claimed > best.claimed {
                best = Solved { claimed, split: Some((field, rows)) };
            }
        }
        let claimed = best.claimed;
        self.solved.insert(part, best);
        Ok(claimed)
    }

    /// The repeated values of a part, most hits first, and of those with the same rows one.
    fn distinct_groups(&self, part: &Subproblem) -> Vec<ValueRows> {
        let mut groups = self.groups(part);
        if let Some(constant) = groups.iter().position(|(_, rows)| rows.len() == part.rows.len()) {
            return vec![groups.swap_remove(constant)];
        }
        groups.sort_by_cached_key(|(field, rows)| (std::cmp::Reverse(self.hits(*field, rows)), *field));
        let mut seen: HashSet<Vec<u32>> = HashSet::new();
        groups.retain(|(_, rows)| seen.insert(rows.clone()));
        groups
    }

    /// The repeated values of a part by field and value.
    fn groups(&self, part: &Subproblem) -> Vec<ValueRows> {
        let mut groups = Vec::new();
        for field in &part.fields {
            let mut rows: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
            for row in &part.rows {
                rows.entry(self.table.column(*field).value(*row)).or_default().push(*row);
            }
            groups.extend(rows.into_values().filter(|rows| rows.len() > 1).map(|rows| (*field, rows)));
        }
        groups
    }

    /// What a group hits by its value alone: `len(v)^2 * (|R_v| - 1)`.
    fn hits(&self, field: u16, rows: &[u32]) -> u128 {
        let column = self.table.column(field);
        u128::from(column.worth(column.value(rows[0]))) * (rows.len() as u128 - 1)
    }

    /// No list of a part hits more than each of its fields sorted by itself.
    fn bound(&self, part: &Subproblem) -> u128 {
        self.groups(part).iter().map(|(field, rows)| self.hits(*field, rows)).sum()
    }

    fn simplify(&self, part: &Subproblem) -> Simplified {
        let groups = self.groups(part);
        let (constant, open): (Vec<ValueRows>, Vec<ValueRows>) =
            groups.into_iter().partition(|(_, rows)| rows.len() == part.rows.len());
        let claimed = constant.iter().map(|(field, rows)| self.hits(*field, rows)).sum();
        let mut fields: Vec<u16> = open.iter().map(|(field, _)| *field).collect();
        fields.dedup();
        let component = |rows| Rc::new(Subproblem { rows, fields: fields.clone() });
        let components = connected(&open).into_iter().map(component).collect();
        Simplified { constant: constant.into_iter().map(|(field, _)| field).collect(), claimed, components }
    }

    /// Writes the solution down, sub-table by sub-table, the first in the list on top of the stack.
    fn emit(&mut self, whole: Subproblem, order: &mut Reordering) -> Result<(), GaveUp> {
        let mut stack = vec![(Vec::new(), whole)];
        while let Some((mut prefix, part)) = stack.pop() {
            let Simplified { constant, components, .. } = self.simplify(&part);
            prefix.extend(constant);
            let mut left: HashSet<u32> = part.rows.iter().copied().collect();
            for component in components {
                component.rows.iter().for_each(|row| _ = left.remove(row));
                self.solve_connected(Rc::clone(&component))?;
                let Some((field, rows)) = self.solved[&component].split.clone() else { continue };
                let (group, rest) = split(&component, field, &rows);
                stack.push((prefix.clone(), rest));
                stack.push((prefix.iter().copied().chain([field]).collect(), group));
            }
            for row in part.rows.iter().filter(|row| left.contains(row)) {
                let others = self.table.fields().filter(|field| !prefix.contains(field));
                order.push(*row, prefix.iter().copied().chain(others));
            }
        }
        Ok(())
    }
}

/// `T[R_v, cols \ c]` and `T[rows \ R_v, cols]`.
fn split(part: &Subproblem, field: u16, rows: &[u32]) -> (Subproblem, Subproblem) {
    let fields = part.fields.iter().copied().filter(|other| *other != field).collect();
    let rest = part.rows.iter().copied().filter(|row| rows.binary_search(row).is_err()).collect();
    (Subproblem { rows: rows.to_vec(), fields }, Subproblem { rows: rest, fields: part.fields.clone() })
}

/// The rows of groups that hang together through shared rows, in order of their first row.
fn connected(groups: &[ValueRows]) -> Vec<Vec<u32>> {
    let mut parent: BTreeMap<u32, u32> = BTreeMap::new();
    for (_, rows) in groups {
        let roots: Vec<u32> = rows.iter().map(|row| root(&mut parent, *row)).collect();
        let least = roots.iter().copied().min().unwrap_or_default();
        roots.into_iter().for_each(|root| _ = parent.insert(root, least));
    }
    let rows: Vec<u32> = parent.keys().copied().collect();
    let mut components: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for row in rows {
        components.entry(root(&mut parent, row)).or_default().push(row);
    }
    components.into_values().collect()
}

/// The least row that a row hangs together with, as far as it is known.
fn root(parent: &mut BTreeMap<u32, u32>, row: u32) -> u32 {
    let next = *parent.entry(row).or_insert(row);
    if next == row {
        return row;
    }
    let found = root(parent, next);
    parent.insert(row, found);
    found
}
