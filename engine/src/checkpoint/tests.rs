//! What checkpoints promise: what is written is read back, and what is broken is refused by name.

use std::borrow::Cow;
use std::path::Path;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::config::{Alibi, Family, ModelConfig, Position, Residual, RopeScaling};
use super::generation::read_generation;
use super::shapes::{check_tensors, parameters};
use super::weights::MapWeights;
use super::*;

const FAMILIES: [Family; 9] = Family::ALL;

/// Every family, and the variants within families.
fn variants() -> Vec<Synthetic> {
    let mut all: Vec<Synthetic> = FAMILIES.iter().map(|family| Synthetic::tiny(*family, 1)).collect();
    let mut vary = |family, change: fn(&mut ModelConfig)| {
        let mut synthetic = Synthetic::tiny(family, 2);
        change(&mut synthetic.config);
        all.push(synthetic);
    };
    vary(Family::Llama, |config| {
        config.position = Position::Rotary { theta: 5e5, scaling: RopeScaling::Linear { factor: 4.0 } };
    });
    vary(Family::Llama, |config| {
        let scaling = RopeScaling::Llama3 {
            factor: 8.0,
            low_freq_factor: 1.0,
            high_freq_factor: 4.0,
            original_context: 64,
        };
        config.position = Position::Rotary { theta: 5e5, scaling };
        (config.qkv_bias, config.out_bias, config.mlp_bias, config.tied_head) = (true, true, true, true);
    });
    vary(Family::Mistral, |config| (config.sliding_window, config.head_dim) = (Some(64), 24));
    vary(Family::Qwen2, |config| config.sliding_window = Some(32));
    vary(Family::Qwen3, |config| (config.qkv_bias, config.out_bias) = (true, true));
    vary(Family::Opt, |config| (config.norm_first, config.final_norm, config.embedding) = (false, false, 16));
    vary(Family::Opt, |config| (config.final_norm, config.tied_head) = (false, false));
    vary(Family::Mpt, |config| (config.qkv_clip, config.score_scale) = (Some(6.0), Some(0.25)));
    vary(Family::Falcon, |config| {
        (config.kv_heads, config.residual) = (2, Residual::Parallel { shares_norm: false });
    });
    vary(Family::Falcon, |config| {
        (config.kv_heads, config.residual) = (2, Residual::Parallel { shares_norm: true });
        (config.qkv_bias, config.out_bias, config.mlp_bias, config.tied_head) = (true, true, true, false);
    });
    vary(Family::Falcon, |config| {
        (config.kv_heads, config.residual) = (config.heads, Residual::Sequential);
        // Four heads: 2^-2, 2^-4, 2^-6 and 2^-8, over the root of 8.
        let slopes = vec![0.25, 0.0625, 0.015_625, 0.003_906_25];
        config.position = Position::Alibi(Alibi { slopes, scale: 1.0 / 8f32.sqrt(), is_rounded: true });
    });
    vary(Family::Gemma3, |config| {
        config.position = Position::Rotary { theta: 1e6, scaling: RopeScaling::Linear { factor: 8.0 } };
    });
    vary(Family::Opt, |config| (config.qkv_bias, config.out_bias, config.mlp_bias) = (false, false, false));
    all
}

/// A folder with this checkpoint.
fn written(synthetic: &Synthetic) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    synthetic.write(folder.path()).expect("a new folder can be written");
    folder
}

fn tiny_config(changes: &Value) -> String {
    let mut config: Value =
        serde_json::from_str(&Synthetic::tiny(Family::Llama, 1).config_json()).expect("it is JSON");
    for (field, value) in changes.as_object().expect("changes are an object") {
        config[field] = value.clone();
    }
    config.to_string()
}

#[test]
fn what_is_written_is_read_back_in_every_family() {
    for synthetic in variants() {
        assert_eq!(read_config(&synthetic.config_json()).expect("a valid config"), synthetic.config);
        for (dtype, shards) in [(Dtype::F32, 1), (Dtype::F16, 3), (Dtype::Bf16, 2)] {
            let synthetic = Synthetic { dtype, shards, ..synthetic.clone() };
            let folder = written(&synthetic);
            let read = Safetensors::open(folder.path()).expect("valid weights");
            let read = Unfused::new(read, &synthetic.config);
            let made = synthetic.weights();
            check_tensors(&synthetic.config, &read).expect("all tensors in their shapes");
            assert_eq!(read.names(), made.names());
            for name in made.names() {
                assert_eq!(read.tensor(&name).expect("read"), made.tensor(&name).expect("made"));
            }
        }
    }
}

