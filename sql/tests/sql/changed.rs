//! `INSERT`, `DELETE`, `TRUNCATE`, `ALTER TABLE .. RENAME` and temporary tables: what a table has afterwards,
//! and which tables are not changed.

use datafusion::common::TableReference;
use sql::tables::change::rename;

use crate::common::{Model, shown};
use crate::tenant::Tenant;

const NUMBERS: &str = "n,t\n1,one\n2,two\n3,three\n";

/// The one column of a query, as its lines are shown.
async fn column(session: &sql::Session, text: &str) -> Vec<String> {
    let table = shown(session, text).await;
    assert!(!table.starts_with("error"), "{text}: {table}");
    let lines = table.lines().filter(|line| line.starts_with('|')).skip(1);
    lines.map(|line| line.trim_matches(['|', ' ']).to_owned()).collect()
}

#[tokio::test]
async fn rows_are_added_behind_those_that_are_there_and_deleted_by_a_condition() {
    let tenant = Tenant::new(&[("numbers.csv", NUMBERS)]);
    let model = Model::words(&[("two", "yes")]);
    let session = tenant.session(&model).await;
    shown(&session, "CREATE TABLE kept (n bigint, t text)").await;
    assert_eq!(column(&session, "INSERT INTO kept SELECT n, t FROM numbers ORDER BY n").await, ["3"]);
    assert_eq!(column(&session, "INSERT INTO kept (t) VALUES ('none')").await, ["1"]);
    let all = "SELECT concat(n, t) AS all FROM kept";
    assert_eq!(column(&session, all).await, ["1one", "2two", "3three", "none"]);
    // What is NULL does not meet the condition and stays.
    assert_eq!(column(&session, "DELETE FROM kept WHERE n > 2").await, ["1"]);
    assert_eq!(column(&session, "DELETE FROM kept WHERE ai_if(t, 'is it even?')").await, ["1"]);
    assert_eq!(column(&session, all).await, ["1one", "none"]);
    let inner = "DELETE FROM kept WHERE n IN (SELECT n FROM numbers WHERE n = 1)";
    assert_eq!(column(&session, inner).await, ["1"]);
    shown(&session, "TRUNCATE TABLE kept").await;
    assert_eq!(column(&session, "SELECT count(*) FROM kept").await, ["0"]);
    assert_eq!(tenant.names(), ["kept.parquet", "numbers.csv"]);
}

#[tokio::test]
async fn rows_that_two_sessions_add_at_once_are_all_there() {
    let tenant = Tenant::new(&[]);
    let session = tenant.plain().await;
    shown(&session, "CREATE TABLE kept (n bigint)").await;
    let others = futures_util::future::join_all((0..8).map(|_| tenant.plain())).await;
    let added = others.iter().enumerate().map(|(n, session)| {
        let text = format!("INSERT INTO kept SELECT {n} FROM generate_series(1, 100)");
        async move { column(session, &text).await }
    });
    for count in futures_util::future::join_all(added).await {
        assert_eq!(count, ["100"]);
    }
    assert_eq!(column(&session, "SELECT count(*) FROM kept").await, ["800"]);
}

#[tokio::test]
async fn a_change_that_fails_leaves_the_table_as_it_was() {
    let tenant = Tenant::new(&[("numbers.csv", NUMBERS)]);
    let session = tenant.plain().await;
    shown(&session, "CREATE TABLE kept AS SELECT n FROM numbers").await;
    let failed = shown(&session, "INSERT INTO kept SELECT 1 / (n - 3) FROM numbers").await;
    assert!(failed.contains("Divide by zero"), "{failed}");
    assert_eq!(column(&session, "SELECT count(*) FROM kept").await, ["3"]);
    assert_eq!(tenant.names(), ["kept.parquet", "numbers.csv"]);
}

#[tokio::test]
async fn a_table_and_a_view_get_other_names() {
    let tenant = Tenant::new(&[("numbers.csv", NUMBERS)]);
    let session = tenant.plain().await;
    shown(&session, "CREATE TABLE made AS SELECT n FROM numbers").await;
    shown(&session, "CREATE VIEW seen AS SELECT n FROM numbers WHERE n > 1").await;
    let context = session.context();
    for (from, to) in [("made", "kept"), ("seen", "shown")] {
        rename(context, &TableReference::bare(from), to).await.unwrap();
    }
    assert_eq!(column(&session, "SELECT count(*) FROM kept").await, ["3"]);
    assert_eq!(column(&session, "SELECT count(*) FROM shown").await, ["2"]);
    for (from, to, said) in [
        ("numbers", "others", "it was not made by CREATE TABLE"),
        ("kept", "numbers", "table numbers already exists"),
        ("kept", "shown", "table shown already exists"),
        ("kept", "../up", "use letters, digits and `_`"),
        ("ghosts", "more", "table ghosts does not exist"),
    ] {
        let error = rename(context, &TableReference::bare(from), to).await.unwrap_err().to_string();
        assert!(error.contains(said), "{from} to {to}: {error}");
    }
    assert_eq!(tenant.names(), [".definitions", "kept.parquet", "numbers.csv"]);
}

#[tokio::test]
async fn a_temporary_table_is_of_its_session_and_before_others() {
    let tenant = Tenant::new(&[("numbers.csv", NUMBERS)]);
    let session = tenant.plain().await;
    shown(&session, "CREATE TEMPORARY TABLE numbers AS SELECT 7 AS n").await;
    assert_eq!(column(&session, "SELECT n FROM numbers").await, ["7"]);
    assert_eq!(column(&session, "INSERT INTO numbers VALUES (8)").await, ["1"]);
    assert_eq!(column(&session, "SELECT sum(n) FROM numbers").await, ["15"]);
    assert_eq!(column(&session, "WITH numbers AS (SELECT 1 AS n) SELECT n FROM numbers").await, ["1"]);
    assert_eq!(column(&session, "SELECT count(*) FROM public.numbers").await, ["3"]);
    let other = tenant.plain().await;
    assert_eq!(column(&other, "SELECT count(*) FROM numbers").await, ["3"]);
    shown(&session, "DROP TABLE numbers").await;
    assert_eq!(column(&session, "SELECT count(*) FROM numbers").await, ["3"]);
    shown(&session, "CREATE TEMP TABLE more AS SELECT 1 AS n").await;
    drop(session);
    assert_eq!(tenant.names(), ["numbers.csv"]);
}
