//! What the paper says of particular tables, and where it errs.

use super::super::*;
use super::oracle::best_of_all_runs;
use super::{table, table_with};

fn greedy(table: &FieldTable) -> Reordering {
    ggr(table, &Dependencies::none(), &EarlyStop::default())
}

fn hits(table: &FieldTable, order: &Reordering) -> u128 {
    worth(table, order).hit_count
}

#[test]
fn figure_1a_unique_values_in_the_first_field_cost_every_hit_of_the_original_order() {
    let table = table(&[&["1", "x", "y"], &["2", "x", "y"], &["3", "x", "y"], &["4", "x", "y"]]);
    assert_eq!(hits(&table, &Reordering::original(&table)), 0);
    assert_eq!(hits(&table, &greedy(&table)), 3 * 2, "(n - 1) * (m - 1)");
    assert_eq!(hits(&table, &fixed_order(&table)), 3 * 2, "one order is enough here");
}

#[test]
fn figure_1b_one_order_for_all_rows_finds_one_group_of_m() {
    let rows: [&[&str]; 9] = [
        &["g", "a", "n"],
        &["g", "b", "o"],
        &["g", "c", "p"],
        &["1", "h", "q"],
        &["2", "h", "r"],
        &["3", "h", "s"],
        &["4", "d", "i"],
        &["5", "e", "i"],
        &["6", "f", "i"],
    ];
    let table = table(&rows);
    assert_eq!(hits(&table, &fixed_order(&table)), 2, "x - 1");
    assert_eq!(hits(&table, &greedy(&table)), 6, "3 (x - 1)");
}

/// By hit count alone a1 comes first, and leaves b1 and b2 apart for one hit in all.
#[test]
fn of_tied_groups_the_one_that_loses_least_is_taken() {
    let rows: [&[&str]; 4] = [&["a1", "b1"], &["a1", "b2"], &["a2", "b1"], &["a3", "b2"]];
    let table = table_with(&rows, |_| 1);
    assert_eq!(hits(&table, &greedy(&table)), 2);
    assert_eq!(ophr(&table, 1_000).unwrap().claimed(), 2);
}

/// Pairs of rows share a text and differ in a flag. By their counts the two flags win, and split every pair.
#[test]
fn a_field_of_two_values_that_splits_long_groups_is_not_let_win() {
    let text = |row: u32| format!("what rows {} and {} are about", row & !1, row | 1);
    let columns = vec![
        Column::intern((0..400).map(text), |text| text.len() as u32),
        Column::intern((0..400).map(|row| row % 2), |_| 4),
        Column::intern(0..400, |_| 3),
    ];
    let table = FieldTable::new(columns).unwrap();
    let given = worth(&table, &Reordering::original(&table)).reused;
    assert!(worth(&table, &greedy(&table)).reused * 3 < given, "GGR makes the table worse");
    let best = best_order(&table, &Dependencies::none(), &EarlyStop::default());
    assert_eq!((best.method, best.worth.reused), (Method::Given, given), "of equal orders that which lies");
    let shuffled: Vec<u32> = (0..400).map(|row| row * 171 % 400).collect();
    let column = |field: u16| {
        let column = table.column(field);
        Column::intern(shuffled.iter().map(|row| column.value(*row)), |value| column.length_of(*value))
    };
    let shuffled = FieldTable::new((0..3).map(column).collect()).unwrap();
    let best = best_order(&shuffled, &Dependencies::none(), &EarlyStop::default());
    assert_eq!((best.method, best.worth.reused), (Method::RowsSorted, given));
}

/// Alone `b` hits most, then `a`, which parts all that agree in `b`; `c` alone hits least, and parts nothing.
#[test]
fn the_best_fixed_order_is_not_that_of_the_fields_by_themselves() {
    let columns = vec![
        Column::intern((0..64).map(|row| row % 2), |_| 3),
        Column::intern((0..64).map(|row| row / 2), |_| 5),
        Column::intern((0..64).map(|row| row / 4), |_| 2),
    ];
    let table = FieldTable::new(columns).unwrap();
    assert_eq!(worth(&table, &fixed_order(&table)).reused, 32 * 5, "a second, which parts every pair");
    let best = best_fixed_order(&table, &FixedSearch::default());
    assert_eq!((best.fields, best.is_exact), (vec![2, 1, 0], true));
    assert_eq!(best.reused, 48 * 2 + 32 * 5);
}

