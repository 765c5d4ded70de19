//! The program on the data folder of an older one: it goes on where that one stopped. There has been no release; the
//! oldest version of the schema that had batches stands for one.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::common::batch::{read, until_over};
use crate::common::client::Client;
use crate::common::seen_in_time;
use crate::program::{run, told};

/// What versions 1 to 4 of the schema added, with rows as servers of theirs wrote them: `store/tests/suite/versions.rs`.
const VERSIONS: [&str; 4] = [
    include_str!("../../../store/tests/versions/01.sql"),
    include_str!("../../../store/tests/versions/02.sql"),
    include_str!("../../../store/tests/versions/03.sql"),
    include_str!("../../../store/tests/versions/04.sql"),
];

/// Writes the database that a program of version 4 left in a folder.
async fn leave(folder: &Path) {
    sqlx::any::install_default_drivers();
    let url = format!("sqlite://{}?mode=rwc", folder.join("relserve.db").display());
    let pool = sqlx::AnyPool::connect(&url).await.unwrap();
    let steps = VERSIONS.iter().flat_map(|step| step.split("\n--;\n"));
    let begun = ["PRAGMA journal_mode = WAL", "CREATE TABLE schema_version (version BIGINT PRIMARY KEY)"];
    // Of late, so that the API shows it.
    let today = "UPDATE token_usage SET day = CAST(julianday('now') - 2440587.5 AS INTEGER)";
    let noted = ["INSERT INTO schema_version VALUES (1), (2), (3), (4)", today];
    for statement in begun.into_iter().chain(steps).chain(noted) {
        sqlx::query(sqlx::AssertSqlSafe(statement)).execute(&pool).await.unwrap();
    }
    pool.close().await;
}

fn relserve(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_relserve"));
    command.args(arguments).arg("--data-dir").arg(folder).stdin(Stdio::null());
    command
}

#[actix_web::test]
async fn the_data_folder_of_version_4_opens_with_its_keys_usage_tickets_and_batch() {
    let folder = tempfile::tempdir().unwrap();
    leave(folder.path()).await;
    let doctor = relserve(folder.path(), &["doctor", "--listen", "127.0.0.1:0"]).output().unwrap();
    let said = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(said.contains("relserve.db is there; the next start updates its tables"), "{said}");
    let (mut process, said) = run(&mut relserve(folder.path(), &["serve", "--listen", "127.0.0.1:0"]));
    assert_eq!(told(&said, "API key: "), None, "it has keys: {said:?}");
    let address = told(&said, " on http://").expect("it says where it is").parse().unwrap();
    let client = Client { address, key: Some(format!("rs-{}", "0123456789abcdef".repeat(4))) };

    let usage = client.get("/v1/usage?days=2").await;
    assert_eq!(usage.status, 200, "the key works: {}", usage.body);
    let rows = |day: &Value| (day["route"] == "relqueries").then(|| day["rows"].as_u64().unwrap());
    let usage = usage.json();
    let counted: u64 = usage["data"].as_array().unwrap().iter().filter_map(rows).sum();
    assert!(counted >= 40, "{usage}");

    let batch = until_over(&client, "batch_old").await;
    let counts = json!({"total": 4, "completed": 4, "failed": 0});
    assert_eq!((&batch["status"], &batch["request_counts"]), (&json!("completed"), &counts), "{batch}");
    let answers = read(&client, &batch["output_file_id"]).await;
    let names: Vec<&str> = answers.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["row 0", "row 1", "row 2", "row 3"], "each once");
    assert_eq!((answers[0].1.as_str(), answers[2].1.as_str()), ("as it was 0", "as it was 2"));

    let ends = async {
        loop {
            let ticket = client.get("/v1/relqueries/rq-5").await.json();
            if ticket["status"] != "running" {
                return ticket;
            }
        }
    };
    let ticket = seen_in_time("the ticket ends", ends).await;
    assert_eq!((&ticket["status"], &ticket["rows"][0]["text"]), (&json!("completed"), &json!("as it was")));
    assert!(ticket["rows"][1]["text"].is_string(), "{ticket}");
    let ended = client.get("/v1/relqueries/rq-4").await.json();
    assert_eq!((&ended["status"], &ended["rows"][0]["text"]), (&json!("completed"), &json!("as it was")));
    process.kill().unwrap();
    process.wait().unwrap();
}

#[actix_web::test]
async fn the_data_folder_of_a_newer_program_is_refused_with_both_versions_and_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    leave(folder.path()).await;
    let path = folder.path().join("relserve.db");
    let pool = sqlx::AnyPool::connect(&format!("sqlite://{}", path.display())).await.unwrap();
    sqlx::query("INSERT INTO schema_version VALUES (999)").execute(&pool).await.unwrap();
    pool.close().await;
    let before = std::fs::read(&path).unwrap();
    let expected = format!("schema is version 999, this program knows up to {}", store::SCHEMA_VERSION);
    let archive = folder.path().join("backup.zip").display().to_string();
    let commands: [&[&str]; 4] = [
        &["serve", "--listen", "127.0.0.1:0"],
        &["key", "list"],
        &["sign-in"],
        &["backup", "--out", &archive],
    ];
    for command in commands {
        let output = relserve(folder.path(), command).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{command:?}: {error}");
        assert!(error.contains(&expected), "{command:?}: {error}");
    }
    assert!(before == std::fs::read(&path).unwrap(), "nothing was written");
    assert!(!Path::new(&archive).exists());
}
