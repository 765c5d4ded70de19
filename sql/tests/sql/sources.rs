//! Databases as schemas: what is asked of them, and that rows are those that the plan itself would keep.

use std::path::Path;

use insta::assert_snapshot;
use sql::Session;
use sql::tables::source::Source;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _};

use crate::common::{Model, shown};
use crate::postgres::Server;
use crate::tenant::Tenant;

/// Texts that differ in capitals, in bytes and order, or have something that patterns mean otherwise.
const TEXTS: [&str; 12] =
    ["abc", "Abc", "ABC", "", "a%c", "a_c", "a*c", "[a]", "äbc", "zebra", "Zebra", "it''s \"quoted\""];

/// Predicates over the columns of both databases, and what becomes of them.
const PUSHED: [&str; 22] = [
    "n = 3",
    "n <> 3",
    "3 < n",
    "n BETWEEN 2 AND 5",
    "n NOT BETWEEN 2 AND 5",
    "n IN (1, 2, 9)",
    "n NOT IN (1, 2)",
    "t = 'abc'",
    "t <> 'ABC'",
    "t > 'Zebra'",
    "t <= 'abc'",
    "t BETWEEN 'A' AND 'b'",
    "t IN ('abc', 'it''s \"quoted\"', '')",
    "t LIKE 'a%'",
    "t LIKE 'a_c'",
    "t NOT LIKE '%b%'",
    "t IS NULL",
    "t IS NOT NULL AND x > 1.5",
    "b",
    "NOT b OR t = 'äbc'",
    "NOT (n > 4 AND t LIKE '%a%')",
    "x <= 0.5",
];

/// Predicates that stay in the plan.
const KEPT: [&str; 5] = ["n + 1 = 3", "lower(t) = 'abc'", "t ILIKE 'A%'", "t LIKE 'a\\%c'", "length(t) > n"];

fn insert(placeholder_true: &str, placeholder_false: &str) -> Vec<String> {
    let row = |(place, text): (usize, &&str)| {
        let b = match place % 3 {
            0 => placeholder_true,
            1 => placeholder_false,
            _ => "NULL",
        };
        let n = if place == 7 { "NULL".to_owned() } else { place.to_string() };
        format!("INSERT INTO items VALUES ({place}, {n}, '{text}', {}, {b})", place as f64 / 4.0)
    };
    let mut rows: Vec<String> = TEXTS.iter().enumerate().map(row).collect();
    rows.push("INSERT INTO items VALUES (12, 12, NULL, NULL, NULL)".into());
    rows
}

/// Every predicate keeps the same rows of the source as of a file with the same rows.
async fn check_predicates(session: &Session, schema: &str) {
    let said = shown(session, &format!("CREATE TABLE items AS SELECT * FROM {schema}.items")).await;
    assert!(said.contains("13"), "{said}");
    for (predicate, is_pushed) in
        PUSHED.map(|text| (text, true)).into_iter().chain(KEPT.map(|text| (text, false)))
    {
        let of = |table: &str| format!("SELECT id, n, t, x, b FROM {table} WHERE {predicate} ORDER BY id");
        let asked = of(&format!("{schema}.items"));
        assert_eq!(shown(session, &asked).await, shown(session, &of("items")).await, "{predicate}");
        let plan = shown(session, &format!("EXPLAIN {asked}")).await;
        assert_eq!(plan.contains("WHERE"), is_pushed, "{predicate}: {plan}");
    }
}

async fn sqlite(path: &Path, statements: &[&str]) {
    let url = format!("sqlite:{}?mode=rwc", path.display());
    let mut database = sqlx::SqliteConnection::connect(&url).await.expect("opens");
    for statement in statements {
        database.execute(AssertSqlSafe((*statement).to_owned())).await.expect("runs");
    }
    database.close().await.expect("closes");
}

async fn postgres(url: &str, statements: &[&str]) {
    let mut database = sqlx::PgConnection::connect(url).await.expect("connects");
    for statement in statements {
        database.execute(AssertSqlSafe((*statement).to_owned())).await.expect("runs");
    }
    database.close().await.expect("closes");
}

/// A tenant with one source, `shop`.
async fn tenant(url: &str) -> Tenant {
    Tenant::of_sources(vec![Source::connect("shop", url).await.expect("connects")])
}

#[tokio::test]
async fn sqlite_keeps_the_rows_that_the_plan_would() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.db");
    let rows = insert("1", "0");
    let mut statements =
        vec!["CREATE TABLE items (id INTEGER, n INT, t TEXT COLLATE NOCASE, x REAL, b BOOLEAN)"];
    statements.extend(rows.iter().map(String::as_str));
    sqlite(&path, &statements).await;
    let tenant = tenant(&format!("sqlite:{}", path.display())).await;
    check_predicates(&tenant.plain().await, "shop").await;
}

