//! Rows by both protocols, in both formats, and by COPY.

use futures_util::{TryStreamExt as _, pin_mut};
use tokio_postgres::SimpleQueryMessage;
use tokio_postgres::binary_copy::BinaryCopyOutStream;
use tokio_postgres::types::Type;

use crate::harness::{Harness, first_column, value};

#[tokio::test]
async fn a_text_of_many_statements_gives_the_results_of_each() {
    let server = Harness::open().await;
    let (client, _) = server.client().await;
    let messages = client
        .simple_query(
            "SELECT 1; -- one\nSELECT name, count(*) FROM films GROUP BY 1 ORDER BY 1 LIMIT 1;;
             SHOW search_path",
        )
        .await
        .unwrap();
    let shown: Vec<String> = messages
        .iter()
        .map(|message| match message {
            SimpleQueryMessage::RowDescription(columns) => {
                columns.iter().map(|column| column.name()).collect::<Vec<_>>().join(",")
            }
            SimpleQueryMessage::Row(row) => format!("{:?}", row.get(0)),
            SimpleQueryMessage::CommandComplete(rows) => format!("done {rows}"),
            other => format!("{other:?}"),
        })
        .collect();
    assert_eq!(
        shown,
        [
            "?column?",
            "Some(\"1\")",
            "done 1",
            "name,count",
            "Some(\"heat\")",
            "done 1",
            "search_path",
            "Some(\"\\\"$user\\\", public\")",
            "done 0",
        ]
    );
    assert!(first_column(&client, " ; -- ping").await.is_empty());
}

#[tokio::test]
async fn values_come_in_the_binary_format_with_their_types() {
    let server = Harness::open().await;
    let (client, _) = server.client().await;
    let row = client
        .query_one(
            "SELECT 1::smallint AS a, 2::int AS b, 3::bigint AS c, 1.5::real AS d, 2.5::double AS e,
             true AS f, 'ä' AS g, ['x', NULL] AS h, DATE '2026-11-22' AS i, NULL::bigint AS j,
             4::decimal(10, 2) AS k, NULL::interval AS l, arrow_cast('m', 'Dictionary(Int32, Utf8)') AS m",
            &[],
        )
        .await
        .unwrap();
    assert_eq!(row.get::<_, i16>("a"), 1);
    assert_eq!(row.get::<_, i32>("b"), 2);
    assert_eq!(row.get::<_, i64>("c"), 3);
    assert_eq!(row.get::<_, f32>("d"), 1.5);
    assert_eq!(row.get::<_, f64>("e"), 2.5);
    assert!(row.get::<_, bool>("f"));
    assert_eq!(row.get::<_, &str>("g"), "ä");
    assert_eq!(row.get::<_, Vec<Option<String>>>("h"), [Some("x".to_owned()), None]);
    assert_eq!(row.columns()[8].type_(), &Type::DATE);
    assert_eq!(row.get::<_, Option<i64>>("j"), None);
    assert_eq!(row.columns()[10].type_(), &Type::NUMERIC);
    assert_eq!(row.columns()[11].type_(), &Type::INTERVAL);
    assert_eq!(row.get::<_, &str>("m"), "m");
}

#[tokio::test]
async fn parameters_are_typed_by_the_query_or_by_the_client() {
    let server = Harness::open().await;
    let (client, _) = server.client().await;
    let row = client.query_one("SELECT name FROM films WHERE id = $1", &[&2_i64]).await.unwrap();
    assert_eq!(row.get::<_, &str>(0), "heat");
    let statement = client.prepare_typed("SELECT $1, $2 + 1", &[Type::TEXT, Type::INT4]).await.unwrap();
    assert_eq!(statement.params(), [Type::TEXT, Type::INT4]);
    let row = client.query_one(&statement, &[&"it's", &41_i32]).await.unwrap();
    assert_eq!(row.get::<_, &str>(0), "it's");
    assert_eq!(row.columns().len(), 2);
    let row = client.query_one("SELECT $1", &[&Option::<&str>::None]).await.unwrap();
    assert_eq!(row.get::<_, Option<&str>>(0), None);
    let names =
        client.query("SELECT name FROM films WHERE id = ANY($1) ORDER BY id", &[&vec![1_i64, 3]]).await;
    let names: Vec<String> = names.unwrap().iter().map(|row| row.get(0)).collect();
    assert_eq!(names, ["up", "taken"]);
    // A cell that looks like SQL is a cell.
    let row =
        client.query_one("SELECT count(*) FROM films WHERE name = $1", &[&"' OR '1'='1"]).await.unwrap();
    assert_eq!(row.get::<_, i64>(0), 0);
}

#[tokio::test]
async fn a_portal_gives_its_rows_in_parts() {
    let server = Harness::open().await;
    let (mut client, _) = server.client().await;
    let transaction = client.transaction().await.unwrap();
    let portal = transaction.bind("SELECT value FROM generate_series(1, 5)", &[]).await.unwrap();
    let mut parts = Vec::new();
    for rows_max in [2, 2, 0] {
        let rows = transaction.query_portal(&portal, rows_max).await.unwrap();
        parts.push(rows.iter().map(|row| row.get::<_, i64>(0)).collect::<Vec<_>>());
    }
    assert_eq!(parts, [vec![1, 2], vec![3, 4], vec![5]]);
    transaction.commit().await.unwrap();
}

