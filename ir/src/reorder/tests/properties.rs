//! What holds for every table, dependency and early stop.

use proptest::prelude::*;

use super::super::*;
use super::oracle::{best_of_all_fixed_orders, best_of_all_permutations, best_of_all_runs, greedy_by_scan};

/// Tables of few values, so that cells repeat, rows repeat, and some cells are empty.
fn tables(rows: usize, columns: usize) -> impl Strategy<Value = FieldTable> {
    let cells = (1..=rows, 1..=columns, 1_u32..5).prop_flat_map(|(rows, columns, values)| {
        prop::collection::vec(prop::collection::vec(0..values, rows), columns)
    });
    (cells, prop::collection::vec(0_u32..4, columns)).prop_map(|(columns, lengths)| {
        let column =
            |(values, length): (&Vec<u32>, u32)| Column::intern(values.clone(), |value| length * value);
        FieldTable::new(columns.iter().zip(lengths).map(column).collect()).unwrap()
    })
}

fn stops() -> impl Strategy<Value = EarlyStop> {
    let depth = || prop::option::of(0_u32..3);
    let stop = |(row_depth_max, column_depth_max, hit_count_min, cells_max)| EarlyStop {
        row_depth_max,
        column_depth_max,
        hit_count_min,
        cells_max,
    };
    (depth(), depth(), 0_u128..20, prop_oneof![0_u64..60, Just(u64::MAX)]).prop_map(stop)
}

fn check(table: &FieldTable, order: &Reordering) {
    let mut rows = order.rows().to_vec();
    rows.sort_unstable();
    assert_eq!(rows, (0..table.rows()).collect::<Vec<_>>(), "a permutation of rows");
    for (_, fields) in order.tuples() {
        let mut fields = fields.to_vec();
        fields.sort_unstable();
        assert_eq!(fields, table.fields().collect::<Vec<_>>(), "a permutation of fields");
    }
    let found = worth(table, order);
    assert!(found.hit_count >= order.claimed(), "{found:?} of {} claimed", order.claimed());
    assert!(found.reused <= found.total);
}

/// Whether any two rows that agree in one field agree in the other, by comparing all pairs.
fn is_dependency(table: &FieldTable, determinant: u16, dependent: u16) -> bool {
    let agree = |field: u16, row, other| {
        let column = &table.columns()[usize::from(field)];
        column.value(row) == column.value(other)
    };
    (0..table.rows())
        .all(|row| (0..row).all(|other| !agree(determinant, row, other) || agree(dependent, row, other)))
}

