//! The tokenizer out of a GGUF file does to every text what the tokenizer.json does that the file was made
//! of.

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use base::{After, ChatTemplate as _, Role, TokenId, Tokenizer as _};
use engine::checkpoint::Synthetic;
use engine::checkpoint::config::{Family, ModelConfig};
use engine::checkpoint::generation::SpecialIds;
use engine::checkpoint::ggml::BlockFormat;
use engine::checkpoint::gguf::convert::Conversion;
use engine::checkpoint::gguf::write::GgufWriter;
use engine::checkpoint::gguf::{Gguf, texts};
use engine::checkpoint_reader::Checkpoint;
use engine::text::{ModelText, TextFiles};
use proptest::prelude::*;
use serde_json::{Value, json};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in the workspace").to_owned()
}

fn read(name: &str) -> String {
    std::fs::read_to_string(repository().join(name)).expect("it is shipped")
}

/// Real text, and what trips tokenizers.
fn samples() -> Vec<String> {
    let mut samples: Vec<String> = ["README.md", "examples/reviews.csv"]
        .iter()
        .flat_map(|name| read(name).lines().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    samples.push(read("models/demo/MODEL_CARD.md"));
    let odd = [
        "",
        " ",
        "  ",
        "\n",
        " \n\n \r\n\t x",
        "I'LL we'll don'T",
        "3.14159 12345678 ٣٤٥ Ⅷ½",
        "a  b   c    d",
        "Straße ÅNGSTRÖM naïve cafe\u{301}",
        "漢字かな交じり文。한국어",
        "🙂👩‍👩‍👧 \u{200b}\u{feff}",
        "\u{0}\u{7f}\u{85}",
        "<|end|> <|user|>x</s><s>[INST]",
        "▁▁a ▁b",
        "x = {\"k\": [1, 2]} // ok?!",
        "    indented\n\tcode()",
        "e\u{301}\u{327} \u{1e9b}\u{323}",
        "ﬁ Å",
        "…—“quoted”",
        "a\u{a0}b\u{3000}c",
    ];
    samples.extend(odd.map(str::to_owned));
    samples
}

/// A tokenizer.json with the demo's vocabulary, the published steps of `pre`, and begin tokens left to the
/// settings.
fn published(pre: &str) -> String {
    let mut json: Value = serde_json::from_str(&read("models/demo/tokenizer.json")).expect("JSON");
    let bytes =
        json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false });
    let split = |regex: &str| {
        let split = json!({ "type": "Split", "pattern": { "Regex": regex }, "behavior": "Isolated", "invert": false });
        json!({ "type": "Sequence", "pretokenizers": [split, bytes] })
    };
    // The lines of Qwen2.5's, Llama 3's, GPT-2's, Falcon's and SmolLM2's tokenizer.json.
    let qwen2 = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
    let llama3 = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
    let gpt2 =
        json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true });
    let digits = json!({ "type": "Digits", "individual_digits": true });
    json["pre_tokenizer"] = match pre {
        "qwen2" => split(qwen2),
        "llama-bpe" | "smaug-bpe" => split(llama3),
        "gpt-2" | "mpt" => gpt2.clone(),
        "falcon" => json!({ "type": "Sequence", "pretokenizers": [
            { "type": "Punctuation", "behavior": "Contiguous" },
            gpt2,
            { "type": "Digits", "individual_digits": false },
            { "type": "Split", "pattern": { "Regex": "[0-9][0-9][0-9]" }, "behavior": "Isolated", "invert": false },
        ] }),
        _ => json!({ "type": "Sequence", "pretokenizers": [digits, gpt2] }),
    };
    json["normalizer"] = if composes(pre) { json!({ "type": "NFC" }) } else { Value::Null };
    json["model"]["ignore_merges"] = json!(pre == "llama-bpe");
    json["decoder"] = gpt2;
    json.to_string()
}

/// Whether characters are composed before words are cut.
fn composes(pre: &str) -> bool {
    ["qwen2", "mpt"].contains(&pre)
}

/// The demo's shape and vocabulary with other steps, as a file.
fn file(pre: &str, change: impl Fn(&mut GgufWriter)) -> Gguf {
    let mut model = Synthetic::tiny(Family::Llama, 1);
    model.config = ModelConfig { vocab: 6_144, ..model.config };
    let conversion = Conversion {
        config: &model.config,
        weights: &model.weights(),
        format: BlockFormat::F32,
        tokenizer: &published(pre),
        pre,
        end: 0,
        template: Some(
            "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{{ eos_token }}{% endfor %}",
        ),
    };
    let mut writer = conversion.writer().expect("complete");
    change(&mut writer);
    Gguf::from_bytes("x.gguf", Cow::Owned(writer.finish())).expect("a valid file")
}

/// Both tokenizers, the one of the tokenizer.json first.
fn both(pre: &str) -> [ModelText; 2] {
    let json = published(pre);
    let files = TextFiles { tokenizer: &json, ..TextFiles::default() };
    let ids = SpecialIds { begin: None, ends: vec![0] };
    let expected = ModelText::new(files, 6_144, &ids, None).expect("a valid tokenizer");
    [expected, Checkpoint::gguf("x", file(pre, |_| ()), None).expect("a valid file").text]
}

