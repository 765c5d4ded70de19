//! PML documents and span queries that are damaged, or made to do harm, are refused or read: no panic, no
//! hang, and nothing larger than the limits.
//!
//! The same mutations of valid documents in every run, and as many more as `DAMAGE_CASES` asks for: bits
//! flipped, numbers replaced by ones that overflow, pieces cut out, repeated, moved, and taken from the other
//! documents.

use base::TokenId;
use base::text::ByteText;
use ir::pml::{Layout, PmlPrompt, Positions, Schema};
use ir::span::{
    CallId, Found, Plan, Retrieval, Rewriting, SpanError, SpanLimits, SpanQuery, explain, rewrite,
};
use ir::{Encoder, Rules, Tags};

/// Mutated documents per form, where `DAMAGE_CASES` does not say otherwise.
const CASES: u64 = 2_000;

/// Positions that there are.
const LENGTH_MAX: u32 = 200_000;

fn cases() -> u64 {
    let asked = std::env::var_os("DAMAGE_CASES");
    let number = |text: std::ffi::OsString| text.to_str().and_then(|text| text.parse().ok());
    asked.map_or(CASES, |text| number(text).expect("DAMAGE_CASES is a number of documents"))
}

/// A generator with the same stream everywhere (xorshift64*).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, count: usize) -> usize {
        (self.next() % count.max(1) as u64) as usize
    }

    /// A stretch of a text, short or long.
    fn stretch(&mut self, length: usize) -> std::ops::Range<usize> {
        let at = self.below(length);
        let most = if self.below(4) == 0 { length } else { 40 };
        at..at + self.below(most).min(length - at)
    }
}

/// Numbers that readers get wrong, and words that mean something.
const WORDS: [&str; 16] = [
    "0",
    "-1",
    "4294967296",
    "18446744073709551616",
    "1e999",
    "null",
    "{}",
    "[]",
    "\"",
    "&lt;",
    "<!--",
    "<union>",
    "</module>",
    "{\"plus\":[",
    "\u{0}",
    "漢",
];

/// A document with a few things done to it.
fn mutated(documents: &[String], which: usize, random: &mut Random) -> Vec<u8> {
    let mut bytes = documents[which].clone().into_bytes();
    for _ in 0..=random.below(3) {
        let range = random.stretch(bytes.len());
        match random.below(8) {
            0 | 1 => {
                bytes.iter_mut().skip(range.start).take(1).for_each(|byte| *byte ^= 1 << random.below(8))
            }
            2 => bytes.truncate(range.start),
            3 => drop(bytes.drain(range)),
            4 => {
                let piece = bytes[range.clone()].repeat(1 + random.below(3));
                bytes.splice(range.start..range.start, piece);
            }
            5 => {
                let other = &documents[random.below(documents.len())].as_bytes();
                let piece = other[random.stretch(other.len())].to_vec();
                bytes.splice(range, piece);
            }
            _ => {
                let word = WORDS[random.below(WORDS.len())];
                bytes.splice(range.start..range.end.min(range.start + 3), word.bytes());
            }
        }
    }
    bytes
}

/// The files of a folder with this ending, in order.
fn documents(folder: &str, extension: &str) -> Vec<String> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(folder);
    let entries =
        folder.read_dir().expect("the folder is there").filter_map(Result::ok).map(|entry| entry.path());
    let mut paths: Vec<_> =
        entries.filter(|path| path.extension().is_some_and(|end| end == extension)).collect();
    paths.sort();
    paths.iter().map(|path| std::fs::read_to_string(path).expect("it can be read")).collect()
}

