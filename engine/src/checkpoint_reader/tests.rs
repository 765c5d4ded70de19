//! Checkpoints from a folder and from memory: the same model, the same revision, the same refusals.

use base::{ChatTemplate as _, Piece, Role};

use super::*;
use crate::checkpoint::Synthetic;
use crate::checkpoint::config::Family;

fn written(synthetic: &Synthetic) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    synthetic.write(folder.path()).expect("it can be written");
    folder
}

#[test]
fn a_folder_and_the_same_files_in_memory_are_the_same_model() {
    let synthetic = Synthetic::tiny(Family::Qwen2, 1);
    let folder = written(&synthetic);
    let checkpoint = Checkpoint::folder(folder.path(), None).expect("a valid folder");
    let read = |name| std::fs::read_to_string(folder.path().join(name)).expect("it was written");
    let (config, tokenizer) = (read("config.json"), read("tokenizer.json"));
    let (tokenizer_config, generation_config) =
        (read("tokenizer_config.json"), read("generation_config.json"));
    let files = ModelFiles {
        name: "mine",
        config: &config,
        tokenizer: &tokenizer,
        tokenizer_config: Some(&tokenizer_config),
        generation_config: Some(&generation_config),
        chat_template: None,
        weights: Cow::Owned(synthetic.weight_bytes().expect("bytes")),
    };
    let bytes = Checkpoint::bytes(files.clone(), None).expect("valid files");
    assert_eq!((bytes.revision, &bytes.config), (checkpoint.revision, &checkpoint.config));
    assert_eq!(bytes.name, "mine");
    assert!(checkpoint.text.has_chat_template());
    assert_eq!(checkpoint.text.ends(), bytes.text.ends());
    let other = ModelFiles { chat_template: Some("{{ messages[0].content }}"), ..files };
    let other = Checkpoint::bytes(other, None).expect("valid files");
    assert_ne!(other.revision, checkpoint.revision);
    assert_eq!(other.text.frame(&[Role::User]).expect("a frame"), [Piece::Content(0)]);
}

#[test]
fn the_texts_of_a_folder_need_no_weights() {
    let folder = written(&Synthetic::tiny(Family::Qwen2, 1));
    let whole = Checkpoint::folder(folder.path(), None).expect("a valid folder");
    std::fs::remove_file(folder.path().join(SINGLE_FILE)).expect("it was written");
    let text = CheckpointText::folder(folder.path(), None).expect("texts are enough");
    assert_eq!((&text.config, text.text.ends()), (&whole.config, whole.text.ends()));
    assert!(text.text.has_chat_template());
    std::fs::write(folder.path().join("generation_config.json"), "{}").expect("it can be written");
    let other = CheckpointText::folder(folder.path(), None).expect("texts are enough");
    assert_ne!(other.revision, text.revision);
}

#[test]
fn the_revision_follows_every_file() {
    let revision = |synthetic: &Synthetic, change: &dyn Fn(&Path)| {
        let folder = written(synthetic);
        change(folder.path());
        Checkpoint::folder(folder.path(), None).expect("a valid folder").revision
    };
    let synthetic = Synthetic::tiny(Family::Llama, 1);
    let first = revision(&synthetic, &|_| {});
    assert_eq!(first, revision(&synthetic, &|_| {}), "the same files, elsewhere");
    assert_ne!(first, revision(&Synthetic::tiny(Family::Llama, 2), &|_| {}), "other weights");
    let put = |name: &'static str, text: &'static str| {
        move |folder: &Path| {
            std::fs::write(folder.join(name), text).expect("it can be written");
        }
    };
    assert_ne!(first, revision(&synthetic, &put("generation_config.json", "{}")));
    assert_ne!(first, revision(&synthetic, &put("chat_template.jinja", "{{ messages[0].content }}")));
    assert_ne!(first, revision(&synthetic, &put("chat_template.json", r#"{"chat_template": "x"}"#)));
}

#[test]
fn a_large_file_is_told_from_another_by_samples() {
    let file = |last: u8| {
        let header = br#"{"a":{"dtype":"F32","shape":[17039360],"data_offsets":[0,68157440]}}"#;
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header);
        bytes.resize(bytes.len() + 68_157_440, 0);
        bytes[33 << 20] = last;
        bytes
    };
    let synthetic = Synthetic::tiny(Family::Llama, 1);
    let config = synthetic.config_json();
    let revision_of = |bytes: Vec<u8>| {
        let files = ModelFiles {
            name: "",
            config: &config,
            tokenizer: "",
            tokenizer_config: None,
            generation_config: None,
            chat_template: None,
            weights: Cow::Borrowed(&[]),
        };
        revision::of_files(
            &files,
            &Safetensors::from_bytes("weights", Cow::Owned(bytes)).expect("a valid file"),
        )
    };
    assert_eq!(revision_of(file(1)), revision_of(file(1)));
    assert_ne!(revision_of(file(1)), revision_of(file(2)));
}

#[test]
fn a_folder_that_lacks_a_file_is_refused_by_its_name() {
    for name in ["config.json", "tokenizer.json", "model.safetensors"] {
        let folder = written(&Synthetic::tiny(Family::Opt, 1));
        std::fs::remove_file(folder.path().join(name)).expect("it was written");
        let error = Checkpoint::folder(folder.path(), None).expect_err("refused").to_string();
        assert!(error.starts_with("cannot read ") && error.contains(name), "{error}");
    }
    let folder = written(&Synthetic::tiny(Family::Opt, 1));
    std::fs::write(folder.path().join("chat_template.json"), "{}").expect("it can be written");
    let error = Checkpoint::folder(folder.path(), None).expect_err("refused").to_string();
    assert_eq!(error, "chat_template.json: field `chat_template`: must be a string");
}
