//! Constraints over the real tokenizer of the demo model, followed by writers that want a text or nothing at
//! all.

use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::checkpoint_reader::Checkpoint;

/// Tokens after which an output counts as endless.
const TOKENS_MAX: usize = 400;

pub(super) fn constraints() -> &'static Constraints {
    static DEMO: OnceLock<Constraints> = OnceLock::new();
    DEMO.get_or_init(|| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/demo");
        let text = Checkpoint::folder(&folder, None).expect("the demo model opens").text;
        let ends = text.ends().to_vec();
        Constraints::new(Arc::new(text), ends)
    })
}

fn choice(texts: &[&str]) -> Constraint {
    Constraint::Choice(texts.iter().map(|text| (*text).to_owned()).collect())
}

/// What a row wrote: the tokens it sampled, and its text.
type Written = (usize, String);

/// Writes with `pick`, which gets the text so far and the tokens that may follow. `None`: it finds none.
fn write(
    constraint: &Constraint,
    mut pick: impl FnMut(&[u8], &[TokenId]) -> Option<TokenId>,
) -> Option<Written> {
    let constraints = constraints();
    let mut matcher = constraints.compile_start(constraint).expect("it compiles");
    let mut state = constraints.text.start();
    let (mut bytes, mut text) = (Vec::new(), String::new());
    for count in 1..TOKENS_MAX {
        let allowed: Vec<TokenId> =
            matcher.allowed().expect("something may follow").to_list().into_iter().map(TokenId).collect();
        let token = pick(&bytes, &allowed)?;
        assert!(allowed.contains(&token), "{token}");
        let is_end = constraints.ends.contains(&token);
        let (forced, rest) = match matcher.push(token).expect("it was allowed") {
            Pushed::Ended(rest) => (Vec::new(), Some(rest)),
            Pushed::Open(forced) => (forced, is_end.then(Vec::new)),
        };
        for token in std::iter::once(token).chain(forced) {
            let is_end = constraints.ends.contains(&token);
            bytes.extend(constraints.text.bytes(token).filter(|_| !is_end).unwrap_or_default());
            text += &constraints.text.push(&mut state, token);
        }
        if let Some(rest) = rest {
            state.pending.extend(rest);
            return Some((count, text + &constraints.text.flush(&mut state)));
        }
    }
    panic!("endless: {text}");
}

/// Writes what it wants with the longest tokens, and ends where that is all.
fn want(constraint: &Constraint, wanted: &str) -> Option<Written> {
    let constraints = constraints();
    write(constraint, |bytes, allowed| {
        let rest = wanted.as_bytes().strip_prefix(bytes)?;
        if rest.is_empty() {
            return allowed.iter().copied().find(|token| constraints.ends.contains(token));
        }
        let fits = |token: &TokenId| {
            constraints.text.bytes(*token).filter(|bytes| !bytes.is_empty() && rest.starts_with(bytes))
        };
        let fitting = allowed.iter().filter_map(|token| Some((fits(token)?.len(), *token)));
        fitting.max().map(|(_, token)| token)
    })
}

/// Whether the text can be written as it is wanted.
pub(super) fn writes(constraint: &Constraint, wanted: &str) -> bool {
    want(constraint, wanted).is_some_and(|(_, text)| text == wanted)
}

#[test]
fn a_choice_that_its_first_token_decides_is_one_token() {
    let labels = choice(&["positive", "negative", "no opinion"]);
    assert_eq!(want(&labels, " positive"), Some((1, "positive".into())));
    assert_eq!(want(&labels, "negative").map(|(_, text)| text), Some("negative".into()));
    // The first letter tells it from the others: the rest is forced.
    assert_eq!(want(&labels, "p"), Some((1, "positive".into())));
    assert_eq!(want(&labels, "no").map(|(count, _)| count), Some(1));
    assert!(!writes(&labels, "neutral"), "it is no label");
}

#[test]
fn a_choice_may_begin_another() {
    let labels = choice(&["good", "good enough", "très bien", "好", "a, b"]);
    for label in ["good", "good enough", "très bien", "好", "a, b"] {
        assert_eq!(want(&labels, label).map(|(_, text)| text).as_deref(), Some(label));
    }
    let (count, _) = want(&labels, " good").expect("a label");
    assert!(count > 1, "`good` might go on: only an end token decides");
    assert_eq!(
        want(&labels, " 好").map(|(_, text)| text).as_deref(),
        Some("好"),
        "the space is not part of it"
    );
}