#[tokio::test]
async fn the_first_row_is_out_before_the_scan_ends() {
    let server = Harness::open().await;
    let (client, _) = server.client().await;
    // More rows than memory could hold.
    let rows = client
        .query_raw::<_, i64, _>("SELECT value FROM generate_series(1, 100000000000)", [])
        .await
        .unwrap();
    pin_mut!(rows);
    for expected in 1..=20_000_i64 {
        assert_eq!(rows.try_next().await.unwrap().unwrap().get::<_, i64>(0), expected);
    }
    client.cancel_token().cancel_query(tokio_postgres::NoTls).await.unwrap();
}

#[tokio::test]
async fn copy_writes_text_csv_and_binary() {
    let server = Harness::open().await;
    let (client, _) = server.client().await;
    let query = "SELECT 1 AS id, 'a\tb\\c' AS t, 'x,\"y\"' AS c, '' AS empty, NULL::text AS nothing";
    let copied = async |options: &str| {
        let stream = client.copy_out(&format!("COPY ({query}) TO STDOUT {options}")).await.unwrap();
        let parts: Vec<_> = stream.try_collect().await.unwrap();
        String::from_utf8(parts.concat()).unwrap()
    };
    assert_eq!(copied("").await, "1\ta\\tb\\\\c\tx,\"y\"\t\t\\N\n");
    assert_eq!(
        copied("WITH (FORMAT csv, HEADER true)").await,
        "id,t,c,empty,nothing\n1,a\tb\\c,\"x,\"\"y\"\"\",\"\",\n"
    );
    assert_eq!(copied("CSV").await, "1,a\tb\\c,\"x,\"\"y\"\"\",\"\",\n");

    let stream = client.copy_out("COPY films (id, name) TO STDOUT (FORMAT \"binary\")").await.unwrap();
    let rows = BinaryCopyOutStream::new(stream, &[Type::INT8, Type::TEXT]);
    let rows: Vec<_> = rows.try_collect().await.unwrap();
    let rows: Vec<(i64, String)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
    assert_eq!(rows, [(1, "up".to_owned()), (2, "heat".to_owned()), (3, "taken".to_owned())]);
}

#[tokio::test]
async fn copy_writes_what_a_spreadsheet_would_compute_as_it_is_for_programs_read_it_back() {
    let server = Harness::open().await;
    let (client, _) = server.client().await;
    for (options, expected) in [("", "=1+1\t-x\n"), ("WITH (FORMAT csv, HEADER true)", "@a,b\n=1+1,-x\n")] {
        let query = format!("COPY (SELECT '=1+1' AS \"@a\", '-x' AS b) TO STDOUT {options}");
        let parts: Vec<_> = client.copy_out(&query).await.unwrap().try_collect().await.unwrap();
        assert_eq!(String::from_utf8(parts.concat()).unwrap(), expected, "{options}");
    }
}

#[tokio::test]
async fn failed_calls_are_null_and_a_notice() {
    let server = Harness::open().await;
    let (client, mut messages) = server.client().await;
    let text = "SELECT ai_if(name, 'is it good?') FROM films ORDER BY id";
    let values = first_column(&client, text).await;
    assert_eq!(values, [Some("t".to_owned()), None, Some("f".to_owned())]);
    let Some(tokio_postgres::AsyncMessage::Notice(notice)) = messages.recv().await else {
        panic!("no notice");
    };
    assert_eq!(notice.message(), "1 of the AI calls failed and are NULL; SELECT * FROM relserve.errors");
    assert_eq!(value(&client, "SELECT count(*) FROM relserve.errors").await, "1");
    let rows = client.query("SELECT name FROM films WHERE ai_if(name, 'is it good?')", &[]).await.unwrap();
    assert_eq!(rows.len(), 1);
    assert!(matches!(messages.recv().await, Some(tokio_postgres::AsyncMessage::Notice(_))));
}

#[tokio::test]
async fn clients_learn_what_they_expect_of_postgres() {
    let server = Harness::open().await;
    let (client, _) = server.client().await;
    assert!(value(&client, "SELECT version()").await.starts_with("PostgreSQL 16"));
    assert!(value(&client, "SELECT pg_catalog.version()").await.starts_with("PostgreSQL 16"));
    assert_eq!(value(&client, "SELECT current_schema()").await, "public");
    assert_eq!(value(&client, "SELECT current_user").await, "acme");
    assert_eq!(value(&client, "SELECT current_setting('server_version_num')").await, "160006");
    assert_eq!(value(&client, "SHOW standard_conforming_strings").await, "on");
    assert_eq!(value(&client, "SHOW TRANSACTION ISOLATION LEVEL").await, "read committed");
    let tables = "SELECT c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n
                  ON n.oid = c.relnamespace WHERE n.nspname = 'public' ORDER BY 1";
    let tables = first_column(&client, tables).await;
    assert_eq!(tables, [Some("films".to_owned()), Some("good_films".to_owned())]);
}
