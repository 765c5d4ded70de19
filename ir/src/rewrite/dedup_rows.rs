//! `dedup_rows`: rows with the same prompt run once and share the answer.

use std::borrow::Cow;
use std::collections::HashMap;

use super::rule::Rule;
use super::tables::{on_tables, texts, used};
use crate::plan::{Plan, Table, TableRow};

pub(super) const RULE: Rule = Rule {
    name: "dedup_rows",
    stage: 2,
    condition: "temperature 0: every row with that prompt gets the same answer",
    form: "map(t, [r, s, r]) -> map(t, [r answering 0 and 2, s])",
    apply: |plan, _| {
        if !is_greedy(&plan) {
            return (plan, Err("rows are sampled: equal prompts get different answers".into()));
        }
        let (mut before, mut after) = (0, 0);
        let plan = on_tables(plan, &mut |template, table| {
            before += table.rows.len();
            let table = dedup(template, table);
            after += table.rows.len();
            table
        });
        let outcome = if after < before {
            Ok(format!("{before} rows -> {after}"))
        } else {
            Err("no two rows are equal".into())
        };
        (plan, outcome)
    },
};

fn is_greedy(plan: &Plan) -> bool {
    let mut greedy = true;
    plan.visit(&mut |node| {
        if let Plan::Generate { generation, .. } = node {
            greedy &= generation.temperature == 0.0;
        }
    });
    greedy
}

fn dedup(template: &Plan, table: Table) -> Table {
    let (used, columns) = (used(template, &table), table.columns.len());
    let mut first_with: HashMap<(Vec<String>, Vec<u16>), usize> = HashMap::new();
    let mut kept: Vec<TableRow> = Vec::with_capacity(table.rows.len());
    for row in table.rows {
        let texts = texts(&used, columns, &row);
        let owned = |texts: Vec<Cow<'_, str>>| texts.into_iter().map(Cow::into_owned).collect();
        // Entries in another order are another prompt.
        let key = texts.map(|texts| (owned(texts), row.record.clone()));
        match key.map(|key| *first_with.entry(key).or_insert(kept.len())) {
            Some(first) if first < kept.len() => kept[first].answers.extend(row.answers),
            _ => kept.push(row),
        }
    }
    for row in &mut kept {
        row.answers.sort_unstable();
    }
    Table { columns: table.columns, rows: kept }
}
