//! What all outputs of a form begin with: the tokens that would have been drawn there, and nothing where the first is
//! to be decided.

use base::{Constraint, Generation, TokenId};

use super::tests::constraints;
use super::{Compiled, ConstraintCompiler as _, ConstraintState, Constraints, Pushed};

fn grammar(start: &str) -> Constraint {
    Constraint::Grammar(format!("start: {start}\n"))
}

fn compiled(constraint: &Constraint) -> Compiled {
    constraints().compile(constraint).expect("it compiles")
}

fn bytes(tokens: &[TokenId]) -> Vec<u8> {
    tokens.iter().flat_map(|token| constraints().text.bytes(*token).expect("it has text")).collect()
}

/// Tokens that follow by themselves from the start: each the only one that may be drawn, and what it forces.
fn followed(constraint: &Constraint, count: usize) -> (Vec<TokenId>, ConstraintState) {
    let mut state = constraints().compile_start(constraint).expect("it compiles");
    let mut tokens = Vec::new();
    while tokens.len() < count {
        let allowed = state.allowed().expect("something may follow").to_list();
        assert_eq!(allowed.len(), 1, "nothing is to be decided behind {tokens:?}");
        tokens.push(TokenId(allowed[0]));
        match state.push(TokenId(allowed[0])).expect("it was allowed") {
            Pushed::Open(forced) => tokens.extend(forced),
            Pushed::Ended(rest) => panic!("it ends with {rest:?}"),
        }
    }
    (tokens, state)
}

#[test]
fn an_opening_is_what_would_have_been_drawn_and_rows_go_on_behind_it() {
    let forms = [
        (grammar(r#""{\"label\": \"" ("good" | "bad") "\"}""#), r#"{"label": ""#),
        (grammar(r#""The answer is " /[0-9]+/ ".""#), "The answer is "),
    ];
    for (form, text) in forms {
        let compiled = compiled(&form);
        let opening = compiled.opening().to_vec();
        assert!(
            !opening.is_empty() && text.as_bytes().starts_with(&bytes(&opening)),
            "{opening:?} of {text}"
        );
        // All but what the free text behind might join.
        assert!(bytes(&opening).len() + 6 > text.len(), "{opening:?} of {text}");
        let (tokens, mut drawn) = followed(&form, opening.len());
        assert_eq!(tokens, opening, "{text}");
        let generation = Generation { constraint: Some(form), compiled, ..Generation::default() };
        assert_eq!(Constraints::opening(&generation), opening);
        let choice = drawn.allowed().expect("a choice").to_list();
        assert!(choice.len() > 1, "the first token that somebody decides");
        for _ in 0..2 {
            let mut behind = Constraints::behind_opening(&generation).expect("it has one");
            assert_eq!(behind.written(), bytes(&opening));
            assert_eq!(behind.allowed().expect("a choice").to_list(), choice, "{text}");
        }
        // Rows that are brought up to where they stood begin where all do.
        let mut again = constraints().start(&generation).expect("it starts").expect("it is constrained");
        assert_eq!(again.allowed().expect("one").to_list(), [opening[0].0]);
    }
}

#[test]
fn what_is_to_be_decided_first_or_not_at_all_has_no_opening() {
    let schema = r#"{"type":"object","properties":{"a":{"type":"boolean"}},"required":["a"]}"#;
    for form in [
        Constraint::Choice(vec!["good".into(), "bad".into()]),
        Constraint::Regex("[a-z]+".into()),
        // With this tokenizer a space may stand in front.
        Constraint::JsonSchema(schema.into()),
        // All is decided: the first token ends it, and the rest is not computed.
        grammar(r#""nothing to decide""#),
    ] {
        assert!(compiled(&form).opening().is_empty(), "{form:?}");
    }
    let free = Generation { compiled: compiled(&grammar(r#""so: " /[a-z]+/"#)), ..Generation::default() };
    assert!(Constraints::opening(&free).is_empty(), "without a constraint nothing is to be kept to");
}
