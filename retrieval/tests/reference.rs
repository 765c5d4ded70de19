//! The embedder against plain loops in double precision, and what it refuses.
#![expect(clippy::unwrap_used, reason = "tests")]

mod plain;

use std::path::Path;

use retrieval::synthetic::Synthetic;
use retrieval::{Cut, Embedder, Error};
use serde_json::{Value, json};

const WORDS: [&str; 8] = ["river", "bank", "money", "boat", "water", "loan", "the", "of"];
/// Rounding of single precision through two layers.
const TOLERANCE: f64 = 2e-6;

fn folder(model: &Synthetic) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    model.write(dir.path()).unwrap();
    dir
}

fn load(path: &Path) -> Result<Embedder, Error> {
    Embedder::load(path, 2)
}

/// Largest difference between two vectors' numbers.
fn difference(a: &[f32], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (f64::from(*a) - b).abs()).fold(0.0, f64::max)
}

#[test]
fn vectors_are_those_of_plain_loops_in_double_precision() {
    for takes_first in [false, true] {
        let model = Synthetic { takes_first, ..Synthetic::tiny(&WORDS, 7) };
        let embedder = load(folder(&model).path()).unwrap();
        // Lengths differ, so that the batch is padded.
        let long = "the boat of the river bank water ".repeat(8);
        let texts = ["river", "the money of the bank", &long, "loan water", "boat of money"];
        let vectors = embedder.embed(&texts, &|| false).unwrap();
        for (text, embedding) in texts.iter().zip(&vectors) {
            let expected = plain::vector(&model, text);
            let off = difference(&embedding.vector, &expected);
            assert!(off < TOLERANCE, "{text:?}, first {takes_first}: off by {off}");
            assert_eq!(embedding.tokens, text.split_whitespace().count() + 2);
            assert!(!embedding.is_truncated);
        }
        let distance = difference(&vectors[0].vector, &plain::vector(&model, "loan water"));
        assert!(distance > 100.0 * TOLERANCE, "other texts have other vectors: {distance}");
    }
}

#[test]
fn a_text_has_its_vector_alone_and_among_others() {
    let embedder = load(folder(&Synthetic::tiny(&WORDS, 3)).path()).unwrap();
    let texts: Vec<String> = (1..60).map(|count| "river bank loan ".repeat(count % 19 + 1)).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let together = embedder.embed(&texts, &|| false).unwrap();
    for (text, among) in texts.iter().zip(&together) {
        let alone = embedder.embed(&[text], &|| false).unwrap().remove(0);
        let alone: Vec<f64> = alone.vector.into_iter().map(f64::from).collect();
        assert!(difference(&among.vector, &alone) < TOLERANCE, "{text}");
        let length: f32 = among.vector.iter().map(|x| x * x).sum();
        assert!((length - 1.0).abs() < 1e-5);
    }
}

#[test]
fn a_text_that_is_too_long_is_cut_and_says_so() {
    let model = Synthetic::tiny(&WORDS, 3);
    let embedder = load(folder(&model).path()).unwrap();
    let [fits, too_long] = [62, 63].map(|count| "boat ".repeat(count));
    let vectors = embedder.embed(&[&fits, &too_long], &|| false).unwrap();
    assert_eq!(
        vectors.iter().map(|v| (v.tokens, v.is_truncated)).collect::<Vec<_>>(),
        [(64, false), (64, true)]
    );
    assert_eq!(vectors[0].vector, vectors[1].vector, "what is cut off has no part in it");
}

#[test]
fn special_tokens_in_a_text_are_text() {
    let embedder = load(folder(&Synthetic::tiny(&WORDS, 3)).path()).unwrap();
    let tokens = embedder.embed(&["[SEP]"], &|| false).unwrap()[0].tokens;
    assert_eq!(tokens, 2 + 5, "a bracket, three letters, a bracket");
}

