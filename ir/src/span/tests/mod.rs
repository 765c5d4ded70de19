//! Span queries over bytes as tokens: what is refused, what a plan is, and the tokens of its calls.

mod assembly;
mod properties;
mod refusals;

use base::text::ByteText;
use base::{ChatTemplate, Piece, RenderedPiece, Role, Sees, TextError, TokenId, Tokenizer};

use super::*;
use crate::conversation::{Encoder, Sectioned, Tags};
use crate::rewrite::Rules;

/// A template that begins with markup of no message, as many do.
struct Begun;

impl ChatTemplate for Begun {
    fn frame(&self, roles: &[Role]) -> Result<Vec<Piece>, TextError> {
        let mut pieces = vec![Piece::Markup("^".into())];
        pieces.extend(ByteText.frame(roles)?);
        Ok(pieces)
    }
}

/// A template without any markup for an answer to come.
struct Bare;

impl ChatTemplate for Bare {
    fn frame(&self, roles: &[Role]) -> Result<Vec<Piece>, TextError> {
        let message = |(i, role): (usize, &Role)| {
            [Piece::Markup(format!("{}:", role.name())), Piece::Content(i), Piece::Markup("<end>".into())]
        };
        Ok(roles.iter().enumerate().flat_map(message).collect())
    }
}

/// A template that makes up a system's message where there is none, and puts words into the one that there
/// is.
struct Led;

impl ChatTemplate for Led {
    fn frame(&self, roles: &[Role]) -> Result<Vec<Piece>, TextError> {
        let mut pieces = ByteText.frame(roles)?;
        let first =
            if roles[0] == Role::System { "[system]Today. " } else { "[system]Today. Be kind.<end>[user]" };
        pieces[0] = Piece::Markup(first.into());
        Ok(pieces)
    }
}

fn parsed(text: &str) -> SpanQuery {
    let json = serde_json::from_str(text).expect("it is JSON");
    SpanQuery::read(&json, &SpanLimits::default()).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn rewritten(query: SpanQuery) -> SpanQuery {
    let found = Found::new();
    let with = Rewriting { rules: Rules::all(), judges: None, found: &found, limits: SpanLimits::default() };
    rewrite(query, &with).expect("it can be rewritten").0
}

fn plan(text: &str) -> Plan {
    Plan::new(&rewritten(parsed(text))).expect("it can be planned")
}

/// Positions for every prompt here.
const LENGTH_MAX: u32 = 100_000;

fn assembled(plan: &Plan, id: usize, chat: &dyn ChatTemplate, outputs: Outputs<'_>) -> Sectioned {
    let tags = Tags::of(chat, &ByteText).expect("messages stand one by one");
    let encoder = Encoder { tokenizer: &ByteText, chat: Some((chat, &tags)) };
    plan.assemble(CallId(id), encoder, LENGTH_MAX, outputs).expect("it fits")
}

/// Tokens as text, the special one shown.
fn shown(tokens: &[TokenId]) -> String {
    let text = |token: &TokenId| match *token {
        ByteText::END => "<end>".to_owned(),
        token => ByteText.decode(&[token]),
    };
    tokens.iter().map(text).collect()
}

/// Sections as `3+text` where they see all before them, `3:text` where they see only themselves.
fn sections(sectioned: &Sectioned) -> Vec<String> {
    let mut start = 0;
    let section = |section: &base::Section| {
        let tokens = &sectioned.prompt[start..][..section.tokens.0 as usize];
        start += tokens.len();
        let sees = if section.sees == Sees::Before { '+' } else { ':' };
        format!("{}{sees}{}", section.position, shown(tokens))
    };
    sectioned.sections.iter().map(section).collect()
}

/// What is documented at `WorkItem::sections`, and that no position is free.
fn check_sections(sectioned: &Sectioned) {
    let Some((own, units)) = sectioned.sections.split_last() else { return };
    let mut next = 0;
    for (number, section) in sectioned.sections.iter().enumerate() {
        assert_eq!(section.position, next, "positions follow one another: {sectioned:?}");
        assert!(section.tokens.0 > 0, "no section is empty");
        next += section.tokens.0 as u32;
        if let Sees::Unit { first, origin, is_placeholder } = section.sees {
            assert_eq!((first as usize, origin), (number, section.position), "a unit numbered from 0");
            assert!(!is_placeholder);
        }
    }
    assert_eq!(next as usize, sectioned.prompt.len(), "the sections add up to the prompt");
    assert_eq!(own.sees, Sees::Before, "the last sees all");
    assert!(units.iter().any(|section| section.sees != Sees::Before), "without spans there are no sections");
    let before = |section: &base::Section| section.sees == Sees::Before;
    let is_cut = sectioned.sections.windows(2).any(|pair| pair.iter().all(before));
    assert!(!is_cut, "no text is cut without need: {sectioned:?}");
}

/// The same query, a map in it written out by hand.
fn check_map(map: &str, written_out: &str) {
    assert_eq!(parsed(map), parsed(written_out), "{map}");
}

#[test]
fn a_map_is_a_copy_for_each_item() {
    let call = |text: &str| format!(r#"{{"g":{{"max_tokens":"3","input":{{"user":"{text}"}}}}}}"#);
    let of = |over: &str, text: &str| format!(r#"{{"map":{{"over":{over},"query":{}}}}}"#, call(text));
    let both = format!("{},{}", call("Is a good?"), call("Is {b}} good?"));
    // What is put in is not read again.
    let map = of(r#"["a","{b}}"]"#, "Is {item} good?");
    for list in ["seq", "plus", "cross"] {
        check_map(
            &format!(r#"{{"{list}":[{{"user":"x {{item}}"}},{map},{{"user":"y"}}]}}"#),
            &format!(r#"{{"{list}":[{{"user":"x {{item}}"}},{both},{{"user":"y"}}]}}"#),
        );
    }
    check_map(&map, &format!(r#"{{"cross":[{both}]}}"#));
    let judge = |input: &str| format!(r#"{{"g":{{"input":{input}}}}}"#);
    check_map(&judge(&map), &judge(&format!(r#"{{"cross":[{both}]}}"#)));
    check_map(&of(r#"[{"a":1,"b":true}]"#, "{a}{b}{{a}}"), &call("1true{a}"));
    let nested = r#"{"seq":[{"map":{"over":[{"city":"Rome"},{"city":"Oslo"}],"query":{"map":{"over":["sun","{city}"],
        "query":{"user":"{item} in {city}"}}}}}]}"#;
    let texts = ["sun in Rome", "{city} in Rome", "sun in Oslo", "{city} in Oslo"];
    let texts = texts.map(|text| format!(r#"{{"user":"{text}"}}"#)).join(",");
    check_map(nested, &format!(r#"{{"seq":[{texts}]}}"#));
    let many = plan(&format!(r#"{{"seq":[{}]}}"#, of("[1,2,3]", "{item}")));
    assert_eq!(many.calls.len(), 3, "each item its own call");
    assert_eq!(many.output.len(), 3);
}
