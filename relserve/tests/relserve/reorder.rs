//! `relserve reorder`: its input is named and read as that of `batch`.

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::json;

fn reorder(folder: &Path, arguments: &[&str], stdin: Stdio) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_relserve"));
    command.args(["reorder", "--lengths", "characters"]).args(arguments);
    command.current_dir(folder).stdin(stdin).output().unwrap()
}

/// The plan, and the table without its times.
fn solved(folder: &Path, input: &[&str], stdin: Stdio) -> (String, Vec<String>) {
    let output = reorder(folder, &[&["--output", "plan.jsonl"], input].concat(), stdin);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let orders = said.lines().skip_while(|line| !line.starts_with("best: ")).map(str::to_owned).collect();
    let plan = folder.join("plan.jsonl");
    let text = std::fs::read_to_string(&plan).unwrap();
    std::fs::remove_file(plan).unwrap();
    (text, orders)
}

#[actix_web::test]
async fn a_table_is_read_alike_whatever_it_is_kept_in() {
    let folder = tempfile::tempdir().unwrap();
    let rows: Vec<[String; 3]> = (0..12)
        .map(|i| {
            [format!("review {i}"), format!("a plot of many words {}", i % 3), format!("film {}", i % 3)]
        })
        .collect();
    let columns = ["review", "plot", "film"];
    let write = |name: &str, text: String| std::fs::write(folder.path().join(name), text).unwrap();
    let lines = |separator: &str| -> String {
        let rows = rows.iter().map(|row| row.join(separator) + "\n");
        std::iter::once(columns.join(separator) + "\n").chain(rows).collect()
    };
    write("in.csv", lines(","));
    write("in.tsv", lines("\t"));
    let object =
        |row: &[String; 3]| format!("{}\n", json!({"review": row[0], "plot": row[1], "film": row[2]}));
    write("in.jsonl", rows.iter().map(object).collect());
    let url = format!("sqlite:{}", folder.path().join("in.db").display());
    let pool = sqlx::SqlitePool::connect(&format!("{url}?mode=rwc")).await.unwrap();
    sqlx::query("CREATE TABLE reviews (review TEXT, plot TEXT, film TEXT)").execute(&pool).await.unwrap();
    for row in &rows {
        let insert = sqlx::query("INSERT INTO reviews VALUES ($1, $2, $3)");
        insert.bind(&row[0]).bind(&row[1]).bind(&row[2]).execute(&pool).await.unwrap();
    }
    let folder = folder.path();
    let expected = solved(folder, &["--input", "in.csv"], Stdio::null());
    assert_eq!(expected.0.lines().count(), 12);
    assert!(!expected.1.is_empty());
    for name in ["in.tsv", "in.jsonl"] {
        assert_eq!(solved(folder, &["--input", name], Stdio::null()), expected, "{name}");
    }
    let query = "SELECT * FROM reviews ORDER BY rowid";
    assert_eq!(solved(folder, &["--input", &url, "--query", query], Stdio::null()), expected);
    let file = std::fs::File::open(folder.join("in.csv")).unwrap();
    assert_eq!(solved(folder, &["--input", "-"], file.into()), expected);
    let (plan, _) = solved(folder, &["--input", "in.jsonl", "--columns", "film,review"], Stdio::null());
    assert!(plan.starts_with("{\"row\":") && !plan.contains("plot"), "{plan}");
}

#[test]
fn what_is_wrong_with_a_table_is_said_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("short.csv", "a,b\n1,2\n3\n");
    write("none.csv", "a,b\n");
    let cases: [(&[&str], &str); 5] = [
        (&["--input", "short.csv"], "short.csv: line 3: has 1 cells, the header has 2"),
        (&["--input", "none.csv"], "none.csv: has no row"),
        (&["--input", "absent.csv"], "cannot read absent.csv"),
        (&["--input", "in.txt"], "in.txt"),
        (&["--input", "short.csv", "--table", "t"], "--table and --query are for databases"),
    ];
    for (arguments, reason) in cases {
        let output = reorder(folder.path(), arguments, Stdio::null());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && said.contains(reason), "{said} lacks {reason}");
    }
}
