//! Clients of Postgres against the real program and its built-in model.
//!
//! `tests/clients/run.sh` runs those that are programs of their own; what it needs, `./test` installs. Rust's
//! tokio-postgres is here.

use std::path::Path;
use std::process::Command;

use futures_util::TryStreamExt as _;
use tokio_postgres::binary_copy::BinaryCopyOutStream;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, NoTls};

use crate::program::Program;

#[test]
fn psql_and_the_drivers_of_python_and_node_are_served() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let output = Command::new(root.join("tests/clients/run.sh"))
        .args([env!("CARGO_BIN_EXE_relserve"), "light"])
        .output()
        .expect("bash is there");
    let said =
        [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
    assert!(output.status.success(), "{said}");
    assert!(said.contains("Ran ") && !said.contains("Ran 0 tests"), "{said}");
}

/// A program with a table `reviews`, and a client of it.
async fn connected(folder: &Path) -> (Program, Client) {
    let tables = folder.join("tables/1");
    std::fs::create_dir_all(&tables).unwrap();
    std::fs::write(tables.join("reviews.csv"), "id,review\n1,I loved it\n2,It broke\n3,Fine\n").unwrap();
    let program = Program::configured(folder, |command| {
        command.args(["--sql", "127.0.0.1:0"]);
    });
    let mut config = tokio_postgres::Config::new();
    config.host("127.0.0.1").port(program.sql_port.expect("it was asked for"));
    config.user("default").dbname("shop").password(&program.key);
    let (client, connection) = config.connect(NoTls).await.expect("the program lets us in");
    tokio::spawn(connection);
    (program, client)
}

#[tokio::test]
async fn tokio_postgres_is_served() {
    let folder = tempfile::tempdir().unwrap();
    let (_program, mut client) = connected(folder.path()).await;
    let row = client.query_one("SELECT current_database(), count(*) FROM reviews", &[]).await.unwrap();
    assert_eq!((row.get::<_, &str>(0), row.get::<_, i64>(1)), ("shop", 3));

    let statement = client.prepare("SELECT id FROM reviews WHERE id = ANY($1) ORDER BY id").await.unwrap();
    assert_eq!(statement.params(), [Type::INT8_ARRAY]);
    let rows = client.query(&statement, &[&vec![1_i64, 3]]).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.get::<_, i64>(0)).collect::<Vec<_>>(), [1, 3]);

    let row = client.query_one("SELECT '{a,b}'::text[], NULL, NULL, now()", &[]).await.unwrap();
    assert_eq!(row.get::<_, Vec<&str>>(0), ["a", "b"]);
    assert_eq!(row.columns()[3].type_(), &Type::TIMESTAMPTZ);

    let transaction = client.transaction().await.unwrap();
    let portal = transaction.bind("SELECT id FROM reviews", &[]).await.unwrap();
    assert_eq!(transaction.query_portal(&portal, 2).await.unwrap().len(), 2);
    assert_eq!(transaction.query_portal(&portal, 2).await.unwrap().len(), 1);
    transaction.commit().await.unwrap();

    let copied = client.copy_out("COPY (SELECT id FROM reviews) TO STDOUT (FORMAT binary)").await.unwrap();
    let rows: Vec<_> = BinaryCopyOutStream::new(copied, &[Type::INT8]).try_collect().await.unwrap();
    assert_eq!(rows.len(), 3);

    let row = client.query_one("SELECT ai_sentiment(review) FROM reviews WHERE id = $1", &[&1_i64]).await;
    assert!(["positive", "negative", "neutral", "mixed"].contains(&row.unwrap().get::<_, &str>(0)));

    let likely = "SELECT ai_sentiment(review, probability => true), ai_if(review, 'is it praise?', probability => true),
        ai_score_probability(review) FROM reviews WHERE id = 1";
    let row = client.query_one(likely, &[]).await.unwrap();
    assert_eq!(row.columns()[0].type_(), &Type::FLOAT8);
    for at in 0..3 {
        let probability: f64 = row.get(at);
        assert!(0.0 < probability && probability < 1.0, "{at}: {probability}");
    }
}

#[tokio::test]
async fn tokio_postgres_cancels() {
    let folder = tempfile::tempdir().unwrap();
    let (_program, client) = connected(folder.path()).await;
    let cancel = client.cancel_token();
    let slow = "SELECT count(*) FROM generate_series(1, 100000000) a, generate_series(1, 100000000) b";
    let statement = client.query_one(slow, &[]);
    // A cancel that comes before its statement does nothing, so it is sent until it is heard.
    let cancelling = async {
        loop {
            cancel.cancel_query(NoTls).await.unwrap();
        }
    };
    let ended = tokio::select! {
        ended = statement => ended,
        () = cancelling => unreachable!("it goes on until the statement ends"),
    };
    assert_eq!(ended.unwrap_err().code(), Some(&SqlState::QUERY_CANCELED));
    // Requests to cancel may be under way still, and meet whatever runs then, as with Postgres: no more come.
    let again = loop {
        match client.query_one("SELECT 1", &[]).await {
            Err(late) if late.code() == Some(&SqlState::QUERY_CANCELED) => {}
            row => break row,
        }
    };
    assert_eq!(again.unwrap().len(), 1);
}
