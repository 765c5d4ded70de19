//! Whole checkpoints loaded and run.

use std::borrow::Cow;

use base::{
    BatchPlan, BlockId, Executor as _, Generation, Moves, RequestId, SampleSpec, Slot, StepId, TokenId,
    Tokenizer as _,
};

use super::*;
use crate::checkpoint::ggml::BlockFormat;
use crate::checkpoint::{Synthetic, synthetic_text};
use crate::device::Isa;
use crate::settings::Keep;

const FAMILIES: [Family; 9] = Family::ALL;

fn small() -> EngineConfig {
    EngineConfig { threads: Some(1), kv_bytes: Some(Bytes(1 << 20)), ..EngineConfig::default() }
}

fn written(synthetic: &Synthetic) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    synthetic.write(folder.path()).expect("it can be written");
    folder
}

/// The token a model gives after `prompt`, greedily.
fn next_token(engine: &mut Engine, prompt: &str) -> TokenId {
    let input = engine.text.encode_data(prompt);
    let blocks = input.len().div_ceil(engine.info.block_tokens as usize) as u32;
    let sample = SampleSpec {
        generation: Arc::new(Generation::default()),
        seed: 0,
        output_index: 0,
        already_generated: Vec::new(),
        prompt: None,
    };
    let slot = Slot {
        request: RequestId(1),
        start: 0,
        input,
        guesses: 0,
        prompt_targets: None,
        context: Vec::new(),
        write_blocks: (0..blocks).map(BlockId).collect(),
        write_offset: 0,
        sample: Some(sample),
        is_prefill: true,
    };
    let plan = BatchPlan { step: StepId(1), moves: Moves::default(), slots: vec![slot], retired: Vec::new() };
    let outcome = engine.executor.step(&plan).expect("the step runs");
    outcome.rows[0].result.as_ref().expect("the row is well").tokens[0]
}

#[test]
fn every_family_loads_from_a_folder_and_from_memory_and_answers_alike() {
    for family in FAMILIES {
        let synthetic = Synthetic { dtype: Dtype::Bf16, ..Synthetic::tiny(family, 7) };
        let folder = written(&synthetic);
        let mut from_folder = load_dir(folder.path(), &small(), &Arc::default()).expect("a valid folder");
        let files = ModelFiles {
            name: "embedded",
            config: &synthetic.config_json(),
            tokenizer: &synthetic_text::tokenizer_json(),
            tokenizer_config: Some(&synthetic_text::tokenizer_config_json()),
            generation_config: Some(&synthetic.generation_json()),
            chat_template: None,
            weights: Cow::Owned(synthetic.weight_bytes().expect("bytes")),
        };
        let mut from_memory = load_bytes(files, &small(), &Arc::default()).expect("valid files");
        let info = &from_folder.info;
        assert_eq!((info.family, info.dtype, info.context_max), (family, Dtype::Bf16, TokenCount(256)));
        assert_eq!(info.revision, from_memory.info.revision);
        assert_eq!(from_memory.info.name, "embedded");
        assert!(from_folder.text.has_chat_template());
        let prompt = "the thing and the other thing";
        assert_eq!(next_token(&mut from_folder, prompt), next_token(&mut from_memory, prompt));
    }
}

#[test]
fn the_pool_is_no_larger_than_its_requests_could_fill() {
    let folder = written(&Synthetic::tiny(Family::Qwen3, 1));
    let blocks = |config: &EngineConfig| {
        load_dir(folder.path(), config, &Arc::default()).expect("valid").info.kv_blocks
    };
    let two = EngineConfig { kv_bytes: Some(Bytes(1 << 24)), sequences_max: 2, ..small() };
    let two = blocks(&two);
    assert!((32..=33).contains(&two), "two requests of 256 tokens are 32 blocks of 16, found {two}");
    assert!(blocks(&EngineConfig { kv_bytes: Some(Bytes(1 << 17)), ..small() }) < blocks(&small()));
}

