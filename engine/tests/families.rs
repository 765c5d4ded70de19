//! Families that transformers runs and candle does not, or not by its definition: logits equal those that
//! transformers has written down (families/generate.py), position by position, in chunks and at once.

mod common;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use base::TokenId;
use common::{Bare, Blocks, Row, difference, keep, widening};
use engine::checkpoint::config::{Alibi, LocalLayers, Mlp, Position, Residual, RopeScaling};
use engine::checkpoint::shapes::check_tensors;
use engine::checkpoint::weights::MapWeights;
use engine::checkpoint::{Dtype, ModelConfig, Unfused, read_config};
use engine::decoder::{Decoder, LoadOptions};
use engine::device::{Cpu, Isa};
use engine::{Keep, KvFormat};
use serde::Deserialize;

/// Largest difference from transformers in double precision, in units of the largest logit.
const TOLERANCE: f32 = 1e-5;

/// What must move logits moves them by at least this.
const APART: f32 = 1e-3;

/// A model as generate.py has written it down.
#[derive(Deserialize)]
struct ReferenceModel {
    /// config.json as the hub has it.
    config: serde_json::Value,
    /// The same as transformers writes it.
    saved: serde_json::Value,
    /// What a normalisation's stored weights lie about.
    norm_centre: f32,
    tensors: BTreeMap<String, Vec<usize>>,
    tokens: Vec<u32>,
    /// By position, as JSON has keys.
    logits: BTreeMap<String, Vec<f32>>,
}

/// Every model, by name.
fn models() -> impl Iterator<Item = (String, ReferenceModel)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/families");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .expect("the models lie beside the test")
        .map(|entry| entry.expect("it can be listed").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    files.sort();
    assert!(files.len() >= 13, "generate.py writes as many");
    files.into_iter().map(|path| {
        let name = path.file_stem().expect("it has a name").to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).expect("it can be read");
        (name, serde_json::from_str(&text).expect("generate.py writes such"))
    })
}

/// The model of this name.
fn model(name: &str) -> ReferenceModel {
    models().find(|(other, _)| other == name).expect("generate.py writes it").1
}