#[test]
fn the_same_seed_makes_the_same_bytes_and_another_seed_others() {
    let bytes = |seed| Synthetic::tiny(Family::Qwen3, seed).weight_bytes().expect("bytes");
    assert_eq!(bytes(5), bytes(5));
    assert_ne!(bytes(5), bytes(6));
}

#[test]
fn bytes_in_memory_read_like_a_file_and_the_format_is_the_published_one() {
    let synthetic = Synthetic::tiny(Family::Llama, 3);
    let bytes = synthetic.weight_bytes().expect("bytes");
    let independent =
        ::safetensors::SafeTensors::deserialize(&bytes).expect("the format's own reader takes it");
    let read = Safetensors::from_bytes("weights", Cow::Owned(bytes.clone())).expect("valid");
    for name in read.names() {
        assert_eq!(read.tensor(&name).expect("ours").data, independent.tensor(&name).expect("theirs").data());
    }
}

#[test]
fn parameters_of_a_known_model_are_its_published_number() {
    // Gemma 3 270M: 268,098,176; the text model of its 4B: 3,880,263,168. Falcon 7B: 6,921,720,704. MPT 7B:
    // 6,649,286,656.
    for (config, expected) in [
        (
            json!({
                "architectures": ["Gemma3ForCausalLM"], "hidden_size": 640, "intermediate_size": 2048,
                "num_hidden_layers": 18, "num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 256,
                "vocab_size": 262_144,
            }),
            268_098_176,
        ),
        (
            json!({
                "architectures": ["Gemma3ForConditionalGeneration"], "vision_config": {},
                "text_config": {
                    "hidden_size": 2560, "intermediate_size": 10_240, "num_hidden_layers": 34,
                    "rope_scaling": { "factor": 8.0, "rope_type": "linear" }, "sliding_window": 1024,
                },
            }),
            3_880_263_168,
        ),
        (
            json!({
                "architectures": ["FalconForCausalLM"], "hidden_size": 4544, "num_hidden_layers": 32,
                "num_attention_heads": 71, "vocab_size": 65_024,
            }),
            6_921_720_704,
        ),
        (
            json!({
                "architectures": ["MPTForCausalLM"], "d_model": 4096, "n_layers": 32, "n_heads": 32,
                "vocab_size": 50_432,
            }),
            6_649_286_656_u64,
        ),
    ] {
        assert_eq!(parameters(&read_config(&config.to_string()).expect("valid")), expected, "{config}");
    }
    // Qwen2.5-0.5B: 494,032,768 parameters.
    let config = json!({
        "architectures": ["Qwen2ForCausalLM"], "hidden_size": 896, "intermediate_size": 4864, "vocab_size": 151_936,
        "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2, "tie_word_embeddings": true,
    });
    assert_eq!(parameters(&read_config(&config.to_string()).expect("valid")), 494_032_768);
}

#[test]
fn new_rope_parameters_read_like_the_old_fields() {
    let old = tiny_config(&json!({ "rope_theta": 1e6, "rope_scaling": { "type": "linear", "factor": 2.0 } }));
    let parameters = json!({ "rope_type": "linear", "rope_theta": 1e6, "factor": 2.0 });
    let mut new: Value = serde_json::from_str(&old).expect("JSON");
    let fields = new.as_object_mut().expect("an object");
    fields.remove("rope_theta");
    fields.remove("rope_scaling");
    fields.insert("rope_parameters".to_owned(), parameters);
    assert_eq!(read_config(&new.to_string()).expect("new"), read_config(&old).expect("old"));
}

