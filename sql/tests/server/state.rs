//! What a connection keeps: settings, transactions, cursors, prepared statements.

use tokio_postgres::types::Type;

use crate::harness::{Harness, error, first_column, of, value};

#[tokio::test]
async fn settings_are_kept_shown_and_reset() {
    let server = Harness::open().await;
    let (client, _) = server.client().await;
    for (set, name, expected) in [
        ("SET extra_float_digits = 3", "extra_float_digits", "3"),
        ("SET application_name TO 'Metabase v1 [x]'", "application_name", "Metabase v1 [x]"),
        (
            "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ",
            "transaction_isolation",
            "repeatable read",
        ),
        ("SET TIME ZONE 'Europe/Berlin'", "timezone", "Europe/Berlin"),
        ("SET search_path TO public, other", "search_path", "public, other"),
        ("SET client_min_messages TO warning", "client_min_messages", "warning"),
        ("SET myapp.tenant = '7'", "myapp.tenant", "7"),
        ("SET NAMES 'UTF8'", "client_encoding", "UTF8"),
        ("SET relserve.max_tokens = 1000", "relserve.max_tokens", "1000"),
        ("SET relserve.model = 'other'", "relserve.model", "other"),
        ("RESET relserve.model", "relserve.model", ""),
        ("RESET relserve.max_tokens", "relserve.max_tokens", "0"),
        ("SET relserve.order = 'fields'", "relserve.order", "fields"),
        ("SET relserve.order TO DEFAULT", "relserve.order", "rows"),
        ("SET relserve.window_rows = 7", "relserve.window_rows", "7"),
        ("SET relserve.window_rows = DEFAULT", "relserve.window_rows", "2000"),
        ("SET relserve.cached_only = true", "relserve.cached_only", "true"),
        ("SET relserve.cached_only TO default", "relserve.cached_only", "auto"),
        ("SET relserve.model = 'other'", "relserve.model", "other"),
        ("SET relserve.model TO DEFAULT", "relserve.model", ""),
        ("RESET extra_float_digits", "extra_float_digits", "1"),
        ("SET application_name TO DEFAULT", "application_name", ""),
        ("DISCARD ALL", "timezone", "UTC"),
    ] {
        client.simple_query(set).await.unwrap_or_else(|error| panic!("{set}: {error:?}"));
        let rows = client.simple_query(&format!("SHOW {name}")).await.unwrap();
        let shown: Vec<&str> = rows
            .iter()
            .filter_map(|message| match message {
                tokio_postgres::SimpleQueryMessage::Row(row) => row.get(row.len() - 1),
                _ => None,
            })
            .collect();
        assert_eq!(shown, [expected], "{set}");
    }
    assert_eq!(error(&client, "SHOW no_such_setting").await.0, "42704");
    assert_eq!(error(&client, "SET no_such_setting = 1").await.0, "42704");
    let (_, message) = error(&client, "SET relserve.model = 'gone'").await;
    assert!(message.contains("the model `gone` does not exist; served: `usual`, `other`"), "{message}");
    let (_, message) = error(&client, "SET relserve.model = 'default'").await;
    assert!(message.contains("the model `default` does not exist"), "a text is no word: {message}");
    let (_, message) = error(&client, "SET relserve.model = ''").await;
    assert!(message.contains("relserve.model must be the name of a model, not ``"), "{message}");
    assert_eq!(value(&client, "SELECT set_config('application_name', 'x', false)").await, "x");
    assert_eq!(value(&client, "SHOW application_name").await, "x");
    assert!(first_column(&client, "SHOW ALL").await.len() > 50);
    // What asyncpg sends when a connection goes back to its pool.
    let reset = "SELECT pg_advisory_unlock_all(); CLOSE ALL; UNLISTEN *; RESET ALL;";
    client.simple_query("SET relserve.model = 'other'").await.unwrap();
    client.simple_query(reset).await.unwrap();
    assert_eq!(value(&client, "SHOW relserve.model").await, "");
}

