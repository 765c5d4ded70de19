//! `relserve batch`, the real program: against a server of the test, and with a model of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};
use serving::model::Model;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use crate::common::{Server, config, lasting_store, model, serve_on};
use crate::program::{run as run_program, start as start_program, told};

/// A folder for a job's files, and a server.
struct Workplace {
    dir: tempfile::TempDir,
    server: Server,
    _store: tempfile::TempDir,
}

impl Workplace {
    async fn new() -> Self {
        Self::with(model()).await
    }

    async fn with(model: Model) -> Self {
        let (folder, store) = lasting_store().await;
        let mut config = config();
        config.cache.enabled = false;
        let server = serve_on(config, model, store).await;
        Self { dir: tempfile::tempdir().unwrap(), server, _store: folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a file.
    fn put(&self, name: &str, text: impl AsRef<[u8]>) {
        fs::write(self.path(name), text).unwrap();
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// The program with these arguments, in the folder, with the test's server.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = program(self.dir.path(), arguments);
        let address = format!("http://{}", self.server.client.address);
        command.args(["--server", &address, "--key", self.server.client.key.as_ref().unwrap()]);
        command
    }

    /// Runs a job to its end.
    async fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().await.unwrap()
    }

    /// Rows that the server has run.
    fn ran(&self) -> u64 {
        self.server.metric("relserve_rows_total{outcome=\"stop\"}") as u64
    }
}

fn program(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_relserve"));
    command.arg("batch").args(arguments).current_dir(folder).stdin(Stdio::null()).kill_on_drop(true);
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The job's output is this.
fn done(output: &Output) {
    assert!(output.status.success(), "{}", said(output));
}

/// The job is over, and some rows failed.
fn rows_failed(output: &Output) {
    assert_eq!(output.status.code(), Some(3), "{}", said(output));
}

/// The job has said no, and why.
fn refused(output: &Output, parts: &[&str]) {
    let said = said(output);
    assert!(!output.status.success(), "{said}");
    for part in parts {
        assert!(said.contains(part), "{said} lacks {part}");
    }
}

const JOB: [&str; 6] = ["--input", "in.csv", "--template", "Say {word}", "--output", "out.csv"];

#[actix_web::test]
async fn rows_come_out_in_the_order_they_came_in_with_their_columns() {
    let place = Workplace::new().await;
    place.put("in.csv", "id,word,note\n7,b,\"x, y\"\n8,a,\n9,b,\"two\nlines\"\n");
    done(&place.run(&JOB).await);
    assert_eq!(
        place.read("out.csv"),
        "row,id,word,note,output\n1,7,b,\"x, y\",b\n2,8,a,,a\n3,9,b,\"two\nlines\",b\n"
    );
    assert!(!place.path("out.csv.job").exists() && !place.path("out.csv.errors.jsonl").exists());
    refused(&place.run(&JOB).await, &["out.csv exists", "--restart"]);
    done(
        &place
            .run(&[&JOB[..], &["--restart", "--columns", "word", "--output-column", "said"]].concat())
            .await,
    );
    assert_eq!(place.read("out.csv"), "row,word,said\n1,b,b\n2,a,a\n3,b,b\n");
}

/// Reviews of forty films, whose number comes first and whose plot last: no two begin alike.
fn reviews() -> Vec<Value> {
    let plot = |film: usize| format!("{film} is a film about people who meet {film} times and then part");
    let row = |i: usize| json!({"review": format!("r{i}"), "seen": i % 2, "film": plot(i * 7 % 40)});
    (0..240).map(row).collect()
}

#[actix_web::test]
async fn a_job_that_orders_fields_shares_what_one_relquery_of_its_table_does() {
    let body = json!({"template": "Repeat: {*}", "rows": reviews(), "order": "fields", "cache": false,
        "max_tokens": 1, "class": "bulk"});
    let whole = Workplace::new().await;
    assert_eq!(whole.server.relquery(body).await.status, 200);
    let mut computed = vec![whole.server.gate.computed()];
    let rows: String = reviews().iter().map(|row| format!("{row}\n")).collect();
    for order in ["fields", "rows"] {
        let place = Workplace::new().await;
        place.put("in.jsonl", &rows);
        let job = ["--input", "in.jsonl", "--template", "Repeat: {*}", "--output", "out.jsonl"];
        let more = ["--order", order, "--rows-per-request", "12", "--requests", "1", "--no-cache"];
        done(&place.run(&[&job[..], &more, &["--max-tokens", "200"]].concat()).await);
        for (line, review) in place.read("out.jsonl").lines().zip(reviews()) {
            let line: Value = serde_json::from_str(line).unwrap();
            let record: Value = serde_json::from_str(line["output"].as_str().unwrap()).unwrap();
            assert_eq!(record, review, "whatever the order of its entries, it is its own row's");
        }
        computed.push(place.server.gate.computed());
    }
    let [whole, windows, buckets] = computed[..] else { panic!("three ways") };
    // A request's rows begin where those of the one before end.
    assert!(windows * 10 <= whole * 11, "{computed:?}");
    assert!(windows * 2 < buckets, "{computed:?}");
}

#[actix_web::test]
async fn a_bad_row_fails_alone_and_is_tried_again_alone() {
    let place = Workplace::new().await;
    let long = "x".repeat(3_000);
    let text = format!("id,word\n1,a\n2,b,c\n3,{long}\n4,\n5,e\n6,");
    place.put("in.csv", [text.as_bytes(), b"\xff\n"].concat());
    let job = [&JOB[..], &["--id", "id"]].concat();
    let output = place.run(&job).await;
    rows_failed(&output);
    assert!(said(&output).contains("3 rows failed"), "{}", said(&output));
    assert_eq!(place.read("out.csv"), "row,id,word,output\n1,1,a,a\n4,4,,Say\n5,5,e,e\n");
    let errors: Vec<Value> =
        place.read("out.csv.errors.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let ids: Vec<_> = errors.iter().map(|error| (error["row"].as_u64(), error["id"].as_str())).collect();
    assert_eq!(ids, [(Some(2), Some("2")), (Some(3), Some("3")), (Some(6), Some("6"))]);
    let message = |row: usize| errors[row]["error"]["message"].as_str().unwrap();
    assert!(message(0).contains("line 3: has 3 cells, the header has 2"), "{}", message(0));
    assert!(message(1).contains("tokens"), "{}", message(1));
    assert!(message(2).contains("line 7: `word` is not UTF-8"), "{}", message(2));

    let ran = place.ran();
    rows_failed(&place.run(&job).await);
    assert_eq!(place.ran(), ran, "nothing is left to run");
    rows_failed(&place.run(&[&job[..], &["--retry-errors"]].concat()).await);
    assert_eq!(place.ran(), ran, "the long one and the bad ones cannot run");
    assert_eq!(place.read("out.csv").lines().count(), 4);
    assert_eq!(place.read("out.csv.errors.jsonl").lines().count(), 3);
}

#[actix_web::test]
async fn rows_that_failed_run_again_alone_and_take_their_places() {
    let mut place = Workplace::with(Model { context_max: base::TokenCount(64), ..model() }).await;
    place.put("in.csv", format!("word\na\n{}\nc\n", "b".repeat(100)));
    rows_failed(&place.run(&JOB).await);
    assert_eq!(place.read("out.csv"), "row,word,output\n1,a,a\n3,c,c\n");
    assert_eq!(place.read("out.csv.errors.jsonl").lines().count(), 1);
    // A server with room for it.
    let roomy = Workplace::new().await;
    place.server = roomy.server;
    done(&place.run(&[&JOB[..], &["--retry-errors"]].concat()).await);
    assert_eq!(place.server.gate.computed(), "Say ".len() as u64 + 100, "the others did not run again");
    let long = "b".repeat(100);
    let short = "b".repeat(16);
    assert_eq!(place.read("out.csv"), format!("row,word,output\n1,a,a\n2,{long},{short}\n3,c,c\n"));
    assert!(!place.path("out.csv.errors.jsonl").exists() && !place.path("out.csv.job").exists());
}

#[actix_web::test]
async fn what_cannot_run_is_refused_before_anything_runs() {
    let place = Workplace::new().await;
    place.put("in.csv", "id,word\n1,a\n");
    place.put("twice.csv", "word,word\na,b\n");
    place.put("empty.csv", "");
    place.put("bad.csv", b"w\xff,word\n");
    place.put("bad.jsonl", "{\n");
    place.put("quote.csv", format!("word\n\"{}", "x".repeat(200_000)));
    fs::create_dir(place.path("folder.csv")).unwrap();
    let with = |changes: &[(usize, &'static str)]| {
        let mut job = JOB;
        for (index, value) in changes {
            job[*index] = value;
        }
        job
    };
    for (job, parts) in [
        (with(&[(1, "none.csv")]), &["cannot read none.csv"][..]),
        (with(&[(1, "folder.csv")]), &["folder.csv", "directory"]),
        (with(&[(1, "twice.csv")]), &["twice.csv", "`word`", "twice"]),
        (with(&[(1, "empty.csv")]), &["empty.csv", "empty"]),
        (with(&[(1, "bad.csv")]), &["bad.csv", "line 1", "column 1", "UTF-8"]),
        (with(&[(1, "bad.jsonl")]), &["bad.jsonl", "line 1"]),
        (with(&[(1, "in.txt")]), &["in.txt"]),
        (with(&[(3, "Say {none}")]), &["--template", "none", "id, word"]),
        (with(&[(3, "Say {")]), &["--template", "never closed"]),
        (with(&[(5, "folder.csv")]), &["folder.csv", "directory"]),
        (with(&[(5, "no/such/out.csv")]), &["folder does not exist"]),
        (with(&[(5, "out.txt")]), &["out.txt", "must end in"]),
        (with(&[(1, "sqlite:none.db")]), &["--table or --query"]),
    ] {
        refused(&place.run(&job).await, parts);
    }
    let quote = [&with(&[(1, "quote.csv")])[..], &["--row-bytes-max", "1000"]].concat();
    refused(&place.run(&quote).await, &["quote.csv", "1000 bytes", "quote not closed"]);
    place.put("open.csv", "id,word\n1,\"a\"\n2,\"b\n3,c\n4,d\n");
    refused(
        &place.run(&with(&[(1, "open.csv"), (5, "open out.csv")])).await,
        &["open.csv", "line 3", "quote is not closed"],
    );
    place.put("open header.csv", "id,\"word\n1,a\n");
    refused(&place.run(&with(&[(1, "open header.csv")])).await, &["line 1", "quote is not closed"]);
    refused(&place.run(&[&JOB[..], &["--temperature", "9"]].concat()).await, &["`temperature`"]);
    refused(&place.run(&[&JOB[..], &["--restart", "--integer", "five"]].concat()).await, &["--integer"]);
    refused(&place.run(&[&JOB[..], &["--order", "fields"]].concat()).await, &["--order fields", "{*}"]);
    refused(&place.run(&[&JOB[..], &["--fd", "id,word"]].concat()).await, &["--fd", "--order fields"]);
    let record = with(&[(3, "Say {word} {*}")]);
    let fd = [&record[..], &["--order", "fields", "--fd", "id,word"]].concat();
    refused(&place.run(&fd).await, &["--fd id,word", "`word`"]);
    assert_eq!(place.ran(), 0);
    assert!(!place.path("out.csv").exists());
}

#[actix_web::test]
async fn a_server_that_cannot_be_reached_or_refuses_the_key_ends_a_job_at_once() {
    let place = Workplace::new().await;
    place.put("in.csv", "id,word\n1,a\n");
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let address = format!("http://{closed}");
    // A job that tried again would not end.
    let patient = [&JOB[..], &["--patience", "1000000"]].concat();
    let job = [&patient[..], &["--server", &address]].concat();
    let output = program(place.dir.path(), &job).output().await.unwrap();
    refused(&output, &["--server", &address, "refused", "does a server run there?"]);
    let known = format!("http://{}", place.server.client.address);
    let job = [&patient[..], &["--server", &known, "--key", "rs-nobody"]].concat();
    refused(
        &program(place.dir.path(), &job).output().await.unwrap(),
        &["--key", "unknown or revoked API key"],
    );
    assert_eq!(fs::read_dir(place.dir.path()).unwrap().count(), 1, "nothing but the input is there");
}

#[actix_web::test]
async fn a_job_says_at_once_that_its_server_is_gone_and_that_it_is_back() {
    let place = tempfile::tempdir().unwrap();
    let rows: String = (0..20_000).map(|row| format!("{row}\n")).collect();
    fs::write(place.path().join("in.csv"), format!("word\n{rows}")).unwrap();
    let data = place.path().join("data");
    let (mut server, said) = start_program(&data);
    let address = told(&said, " on http://").unwrap().to_owned();
    let key = told(&said, "API key: ").unwrap().to_owned();
    let url = format!("http://{address}");
    let job = [&JOB[..], &["--server", &url, "--key", &key]].concat();
    let mut job = program(place.path(), &job).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(job.stderr.take().unwrap()).lines();
    let mut until = async |part: &str| loop {
        let line = lines.next_line().await.unwrap().unwrap_or_else(|| panic!("it ended without `{part}`"));
        if line.contains(part) {
            return line;
        }
    };
    let journal = place.path().join("out.csv.job/results.jsonl");
    let mut looks = tokio::time::interval(std::time::Duration::from_millis(20));
    while fs::metadata(&journal).map_or(0, |results| results.len()) == 0 {
        looks.tick().await;
    }
    server.kill().unwrap();
    server.wait().unwrap();
    let gone = until("trying again for up to 60 s").await;
    assert!(gone.contains(&address), "{gone}");
    let mut again = std::process::Command::new(env!("CARGO_BIN_EXE_relserve"));
    let (mut server, _) = run_program(again.args(["serve", "--listen", &address, "--data-dir"]).arg(&data));
    until("the server answers again").await;
    job.kill().await.unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
}

#[actix_web::test]
async fn a_job_that_was_begun_goes_on_and_another_is_refused() {
    let place = Workplace::new().await;
    let rows: String = (0..300).map(|row| format!("{row},w{row}\n")).collect();
    place.put("in.csv", format!("id,word\n{rows}"));
    place.server.gate.shut();
    let mut first = place.command(&[&JOB[..], &["--rows-per-request", "10"]].concat()).spawn().unwrap();
    place.server.until("rows wait", |server| server.running.app.runtime.shared.intake.unfinished() > 0).await;
    place.server.gate.allow(12);
    let journal = place.path("out.csv.job/results.jsonl");
    let lines = || fs::read_to_string(&journal).map_or(0, |text| text.matches('\n').count());
    place.server.until("rows are written down", |_| lines() >= 10).await;
    refused(&place.run(&JOB).await, &["another process"]);
    first.kill().await.unwrap();
    let kept = lines();
    place.server.gate.release();
    refused(&place.run(&[&JOB[..], &["--max-tokens", "3"]].concat()).await, &["another job", "`max_tokens`"]);
    let before = place.ran();
    place.server.until_free().await;
    let going = place.run(&JOB).await;
    done(&going);
    assert!(said(&going).contains(&format!("going on: {kept} rows")), "{}", said(&going));
    assert_eq!(place.read("out.csv").lines().count(), 301);
    assert!(place.ran() - before <= 300 - kept as u64 + 40, "what is written down does not run again");
}

#[actix_web::test]
async fn formats_carry_the_same_table() {
    let place = Workplace::new().await;
    let rows = [
        json!({"n": 1, "word": "a", "more": {"x": [1, null]}}),
        json!({"n": 2.5, "word": "b", "more": "ü, \"q\""}),
    ];
    let lines: String = rows.iter().map(|row| format!("{row}\n")).collect();
    place.put("in.jsonl", format!("\u{feff}{lines}"));
    for (from, to) in [("in.jsonl", "out.jsonl"), ("out.jsonl", "out.tsv"), ("out.tsv", "out.csv")] {
        let columns = ["--columns", "n,word,more"];
        let job = ["--input", from, "--output", to, "--template", "Say {word}"];
        done(&place.run(&[&job[..], &columns].concat()).await);
    }
    let read: Vec<Value> =
        place.read("out.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(read[0]["more"], rows[0]["more"]);
    assert_eq!(
        (&read[1]["n"], read[1]["output"].as_str(), &read[1]["row"]),
        (&json!(2.5), Some("b"), &json!(2))
    );
    assert!(
        place.read("out.jsonl").starts_with("{\"row\":1,\"n\":1,\"word\":\"a\""),
        "in the order of the columns"
    );
    assert_eq!(
        place.read("out.csv"),
        "row,n,word,more,output\n1,1,a,\"{\"\"x\"\":[1,null]}\",a\n2,2.5,b,\"ü, \"\"q\"\"\",b\n"
    );
}

#[actix_web::test]
async fn a_parquet_file_keeps_the_types_of_its_columns() {
    let place = Workplace::new().await;
    let rows = [
        json!({"n": 1, "word": "a", "weight": 0.5, "is": true, "mixed": 1, "none": null}),
        json!({"n": -7, "word": "b", "weight": 2, "is": null, "mixed": "x", "none": null}),
    ];
    place.put("in.jsonl", rows.iter().map(|row| format!("{row}\n")).collect::<String>());
    let columns = ["--columns", "n,word,weight,is,mixed,none"];
    for (from, to) in [("in.jsonl", "out.parquet"), ("out.parquet", "out.jsonl")] {
        let job = ["--input", from, "--output", to, "--template", "Say {word}", "--row-column"];
        let row = if to == "out.parquet" { "first" } else { "row" };
        let output = if to == "out.parquet" { "said" } else { "output" };
        let job = [&job[..], &[row, "--output-column", output], &columns].concat();
        done(&place.run(&job).await);
    }
    let expected = [
        r#"{"row":1,"n":1,"word":"a","weight":0.5,"is":true,"mixed":"1","none":null,"output":"a"}"#,
        r#"{"row":2,"n":-7,"word":"b","weight":2.0,"is":null,"mixed":"x","none":null,"output":"b"}"#,
    ];
    assert_eq!(place.read("out.jsonl").lines().collect::<Vec<_>>(), expected);
    // Torn in the middle of its pages: what it says of itself is whole.
    let mut torn = fs::read(place.path("out.parquet")).unwrap();
    torn[4..60].fill(0xee);
    place.put("torn.parquet", torn);
    let bad = ["--input", "torn.parquet", "--output", "x.csv", "--template", "Say {word}"];
    refused(&place.run(&bad).await, &[]);
    assert!(!place.path("x.csv").exists(), "no part of it is taken for the whole");
    place.put("bad.parquet", "PAR1 and nothing more");
    let bad = ["--input", "bad.parquet", "--output", "x.csv", "--template", "Say {word}"];
    refused(&place.run(&bad).await, &["bad.parquet"]);
}

/// Rows of the job that is killed.
const ROWS: usize = 20_000;

#[actix_web::test]
async fn a_job_of_20000_rows_that_is_killed_ten_times_has_each_row_once() {
    let place = Workplace::new().await;
    let rows: String = (0..ROWS).map(|row| format!("id {row},{row}\n")).collect();
    place.put("in.csv", format!("id,word\n{rows}"));
    let job = [&JOB[..], &["--id", "id", "--max-tokens", "1", "--chat", "false"]].concat();
    let mut random = StdRng::seed_from_u64(20_000);
    // The answers are of one token: rows end by length.
    let ran = |server: &Server| server.metric("relserve_rows_total{outcome=\"length\"}") as u64;
    for kill in 1..=10_u64 {
        let until = kill * ROWS as u64 / 12 + random.random_range(0..ROWS as u64 / 12);
        let mut child = place.command(&job).stderr(Stdio::null()).spawn().unwrap();
        place.server.until("so many rows have run", |server| ran(server) >= until).await;
        // SIGKILL.
        child.kill().await.unwrap();
        assert!(!place.path("out.csv").exists(), "not before all rows are in it");
    }
    done(&place.run(&job).await);
    let text = place.read("out.csv");
    let found: Vec<&str> = text.lines().skip(1).collect();
    assert_eq!(found.len(), ROWS);
    for (row, line) in found.iter().enumerate() {
        assert_eq!(*line, format!("{},id {row},{row},{}", row + 1, &row.to_string()[..1]));
    }
    let again = ran(&place.server) - ROWS as u64;
    assert!(again <= 10 * 256, "{again} rows ran twice: more than were under way at the kills");
}

#[actix_web::test]
async fn without_a_server_the_model_runs_in_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let text = "review\nA wonderful film.\nTwo lost hours.\n";
    fs::write(dir.path().join("in.csv"), text).unwrap();
    let job =
        ["--input", "in.csv", "--template", "Is the review positive? {review}", "--output", "out.jsonl"];
    let output = program(dir.path(), &[&job[..], &["--choice", "yes", "--choice", "no"]].concat());
    let output = { output }.output().await.unwrap();
    done(&output);
    assert!(said(&output).contains("2/2 rows"), "{}", said(&output));
    assert!(!said(&output).contains(['\r', '\u{1b}']), "in a file are lines: {:?}", said(&output));
    let written = fs::read_to_string(dir.path().join("out.jsonl")).unwrap();
    for line in written.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        assert!(["yes", "no"].contains(&line["output"].as_str().unwrap()), "{line}");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2, "nothing else is left");
}

#[actix_web::test]
async fn a_table_of_a_sqlite_database_is_read_by_name_or_query() {
    let place = Workplace::new().await;
    let url = format!("sqlite:{}", place.path("in.db").display());
    let pool = sqlx::SqlitePool::connect(&format!("{url}?mode=rwc")).await.unwrap();
    let made = "CREATE TABLE words (id INTEGER PRIMARY KEY, word TEXT, weight REAL, raw BLOB)";
    sqlx::query(made).execute(&pool).await.unwrap();
    let rows = "INSERT INTO words VALUES (2, 'b', 0.5, NULL), (1, 'a', NULL, NULL), (3, NULL, 1, x'00')";
    sqlx::query(rows).execute(&pool).await.unwrap();
    let job = |from: [&'static str; 2]| {
        [&["--input", &url, "--template", "Say {word}", "--output", "out.jsonl"][..], &from]
            .concat()
            .into_iter()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let with = |more: &[&str], from| {
        let mut all = job(from);
        all.extend(more.iter().map(|part| (*part).to_owned()));
        all
    };
    let run = async |arguments: Vec<String>| {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        place.run(&arguments).await
    };
    refused(&run(with(&[], ["--table", "words"])).await, &["--id"]);
    refused(&run(with(&["--id", "id"], ["--table", "none"])).await, &["none"]);
    rows_failed(&run(with(&["--id", "id"], ["--table", "words"])).await);
    let text = place.read("out.jsonl");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], r#"{"row":1,"id":1,"word":"a","weight":null,"raw":null,"output":"a"}"#);
    assert_eq!(lines[1], r#"{"row":2,"id":2,"word":"b","weight":0.5,"raw":null,"output":"b"}"#);
    assert_eq!(lines.len(), 2);
    assert!(place.read("out.jsonl.errors.jsonl").contains("`raw` is of type BLOB"));
    let query = ["--query", "SELECT id, word FROM words WHERE word IS NOT NULL ORDER BY id DESC"];
    done(&run(with(&["--restart"], query)).await);
    assert!(place.read("out.jsonl").starts_with(r#"{"row":1,"id":2,"word":"b","output":"b"}"#));
}

#[actix_web::test]
async fn a_table_of_a_postgres_database_keeps_its_types() {
    let Some(postgres) = crate::support::Server::start() else { return };
    let url = postgres.create_database("words").await;
    let pool = sqlx::PgPool::connect(&url).await.unwrap();
    let made = "CREATE TABLE words (id BIGINT, word TEXT, price NUMERIC, day DATE, tags TEXT[])";
    sqlx::query(made).execute(&pool).await.unwrap();
    let rows = "INSERT INTO words VALUES (2, 'b', 0.10, '2026-01-02', '{x,y}'), (1, 'a', NULL, NULL, NULL)";
    sqlx::query(rows).execute(&pool).await.unwrap();
    let place = Workplace::new().await;
    let job = [
        "--input",
        &url,
        "--template",
        "Say {word}",
        "--output",
        "out.jsonl",
        "--table",
        "words",
        "--id",
        "id",
    ];
    done(&place.run(&job).await);
    let expected = [
        r#"{"row":1,"id":1,"word":"a","price":null,"day":null,"tags":null,"output":"a"}"#,
        r#"{"row":2,"id":2,"word":"b","price":0.1,"day":"2026-01-02","tags":["x","y"],"output":"b"}"#,
    ];
    assert_eq!(place.read("out.jsonl").lines().collect::<Vec<_>>(), expected);
    let refusal = place.run(&[&job[..], &["--restart", "--columns", "none"]].concat()).await;
    refused(&refusal, &["no column `none`"]);
}
