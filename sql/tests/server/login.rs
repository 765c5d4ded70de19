//! Who gets in: SCRAM, clear text, TLS and the limit of connections.

use std::collections::HashMap;
use std::sync::Arc;

use sql::server::{ConnectionLimits, Login, Tls, Verifier};
use tokio_postgres::NoTls;

use crate::harness::{Harness, of, value};

async fn keyed(login: Login) -> Harness {
    Harness::with(HashMap::from([("acme".to_owned(), login)]), ConnectionLimits::default(), None).await
}

/// What a server keeps of a key.
fn verifier(key: &str) -> Verifier {
    Verifier::parse(&postgres_protocol::password::scram_sha_256(key.as_bytes())).expect("a verifier")
}

/// The error of a client that is not let in.
async fn refused(config: &tokio_postgres::Config) -> (String, String) {
    match config.connect(NoTls).await {
        Ok(_) => panic!("let in"),
        Err(error) => of(&error),
    }
}

#[tokio::test]
async fn the_key_is_proven_by_scram() {
    let server = keyed(Login::Scram(verifier("rs-key"))).await;
    let mut config = server.config();
    let (client, connection) = config.password("rs-key").connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    assert_eq!(value(&client, "SELECT 1").await, "1");

    let wrong = ("28P01".to_owned(), "password authentication failed for user \"acme\"".to_owned());
    assert_eq!(refused(config.password("rs-kez")).await, wrong);
    // A stranger learns nothing from the answer.
    let unknown = ("28P01".to_owned(), "password authentication failed for user \"ghost\"".to_owned());
    assert_eq!(refused(config.user("ghost").password("rs-key")).await, unknown);
    assert!(server.config().connect(NoTls).await.is_err());
}

#[tokio::test]
async fn a_key_without_a_verifier_is_sent_in_clear_from_this_machine() {
    let server = keyed(Login::ClearText).await;
    let mut config = server.config();
    let (client, connection) = config.password("sesame").connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    assert_eq!(value(&client, "SELECT 1").await, "1");
    assert_eq!(refused(config.password("basil")).await.0, "28P01");
}

#[tokio::test]
async fn a_session_whose_key_is_revoked_ends_and_says_so() {
    let server = keyed(Login::ClearText).await;
    let mut config = server.config();
    config.password("sesame");
    let (idle, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    let (busy, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    let statement = busy.simple_query("SELECT ai_complete('forever')");
    let revoke = async {
        server.wait_for_open(1).await;
        server.revoked.send_replace(true);
    };
    let (ended, ()) = tokio::join!(statement, revoke);
    let told = ("57P01".to_owned(), "terminating connection: sesame's key was revoked".to_owned());
    assert_eq!(of(&ended.unwrap_err()), told);
    server.wait_for_open(0).await;
    assert!(idle.simple_query("SELECT 1").await.is_err());
}

#[tokio::test]
async fn a_verifier_does_not_hold_the_key_and_is_salted() {
    let (first, second) = (verifier("rs-key"), verifier("rs-key"));
    assert_ne!(first.salt, second.salt);
    assert_ne!(first.stored_key, second.stored_key);
    assert_eq!(first.iterations, 4_096);
}

#[tokio::test]
async fn one_connection_too_many_is_told_so_and_may_come_later() {
    let limits = ConnectionLimits { connections_max: 1, ..ConnectionLimits::default() };
    let logins = HashMap::from([("acme".to_owned(), Login::Open)]);
    let server = Harness::with(logins, limits, None).await;
    let (client, connection) = server.config().connect(NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    let (code, message) = refused(&server.config()).await;
    assert_eq!(
        (code.as_str(), message.as_str()),
        ("53300", "sorry, too many clients already: the limit is 1")
    );
    drop(client);
    connection.await.unwrap().unwrap();
    let (client, _) = loop {
        // The server's side of the first may end a moment later.
        if let Ok((client, connection)) = server.config().connect(NoTls).await {
            break (client, tokio::spawn(connection));
        }
    };
    assert_eq!(value(&client, "SELECT 1").await, "1");
}

#[tokio::test]
async fn a_connection_is_encrypted_where_there_is_a_certificate() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let config =
        rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|builder| {
                builder.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key)
            })
            .unwrap();
    let tls = Tls::new(config);
    let logins = || HashMap::from([("acme".to_owned(), Login::ClearText)]);
    let strict = ConnectionLimits { requires_tls: true, ..ConnectionLimits::default() };
    let strict = Harness::with(logins(), strict, Some(tls.clone())).await;
    let (code, message) = refused(strict.config().password("sesame")).await;
    assert_eq!((&*code, message.contains("encrypted connections alone")), ("28000", true), "{message}");
    let server = Harness::with(logins(), ConnectionLimits::default(), Some(tls)).await;

    let mut socket = tokio::net::TcpStream::connect(server.address).await.unwrap();
    socket.write_all(&[0, 0, 0, 8, 4, 210, 22, 47]).await.unwrap();
    assert_eq!(socket.read_u8().await.unwrap(), b'S');
    drop(socket);

    if let Some(output) = crate::psql::psql(
        &server,
        &["-Atc", "SELECT 'encrypted'"],
        &[("PGSSLMODE", "require"), ("PGPASSWORD", "sesame")],
    )
    .await
    {
        assert_eq!(output, "encrypted\n");
    }
}
