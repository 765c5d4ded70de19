//! Statements that end before their time: cancelled, timed out, left by their client, or by a server that
//! stops.

use futures_util::{TryStreamExt as _, pin_mut};
use tokio_postgres::NoTls;

use crate::harness::{Harness, error, of, value};

/// Its one call is never answered.
const FOREVER: &str = "SELECT ai_if('forever')";

#[tokio::test]
async fn a_cancel_request_ends_a_query_whose_rows_flow() {
    let server = Harness::open().await;
    let (client, _) = server.client().await;
    let rows = client
        .query_raw::<_, i64, _>("SELECT value FROM generate_series(1, 100000000000)", [])
        .await
        .unwrap();
    pin_mut!(rows);
    rows.try_next().await.unwrap().unwrap();
    client.cancel_token().cancel_query(NoTls).await.unwrap();
    let error = loop {
        match rows.try_next().await {
            Ok(Some(_)) => {}
            Ok(None) => panic!("all rows came"),
            Err(error) => break error,
        }
    };
    assert_eq!(of(&error), ("57014".to_owned(), "canceling statement due to user request".to_owned()));
    assert_eq!(value(&client, "SELECT 1").await, "1");
}

#[tokio::test]
async fn a_cancel_request_ends_the_relqueries_of_a_statement() {
    let server = Harness::open().await;
    let (client, _) = server.client().await;
    let token = client.cancel_token();
    let cancelling = async {
        server.wait_for_open(1).await;
        token.cancel_query(NoTls).await.unwrap();
    };
    let (result, ()) = tokio::join!(client.query(FOREVER, &[]), cancelling);
    assert_eq!(of(&result.unwrap_err()).0, "57014");
    server.wait_for_open(0).await;
}

#[tokio::test]
async fn a_cancel_request_with_a_wrong_secret_does_nothing() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let server = Harness::open().await;
    let (client, _) = server.client().await;
    let pid: i32 = value(&client, "SELECT pg_backend_pid()").await.parse().unwrap();
    let token = client.cancel_token();
    let cancelling = async {
        server.wait_for_open(1).await;
        let mut socket = tokio::net::TcpStream::connect(server.address).await.unwrap();
        for word in [16, 80_877_102, pid, 0] {
            socket.write_i32(word).await.unwrap();
        }
        assert_eq!(socket.read(&mut [0; 1]).await.unwrap(), 0);
        assert_eq!(*server.model.open.borrow(), 1);
        token.cancel_query(NoTls).await.unwrap();
    };
    let (result, ()) = tokio::join!(client.query(FOREVER, &[]), cancelling);
    assert_eq!(of(&result.unwrap_err()).0, "57014");
}

#[tokio::test]
async fn a_client_that_goes_away_ends_its_statement() {
    let server = Harness::open().await;
    let (client, connection) = server.config().connect(NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    let query = tokio::spawn(async move { client.query(FOREVER, &[]).await });
    server.wait_for_open(1).await;
    connection.abort();
    server.wait_for_open(0).await;
    assert!(query.await.unwrap().is_err());
}

#[tokio::test]
async fn a_statement_that_takes_too_long_is_cancelled() {
    let server = Harness::open().await;
    let (client, _) = server.client().await;
    client.simple_query("SET statement_timeout = '20ms'").await.unwrap();
    let expected = ("57014".to_owned(), "canceling statement due to statement timeout".to_owned());
    assert_eq!(error(&client, FOREVER).await, expected);
    server.wait_for_open(0).await;
    // Also one whose rows flow.
    assert_eq!(error(&client, "SELECT * FROM generate_series(1, 100000000000)").await, expected);
    client.simple_query("SET statement_timeout = 0").await.unwrap();
    assert_eq!(value(&client, "SELECT 1").await, "1");
}

#[tokio::test]
async fn a_suspended_portal_that_is_closed_ends_its_query() {
    let server = Harness::open().await;
    let (mut client, _) = server.client().await;
    let transaction = client.transaction().await.unwrap();
    let text = "SELECT ai_if(name || ' forever') FROM films UNION ALL SELECT true";
    let portal = transaction.bind(text, &[]).await.unwrap();
    assert_eq!(transaction.query_portal(&portal, 1).await.unwrap().len(), 1);
    server.wait_for_open(1).await;
    transaction.rollback().await.unwrap();
    server.wait_for_open(0).await;
}

#[tokio::test]
async fn a_server_that_stops_ends_what_runs_and_says_so() {
    let server = Harness::open().await;
    let (client, _) = server.client().await;
    let stopping = async {
        server.wait_for_open(1).await;
        server.shutdown.send(true).unwrap();
    };
    let (result, ()) = tokio::join!(client.query(FOREVER, &[]), stopping);
    assert_eq!(of(&result.unwrap_err()).0, "57P01");
    server.server.await.unwrap().unwrap();
    assert_eq!(*server.model.open.borrow(), 0);
}