#[test]
fn another_weight_type_is_another_revision() {
    let folder = written(&Synthetic::tiny(Family::Llama, 1));
    let load = |dtype| {
        load_dir(folder.path(), &EngineConfig { dtype, ..small() }, &Arc::default()).expect("valid").info
    };
    let (stored, same, rounded) = (load(None), load(Some(Dtype::F32)), load(Some(Dtype::Bf16)));
    assert_eq!((stored.dtype, stored.revision), (same.dtype, same.revision));
    assert_eq!(rounded.dtype, Dtype::Bf16);
    assert_ne!(rounded.revision, stored.revision);
}

#[test]
fn keys_and_values_follow_the_weights_unless_told_and_their_type_is_of_the_revision() {
    let synthetic = Synthetic { dtype: Dtype::Bf16, ..Synthetic::tiny(Family::Llama, 1) };
    let folder = written(&synthetic);
    let load = |keep: Keep| {
        let config = EngineConfig { dtype: keep.dtype, quantize: keep.quantize, kv: keep.kv, ..small() };
        load_dir(folder.path(), &config, &Arc::default()).expect("valid").info
    };
    let told = |kv| load(Keep { kv: Some(kv), ..Keep::default() });
    let (stored, bf16, single) = (load(Keep::default()), told(KvFormat::Bf16), told(KvFormat::F32));
    assert_eq!((stored.kv, single.kv), (KvFormat::Bf16, KvFormat::F32));
    assert_eq!(stored.revision, bf16.revision);
    let q8 = told(KvFormat::Q8);
    assert_eq!(q8.kv, KvFormat::Q8);
    assert!(
        stored.revision != single.revision
            && q8.revision != stored.revision
            && q8.revision != single.revision
    );
    assert_eq!(load(Keep { dtype: Some(Dtype::F32), ..Keep::default() }).kv, KvFormat::F32);
    let quantize = Some(Quantize::Q8);
    assert_eq!(load(Keep { dtype: Some(Dtype::F32), quantize, kv: None }).kv, KvFormat::Bf16);
}

#[test]
fn weights_in_eight_bits_take_little_more_than_half_of_bf16_and_are_another_revision() {
    let mut synthetic = Synthetic { dtype: Dtype::Bf16, ..Synthetic::tiny(Family::Llama, 1) };
    let config = &mut synthetic.config; // of extents that fill panels, and wide groups
    (config.hidden, config.embedding, config.intermediate, config.head_dim) = (64, 64, 256, 16);
    let folder = written(&synthetic);
    let load = |quantize| {
        load_dir(folder.path(), &EngineConfig { quantize, ..small() }, &Arc::default()).expect("valid")
    };
    let (stored, q8, wide) = (load(None), load(Some(Quantize::Q8)), load(Some(Quantize::Q8Wide)));
    assert_eq!([&stored, &q8, &wide].map(|engine| engine.info.kept_as()), ["bf16", "q8", "q8-wide"]);
    let revision = |engine: &Engine| engine.info.revision;
    assert!(revision(&stored) != revision(&q8) && revision(&stored) != revision(&wide));
    assert_ne!(revision(&q8), revision(&wide));
    let bytes = |engine: &Engine| engine.executor.model().step_bytes() as f64;
    assert!(bytes(&wide) < bytes(&q8), "wider groups have fewer scales");
    for engine in [q8, wide] {
        let share = bytes(&engine) / bytes(&stored);
        assert!((0.5..0.6).contains(&share), "{}: {share}", engine.info.kept_as());
    }
}

