//! What is refused of `[[replicas]]`, as files are written.

use serving::config::{PromptForm, Secret};

use super::*;

fn check(text: &str, part: &str) {
    let said = match Config::parse(text, &|_| Some("k".into())).and_then(|config| config.validate()) {
        Ok(()) => "valid".to_owned(),
        Err(error) => error.to_string(),
    };
    assert!(said.contains(part), "{text:?}: {said:?} lacks {part:?}");
}

#[test]
fn ten_lines_are_a_fleet_and_need_no_checkpoint() {
    let text = "[model]\nname = \"qwen\"\n\n[[replicas]]\nurl = \"http://a:8000\"\ndialect = \"vllm\"\n\n\
                [[replicas]]\nurl = \"http://b:8000\"\ndialect = \"vllm\"\n";
    check(text, "valid");
    let config = Config::parse(text, &|_| None).expect("valid");
    assert_eq!(config.backend().prompt_form(), PromptForm::Messages);
    assert_eq!(
        (config.backend().replica_name(0), config.backend().replica_name(1)),
        ("0".into(), "1".into())
    );
}

#[test]
fn what_cannot_work_is_named() {
    let one = |line: &str| format!("[model]\nname = \"m\"\n[[replicas]]\n{line}\n");
    check(&one("kind = \"openai\""), "replicas[0].url");
    check(&one("url = \"ftp://a\""), "replicas[0].url");
    check(&one("url = \"http://\""), "replicas[0].url");
    check(&one("url = \"http://u:p@a\""), "password");
    check(&one("url = \"http://a\"\nrows_max = 0"), "replicas[0].rows_max");
    check(&one("url = \"http://a\"\npriority = true"), "replicas[0].priority");
    check(&one("url = \"http://a\"\nsalt = true"), "replicas[0].salt");
    check(&one("url = \"http://a\"\nprompt = \"tokens\""), "model.tokenizer");
    check(&one("url = \"http://a\"\nname = \"a b\""), "replicas[0].name");
    check(&one("url = \"http://a\"\n[[replicas]]\nurl = \"http://b\"\nname = \"0\""), "another replica's");
    check(&one("url = \"http://a\"\nprompt_price = -1.0"), "replicas[0].prompt_price");
    check(&one("url = \"http://a\"\noutput_price = nan"), "replicas[0].output_price");
    check(&one("kind = \"local\"\n[[replicas]]\nkind = \"local\""), "one local engine");
    check(&one("kind = \"local\"\nurl = \"http://a\""), "replicas[0].url");
    check("[[replicas]]\nurl = \"http://a\"", "replicas[0].model");
    let bound = "[model]\nname = \"m\"\ncontext_max = 9\n[[replicas]]\nurl = \"http://a\"";
    check(bound, "model.context_max");
    check(&one("url = \"http://a\"\ndialect = \"tgi\""), "tgi");
}

#[test]
fn tokens_cost_what_they_cost_at_the_dearest_replica() {
    let price = |lines: &str| {
        let text = format!("[model]\nname = \"m\"\n[[replicas]]\nurl = \"http://a\"\n{lines}");
        Config::parse(&text, &|_| None).expect("valid").backend().price()
    };
    assert_eq!(price(""), None);
    assert_eq!(price("prompt_price = 0.15\noutput_price = 0.6"), Some((0.15, 0.6)));
    let second =
        "prompt_price = 0.15\noutput_price = 0.6\n[[replicas]]\nurl = \"http://b\"\nprompt_price = 3";
    assert_eq!(price(second), Some((3.0, 0.6)));
}

#[test]
fn every_configuration_in_the_documentation_is_valid() {
    let text = include_str!("../../../docs/REPLICAS.md");
    let blocks: Vec<&str> =
        text.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(blocks.len() >= 4);
    for block in blocks {
        // An example of one section stands for a whole file.
        let replica = "\n[[replicas]]\nurl = \"http://a\"\n";
        let whole =
            if block.contains("[[replicas]]") { block.to_owned() } else { format!("{block}{replica}") };
        check(&whole, "valid");
    }
}

#[test]
fn an_api_key_comes_from_the_environment_and_is_never_shown() {
    let text = "[model]\nname = \"m\"\n[[replicas]]\nurl = \"http://a\"\napi_key = \"${KEY}\"";
    let config = Config::parse(text, &|_| Some("k3y".into())).expect("valid");
    assert_eq!(config.replicas[0].api_key, Some(Secret("k3y".into())));
    assert!(!format!("{config:?}").contains("k3y"));
}