/// Both do the same to `text`, and give it back where tokens can.
fn check([expected, found]: &[ModelText; 2], text: &str) {
    for after in [After::Nothing, After::Special] {
        assert_eq!(found.encode_stretch(after, text), expected.encode_stretch(after, text), "{text:?}");
    }
    let tokens = found.encode_data(text);
    assert_eq!(tokens, expected.encode_data(text), "{text:?}");
    assert_eq!(found.split_markup(text), expected.split_markup(text), "{text:?}");
    assert_eq!(found.decode(&tokens), expected.decode(&tokens), "{text:?}");
}

const PRES: [&str; 7] = ["gpt-2", "smollm", "qwen2", "llama-bpe", "smaug-bpe", "mpt", "falcon"];

#[test]
fn every_way_to_cut_words_gives_the_tokens_of_the_published_one() {
    for pre in PRES {
        let pair = both(pre);
        for text in samples() {
            check(&pair, &text);
            if !composes(pre) {
                assert_eq!(pair[1].decode(&pair[1].encode_data(&text)), text, "{pre}");
            }
        }
        assert_eq!(pair[1].vocab_size(), pair[0].vocab_size());
        assert_eq!(pair[1].ends(), [TokenId(0)]);
    }
}

#[test]
fn a_tokenizer_json_inside_the_file_is_used_as_it_is() {
    let demo =
        Checkpoint::folder(&repository().join("models/demo"), None).expect("the demo model opens").text;
    let json = read("models/demo/tokenizer.json");
    let checkpoint =
        Checkpoint::gguf("x", file("smollm", |w| w.text("tokenizer.huggingface.json", &json)), None);
    let pair = [demo, checkpoint.expect("a valid file").text];
    samples().iter().for_each(|text| check(&pair, text));
}

#[test]
fn the_template_and_its_tokens_come_out_of_the_file() {
    let checkpoint =
        Checkpoint::gguf("x", file("smollm", |w| w.unsigned("tokenizer.ggml.bos_token_id", 3)), None);
    let text = checkpoint.expect("a valid file").text;
    let frame = text.frame(&[Role::User]).expect("the template takes a user's turn");
    let whole = text.encode_framed(&frame, &["good"]);
    let good = text.encode_data("good");
    let expected = [vec![TokenId(3), TokenId(1)], good, vec![TokenId(0)]].concat();
    assert_eq!(whole, expected);
    assert_eq!(text.prompt_start(), [], "the file says that none is added");
    let with_begin = file("smollm", |writer| {
        writer.unsigned("tokenizer.ggml.bos_token_id", 3);
        writer.remove("tokenizer.ggml.add_bos_token");
        writer.flag("tokenizer.ggml.add_bos_token", true);
    });
    assert_eq!(Checkpoint::gguf("x", with_begin, None).expect("valid").text.prompt_start(), [TokenId(3)]);
}

#[test]
fn every_control_token_that_ends_answers_is_one() {
    let named = file("smollm", |writer| writer.unsigned("tokenizer.ggml.eot_token_id", 4));
    let ids = texts(&named, 6_144).expect("valid").ids;
    assert_eq!(ids, SpecialIds { begin: None, ends: vec![0, 4] });
}

/// A vocabulary of pieces, each longer one with a score.
fn sentence_pieces() -> (Vec<String>, Vec<f32>, Vec<i32>) {
    let mut tokens: Vec<String> = ["<unk>", "<s>", "</s>"].map(str::to_owned).to_vec();
    let mut roles = vec![2, 3, 3];
    tokens.extend((0..=255).map(|byte| format!("<0x{byte:02X}>")));
    roles.resize(259, 6);
    let longer = [
        "▁t",
        "er",
        "in",
        "▁a",
        "en",
        "on",
        "▁th",
        "es",
        "▁s",
        "▁the",
        "ing",
        "▁th",
        "ou",
        "▁w",
        "the",
        "▁▁",
        "at",
        "▁in",
        "▁wh",
        "▁what",
        "e▁",
        "▁ou",
        "ent",
        "▁▁▁▁",
        "</",
        "s>",
    ];
    for piece in longer
        .iter()
        .copied()
        .map(str::to_owned)
        .chain("▁abcdefghijklmnopqrstuvwxyzé漢<>/.".chars().map(String::from))
    {
        if !tokens.contains(&piece) {
            tokens.push(piece);
        }
    }
    roles.resize(tokens.len(), 1);
    let scores = (0..tokens.len()).map(|id| if id < 259 { 0.0 } else { 259.0 - id as f32 }).collect();
    (tokens, scores, roles)
}

