//! Files that are damaged, or made to do harm, are refused or read: no panic, and no more memory than their
//! own size accounts for.
//!
//! The same thousands of mutations of valid files in every run, and as many more as are asked for: bits
//! flipped, numbers replaced by the ones that overflow, pieces cut out, repeated and moved.

use std::alloc::{GlobalAlloc, Layout, System};
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base::{ChatTemplate as _, Role, Tokenizer as _};
use engine::checkpoint::config::Family;
use engine::checkpoint::ggml::BlockFormat;
use engine::checkpoint::gguf::Gguf;
use engine::checkpoint::gguf::write::GgufWriter;
use engine::checkpoint::{Synthetic, WeightSource as _, synthetic_text};
use engine::checkpoint_reader::Checkpoint;
use engine::decoder::{Decoder, LoadOptions};
use engine::device::Cpu;
use engine::{Keep, ModelFiles};

/// Mutated files per form, where `DAMAGE_CASES` does not say otherwise.
const CASES: u64 = 3_000;

/// Mutated files per form.
fn cases() -> u64 {
    let asked = std::env::var("DAMAGE_CASES").ok();
    asked.map_or(CASES, |count| count.parse().expect("DAMAGE_CASES is a number of files"))
}

/// Most memory in use at once, in bytes, by all tests here together: a hundred times the files, which are
/// small. One believed count is gigabytes.
const LIVE_MAX: usize = 96 << 20;

/// The system's allocator, which knows how much is in use.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(live, Ordering::Relaxed);
        // SAFETY: this function's own contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: this function's own contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

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

    /// A number that readers get wrong.
    fn number(&mut self, length: usize) -> u64 {
        let length = length as u64;
        match self.below(12) {
            0 => 0,
            1 => 1,
            2 => u64::MAX,
            3 => u64::MAX - 31,
            4 => 1 << 63,
            5 => u64::from(u32::MAX),
            6 => 1 << 31,
            7 => length,
            8 => length + 1,
            9 => 1 << 24,
            10 => (1 << 24) - 1,
            _ => self.next() >> self.below(64),
        }
    }
}

/// A copy of `bytes` with a few things done to it, mostly to those before `header`.
fn mutated(bytes: &[u8], header: usize, random: &mut Random) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..=random.below(3) {
        let reach = if random.below(8) == 0 { bytes.len() } else { header.min(bytes.len()) };
        // The tables that say where things lie end the header: half of the changes are made there.
        let first = if random.below(2) == 0 { reach.saturating_sub(2_000) } else { 0 };
        let at = first + random.below(reach - first);
        let span = (1 + random.below(40)).min(bytes.len() - at);
        match random.below(9) {
            0 | 1 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << random.below(8)),
            2 => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte = random.next() as u8),
            3 | 4 => {
                let number = random.number(bytes.len()).to_le_bytes();
                let width = [1, 4, 8][random.below(3)].min(bytes.len() - at);
                bytes[at..at + width].copy_from_slice(&number[..width]);
            }
            5 => bytes.truncate(at),
            6 => drop(bytes.drain(at..at + span)),
            7 => {
                let piece = bytes[at..at + span].to_vec();
                let to = random.below(reach.min(bytes.len() - span + 1));
                bytes[to..to + span].copy_from_slice(&piece);
            }
            _ => {
                let piece = bytes[at..at + span].to_vec();
                bytes.splice(at..at, piece);
            }
        }
    }
    bytes
}

/// Uses all of a checkpoint that was taken for a valid one.
fn use_all(checkpoint: &Checkpoint, cpu: &Arc<Cpu>) {
    for name in checkpoint.weights.names() {
        let _ = checkpoint.weights.tensor(&name).map(|tensor| tensor.to_f32());
    }
    let tokens = checkpoint.text.encode_data("The 1 ä\n漢 \u{1f600} </s> <|im_end|>");
    let _ = checkpoint.text.decode(&tokens);
    let _ = checkpoint.text.frame(&[Role::User]);
    let options = LoadOptions { cpu: Arc::clone(cpu), keep: Keep::default() };
    let _ = Decoder::load(&checkpoint.config, &checkpoint.weights, options);
}