#[test]
fn kernels_that_round_activations_are_another_revision_and_missing_ones_are_refused() {
    let synthetic = Synthetic { dtype: Dtype::Bf16, ..Synthetic::tiny(Family::Llama, 1) };
    let folder = written(&synthetic);
    let load = |isa| load_dir(folder.path(), &EngineConfig { isa: Some(isa), ..small() }, &Arc::default());
    let portable = load(Isa::Portable).expect("every machine has it").info.revision;
    for isa in Isa::ALL {
        match load(isa) {
            Ok(engine) => {
                assert!(isa.is_available() && engine.executor.model().cpu().isa() == isa);
                let rounds = isa.rounds_activations() || isa.multiplies_halves();
                assert_eq!(engine.info.revision != portable, rounds, "{isa:?}");
            }
            Err(error) => {
                assert!(!isa.is_available() && error.to_string().starts_with("`engine.isa` is "), "{error}");
            }
        }
    }
}

#[test]
fn an_embedding_in_single_precision_hides_no_layers_that_round() {
    let single = Synthetic::tiny(Family::Llama, 1);
    let layers = Synthetic {
        dtype: Dtype::Bf16,
        embedding_dtype: Some(Dtype::F32),
        ..Synthetic::tiny(Family::Llama, 1)
    };
    for (synthetic, rounds_some) in [(&single, false), (&layers, true)] {
        let folder = written(synthetic);
        let revision = |isa| {
            let config = EngineConfig { isa: Some(isa), ..small() };
            load_dir(folder.path(), &config, &Arc::default()).expect("it is available").info.revision
        };
        for isa in Isa::available() {
            let rounds = rounds_some && (isa.rounds_activations() || isa.multiplies_halves());
            assert_eq!(revision(isa) != revision(Isa::Portable), rounds, "{isa:?}, {rounds_some}");
        }
    }
}

#[test]
fn a_broken_checkpoint_or_setting_gives_no_engine_and_says_why() {
    let error = |folder: &Path, config: &EngineConfig| match load_dir(folder, config, &Arc::default()) {
        Ok(_) => panic!("it must be refused"),
        Err(error) => error.to_string(),
    };
    let folder = written(&Synthetic::tiny(Family::Llama, 1));
    assert_eq!(
        error(folder.path(), &EngineConfig { block_tokens: 0, ..small() }),
        "`engine.block_tokens` must be positive"
    );
    assert_eq!(
        error(folder.path(), &EngineConfig { threads: Some(0), ..small() }),
        "`engine.threads` must be positive"
    );
    assert!(error(folder.path(), &EngineConfig { kv_bytes: Some(Bytes(1)), ..small() }).contains("kv_bytes"));
    let weights = folder.path().join("model.safetensors");
    let bytes = std::fs::read(&weights).expect("it was written");
    std::fs::remove_file(&weights).expect("it was written");
    std::fs::write(&weights, &bytes[..bytes.len() - 100]).expect("it can be written");
    assert!(error(folder.path(), &small()).starts_with("model.safetensors: tensor "));
    assert!(error(&folder.path().join("absent"), &small()).contains("config.json"));
}

