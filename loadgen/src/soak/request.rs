//! Random requests: what a careless spreadsheet, an impatient person or a broken client sends. Pure.

use serde_json::{Value, json};

use crate::random::SplitMix64;

/// How a client ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// Reads to the end.
    Follow,
    /// Hangs up after so many bytes.
    Leave {
        /// Bytes.
        after: usize,
    },
    /// Asks for a ticket at once and cancels by it.
    Cancel,
}

/// What a constrained answer must be, where it ended of itself.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Promise {
    /// Anything.
    Text,
    /// One of these.
    OneOf(Vec<&'static str>),
    /// An integer in this range.
    Within(i64, i64),
    /// Digits, a dash, lower-case letters.
    Code,
    /// An object with a `label` and a `score`.
    Object,
}

/// A request and what is known of its answer.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Request {
    pub(super) path: &'static str,
    pub(super) body: Value,
    pub(super) ending: Ending,
    pub(super) promise: Promise,
    /// Rows of its answer.
    pub(super) rows: usize,
    /// Whether it must be refused.
    pub(super) is_nonsense: bool,
}

const LABELS: [&str; 4] = ["good", "bad", "neither", "goodness"];
const TEMPLATES: [&str; 4] = [
    "Classify the text.\n\nText: {text}",
    "{text}",
    "Is this a complaint? Answer yes or no, and think of who wrote it before you do.\n\n{text}\n\nAnswer:",
    "Rate {text} from 1 to 5, then say why.",
];
const WORDS: [&str; 16] = [
    "a",
    "wonderful",
    "film",
    "two lost hours",
    "\u{1f600}",
    "naïve",
    "漢字",
    "<|im_end|>",
    "</s>",
    "\n",
    "  ",
    "42",
    "{text}",
    "e\u{301}",
    "null",
    "never\tcame",
];

impl Request {
    /// What the server is asked before and after.
    pub(super) fn probe() -> Self {
        let rows = [["A wonderful film."], ["Two lost hours."], ["Where is my parcel?"]];
        let body = json!({"template": TEMPLATES[0], "rows": rows, "max_tokens": 8, "cache": false});
        let ending = Ending::Follow;
        Self { path: "/v1/relqueries", body, ending, promise: Promise::Text, rows: 3, is_nonsense: false }
    }

    /// Any request.
    pub(super) fn draw(random: &mut SplitMix64) -> Self {
        match random.between(0, 9) {
            0..=5 => relquery(random),
            6 | 7 => cells(random),
            8 => chat(random),
            _ => nonsense(random),
        }
    }
}

/// A template over rows; mostly small, sometimes a column.
fn relquery(random: &mut SplitMix64) -> Request {
    let most = if chance(random, 20) { 120 } else { 12 };
    let count = random.between(1, most) as usize;
    let rows: Vec<[String; 1]> = (0..count).map(|_| [text(random)]).collect();
    let (constraint, promise) = constraint(random);
    let mut body = json!({
        "template": random.pick(&TEMPLATES),
        "columns": ["text"],
        "rows": rows,
        "max_tokens": random.between(1, 24),
        "cache": chance(random, 50),
        "stream": chance(random, 50),
    });
    if chance(random, 40) {
        body["temperature"] = json!(1.3);
        body["top_p"] = json!(0.9);
        body["seed"] = json!(random.between(0, 9));
    }
    match constraint {
        Some(constraint) => body["constraint"] = constraint,
        None if chance(random, 30) => body["stop"] = json!(["e", "\n\n"]),
        None => body["ignore_eos"] = json!(chance(random, 50)),
    }
    let ending = ending(random);
    if ending == Ending::Cancel {
        body["deadline_ms"] = json!(1);
        body["stream"] = json!(false);
        body["max_tokens"] = json!(48);
    }
    Request { path: "/v1/relqueries", body, ending, promise, rows: count, is_nonsense: false }
}

/// Calls of cell functions.
fn cells(random: &mut SplitMix64) -> Request {
    let count = random.between(1, 15) as usize;
    let call = |random: &mut SplitMix64| match random.between(0, 2) {
        0 => json!({"function": "classify", "args": [text(random), ["good", "bad"]]}),
        1 => json!({"function": "rate", "args": [text(random), "how friendly it is"]}),
        _ => json!({"function": "ask", "args": ["Is this good?", text(random)]}),
    };
    let calls: Vec<Value> = (0..count).map(|_| call(random)).collect();
    let body = json!({"calls": calls, "cache": chance(random, 50), "stream": chance(random, 50)});
    let ending = match ending(random) {
        Ending::Cancel => Ending::Follow,
        other => other,
    };
    Request { path: "/v1/cells", body, ending, promise: Promise::Text, rows: count, is_nonsense: false }
}

