//! `relserve backup` and `relserve restore`: a server at work is copied, and what was acknowledged is there again.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use serde_json::{Value, json};

use crate::common::batch::{line, make, read, send, until, until_over, upload};
use crate::common::client::Client;
use crate::common::seen_in_time;
use crate::program::{run, told};
use crate::support;

/// Requests of the batch that a backup is made of.
const REQUESTS: u64 = 4_000;
/// Rows of the relQuery that a ticket stands for.
const TICKET_ROWS: u64 = 200;

fn relserve(arguments: &[&dyn AsRef<std::ffi::OsStr>]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_relserve"));
    command.args(arguments.iter().map(AsRef::as_ref)).stdin(Stdio::null()).output().unwrap()
}

fn back_up(data: &Path, archive: &Path) -> Output {
    relserve(&[&"backup", &"--data-dir", &data, &"--out", &archive])
}

fn restore(archive: &Path, data: &Path) -> Output {
    relserve(&[&"restore", &archive, &"--data-dir", &data])
}

fn said(output: &Output) -> String {
    [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned()).concat()
}

/// What a command that must fail says.
fn refused(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{}", said(output));
    said(output)
}

/// The real program on a folder, and how to call it; killed at the end of its test.
struct Serving(Child, Client);

impl Serving {
    fn start(data: &Path, more: &[&str], key: &mut Option<String>) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_relserve"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--show-key"]).args(more);
        let (process, said) = run(command.arg("--data-dir").arg(data));
        *key = told(&said, "API key: ").map(str::to_owned).or(key.take());
        let address = told(&said, " on http://").expect("it says where it is").parse().unwrap();
        Self(process, Client { address, key: key.clone() })
    }

    /// SIGKILL, and its end.
    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Rows of a route that are counted.
async fn counted(client: &Client, route: &str) -> u64 {
    let usage = client.get("/v1/usage?days=2").await.json();
    let rows = usage["data"].as_array().unwrap().iter().filter(|row| row["route"] == route);
    rows.map(|row| row["rows"].as_u64().unwrap()).sum()
}