#[test]
fn quotes_slashes_and_pattern_characters_of_a_choice_stand_for_themselves() {
    let labels = choice(&["a.*b", "\"x\"", "c\\d", "n/a", "line\nbreak", "[ok]"]);
    for label in ["a.*b", "\"x\"", "c\\d", "n/a", "line\nbreak", "[ok]"] {
        assert_eq!(want(&labels, label).map(|(_, text)| text).as_deref(), Some(label));
    }
    assert!(!writes(&labels, "axxb"));
}

#[test]
fn an_integer_stays_in_its_range_and_ends_when_no_digit_can_follow() {
    let range = Constraint::Integer { low: -5, high: 12 };
    for number in -5..=12i64 {
        let wanted = number.to_string();
        assert_eq!(want(&range, &wanted).map(|(_, text)| text), Some(wanted));
    }
    for wanted in ["-6", "13", "20", "1.5", "007", ""] {
        assert!(!writes(&range, wanted), "{wanted}");
    }
    assert_eq!(want(&range, "7").map(|(count, _)| count), Some(1), "no digit can follow");
    assert_eq!(want(&range, "1").map(|(count, _)| count), Some(2), "10, 11 or 12 might");
}

#[test]
fn a_pattern_holds_for_the_whole_text() {
    for pattern in ["[a-c]{2}/[0-9]+", "^[a-c]{2}/[0-9]+$"] {
        let pattern = Constraint::Regex(pattern.into());
        assert_eq!(want(&pattern, "ab/17").map(|(_, text)| text).as_deref(), Some("ab/17"));
        assert!(!writes(&pattern, "xab/17"));
        assert!(!writes(&pattern, "ab/"));
    }
    let price = Constraint::Regex(r"\$".into());
    assert_eq!(want(&price, "$").map(|(_, text)| text).as_deref(), Some("$"));
}

const SCHEMA: &str = r#"{"type":"object","properties":{"label":{"enum":["good","bad"]},"score":{"type":"integer",
    "minimum":1,"maximum":5},"why":{"type":"string","maxLength":20}},"required":["label","score"],
    "additionalProperties":false}"#;

