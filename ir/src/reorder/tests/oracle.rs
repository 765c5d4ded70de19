//! Exact answers by other ways than the solvers': all permutations, and all ways to choose leaders.

use std::collections::HashMap;

use super::super::ggr::TIES_MAX;
use crate::reorder::dependency::Dependency;
use crate::reorder::fixed::with_order;
use crate::reorder::order::{Reordering, worth};
use crate::reorder::table::FieldTable;

/// The most that any order of rows and any order of each row's fields hits, by trying them all.
pub(super) fn best_of_all_permutations(table: &FieldTable) -> u128 {
    let rows: Vec<u32> = (0..table.rows()).collect();
    let fields: Vec<u16> = table.fields().collect();
    let tuples = permutations(&fields);
    let mut best = 0;
    for rows in permutations(&rows) {
        let mut choice = vec![0; rows.len()];
        loop {
            let mut order = Reordering::with_capacity(table);
            rows.iter().zip(&choice).for_each(|(row, tuple)| order.push(*row, tuples[*tuple].clone()));
            best = best.max(worth(table, &order).hit_count);
            let Some(place) = choice.iter().position(|tuple| tuple + 1 < tuples.len()) else { break };
            choice[..place].fill(0);
            choice[place] += 1;
        }
    }
    best
}

/// The most that one order of fields for all rows reuses, by trying them all.
pub(super) fn best_of_all_fixed_orders(table: &FieldTable) -> u64 {
    let fields: Vec<u16> = table.fields().collect();
    let reused = |fields: Vec<u16>| worth(table, &with_order(table, &fields)).reused;
    permutations(&fields).into_iter().map(reused).max().unwrap_or_default()
}

fn permutations<T: Copy>(items: &[T]) -> Vec<Vec<T>> {
    if items.is_empty() {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for (place, first) in items.iter().enumerate() {
        let rest = [&items[..place], &items[place + 1..]].concat();
        all.extend(permutations(&rest).into_iter().map(|mut tail| {
            tail.insert(0, *first);
            tail
        }));
    }
    all
}

/// The same number for larger tables. A list falls into runs by its first cells, and a run without its
/// first cells is a list again; so the first row's run is one of the subsets of rows that agree with it
/// in one field. In contrast to OPHR, a run need not hold all of those.
pub(super) fn best_of_all_runs(table: &FieldTable) -> u128 {
    let all_rows = (1 << table.rows()) - 1;
    let all_fields = (1 << table.columns().len()) - 1;
    runs(table, all_rows, all_fields, &mut HashMap::new())
}

fn runs(table: &FieldTable, rows: u32, fields: u32, known: &mut HashMap<(u32, u32), u128>) -> u128 {
    if rows == 0 || fields == 0 {
        return 0;
    }
    if let Some(best) = known.get(&(rows, fields)) {
        return *best;
    }
    let first = rows.trailing_zeros();
    let mut best = runs(table, rows & !(1 << first), fields, known);
    for field in table.fields().filter(|field| fields & (1 << field) != 0) {
        let column = table.column(field);
        let agrees = |row: &u32| column.value(*row) == column.value(first);
        let others: u32 = (first + 1..table.rows())
            .filter(|row| rows & (1 << row) != 0)
            .filter(agrees)
            .map(|row| 1 << row)
            .sum();
        let mut subset = others;
        while subset != 0 {
            let run = subset | (1 << first);
            let hits = u128::from(column.worth(column.value(first))) * u128::from(subset.count_ones());
            let inside = runs(table, run, fields & !(1 << field), known);
            best = best.max(hits + inside + runs(table, rows & !run, fields, known));
            subset = (subset - 1) & others;
        }
    }
    known.insert((rows, fields), best);
    best
}

/// Algorithm 1 with its errata mended, one scan per step: what the greedy choice counts on these rows and
/// fields. As in the solver, what is equal in all rows of a group comes first in it,
/// and of tied groups the one that shares least with the rest is taken.
pub(super) fn greedy_by_scan(table: &FieldTable, known: &[Dependency], rows: &[u32], fields: &[u16]) -> u128 {
    let agreeing = |rows: &[u32], field: u16, first: u32| -> Vec<u32> {
        let column = table.column(field);
        rows.iter().copied().filter(|row| column.value(*row) == column.value(first)).collect()
    };
    let worth = |field: u16, row| u128::from(table.column(field).worth(table.column(field).value(row)));
    let Some(first) = rows.first() else { return 0 };
    let is_constant = |field: &u16| agreeing(rows, *field, *first).len() == rows.len();
    let (constant, open): (Vec<u16>, Vec<u16>) = fields.iter().partition(|field| is_constant(field));
    let mut claimed: u128 =
        constant.iter().map(|field| worth(*field, *first) * (rows.len() as u128 - 1)).sum();
    let (all, mut rows) = (rows, rows.to_vec());
    loop {
        let mut tied: (u128, Vec<(u16, Vec<u32>)>) = (0, Vec::new());
        let looked_at = considered(known, &open);
        for field in &looked_at {
            let infers = |pair: &&Dependency| pair.determinant == *field && open.contains(&pair.dependent);
            let inferred: Vec<u16> = known.iter().filter(infers).map(|pair| pair.dependent).collect();
            for row in all {
                let group = agreeing(&rows, *field, *row);
                let length =
                    worth(*field, *row) + inferred.iter().map(|other| worth(*other, *row)).sum::<u128>();
                let hits = length * (group.len() as u128).saturating_sub(1);
                if group.len() > 1 && (tied.1.is_empty() || hits > tied.0) {
                    tied = (hits, vec![(*field, group)]);
                } else if group.len() > 1 && hits == tied.0 && !tied.1.contains(&(*field, group.clone())) {
                    tied.1.push((*field, group));
                }
            }
        }
        let loss = |(_, group): &&(u16, Vec<u32>)| -> u128 {
            let values = looked_at.iter().flat_map(|field| group.iter().map(move |row| (*field, *row)));
            let firsts = values.filter(|(field, row)| agreeing(group, *field, *row)[0] == *row);
            let shared = firsts.filter(|(field, row)| {
                agreeing(&rows, *field, *row).len() > agreeing(group, *field, *row).len()
            });
            shared.map(|(field, row)| worth(field, row)).sum()
        };
        let Some((field, group)) = tied.1.iter().take(TIES_MAX).min_by_key(loss).cloned() else {
            return claimed;
        };
        let others: Vec<u16> = open.iter().copied().filter(|other| *other != field).collect();
        claimed += worth(field, group[0]) * (group.len() as u128 - 1);
        claimed += greedy_by_scan(table, known, &group, &others);
        rows.retain(|row| !group.contains(row));
    }
}

fn says_each_other(known: &[Dependency], field: u16, other: u16) -> bool {
    let says = |determinant, dependent| known.contains(&Dependency { determinant, dependent });
    says(field, other) && says(other, field)
}

/// The fields without those that an earlier one says and is said by.
fn considered(known: &[Dependency], open: &[u16]) -> Vec<u16> {
    let is_determined = |(place, field): (usize, &u16)| {
        open[..place].iter().any(|other| says_each_other(known, *other, *field))
    };
    open.iter().enumerate().filter(|at| !is_determined(*at)).map(|(_, field)| *field).collect()
}
