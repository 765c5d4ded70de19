//! Links that sign the page in: on a terminal at the start, by a command, once, and in no file.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::common::client::Client;
use crate::program::{Program, start, terminate, told};
use crate::terminal;

fn relserve(folder: &Path, arguments: &[&str]) -> std::process::Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_relserve"));
    command.arg("--data-dir").arg(folder).args(arguments).stdin(Stdio::null()).output().unwrap()
}

/// The link that the command prints, behind `#`.
fn token(folder: &Path, arguments: &[&str]) -> String {
    let output = relserve(folder, &[&["sign-in"], arguments].concat());
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    said.trim().split_once("/#sign-in=").unwrap_or_else(|| panic!("no link: {said}")).1.to_owned()
}

/// Who did what, and to what.
fn words(entry: &Value) -> [&str; 3] {
    ["actor", "action", "subject"].map(|name| entry[name].as_str().unwrap())
}

async fn sign_in(client: &Client, token: &str) -> (u16, Value) {
    let reply = client.post("/v1/sign-in", &json!({"token": token})).await;
    (reply.status, reply.json())
}

#[actix_web::test]
async fn a_link_of_the_command_signs_in_to_the_running_server_once() {
    let folder = tempfile::tempdir().unwrap();
    let server = Program::start(folder.path(), "");
    let address = server.address.strip_prefix("http://").unwrap().parse().unwrap();
    let nobody = Client { address, key: None };
    let link = token(folder.path(), &[]);
    let (status, signed_in) = sign_in(&nobody, &link).await;
    assert_eq!(
        (status, &signed_in["operator"]),
        (200, &json!(true)),
        "whoever is at the machine is its operator"
    );
    assert_eq!(sign_in(&nobody, &link).await.0, 401, "once");
    let operator = nobody.with_key(signed_in["key"].as_str().unwrap());
    assert_eq!(operator.get("/v1/keys").await.status, 200);
    assert_eq!(nobody.with_key(&server.key).get("/v1/keys").await.status, 403, "the first key is a tenant's");

    assert_eq!(operator.post("/v1/tenants", &json!({"name": "acme"})).await.status, 200);
    let (_, member) = sign_in(&nobody, &token(folder.path(), &["--tenant", "acme"])).await;
    assert_eq!((&member["tenant"], &member["operator"]), (&json!("acme"), &json!(false)));
    let unknown = relserve(folder.path(), &["sign-in", "--tenant", "nobody"]);
    assert!(!unknown.status.success());
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("`nobody`"), "{unknown:?}");
    let named = relserve(folder.path(), &["sign-in", "--url", "https://sheets.example.org/"]);
    let said = String::from_utf8(named.stdout).unwrap();
    assert!(said.starts_with("https://sheets.example.org/#sign-in=si-"), "{said}");

    let log = operator.get("/v1/audit").await.json();
    let told: Vec<_> = log["data"].as_array().unwrap().iter().map(words).collect();
    let expected = [
        ["command line", "sign_in.link", "default"],
        ["sign-in link", "sign_in.exchange", "3"],
        ["command line", "sign_in.link", "acme"],
        ["key 2", "tenant.create", "acme"],
        ["sign-in link", "sign_in.exchange", "2"],
        ["command line", "sign_in.link", "default"],
        ["server start", "key.create", "first"],
    ];
    assert_eq!(told, expected, "the newest first");
    for secret in [&*link, &*server.key, signed_in["key"].as_str().unwrap(), member["key"].as_str().unwrap()]
    {
        assert!(!log.to_string().contains(secret), "no secret is in it");
    }
}

#[test]
fn a_link_leads_to_where_the_server_of_its_folder_listens() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Program::start(folder.path(), "");
    let address = |arguments: &[&str]| {
        let output = relserve(folder.path(), &[&["sign-in"], arguments].concat());
        let said = String::from_utf8(output.stdout).unwrap();
        said.split_once("/#sign-in=").unwrap_or_else(|| panic!("no link: {said}")).0.to_owned()
    };
    assert_eq!(address(&[]), server.address, "a flag has chosen its port");
    let other = format!("sqlite:{}", folder.path().join("other.db").display());
    let of_configuration = "http://127.0.0.1:8080";
    assert_eq!(address(&["--database", &other, "--yes"]), of_configuration, "it runs on another database");
    server.terminate();
    assert!(server.ended().success());
    assert_eq!(address(&[]), of_configuration, "it listens no more");
    assert!(!folder.path().join("address").exists());
}

#[test]
fn a_server_whose_output_is_no_terminal_prints_no_link() {
    let folder = tempfile::tempdir().unwrap();
    let (mut server, said) = start(folder.path());
    assert!(!said.iter().any(|line| line.contains("si-")), "{said:?}");
    let address = told(&said, "RelServe serves relserve-demo on ").expect("where it listens");
    let how = format!(" sign-in --url {address}` prints a link");
    assert!(told(&said, "Page: ").is_some_and(|page| page.contains(&how)), "{said:?}");
    server.kill().unwrap();
    server.wait().unwrap();
}

/// `script` (of util-linux) runs a program on a terminal of its own.
#[actix_web::test]
async fn on_a_terminal_the_link_is_printed_and_nothing_else_ever_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let (program, data) = (terminal::program(), folder.path().display());
    let line = format!("exec {program} --data-dir {data} serve --listen 127.0.0.1:0");
    let log = folder.path().join("log");
    let mut script = Command::new("script");
    script.args(["-qfec", &format!("{line} 2>{}", log.display()), "/dev/null"]).env("RELSERVE_LOG", "trace");
    let piped = script.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut script = piped.spawn().expect("util-linux is there");
    let said = lines_until(script.stdout.take().unwrap(), "Try: ");
    let open = told(&said, "Open: http://").expect("a link");
    let (address, link) = open.trim().split_once("/#sign-in=").expect("a token");
    assert!(said.iter().any(|line| line.contains("signs in once, within 10 min")), "{said:?}");
    let nobody = Client { address: address.parse().unwrap(), key: None };
    let (status, signed_in) = sign_in(&nobody, link).await;
    assert_eq!(status, 200, "{signed_in}");
    let key = signed_in["key"].as_str().unwrap();
    assert_eq!(nobody.with_key(key).get("/v1/tenants").await.status, 200);
    let audit = nobody.with_key(key).get("/v1/audit").await.json();
    let entries: Vec<_> = audit["data"].as_array().unwrap().iter().map(words).collect();
    assert!(entries.contains(&["server start", "sign_in.link", "default"]), "{audit}");
    // Asked to, it ends the server too.
    terminate(script);
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap_or_default();
        for secret in [link, key] {
            let is_there = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
            assert!(!is_there, "{} has it", path.display());
        }
    }
    assert!(std::fs::metadata(&log).unwrap().len() > 0, "the log was written, and read here");
}

/// What a program says until a line begins so.
fn lines_until(output: impl std::io::Read, last: &str) -> Vec<String> {
    use std::io::BufRead as _;
    let mut said = Vec::new();
    for line in std::io::BufReader::new(output).lines().map_while(Result::ok) {
        let is_last = line.starts_with(last);
        said.push(line);
        if is_last {
            break;
        }
    }
    said
}