/// SentencePiece's algorithm in its plainest form: merge the neighbours that make the piece of the highest
/// score, the leftmost of equals, until there are none; what is no piece falls back to bytes.
fn reference_pieces(tokens: &[String], scores: &[f32], text: &str) -> Vec<u32> {
    let id = |piece: &str| tokens.iter().skip(259).position(|token| token == piece).map(|at| at + 259);
    let mut parts: Vec<String> = text.replace(' ', "▁").chars().map(String::from).collect();
    loop {
        let score = |at: usize| id(&(parts[at].clone() + &parts[at + 1])).map(|id| scores[id]);
        let pairs = (0..parts.len().saturating_sub(1)).filter_map(|at| Some((at, score(at)?)));
        let Some((at, _)) = pairs.reduce(|best, next| if next.1 > best.1 { next } else { best }) else {
            break;
        };
        let right = parts.remove(at + 1);
        parts[at] += &right;
    }
    let ids = |part: &String| match id(part) {
        Some(id) => vec![id as u32],
        None => part.bytes().map(|byte| u32::from(byte) + 3).collect(),
    };
    parts.iter().flat_map(ids).collect()
}

fn sentence_piece_text(
    (tokens, scores, roles): (Vec<String>, Vec<f32>, Vec<i32>),
    adds_space: bool,
) -> ModelText {
    let gguf = file("gpt-2", |writer| {
        for key in ["model", "pre", "tokens", "token_type", "merges", "eos_token_id", "add_bos_token"] {
            writer.remove(&format!("tokenizer.ggml.{key}"));
        }
        writer.remove("tokenizer.chat_template");
        writer.text("tokenizer.ggml.model", "llama");
        writer.texts("tokenizer.ggml.tokens", &tokens);
        writer.floats("tokenizer.ggml.scores", &scores);
        writer.integers("tokenizer.ggml.token_type", &roles);
        writer.unsigned("tokenizer.ggml.bos_token_id", 1);
        writer.unsigned("tokenizer.ggml.eos_token_id", 2);
        writer.flag("tokenizer.ggml.add_space_prefix", adds_space);
    });
    Checkpoint::gguf("x", gguf, None).expect("a valid file").text
}

/// As Gemma's files have it: of the lowest score, and with spaces written as such.
#[test]
fn white_space_that_a_file_defines_is_cut_out_before_all_else() {
    let (mut tokens, mut scores, mut roles) = sentence_pieces();
    let mut define = |id: usize, text: &str| {
        let size = tokens.len().max(id + 1);
        tokens.resize(size, String::new());
        scores.resize(size, 0.0);
        roles.resize(size, 4);
        (tokens[id], scores[id], roles[id]) = (text.to_owned(), -1_000.0, 4);
    };
    let (pieces, ..) = sentence_pieces();
    let normal = |text: &str| pieces.iter().position(|token| token == text).expect("it is a piece");
    define(normal("▁▁"), "  ");
    define(normal("▁▁▁▁"), "    ");
    for (number, text) in ["   ", "\n", "\n\n", "\n\n\n", "\t", "<b>"].iter().enumerate() {
        define(pieces.len() + number, text);
    }
    let expected = ["a", "\n\n\n", "in", "   ", "on", "\t", "b", "  ", "<", "b", ">", "▁", "\n"]
        .map(|text| TokenId(tokens.iter().rposition(|token| token == text).expect("it is a token") as u32));
    let model = sentence_piece_text((tokens, scores, roles), false);
    let text = "a\n\n\nin   on\tb  <b> \n";
    assert_eq!(model.encode_data(text), expected);
    assert_eq!(model.encode_stretch(After::Special, text), expected);
    assert_eq!(model.decode(&expected), text);
}

#[test]
fn sentence_pieces_are_those_of_the_plain_algorithm() {
    let (tokens, scores, _) = sentence_pieces();
    let text = sentence_piece_text(sentence_pieces(), true);
    for sample in samples().iter().filter(|sample| !sample.is_empty() && sample.len() < 400) {
        let ids = |tokens: Vec<TokenId>| tokens.into_iter().map(|token| token.0).collect::<Vec<_>>();
        assert_eq!(ids(text.encode_data(sample)), reference_pieces(&tokens, &scores, sample), "{sample:?}");
        let at_start = text.encode_stretch(After::Special, sample);
        let with_space = format!(" {sample}");
        assert_eq!(ids(at_start.clone()), reference_pieces(&tokens, &scores, &with_space), "{sample:?}");
        let marks_are_spaces = sample.replace('▁', " ");
        assert_eq!(text.decode(&at_start), marks_are_spaces, "the space in front is taken away again");
    }
    assert_eq!((text.prompt_start(), text.ends()), (vec![TokenId(1)], &[TokenId(2)][..]));
}

static PAIRS: LazyLock<[[ModelText; 2]; 7]> = LazyLock::new(|| PRES.map(both));

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_text_gives_the_tokens_of_the_published_tokenizer(
        texts in prop::collection::vec("\\PC{0,40}|[ \\r\\n\\ta-zA-Z0-9'.,é漢🙂]{0,60}", 1..20),
    ) {
        for pair in &*PAIRS {
            texts.iter().for_each(|text| check(pair, text));
        }
    }
}