#[test]
fn an_unsupported_config_is_refused_by_field() {
    for (changes, field) in [
        (json!({ "architectures": ["MixtralForCausalLM"] }), "architectures"),
        (json!({ "architectures": null, "model_type": "gpt2" }), "architectures"),
        (json!({ "hidden_act": "gelu" }), "hidden_act"),
        (json!({ "quantization_config": { "bits": 4 } }), "quantization_config.quant_method"),
        (json!({ "quantization_config": 4 }), "quantization_config"),
        (json!({ "num_local_experts": 8 }), "num_local_experts"),
        (json!({ "rope_scaling": { "rope_type": "yarn", "factor": 4.0 } }), "rope_scaling.rope_type"),
        (json!({ "rope_scaling": { "type": "dynamic", "factor": 4.0 } }), "rope_scaling.rope_type"),
        (json!({ "rope_scaling": { "type": "linear" } }), "rope_scaling.factor"),
        (json!({ "rope_scaling": 3 }), "rope_scaling"),
        (json!({ "hidden_size": 0 }), "hidden_size"),
        (json!({ "hidden_size": "32" }), "hidden_size"),
        (json!({ "vocab_size": null }), "vocab_size"),
        (json!({ "num_key_value_heads": 3 }), "num_key_value_heads"),
        (json!({ "head_dim": 7 }), "head_dim"),
        (json!({ "head_dim": null, "num_attention_heads": 5 }), "num_attention_heads"),
        (json!({ "rms_norm_eps": -1 }), "rms_norm_eps"),
        (json!({ "tie_word_embeddings": "yes" }), "tie_word_embeddings"),
        (json!({ "layer_types": ["full_attention", "sliding_attention"] }), "layer_types"),
        (
            json!({ "architectures": ["OPTForCausalLM"], "activation_function": "gelu" }),
            "activation_function",
        ),
    ] {
        let error = read_config(&tiny_config(&changes)).expect_err("it must be refused").to_string();
        assert!(error.starts_with(&format!("config.json: field `{field}`: ")), "{changes}: {error}");
    }
    let refused = |config: Value, reason: &str| {
        let error = read_config(&config.to_string()).expect_err("it must be refused").to_string();
        assert_eq!(error, format!("config.json: field {reason}"));
    };
    let with = |family: Family, changes: Value| {
        let mut config: Value =
            serde_json::from_str(&Synthetic::tiny(family, 1).config_json()).expect("JSON");
        for (field, value) in changes.as_object().expect("changes are an object") {
            config[field] = value.clone();
        }
        config
    };
    for (family, changes, reason) in [
        (Family::Llama, json!({ "text_config": {} }), "`text_config`: is not supported by this engine"),
        (Family::Gemma3, json!({ "text_config": [] }), "`text_config`: must be an object"),
        (Family::Gemma3, json!({ "text_config": {} }), "`text_config.num_hidden_layers`: is missing"),
        (Family::Mpt, json!({ "no_bias": false }), "`no_bias`: false is not supported, only true"),
        (Family::Mpt, json!({ "logit_scale": 0.5 }), "`logit_scale`: is not supported by this engine"),
        (
            Family::Mpt,
            json!({ "attn_config": { "alibi": false } }),
            "`attn_config.alibi`: false is not supported, only true",
        ),
        (
            Family::Mpt,
            json!({ "attn_config": { "qk_ln": true } }),
            "`attn_config.qk_ln`: true is not supported, only false",
        ),
        (
            Family::Mpt,
            json!({ "attn_config": { "attn_type": "grouped_query_attention" } }),
            "`attn_config.attn_type`: \"grouped_query_attention\" is not supported, only \"multihead_attention\"",
        ),
        (Family::Mpt, json!({ "n_heads": 5 }), "`n_heads`: must divide d_model (32), found 5"),
        (
            Family::Falcon,
            json!({ "new_decoder_architecture": true, "num_kv_heads": 3 }),
            "`num_kv_heads`: must divide num_attention_heads (4), found 3",
        ),
        (
            Family::Falcon,
            json!({ "new_decoder_architecture": true, "parallel_attn": false }),
            "`parallel_attn`: false is not supported beside `new_decoder_architecture`",
        ),
        (
            Family::Falcon,
            json!({ "multi_query": false, "num_kv_heads": 2 }),
            "`num_kv_heads`: is 2; only 4, one for each query, is supported here",
        ),
        (
            Family::Falcon,
            json!({ "activation": "relu" }),
            "`activation`: \"relu\" is not supported, only \"gelu\"",
        ),
        (
            Family::Gemma3,
            json!({ "layer_types": ["full_attention"] }),
            "`layer_types`: must be a list of 3 kinds, one for each layer",
        ),
        (
            Family::Gemma3,
            json!({ "hidden_activation": "gelu" }),
            "`hidden_activation`: \"gelu\" is not supported, only \"gelu_pytorch_tanh\"",
        ),
        (
            Family::Gemma3,
            json!({ "rope_scaling": { "rope_type": "yarn" } }),
            "`rope_scaling.rope_type`: `yarn` is not supported",
        ),
    ] {
        refused(with(family, changes), reason);
    }
    for text in ["", "[]", "{", "null", "\u{0}"] {
        let error = read_config(text).expect_err("no object").to_string();
        assert!(error.starts_with("config.json: "), "{error}");
    }
}

