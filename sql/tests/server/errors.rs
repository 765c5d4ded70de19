//! Errors have the codes that clients act on, and messages without DataFusion's internals; what is too much
//! is refused.

use std::collections::HashMap;

use sql::server::{ConnectionLimits, Login};

use crate::harness::{Harness, error, of, value};

#[tokio::test]
async fn errors_have_the_codes_of_postgres() {
    let server = Harness::open().await;
    let (client, _) = server.client().await;
    for (text, code, part) in [
        ("SELEC 1", "42601", "syntax error"),
        ("SELECT 'a", "42601", "Unterminated"),
        ("SELECT 1 FROM", "42601", "syntax error"),
        ("SELECT * FROM ghosts", "42P01", "relation \"ghosts\" does not exist"),
        ("SELECT ghost FROM films", "42703", "column \"ghost\" does not exist"),
        ("SELECT f.ghost FROM films f", "42703", "column \"f.ghost\" does not exist"),
        ("SELECT ghost(1)", "42883", "function ghost does not exist"),
        ("SELECT name FROM films a, films b", "42702", "ambiguous"),
        ("SELECT 1 / 0", "22012", "division by zero"),
        ("SELECT 'x'::int", "22P02", "Cannot cast string 'x'"),
        ("CREATE TABLE films AS SELECT 1", "42P07", "already exists"),
        ("DROP TABLE ghosts", "42P01", "ghosts"),
        ("COPY films TO '/tmp/films.csv'", "42501", "not allowed"),
        ("COPY films FROM '/etc/passwd'", "42501", "not allowed"),
        ("COPY (SELECT 1) TO PROGRAM 'cat'", "42501", "not allowed"),
        ("COPY films TO '/tmp/films.parquet' STORED AS PARQUET", "42501", "not allowed"),
        ("COPY films TO 'films.parquet' OPTIONS ('format' 'csv')", "42501", "not allowed"),
        ("EXPLAIN ANALYZE COPY films TO '/tmp/films.parquet'", "42501", "not allowed"),
        ("COPY films FROM STDIN", "0A000", "COPY FROM STDIN"),
        ("COPY films TO STDOUT (FORMAT parquet)", "22023", "parquet"),
        ("COMMIT PREPARED 'x'", "42601", ""),
    ] {
        let (found, message) = error(&client, text).await;
        assert_eq!((found.as_str(), message.contains(part)), (code, true), "{text}: {found}: {message}");
        assert!(!message.contains("DataFusion") && !message.contains("backtrace"), "{message}");
    }
    assert_eq!(value(&client, "SELECT 1").await, "1");
}

#[tokio::test]
async fn what_is_too_much_is_refused_and_the_connection_goes_on() {
    let limits = ConnectionLimits {
        message_bytes_max: 400_000,
        statement_bytes_max: 200_000,
        statements_max: 2,
        cursors_max: 1,
        ..ConnectionLimits::default()
    };
    let logins = HashMap::from([("acme".to_owned(), Login::Open)]);
    let server = Harness::with(logins, limits, None).await;
    let (client, _) = server.client().await;

    let literal = format!("SELECT '{}'", "x".repeat(200_000));
    let expected =
        ("54000".to_owned(), "length of a statement in bytes exceeds the limit of 200000".to_owned());
    assert_eq!(error(&client, &literal).await, expected);

    let columns: Vec<String> = (0..10_000).map(|n| format!("{n} AS c{n}")).collect();
    assert_eq!(error(&client, &format!("SELECT {}", columns.join(","))).await.0, "54011");
    for bomb in [
        format!("SELECT 1{}", "+1".repeat(5_000)),
        format!("SELECT {}1{}", "(".repeat(5_000), ")".repeat(5_000)),
        format!("SELECT 1 {}", "UNION ALL SELECT 1 ".repeat(3_000)),
        format!("SELECT * FROM {}films{}", "(SELECT * FROM ".repeat(3_000), ")".repeat(3_000)),
    ] {
        assert_eq!(error(&client, &bomb).await.0, "54001", "{}", &bomb[..40]);
    }
    client.simple_query("DECLARE a CURSOR WITH HOLD FOR SELECT 1").await.unwrap();
    assert_eq!(error(&client, "DECLARE b CURSOR WITH HOLD FOR SELECT 1").await.0, "54000");
    let (first, second) = (client.prepare("SELECT 1").await, client.prepare("SELECT 2").await);
    assert_eq!(of(&client.prepare("SELECT 3").await.unwrap_err()).0, "54000");
    drop((first, second));
    assert_eq!(value(&client, "SELECT 1").await, "1");

    let message = format!("SELECT 1 -- {}", "x".repeat(400_000));
    assert_eq!(error(&client, &message).await.0, "54000");
    assert!(client.simple_query("SELECT 1").await.is_err(), "a message too long ends the connection");
}

/// As complex as is allowed, and more than a thread's usual stack holds.
#[tokio::test]
async fn what_is_complex_and_allowed_runs() {
    let server = Harness::open().await;
    let (client, _) = server.client().await;
    assert_eq!(value(&client, &format!("SELECT 1{}", "+1".repeat(900))).await, "901");
    let alternatives: Vec<String> = (0..400).map(|n| format!("id = {n}")).collect();
    let text = format!("SELECT count(*) FROM films WHERE {}", alternatives.join(" OR "));
    assert_eq!(value(&client, &text).await, "3");
    assert_eq!(client.query_one(&text, &[]).await.unwrap().get::<_, i64>(0), 3);
    let union = format!("SELECT count(*) FROM (SELECT 1 AS a {})", "UNION ALL SELECT 1 ".repeat(300));
    assert_eq!(value(&client, &union).await, "301");
}
