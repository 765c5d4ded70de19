//! What calls cost: before they run in `EXPLAIN`, and as they run in `relserve.queries`.

use insta::assert_snapshot;
use sql::runner::TokenPrice;

use crate::common::{Model, session, shown};

#[tokio::test]
async fn a_plan_and_the_list_of_queries_say_the_price() {
    // A model of a token a letter: 9 prompt letters and one output token a row.
    let model = Model::paid(TokenPrice { prompt: 100_000.0, output: 1_000_000.0 });
    let session = session(&model, &[]).await;
    let text = "SELECT ai_complete(prompt('letters {0}', value % 2)) FROM generate_series(1, 10)";
    let plan = shown(&session, &format!("EXPLAIN FORMAT INDENT {text}")).await;
    // Two prompts of nine letters, and at most 128 output tokens each.
    assert!(plan.contains("at most 257.8000 by the replicas' prices"), "{plan}");
    shown(&session, text).await;
    let spent = "SELECT prompts, prompt_tokens, answer_tokens, price FROM relserve.queries WHERE prompts > 0";
    assert_snapshot!(shown(&session, spent).await, @r"
    +---------+---------------+---------------+-------+
    | prompts | prompt_tokens | answer_tokens | price |
    +---------+---------------+---------------+-------+
    | 2       | 18            | 2             | 3.8   |
    +---------+---------------+---------------+-------+
    ");
}

#[tokio::test]
async fn without_a_price_none_is_said() {
    let model = Model::words(&[]);
    let session = session(&model, &[]).await;
    let plan = shown(&session, "EXPLAIN FORMAT INDENT SELECT ai_complete('x')").await;
    assert!(plan.contains("prompt tokens") && !plan.contains("price"), "{plan}");
    shown(&session, "SELECT ai_complete('x')").await;
    let spent = "SELECT prompts FROM relserve.queries WHERE prompts > 0 AND price IS NULL";
    assert!(shown(&session, spent).await.contains("| 1 "));
}