#[tokio::test]
async fn settings_of_ours_are_reset_to_what_the_connection_began_with() {
    let server = Harness::open().await;
    let mut config = server.config();
    config.options("-c relserve.max_calls=5 -c relserve.order=exact");
    let (client, connection) = config.connect(tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    for reset in ["SET relserve.max_calls TO DEFAULT", "RESET relserve.max_calls", "RESET ALL"] {
        client.simple_query("SET relserve.max_calls = 9").await.unwrap();
        assert_eq!(value(&client, "SHOW relserve.max_calls").await, "9");
        client.simple_query(reset).await.unwrap();
        assert_eq!(value(&client, "SHOW relserve.max_calls").await, "5", "{reset}");
        assert_eq!(value(&client, "SHOW relserve.order").await, "exact");
    }
}

#[tokio::test]
async fn settings_of_a_transaction_end_with_it() {
    let server = Harness::open().await;
    let (client, _) = server.client().await;
    client.simple_query("BEGIN; SET LOCAL lock_timeout = 5; SET work_mem = '8MB'; COMMIT").await.unwrap();
    assert_eq!(value(&client, "SHOW lock_timeout").await, "0");
    assert_eq!(value(&client, "SHOW work_mem").await, "8MB");
    client.simple_query("BEGIN; SET work_mem = '1MB'; ROLLBACK").await.unwrap();
    assert_eq!(value(&client, "SHOW work_mem").await, "8MB");
}

#[tokio::test]
async fn a_transaction_that_failed_waits_for_its_end() {
    let server = Harness::open().await;
    let (client, _) = server.client().await;
    client.simple_query("BEGIN; SAVEPOINT a").await.unwrap();
    assert_eq!(error(&client, "SELECT * FROM ghosts").await.0, "42P01");
    assert_eq!(error(&client, "SELECT 1").await.0, "25P02");
    assert_eq!(of(&client.prepare("SELECT 1").await.unwrap_err()).0, "25P02");
    client.simple_query("ROLLBACK TO SAVEPOINT a").await.unwrap();
    assert_eq!(value(&client, "SELECT 1").await, "1");
    assert_eq!(error(&client, "SELECT * FROM ghosts").await.0, "42P01");
    client.simple_query("COMMIT").await.unwrap();
    assert_eq!(value(&client, "SELECT 1").await, "1");
    assert_eq!(error(&client, "SAVEPOINT a").await.0, "25P01");
}

#[tokio::test]
async fn a_read_only_transaction_changes_nothing() {
    let server = Harness::open().await;
    let (client, _) = server.client().await;
    let expected = ("25006".to_owned(), "cannot execute CREATE in a read-only transaction".to_owned());
    client.simple_query("START TRANSACTION READ ONLY").await.unwrap();
    assert_eq!(value(&client, "SHOW transaction_read_only").await, "on");
    assert_eq!(error(&client, "CREATE VIEW v AS SELECT 1").await, expected);
    client.simple_query("ROLLBACK").await.unwrap();
    client.simple_query("CREATE VIEW v AS SELECT 1 AS one").await.unwrap();
    client.simple_query("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY").await.unwrap();
    assert_eq!(error(&client, "DROP VIEW v").await.0, "25006");
    assert_eq!(error(&client, "INSERT INTO films VALUES (9, 'x', 1)").await.0, "25006");
    client.simple_query("BEGIN READ WRITE; DROP VIEW v; COMMIT").await.unwrap();
}

#[tokio::test]
async fn a_connection_has_views_of_its_own_and_writes_no_tables() {
    let server = Harness::open().await;
    let (client, _) = server.client().await;
    client.batch_execute("CREATE VIEW mine AS SELECT 1 AS one").await.unwrap();
    assert_eq!(value(&client, "SELECT one FROM mine").await, "1");
    let (other, _) = server.client().await;
    assert_eq!(error(&other, "SELECT one FROM mine").await.0, "42P01");
    assert_eq!(error(&client, "INSERT INTO films VALUES (4, 'rear window', 8.5)").await.0, "42501");
    assert_eq!(value(&other, "SELECT count(*) FROM films").await, "3");
}

#[tokio::test]
async fn a_cursor_gives_its_rows_as_they_are_fetched() {
    let server = Harness::open().await;
    let (client, _) = server.client().await;
    let declare = "DECLARE \"c\" CURSOR FOR SELECT value FROM generate_series(1, 100000000000)";
    assert_eq!(error(&client, declare).await.0, "25P01");
    client.simple_query("BEGIN").await.unwrap();
    client.simple_query(declare).await.unwrap();
    let numbers = |first: i64, last: i64| (first..=last).map(|n| Some(n.to_string())).collect::<Vec<_>>();
    assert_eq!(first_column(&client, "FETCH 3 FROM \"c\"").await, numbers(1, 3));
    assert_eq!(first_column(&client, "FETCH NEXT FROM c").await, numbers(4, 4));
    assert_eq!(first_column(&client, "FETCH FORWARD 2 IN c").await, numbers(5, 6));
    let row = client.query("FETCH 1 FROM c", &[]).await.unwrap();
    assert_eq!(row[0].get::<_, i64>(0), 7);
    assert_eq!(error(&client, "FETCH PRIOR FROM c").await.0, "55000");
    client.simple_query("ROLLBACK").await.unwrap();
    assert_eq!(error(&client, "FETCH 1 FROM c").await.0, "34000");

    client
        .simple_query("DECLARE held NO SCROLL CURSOR WITH HOLD FOR SELECT id FROM films ORDER BY id")
        .await
        .unwrap();
    assert_eq!(first_column(&client, "FETCH 1 FROM held").await, numbers(1, 1));
    assert_eq!(error(&client, "DECLARE held CURSOR WITH HOLD FOR SELECT 1").await.0, "42P03");
    assert_eq!(first_column(&client, "FETCH ALL FROM held").await, numbers(2, 3));
    client.simple_query("CLOSE held").await.unwrap();
    assert_eq!(error(&client, "CLOSE held").await.0, "34000");
}

#[tokio::test]
async fn prepared_statements_are_forgotten_when_they_are_let_go() {
    let server = Harness::open().await;
    let (client, _) = server.client().await;
    let statement = client.prepare_typed("SELECT $1 + 1", &[Type::INT8]).await.unwrap();
    assert_eq!(client.query_one(&statement, &[&1_i64]).await.unwrap().get::<_, i64>(0), 2);
    client.simple_query("DEALLOCATE ALL").await.unwrap();
    assert_eq!(of(&client.query_one(&statement, &[&1_i64]).await.unwrap_err()).0, "26000");
    client.simple_query("PREPARE p AS SELECT name FROM films WHERE id = $1").await.unwrap();
    assert_eq!(value(&client, "EXECUTE p(1)").await, "up");
    client.simple_query("DEALLOCATE p").await.unwrap();
    assert_eq!(error(&client, "DEALLOCATE p").await.0, "26000");
}