/// Number `i` of -1..1 that generate.py takes for a tensor of this name.
fn stream(name: &str, count: usize) -> Vec<f32> {
    let seed = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |seed, byte| {
        (seed ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let unit = |i: u64| {
        let z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(i));
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    (1..=count as u64).map(unit).collect()
}

impl ReferenceModel {
    /// Its tensors, under the names that a checkpoint has.
    fn stored(&self, dtype: Dtype) -> MapWeights {
        let mut weights = MapWeights::default();
        for (name, shape) in &self.tensors {
            let (middle, spread) = match shape[..] {
                _ if name.ends_with(".bias") => (0.0, 0.1),
                [_] => (self.norm_centre, 0.25),
                _ if ["embed", "wte", "lm_head"].iter().any(|part| name.contains(part)) => (0.0, 1.0),
                [.., inputs] => (0.0, (3.0 / inputs as f32).sqrt()),
                [] => unreachable!("tensors have extents"),
            };
            let values: Vec<f32> =
                stream(name, shape.iter().product()).iter().map(|x| middle + spread * x).collect();
            weights.insert(name, dtype, shape, &values);
        }
        weights
    }

    fn config(&self) -> ModelConfig {
        read_config(&self.config.to_string()).expect("the hub's config.json is read")
    }

    /// A decoder of `config`, on two threads.
    fn decoder(&self, config: &ModelConfig, keep: Keep, isa: Isa) -> Decoder {
        let weights = Unfused::new(self.stored(Dtype::F32), config);
        check_tensors(config, &weights).expect("all tensors in their shapes");
        let cpu = Arc::new(Cpu::with_isa(Some(2), isa).expect("threads start"));
        Decoder::load(config, &weights, LoadOptions { cpu, keep }).expect("the weights are complete")
    }

    fn tokens(&self) -> Vec<TokenId> {
        self.tokens.iter().map(|token| TokenId(*token)).collect()
    }

    /// Positions with logits, in order, and their logits.
    fn expected(&self) -> Vec<(usize, &Vec<f32>)> {
        let mut all: Vec<(usize, &Vec<f32>)> =
            self.logits.iter().map(|(at, row)| (at.parse().expect("a position"), row)).collect();
        all.sort_unstable_by_key(|(at, _)| *at);
        all
    }

    /// How far logits are from those written down, at most over all positions: chunk by chunk up to each of
    /// them, and the last at once.
    fn apart(&self, decoder: Decoder, block_tokens: usize) -> f32 {
        let (tokens, expected) = (self.tokens(), self.expected());
        let mut bare = Bare::new(decoder, block_tokens as u32);
        let mut blocks = Blocks::default();
        let mut worst = 0f32;
        let mut row = Row::new(1, Vec::new(), tokens.len(), block_tokens, &mut blocks);
        for (at, expected) in &expected {
            let computed = row.tokens.len();
            row.tokens = tokens[..=*at].to_vec();
            row.prompt = row.tokens.len();
            let found = bare.logits(&[row.slot(computed..*at + 1)]).remove(0);
            worst = worst.max(difference(&found, expected));
        }
        let whole = Row::new(2, tokens.clone(), tokens.len(), block_tokens, &mut blocks);
        let found = bare.logits(&[whole.slot(0..tokens.len())]).remove(0);
        let (at, last) = expected[expected.len() - 1];
        assert_eq!(at + 1, tokens.len(), "the last position has logits");
        worst.max(difference(&found, last))
    }
}

/// Fails with all that is not as it should be, so that one run shows the whole.
fn assert_none(wrong: &[String]) {
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn logits_of_every_family_are_those_of_transformers_at_every_position() {
    let mut wrong = Vec::new();
    for (name, model) in models() {
        for (isa, block_tokens) in [(widening(), 16), (Isa::Portable, 5)] {
            let apart = model.apart(model.decoder(&model.config(), keep(isa), isa), block_tokens);
            println!("{name} on {isa:?}: {apart:e}");
            if apart.is_nan() || apart >= TOLERANCE {
                wrong.push(format!("{name} on {isa:?}: {apart}"));
            }
        }
    }
    assert_none(&wrong);
}

#[test]
fn a_config_as_transformers_writes_it_says_what_the_hubs_says() {
    for (name, model) in models() {
        let saved = read_config(&model.saved.to_string()).expect("transformers' config.json is read");
        assert_eq!(saved, model.config(), "{name}");
    }
}

#[test]
fn keys_and_values_in_fewer_bits_move_logits_by_their_rounding_alone() {
    let mut wrong = Vec::new();
    for (name, model) in models() {
        for kv in [KvFormat::Bf16, KvFormat::Q8] {
            let keep = Keep { kv: Some(kv), ..Keep::default() };
            let apart = model.apart(model.decoder(&model.config(), keep, widening()), 16);
            println!("{name} {kv:?}: {apart:e}");
            if !(1e-6..6e-2).contains(&apart) {
                wrong.push(format!("{name} {kv:?}: {apart}"));
            }
        }
    }
    assert_none(&wrong);
}

/// Everything that sets these families apart is seen by the comparison: with any of it changed, logits are
/// others.
#[test]
fn what_a_family_has_of_its_own_moves_its_logits() {
    type Change = fn(&mut ModelConfig);
    let changes: [(&str, Change); 17] = [
        ("mpt", halve_slopes),
        ("mpt-six-heads", reverse_slopes),
        ("mpt-clipped", |config| config.qkv_clip = None),
        ("mpt-clipped", |config| config.score_scale = None),
        ("falcon-rw", halve_slopes),
        ("falcon-rw-six-heads", reverse_slopes),
        ("falcon-rw-sixteen-heads", |config| alibi(config).is_rounded = false),
        ("falcon-rw", |config| config.residual = Residual::Parallel { shares_norm: true }),
        ("falcon-7b", |config| config.mlp = Mlp::PlainRelu),
        ("gemma3", |config| local(config).theta = 1e6),
        ("gemma3", |config| local(config).is_local[2] = true),
        ("gemma3", |config| config.sliding_window = Some(13)),
        ("gemma3", |config| config.scales_embedding = false),
        ("gemma3", |config| config.score_scale = None),
        ("gemma3-scaled", |config| {
            config.position = Position::Rotary { theta: 1e6, scaling: RopeScaling::None };
        }),
        ("gemma2", |config| config.score_cap = None),
        ("gemma2", |config| config.logit_cap = None),
    ];
    let mut wrong = Vec::new();
    for (number, (name, change)) in changes.into_iter().enumerate() {
        let model = model(name);
        let mut config = model.config();
        change(&mut config);
        assert_ne!(config, model.config(), "{name}, change {number}");
        let apart = model.apart(model.decoder(&config, keep(widening()), widening()), 16);
        if apart <= APART {
            wrong.push(format!("{name}, change {number}: {apart}"));
        }
    }
    assert_none(&wrong);
}

fn halve_slopes(config: &mut ModelConfig) {
    alibi(config).scale /= 2.0;
}

/// The series for heads that are a power of two, cut off, differs from the right one by its order too.
fn reverse_slopes(config: &mut ModelConfig) {
    alibi(config).slopes.reverse();
}

fn alibi(config: &mut ModelConfig) -> &mut Alibi {
    let Position::Alibi(alibi) = &mut config.position else { panic!("it has slopes") };
    alibi
}

fn local(config: &mut ModelConfig) -> &mut LocalLayers {
    config.local_layers.as_mut().expect("it has local layers")
}
