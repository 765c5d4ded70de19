//! AI conditions over both sides of outer joins, beside a nested loop that is written out here.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::common::{Model, session, shown};

/// `(id, key, text)` of either side; some texts are there twice, some rows have no key or no text.
const LEFT: [(u8, Option<u8>, Option<&str>); 6] = [
    (1, Some(1), Some("a1")),
    (2, Some(1), Some("b2")),
    (3, Some(2), Some("a1")),
    (4, Some(3), None),
    (5, None, Some("c3")),
    (6, Some(2), Some("d4")),
];
const RIGHT: [(u8, Option<u8>, Option<&str>); 6] = [
    (11, Some(1), Some("x1")),
    (12, Some(1), Some("x2")),
    (13, Some(2), Some("x1")),
    (14, Some(4), Some("x3")),
    (15, Some(2), None),
    (16, None, Some("x4")),
];

type Side = [(u8, Option<u8>, Option<&'static str>); 6];
/// A pair of ids; one of them may be absent.
type Pair = (Option<u8>, Option<u8>);

fn table(name: &str, rows: &Side) -> String {
    let key = |key: &Option<u8>| key.map_or("NULL".into(), |key| key.to_string());
    let text = |text: &Option<&str>| text.map_or("NULL".into(), |text| format!("'{text}'"));
    let rows: Vec<String> =
        rows.iter().map(|(id, k, t)| format!("({id}, {}, {})", key(k), text(t))).collect();
    format!("CREATE TABLE {name} AS SELECT * FROM (VALUES {}) AS t(id, key, text)", rows.join(", "))
}

/// Says yes where the two texts end in the same digit.
fn same_digit() -> Arc<Model> {
    Model::new(|prompt| {
        let pair = prompt.split_once("Text: ").map_or(prompt, |(_, pair)| pair);
        let holds = pair
            .split_once('/')
            .is_some_and(|(one, other)| one.trim().chars().last() == other.trim().chars().last());
        Ok(if holds { "yes" } else { "no" }.to_owned())
    })
}

/// What a join gives, by a nested loop, and the pairs of texts that it has to ask about.
fn nested_loop(join: &str, on: fn(Option<u8>, Option<u8>) -> bool) -> (BTreeSet<Pair>, usize) {
    let (mut pairs, mut asked) = (BTreeSet::new(), BTreeSet::new());
    let (mut left, mut right) = (BTreeSet::new(), BTreeSet::new());
    for (l, left_key, left_text) in LEFT {
        for (r, right_key, right_text) in RIGHT {
            if !on(left_key, right_key) {
                continue;
            }
            let (Some(one), Some(other)) = (left_text, right_text) else { continue };
            asked.insert((one, other));
            if one.chars().last() == other.chars().last() {
                pairs.insert((Some(l), Some(r)));
                left.insert(l);
                right.insert(r);
            }
        }
    }
    if join != "RIGHT" {
        pairs.extend(LEFT.iter().filter(|(id, ..)| !left.contains(id)).map(|(id, ..)| (Some(*id), None)));
    }
    if join != "LEFT" {
        pairs.extend(RIGHT.iter().filter(|(id, ..)| !right.contains(id)).map(|(id, ..)| (None, Some(*id))));
    }
    (pairs, asked.len())
}

/// The pairs of a result that is shown.
fn pairs(shown: &str) -> Vec<Pair> {
    let rows = shown.lines().filter(|line| line.starts_with('|')).skip(1);
    let pair = |line: &str| {
        let mut cells = line.split('|').skip(1).map(|cell| cell.trim().parse().ok());
        (cells.next().flatten(), cells.next().flatten())
    };
    rows.map(pair).collect()
}

async fn check(join: &str, condition: &str, on: fn(Option<u8>, Option<u8>) -> bool) {
    let model = same_digit();
    let session = session(&model, &[&table("l", &LEFT), &table("r", &RIGHT)]).await;
    let text = format!(
        "SELECT l.id, r.id FROM l {join} JOIN r ON {condition} ai_if(prompt('{{0}}/{{1}}', l.text, r.text))"
    );
    let shown = shown(&session, &text).await;
    let found = pairs(&shown);
    let (expected, asked) = nested_loop(join, on);
    assert_eq!(found.len(), expected.len(), "{text}: {shown}");
    assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), expected, "{text}");
    assert_eq!(model.asked().len(), asked, "{text}: {:?}", model.asked());
    assert!(model.repeated().is_empty(), "{text}");
}

#[tokio::test]
async fn outer_joins_give_what_a_nested_loop_gives_and_ask_each_pair_once() {
    let equal = |one: Option<u8>, other: Option<u8>| one.is_some() && one == other;
    for join in ["LEFT", "RIGHT", "FULL"] {
        check(join, "", |_, _| true).await;
        check(join, "l.key = r.key AND", equal).await;
        check(join, "l.key < r.key AND", |one, other| matches!((one, other), (Some(l), Some(r)) if l < r))
            .await;
        check(join, "1 = 0 AND", |_, _| false).await;
    }
}

#[tokio::test]
async fn conditions_on_one_side_and_further_ones_hold_too() {
    let model = same_digit();
    let session = session(&model, &[&table("l", &LEFT), &table("r", &RIGHT)]).await;
    let pair = "ai_if(prompt('{0}/{1}', l.text, r.text))";
    let two = format!(
        "SELECT l.id, r.id FROM l LEFT JOIN r ON l.key = r.key AND {pair} AND ai_if(prompt('{{0}}/1', l.text)) ORDER BY 1"
    );
    let expected = [(1, Some(11)), (2, None), (3, Some(13)), (4, None), (5, None), (6, None)];
    let expected: Vec<Pair> = expected.into_iter().map(|(l, r)| (Some(l), r)).collect();
    assert_eq!(pairs(&shown(&session, &two).await), expected);
    let or = format!(
        "SELECT l.id, r.id FROM l LEFT JOIN r ON l.key = r.key AND ({pair} OR r.id = 12) ORDER BY 1, 2"
    );
    let expected =
        [(1, Some(11)), (1, Some(12)), (2, Some(12)), (3, Some(13)), (4, None), (5, None), (6, None)];
    let expected: Vec<Pair> = expected.into_iter().map(|(l, r)| (Some(l), r)).collect();
    assert_eq!(pairs(&shown(&session, &or).await), expected);
}

#[tokio::test]
async fn conditions_above_an_outer_join_are_not_decided_below_it() {
    let model = same_digit();
    let session = session(&model, &[&table("l", &LEFT), &table("r", &RIGHT)]).await;
    let join =
        "SELECT l.id, r.id FROM l LEFT JOIN r ON l.key = r.key AND ai_if(prompt('{0}/{1}', l.text, r.text))";
    // Rows without a partner, not pairs with a right side that is null in the table.
    let alone = format!("{join} WHERE r.key IS NULL ORDER BY 1");
    assert_eq!(pairs(&shown(&session, &alone).await), [4, 5, 6].map(|id| (Some(id), None)),);
    let before = model.asked().len();
    let limited = format!("{join} LIMIT 2");
    assert_eq!(pairs(&shown(&session, &limited).await).len(), 2);
    assert!(model.asked().len() > before);
    let counted = "SELECT count(*) AS n FROM l FULL JOIN r ON ai_if(prompt('{0}/{1}', l.text, r.text))";
    let (expected, _) = nested_loop("FULL", |_, _| true);
    let shown = shown(&session, counted).await;
    assert!(shown.contains(&format!("| {} ", expected.len())), "no column is read: {shown}");
}