/// One row through OpenAI's route.
fn chat(random: &mut SplitMix64) -> Request {
    let mut body = json!({
        "messages": [{"role": "user", "content": format!("Say: {}", text(random))}],
        "max_tokens": random.between(1, 32),
        "stream": chance(random, 60),
    });
    if chance(random, 30) {
        body["guided_choice"] = json!(LABELS);
    }
    let ending = match ending(random) {
        Ending::Cancel => Ending::Follow,
        other => other,
    };
    let path = "/v1/chat/completions";
    Request { path, body, ending, promise: Promise::Text, rows: 1, is_nonsense: false }
}

/// What must be refused.
fn nonsense(random: &mut SplitMix64) -> Request {
    let body = match random.between(0, 5) {
        0 => json!({"template": "{text}", "rows": []}),
        1 => json!({"template": "{text", "rows": [["a"]]}),
        2 => json!({"template": "{text}", "rows": [["a"]], "constraint": {"regex": "(a"}}),
        3 => json!({"template": "{text}", "rows": [["a"]], "constraint": {"integer": {"min": 2, "max": 1}}}),
        4 => {
            json!({"template": "{text}", "rows": [["a"]], "constraint": {"json_schema": {"type": "nothing"}}})
        }
        _ => json!({"template": "{text}", "rows": [["a"]], "temperatur": 1}),
    };
    let ending = Ending::Follow;
    Request { path: "/v1/relqueries", body, ending, promise: Promise::Text, rows: 1, is_nonsense: true }
}

/// A constraint, or none.
fn constraint(random: &mut SplitMix64) -> (Option<Value>, Promise) {
    match random.between(0, 9) {
        0 | 1 => (Some(json!({"choice": LABELS})), Promise::OneOf(LABELS.to_vec())),
        2 => {
            let low = -i64::try_from(random.between(0, 50)).unwrap_or_default();
            let high = i64::try_from(random.between(0, 5_000)).unwrap_or_default();
            (Some(json!({"integer": {"min": low, "max": high}})), Promise::Within(low, high))
        }
        3 => (Some(json!({"regex": "[0-9]{1,3}-[a-z]{1,4}"})), Promise::Code),
        4 => {
            let properties =
                json!({"label": {"enum": LABELS}, "score": {"type": "integer", "minimum": 1, "maximum": 5}});
            let schema = json!({"type": "object", "properties": properties, "required": ["label", "score"],
                "additionalProperties": false});
            (Some(json!({"json_schema": schema})), Promise::Object)
        }
        _ => (None, Promise::Text),
    }
}

fn ending(random: &mut SplitMix64) -> Ending {
    match random.between(0, 9) {
        0..=2 => Ending::Leave { after: random.between(0, 600) as usize },
        3 | 4 => Ending::Cancel,
        _ => Ending::Follow,
    }
}

/// A cell: some words, now and then many.
fn text(random: &mut SplitMix64) -> String {
    let count = if chance(random, 2) { 400 } else { random.between(1, 30) };
    (0..count).filter_map(|_| random.pick(&WORDS)).fold(String::from("x"), |text, word| text + " " + word)
}

fn chance(random: &mut SplitMix64, percent: u64) -> bool {
    random.between(0, 99) < percent
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_requests_and_soon_every_kind() {
        let draw = |seed| {
            let mut random = SplitMix64::new(seed, "client 0");
            (0..400).map(|_| Request::draw(&mut random)).collect::<Vec<_>>()
        };
        let requests = draw(1);
        assert_eq!(requests, draw(1));
        assert_ne!(requests, draw(2));
        let some = |holds: &dyn Fn(&Request) -> bool| assert!(requests.iter().any(holds));
        some(&|request| request.is_nonsense);
        some(&|request| request.ending == Ending::Cancel);
        some(&|request| matches!(request.ending, Ending::Leave { .. }));
        for promise in [Promise::OneOf(LABELS.to_vec()), Promise::Code, Promise::Object] {
            some(&|request| request.promise == promise && request.ending == Ending::Follow);
        }
        some(&|request| matches!(request.promise, Promise::Within(..)));
        for path in ["/v1/relqueries", "/v1/cells", "/v1/chat/completions"] {
            for stream in [false, true] {
                some(&|request| request.path == path && request.body["stream"] == stream);
            }
        }
    }
}