#[test]
fn forty_fields_end_in_bounds_and_are_not_called_exact() {
    let column = |field: u32| Column::intern((0..500).map(move |row| row * (field + 3) / 7 % 9), |_| field);
    let table = FieldTable::new((0..40).map(column).collect()).unwrap();
    for cells_max in [0, 100_000, u64::MAX] {
        let found = best_fixed_order(&table, &FixedSearch { cells_max, fields_max: 8 });
        assert!(!found.is_exact);
        assert_eq!(found.reused, worth(&table, &found.reordering(&table)).reused);
    }
}

#[test]
fn a_row_that_repeats_another_hits_in_its_last_field_too() {
    let table = table(&[&["ab", "c"], &["ab", "c"]]);
    let original = Reordering::original(&table);
    assert_eq!(worth(&table, &original), Worth { hit_count: 5, reused: 3, total: 6 });
}

#[test]
fn cells_of_different_fields_are_never_equal() {
    let table = table(&[&["x", "1"], &["2", "x"]]);
    assert_eq!(hits(&table, &greedy(&table)), 0);
}

#[test]
fn what_a_value_infers_counts_squared() {
    let rows: [&[&str]; 3] =
        [&["a", "bbb", "ddd", "1"], &["a", "bbb", "ddd", "cccc"], &["2", "222", "333", "cccc"]];
    let table = table(&rows);
    let declared = [1, 2].map(|dependent| Dependency { determinant: 0, dependent });
    let (dependencies, refused) = Dependencies::verify(&table, &declared);
    assert!(refused.is_empty());
    assert_eq!(hits(&table, &greedy(&table)), 16, "alone, no cell of the group beats 4^2");
    let order = ggr(&table, &dependencies, &EarlyStop::default());
    // 1^2 + 3^2 + 3^2 beats 4^2; the printed 1^2 + 3 + 3 would not.
    assert_eq!((order.claimed(), hits(&table, &order)), (19, 19));
    assert_eq!(ophr(&table, 1_000).unwrap().claimed(), 19);
}

#[test]
fn a_declared_dependency_that_a_row_breaks_is_refused() {
    let table = table(&[&["a", "x"], &["b", "y"], &["a", "z"]]);
    let declared = [(0, 1), (1, 0), (0, 7)];
    let declared = declared.map(|(determinant, dependent)| Dependency { determinant, dependent });
    let (held, refused) = Dependencies::verify(&table, &declared);
    assert_eq!(held.pairs(), [declared[1]]);
    assert_eq!(refused, [declared[0], declared[2]]);
}

#[test]
fn discovery_stops_at_its_bound_and_says_so() {
    let table = table(&[&["a", "x", "p"], &["a", "x", "p"], &["b", "y", "p"]]);
    let all = Dependencies::discover(&table, u64::MAX);
    assert!(all.is_complete());
    assert_eq!(all.pairs().len(), 4, "a <-> x, and both say p, which says neither");
    let some = Dependencies::discover(&table, 1);
    assert!(!some.is_complete());
    assert_eq!(some.pairs(), &all.pairs()[..1]);
}

/// Two values cross: two rows have both, and each of the two shares a third value with a row of another
/// group. The recursion moves all rows of a value at once, and so loses one hit.
#[test]
fn the_optimal_recursion_is_not_optimal_over_all_lists() {
    let rows: [&[&str]; 8] = [
        &["v", "w", "q"],
        &["v", "1", "q"],
        &["v", "2", "r"],
        &["v", "3", "r"],
        &["v", "w", "p"],
        &["4", "w", "p"],
        &["5", "w", "s"],
        &["6", "w", "s"],
    ];
    let table = table(&rows);
    assert_eq!(ophr(&table, 1_000).unwrap().claimed(), 9);
    assert_eq!(
        best_of_all_runs(&table),
        10,
        "rows 1-4 by v, rows 5-8 by w, and each pair by its third value"
    );
}

