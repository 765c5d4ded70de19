//! How likely answers are, beside the answers or in their place.

use insta::assert_snapshot;

use crate::calls::REVIEWS;
use crate::common::{Model, session, shown};

#[tokio::test]
async fn how_likely_an_answer_is_comes_with_the_prompt_that_gave_it() {
    let model = Model::words(&[("bright", "good~0.75"), ("dull", "bad~0.5"), ("loud", "bad")]);
    let session = session(&model, &[REVIEWS]).await;
    let text = "SELECT id, ai_classify(text, ['good', 'bad']) AS label,
        ai_classify(text, ['good', 'bad'], probability => true) AS p FROM reviews WHERE id > 3 ORDER BY id";
    assert_snapshot!(shown(&session, text).await, @r"
    +----+-------+------+
    | id | label | p    |
    +----+-------+------+
    | 4  | good  | 0.75 |
    | 5  | bad   | 0.5  |
    | 6  | bad   |      |
    | 7  |       |      |
    +----+-------+------+
    ");
    assert_eq!(model.asked().len(), 3, "label and probability are of one prompt: {:?}", model.asked());
    assert_snapshot!(shown(&session, "SELECT reason FROM relserve.errors").await, @r"
    +-------------------------------------------------------------------+
    | reason                                                            |
    +-------------------------------------------------------------------+
    | the probability is not known: what runs the rows does not tell it |
    +-------------------------------------------------------------------+
    ");
}

#[tokio::test]
async fn the_probability_of_a_yes_or_no_question_is_that_of_yes() {
    let model = Model::words(&[("bright", "yes~0.75"), ("dull", "no~0.75"), ("loud", "no~0.5")]);
    let session = session(&model, &[REVIEWS]).await;
    let text = "SELECT id, ai_if(text, probability => true) AS p, AI_IF_PROBABILITY(text) AS q FROM reviews
        WHERE ai_if_probability(text) < 0.75 ORDER BY ai_if_probability(text), id";
    assert_snapshot!(shown(&session, text).await, @r"
    +----+------+------+
    | id | p    | q    |
    +----+------+------+
    | 2  | 0.25 | 0.25 |
    | 5  | 0.25 | 0.25 |
    | 6  | 0.5  | 0.5  |
    +----+------+------+
    ");
    assert_eq!(model.asked().len(), 5, "{:?}", model.asked());
    let wrong = shown(&session, "SELECT ai_complete(text, probability => true) FROM reviews").await;
    assert!(wrong.contains("ai_complete: has no option `probability`"), "{wrong}");
    let plain =
        shown(&session, "SELECT ai_if(text, probability => false) AS p FROM reviews WHERE id = 2").await;
    assert!(plain.contains("false"), "{plain}");
}
