//! What is refused of `[[replicas]]`, as files are written.

use serving::config::{PromptForm, Secret};

use super::*;

pub(super) fn check(text: &str, part: &str) {
    let reason = match Config::parse(text, &|_| Some("k".into())).and_then(|config| config.validate()) {
        Ok(()) => "valid".to_owned(),
        Err(error) => error.to_string(),
    };
    assert!(reason.contains(part), "{text:?}: {reason:?} lacks {part:?}");
}

#[test]
fn ten_lines_are_a_fleet_and_need_no_checkpoint() {
    let text = "[model]\nname = \"qwen\"\n\n[[replicas]]\nurl = \"http://a:8000\"\ndialect = \"vllm\"\n\n\
                [[replicas]]\nurl = \"http://b:8000\"\ndialect = \"vllm\"\n";
    check(text, "valid");
    let config = Config::parse(text, &|_| None).expect("valid");
    assert_eq!(config.backend().prompt_form(), PromptForm::Messages);
    let names = config.backend().named_replicas().into_iter().filter_map(|replica| replica.name);
    assert_eq!(names.collect::<Vec<_>>(), ["0", "1"]);
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
    check(&one("url = \"http://a\"\ncached_price = 1e10"), "replicas[0].cached_price");
    check("[model]\nprompt_price = -1.0", "model.prompt_price");
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
        Config::parse(&text, &|_| None).expect("valid").backend().price(&[])
    };
    assert_eq!(price(""), None);
    assert_eq!(price("prompt_price = 0.15\noutput_price = 0.6"), Some((0.15, 0.6)));
    let second =
        "prompt_price = 0.15\noutput_price = 0.6\n[[replicas]]\nurl = \"http://b\"\nprompt_price = 3";
    assert_eq!(price(second), Some((3.0, 0.6)));
    let text = "[model]\nname = \"m\"\noutput_price = 2\n[[replicas]]\nurl = \"http://a\"\n";
    assert_eq!(Config::parse(text, &|_| None).expect("valid").backend().price(&[]), Some((0.0, 2.0)));
}

#[test]
fn what_could_find_nothing_is_named() {
    let one = |lines: &str| format!("[model]\nname = \"m\"\n[discovery]\n{lines}\n");
    check(&one("file = \"replicas.toml\""), "valid");
    check(&one("dns = \"vllm.default.svc\"\nname_servers = [\"10.0.0.10:53\"]"), "valid");
    check("[discovery]\nfile = \"replicas.toml\"", "model.name");
    check("[discovery]\ndns = \"a\"", "discovery.replica.model");
    check(&one("dns = \"a\"\nsrv = \"b\""), "discovery.srv");
    check(&one("dns = \"a\"\nport = 0"), "discovery.port");
    check(&one("file = \"a\"\nfile_ms = 0"), "discovery.file_ms");
    check(&one("dns = \"a\"\nttl_ms_min = 9\nttl_ms_max = 8"), "discovery.ttl_ms_max");
    check(&one("name_servers = [\"10.0.0.10\"]"), "name_servers");
    check(&one("dns = \"a\"\n[discovery.replica]\nname = \"x\""), "discovery.replica.name");
    check(&one("dns = \"a\"\n[discovery.replica]\nurl = \"http://x\""), "discovery.replica.url");
    check(&one("dns = \"a\"\n[discovery.replica]\nkind = \"local\""), "discovery.replica.kind");
    check(&one("dns = \"a\"\n[discovery.replica]\nrows_max = 0"), "discovery.replica.rows_max");
    check("[model]\nname = \"m\"\naliases = [\"a\", \"m\"]", "model.aliases[1]");
    check("[model]\naliases = [\"\"]", "model.aliases[0]");
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
        let whole = if ["[[replicas]]", "[discovery]"].iter().any(|part| block.contains(part)) {
            block.to_owned()
        } else {
            format!("{block}{replica}")
        };
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
