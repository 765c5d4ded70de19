//! The built-in demo model: the files of `models/demo`, part of the program, so that a first run
//! answers with no download. What it can and cannot do stands in `models/demo/MODEL_CARD.md`.

use std::borrow::Cow;

use engine::ModelFiles;

/// The name clients see.
pub const NAME: &str = "relserve-demo";

/// What it is, and what it can do.
pub const CAN: &str = "demo model: labels, ratings and yes or no only";

/// The prompts of the model's own tests: its makers' texts, as its cell functions put them.
pub fn prompts() -> Vec<String> {
    #[derive(serde::Deserialize)]
    struct SampledQuery {
        prompt: String,
    }
    let pairs: Vec<SampledQuery> = serde_json::from_str(include_str!("../../models/demo/answers.json"))
        .expect("a test reads this very file");
    pairs.into_iter().map(|pair| pair.prompt).collect()
}

/// The checkpoint's files.
pub fn files() -> ModelFiles<'static> {
    ModelFiles {
        name: NAME,
        config: include_str!("../../models/demo/config.json"),
        tokenizer: include_str!("../../models/demo/tokenizer.json"),
        tokenizer_config: Some(include_str!("../../models/demo/tokenizer_config.json")),
        generation_config: Some(include_str!("../../models/demo/generation_config.json")),
        chat_template: None,
        weights: Cow::Borrowed(include_bytes!("../../models/demo/model.safetensors")),
    }
}
