//! `CREATE TABLE .. AS`, `DROP TABLE` and views: what stays, and that what fails leaves nothing.

use futures_util::StreamExt as _;
use insta::assert_snapshot;

use crate::common::{Model, shown};
use crate::tenant::Tenant;

const NUMBERS: &str = "n,t\n1,one\n2,two\n3,three\n";

#[tokio::test]
async fn a_table_that_was_made_is_there_for_later_sessions_until_it_is_dropped() {
    let tenant = Tenant::new(&[("numbers.csv", NUMBERS)]);
    let model = Model::words(&[("two", "yes")]);
    let first = tenant.session(&model).await;
    let made = "CREATE TABLE chosen AS SELECT n, t, ai_if(t, 'is it even?') AS even FROM numbers";
    assert_snapshot!(shown(&first, made).await, @r"
    +-------+
    | count |
    +-------+
    | 3     |
    +-------+
    ");
    drop(first);
    let second = tenant.plain().await;
    assert_snapshot!(shown(&second, "SELECT * FROM chosen ORDER BY n").await, @r"
    +---+-------+-------+
    | n | t     | even  |
    +---+-------+-------+
    | 1 | one   | false |
    | 2 | two   | true  |
    | 3 | three | false |
    +---+-------+-------+
    ");
    assert_eq!(tenant.names(), ["chosen.parquet", "numbers.csv"]);
    assert_snapshot!(
        shown(&second, made).await,
        @"error: Error during planning: CREATE TABLE chosen: it exists already"
    );
    assert_snapshot!(shown(&second, "CREATE TABLE IF NOT EXISTS chosen AS SELECT 1 AS n").await, @r"
    ++
    ++
    ");
    assert_snapshot!(shown(&second, "CREATE OR REPLACE TABLE chosen AS SELECT max(n) AS n FROM chosen").await, @r"
    +-------+
    | count |
    +-------+
    | 1     |
    +-------+
    ");
    assert_snapshot!(shown(&second, "SELECT * FROM chosen").await, @r"
    +---+
    | n |
    +---+
    | 3 |
    +---+
    ");
    shown(&second, "DROP TABLE chosen").await;
    assert_eq!(tenant.names(), ["numbers.csv"]);
    assert_snapshot!(
        shown(&second, "SELECT * FROM chosen").await,
        @"error: Error during planning: table 'datafusion.public.chosen' not found"
    );
}

#[tokio::test]
async fn files_that_the_tenant_put_there_are_neither_dropped_nor_replaced() {
    let tenant = Tenant::new(&[("numbers.csv", NUMBERS)]);
    let session = tenant.plain().await;
    assert_snapshot!(
        shown(&session, "DROP TABLE numbers").await,
        @"error: Execution error: DROP TABLE: `numbers.csv` was not made by CREATE TABLE; remove the file from your folder instead"
    );
    assert_snapshot!(
        shown(&session, "CREATE OR REPLACE TABLE numbers AS SELECT 1 AS n").await,
        @"error: Error during planning: CREATE OR REPLACE TABLE numbers: it was not made by CREATE TABLE"
    );
    assert_snapshot!(
        shown(&session, "DROP TABLE nothing").await,
        @"error: Error during planning: DROP TABLE nothing: there is no such table"
    );
    assert_snapshot!(shown(&session, "DROP TABLE IF EXISTS nothing").await, @r"
    ++
    ++
    ");
    assert_eq!(tenant.names(), ["numbers.csv"]);
}

#[tokio::test]
async fn a_table_whose_query_fails_or_is_cancelled_leaves_nothing() {
    let tenant = Tenant::new(&[("numbers.csv", NUMBERS)]);
    let session = tenant.plain().await;
    let failing = "CREATE TABLE broken AS SELECT 1 / (n - 3) AS x FROM numbers";
    assert_snapshot!(shown(&session, failing).await, @"error: Arrow error: Divide by zero error");
    assert_eq!(tenant.names(), ["numbers.csv"]);

    let endless = "CREATE TABLE broken AS SELECT a.value FROM generate_series(1, 100000000) AS a";
    let mut running = session.query(endless).await.expect("it starts").stream;
    let hidden = || tenant.names().into_iter().any(|name| name.starts_with(".create-"));
    // Driven until it has begun to write.
    while !hidden() {
        assert!(futures_util::poll!(running.next()).is_pending());
        tokio::task::yield_now().await;
    }
    drop(running);
    // What it ran on ends with it.
    while hidden() {
        tokio::task::yield_now().await;
    }
    assert_eq!(tenant.names(), ["numbers.csv"]);
}

#[tokio::test]
async fn names_that_would_need_quotes_or_lie_elsewhere_are_refused() {
    let tenant = Tenant::new(&[]);
    let session = tenant.plain().await;
    for name in ["\"Capital\"", "\"../up\"", "\"a/b\"", "files.t", "information_schema.t"] {
        let said = shown(&session, &format!("CREATE TABLE {name} AS SELECT 1 AS n")).await;
        assert!(said.starts_with("error: "), "{name}: {said}");
    }
    assert_snapshot!(
        shown(&session, "CREATE TABLE t AS SELECT a.n, b.n FROM (SELECT 1 AS n) a, (SELECT 2 AS n) b").await,
        @"error: Error during planning: CREATE TABLE t: two columns have the name `n`"
    );
}

#[tokio::test]
async fn a_file_that_grows_too_large_is_an_error_that_names_the_limit() {
    let tenant = Tenant::with(&[], |options| options.created_bytes_max = 1_000);
    let session = tenant.plain().await;
    let said = shown(&session, "CREATE TABLE t AS SELECT value FROM generate_series(1, 30000000)").await;
    assert_snapshot!(said, @"error: Execution error: table t: it has more than 1000 bytes");
    assert!(tenant.names().is_empty(), "{:?}", tenant.names());
}

#[tokio::test]
async fn what_a_tenants_tables_take_together_is_bounded_and_dropping_one_makes_room() {
    let some = "AS SELECT value FROM generate_series(1, 1000)";
    let other = Tenant::new(&[]);
    shown(&other.plain().await, &format!("CREATE TABLE one {some}")).await;
    let each = std::fs::metadata(other.folder().join("one.parquet")).expect("it was made").len();
    let max = 2 * each + each / 2;
    // What the tenant put there itself does not count.
    let large = "t\n".repeat(100_000);
    let tenant =
        Tenant::with(&[("large.csv", large.as_str())], |options| options.tenant_created_bytes_max = max);
    let session = tenant.plain().await;
    shown(&session, &format!("CREATE TABLE one {some}")).await;
    shown(&session, &format!("CREATE TEMPORARY TABLE two {some}")).await;
    let refused = |table: &str, held: u64| {
        format!(
            "error: Execution error: table {table}: with it the tables that you made would have more than {max} \
             bytes (`sql.tenant_created_bytes_max`), the others have {held}; drop some first"
        )
    };
    let more = "SELECT value FROM generate_series(1001, 3000)";
    let said = shown(&session, &format!("CREATE TABLE three AS {more}")).await;
    assert_eq!(said, refused("three", 2 * each));
    assert_eq!(shown(&session, &format!("INSERT INTO one {more}")).await, refused("one", each));
    assert_eq!(shown(&session, &format!("INSERT INTO two {more}")).await, refused("two", each));
    for table in ["one", "two"] {
        let rows = shown(&session, &format!("SELECT COUNT(*) AS n FROM {table}")).await;
        assert!(rows.contains("| 1000 |"), "{rows}");
    }

    // What takes its own place needs no more room, nor does what loses rows.
    let again = shown(&session, &format!("CREATE OR REPLACE TABLE one {some}")).await;
    assert!(again.contains("| 1000 "), "{again}");
    let deleted = shown(&session, "DELETE FROM one WHERE value > 500").await;
    assert!(deleted.contains("| 500 "), "{deleted}");
    shown(&session, "DROP TABLE one").await;
    shown(&session, "DROP TABLE two").await;
    let made = shown(&session, &format!("CREATE TABLE three {some}")).await;
    assert!(made.contains("| 1000 "), "{made}");
    assert_eq!(tenant.names(), ["large.csv", "three.parquet"]);
}

#[tokio::test]
async fn a_view_is_a_name_for_its_query_in_every_session_of_the_tenant() {
    let tenant = Tenant::new(&[("numbers.csv", NUMBERS)]);
    let model = Model::words(&[("one", "yes")]);
    let session = tenant.session(&model).await;
    shown(&session, "CREATE VIEW odd AS SELECT n FROM numbers WHERE ai_if(t, 'is it odd?')").await;
    assert!(model.asked().is_empty());
    let other = tenant.session(&model).await;
    assert_snapshot!(shown(&other, "SELECT * FROM odd WHERE n < 3").await, @r"
    +---+
    | n |
    +---+
    | 1 |
    +---+
    ");
    assert_eq!(model.asked().len(), 2, "{:?}", model.asked());
    assert_snapshot!(
        shown(&other, "CREATE VIEW numbers AS SELECT 1 AS n").await,
        @"error: Execution error: Table 'numbers' already exists"
    );
    shown(&other, "DROP VIEW odd").await;
    assert_snapshot!(
        shown(&session, "SELECT * FROM odd").await,
        @"error: Error during planning: table 'datafusion.public.odd' not found"
    );
}
