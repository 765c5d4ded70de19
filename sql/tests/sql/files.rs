//! Files as tables: which there are, what is in them, and that one bad file spoils no other.

use std::sync::Arc;

use insta::assert_snapshot;
use sql::tables::{Files, ListedFile, TableFormat};

use crate::common::{Model, shown};
use crate::tenant::Tenant;

const REVIEWS: &str = "reviewId,text,stars\n1,\"a bright\njoy, really\",5\n2,so dull,1\n3,,4\n";

const NAMES: &str = "SELECT table_schema, table_name FROM information_schema.tables \
                     WHERE table_schema NOT IN ('information_schema', 'pg_catalog') ORDER BY 1, 2";

#[tokio::test]
async fn every_file_is_a_table_and_new_ones_are_seen_by_the_next_query() {
    let tenant = Tenant::new(&[
        ("Reviews.csv", REVIEWS),
        ("films 2024.tsv", "film\tkind\nup\tfamily\n"),
        ("events.jsonl", "{\"at\":1,\"what\":\"seen\"}\n{\"at\":2,\"what\":null}\n"),
        ("notes.txt", "no table"),
        (".hidden.csv", "a\n1\n"),
    ]);
    let session = tenant.plain().await;
    assert_snapshot!(shown(&session, NAMES).await, @r"
    +--------------+------------+
    | table_schema | table_name |
    +--------------+------------+
    | public       | events     |
    | public       | films_2024 |
    | public       | reviews    |
    | relserve     | errors     |
    | relserve     | queries    |
    +--------------+------------+
    ");
    assert_snapshot!(shown(&session, "SELECT * FROM reviews").await, @r"
    +----------+-------------+-------+
    | reviewId | text        | stars |
    +----------+-------------+-------+
    | 1        | a bright    | 5     |
    |          | joy, really |       |
    | 2        | so dull     | 1     |
    | 3        |             | 4     |
    +----------+-------------+-------+
    ");
    assert_snapshot!(shown(&session, "SELECT kind FROM films_2024 JOIN events ON at = 1").await, @r"
    +--------+
    | kind   |
    +--------+
    | family |
    +--------+
    ");
    std::fs::write(tenant.folder().join("late.csv"), "a\n7\n").unwrap();
    assert_snapshot!(shown(&session, "SELECT a + 1 AS b FROM late").await, @r"
    +---+
    | b |
    +---+
    | 8 |
    +---+
    ");
    std::fs::write(tenant.folder().join("late.csv"), "a,b\nx,longer\n").unwrap();
    assert_snapshot!(shown(&session, "SELECT a, b FROM late").await, @r"
    +---+--------+
    | a | b      |
    +---+--------+
    | x | longer |
    +---+--------+
    ");
}

#[tokio::test]
async fn a_backslash_before_a_quote_is_a_backslash() {
    let tenant = Tenant::new(&[]);
    let mut text = "id,text,n\n".to_owned();
    for row in 0..20_000 {
        // Longer than what is read at a time, so that a row that is taken for two shows.
        let own = if row == 77 { r#""a path, C:\dir\""# } else { "\"line, one\nline two\"" };
        text.push_str(&format!("{row},{own},{}\n", row % 5));
    }
    std::fs::write(tenant.folder().join("paths.csv"), text).unwrap();
    let session = tenant.plain().await;
    let query = "SELECT count(*) AS rows, max(n) + 0 AS n, max(text) AS text FROM paths WHERE id <= 77";
    assert_snapshot!(shown(&session, query).await, @r"
    +------+---+-----------+
    | rows | n | text      |
    +------+---+-----------+
    | 78   | 4 | line, one |
    |      |   | line two  |
    +------+---+-----------+
    ");
}

#[tokio::test]
async fn a_model_reads_the_rows_of_a_file_that_a_condition_keeps() {
    let tenant = Tenant::new(&[("reviews.csv", REVIEWS)]);
    let model = Model::words(&[("bright", "yes")]);
    let session = tenant.session(&model).await;
    let text = "SELECT stars FROM reviews WHERE ai_if(text, 'is it good?') AND stars > 1";
    assert_snapshot!(shown(&session, text).await, @r"
    +-------+
    | stars |
    +-------+
    | 5     |
    +-------+
    ");
    assert_eq!(model.asked().len(), 1, "{:?}", model.asked());
}

#[tokio::test]
async fn a_bad_file_is_an_error_of_its_table_alone() {
    let tenant = Tenant::new(&[
        ("good.csv", "a\n1\n"),
        ("bad.parquet", "this is no parquet"),
        ("twice.csv", "a\n1\n"),
        ("Twice.tsv", "a\n1\n"),
        ("empty.csv", ""),
    ]);
    let session = tenant.plain().await;
    assert_snapshot!(shown(&session, NAMES).await, @r"
    +--------------+------------+
    | table_schema | table_name |
    +--------------+------------+
    | public       | good       |
    | relserve     | errors     |
    | relserve     | queries    |
    +--------------+------------+
    ");
    assert_snapshot!(shown(&session, "SELECT * FROM good").await, @r"
    +---+
    | a |
    +---+
    | 1 |
    +---+
    ");
    for table in ["bad", "twice", "empty"] {
        let said = shown(&session, &format!("SELECT * FROM {table}")).await;
        assert!(said.starts_with("error: ") && said.contains(table), "{said}");
    }
    assert_snapshot!(
        shown(&session, "SELECT * FROM twice").await,
        @"error: Execution error: table `twice`: `Twice.tsv` and `twice.csv` would have the same name `twice`; rename one of them"
    );
}

#[tokio::test]
async fn a_folder_of_parquet_parts_is_one_table_with_its_partitions_as_columns() {
    let tenant = Tenant::new(&[]);
    let session = tenant.plain().await;
    for (year, n) in [(2023, 1), (2024, 2)] {
        let made = format!("CREATE TABLE part AS SELECT {n} AS n, 'text {n}' AS t");
        shown(&session, &made).await;
        let folder = tenant.folder().join(format!("sales/year={year}"));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::rename(tenant.folder().join("part.parquet"), folder.join("a.parquet")).unwrap();
    }
    assert_snapshot!(shown(&session, "SELECT * FROM sales WHERE year > '2023'").await, @r"
    +---+--------+------+
    | n | t      | year |
    +---+--------+------+
    | 2 | text 2 | 2024 |
    +---+--------+------+
    ");
    assert_snapshot!(shown(&session, "SELECT arrow_typeof(t) AS t, count(*) AS n FROM sales GROUP BY 1").await, @r"
    +------+---+
    | t    | n |
    +------+---+
    | Utf8 | 2 |
    +------+---+
    ");
}

#[tokio::test]
async fn filters_and_columns_go_into_the_reader_of_a_parquet_file() {
    let tenant = Tenant::new(&[]);
    let session = tenant.plain().await;
    shown(&session, "CREATE TABLE t AS SELECT * FROM (VALUES (1, 'a', 0), (2, 'b', 0)) AS v(n, t, z)").await;
    let plan = shown(&session, "EXPLAIN SELECT t FROM t WHERE n > 1").await;
    assert!(plan.contains("predicate=n@0 > 1") && plan.contains("projection=[t]"), "{plan}");
}

#[tokio::test]
async fn listed_files_are_the_schema_files_wherever_they_lie() {
    let elsewhere = tempfile::tempdir().unwrap();
    let (path, other) = (elsewhere.path().join("f-17"), elsewhere.path().join("f-18"));
    std::fs::write(&path, "a\n1\n").unwrap();
    std::fs::write(&other, "{\"b\":2}\n").unwrap();
    let file = |name: &str, path: &std::path::Path, format| ListedFile {
        name: name.into(),
        path: path.into(),
        format,
    };
    let files = Arc::new(Files::new(vec![file("Up load.csv", &path, None)]));
    let tenant = Tenant::of_files(Arc::clone(&files));
    let session = tenant.plain().await;
    assert_snapshot!(shown(&session, "SELECT * FROM files.up_load").await, @r"
    +---+
    | a |
    +---+
    | 1 |
    +---+
    ");
    files.replace(vec![
        file("other", &other, Some(TableFormat::JsonLines)),
        file("gone.csv", &elsewhere.path().join("gone"), None),
        file("what.xlsx", &other, None),
    ]);
    assert_snapshot!(shown(&session, "SELECT * FROM files.other").await, @r"
    +---+
    | b |
    +---+
    | 2 |
    +---+
    ");
    assert_snapshot!(
        shown(&session, "SELECT * FROM files.gone").await,
        @"error: Execution error: table `gone`: `gone.csv` cannot be read: entity not found"
    );
    assert_snapshot!(
        shown(&session, "SELECT * FROM files.\"what_xlsx\"").await,
        @"error: Execution error: table `what_xlsx`: `what.xlsx` ends in none of csv, tsv, parquet, jsonl, ndjson"
    );
    assert_snapshot!(
        shown(&session, "SELECT * FROM files.up_load").await,
        @"error: Error during planning: table 'datafusion.files.up_load' not found"
    );
    assert_snapshot!(shown(&session, NAMES).await, @r"
    +--------------+------------+
    | table_schema | table_name |
    +--------------+------------+
    | files        | other      |
    | relserve     | errors     |
    | relserve     | queries    |
    +--------------+------------+
    ");
}