#[test]
fn fragments_are_no_longer_than_asked_and_nothing_is_lost() {
    let embedder = load(folder(&Synthetic::tiny(&WORDS, 3)).path()).unwrap();
    let text = "The boat of the river. Water, money \u{6f22}\u{5b57} and a loan!\n\n".repeat(9)
        + "antidisestablishmentarianism";
    let pieces = embedder.fragments(&text, Cut { tokens_max: 12, overlap: 3 }).unwrap();
    assert_eq!(pieces, embedder.fragments(&text, Cut { tokens_max: 12, overlap: 3 }).unwrap());
    assert!(pieces.len() > 9);
    let mut covered = 0;
    for piece in &pieces {
        assert!(text[covered.min(piece.range.start)..piece.range.start].trim().is_empty());
        covered = piece.range.end;
    }
    assert_eq!(covered, text.len());
    for cut in [
        Cut { tokens_max: 63, overlap: 0 },
        Cut { tokens_max: 0, overlap: 0 },
        Cut { tokens_max: 8, overlap: 5 },
    ] {
        assert!(matches!(embedder.fragments(&text, cut), Err(Error::Invalid { .. })), "{cut:?}");
    }
}

#[test]
fn embedding_ends_between_batches_when_told() {
    let embedder = load(folder(&Synthetic::tiny(&WORDS, 3)).path()).unwrap();
    let asked = std::sync::atomic::AtomicUsize::new(0);
    let texts = ["river bank"; 40];
    let stop = || asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) >= 40;
    assert!(matches!(embedder.embed(&texts, &stop), Err(Error::Stopped { texts: 0, tokens: 0 })));
}

#[test]
fn who_stops_between_batches_is_told_what_was_computed() {
    let embedder = load(folder(&Synthetic::tiny(&WORDS, 3)).path()).unwrap();
    // A batch has 2,048 tokens at most.
    let texts = ["river bank"; 1_500];
    let each = embedder.embed(&texts[..1], &|| false).unwrap()[0].tokens as u64;
    let batch = 2_048 / each;
    for batches in [0, 1, 2] {
        let asked = std::sync::atomic::AtomicU64::new(0);
        let stop = || asked.fetch_add(1, std::sync::atomic::Ordering::Relaxed) >= batches;
        let tokenized = embedder.tokenize(&texts, &|| false).unwrap();
        let Err(Error::Stopped { texts, tokens }) = embedder.embed_tokenized(tokenized, &stop) else {
            panic!("it was told to stop")
        };
        assert_eq!((texts, tokens), (batches * batch, batches * batch * each));
    }
}

#[test]
fn what_texts_take_is_known_before_they_are_embedded() {
    let embedder = load(folder(&Synthetic::tiny(&WORDS, 3)).path()).unwrap();
    let texts = ["river bank", "boat", &"fish ".repeat(600)];
    let expected = embedder.embed(&texts, &|| false).unwrap();
    let tokens: usize = expected.iter().map(|vector| vector.tokens).sum();
    let mut tokenized = embedder.tokenize(&texts[..1], &|| false).unwrap();
    tokenized.append(embedder.tokenize(&texts[1..], &|| false).unwrap());
    assert_eq!(tokenized.tokens(), tokens as u64, "the last one is cut");
    assert_eq!(embedder.embed_tokenized(tokenized, &|| false).unwrap(), expected);
    assert!(matches!(embedder.tokenize(&texts, &|| true), Err(Error::Stopped { .. })));
}

#[test]
fn a_models_identity_is_that_of_its_files() {
    let model = Synthetic::tiny(&WORDS, 3);
    let revision = |model: &Synthetic| load(folder(model).path()).unwrap().revision();
    assert_eq!(revision(&model), revision(&model));
    assert_ne!(revision(&model), revision(&Synthetic { seed: 4, ..model.clone() }));
    assert_ne!(revision(&model), revision(&Synthetic { takes_first: true, ..model.clone() }));
}

