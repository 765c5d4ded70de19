//! Views and external tables: they outlive the server, and say why where they cannot be made again.

use datafusion::common::TableReference;
use sql::tables::change::rename;

use crate::common::{Model, shown};
use crate::tenant::Tenant;

const NUMBERS: &str = "n,t\n1,one\n2,two\n3,three\n";

/// The one value of a query.
async fn value(session: &sql::Session, text: &str) -> String {
    let table = shown(session, text).await;
    let lines: Vec<&str> = table.lines().filter(|line| line.starts_with('|')).collect();
    match lines.as_slice() {
        [_, line] => line.trim_matches(['|', ' ']).to_owned(),
        _ => table,
    }
}

#[tokio::test]
async fn views_and_external_tables_outlive_the_server() {
    let tenant = Tenant::new(&[("numbers.csv", NUMBERS), ("odd.txt", "n;t\n7;seven\n")]);
    let model = Model::words(&[("two", "yes")]);
    let session = tenant.session(&model).await;
    for text in [
        // Read by one whose name comes before, by an old name, and by that of the database.
        "CREATE VIEW even AS SELECT n FROM numbers WHERE ai_if(t, 'is it even?', on_error => 'error')",
        "CREATE VIEW doubled AS SELECT 2 * n AS n FROM datafusion.public.even",
        "CREATE VIEW passing AS SELECT 1 AS n",
        "CREATE OR REPLACE VIEW passing AS SELECT 5 AS n",
        "CREATE VIEW \"My / View\" AS SELECT 6 AS n",
        "CREATE VIEW gone AS SELECT 1 AS n",
        "DROP VIEW gone",
        "CREATE EXTERNAL TABLE seven STORED AS CSV LOCATION 'odd.txt' OPTIONS ('format.delimiter' ';')",
    ] {
        let made = shown(&session, text).await;
        assert!(!made.starts_with("error"), "{text}: {made}");
    }
    rename(session.context(), &TableReference::bare("passing"), "kept").await.expect("renamed");

    let tenant = tenant.restarted();
    let session = tenant.session(&model).await;
    assert_eq!(value(&session, "SELECT n FROM doubled").await, "4");
    assert_eq!(value(&session, "SELECT n FROM kept").await, "5");
    assert_eq!(value(&session, "SELECT n FROM \"My / View\"").await, "6");
    assert_eq!(value(&session, "SELECT t FROM seven").await, "seven");
    for name in ["gone", "passing"] {
        let error = value(&session, &format!("SELECT n FROM {name}")).await;
        assert!(error.contains("not found"), "{error}");
    }
    assert_eq!(tenant.names(), [".definitions", "numbers.csv", "odd.txt"]);
}

#[tokio::test]
async fn a_view_of_a_table_that_is_gone_says_so_and_comes_back_with_it() {
    let tenant = Tenant::new(&[("numbers.csv", NUMBERS)]);
    let session = tenant.plain().await;
    shown(&session, "CREATE VIEW most AS SELECT max(n) AS n FROM numbers").await;
    shown(&session, "CREATE VIEW other AS SELECT min(n) AS n FROM numbers").await;
    let file = tenant.folder().join("numbers.csv");
    std::fs::remove_file(&file).expect("removed");

    let tenant = tenant.restarted();
    let session = tenant.plain().await;
    let error = value(&session, "SELECT n FROM most").await;
    assert!(error.contains("`most` cannot be made again") && error.contains("numbers"), "{error}");
    // What cannot be made can be dropped, and made anew.
    shown(&session, "DROP VIEW other").await;
    let error = value(&session, "SELECT n FROM other").await;
    assert!(error.contains("not found"), "{error}");
    shown(&session, "CREATE VIEW other AS SELECT 9 AS n").await;
    std::fs::write(&file, NUMBERS).expect("written");

    let session = tenant.plain().await;
    assert_eq!(value(&session, "SELECT n FROM most").await, "3");
    assert_eq!(value(&session, "SELECT n FROM other").await, "9");
}