#[test]
fn json_fits_its_schema_and_its_forced_end_is_not_sampled() {
    let schema = Constraint::JsonSchema(SCHEMA.into());
    let answer = r#"{"label": "good", "score": 4}"#;
    assert_eq!(want(&schema, answer).map(|(_, text)| text).as_deref(), Some(answer));
    assert!(!writes(&schema, r#"{"label": "fine"}"#));
    let decided = r#"{"label": "good", "score": 4, "why": "it is"#;
    assert!(!writes(&schema, decided), "the string might go on");
    let pair = Constraint::JsonSchema(
        r#"{"type":"array","items":{"enum":["x","y"]},"minItems":1,"maxItems":1}"#.into(),
    );
    let (_, text) = want(&pair, r#"["y"#).expect("the rest is forced");
    assert_eq!(text, r#"["y"]"#);
}

/// The tokens of an answer whose writer takes the first token that fits it, and how many it chose itself.
fn tokens_of(constraint: &Constraint, wanted: &str, is_forced: bool) -> (Vec<TokenId>, usize) {
    let constraints = constraints();
    let mut matcher = constraints.compile_start(constraint).expect("it compiles");
    let (mut tokens, mut chosen, mut bytes): (Vec<TokenId>, usize, Vec<u8>) = (Vec::new(), 0, Vec::new());
    loop {
        let allowed = matcher.allowed().expect("something may follow").to_list().into_iter().map(TokenId);
        let fits = |token: &TokenId| {
            let piece = constraints.text.bytes(*token).unwrap_or_default();
            (!piece.is_empty() && wanted.as_bytes()[bytes.len()..].starts_with(&piece)).then_some(piece.len())
        };
        let (_, token) = allowed
            .filter_map(|token| Some((fits(&token)?, token)))
            .max()
            .expect("the answer can be written");
        chosen += 1;
        let pushed = if is_forced { matcher.push(token) } else { matcher.take(token) };
        let (forced, is_over) = match pushed.expect("it was allowed") {
            Pushed::Open(forced) => (forced, false),
            Pushed::Ended(_) => (Vec::new(), true),
        };
        for token in std::iter::once(token).chain(forced) {
            bytes.extend(constraints.text.bytes(token).expect("forced tokens have text"));
            tokens.push(token);
        }
        if is_over {
            return (tokens, chosen);
        }
    }
}

#[test]
fn forced_stretches_are_the_tokens_that_would_have_been_drawn_and_cost_no_choice() {
    let long = format!(
        r#"{{"type":"object","properties":{{"{}":{{"type":"integer","minimum":1,"maximum":5}}}},
        "required":["{0}"],"additionalProperties":false}}"#,
        "the assessment of a patient reader, ".repeat(8)
    );
    let key = "the assessment of a patient reader, ".repeat(8);
    let answers = [
        (SCHEMA, r#"{"label": "good", "score": 4, "why": "calm"}"#.to_owned(), 12),
        (long.as_str(), format!(r#"{{"{key}": 4}}"#), 12),
    ];
    for (schema, answer, most) in answers {
        let schema = Constraint::JsonSchema(schema.into());
        let (plain, steps) = tokens_of(&schema, &answer, false);
        let (forced, chosen) = tokens_of(&schema, &answer, true);
        assert_eq!(forced, plain, "{answer}");
        assert_eq!(steps, plain.len());
        assert!(chosen <= most && chosen * 2 <= steps, "{chosen} of {steps} tokens were chosen: {answer}");
    }
}

fn tags(texts: &[&str], count: (u32, u32)) -> Constraint {
    let texts = Some(texts.iter().map(|text| (*text).to_owned()).collect());
    let (count_min, count_max) = count;
    Constraint::Items(Items { texts, separator: ", ".into(), count_min, count_max, chars_max: 0 })
}

fn excerpt(text: &str) -> Constraint {
    Constraint::Excerpt { of: ExcerptSource::Text(text.into()), otherwise: Some("none".into()) }
}

#[test]
fn tags_are_written_once_each_and_end_with_the_last_one() {
    let form = tags(&["red", "blue", "dark blue"], (1, 9));
    for answer in ["blue", "dark blue, red", "red, blue, dark blue"] {
        assert_eq!(want(&form, answer).map(|(_, text)| text).as_deref(), Some(answer));
    }
    for answer in ["red, red", "green", "dark", "blue,red", "red, "] {
        assert!(!writes(&form, answer), "{answer}");
    }
    let (count, text) = want(&tags(&["red", "blue"], (2, 2)), "blue, r").expect("the rest is forced");
    assert_eq!(text, "blue, red");
    assert!(count < 9, "what is forced is not sampled: {count}");
}

#[test]
fn an_excerpt_is_copied_from_its_text_to_the_letter() {
    let form = excerpt("Order 88213 was shipped to Z\u{fc}rich on 4 May, none the worse.");
    for answer in ["88213", "Z\u{fc}rich", "4 May", "shipped to Z\u{fc}rich", "none"] {
        assert_eq!(want(&form, answer).map(|(_, text)| text).as_deref(), Some(answer));
    }
    for answer in ["8821", "May 4", "Zurich", "order", "ship"] {
        assert!(!writes(&form, answer), "{answer}");
    }
}

#[test]
fn items_and_excerpts_that_cannot_be_are_refused() {
    let refused = |constraint: &Constraint, expected: &str| {
        let error = constraints().compile_start(constraint).err().expect(expected).to_string();
        assert!(error.contains(expected), "{error}");
    };
    refused(&tags(&[], (1, 1)), "must have 1 to 128 items, has 0");
    refused(&tags(&["a", ""], (1, 1)), "has an empty item");
    refused(&tags(&["a"], (0, 1)), "must have 1 item or more");
    let blank = Constraint::Excerpt { of: ExcerptSource::Text(" ".into()), otherwise: None };
    refused(&blank, "copies from a text without a word");
    let field = Constraint::Excerpt { of: ExcerptSource::Field("text".into()), otherwise: None };
    refused(&field, "copies from column `text`");
    assert!(constraints().compile(&field).is_ok(), "each row begins its own");
}

#[test]
fn what_cannot_be_compiled_is_refused_with_its_reason() {
    let refused = |constraint: Constraint| match constraints().compile(&constraint) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("{constraint:?}"),
    };
    for constraint in [
        Constraint::Regex("(".into()),
        Constraint::Regex("(?=a)b".into()),
        Constraint::JsonSchema("[]".into()),
        Constraint::JsonSchema("{".into()),
        Constraint::JsonSchema(r#"{"type":"strange"}"#.into()),
        Constraint::JsonSchema(r#"{"$ref":"https://example.org/schema.json"}"#.into()),
        Constraint::JsonSchema(r#"{"type":"integer","minimum":5,"maximum":1}"#.into()),
    ] {
        let reason = refused(constraint.clone());
        assert!(
            !reason.is_empty() && reason.len() < 1_300 && !reason.contains('\n'),
            "{constraint:?}: {reason}"
        );
    }
    let pattern = refused(Constraint::Regex("(".into()));
    assert!(pattern.contains("unclosed group"), "{pattern}");
    let none = Constraints::new(Arc::new(base::text::ByteText), Vec::new());
    assert_eq!(none.compile(&choice(&["a"])), Err(ConstraintError("the model has no end token".into())));
}

#[test]
fn what_no_row_could_keep_to_is_refused_in_words_that_say_what_is_too_large() {
    let node = |next: &str| {
        format!(
            r##"{{"$defs":{{"n":{{"type":"object","properties":{{"next":{next}}},"required":["next"],
            "additionalProperties":false}}}},"$ref":"#/$defs/n"}}"##
        )
    };
    let refused = [
        (Constraint::Regex("a{1000000}".into()), "more than 8000 states"),
        (Constraint::Regex("(a{1000}){1000}".into()), "more than 8000 states"),
        (Constraint::JsonSchema(r##"{"$ref":"#"}"##.into()), "allows no text"),
        (Constraint::JsonSchema(node(r##"{"$ref":"#/$defs/n"}"##)), "require itself without an end"),
        (optional(5_000), "has an object of 5000 properties; at most 2000"),
    ];
    for (constraint, expected) in refused {
        let error = constraints().compile(&constraint).expect_err(expected).to_string();
        assert!(error.contains(expected), "{error}");
    }
    // And what can be bounded is kept to.
    let list = node(r##"{"anyOf":[{"$ref":"#/$defs/n"},{"type":"null"}]}"##);
    assert!(writes(&Constraint::JsonSchema(list), r#"{"next": {"next": null}}"#));
    constraints().compile(&optional(1_000)).expect("a thousand optional properties");
    assert!(writes(&optional(1_000), r#"{"p7": 1, "p999": 2}"#));
}

/// An object of so many optional properties.
fn optional(count: usize) -> Constraint {
    let properties: serde_json::Map<String, serde_json::Value> =
        (0..count).map(|number| (format!("p{number}"), serde_json::json!({"type": "integer"}))).collect();
    let schema =
        serde_json::json!({"type": "object", "properties": properties, "additionalProperties": false});
    Constraint::JsonSchema(schema.to_string())
}

#[test]
fn a_grammar_says_what_may_be_written() {
    let lark = "start: verdict (\" and \" verdict)? \".\"\nverdict: \"good\" | \"bad\" | /[0-9]+/\n";
    let grammar = Constraint::Grammar(lark.into());
    for text in ["good.", "bad and 42.", "7 and good."] {
        assert!(writes(&grammar, text), "{text}");
    }
    for text in ["fine.", "good and .", "good"] {
        assert!(!writes(&grammar, text), "{text}");
    }
}

#[test]
fn a_grammar_in_ebnf_is_of_characters() {
    let cases: &[(&str, &[&str], &[&str])] = &[
        // No literal is preferred to what else begins like it.
        ("root ::= [a-z]* \"from\" [0-9]?", &["from", "frofrom7", "xfrom"], &["fro", "from77", "fro1from"]),
        ("root ::= (\"a\" | \"ab\") \"c\"", &["ac", "abc"], &["a", "ab", "bc"]),
        // Rules that call themselves, over several lines, with comments.
        (
            "# sums\nroot ::= sum \"=\" digit+ # and what they are\nsum ::=\n  sum [-+] term |\n  term\n\
             term  ::=digit | \"(\" sum \")\"\ndigit ::= [0-9]",
            &["1+(2-3)=0", "7=7", "((4))=44"],
            &["1+=2", "(1=1", "1*2=2"],
        ),
        ("root ::= (\"ab\" [^0-9\\]\\n]){2,3} \"\"", &["ab!abx", "ab-ab^ab["], &["ab!", "ab1ab1", "ab]ab]"]),
        (
            "root ::= \"x\"{2} .{1,} | \"y\"{,2} [\\x41-\\u00e9-]",
            &["xxé\n", "yyA", "Z", "y-"],
            &["xx", "yyyA", "y!"],
        ),
        (
            "root ::= yes-or-no | Maybe_1\nyes-or-no ::= \"yes\" | \"no\" Maybe_1 ::= \"\\\"maybe\\\"\"",
            &["no", "\"maybe\""],
            &["maybe"],
        ),
    ];
    for (ebnf, has, has_not) in cases {
        let grammar = Constraint::Ebnf((*ebnf).into());
        for text in *has {
            assert!(writes(&grammar, text), "{text} of {ebnf}");
        }
        for text in *has_not {
            assert!(!writes(&grammar, text), "{text} of {ebnf}");
        }
    }
}

#[test]
fn a_grammar_is_compiled_as_deep_as_it_may_be_and_refused_beyond() {
    let chain = |count: usize| {
        let rules: String = (0..count).map(|rule| format!("r{rule}: r{}\n", rule + 1)).collect();
        Constraint::Grammar(format!("start: r0\n{rules}r{count}: \"a\"\n"))
    };
    let nested = |count: usize| {
        let rule = |rule: usize| format!("r{rule}: {}r{}{}\n", "(".repeat(25), rule + 1, ")".repeat(25));
        let rules: String = (0..count).map(rule).collect();
        Constraint::Grammar(format!("start: r0\n{rules}r{count}: \"a\"\n"))
    };
    for deep in [chain(1_990), nested(76)] {
        assert!(writes(&deep, "a"));
    }
    for (lark, expected) in [
        (chain(2_000), "at most 2000"),
        (nested(80), "at most 2000"),
        (Constraint::Grammar("start: %json {\"type\": \"object\"}".into()), "JSON schema"),
        (Constraint::Grammar("start: missing".into()), "missing"),
        (Constraint::Grammar("first: \"a\"".into()), "start"),
        (Constraint::Grammar(format!("start: {}\"a\"{}", "(".repeat(99), ")".repeat(99))), "nested"),
    ] {
        let error = constraints().compile(&lark).expect_err("it is refused");
        assert!(error.to_string().contains(expected), "{error} for {expected}");
    }
}

#[test]
fn bounds_whose_negation_is_no_number_of_64_bits_are_refused_or_raised() {
    let schema = |schema: &str| Constraint::JsonSchema(schema.into());
    for refused in [
        Constraint::Integer { low: i64::MIN, high: i64::MIN },
        schema(r#"{"type":"integer","minimum":-1e19,"maximum":-1e19}"#),
        schema(
            r#"{"type":"object","properties":{"a":{"anyOf":[{"type":"number","exclusiveMaximum":-1e300}]}}}"#,
        ),
    ] {
        let error = constraints().compile(&refused).expect_err("it is refused");
        assert!(error.to_string().contains("below what 64 bits hold"), "{error}");
    }
    // Compiled, or refused in words.
    for large in [
        Constraint::Integer { low: i64::MIN, high: 5 },
        schema(r#"{"type":"integer","minimum":-1e19,"maximum":5}"#),
        schema(r#"{"type":"integer","multipleOf":4294967295}"#),
        schema(r#"{"type":"number","multipleOf":1e-10}"#),
    ] {
        if let Err(error) = constraints().compile(&large) {
            assert!(error.to_string().contains("too large or too fine"), "{error}");
        }
    }
    constraints().compile(&schema(r#"{"const":{"maximum":-1e19}}"#)).expect("it is no bound");
}

#[test]
fn references_of_a_schema_may_nest_as_far_as_its_bytes_allow() {
    let chain = |count: usize, link: &dyn Fn(usize) -> String| {
        let links: String = (0..count).map(|at| format!("\"r{at}\":{},", link(at + 1))).collect();
        let text = format!("{{\"$defs\":{{{links}\"r{count}\":{{\"const\":1}}}},\"$ref\":\"#/$defs/r0\"}}");
        Constraint::JsonSchema(text)
    };
    let plain = |to: usize| format!("{{\"$ref\":\"#/$defs/r{to}\"}}");
    let object = |to: usize| {
        let next = plain(to);
        format!("{{\"type\":\"object\",\"properties\":{{\"a\":{next}}},\"required\":[\"a\"]}}")
    };
    let all = |to: usize| format!("{{\"allOf\":[{}]}}", plain(to));
    // Compiled, or refused by a limit: here is no more stack than any thread's.
    for chain in [chain(2_000, &plain), chain(800, &object), chain(1_500, &all)] {
        let _ = constraints().compile(&chain);
    }
    assert!(writes(&chain(400, &plain), "1"));
}

#[test]
fn a_wild_constraint_fails_its_own_row_at_worst() {
    let nested =
        r##"{"type":"object","properties":{"b":{"$ref":"#"},"a":"##.repeat(50) + "{}" + &"}}".repeat(50);
    let long = r#"{"type":"array","items":{"type":"string","maxLength":100000},"maxItems":100000}"#;
    let wild = [
        Constraint::JsonSchema(nested),
        Constraint::JsonSchema(long.into()),
        Constraint::Regex("[ab]*a[ab]{300}".into()),
        Constraint::Regex("(.*a.{12}|.*b.{13}|.*c.{14})".into()),
        Constraint::Regex("((a{1,1000}){1,1000}){1,1000}".into()),
        Constraint::Regex("(a+)+$".into()),
        Constraint::Choice((0..1_000).map(|number| format!("label {number}")).collect()),
    ];
    for constraint in wild {
        let mut matcher = constraints().compile_start(&constraint).expect("it compiles");
        for step in 0..40u32 {
            let Ok(allowed) = matcher.allowed() else { break };
            let tokens = allowed.to_list();
            let token = TokenId(tokens[step.wrapping_mul(2_654_435_761) as usize % tokens.len()]);
            let is_end = constraints().ends.contains(&token);
            if is_end || !matches!(matcher.push(token), Ok(Pushed::Open(_))) {
                break;
            }
        }
    }
    assert_eq!(want(&choice(&["well", "ill"]), "well").map(|(_, text)| text).as_deref(), Some("well"));
}

#[test]
fn a_row_starts_where_its_constraint_was_compiled() {
    let generation = |constraint, compiled| Generation { constraint, compiled, ..Generation::default() };
    let allowed = |generation| {
        let matcher = constraints().start(&generation).expect("it compiles");
        matcher.map(|mut matcher| matcher.allowed().expect("something may follow").to_list())
    };
    let (yes, no) = (choice(&["yes"]), choice(&["no"]));
    let compiled = constraints().compile(&yes).expect("it compiles");
    assert_eq!(allowed(generation(None, compiled.clone())), None);
    assert_eq!(allowed(generation(Some(yes), Compiled::default())), allowed(generation(Some(no), compiled)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn whatever_the_model_wants_it_writes_a_choice(
        texts in prop::collection::btree_set("[ab\u{e9}\u{597d} \"]{0,3}[a-c]", 1..6),
        draws in prop::collection::vec(any::<prop::sample::Index>(), TOKENS_MAX),
    ) {
        let constraint = Constraint::Choice(texts.iter().cloned().collect());
        let mut draws = draws.into_iter();
        let (_, text) = write(&constraint, |_, allowed| Some(*draws.next()?.get(allowed))).expect("it picks");
        prop_assert!(texts.contains(&text), "{:?} is none of {:?}", text, texts);
    }

    #[test]
    fn whatever_the_model_wants_it_copies_and_tags(
        draws in prop::collection::vec(any::<prop::sample::Index>(), TOKENS_MAX),
    ) {
        let text = "Call Mar\u{ed}a at 555-0142, or \u{6771}\u{4eac}.";
        let mut next = draws.iter();
        let (_, copied) = write(&excerpt(text), |_, allowed| Some(*next.next()?.get(allowed))).expect("it picks");
        prop_assert!(copied == "none" || text.contains(&copied), "{}", copied);
        let mut next = draws.iter();
        let form = tags(&["a", "ab", "b c"], (2, 3));
        let (_, tagged) = write(&form, |_, allowed| Some(*next.next()?.get(allowed))).expect("it picks");
        let mut items: Vec<&str> = tagged.split(", ").collect();
        prop_assert!(items.iter().all(|item| ["a", "ab", "b c"].contains(item)), "{}", tagged);
        items.sort_unstable();
        items.dedup();
        prop_assert!((2..=3).contains(&items.len()) && items.len() == tagged.split(", ").count(), "{}", tagged);
    }

    #[test]
    fn whatever_the_model_wants_it_writes_json(
        draws in prop::collection::vec(any::<prop::sample::Index>(), TOKENS_MAX),
    ) {
        let mut draws = draws.into_iter();
        let schema = Constraint::JsonSchema(SCHEMA.into());
        let (_, text) = write(&schema, |_, allowed| Some(*draws.next()?.get(allowed))).expect("it picks");
        let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        prop_assert!(["good", "bad"].contains(&value["label"].as_str().unwrap_or_default()), "{}", text);
        prop_assert!((1..=5).contains(&value["score"].as_i64().unwrap_or_default()), "{}", text);
    }
}