/// Changes one file of a good folder and expects an error that names the file and the field.
fn refused(file: &str, change: impl Fn(&mut Value), parts: &[&str]) {
    let dir = folder(&Synthetic::tiny(&WORDS, 3));
    let path = dir.path().join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|_| "{}".into());
    let mut json: Value = serde_json::from_str(&text).unwrap();
    change(&mut json);
    std::fs::write(&path, json.to_string()).unwrap();
    let error = load(dir.path()).expect_err(file).to_string();
    for part in [file].iter().chain(parts) {
        assert!(error.contains(part), "{error:?} lacks {part:?}");
    }
}

#[test]
fn a_damaged_folder_is_refused_and_the_file_and_field_are_named() {
    let set = |field: &'static str, value: Value| move |json: &mut Value| json[field] = value.clone();
    let config = "config.json";
    refused(config, set("model_type", json!("t5")), &["model_type", "t5"]);
    refused(config, set("hidden_size", json!(0)), &["hidden_size"]);
    refused(config, set("hidden_size", json!("many")), &["hidden_size"]);
    refused(config, set("num_attention_heads", json!(5)), &["num_attention_heads", "divide"]);
    refused(config, set("hidden_act", json!("swish")), &["hidden_act", "swish"]);
    refused(config, set("layer_norm_eps", json!(null)), &["layer_norm_eps"]);
    refused(config, set("position_embedding_type", json!("relative_key")), &["position_embedding_type"]);
    refused("model.safetensors", |_| {}, &[]);
    refused("tokenizer.json", set("model", json!({})), &[]);
    refused("tokenizer.json", |json| json["model"]["vocab"]["extra"] = json!(9_999), &["vocab", "9999"]);
    let pooling = "1_Pooling/config.json";
    refused(pooling, set("word_embedding_dimension", json!(31)), &["word_embedding_dimension", "32"]);
    refused(pooling, set("pooling_mode_max_tokens", json!(true)), &["pooling_mode_max_tokens"]);
    refused(pooling, set("pooling_mode_cls_token", json!(true)), &["pooling_mode_cls_token"]);
    let dense = json!([{ "idx": 2, "type": "sentence_transformers.models.Dense" }]);
    refused("modules.json", move |json| *json = dense.clone(), &["Dense"]);
    refused("sentence_bert_config.json", set("max_seq_length", json!("long")), &["max_seq_length"]);
    let dir = folder(&Synthetic::tiny(&WORDS, 3));
    std::fs::write(dir.path().join("sentence_bert_config.json"), r#"{"max_seq_length":2}"#).unwrap();
    assert!(load(dir.path()).unwrap_err().to_string().contains("2 positions"), "no room for a text");
}

#[test]
fn weights_that_do_not_fit_or_are_no_numbers_are_refused() {
    let model = Synthetic::tiny(&WORDS, 3);
    let check = |config: &Synthetic, part: &str| {
        let dir = folder(&model);
        let other = folder(config);
        let weights = "model.safetensors";
        std::fs::copy(other.path().join(weights), dir.path().join(weights)).unwrap();
        let error = load(dir.path()).unwrap_err().to_string();
        assert!(error.contains(weights) && error.contains(part), "{error}");
    };
    check(&Synthetic { layers: 1, ..model.clone() }, "encoder.layer.1");
    check(&Synthetic { intermediate: 40, ..model.clone() }, "shape");
    let dir = folder(&model);
    let path = dir.path().join("model.safetensors");
    let mut bytes = std::fs::read(&path).unwrap();
    let whole = bytes.len();
    bytes[whole - 4_096..].fill(0xff);
    std::fs::write(&path, &bytes).unwrap();
    assert!(load(dir.path()).unwrap_err().to_string().contains("no usable vector"));
    for length in [0, 7, 100, whole / 2, whole - 1] {
        std::fs::write(&path, &bytes[..length]).unwrap();
        assert!(load(dir.path()).unwrap_err().to_string().contains("model.safetensors"), "{length}");
    }
    std::fs::remove_file(&path).unwrap();
    assert!(load(dir.path()).unwrap_err().to_string().contains("model.safetensors"));
}