#[test]
fn end_tokens_are_the_union_of_what_the_files_name() {
    let config = r#"{"eos_token_id": 7, "bos_token_id": 1}"#;
    let generation = r#"{"eos_token_id": [9, 7], "temperature": 0.6, "top_p": 0.9, "top_k": 0}"#;
    let (defaults, ids) = read_generation(config, Some(generation)).expect("valid");
    assert_eq!((ids.ends, ids.begin), (vec![7, 9], Some(1)));
    assert_eq!((defaults.temperature, defaults.top_p, defaults.top_k), (Some(0.6), Some(0.9), None));
    let (defaults, ids) =
        read_generation("{}", Some(r#"{"do_sample": false, "top_p": 0.5}"#)).expect("valid");
    assert_eq!((ids.ends, defaults.temperature, defaults.top_p), (vec![], Some(0.0), None));
    let error = read_generation("{}", Some(r#"{"eos_token_id": "x"}"#)).expect_err("refused").to_string();
    assert!(error.starts_with("generation_config.json: field `eos_token_id`"), "{error}");
}

#[test]
fn a_missing_or_misshapen_tensor_is_named() {
    let synthetic = Synthetic::tiny(Family::Llama, 1);
    let mut weights = synthetic.weights();
    weights.insert("model.norm.weight", Dtype::F32, &[4], &[0.0; 4]);
    let error = check_tensors(&synthetic.config, &weights).expect_err("refused").to_string();
    assert_eq!(error, "tensor `model.norm.weight` has shape [4], the configuration asks for [32]");
    let mut weights = synthetic.weights();
    assert!(weights.remove("lm_head.weight"));
    let error = check_tensors(&synthetic.config, &weights).expect_err("refused").to_string();
    assert_eq!(error, "the weights have no tensor `lm_head.weight`");
}

#[test]
fn weights_saved_from_the_inner_model_are_found_without_its_prefix() {
    let mut weights = MapWeights::default();
    weights.insert("decoder.final_layer_norm.weight", Dtype::F32, &[1], &[2.0]);
    let tensor = weights.tensor("decoder.final_layer_norm.weight").expect("inserted");
    let view = ::safetensors::tensor::TensorView::new(::safetensors::Dtype::F32, vec![1], &tensor.data)
        .expect("view");
    let bytes = ::safetensors::serialize([("decoder.final_layer_norm.weight", view)], None).expect("bytes");
    let read = Safetensors::from_bytes("weights", Cow::Owned(bytes)).expect("valid");
    assert_eq!(read.tensor("model.decoder.final_layer_norm.weight").expect("found").to_f32(), [2.0]);
}

#[test]
fn a_truncated_file_is_refused_wherever_it_is_cut() {
    let folder = written(&Synthetic::tiny(Family::Llama, 1));
    let path = folder.path().join("model.safetensors");
    let whole = std::fs::read(&path).expect("it was written");
    for length in [0, 5, 8, 100, whole.len() / 2, whole.len() - 1] {
        std::fs::remove_file(&path).expect("it is there");
        std::fs::write(&path, &whole[..length]).expect("it can be written");
        let error = Safetensors::open(folder.path()).expect_err("refused").to_string();
        assert!(error.starts_with("model.safetensors: ") && error.contains("truncated"), "{length}: {error}");
    }
    std::fs::remove_file(&path).expect("it is there");
    let error = Safetensors::open(folder.path()).expect_err("refused").to_string();
    assert!(error.contains("model.safetensors"), "{error}");
}

/// Rewrites the index of a sharded folder and gives the error of opening it.
fn error_with_index(folder: &Path, change: impl Fn(&mut Value)) -> String {
    let path = folder.join("model.safetensors.index.json");
    let mut index = serde_json::from_slice(&std::fs::read(&path).expect("an index")).expect("JSON");
    change(&mut index);
    std::fs::write(&path, index.to_string()).expect("it can be written");
    Safetensors::open(folder).expect_err("refused").to_string()
}

#[test]
fn an_index_cannot_lead_out_of_the_folder_or_promise_what_is_not_there() {
    let sharded = Synthetic { shards: 2, ..Synthetic::tiny(Family::Llama, 1) };
    for path in ["../other.safetensors", "/etc/hostname", "a/b.safetensors", ".", "..", "", "./x"] {
        let error = error_with_index(written(&sharded).path(), |index| {
            index["weight_map"]["lm_head.weight"] = json!(path);
        });
        assert!(error.contains("must be the name of a file in the same folder"), "{path}: {error}");
    }
    let error = error_with_index(written(&sharded).path(), |index| {
        index["weight_map"]["ghost"] = json!("model-00001-of-00002.safetensors");
    });
    assert!(error.contains("has no tensor `ghost`"), "{error}");
    let error = error_with_index(written(&sharded).path(), |index| {
        index["weight_map"]["lm_head.weight"] = json!("absent.safetensors");
    });
    assert!(error.contains("absent.safetensors"), "{error}");
}

#[test]
fn a_header_with_wrong_numbers_is_refused_and_named() {
    let file = |header: &str, data: usize| {
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.as_bytes());
        bytes.resize(bytes.len() + data, 0);
        Safetensors::from_bytes("weights", Cow::Owned(bytes)).and_then(|read| read.tensor("a").map(|_| ()))
    };
    file(r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}"#, 8).expect("this one is right");
    for (header, reason) in [
        (r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,9]}}"#, "truncated"),
        (r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}}"#, "damaged"),
        (r#"{"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}}"#, "do not fill"),
        (r#"{"a":{"dtype":"I8","shape":[8],"data_offsets":[0,8]}}"#, "I8 is not supported"),
        (r#"{"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,8]}}"#, "do not fill"),
        (r#"{"a":{"dtype":"F32","shape":[2]}}"#, "data_offsets"),
        (r#"["a"]"#, "no JSON object"),
    ] {
        let error = file(header, 8).expect_err("refused").to_string();
        assert!(error.starts_with("weights: ") && error.contains(reason), "{header}: {error}");
    }
}

proptest! {
    #[test]
    fn no_bytes_make_the_readers_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), header in "[{}\\[\\]\",:a-zA-Z0-9_]{0,80}") {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let _ = read_config(&text);
        let _ = read_config(&header);
        let _ = read_generation(&text, Some(&header));
        let _ = Safetensors::from_bytes("weights", Cow::Owned(bytes.clone()));
        let mut framed = (header.len() as u64).to_le_bytes().to_vec();
        framed.extend(header.as_bytes());
        framed.extend(&bytes);
        let _ = Safetensors::from_bytes("weights", Cow::Owned(framed));
    }

    #[test]
    fn a_damaged_file_is_refused_or_read_but_never_panics(at in 0usize..4_000, byte in any::<u8>(), cut in 0usize..8_000) {
        let mut bytes = Synthetic::tiny(Family::Llama, 1).weight_bytes().expect("bytes");
        bytes[at] = byte;
        bytes.truncate(bytes.len() - cut);
        if let Ok(read) = Safetensors::from_bytes("weights", Cow::Owned(bytes)) {
            for name in read.names() {
                let _ = read.tensor(&name).map(|tensor| tensor.to_f32());
            }
        }
    }

    #[test]
    fn a_config_with_any_field_replaced_never_panics(field in 0usize..24, value in prop_oneof![
        Just(json!(null)), Just(json!([])), Just(json!({})), any::<u64>().prop_map(|n| json!(n)), any::<f64>().prop_map(|n| json!(n)),
        "[a-z]{0,6}".prop_map(|s| json!(s)), any::<bool>().prop_map(|b| json!(b)),
    ]) {
        for family in FAMILIES {
            let mut config: Value = serde_json::from_str(&Synthetic::tiny(family, 1).config_json()).expect("JSON");
            let fields = config.as_object_mut().expect("an object");
            let name = fields.keys().nth(field % fields.len()).expect("in range").clone();
            fields.insert(name, value.clone());
            let _ = read_config(&config.to_string());
        }
    }
}
