//! `ai_embed` and `ai_similarity`: each distinct text goes to the embedding model once, some at a time.

use insta::assert_snapshot;

use crate::common::{Model, session, shown};

const NOTES: &str = "CREATE TABLE notes AS SELECT * FROM (VALUES
    (1, 'red red'), (2, 'blue'), (3, 'red blue'), (4, 'red red'), (5, NULL)) AS t(id, text)";

/// All texts that were embedded.
fn embedded(model: &Model) -> Vec<String> {
    let mut texts = model.embedded().concat();
    texts.sort();
    texts
}

#[tokio::test]
async fn texts_become_vectors_and_equal_texts_are_embedded_once() {
    let model = Model::embedder(&["red", "blue"]);
    let session = session(&model, &[NOTES]).await;
    assert_snapshot!(shown(&session, "SELECT id, ai_embed(text) AS v FROM notes WHERE id <> 3 ORDER BY id").await, @r"
    +----+------------+
    | id | v          |
    +----+------------+
    | 1  | [1.0, 0.0] |
    | 2  | [0.0, 1.0] |
    | 4  | [1.0, 0.0] |
    | 5  |            |
    +----+------------+
    ");
    assert_eq!(embedded(&model), ["blue", "red red"]);
    assert!(model.asked().is_empty());
}

#[tokio::test]
async fn the_similarity_of_two_texts_is_that_of_their_vectors() {
    let model = Model::embedder(&["red", "blue"]);
    let session = session(&model, &[NOTES]).await;
    let text = "SELECT id, round(ai_similarity(text, 'blue'), 3) AS s FROM notes
        WHERE ai_similarity(text, 'blue') IS NULL OR ai_similarity(text, 'blue') < 1 ORDER BY id";
    assert_snapshot!(shown(&session, text).await, @r"
    +----+-------+
    | id | s     |
    +----+-------+
    | 1  | 0.0   |
    | 3  | 0.707 |
    | 4  | 0.0   |
    | 5  |       |
    +----+-------+
    ");
    assert_eq!(
        embedded(&model),
        ["blue", "red blue", "red red"],
        "the constant once, the column's texts once"
    );
    let pairs = "SELECT a.id AS a, b.id AS b FROM notes a JOIN notes b ON a.id < b.id
        AND ai_similarity(a.text, prompt('{0}', b.text)) > 0.9 ORDER BY 1, 2";
    assert_snapshot!(shown(&session, pairs).await, @r"
    +---+---+
    | a | b |
    +---+---+
    | 1 | 4 |
    +---+---+
    ");
}

#[tokio::test]
async fn a_column_is_embedded_in_groups_below_cheap_conditions() {
    let model = Model::embedder(&["1"]);
    let session = session(&model, &[]).await;
    let text = "SELECT count(*) AS n FROM generate_series(1, 1000)
        WHERE value > 400 AND ai_similarity(prompt('{0}', value), '1') > 0.5";
    shown(&session, text).await;
    let groups: Vec<usize> = model.embedded().iter().map(Vec::len).collect();
    assert_eq!(groups.iter().sum::<usize>(), 601, "those that pass, and the constant");
    assert!(groups.len() <= 10, "{groups:?}");
    let before = model.embedded().len();
    let plan = shown(&session, &format!("EXPLAIN FORMAT INDENT {text}")).await;
    assert!(plan.contains("600 rows, 600 distinct texts for the embedding model"), "{plan}");
    assert_eq!(model.embedded().len(), before, "a plan embeds nothing");
}

#[tokio::test]
async fn without_an_embedding_model_its_setting_is_named() {
    let model = Model::words(&[]);
    let session = session(&model, &[NOTES]).await;
    let error = shown(&session, "SELECT ai_embed(text) FROM notes").await;
    assert!(error.contains("the setting `retrieval.model` is not set"), "{error}");
    for (text, said) in [
        ("SELECT ai_similarity(text) FROM notes", "takes two texts, got 1"),
        ("SELECT ai_embed(text, 'x') FROM notes", "takes one text, got 2"),
    ] {
        let error = shown(&session, text).await;
        assert!(error.contains(said), "{text}: {error}");
    }
}

#[tokio::test]
async fn a_text_that_cannot_be_read_fails_alone() {
    let model = Model::embedder(&["red"]);
    let session = session(&model, &[]).await;
    let values = "(VALUES (1, 'red'), (2, 'unreadable')) AS t(id, text)";
    let text = format!("SELECT id, ai_embed(text) AS v FROM {values} ORDER BY id");
    assert_snapshot!(shown(&session, &text).await, @r"
    +----+-------+
    | id | v     |
    +----+-------+
    | 1  | [1.0] |
    | 2  |       |
    +----+-------+
    ");
    let strict = format!("SELECT ai_embed(text, on_error => 'error') AS v FROM {values}");
    assert!(shown(&session, &strict).await.contains("the text cannot be read"));
    shown(&session, "SET relserve.cached_only = true").await;
    let before = model.embedded().len();
    assert_snapshot!(shown(&session, &text).await, @r"
    +----+---+
    | id | v |
    +----+---+
    | 1  |   |
    | 2  |   |
    +----+---+
    ");
    assert_eq!(model.embedded().len(), before, "nothing is computed where only what is known is wanted");
}
