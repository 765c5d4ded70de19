//! Metadata that is not what a model needs is refused by its key.

use std::borrow::Cow;

use super::write::GgufWriter;
use super::*;
use crate::checkpoint::config::Family;
use crate::checkpoint::generation::GenerationDefaults;
use crate::checkpoint::ggml::BlockFormat;
use crate::checkpoint::synthetic::Synthetic;
use crate::checkpoint_reader::Checkpoint;

/// A writer of a small model whose file is valid.
fn writer(family: Family) -> GgufWriter {
    Synthetic::tiny(family, 1).gguf(BlockFormat::F32).expect("the weights are complete")
}

/// Why a file is refused whose metadata has `change` in it.
fn error(change: impl Fn(&mut GgufWriter)) -> String {
    let mut writer = writer(Family::Llama);
    change(&mut writer);
    let gguf = Gguf::from_bytes("x.gguf", Cow::Owned(writer.finish())).expect("a well-formed file");
    Checkpoint::gguf("x", gguf, None).expect_err("refused").to_string()
}

/// A value of the metadata instead of another, or instead of none.
fn put(key: &'static str, value: MetaValue) -> impl Fn(&mut GgufWriter) {
    move |writer| {
        writer.remove(key);
        match &value {
            MetaValue::Unsigned(number) => writer.unsigned(key, *number as u32),
            MetaValue::Float(number) => writer.float(key, *number as f32),
            MetaValue::Flag(flag) => writer.flag(key, *flag),
            MetaValue::Text(text) => writer.text(key, text),
            other => panic!("{other:?} is not written here"),
        }
    }
}

#[test]
fn what_a_model_needs_and_a_file_lacks_is_named() {
    for key in [
        "general.architecture",
        "llama.embedding_length",
        "llama.block_count",
        "llama.attention.head_count",
        "llama.feed_forward_length",
        "llama.attention.layer_norm_rms_epsilon",
        "llama.context_length",
        "tokenizer.ggml.model",
        "tokenizer.ggml.pre",
        "tokenizer.ggml.tokens",
        "tokenizer.ggml.merges",
    ] {
        let found = error(|writer| writer.remove(key));
        assert!(found.starts_with(&format!("x.gguf: field `{key}`: is missing")), "{found}");
    }
}

#[test]
fn what_changes_the_arithmetic_and_is_not_known_is_named_with_its_limit() {
    use MetaValue::{Flag, Float, Text, Unsigned};
    for (key, value, reason) in [
        (
            "general.architecture",
            Text("phi3".into()),
            "`phi3` is not supported; known are llama, qwen2, qwen3, gemma2, gemma3, falcon, mpt",
        ),
        ("llama.expert_count", Unsigned(8), "is not supported by this engine"),
        ("llama.attention.scale", Float(0.5), "is not supported by this engine"),
        ("llama.attention.head_count_kv", Unsigned(3), "must divide attention.head_count (4), found 3"),
        ("llama.attention.head_count", Text("4".into()), "must be a whole number, not below zero"),
        ("llama.embedding_length", Unsigned(1 << 30), "must be from 1 to 16777216, found 1073741824"),
        ("llama.attention.key_length", Unsigned(7), "must be even to be rotated, found 7"),
        ("llama.rope.dimension_count", Unsigned(4), "is 4; only the width of a head, 8, is supported"),
        ("llama.rope.scaling.type", Text("yarn".into()), "`yarn` is not supported"),
        ("llama.rope.freq_base", Float(-1.0), "must be a positive number"),
        (
            "split.count",
            Unsigned(2),
            "the model is split over several files, which is not supported: merge them",
        ),
        ("tokenizer.ggml.model", Text("t5".into()), "`t5` is not supported; known are gpt2 and llama"),
        (
            "tokenizer.ggml.pre",
            Text("viking".into()),
            "`viking` is not supported; known are gpt-2, smollm, qwen2, llama-bpe, smaug-bpe, mpt and falcon",
        ),
        ("tokenizer.ggml.eos_token_id", Unsigned(5_000), "5000 is no token: there are 320"),
        ("tokenizer.ggml.add_bos_token", Text("yes".into()), "must be true or false"),
        ("tokenizer.chat_template", Flag(true), "must be a string"),
    ] {
        assert_eq!(error(put(key, value)), format!("x.gguf: field `{key}`: {reason}"));
    }
    let of = |family: Family, key: &str, reason: &str| {
        let mut writer = writer(family);
        writer.remove(key);
        let gguf = Gguf::from_bytes("x.gguf", Cow::Owned(writer.finish())).expect("a well-formed file");
        let found = Checkpoint::gguf("x", gguf, None).expect_err("refused").to_string();
        assert_eq!(found, format!("x.gguf: field `{key}`: {reason}"));
    };
    of(Family::Falcon, "falcon.attention.layer_norm_epsilon", "is missing");
    of(Family::Mpt, "mpt.attention.max_alibi_bias", "is missing or 0: MPT without ALiBi is not supported");
}

