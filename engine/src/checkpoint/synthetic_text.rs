//! The tokenizer of synthetic checkpoints: a byte-level BPE with a few merges and a ChatML template.

use serde_json::{Map, Value, json};

/// Number of token ids.
pub const VOCAB: usize = 256 + MERGES.len() + 3;
/// `<|endoftext|>`.
pub const END_OF_TEXT: u32 = 256 + MERGES.len() as u32;
/// `<|im_start|>`.
pub const IM_START: u32 = END_OF_TEXT + 1;
/// `<|im_end|>`.
pub const IM_END: u32 = END_OF_TEXT + 2;

/// Pairs that merge, in order. `Ġ` is the byte-level name of a space.
const MERGES: [(&str, &str); 18] = [
    ("t", "h"),
    ("th", "e"),
    ("Ġ", "the"),
    ("i", "n"),
    ("in", "g"),
    ("a", "n"),
    ("an", "d"),
    ("Ġ", "and"),
    ("e", "r"),
    ("o", "u"),
    ("Ġ", "a"),
    ("Ġ", "i"),
    ("Ġi", "s"),
    ("o", "n"),
    ("r", "e"),
    ("Ġ", "re"),
    ("a", "t"),
    ("e", "n"),
];

/// The template: ChatML, as the Qwen models use it.
pub const CHAT_TEMPLATE: &str = "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + \
     message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}\
     {{ '<|im_start|>assistant\\n' }}{% endif %}";

/// The printable character that stands for a byte in byte-level BPE (Radford et al. 2019, GPT-2):
/// printable Latin-1 stands for itself, the others follow from U+0100 in order.
fn byte_name(byte: u8) -> char {
    let is_printable = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    if is_printable(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|other| !is_printable(*other)).count() as u32;
    char::from_u32(0x100 + before).expect("U+0100 to U+0143 are characters")
}

/// The text of tokenizer.json.
pub fn tokenizer_json() -> String {
    let mut vocab = Map::new();
    for byte in 0..=u8::MAX {
        vocab.insert(byte_name(byte).to_string(), json!(byte));
    }
    for (left, right) in MERGES {
        vocab.insert(format!("{left}{right}"), json!(vocab.len()));
    }
    let special = |id: u32, content: &str| {
        json!({
            "id": id, "content": content, "special": true, "normalized": false,
            "single_word": false, "lstrip": false, "rstrip": false,
        })
    };
    let byte_level =
        json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true });
    let merges: Vec<Value> = MERGES.iter().map(|(left, right)| json!([left, right])).collect();
    json!({
        "version": "1.0", "truncation": null, "padding": null, "normalizer": null, "post_processor": null,
        "added_tokens": [
            special(END_OF_TEXT, "<|endoftext|>"), special(IM_START, "<|im_start|>"), special(IM_END, "<|im_end|>"),
        ],
        "pre_tokenizer": byte_level, "decoder": byte_level,
        "model": { "type": "BPE", "vocab": vocab, "merges": merges },
    })
    .to_string()
}

/// The text of tokenizer_config.json.
pub fn tokenizer_config_json() -> String {
    json!({ "eos_token": "<|im_end|>", "add_bos_token": false, "chat_template": CHAT_TEMPLATE }).to_string()
}