#[actix_web::test]
async fn a_backup_of_a_server_at_work_has_what_was_acknowledged_and_its_batch_ends_with_each_row_once() {
    let outer = tempfile::tempdir().unwrap();
    let [data, again, archive] = ["data", "again", "backup.zip"].map(|name| outer.path().join(name));
    let mut key = None;
    let server = Serving::start(&data, &[], &mut key);
    let client = &server.1;
    let table = "id,review\n1,I loved it\n";
    std::fs::create_dir_all(data.join("tables/1")).unwrap();
    std::fs::write(data.join("tables/1/reviews.csv"), table).unwrap();
    let form = [("purpose", None, "user_data"), ("file", Some("sales.csv"), "a,b\n1,2\n")];
    let kept = send(client, &form).await.json()["id"].as_str().unwrap().to_owned();
    let request = |row: u64| {
        let body = json!({"prompt": [row % 150 + 1, row / 150 + 1], "max_tokens": 1, "temperature": 0});
        line(&format!("row {row}"), body) + "\n"
    };
    let file = upload(client, &(0..REQUESTS).map(request).collect::<String>()).await;
    let batch = make(client, &file).await["id"].as_str().unwrap().to_owned();
    let rows: Vec<[String; 1]> = (0..TICKET_ROWS).map(|row| [format!("word {row}")]).collect();
    let body =
        json!({"template": "Tell of {w}", "rows": rows, "max_tokens": 6, "temperature": 1, "deadline_ms": 1});
    let partial = client.post("/v1/relqueries", &body).await.json();
    let ticket = format!("/v1/relqueries/{}", partial["ticket"].as_str().unwrap());
    let begun = until(client, &batch, |batch| batch["request_counts"]["completed"].as_u64() > Some(0)).await;
    let seen = client.get(&ticket).await.json();

    let made = back_up(&data, &archive);
    assert!(made.status.success(), "{}", said(&made));
    assert_eq!(std::fs::metadata(&archive).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(refused(&back_up(&data, &archive)).contains("backup.zip is there already"));
    server.kill();
    let restored = restore(&archive, &again);
    assert!(restored.status.success(), "{}", said(&restored));
    assert_eq!(names(outer.path()), ["again", "backup.zip", "data"], "nothing else is left");
    assert_eq!(names(&again), ["relserve.db", "tables"]);
    assert_eq!(std::fs::read_to_string(again.join("tables/1/reviews.csv")).unwrap(), table);

    let server = Serving::start(&again, &[], &mut key);
    let client = &server.1;
    let now = client.get(&format!("/v1/batches/{batch}")).await.json();
    let completed = |batch: &Value| batch["request_counts"]["completed"].as_u64().unwrap();
    assert!(completed(&now) >= completed(&begun), "what was told stays told: {now}");
    let over = until_over(client, &batch).await;
    let counts = json!({"total": REQUESTS, "completed": REQUESTS, "failed": 0});
    assert_eq!(over["request_counts"], counts, "{over}");
    let answers = read(client, &over["output_file_id"]).await;
    let expected: Vec<String> = (0..REQUESTS).map(|row| format!("row {row}")).collect();
    assert_eq!(answers.into_iter().map(|(name, _)| name).collect::<Vec<_>>(), expected);
    assert_eq!(counted(client, "batches").await, REQUESTS, "each row is counted once");
    let content = client.get(&format!("/v1/files/{kept}/content")).await;
    assert_eq!((content.status, content.body.as_str()), (200, "a,b\n1,2\n"));
    let ends = async {
        loop {
            let whole = client.get(&ticket).await.json();
            if whole["status"] != "running" {
                return whole;
            }
        }
    };
    let whole = seen_in_time("the ticket ends", ends).await;
    assert_eq!(whole["status"], "completed", "{whole}");
    let texts = |reply: &Value| -> Vec<Value> {
        reply["rows"].as_array().unwrap().iter().map(|row| row["text"].clone()).collect()
    };
    for (row, (before, after)) in texts(&seen).into_iter().zip(texts(&whole)).enumerate() {
        assert!(before.is_null() || before == after, "row {row} was seen otherwise: {before} {after}");
    }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A data folder with a database, two tables, and what no backup has; and its backup.
fn backed_up(outer: &Path) -> (std::path::PathBuf, std::path::PathBuf) {
    let [data, archive] = ["data", "backup.zip"].map(|name| outer.join(name));
    assert!(relserve(&[&"key", &"create", &"mine", &"--yes", &"--data-dir", &data]).status.success());
    for (name, text) in [("tables/1/a.csv", "a\n1\n"), ("tables/2/b.csv", "b\n2\n"), ("first-key", "rs-x\n")]
    {
        std::fs::create_dir_all(data.join(name).parent().unwrap()).unwrap();
        std::fs::write(data.join(name), text).unwrap();
    }
    let made = back_up(&data, &archive);
    assert!(made.status.success(), "{}", said(&made));
    assert!(said(&made).contains("not in it: ") && said(&made).contains("first-key (a key in clear text"));
    (data, archive)
}

/// The members of an archive, with where their content lies in it.
fn members(archive: &Path) -> Vec<(String, Vec<u8>, u64, u64)> {
    let mut zip = zip::ZipArchive::new(std::fs::File::open(archive).unwrap()).unwrap();
    let count = zip.len();
    let member = |index| {
        let mut file = zip.by_index(index).unwrap();
        let mut content = Vec::new();
        file.read_to_end(&mut content).unwrap();
        let start = file.data_start().expect("it was read");
        (file.name().unwrap().into_owned(), content, start, file.compressed_size())
    };
    (0..count).map(member).collect()
}

/// An archive of these members.
fn write_members<'a>(archive: &Path, members: impl IntoIterator<Item = (&'a str, &'a [u8])>) {
    let mut zip = zip::ZipWriter::new(std::fs::File::create(archive).unwrap());
    for (name, content) in members {
        zip.start_file(name, zip::write::SimpleFileOptions::default()).unwrap();
        zip.write_all(content).unwrap();
    }
    zip.finish().unwrap();
}

#[test]
fn a_damaged_archive_is_refused_by_its_members_name_and_nothing_is_written() {
    let outer = tempfile::tempdir().unwrap();
    let (_, archive) = backed_up(outer.path());
    let (whole, members) = (std::fs::read(&archive).unwrap(), members(&archive));
    let named: Vec<&str> = members.iter().map(|member| member.0.as_str()).collect();
    assert_eq!(named, ["relserve.db", "tables/1/a.csv", "tables/2/b.csv", "manifest.json"]);
    let damaged = outer.path().join("damaged.zip");
    let again = outer.path().join("again");
    let check = |what: &str| {
        let error = refused(&restore(&damaged, &again));
        assert!(error.contains(what) && error.contains("damaged.zip"), "{what}: {error}");
        assert_eq!(names(outer.path()), ["backup.zip", "damaged.zip", "data"], "nothing is written");
    };
    for (name, _, start, length) in &members {
        let mut bytes = whole.clone();
        bytes[usize::try_from(start + length / 2).unwrap()] ^= 0x5a;
        std::fs::write(&damaged, bytes).unwrap();
        check(&format!("the member `{name}` is damaged: "));
    }
    std::fs::write(&damaged, &whole[..whole.len() - 1_000]).unwrap();
    check("is no backup, or not all of one");
    let contents = || members.iter().map(|(name, content, ..)| (name.as_str(), content.as_slice()));
    write_members(&damaged, contents().filter(|(name, _)| *name != "tables/1/a.csv"));
    check("the member `tables/1/a.csv` is missing");
    write_members(&damaged, contents().chain([("tables/3/c.csv", &b"c"[..])]));
    check("the member `tables/3/c.csv` is not in the manifest");
    let other = |(name, content)| (name, if name == "tables/2/b.csv" { &b"b\n3\n"[..] } else { content });
    write_members(&damaged, contents().map(other));
    check("the member `tables/2/b.csv` is damaged: its digest is not the manifest's");
    let text = String::from_utf8(members[3].1.clone()).unwrap();
    let with_manifest = |manifest: &str| {
        let other = |(name, content)| match name {
            "manifest.json" => (name, manifest.as_bytes().to_vec()),
            _ => (name, <[u8]>::to_vec(content)),
        };
        let changed: Vec<_> = contents().map(other).collect();
        write_members(&damaged, changed.iter().map(|(name, content)| (*name, content.as_slice())));
    };
    with_manifest(&text.replace("tables/2/b.csv", "tables/../b.csv"));
    check("a backup has no member `tables/../b.csv`");
    let schema = format!("\"schema\": {}", store::SCHEMA_VERSION);
    with_manifest(&text.replace(&schema, "\"schema\": 999"));
    check(&format!("schema is version 999, this program knows up to {}", store::SCHEMA_VERSION));
    with_manifest(&text.replace("\"format\": 1", "\"format\": 2"));
    check("its form is version 2, this program reads version 1");
    std::fs::write(&damaged, &whole).unwrap();
    assert!(restore(&damaged, &again).status.success(), "as it was it is restored");
}

#[test]
fn a_folder_that_is_not_empty_is_refused_or_kept_and_one_in_use_is_refused() {
    let outer = tempfile::tempdir().unwrap();
    let (data, archive) = backed_up(outer.path());
    let error = refused(&restore(&archive, &data));
    assert!(error.contains("data is not empty") && error.contains("--replace"), "{error}");
    std::fs::write(data.join("tables/1/a.csv"), "a\nchanged\n").unwrap();
    let replace = || relserve(&[&"restore", &archive, &"--replace", &"--data-dir", &data]);
    let mut key = None;
    let server = Serving::start(&data, &[], &mut key);
    let error = refused(&replace());
    assert!(error.contains("is in use: the gateway `relserve` runs on it"), "{error}");
    server.kill();
    let restored = replace();
    assert!(restored.status.success(), "{}", said(&restored));
    let report = said(&restored);
    let kept =
        report.lines().find_map(|line| line.strip_prefix("what was there is in ")).expect("it is kept");
    let a = "tables/1/a.csv";
    assert_eq!(std::fs::read_to_string(Path::new(kept).join(a)).unwrap(), "a\nchanged\n");
    assert_eq!(std::fs::read_to_string(data.join(a)).unwrap(), "a\n1\n");
}

#[actix_web::test]
async fn a_database_that_was_restored_says_so_in_its_audit_log() {
    let outer = tempfile::tempdir().unwrap();
    let (_, archive) = backed_up(outer.path());
    let again = outer.path().join("again");
    let restored = restore(&archive, &again);
    assert!(restored.status.success(), "{}", said(&restored));
    assert_eq!(names(&again), ["relserve.db", "tables"], "nothing else is left");
    let url = format!("sqlite:{}", again.join("relserve.db").display());
    let log = store::Store::open(&url).await.unwrap().audit(None, 10).await.unwrap();
    let told: Vec<_> =
        log.iter().map(|entry| (&*entry.actor, &*entry.action, &*entry.subject, entry.is_done)).collect();
    let folder = again.display().to_string();
    let expected = [
        ("command line", "restore", &*folder, Some(true)),
        ("command line", "key.create", "mine", Some(true)),
    ];
    assert_eq!(told, expected);
    let details: Value = serde_json::from_str(&log[0].details).unwrap();
    assert_eq!((&details["archive"], &details["files"]), (&json!(archive.display().to_string()), &json!(3)));
}

#[test]
fn where_there_is_no_database_there_is_no_backup() {
    let outer = tempfile::tempdir().unwrap();
    let [data, archive] = ["data", "backup.zip"].map(|name| outer.path().join(name));
    let error = refused(&back_up(&data, &archive));
    assert!(error.contains("there is no database of RelServe at") && error.contains("--data-dir"), "{error}");
    let error = refused(&restore(&archive, &data));
    assert!(error.contains("cannot read") && error.contains("backup.zip"), "{error}");
    assert_eq!(names(outer.path()), [] as [&str; 0], "nothing was made");
}

#[actix_web::test]
async fn on_postgres_a_backup_has_the_tables_and_pg_dump_the_database() {
    let Some(postgres) = support::Server::start() else { return };
    let outer = tempfile::tempdir().unwrap();
    let names = ["data", "again", "backup.zip", "relserve.dump"];
    let [data, again, archive, dump] = names.map(|name| outer.path().join(name));
    let url = postgres.create_database("before").await;
    let mut key = None;
    let server = Serving::start(&data, &["--database", &url], &mut key);
    std::fs::create_dir_all(data.join("tables/1")).unwrap();
    std::fs::write(data.join("tables/1/a.csv"), "a\n1\n").unwrap();
    let file = upload(&server.1, "kept\n").await;
    let made = relserve(&[&"backup", &"--database", &url, &"--data-dir", &data, &"--out", &archive]);
    let report = said(&made);
    assert!(made.status.success() && report.contains("`pg_dump --format=custom"), "{report}");
    let dumped =
        Command::new("pg_dump").args(["--format=custom", "--dbname", &url, "--file"]).arg(&dump).output();
    let Ok(dumped) = dumped else { return eprintln!("skipped the rest: there is no pg_dump") };
    assert!(dumped.status.success(), "{}", said(&dumped));
    server.kill();

    let restored = restore(&archive, &again);
    assert!(restored.status.success() && said(&restored).contains("pg_restore"), "{}", said(&restored));
    let url = postgres.create_database("after").await;
    let mut command = Command::new("pg_restore");
    let loaded = command.args(["--no-owner", "--dbname", &url]).arg(&dump).output().unwrap();
    assert!(loaded.status.success(), "{}", said(&loaded));
    let server = Serving::start(&again, &["--database", &url], &mut key);
    let content = server.1.get(&format!("/v1/files/{file}/content")).await;
    assert_eq!((content.status, content.body.as_str()), (200, "kept\n"), "and its key still works");
    assert_eq!(std::fs::read_to_string(again.join("tables/1/a.csv")).unwrap(), "a\n1\n");
}
