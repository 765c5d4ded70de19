//! What rewriting and lowering promise for every table.

use base::text::ByteText;
use base::{Generation, TokenCount};
use ir::{Cell, LowerOptions, Lowered, Plan, Rules, Table, Template, characters, lower, rewrite};
use proptest::prelude::*;

/// Rows of mostly two short cells out of few values, so that rows repeat; some are ragged.
fn rows() -> impl Strategy<Value = Vec<Vec<Cell>>> {
    let cell = prop_oneof![
        Just(Cell::Null),
        "[ab{}]{0,2}".prop_map(Cell::from),
        (0..3_i32).prop_map(|number| Cell::Number(number.to_string())),
    ];
    let width = prop_oneof![9 => Just(2_usize), 1 => 0..4_usize];
    let row = width.prop_flat_map(move |width| proptest::collection::vec(cell.clone(), width));
    proptest::collection::vec(row, 0..24)
}

fn plan(rows: Vec<Vec<Cell>>, chat: bool) -> Plan {
    let template = Template::parse("{b}-{a}").expect("the template parses");
    let table = Table::new(vec!["a".into(), "b".into()], rows).expect("the columns differ");
    let generation = Generation { output_max: TokenCount(2), ..Generation::default() };
    Plan::relquery(&template, Some("Be brief."), chat, table, generation).expect("the template fits")
}

fn lowered(plan: &Plan) -> Lowered {
    let options = LowerOptions { context_max: TokenCount(60), ..LowerOptions::default() };
    lower(plan, &ByteText, Some(&ByteText), &options).expect("a relQuery lowers")
}

/// The prompt that answers each input row.
fn prompts(lowered: &Lowered) -> Vec<Result<String, String>> {
    let prompt = |row: &u32| {
        let item = lowered.items.iter().find(|item| item.row == *row).expect("an answer names an item");
        format!("{:?}", item.prompt)
    };
    lowered.answers.iter().map(|answer| answer.as_ref().map(prompt).map_err(ToString::to_string)).collect()
}

/// The record that a row is asked about.
fn record(lowered: &Lowered, row: u32) -> serde_json::Value {
    let item = lowered.items.iter().find(|item| item.row == row).expect("an answer names an item");
    let bytes = item.prompt.iter().filter_map(|token| u8::try_from(token.0).ok()).collect();
    let text = String::from_utf8(bytes).expect("a prompt is text");
    serde_json::from_str(text.strip_prefix("Data: ").expect("the template's text")).expect("a record is JSON")
}

proptest! {
    #[test]
    fn rules_change_neither_a_prompt_nor_an_answer(rows in rows(), chat in any::<bool>()) {
        let plan = plan(rows, chat);
        let (rewritten, _) = rewrite(plan.clone(), &Rules::all(), &characters);
        prop_assert_eq!(prompts(&lowered(&plan)), prompts(&lowered(&rewritten)));
    }

    #[test]
    fn every_input_row_is_answered_and_every_item_answers(rows in rows(), chat in any::<bool>()) {
        let count = rows.len();
        let lowered = lowered(&rewrite(plan(rows, chat), &Rules::all(), &characters).0);
        prop_assert_eq!(lowered.answers.len(), count);
        let answering: std::collections::BTreeSet<u32> =
            lowered.answers.iter().filter_map(|answer| answer.as_ref().ok().copied()).collect();
        let items: std::collections::BTreeSet<u32> = lowered.items.iter().map(|item| item.row).collect();
        prop_assert_eq!(answering, items);
        for item in &lowered.items {
            let spans: TokenCount = item.spans.iter().map(|span| span.tokens).sum();
            prop_assert_eq!(spans, TokenCount(item.prompt.len() as u64));
        }
    }

    /// Every row is asked about the same cells, by the same names, and gets its own answer.
    #[test]
    fn ordering_fields_changes_the_order_of_entries_alone(rows in rows()) {
        let table = Table::new(vec!["a".into(), "b".into()], rows).expect("the columns differ");
        let template = Template::parse("Data: {*}").expect("the template parses");
        let generation = Generation { output_max: TokenCount(2), ..Generation::default() };
        let plan = Plan::relquery(&template, None, false, table, generation).expect("the template fits");
        let (ordered, _) = rewrite(plan.clone(), &Rules::all().with_fields(), &characters);
        let (again, _) = rewrite(plan.clone(), &Rules::all().with_fields(), &characters);
        prop_assert_eq!(&ordered, &again);
        let (before, after) = (lowered(&plan), lowered(&ordered));
        for (was, is) in before.answers.iter().zip(&after.answers) {
            match (was, is) {
                (Ok(was), Ok(is)) => prop_assert_eq!(record(&before, *was), record(&after, *is)),
                (was, is) => prop_assert_eq!(was, is),
            }
        }
    }

    #[test]
    fn ordering_moves_rows_and_loses_none(rows in rows()) {
        let alone = Rules::all().without("dedup_rows").without("flatten").without("hoist_prefix");
        let plan = plan(rows, true);
        let (ordered, _) = rewrite(plan.clone(), &alone, &characters);
        let (Plan::Map { rows: before, .. }, Plan::Map { rows: after, .. }) = (plan, ordered) else {
            return Err(TestCaseError::fail("ordering keeps the map"));
        };
        let mut back = after.rows.clone();
        back.sort_by_key(|row| row.answers.clone());
        prop_assert_eq!(back, before.rows);
        let leads: Vec<_> = after.rows.iter().filter(|row| row.cells.len() == 2).map(|row| row.cells[1].text()).collect();
        let runs = 1 + leads.windows(2).filter(|pair| pair[0] != pair[1]).count();
        let values: std::collections::BTreeSet<_> = leads.iter().collect();
        prop_assert!(leads.is_empty() || runs == values.len(), "equal leading values are neighbours: {leads:?}");
    }
}
