//! What is refused, where and why.

use super::*;

fn limits() -> SpanLimits {
    SpanLimits { depth_max: 6, nodes_max: 20, bytes_max: 100, repeat_max: 10, fragments_max: 5 }
}

fn refused(text: &str) -> String {
    let json: serde_json::Value = serde_json::from_str(text).expect("it is JSON");
    SpanQuery::read(&json, &limits()).expect_err("it is refused").to_string()
}

#[test]
fn an_error_says_where_and_why() {
    for (text, expected) in [
        (r#"{"g":{"input":{"seq":[{"user":1}]}}}"#, "`$.g.input.seq[0].user`: must be a text, not 1"),
        (r#"{"g":{}}"#, "`$.g`: `input` is missing"),
        (
            r#"{"g":{"input":{"user":"a"},"max_token":1}}"#,
            "`$.g`: `max_token` is not known here; what is: input, model, max_tokens, temperature, top_p, top_k, seed, stop, constraint",
        ),
        (
            r#"{"g":{"input":{"user":"a"},"max_tokens":-1}}"#,
            "`$.g.max_tokens`: must be a whole number, not -1",
        ),
        (
            r#"{"g":{"input":{"user":"a"},"temperature":"hot"}}"#,
            "`$.g.temperature`: must be a number from 0 to 2, not `hot`",
        ),
        (
            r#"{"g":{"input":{"user":"a"},"constraint":{"choice":[]}}}"#,
            "`$.g.constraint.choice`: must be texts, none of them empty, not an array of 0",
        ),
        (
            r#"{"g":{"input":{"user":"a"},"constraint":{}}}"#,
            "`$.g.constraint`: must have one of choice, integer, regex and json_schema",
        ),
        (r#"{"plus":{"user":"a"}}"#, "`$.plus`: must be an array of nodes, not an object"),
        (
            r#"{"repeat":{"n":0,"g":{"input":{"user":"a"}}}}"#,
            "`$.repeat.n`: must be a whole number from 1 to 10, not 0",
        ),
        (r#"{"repeat":{"n":2}}"#, "`$.repeat`: must have `n` and one of `g` and `query`"),
        (r#"{"repeat":{"n":2,"g":{"input":{"user":7}}}}"#, "`$.repeat.g.input.user`: must be a text, not 7"),
        (
            r#"{"map":{"over":[],"query":{"user":"a"}}}"#,
            "`$.map.over`: must be an array of at least one item, not an array of 0",
        ),
        (r#"{"map":{"over":["a"]}}"#, "`$.map`: `query` is missing"),
        (
            r#"{"map":{"over":["a",null],"query":{"user":"a"}}}"#,
            "`$.map.over[1]`: must be a text, a number, true or false, not null",
        ),
        (
            r#"{"map":{"over":[{"a":[1]}],"query":{"user":"a"}}}"#,
            "`$.map.over[0].a`: must be a text, a number, true or false, not an array of 1",
        ),
        (
            r#"{"map":{"over":[{"a":1,"b":2},{"a":1}],"query":{"plus":[{"user":"{b}"}]}}}"#,
            "`$.map.query.plus[0].user`: `{b}` is in no item; the item has a",
        ),
        (
            r#"{"map":{"over":["a"],"query":{"user":"{item"}}}"#,
            "`$.map.query.user`: `{` at character 1 is never closed (write `{{` for a literal brace)",
        ),
        (
            r#"{"map":{"over":["aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"],"query":{"user":"{item}{item}{item}"}}}"#,
            "`$.map.query.user`: up to here the query has more than 100 bytes of text, copies counted",
        ),
        (
            r#"{"map":{"over":[1,2,3,4,5,6,7],"query":{"seq":[{"user":"a"},{"user":"b"}]}}}"#,
            "`$.map.query.seq[0]`: up to here the query has more than 20 nodes, copies counted",
        ),
        (r#"{"retrieval":{"corpus":"c","k":1}}"#, "`$.retrieval`: `query` is missing"),
        (
            r#"{"retrieval":{"corpus":"c","k":9,"query":"q"}}"#,
            "`$.retrieval.k`: must be a whole number from 1 to 5, not 9",
        ),
        (
            r#"{"retrieval":{"corpus":"c","k":1,"query":{"g":{"input":{"user":"q"}}}}}"#,
            "`$.retrieval.query`: a corpus is searched for text: messages, `seq` and `cross`, nothing else",
        ),
    ] {
        assert_eq!(refused(text), expected, "{text}");
    }
    assert!(refused(r#"{"ask":"x"}"#).starts_with("`$`: `ask` is no node; the keys are system, user,"));
    assert!(
        refused(r#"{"user":"a","system":"b"}"#).starts_with("`$`: must be an object with one key, has 2;")
    );
    assert!(refused("[]").starts_with("`$`: must be an object with one of the keys system,"));
}

#[test]
fn a_query_that_grows_beyond_its_limits_is_refused_where_it_does() {
    let deep = format!("{}{{\"user\":\"a\"}}{}", r#"{"seq":["#.repeat(6), "]}".repeat(6));
    assert_eq!(
        refused(&deep),
        "`$.seq[0].seq[0].seq[0].seq[0].seq[0].seq[0]`: more than 6 nodes inside one another"
    );
    let wide = format!(r#"{{"seq":[{}]}}"#, [r#"{"user":"a"}"#; 20].join(","));
    assert_eq!(refused(&wide), "`$.seq[19]`: up to here the query has more than 20 nodes, copies counted");
    let copies = r#"{"repeat":{"n":5,"query":{"repeat":{"n":5,"g":{"input":{"user":"a"}}}}}}"#;
    assert_eq!(
        refused(copies),
        "`$.repeat.query.repeat`: up to here the query has more than 20 nodes, copies counted"
    );
    let long = format!(r#"{{"repeat":{{"n":5,"g":{{"input":{{"user":"{}"}}}}}}}}"#, "x".repeat(21));
    assert_eq!(
        refused(&long),
        "`$.repeat.g.input.user`: up to here the query has more than 100 bytes of text, copies counted"
    );
    let search = r#"{"repeat":{"n":5,"query":{"retrieval":{"corpus":"c","k":5,"query":"q"}}}}"#;
    assert_eq!(
        refused(search),
        "`$.repeat.query.retrieval`: up to here the query has more than 20 nodes, copies counted"
    );
}

#[test]
fn rewriting_keeps_to_the_limits_too() {
    let found = Found::from([(
        Retrieval { corpus: "c".into(), query: "q".into(), k: 1 },
        vec!["far too long a fragment".repeat(5).into()],
    )]);
    let with = Rewriting { rules: Rules::all(), judges: Some(2), found: &found, limits: limits() };
    let read = |text: &str| SpanQuery::read(&serde_json::from_str(text).expect("it is JSON"), &limits());
    let search = read(r#"{"g":{"input":{"retrieval":{"corpus":"c","k":1,"query":"q"}}}}"#);
    let error = rewrite(search.expect("valid"), &with).expect_err("too many bytes");
    assert_eq!(error, SpanError::TooLarge { what: "bytes of text", found: 115, limit: 100 });
    let judge = read(
        r#"{"g":{"input":{"seq":[{"plus":[{"repeat":{"n":6,"g":{"input":{"user":"a"}}}}]},{"user":"b"}]}}}"#,
    );
    let error = rewrite(judge.expect("valid"), &with).expect_err("too many nodes");
    assert!(error.to_string().ends_with("nodes; at most 20 are allowed"), "{error}");
}

#[test]
fn a_query_that_cannot_be_run_says_so() {
    let planned = |text: &str| Plan::new(&rewritten(parsed(text))).expect_err("it is refused").to_string();
    assert_eq!(planned(r#"{"user":"a"}"#), "the query generates nothing: it has no `g`");
    assert_eq!(
        planned(r#"{"g":{"input":{"seq":[{"print":"x"},{"plus":[]}]}}}"#),
        "`$.g`: has nothing in its input"
    );
    let search = r#"{"g":{"input":{"retrieval":{"corpus":"c","k":1,"query":"q"}}}}"#;
    assert_eq!(planned(search), "a query with `retrieval` in it must be rewritten before it is planned");
    let chat = Plan::new(&parsed(r#"{"chat":{"input":[{"user":"a"}]}}"#)).expect_err("it is refused");
    assert_eq!(chat, SpanError::Sugar("chat"));
}

#[test]
fn parameters_are_read_in_quotes_or_without() {
    let text = r#"{"g":{"input":{"user":"a"},"max_tokens":"7","temperature":"0.5","top_p":0.9,"top_k":3,"seed":-1,"stop":"x",
        "constraint":{"integer":{"min":1,"max":5}},"model":null}}"#;
    let SpanQuery::Generate(g) = parsed(text) else { panic!("a g is a generate") };
    let expected = Params {
        model: None,
        max_tokens: Some(7),
        temperature: 0.5,
        top_p: Some(0.9),
        top_k: Some(3),
        seed: Some(u64::MAX),
        stop: vec!["x".into()],
        constraint: Some(base::Constraint::Integer { low: 1, high: 5 }),
        ..Params::default()
    };
    assert_eq!((&*g.params, g.params.place.path()), (&expected, "$.g"));
}

#[test]
fn searches_are_listed_once_and_may_be_made_of_messages() {
    let r = r#"{"retrieval":{"corpus":"c","k":1,"query":{"cross":[{"system":"a"},{"user":"b"}]}}}"#;
    let query = parsed(&format!(r#"{{"g":{{"input":{{"seq":[{r},{r}]}}}}}}"#));
    assert_eq!(query.retrievals(), [Retrieval { corpus: "c".into(), query: "a\nb".into(), k: 1 }]);
}