#[tokio::test]
async fn what_a_tenant_has_put_among_its_definitions_makes_views_and_nothing_else() {
    let tenant = Tenant::new(&[
        ("numbers.csv", NUMBERS),
        (".definitions/a.sql", "CREATE TABLE a AS SELECT 1"),
        (".definitions/b.sql", "CREATE VIEW b AS SELECT 1; DROP VIEW b"),
        (".definitions/c.sql", "CREATE EXTERNAL TABLE c STORED AS CSV LOCATION '/etc/passwd'"),
        (".definitions/numbers.sql", "CREATE VIEW numbers AS SELECT 1 AS n"),
        (".definitions/d.sql", "CREATE VIEW x AS SELECT 4 AS n"),
    ]);
    let session = tenant.plain().await;
    for (name, reason) in [("a", "neither a view"), ("b", "not one statement"), ("c", "in your folder")] {
        let error = value(&session, &format!("SELECT * FROM {name}")).await;
        assert!(error.contains(reason), "{error}");
    }
    assert_eq!(value(&session, "SELECT max(n) FROM numbers").await, "3");
    assert_eq!(value(&session, "SELECT n FROM d").await, "4");
}

#[tokio::test]
async fn a_view_reads_the_tables_of_now() {
    let tenant = Tenant::new(&[("people.csv", "name,city\nAnn,Rome\n")]);
    let session = tenant.plain().await;
    for text in [
        "CREATE VIEW names AS SELECT name FROM people",
        "CREATE TABLE k AS SELECT 1 AS a",
        "CREATE VIEW all_of_k AS SELECT * FROM k",
        "CREATE VIEW low AS SELECT 1 AS n",
        "CREATE VIEW high AS SELECT n + 1 AS n FROM low",
    ] {
        let made = shown(&session, text).await;
        assert!(!made.starts_with("error"), "{text}: {made}");
    }
    assert_eq!(value(&session, "SELECT * FROM names").await, "Ann");
    assert_eq!(value(&session, "SELECT * FROM high").await, "2");

    // The same columns in another order.
    std::fs::write(tenant.folder().join("people.csv"), "city,name,age\nRome,Ann,30\n").expect("written");
    assert_eq!(value(&session, "SELECT * FROM names").await, "Ann");
    shown(&session, "CREATE OR REPLACE VIEW low AS SELECT 5 AS n").await;
    assert_eq!(value(&session, "SELECT * FROM high").await, "6");
    shown(&session, "DROP TABLE k").await;
    let error = value(&session, "SELECT * FROM all_of_k").await;
    assert!(error.contains("`all_of_k` cannot be made again") && error.contains("not found"), "{error}");
    shown(&session, "CREATE TABLE k AS SELECT 7 AS b, 8 AS c").await;
    assert_eq!(value(&session, "SELECT c FROM all_of_k").await, "8");
    // Neither by way of another nor at once.
    for text in [
        "CREATE OR REPLACE VIEW low AS SELECT * FROM high",
        "CREATE OR REPLACE VIEW low AS SELECT * FROM low",
    ] {
        let error = shown(&session, text).await;
        assert!(error.contains("reads itself"), "{text}: {error}");
    }
    assert_eq!(value(&session, "SELECT * FROM high").await, "6");
}

#[tokio::test]
async fn a_view_reads_no_sessions_own_tables() {
    let tenant = Tenant::new(&[("numbers.csv", NUMBERS)]);
    let (one, other) = (tenant.plain().await, tenant.plain().await);
    shown(&one, "CREATE VIEW most AS SELECT max(n) AS n FROM numbers").await;
    // In front of the file for statements of this session, and for no view.
    let made = shown(&one, "CREATE TEMPORARY TABLE numbers AS SELECT 99 AS n").await;
    assert!(!made.starts_with("error"), "{made}");
    assert_eq!(value(&one, "SELECT n FROM numbers").await, "99");
    assert_eq!(value(&one, "SELECT n FROM most").await, "3");
    assert_eq!(value(&other, "SELECT n FROM most").await, "3");
    let error = shown(&one, "CREATE VIEW own AS SELECT n FROM numbers").await;
    assert!(error.contains("a temporary table is not"), "{error}");
}
