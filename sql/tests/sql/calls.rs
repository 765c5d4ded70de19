//! Which prompts a statement asks: each distinct one that the answer needs, once.

use futures_util::StreamExt as _;
use insta::assert_snapshot;

use crate::common::{Model, rows, session, shown};

/// Four films of two kinds, with a text that is there twice.
pub(crate) const REVIEWS: &str = "CREATE TABLE reviews AS SELECT * FROM (VALUES
    (1, 'taken_3', 'a bright joy', 5), (2, 'taken_3', 'so dull', 1), (3, 'taken_3', 'a bright joy', 4),
    (4, 'up', 'balloons, bright', 5), (5, 'up', 'dull grey', 2), (6, 'heat', 'loud', 3), (7, 'heat', NULL, 3)
    ) AS t(id, film, text, stars)";
const FILMS: &str = "CREATE TABLE films AS SELECT * FROM (VALUES
    ('taken_3', 'action'), ('up', 'family'), ('heat', 'action')) AS t(film, kind)";

fn bright() -> std::sync::Arc<Model> {
    Model::words(&[("Text: Is \"a bright", "yes"), ("bright", "yes"), ("dull", "no")])
}

#[tokio::test]
async fn a_cheap_condition_decides_first_and_equal_texts_are_asked_once() {
    let model = bright();
    let session = session(&model, &[REVIEWS]).await;
    let text = "SELECT id FROM reviews WHERE ai_if(text, 'is it positive?') AND film = 'taken_3' ORDER BY id";
    assert_snapshot!(shown(&session, text).await, @r"
    +----+
    | id |
    +----+
    | 1  |
    | 3  |
    +----+
    ");
    assert_eq!(model.asked().len(), 2, "{:?}", model.asked());
}

#[tokio::test]
async fn a_null_is_answered_with_null_and_asks_nothing() {
    let model = bright();
    let session = session(&model, &[REVIEWS]).await;
    let text = "SELECT id, ai_if(text) AS good FROM reviews WHERE film = 'heat' ORDER BY id";
    assert_snapshot!(shown(&session, text).await, @r"
    +----+-------+
    | id | good  |
    +----+-------+
    | 6  | false |
    | 7  |       |
    +----+-------+
    ");
    assert_eq!(model.asked().len(), 1);
}

#[tokio::test]
async fn calls_work_wherever_an_expression_does() {
    let model =
        Model::words(&[("positive", "positive"), ("bright", "good"), ("dull", "bad"), ("loud", "bad")]);
    let session = session(&model, &[REVIEWS, FILMS]).await;
    let label = "ai_classify(text, ['good', 'bad'])";
    let grouped = format!(
        "SELECT {label} AS label, count(*) AS n FROM reviews WHERE text IS NOT NULL GROUP BY {label} ORDER BY n"
    );
    assert_snapshot!(shown(&session, &grouped).await, @r"
    +-------+---+
    | label | n |
    +-------+---+
    | good  | 3 |
    | bad   | 3 |
    +-------+---+
    ");
    let having = format!("SELECT film FROM reviews GROUP BY film HAVING max({label}) = 'good' ORDER BY film");
    assert_snapshot!(shown(&session, &having).await, @r"
    +---------+
    | film    |
    +---------+
    | taken_3 |
    | up      |
    +---------+
    ");
    let summed = format!("SELECT sum(CASE WHEN {label} = 'good' THEN 1 ELSE 0 END) AS good FROM reviews");
    assert_snapshot!(shown(&session, &summed).await, @r"
    +------+
    | good |
    +------+
    | 3    |
    +------+
    ");
    let ordered = format!("SELECT id FROM reviews WHERE stars > 3 ORDER BY {label} DESC, id DESC LIMIT 2");
    assert_snapshot!(shown(&session, &ordered).await, @r"
    +----+
    | id |
    +----+
    | 4  |
    | 3  |
    +----+
    ");
    let windowed = format!(
        "SELECT id, row_number() OVER (PARTITION BY {label} ORDER BY id) AS n FROM reviews WHERE id < 4 ORDER BY id"
    );
    assert_snapshot!(shown(&session, &windowed).await, @r"
    +----+---+
    | id | n |
    +----+---+
    | 1  | 1 |
    | 2  | 1 |
    | 3  | 2 |
    +----+---+
    ");
    let nested = format!("SELECT ai_sentiment({label}) AS s FROM reviews WHERE id = 4");
    assert_snapshot!(shown(&session, &nested).await, @r"
    +----------+
    | s        |
    +----------+
    | positive |
    +----------+
    ");
    let subquery = format!(
        "SELECT kind FROM films WHERE film IN (SELECT film FROM reviews WHERE {label} = 'good') ORDER BY kind"
    );
    assert_snapshot!(shown(&session, &subquery).await, @r"
    +--------+
    | kind   |
    +--------+
    | action |
    | family |
    +--------+
    ");
}

#[tokio::test]
async fn a_branch_that_is_not_taken_asks_nothing() {
    let model = bright();
    let session = session(&model, &[REVIEWS]).await;
    let text = "SELECT id, CASE WHEN stars = 5 THEN true WHEN stars < 3 THEN ai_if(text) END AS good
        FROM reviews WHERE id < 6 ORDER BY id";
    assert_snapshot!(shown(&session, text).await, @r"
    +----+-------+
    | id | good  |
    +----+-------+
    | 1  | true  |
    | 2  | false |
    | 3  |       |
    | 4  | true  |
    | 5  | false |
    +----+-------+
    ");
    assert_eq!(model.asked().len(), 2, "rows 2 and 5: {:?}", model.asked());
    let either = "SELECT count(*) AS n FROM reviews WHERE ai_if(text) OR stars = 5";
    shown(&session, either).await;
    assert_eq!(model.asked().len(), 6, "rows 2, 3, 5 and 6: {:?}", model.asked());
    let coalesced = "SELECT coalesce(text, ai_complete(prompt('say {0}', film))) AS t FROM reviews";
    shown(&session, coalesced).await;
    assert_eq!(model.asked().len(), 7, "row 7: {:?}", model.asked());
}

#[tokio::test]
async fn equal_prompts_in_select_and_where_run_once() {
    let model = bright();
    let session = session(&model, &[REVIEWS]).await;
    let text = "SELECT id, ai_if(text) AS good FROM reviews WHERE ai_if(text) ORDER BY id";
    shown(&session, text).await;
    assert_eq!(model.asked().len(), 5);
    assert!(model.repeated().is_empty(), "{:?}", model.repeated());
}

#[tokio::test]
async fn a_join_asks_for_the_rows_that_it_gives() {
    let model = bright();
    let session = session(&model, &[REVIEWS, FILMS]).await;
    let text = "SELECT r.id, f.kind FROM reviews r JOIN films f ON r.film = f.film
        WHERE f.kind = 'family' AND ai_if(r.text) ORDER BY r.id";
    assert_snapshot!(shown(&session, text).await, @r"
    +----+--------+
    | id | kind   |
    +----+--------+
    | 4  | family |
    +----+--------+
    ");
    assert_eq!(model.asked().len(), 2, "{:?}", model.asked());
}

#[tokio::test]
async fn a_join_condition_asks_for_each_distinct_pair_once() {
    let model = Model::words(&[("a bright joy/action", "yes")]);
    let session = session(&model, &[REVIEWS, FILMS]).await;
    let text = "SELECT r.id, f.film FROM reviews r JOIN films f
        ON ai_if(prompt('{0}/{1}', r.text, f.kind)) AND r.stars > 3 ORDER BY 1, 2";
    assert_snapshot!(shown(&session, text).await, @r"
    +----+---------+
    | id | film    |
    +----+---------+
    | 1  | heat    |
    | 1  | taken_3 |
    | 3  | heat    |
    | 3  | taken_3 |
    +----+---------+
    ");
    assert_eq!(model.asked().len(), 4, "two texts, two kinds: {:?}", model.asked());
}

#[tokio::test]
async fn a_limit_asks_for_little_more_than_it_gives() {
    let model = Model::words(&[("7", "yes"), ("3", "yes")]);
    let session = session(&model, &[]).await;
    let text = "SELECT value FROM generate_series(1, 100000) WHERE ai_if(prompt('{0}', value)) LIMIT 5";
    let shown = shown(&session, text).await;
    assert_snapshot!(shown, @r"
    +-------+
    | value |
    +-------+
    | 3     |
    | 7     |
    | 13    |
    | 17    |
    | 23    |
    +-------+
    ");
    assert!(model.asked().len() <= 40, "{}", model.asked().len());
}

#[tokio::test]
async fn the_rows_of_a_column_are_one_relquery_in_windows() {
    let model = Model::words(&[("7", "yes")]);
    let session = session(&model, &[]).await;
    let text = "SELECT count(*) AS n FROM generate_series(1, 20000) WHERE ai_if(prompt('{0}', value))";
    shown(&session, text).await;
    let windows = model.windows();
    assert_eq!(windows.iter().sum::<usize>(), 20_000);
    assert!(windows.iter().all(|rows| *rows <= 2_000), "{windows:?}");
    assert!(windows.len() <= 40, "{windows:?}");
}

/// More rows than a relQuery may have, and than an operator may hold.
#[tokio::test]
async fn an_operator_holds_a_bounded_number_of_rows_of_a_column_of_any_length() {
    const ROWS: usize = 200_000;
    let model = Model::words(&[("7", "yes")]);
    let session = session(&model, &[]).await;
    let text =
        format!("SELECT value, ai_if(prompt('{{0}}', value)) AS seven FROM generate_series(1, {ROWS})");
    let mut running = session.query(&text).await.expect("the statement is good");
    let query = std::sync::Arc::clone(&running.query);
    let (mut given, mut held_most) = (0, 0);
    while let Some(batch) = running.stream.next().await {
        let operator = &query.progress.operators()[0];
        assert!(given > 0 || operator.rows.value() <= 8_192, "the first rows are out before others are read");
        given += batch.expect("no row fails the query").num_rows();
        held_most = held_most.max(operator.rows.value() - given);
        assert!(operator.rows.value() - operator.decided.value() <= 2_000 + 8_192);
    }
    assert_eq!(given, ROWS);
    assert!(held_most <= 16 * 8_192, "{held_most} rows at a time");
    assert!(model.windows().iter().all(|rows| *rows <= 2_000));
}

#[tokio::test]
async fn the_record_of_a_prompt_is_the_values_that_no_number_names() {
    let model = Model::words(&[("film: up, stars: 5", "yes")]);
    let table =
        "CREATE TABLE films AS SELECT * FROM (VALUES (1, 'up', 5), (2, 'heat', NULL)) AS t(id, film, stars)";
    let session = session(&model, &[table]).await;
    let text = "SELECT id, ai_if(prompt('Row {0} of {*}', id, film, stars)) AS up FROM films ORDER BY id";
    assert_snapshot!(shown(&session, text).await, @r"
    +----+-------+
    | id | up    |
    +----+-------+
    | 1  | true  |
    | 2  | false |
    +----+-------+
    ");
    let [first, second] = &model.asked()[..] else { panic!("{:?}", model.asked()) };
    assert!(first.contains("Row 1 of film: up, stars: 5"), "{first}");
    assert!(second.contains("Row 2 of film: heat, stars: "), "NULL is a value of a record: {second}");
    for (text, said) in [
        ("SELECT ai_if(prompt('{*}')) FROM films", "there is none"),
        ("SELECT ai_if(prompt('{*}', film, film)) FROM films", "two values with the name `film`"),
        ("SELECT prompt('{*}', film) FROM films", "is for prompts of AI functions"),
        ("SELECT ai_retrieve(film, on_error => 'error') FROM films", "`corpus` must be the name of a corpus"),
        ("SELECT ai_complete(film, max_tokens => 0) FROM films", "must be a positive whole number"),
    ] {
        let error = shown(&session, text).await;
        assert!(error.contains(said), "{text}: {error}");
    }
    let error = shown(&session, "SET relserve.order = 'best'").await;
    assert!(error.contains("must be exact, rows or fields, not `best`"), "{error}");
}

#[tokio::test]
async fn a_failed_row_is_null_and_told_or_fails_the_query() {
    let model = Model::new(|prompt| {
        if prompt.contains("dull") { Err("the replica is gone".into()) } else { Ok("yes".into()) }
    });
    let session = session(&model, &[REVIEWS]).await;
    let running = session.query("SELECT id, ai_if(text) AS good FROM reviews WHERE id < 3 ORDER BY id").await;
    let running = running.expect("the statement is good");
    let query = std::sync::Arc::clone(&running.query);
    let batches = rows(running).await.expect("a failed row fails nothing else");
    let text =
        datafusion::arrow::util::pretty::pretty_format_batches(&batches).expect("batches can be shown");
    assert_snapshot!(text, @r"
    +----+------+
    | id | good |
    +----+------+
    | 1  | true |
    | 2  |      |
    +----+------+
    ");
    assert_eq!(query.progress.failed(), 1);
    assert_eq!(query.progress.errors()[0].reason, "the replica is gone");
    let strict = "SELECT ai_if(text, on_error => 'error') FROM reviews WHERE id = 2";
    assert!(
        shown(&session, strict).await.contains("the replica is gone"),
        "{}",
        shown(&session, strict).await
    );
}

#[tokio::test]
async fn a_budget_ends_a_query_that_would_spend_more() {
    let model = bright();
    let session = session(&model, &[]).await;
    shown(&session, "SET relserve.max_tokens = 5000").await;
    let text = "SELECT count(*) FROM generate_series(1, 20000) WHERE ai_if(prompt('{0}', value))";
    let error = shown(&session, text).await;
    assert!(error.contains("relserve.max_tokens is 5000"), "{error}");
    assert!(model.asked().len() <= 2_000, "{}", model.asked().len());
}

#[tokio::test]
async fn rows_that_a_budget_has_paid_for_are_given_before_its_error() {
    let one = "SELECT ai_if(prompt('{0}', value)) AS a FROM generate_series(1, 20)";
    let two = "SELECT ai_if(prompt('{0}', value)) AS a, ai_if(prompt('so {0}', value)) AS b \
        FROM generate_series(1, 20)";
    let filter = "SELECT value FROM generate_series(1, 20) WHERE ai_if(prompt('{0}', value))";
    for (text, given) in [(one, 5), (two, 2), (filter, 5)] {
        let model = Model::words(&[("", "yes")]);
        let session = session(&model, &[]).await;
        shown(&session, "SET relserve.max_calls = 5").await;
        let mut stream = session.query(text).await.expect("it begins").stream;
        let mut rows = 0;
        let error = loop {
            match stream.next().await.expect("it ends with an error") {
                Ok(batch) => rows += batch.num_rows(),
                Err(error) => break error.to_string(),
            }
        };
        assert!(error.contains("relserve.max_calls is 5"), "{text}: {error}");
        assert_eq!((rows, model.asked().len()), (given, 5), "{text}");
    }
}

#[tokio::test]
async fn columns_that_are_paid_for_are_given_where_a_condition_below_them_is_refused() {
    let model = Model::words(&[("blue", "yes")]);
    let session = session(&model, &[]).await;
    shown(&session, "SET relserve.max_calls = 12").await;
    shown(&session, "SET relserve.window_rows = 4").await;
    let text = "SELECT value, ai_if(prompt('so {0}', value)) AS b FROM generate_series(1, 40) \
        WHERE ai_if(prompt('{0} {1}', value, CASE WHEN value % 2 = 0 THEN 'blue' ELSE 'red' END))";
    let mut stream = session.query(text).await.expect("it begins").stream;
    let mut rows = 0;
    let error = loop {
        match stream.next().await.expect("it ends with an error") {
            Ok(batch) => rows += batch.num_rows(),
            Err(error) => break error.to_string(),
        }
    };
    assert!(error.contains("relserve.max_calls is 12"), "{error}");
    // Two windows of conditions, and a column for each row that passed: the third window is refused.
    assert_eq!((rows, model.asked().len()), (4, 12));
}

#[tokio::test]
async fn a_scan_of_what_is_cached_computes_nothing() {
    let model = bright();
    let session = session(&model, &[REVIEWS]).await;
    shown(&session, "SET relserve.cached_only = true").await;
    let text = "SELECT id, ai_if(text) AS good FROM reviews WHERE id < 3 ORDER BY id";
    assert_snapshot!(shown(&session, text).await, @r"
    +----+------+
    | id | good |
    +----+------+
    | 1  |      |
    | 2  |      |
    +----+------+
    ");
    assert_eq!(model.asked().len(), 0);
}

#[tokio::test]
async fn columns_that_nobody_reads_are_not_computed() {
    let model = bright();
    let session = session(&model, &[REVIEWS]).await;
    shown(&session, "SELECT count(*) FROM (SELECT id, ai_if(text) AS good FROM reviews)").await;
    shown(&session, "SELECT id FROM (SELECT id, ai_if(text) AS good FROM reviews) WHERE id > 2").await;
    assert_eq!(model.asked().len(), 0, "{:?}", model.asked());
}

#[tokio::test]
async fn several_conditions_run_in_the_order_that_asks_least() {
    // Of 400 rows the first holds for nearly all, the last for one in ten.
    let model = Model::new(|prompt| {
        let number: u64 = prompt.rsplit(' ').next().and_then(|last| last.parse().ok()).unwrap_or(0);
        let holds =
            if prompt.contains("wide") { !number.is_multiple_of(20) } else { number.is_multiple_of(10) };
        Ok(if holds { "yes" } else { "no" }.to_owned())
    });
    let session = session(&model, &[]).await;
    let text = "SELECT count(*) AS n FROM generate_series(1, 400)
        WHERE ai_if(prompt('wide {0}', value)) AND ai_if(prompt('narrow {0}', value))";
    shown(&session, text).await;
    let asked = model.asked();
    let wide = asked.iter().filter(|prompt| prompt.contains("wide")).count();
    // The best order by hindsight asks 400 + 40, the written one 400 + 380.
    assert!(asked.len() < 480, "{} of which {wide} wide", asked.len());
}

#[tokio::test]
async fn mistakes_are_named() {
    let model = bright();
    let session = session(&model, &[REVIEWS]).await;
    for (text, said) in [
        ("SELECT ai_if() FROM reviews", "ai_if"),
        ("SELECT ai_classify(text, ['a', 'A']) FROM reviews WHERE id = 1", ""),
        ("SELECT ai_if(prompt('{1}', text)) FROM reviews", "has a place {1} and 1 values"),
        ("SELECT ai_if(prompt(text)) FROM reviews", "must be a literal"),
        ("SELECT ai_if(text, colour => 'red') FROM reviews", "has no option `colour`"),
        ("SELECT ai_if(text, probability => 'much') FROM reviews", "probability must be true or false"),
        ("SELECT ai_if(text, on_error => 'shout') FROM reviews", "on_error must be 'null' or 'error'"),
    ] {
        let error = shown(&session, text).await;
        assert!(error.contains(said), "{text}: {error}");
    }
}

#[tokio::test]
async fn queries_and_failures_are_tables() {
    let model = Model::new(|prompt| {
        if prompt.contains("dull") { Err("the replica is gone".into()) } else { Ok("yes".into()) }
    });
    let session = session(&model, &[REVIEWS]).await;
    shown(&session, "SELECT ai_if(text) FROM reviews WHERE id < 4").await;
    let text =
        "SELECT state, operator, rows, prompts, answered, failed FROM relserve.queries WHERE prompts > 0";
    assert_snapshot!(shown(&session, text).await, @r"
    +-------+---------------------+------+---------+----------+--------+
    | state | operator            | rows | prompts | answered | failed |
    +-------+---------------------+------+---------+----------+--------+
    | ended | ai_if(reviews.text) | 3    | 2       | 2        | 1      |
    +-------+---------------------+------+---------+----------+--------+
    ");
    assert_snapshot!(shown(&session, "SELECT call, reason FROM relserve.errors").await, @r"
    +---------------------+---------------------+
    | call                | reason              |
    +---------------------+---------------------+
    | ai_if(reviews.text) | the replica is gone |
    +---------------------+---------------------+
    ");
}

#[tokio::test]
async fn many_labels_come_as_a_list_without_repeats() {
    let model = Model::words(&[("bright", "good, loud, good"), ("dull", "bad")]);
    let session = session(&model, &[REVIEWS]).await;
    let text = "SELECT id, ai_classify(text, ['good', 'bad', 'loud'], multi => true) AS labels
        FROM reviews WHERE id < 3 ORDER BY id";
    assert_snapshot!(shown(&session, text).await, @r"
    +----+--------------+
    | id | labels       |
    +----+--------------+
    | 1  | [good, loud] |
    | 2  | [bad]        |
    +----+--------------+
    ");
}

#[tokio::test]
async fn names_with_capitals_are_found_unquoted() {
    let model = bright();
    let table = r#"CREATE TABLE "movies" AS SELECT * FROM (VALUES (1, 'so bright'), (2, 'dull')) AS t("reviewId", "reviewText")"#;
    let session = session(&model, &[table]).await;
    let text = "SELECT m.reviewId FROM movies m WHERE ai_if(reviewText) ORDER BY REVIEWID";
    assert_snapshot!(shown(&session, text).await, @r"
    +----------+
    | reviewId |
    +----------+
    | 1        |
    +----------+
    ");
}

#[tokio::test]
async fn the_texts_of_a_group_become_one_by_a_tree_of_prompts() {
    // Says how many lines it read: the sum over a group survives any tree.
    let model = Model::new(|prompt| {
        let lines = prompt.lines().filter_map(|line| line.strip_prefix("- "));
        Ok(lines.map(|line| line.parse::<u64>().unwrap_or(1)).sum::<u64>().to_string())
    });
    let session = session(&model, &[REVIEWS]).await;
    let text = "SELECT film, ai_agg(text, 'Count the texts.') AS n, count(*) AS rows FROM reviews GROUP BY film ORDER BY film";
    assert_snapshot!(shown(&session, text).await, @r"
    +---------+---+------+
    | film    | n | rows |
    +---------+---+------+
    | heat    | 1 | 2    |
    | taken_3 | 3 | 3    |
    | up      | 2 | 2    |
    +---------+---+------+
    ");
    let many = "SELECT value % 2 AS side, ai_agg(prompt('text {0}', value), 'Count.') AS n,
        ai_summarize_agg('text') AS s FROM generate_series(1, 300) GROUP BY 1 ORDER BY 1";
    assert_snapshot!(shown(&session, many).await, @r"
    +------+-----+-----+
    | side | n   | s   |
    +------+-----+-----+
    | 0    | 150 | 150 |
    | 1    | 150 | 150 |
    +------+-----+-----+
    ");
    assert!(model.asked().iter().all(|prompt| prompt.chars().count() < 400));
}

#[tokio::test]
async fn aggregates_of_the_same_texts_ask_about_them_in_prompts_that_begin_alike() {
    let model = Model::words(&[]);
    let session = session(&model, &[REVIEWS]).await;
    let text =
        "SELECT film, ai_agg(text, 'What is praised?') AS up, ai_agg(text, 'What is criticised?') AS down,
        count(*) AS n FROM reviews WHERE film = 'up' GROUP BY film";
    assert_snapshot!(shown(&session, text).await, @r"
    +------+----+------+---+
    | film | up | down | n |
    +------+----+------+---+
    | up   | no | no   | 2 |
    +------+----+------+---+
    ");
    assert_snapshot!(model.asked().join("\n---\n"), @r"
    - balloons, bright
    - dull grey

    What is praised?
    ---
    - balloons, bright
    - dull grey

    What is criticised?
    ");
    let alone = "SELECT ai_agg(text, 'What is praised?') AS up FROM reviews WHERE film = 'up'";
    shown(&session, alone).await;
    assert!(model.asked()[2].starts_with("What is praised?"), "rows of a relQuery share what comes first");
}

#[tokio::test]
async fn a_call_or_the_session_names_the_model_that_answers() {
    let model = bright();
    let session = session(&model, &[REVIEWS]).await;
    let asked = async |text: &str| {
        let said = shown(&session, text).await;
        assert!(!said.contains("error"), "{text}: {said}");
        model.take_models()
    };
    let n = || Some("n".to_owned());
    let [mine, usual, group, rank] = [
        "SELECT ai_if(text, model => 'n') FROM reviews",
        "SELECT ai_if(text) FROM reviews",
        "SELECT ai_agg(text, 'What is it?', model => 'n') FROM reviews",
        "SELECT id FROM reviews ORDER BY ai_rank(text, 'the best', model => 'n') LIMIT 1",
    ];
    assert_eq!(asked(mine).await, [n()]);
    assert_eq!(asked(usual).await, [None]);
    assert_eq!(asked(group).await, [n()]);
    assert_eq!(asked(rank).await, [n()]);
    let both = "SELECT ai_if(text, model => 'n'), ai_if(text) FROM reviews";
    assert_eq!(asked(both).await, [None, n()], "equal prompts of two models are two");
    shown(&session, "SET relserve.model = 'nn'").await;
    assert_eq!(asked(usual).await, [n()], "by its own name");
    assert_eq!(asked("SELECT ai_if(text, model => 'm') FROM reviews").await, [Some("m".to_owned())]);
    assert_eq!(asked("SELECT id FROM reviews ORDER BY ai_rank(text, 'the best') LIMIT 1").await, [n()]);
    shown(&session, "RESET relserve.model").await;
    assert_eq!(asked(usual).await, [None]);
    for text in [
        "SELECT ai_if(text, model => 'o') FROM reviews",
        "EXPLAIN SELECT ai_if(text, model => 'o') FROM reviews",
        "SET relserve.model = 'o'",
    ] {
        let error = shown(&session, text).await;
        assert!(error.contains("the model `o` does not exist; served: `m`, `n`"), "{text}: {error}");
    }
    assert_eq!(asked(usual).await, [None], "a model that there is not is not set");
    for (text, said) in [
        ("SELECT ai_if(text, model => id) FROM reviews", "model must be the name of a model as text"),
        ("SELECT ai_if(text, model => '') FROM reviews", "model must be the name of a model as text"),
        ("SELECT ai_embed(text, model => 'n') FROM reviews", "no language model answers it"),
        ("SELECT ai_similarity(text, 'a', model => 'n') FROM reviews", "no language model answers it"),
        ("SELECT ai_retrieve(text, 'c', model => 'n') FROM reviews", "no language model answers it"),
    ] {
        let error = shown(&session, text).await;
        assert!(error.contains(said), "{text}: {error}");
    }
}