/// Mutates [`cases`] times and reads; how many were taken for valid files.
fn read_many(read: impl Fn(&mut Random) -> Option<Checkpoint>) -> u64 {
    let cpu = Arc::new(Cpu::new(Some(1)).expect("a thread starts"));
    let mut valid = 0;
    for case in 1..=cases() {
        let mut random = Random(case.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        if let Some(checkpoint) = read(&mut random) {
            valid += 1;
            use_all(&checkpoint, &cpu);
        }
        let most = MOST.load(Ordering::Relaxed);
        assert!(most < LIVE_MAX, "case {case}: {most} bytes in use");
    }
    valid
}

/// Some cases must come through and many must not.
fn assert_some_valid(valid: u64) {
    let cases = cases();
    assert!(
        (cases / 50..cases / 2).contains(&valid),
        "{valid} of {cases} valid: mutations are too weak or too strong"
    );
}

/// Reads damaged copies of a valid file.
fn damage_gguf(writer: &GgufWriter) {
    let whole = writer.finish();
    let header = Gguf::from_bytes("x", Cow::Owned(whole.clone())).expect("a valid file").bytes().1;
    let valid = read_many(|random| {
        let bytes = mutated(&whole, header, random);
        let gguf = Gguf::from_bytes("x", Cow::Owned(bytes)).ok()?;
        Checkpoint::gguf("x", gguf, None).ok()
    });
    assert_some_valid(valid);
}

#[test]
fn no_damaged_gguf_file_panics_or_takes_memory_it_does_not_have() {
    let model = Synthetic::tiny(Family::Qwen2, 1);
    damage_gguf(&model.gguf(BlockFormat::F16).expect("the weights are complete"));
}

#[test]
fn no_damaged_sentence_pieces_panic_or_take_memory_they_do_not_have() {
    let mut model = Synthetic::tiny(Family::Llama, 1);
    model.config.intermediate = 64;
    let mut writer = model.gguf(BlockFormat::Q8_0).expect("the weights are complete");
    writer.remove("tokenizer.ggml.model");
    writer.text("tokenizer.ggml.model", "llama");
    let scores: Vec<f32> = (0..model.config.vocab).map(|id| -(id as f32)).collect();
    writer.floats("tokenizer.ggml.scores", &scores);
    damage_gguf(&writer);
}

#[test]
fn no_damaged_safetensors_or_texts_panic_or_take_memory_they_do_not_have() {
    let model = Synthetic::tiny(Family::Mistral, 1);
    let weights = model.weight_bytes().expect("bytes");
    let header = 8 + u64::from_le_bytes(*weights.first_chunk().expect("a length")) as usize;
    let (config, tokenizer) = (model.config_json(), synthetic_text::tokenizer_json());
    let (tokenizer_config, generation) = (synthetic_text::tokenizer_config_json(), model.generation_json());
    let valid = read_many(|random| {
        let mut texts = [&config, &tokenizer, &tokenizer_config, &generation].map(String::clone);
        let mut bytes = weights.clone();
        if random.below(2) == 0 {
            bytes = mutated(&bytes, header, random);
        } else {
            let text = &mut texts[random.below(4)];
            *text = String::from_utf8_lossy(&mutated(text.as_bytes(), text.len(), random)).into_owned();
        }
        let files = ModelFiles {
            name: "x",
            config: &texts[0],
            tokenizer: &texts[1],
            tokenizer_config: Some(&texts[2]),
            generation_config: Some(&texts[3]),
            chat_template: None,
            weights: Cow::Owned(bytes),
        };
        Checkpoint::bytes(files, None).ok()
    });
    assert_some_valid(valid);
}