#[test]
fn gemma_2_has_its_makers_numbers_where_a_file_leaves_them_out() {
    let mut writer = writer(Family::Gemma2);
    for part in ["attn_logit_softcapping", "final_logit_softcapping", "attention.sliding_window"] {
        writer.remove(&format!("gemma2.{part}"));
    }
    writer.remove("gemma2.context_length");
    writer.unsigned("gemma2.context_length", 8_192);
    let gguf = Gguf::from_bytes("x.gguf", Cow::Owned(writer.finish())).expect("a well-formed file");
    let config = read_config(&gguf).expect("a known shape");
    assert_eq!((config.score_cap, config.logit_cap), (Some(50.0), Some(30.0)));
    assert_eq!(config.sliding_window, Some(4_096));
}

#[test]
fn lists_of_a_vocabulary_agree_with_each_other() {
    let list = |key: &'static str, change: fn(&mut GgufWriter, &str)| {
        error(move |writer| {
            writer.remove(key);
            change(writer, key);
        })
    };
    for (found, expected) in [
        (list("tokenizer.ggml.token_type", |w, key| w.integers(key, &[1, 1])), "has 2 values for 320 tokens"),
        (list("tokenizer.ggml.token_type", |w, key| w.integers(key, &[9; 320])), "9 is no type of a token"),
        (
            list("tokenizer.ggml.merges", |w, key| w.texts(key, &["a zzz".to_owned()])),
            "`a zzz` does not merge two tokens to a third",
        ),
        (
            list("tokenizer.ggml.tokens", |w, key| w.texts(key, &vec!["a".to_owned(); 321])),
            "has 321 tokens, the model has 320 embeddings",
        ),
    ] {
        assert!(found.ends_with(expected), "{found}");
    }
}

#[test]
fn a_tensor_that_would_go_unnoticed_is_refused() {
    let found =
        error(|writer| writer.tensor("blk.0.attn_sub_norm.weight", &[4], BlockFormat::F32, &[0.0; 4]));
    assert_eq!(
        found,
        "x.gguf: field `blk.0.attn_sub_norm.weight`: is a tensor that this engine does not know"
    );
    let mut beside = writer(Family::Qwen2);
    beside.tensor("v.patch_embd.weight", &[4], BlockFormat::F32, &[0.0; 4]);
    let gguf = Gguf::from_bytes("x.gguf", Cow::Owned(beside.finish())).expect("a well-formed file");
    Checkpoint::gguf("x", gguf, None).expect("what stands beside the model is not its own");
}

#[test]
fn sampling_defaults_are_read_where_the_file_has_them() {
    let defaults = |change: &dyn Fn(&mut GgufWriter)| {
        let mut writer = GgufWriter::default();
        change(&mut writer);
        let gguf = Gguf::from_bytes("x.gguf", Cow::Owned(writer.finish())).expect("a well-formed file");
        read_defaults(&gguf)
    };
    assert_eq!(defaults(&|_| ()).expect("none"), GenerationDefaults::default());
    let found = defaults(&|writer| {
        writer.float("general.sampling.temp", 0.7);
        writer.float("general.sampling.top_p", 0.8);
        writer.unsigned("general.sampling.top_k", 20);
    });
    let expected = GenerationDefaults { temperature: Some(0.7), top_p: Some(0.8), top_k: Some(20) };
    assert_eq!(found.expect("valid"), expected);
    let greedy = defaults(&|writer| writer.float("general.sampling.temp", 0.0)).expect("valid");
    assert_eq!(greedy.temperature, Some(0.0));
    let error =
        defaults(&|writer| writer.text("general.sampling.temp", "hot")).expect_err("refused").to_string();
    assert_eq!(error, "x.gguf: field `general.sampling.temp`: must be a positive number");
}