proptest! {
    #[test]
    fn a_schedule_permutes_rows_and_fields_and_hits_what_it_claims(
        table in tables(12, 5), stop in stops(), foreign in tables(12, 5),
    ) {
        let dependencies = Dependencies::discover(&table, u64::MAX);
        let order = ggr(&table, &dependencies, &stop);
        check(&table, &order);
        prop_assert_eq!(&ggr(&table, &dependencies, &stop), &order, "deterministic");
        // Even with the dependencies of another table.
        check(&table, &ggr(&table, &Dependencies::discover(&foreign, u64::MAX), &stop));
        for order in [sort_rows(&table), fixed_order(&table), Reordering::original(&table)] {
            check(&table, &order);
        }
    }

    #[test]
    fn the_best_fixed_order_reuses_what_the_best_of_all_does(table in tables(14, 5)) {
        let found = best_fixed_order(&table, &FixedSearch::default());
        let order = found.reordering(&table);
        check(&table, &order);
        prop_assert!(found.is_exact);
        prop_assert_eq!(found.reused, worth(&table, &order).reused);
        prop_assert_eq!(found.reused, best_of_all_fixed_orders(&table));
    }

    #[test]
    fn a_search_that_is_cut_short_reuses_what_it_says(
        table in tables(14, 6), fields_max in 0_u32..5, cells_max in 0_u64..400,
    ) {
        let limits = FixedSearch { fields_max, cells_max };
        let found = best_fixed_order(&table, &limits);
        check(&table, &found.reordering(&table));
        prop_assert_eq!(found.reused, worth(&table, &found.reordering(&table)).reused);
        let best = best_fixed_order(&table, &FixedSearch::default()).reused;
        prop_assert!(found.reused <= best, "{found:?}");
        prop_assert!(!found.is_exact || found.reused == best, "{found:?}");
    }

    #[test]
    fn the_best_order_is_worth_no_less_than_any_that_was_tried(
        table in tables(14, 5), foreign in tables(14, 5), stop in stops(),
    ) {
        for dependencies in [Dependencies::none(), Dependencies::discover(&table, u64::MAX),
            Dependencies::discover(&foreign, u64::MAX)] {
            let best = best_order(&table, &dependencies, &stop);
            check(&table, &best.order);
            prop_assert_eq!(best.worth, worth(&table, &best.order));
            prop_assert_eq!(&best_order(&table, &dependencies, &stop), &best, "deterministic");
            let tried = [Reordering::original(&table), sort_rows(&table), fixed_order(&table),
                ggr(&table, &dependencies, &stop)];
            for order in &tried {
                prop_assert!(best.worth.reused >= worth(&table, order).reused);
            }
            prop_assert!(best.worth.reused >= best_of_all_fixed_orders(&table));
        }
    }

    #[test]
    fn the_heap_chooses_what_a_scan_of_every_step_would(table in tables(12, 5)) {
        let (rows, fields): (Vec<u32>, Vec<u16>) = ((0..table.rows()).collect(), table.fields().collect());
        for dependencies in [Dependencies::none(), Dependencies::discover(&table, u64::MAX)] {
            let claimed = ggr::steered(&table, &dependencies, &EarlyStop::default()).claimed();
            prop_assert_eq!(claimed, greedy_by_scan(&table, dependencies.pairs(), &rows, &fields));
        }
    }

    #[test]
    fn greedy_is_at_most_optimal_and_optimal_at_most_the_best_list(table in tables(9, 4), stop in stops()) {
        let dependencies = Dependencies::discover(&table, u64::MAX);
        let optimal = ophr(&table, 100_000).unwrap();
        check(&table, &optimal);
        prop_assert!(ggr(&table, &dependencies, &stop).claimed() <= optimal.claimed());
        prop_assert!(fixed_order(&table).claimed() <= optimal.claimed());
        prop_assert!(worth(&table, &optimal).hit_count <= best_of_all_runs(&table));
    }

    #[test]
    fn on_few_rows_the_optimal_recursion_equals_the_best_of_all_permutations(
        table in prop_oneof![tables(4, 3), tables(5, 2)],
    ) {
        let best = best_of_all_permutations(&table);
        prop_assert_eq!(ophr(&table, 100_000).unwrap().claimed(), best);
        prop_assert_eq!(best_of_all_runs(&table), best);
    }

    #[test]
    fn greedy_is_optimal_where_every_field_says_every_other(
        groups in prop::collection::vec(0_u32..4, 1..10), lengths in prop::collection::vec(0_u32..4, 3),
    ) {
        let column = |(field, length): (u32, &u32)| {
            Column::intern(groups.iter().map(move |group| group * 7 + field), |value| length * (value % 3))
        };
        let table = FieldTable::new((0..3).zip(&lengths).map(column).collect()).unwrap();
        let dependencies = Dependencies::discover(&table, u64::MAX);
        let order = ggr(&table, &dependencies, &EarlyStop::default());
        prop_assert_eq!(order.claimed(), ophr(&table, 100_000).unwrap().claimed());
    }

    #[test]
    fn discovered_dependencies_are_those_that_hold(table in tables(8, 4)) {
        let found = Dependencies::discover(&table, u64::MAX);
        prop_assert!(found.is_complete());
        for determinant in table.fields() {
            let repeats = table.columns()[usize::from(determinant)].distinct() < table.rows() as usize;
            for dependent in table.fields().filter(|dependent| *dependent != determinant) {
                let expected = repeats && is_dependency(&table, determinant, dependent);
                let pair = Dependency { determinant, dependent };
                prop_assert_eq!(found.pairs().contains(&pair), expected, "{:?}", pair);
                let (held, _) = Dependencies::verify(&table, &[pair]);
                prop_assert_eq!(held.pairs().len() == 1, is_dependency(&table, determinant, dependent));
            }
        }
    }
}