/// Mutates and reads; how many were taken for valid.
fn read_many(documents: &[String], mut read: impl FnMut(&[u8]) -> bool) -> u64 {
    let mut valid = 0;
    for case in 1..=cases() {
        let mut random = Random(case.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let which = random.below(documents.len());
        valid += u64::from(read(&mutated(documents, which, &mut random)));
    }
    valid
}

fn tags() -> Tags {
    Tags::of(&ByteText, &ByteText).expect("messages stand one by one")
}

#[test]
fn no_damaged_schema_or_prompt_panics() {
    const SMALL: &str = r#"<schema name="s"><system>Plan.</system><module name="a">For <parameter name="n" length="3" scaffold="one"/>.<union><module
        name="b">B.</module><module name="c" cache="false"/></union></module>&amp; more.</schema>"#;
    const PROMPT: &str = r#"<prompt schema="s"><a n="12"><b/>text</a><user>Go &lt;on&gt;.</user></prompt>"#;
    let mut documents = documents("pml", "xml");
    // Small ones are hit where it hurts.
    documents.extend([SMALL, SMALL, PROMPT, PROMPT].map(str::to_owned));
    let tags = tags();
    let positions = Positions { length_max: LENGTH_MAX, can_shift: true, bounds_arguments: true };
    let layout = |text: &str| Layout::new(&Schema::parse(text).ok()?, &ByteText, Ok(&tags), positions).ok();
    let small = layout(SMALL).expect("valid");
    let valid = read_many(&documents, |bytes| {
        let text = String::from_utf8_lossy(bytes);
        if let Some(layout) = layout(&text) {
            assert!(layout.length <= LENGTH_MAX);
            let _ = layout.encodings();
            return true;
        }
        let Ok(prompt) = PmlPrompt::parse(&text) else { return false };
        if let Ok(assembly) = small.assemble(&prompt, &ByteText, Ok(&tags), LENGTH_MAX) {
            assert!(assembly.end <= LENGTH_MAX);
            let _ = assembly.sections(&small);
        }
        true
    });
    assert!(valid > cases() / 50 && valid < cases(), "{valid} valid: mutations are too weak or too strong");
}

/// A few nodes of every kind.
const QUERY: &str = r#"{"g":{"model":"m","max_tokens":5,"temperature":"0.2","top_p":0.5,"top_k":3,"seed":-1,"stop":["x"],"constraint":{"choice":["a"]},
    "input":{"seq":[{"system":"s"},{"print":"p"},{"plus":[{"repeat":{"n":3,"g":{"input":{"chat":{"input":[{"user":"u"}]}}}}}]},
    {"retrieval":{"corpus":"c","query":{"cross":[{"user":"q"}]},"k":2}},{"assistant":"a"},{"plus":[]}]}}}"#;

/// Does with a query all that can be done with it.
fn use_all(query: SpanQuery, encoder: Encoder<'_>, limits: SpanLimits) {
    let found: Found = query
        .retrievals()
        .into_iter()
        .map(|found: Retrieval| (found, vec!["one".into(), "two".into()]))
        .collect();
    let with = Rewriting { rules: Rules::all(), judges: Some(2), found: &found, limits };
    let (query, log) = match rewrite(query, &with) {
        Ok(rewritten) => rewritten,
        Err(error) => return assert!(matches!(error, SpanError::TooLarge { .. }), "{error}"),
    };
    assert!(!explain(&query, &log).is_empty());
    let Ok(plan) = Plan::new(&query) else { return };
    let output = [TokenId(255), ByteText::END];
    for call in &plan.calls {
        let sectioned =
            plan.assemble(CallId(call.id.0), encoder, LENGTH_MAX, &|_| ir::span::Output::Tokens(&output));
        assert!(sectioned.is_ok_and(|sectioned| !sectioned.prompt.is_empty()));
    }
}

#[test]
fn no_damaged_span_query_panics() {
    let mut documents: Vec<String> = documents("span", "json")
        .iter()
        .map(|text| text.replace("{n}", "3").replace("{temperature}", "1").replace("{max_tokens}", "9"))
        .collect();
    for case in self::documents("span/golden", "json") {
        let case: serde_json::Value = serde_json::from_str(&case).expect("a case is JSON");
        documents.push(case["query"].to_string());
    }
    documents.extend([QUERY; 8].map(str::to_owned));
    let tags = tags();
    let encoder = Encoder { tokenizer: &ByteText, chat: Some((&ByteText, &tags)) };
    let limits = SpanLimits { nodes_max: 200, bytes_max: 20_000, ..SpanLimits::default() };
    let valid = read_many(&documents, |bytes| {
        let Ok(json) = serde_json::from_slice(bytes) else { return false };
        match SpanQuery::read(&json, &limits) {
            Ok(query) => {
                use_all(query, encoder, limits);
                true
            }
            Err(error) => {
                assert!(error.to_string().len() < 2_000, "an error is short: {error}");
                false
            }
        }
    });
    assert!(valid > cases() / 50 && valid < cases(), "{valid} valid: mutations are too weak or too strong");
}
