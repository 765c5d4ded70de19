//! One field order for all rows, from the table's statistics: the baseline of section 3.2 and the
//! leaves of GGR (section 4.2.2).

use std::cmp::Reverse;

use super::order::Reordering;
use super::table::FieldTable;

/// The rows sorted in the table's own field order.
pub fn sort_rows(table: &FieldTable) -> Reordering {
    let fields: Vec<u16> = table.fields().collect();
    with_order(table, &fields)
}

/// The fields in one order for all rows, worth most first, and the rows sorted by it.
pub fn fixed_order(table: &FieldTable) -> Reordering {
    let mut scores: Vec<(u16, u128)> = table.fields().map(|field| (field, score(table, field))).collect();
    with_order(table, &by_score(&mut scores))
}

/// A field's score: what it hits as the only field, `sum over v of len(v)^2 * (count(v) - 1)`. The
/// printed score `avg(len(c))^2` names no frequency although its text asks for it; counts are exact here.
fn score(table: &FieldTable, field: u16) -> u128 {
    let column = table.column(field);
    let mut counts = vec![0_u32; column.distinct()];
    for value in &column.values {
        counts[*value as usize] += 1;
    }
    let hits = |(value, count): (usize, &u32)| u128::from(column.worth(value as u32)) * u128::from(count - 1);
    counts.iter().enumerate().map(hits).sum()
}

/// Fields by falling score, equal ones in the table's order.
pub(super) fn by_score(scores: &mut [(u16, u128)]) -> Vec<u16> {
    scores.sort_unstable_by_key(|(field, score)| (Reverse(*score), *field));
    scores.iter().map(|(field, _)| *field).collect()
}

/// The rows sorted by fields in this order.
pub(super) fn with_order(table: &FieldTable, fields: &[u16]) -> Reordering {
    let mut rows: Vec<u32> = (0..table.rows()).collect();
    let mut order = Reordering::with_capacity(table);
    order.claimed = sort(table, &mut rows, fields);
    for row in rows {
        order.push(row, fields.iter().copied());
    }
    order
}

/// Sorts rows by these fields in turn; the prefix hit count of the fields over the sorted rows.
pub(super) fn sort(table: &FieldTable, rows: &mut [u32], fields: &[u16]) -> u128 {
    let key = |row: u32| fields.iter().map(move |field| table.column(*field).value(row));
    rows.sort_unstable_by(|row, other| key(*row).cmp(key(*other)).then(row.cmp(other)));
    let hits = |pair: &[u32]| -> u128 {
        let columns = fields.iter().map(|field| table.column(*field));
        let shared = columns.take_while(|column| column.value(pair[0]) == column.value(pair[1]));
        shared.map(|column| u128::from(column.worth(column.value(pair[1])))).sum()
    };
    rows.windows(2).map(hits).sum()
}