#[tokio::test]
async fn postgres_keeps_the_rows_that_the_plan_would() {
    let Some(server) = Server::start() else { return };
    let url = server.create_database("shop").await;
    let rows = insert("true", "false");
    let mut statements = vec!["CREATE TABLE items (id int, n bigint, t text, x double precision, b boolean)"];
    statements.extend(rows.iter().map(String::as_str));
    postgres(&url, &statements).await;
    let tenant = tenant(&url).await;
    check_predicates(&tenant.plain().await, "shop").await;
}

#[tokio::test]
async fn a_source_gets_columns_predicates_and_limits_but_never_a_model_call() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.db");
    sqlite(
        &path,
        &[
            "CREATE TABLE reviews (id INTEGER, film TEXT, \"the text\" TEXT)",
            "INSERT INTO reviews VALUES (1, 'up', 'bright'), (2, 'up', 'dull'), (3, 'heat', 'bright')",
        ],
    )
    .await;
    let tenant = tenant(&format!("sqlite:{}", path.display())).await;
    let model = Model::words(&[("bright", "yes")]);
    let session = tenant.session(&model).await;
    let sql_of = |plan: String| {
        let at = plan.find("sql=").expect("the plan has a statement of the source");
        plan[at..].split(['|', '\n']).next().unwrap_or_default().trim().to_owned()
    };
    let text = "SELECT id FROM shop.reviews WHERE ai_if(\"the text\", 'good?') AND film = 'up' LIMIT 5";
    assert_snapshot!(
        sql_of(shown(&session, &format!("EXPLAIN {text}")).await),
        @r#"sql=SELECT "id", "the text" FROM "reviews" WHERE ("film" COLLATE BINARY = ?1)"#
    );
    assert_snapshot!(shown(&session, text).await, @r"
    +----+
    | id |
    +----+
    | 1  |
    +----+
    ");
    assert_eq!(model.asked().len(), 2, "{:?}", model.asked());
    let limited = "EXPLAIN SELECT film FROM shop.reviews WHERE id > 1 LIMIT 1";
    assert_snapshot!(
        sql_of(shown(&session, limited).await),
        @r#"sql=SELECT "film" FROM "reviews" WHERE ("id" > ?1) LIMIT 1"#
    );
    assert_snapshot!(
        sql_of(shown(&session, "EXPLAIN SELECT count(*) FROM shop.reviews").await),
        @r#"sql=SELECT 1 FROM "reviews""#
    );
    assert_snapshot!(shown(&session, "SELECT count(*) AS n FROM shop.reviews").await, @r"
    +---+
    | n |
    +---+
    | 3 |
    +---+
    ");
}

#[tokio::test]
async fn types_of_postgres_are_kept() {
    let Some(server) = Server::start() else { return };
    let url = server.create_database("shop").await;
    postgres(
        &url,
        &[
            "CREATE TYPE mood AS ENUM ('sad', 'happy')",
            "CREATE TABLE kinds (a smallint, b int, c bigint, d real, e double precision, f numeric(12, 3), \
             g numeric, h boolean, i varchar(9), j uuid, k jsonb, l date, m timestamp, n timestamptz, o bytea, \
             p mood, q char(4), r int[])",
            "INSERT INTO kinds VALUES (-1, 2, 3000000000, 1.5, 0.1, -12345.678, 1e-30, true, 'vär', \
             'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11', '{\"a\": 1}', '1969-12-31', '2024-02-29 12:34:56.789012', \
             '2024-02-29 12:00:00+02', '\\x00ff', 'happy', 'ab', '{1,2}')",
            "INSERT INTO kinds DEFAULT VALUES",
            "CREATE TABLE odd (l date)",
            "INSERT INTO odd VALUES ('infinity')",
        ],
    )
    .await;
    let tenant = tenant(&url).await;
    let session = tenant.plain().await;
    assert_snapshot!(shown(&session, "SELECT a, b, c, d, e, f, g, h, i FROM shop.kinds").await, @r"
    +----+---+------------+-----+-----+------------+----------------------------------+------+-----+
    | a  | b | c          | d   | e   | f          | g                                | h    | i   |
    +----+---+------------+-----+-----+------------+----------------------------------+------+-----+
    | -1 | 2 | 3000000000 | 1.5 | 0.1 | -12345.678 | 0.000000000000000000000000000001 | true | vär |
    |    |   |            |     |     |            |                                  |      |     |
    +----+---+------------+-----+-----+------------+----------------------------------+------+-----+
    ");
    assert_snapshot!(shown(&session, "SELECT j, k, l, m, n, o, p, q, r FROM shop.kinds").await, @r#"
    +--------------------------------------+----------+------------+----------------------------+----------------------+------+-------+----+-------+
    | j                                    | k        | l          | m                          | n                    | o    | p     | q  | r     |
    +--------------------------------------+----------+------------+----------------------------+----------------------+------+-------+----+-------+
    | a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11 | {"a": 1} | 1969-12-31 | 2024-02-29T12:34:56.789012 | 2024-02-29T10:00:00Z | 00ff | happy | ab | {1,2} |
    |                                      |          |            |                            |                      |      |       |    |       |
    +--------------------------------------+----------+------------+----------------------------+----------------------+------+-------+----+-------+
    "#);
    let types = "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = 'kinds'";
    assert_snapshot!(shown(&session, types).await, @r#"
    +-------------+-------------------------+
    | column_name | data_type               |
    +-------------+-------------------------+
    | a           | Int16                   |
    | b           | Int32                   |
    | c           | Int64                   |
    | d           | Float32                 |
    | e           | Float64                 |
    | f           | Decimal128(12, 3)       |
    | g           | Utf8                    |
    | h           | Boolean                 |
    | i           | Utf8                    |
    | j           | Utf8                    |
    | k           | Utf8                    |
    | l           | Date32                  |
    | m           | Timestamp(µs)           |
    | n           | Timestamp(µs, "+00:00") |
    | o           | Binary                  |
    | p           | Utf8                    |
    | q           | Utf8                    |
    | r           | Utf8                    |
    +-------------+-------------------------+
    "#);
    for predicate in [
        "f = -12345.678",
        "l < DATE '1970-01-01'",
        "m > TIMESTAMP '2024-02-29 12:34:56'",
        "n = TIMESTAMPTZ '2024-02-29T10:00:00Z'",
        "p = 'happy'",
        "j = 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'",
        "q = 'ab'",
    ] {
        let text = format!("SELECT b FROM shop.kinds WHERE {predicate}");
        let said = shown(&session, &text).await;
        assert!(said.contains("| 2 |"), "{predicate}: {said}");
        let plan = shown(&session, &format!("EXPLAIN {text}")).await;
        assert!(plan.contains("WHERE"), "{predicate}: {plan}");
    }
    let said = shown(&session, "SELECT * FROM shop.odd").await;
    assert!(said.contains("column `l`") && said.contains("infinity"), "{said}");
}

#[tokio::test]
async fn names_of_a_source_are_quoted_and_new_tables_found() {
    let Some(server) = Server::start() else { return };
    let url = server.create_database("shop").await;
    postgres(
        &url,
        &["CREATE SCHEMA \"Other one\"", "CREATE TABLE \"Other one\".\"a\"\"b\" (\"C\"\"; DROP\" int)"],
    )
    .await;
    let tenant = tenant(&url).await;
    let session = tenant.plain().await;
    let odd = "SELECT \"C\"\"; DROP\" AS c FROM shop.\"Other one.a\"\"b\" WHERE \"C\"\"; DROP\" > 0";
    assert_snapshot!(shown(&session, odd).await, @r"
    ++
    ++
    ");
    postgres(&url, &["CREATE TABLE late (n int)", "INSERT INTO late VALUES (5)"]).await;
    assert_snapshot!(shown(&session, "SELECT n FROM shop.late").await, @r"
    +---+
    | n |
    +---+
    | 5 |
    +---+
    ");
    assert_snapshot!(
        shown(&session, "SELECT n FROM shop.never").await,
        @"error: Error during planning: table 'datafusion.shop.never' not found"
    );
}

#[tokio::test]
async fn a_source_is_only_read() {
    let Some(server) = Server::start() else { return };
    let url = server.create_database("shop").await;
    postgres(
        &url,
        &["CREATE TABLE t (n int)", "CREATE SEQUENCE s", "CREATE VIEW sneaky AS SELECT nextval('s') AS n"],
    )
    .await;
    let tenant = tenant(&url).await;
    let session = tenant.plain().await;
    assert_snapshot!(
        shown(&session, "SELECT n FROM shop.sneaky").await,
        @"error: Execution error: source `shop`: error returned from database: cannot execute nextval() in a read-only transaction at line 414"
    );
    assert_snapshot!(
        shown(&session, "INSERT INTO shop.t VALUES (1)").await,
        @"error: Error during planning: Insert Into `shop.t`: only tables of your own schema can be changed"
    );
    assert_snapshot!(
        shown(&session, "CREATE TABLE shop.u AS SELECT 1 AS n").await,
        @"error: Error during planning: CREATE TABLE shop.u: tables can be made in your own schema only"
    );
    assert_snapshot!(
        shown(&session, "DROP TABLE shop.t").await,
        @"error: Error during planning: DROP TABLE shop.t: only tables of your own schema can be dropped"
    );
    assert_snapshot!(
        shown(&session, "CREATE VIEW shop.v AS SELECT 1 AS n").await,
        @"error: Error during planning: CREATE shop.v: views and external tables can be made in your own schema only"
    );
}

#[tokio::test]
async fn rows_are_read_as_they_are_asked_for_and_a_source_that_is_gone_is_an_error_of_its_queries() {
    let Some(server) = Server::start() else { return };
    let url = server.create_database("shop").await;
    postgres(
        &url,
        &[
            "CREATE VIEW endless AS SELECT generate_series(1, 9000000000000) AS n",
            "CREATE TABLE t AS SELECT 1 AS n",
        ],
    )
    .await;
    let tenant = tenant(&url).await;
    let session = tenant.plain().await;
    // The source cannot end by itself, and has more rows than there is memory.
    for _ in 0..20 {
        let text = "SELECT n FROM shop.endless WHERE abs(n) % 7 = 0 LIMIT 2";
        let said = shown(&session, text).await;
        assert!(said.contains("| 7  |") && said.contains("| 14 |"), "{said}");
    }
    server.crash();
    let said = shown(&session, "SELECT n FROM shop.t").await;
    assert!(said.starts_with("error: ") && said.contains("source `shop`"), "{said}");
    server.resume();
    let said = shown(&session, "SELECT n FROM shop.t").await;
    assert!(said.contains("| 1 |"), "{said}");
}

#[tokio::test]
async fn values_of_sqlite_are_read_as_the_type_that_their_column_has() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.db");
    sqlite(
        &path,
        &[
            "CREATE TABLE kinds (i BIGINT, d DECIMAL(10,2), s VARCHAR(5), b BLOB, day DATE, at DATETIME, \
             unix TIMESTAMP, j JSON)",
            "INSERT INTO kinds VALUES (9007199254740993, 1.25, 'x', x'00ff', '2024-02-29', \
             '2024-02-29 12:34:56.5', 1700000000, '[1]')",
            "INSERT INTO kinds VALUES (NULL, 2, '', x'', NULL, NULL, NULL, 5)",
            "CREATE VIEW seen AS SELECT i + 1 AS more, s || '!' AS s FROM kinds",
            "CREATE TABLE loose (n INTEGER)",
            "INSERT INTO loose VALUES (1), ('many')",
            "CREATE VIEW broken AS SELECT * FROM nowhere",
        ],
    )
    .await;
    let tenant = tenant(&format!("sqlite:{}", path.display())).await;
    let session = tenant.plain().await;
    assert_snapshot!(shown(&session, "SELECT * FROM shop.kinds").await, @r"
    +------------------+------+---+------+------------+-------------------------+------------+-----+
    | i                | d    | s | b    | day        | at                      | unix       | j   |
    +------------------+------+---+------+------------+-------------------------+------------+-----+
    | 9007199254740993 | 1.25 | x | 00ff | 2024-02-29 | 2024-02-29T12:34:56.500 | 1700000000 | [1] |
    |                  | 2.0  |   |      |            |                         |            | 5   |
    +------------------+------+---+------+------------+-------------------------+------------+-----+
    ");
    assert_snapshot!(shown(&session, "SELECT * FROM shop.seen").await, @r"
    +------------------+----+
    | more             | s  |
    +------------------+----+
    | 9007199254740994 | x! |
    |                  | !  |
    +------------------+----+
    ");
    assert_snapshot!(
        shown(&session, "SELECT * FROM shop.loose").await,
        @r#"error: Execution error: source `shop`: column `n` is of type Int64, a row of it has Text("many")"#
    );
    let later = "SELECT count(*) AS n FROM shop.kinds WHERE at > '2024-01-01' AND day >= DATE '2024-02-29'";
    assert_snapshot!(shown(&session, later).await, @r"
    +---+
    | n |
    +---+
    | 1 |
    +---+
    ");
}

#[tokio::test]
async fn an_address_that_is_wrong_is_an_error_that_does_not_show_it() {
    for (name, url) in [
        ("shop", "mysql://user:hunter2@localhost/x"),
        ("shop", "sqlite:/nowhere/at/all.db"),
        ("Shop", "sqlite::memory:"),
    ] {
        let said = Source::connect(name, url).await.expect_err(url).to_string();
        assert!(said.contains(name) && !said.contains("hunter2"), "{said}");
    }
}
