//! The ten shapes of SemBench's movie scenario (arXiv 2511.01716), on a table of our own: the prompts that are
//! asked are the distinct ones that the answer needs.

use std::collections::HashSet;
use std::sync::Arc;

use sql::Session;

use crate::common::{Model, session, shown};

/// Reviews: 12 of `taken_3`, 9 of them different, 8 of `ant_man`, all different, 40 of others.
const REVIEWS: &str = r#"CREATE TABLE reviews AS
    SELECT value AS "reviewId",
        CASE WHEN value < 12 THEN 'taken_3' WHEN value < 20 THEN 'ant_man' ELSE 'film_' || (value % 5) END AS id,
        CASE WHEN value < 12 THEN 'taken ' || (value % 9) WHEN value < 20 THEN 'ant ' || value
            ELSE 'other ' || value END || CASE WHEN value % 3 = 0 THEN ' bad' ELSE ' good' END AS "reviewText"
    FROM generate_series(0, 59)"#;
const POSITIVE: &str = "ai_if(prompt('Is this review clearly positive? {0}', reviewText))";
const SCORE: &str = "ai_score(reviewText, 'how much the reviewer liked the movie', 1, 5)";
/// Pairs of reviews of one film.
const PAIRS: &str = "SELECT r1.reviewId, r2.reviewId FROM reviews r1 JOIN reviews r2
    ON r1.id = r2.id AND r1.reviewId <> r2.reviewId WHERE r1.id = 'ant_man' AND";

fn model() -> Arc<Model> {
    Model::new(|prompt| {
        let good = prompt.matches("good").count();
        let said = if prompt.contains("the same sentiment") {
            if good == 1 { "no" } else { "yes" }
        } else if prompt.contains("opposite") {
            if good == 1 { "yes" } else { "no" }
        } else if prompt.contains("Rate") {
            if good > 0 { "5" } else { "1" }
        } else if prompt.contains("Classify") {
            if prompt.contains("bad") { "negative" } else { "positive" }
        } else if good > 0 {
            "yes"
        } else {
            "no"
        };
        Ok(said.to_owned())
    })
}

/// How many prompts a statement asks, all of them different.
async fn asks(text: &str) -> (usize, String) {
    let model = model();
    let session: Session = session(&model, &[REVIEWS]).await;
    let shown = shown(&session, text).await;
    assert!(!shown.starts_with("error"), "{text}: {shown}");
    let asked = model.asked();
    assert_eq!(asked.iter().collect::<HashSet<_>>().len(), asked.len(), "{text}: a prompt was asked twice");
    (asked.len(), shown)
}

#[tokio::test]
async fn one_and_two_some_positive_reviews() {
    let (all, _) = asks(&format!("SELECT reviewId FROM reviews WHERE {POSITIVE} LIMIT 5")).await;
    assert!((5..=20).contains(&all), "{all}");
    let (one, _) =
        asks(&format!("SELECT reviewId FROM reviews WHERE {POSITIVE} AND id = 'taken_3' LIMIT 5")).await;
    assert!((5..=9).contains(&one), "{one}: the reviews of one film, not of all");
}

#[tokio::test]
async fn three_and_four_how_many_are_positive() {
    let (count, shown) =
        asks(&format!("SELECT COUNT(*) AS n FROM reviews WHERE id = 'taken_3' AND {POSITIVE}")).await;
    assert_eq!(count, 9, "{shown}");
    let (ratio, _) = asks(&format!(
        "SELECT CAST(SUM(CASE WHEN {POSITIVE} THEN 1 ELSE 0 END) AS DOUBLE) / COUNT(*) AS share
         FROM reviews WHERE id = 'taken_3'"
    ))
    .await;
    assert_eq!(ratio, 9);
}

#[tokio::test]
async fn five_to_seven_pairs_of_reviews() {
    let same = "ai_if(prompt('Do these have the same sentiment? {0} | {1}', r1.reviewText, r2.reviewText))";
    let opposite = "ai_if(prompt('Are these opposite? {0} | {1}', r1.reviewText, r2.reviewText))";
    for condition in [same, opposite] {
        let (some, shown) = asks(&format!("{PAIRS} {condition} LIMIT 10")).await;
        assert!((10..=40).contains(&some), "{some}: {shown}");
    }
    let (all, _) = asks(&format!("{PAIRS} {opposite}")).await;
    assert_eq!(all, 8 * 7, "each ordered pair of different reviews, once");
}

#[tokio::test]
async fn eight_to_ten_labels_and_scores() {
    let (labels, _) = asks(
        "SELECT ai_classify(reviewText, ['positive', 'negative']) AS label, COUNT(*) FROM reviews
         WHERE id = 'taken_3' GROUP BY label",
    )
    .await;
    assert_eq!(labels, 9);
    let (scores, _) =
        asks(&format!("SELECT reviewId, {SCORE} AS score FROM reviews WHERE id = 'ant_man'")).await;
    assert_eq!(scores, 8);
    let (means, _) = asks(&format!("SELECT id, AVG({SCORE}) AS mean FROM reviews GROUP BY id")).await;
    assert_eq!(means, 57);
}