/// Section 4.2.3 has greedy optimal when one field says all others; that needs the paper's own `X <-> Y`.
#[test]
fn a_field_that_says_all_others_one_way_does_not_make_greedy_optimal() {
    let table = table(&[&["a", "g"], &["a", "g"], &["a", "g"], &["b", "g"], &["c", "h"]]);
    let dependencies = Dependencies::discover(&table, u64::MAX);
    assert_eq!(dependencies.pairs(), [Dependency { determinant: 0, dependent: 1 }]);
    let steered = ggr::steered(&table, &dependencies, &EarlyStop::default());
    assert_eq!(steered.claimed(), 4, "the three rows of a, which say g");
    assert_eq!(ophr(&table, 1_000).unwrap().claimed(), 5, "the four rows of g, then the three of a");
    let order = ggr(&table, &dependencies, &EarlyStop::default());
    assert_eq!(order.claimed(), 5, "a dependency that misleads is let go");
}

#[test]
fn the_optimal_recursion_says_that_it_gave_up() {
    let table = table(&[&["a", "x"], &["a", "y"], &["b", "x"], &["b", "y"]]);
    assert_eq!(ophr(&table, 1), Err(GaveUp::TooManySplits { splits: 1 }));
    let rows: Vec<&[&str]> = vec![&["a"]; 5_000];
    assert_eq!(ophr(&super::table(&rows), 1), Err(GaveUp::TooLarge { rows: 5_000, columns: 1 }));
}

#[test]
fn early_stops_leave_the_rest_to_one_fixed_order() {
    let rows: [&[&str]; 4] = [&["a1", "b1"], &["a1", "b2"], &["a2", "b1"], &["a3", "b2"]];
    let table = table(&rows);
    let fixed = fixed_order(&table);
    let none = Dependencies::none();
    for stop in [
        EarlyStop { row_depth_max: Some(0), ..EarlyStop::default() },
        EarlyStop { column_depth_max: Some(0), ..EarlyStop::default() },
        EarlyStop { hit_count_min: 5, ..EarlyStop::default() },
        EarlyStop { cells_max: 0, ..EarlyStop::default() },
    ] {
        assert_eq!(ggr(&table, &none, &stop), fixed, "{stop:?}");
    }
}

#[test]
fn a_hundred_thousand_rows_nest_no_calls() {
    let pair = |row: u32| row / 2;
    let columns = vec![
        Column::intern((0..100_000).map(pair), |_| 2),
        Column::intern((0..100_000).map(|row| row + 1).map(pair), |_| 1),
        Column::intern(0..100_000, |_| 9),
    ];
    let table = FieldTable::new(columns).unwrap();
    assert_eq!(greedy(&table).claimed(), 50_000 * 4);
}

#[test]
fn ten_thousand_columns_end_at_the_bound_of_cells() {
    // Rows 2i and 2i + 1 agree in all but every 40th column, in which all rows differ by another split.
    let column = |field: u32| Column::intern((0..40).map(move |row| (row + field % 40) / 2), |_| 1);
    let table = FieldTable::new((0..10_000).map(column).collect()).unwrap();
    let stop = EarlyStop { cells_max: 2_000_000, ..EarlyStop::default() };
    let order = ggr(&table, &Dependencies::none(), &stop);
    assert!(order.claimed() > 0);
    assert!(hits(&table, &order) >= order.claimed());
}

#[test]
fn a_ragged_table_is_refused_and_an_empty_one_is_in_order() {
    let columns = vec![Column::intern(["a", "b"], |_| 1), Column::intern(["a"], |_| 1)];
    assert_eq!(FieldTable::new(columns), Err(TableError::Ragged { column: 1, rows: 1, expected: 2 }));
    for table in [FieldTable::default(), FieldTable::new(vec![Column::default(); 3]).unwrap()] {
        for order in [greedy(&table), fixed_order(&table), ophr(&table, 1).unwrap()] {
            assert_eq!((order.rows(), hits(&table, &order)), (&[][..], 0));
        }
    }
}