#[test]
fn settings_are_read_strictly() {
    let read = |text: &str| serde_json::from_str::<EngineConfig>(text);
    assert_eq!(read("{}").expect("all defaults"), EngineConfig::default());
    assert_eq!(read(r#"{"dtype": "bf16"}"#).expect("valid").dtype, Some(Dtype::Bf16));
    assert_eq!(read(r#"{"quantize": "q8-wide"}"#).expect("valid").quantize, Some(Quantize::Q8Wide));
    for quantize in Quantize::ALL {
        let text = format!(r#"{{"quantize": "{}"}}"#, quantize.name());
        assert_eq!(read(&text).expect("valid").quantize, Some(quantize));
    }
    assert_eq!(read(r#"{"isa": "avx512bf16"}"#).expect("valid").isa, Some(Isa::Avx512Bf16));
    for kv in KvFormat::ALL {
        assert_eq!(read(&format!(r#"{{"kv": "{}"}}"#, kv.name())).expect("valid").kv, Some(kv));
    }
    let error = read(r#"{"kv": "bf15"}"#).expect_err("there is no such type").to_string();
    assert!(
        error.starts_with("unknown variant `bf15`, expected one of `f32`, `bf16`, `q8`, `fp8`"),
        "{error}"
    );
    assert!(read(r#"{"thread": 2}"#).is_err());
}

#[test]
fn ranks_answer_like_one_and_have_a_revision_of_their_own() {
    for family in FAMILIES {
        let folder = written(&Synthetic::tiny(family, 9));
        let load = |tensor_parallel| {
            let config = EngineConfig { threads: Some(3), tensor_parallel, ..small() };
            load_dir(folder.path(), &config, &Arc::default()).expect("the model divides")
        };
        let mut engines = [1, 2, 4].map(load);
        let tokens = engines.each_mut().map(|engine| next_token(engine, "the thing and the other thing"));
        assert!(tokens[1] == tokens[0] && tokens[2] == tokens[0], "{family:?}: {tokens:?}");
        let threads = engines.each_ref().map(|engine| engine.executor.model().threads());
        assert_eq!(threads, [3, 3, 4], "each rank has its share of the threads, and at least one");
        let revisions = engines.each_ref().map(|engine| engine.info.revision);
        assert!(revisions[0] != revisions[1] && revisions[1] != revisions[2]);
    }
}

#[test]
fn a_model_that_does_not_divide_among_its_ranks_is_refused_by_setting_and_field() {
    let mut synthetic = Synthetic::tiny(Family::Mistral, 9);
    (synthetic.config.heads, synthetic.config.kv_heads) = (6, 2);
    let folder = written(&synthetic);
    let refused = |tensor_parallel| {
        let config = EngineConfig { tensor_parallel, ..small() };
        load_dir(folder.path(), &config, &Arc::default()).err().expect("refused").to_string()
    };
    assert_eq!(
        refused(4),
        "`engine.tensor_parallel` is 4, but `num_attention_heads` = 6 cannot be divided among 4 ranks"
    );
    assert_eq!(refused(0), "`engine.tensor_parallel` must be positive");
}

#[test]
fn a_gguf_file_loads_where_a_folder_does_and_answers_alike() {
    let synthetic = Synthetic { dtype: Dtype::Bf16, ..Synthetic::tiny(Family::Qwen2, 8) };
    let folder = written(&synthetic);
    let file = folder.path().join("small-bf16.gguf");
    let bytes = synthetic.gguf(BlockFormat::Bf16).expect("complete").finish();
    std::fs::write(&file, bytes).expect("it can be written");
    let mut from_folder = load_dir(folder.path(), &small(), &Arc::default()).expect("a valid folder");
    let mut from_file = load_dir(&file, &small(), &Arc::default()).expect("a valid file");
    let expected = ModelInfo {
        name: "small-bf16".to_owned(),
        revision: from_file.info.revision,
        ..from_folder.info.clone()
    };
    assert_eq!(from_file.info, expected);
    assert_ne!(from_file.info.revision, from_folder.info.revision);
    assert_eq!(from_file.text.ends(), from_folder.text.ends());
    assert!(from_file.text.has_chat_template());
    let on_two = EngineConfig { tensor_parallel: 2, ..small() };
    let mut on_two = load_dir(&file, &on_two, &Arc::default()).expect("it divides");
    for prompt in ["the and", "a", "<|im_end|> in the ring"] {
        let expected = next_token(&mut from_folder, prompt);
        assert_eq!(next_token(&mut from_file, prompt), expected, "{prompt}");
        assert_eq!(next_token(&mut on_two, prompt), expected, "{prompt}, on two ranks");
    }
    let absent = load_dir(&folder.path().join("absent.gguf"), &small(), &Arc::default())
        .err()
        .expect("refused")
        .to_string();
    assert!(absent.starts_with("cannot read ") && absent.contains("absent.gguf"), "{absent}");
}
