//! Bytes that no client sends: the connection ends with an error, and the server goes on.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::harness::{Harness, value};

/// A startup message for "acme".
fn startup() -> Vec<u8> {
    message(None, b"\0\x03\0\0user\0acme\0\0")
}

/// A message: its type, its length and its body.
fn message(kind: Option<u8>, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).expect("short").to_be_bytes();
    kind.into_iter().chain(length).chain(body.iter().copied()).collect()
}

/// Sends messages and a Terminate, and reads all that comes back until the server closes.
async fn exchange(server: &Harness, messages: &[u8]) -> Vec<u8> {
    let mut socket = TcpStream::connect(server.address).await.expect("the server listens");
    // The server may have ended the connection before it has read all.
    let _ = socket.write_all(messages).await;
    let _ = socket.write_all(&message(Some(b'X'), b"")).await;
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer).await;
    answer
}

/// Sends bytes, says that there are no more, and waits until the server closes.
async fn hang_up(server: &Harness, bytes: &[u8]) {
    let mut socket = TcpStream::connect(server.address).await.expect("the server listens");
    let _ = socket.write_all(bytes).await;
    let _ = socket.shutdown().await;
    let _ = socket.read_to_end(&mut Vec::new()).await;
}

/// A body of a message: of the parts that messages have, in any order, and cut anywhere.
fn body() -> impl Strategy<Value = Vec<u8>> {
    let part = prop_oneof![
        Just(b"\0".to_vec()),
        Just(b"SELECT $1\0".to_vec()),
        Just(b"SELECT name FROM films; FETCH 1 FROM a;\0".to_vec()),
        Just(b"COPY films TO STDOUT (FORMAT binary)\0".to_vec()),
        Just(b"BEGIN\0".to_vec()),
        Just(b"S".to_vec()),
        Just(b"P".to_vec()),
        any::<i16>().prop_map(|word| word.to_be_bytes().to_vec()),
        (-2_i32..70_000).prop_map(|word| word.to_be_bytes().to_vec()),
        proptest::collection::vec(any::<u8>(), 0..12),
    ];
    proptest::collection::vec(part, 0..8).prop_map(|parts| parts.concat())
}

fn messages() -> impl Strategy<Value = Vec<u8>> {
    let kind = prop_oneof![
        4 => proptest::sample::select(b"QPBDECHSXpdcf".to_vec()),
        1 => any::<u8>(),
    ];
    let one = prop_oneof![
        8 => (kind, body()).prop_map(|(kind, body)| message(Some(kind), &body)),
        1 => Just(message(Some(b'P'), b"\0SELECT $1\0\0\0")),
        2 => Just(message(Some(b'B'), b"\0\0\0\0\0\x01\0\0\0\x01a\0\0")),
        1 => Just(message(Some(b'D'), b"P\0")),
        2 => Just(message(Some(b'E'), b"\0\0\0\0\0")),
        2 => Just(message(Some(b'S'), b"")),
    ];
    proptest::collection::vec(one, 1..8).prop_map(|messages| messages.concat())
}

/// Whether the answer's last message but for ReadyForQuery is whole: the server wrote no half messages.
fn is_whole(mut answer: &[u8]) -> bool {
    while let [_, l0, l1, l2, l3, ..] = answer {
        let length = u32::from_be_bytes([*l0, *l1, *l2, *l3]) as usize + 1;
        let Some(rest) = answer.get(length..) else { return false };
        answer = rest;
    }
    answer.is_empty()
}

#[test]
fn no_bytes_make_the_server_panic() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let server = Harness::open().await;
        let (client, _) = server.client().await;
        let handle = tokio::runtime::Handle::current();
        tokio::task::block_in_place(|| {
            let mut runner =
                TestRunner::new(Config { cases: 200, failure_persistence: None, ..Config::default() });
            runner
                .run(&messages(), |bytes| {
                    let sent = [startup(), bytes].concat();
                    let answer = handle.block_on(exchange(&server, &sent));
                    prop_assert!(is_whole(&answer), "half a message: {answer:?}");
                    let text = String::from_utf8_lossy(&answer);
                    prop_assert!(!text.contains("internal error"), "a panic: {text}");
                    Ok(())
                })
                .expect("no panic");
            let mut runner =
                TestRunner::new(Config { cases: 100, failure_persistence: None, ..Config::default() });
            runner
                .run(&proptest::collection::vec(any::<u8>(), 0..64), |bytes| {
                    handle.block_on(hang_up(&server, &bytes));
                    Ok(())
                })
                .expect("no panic");
        });
        assert_eq!(value(&client, "SELECT 1").await, "1");
        server.shutdown.send(true).expect("the server runs");
        // A connection whose task panicked would not be joined in peace.
        server.server.await.expect("no panic").expect("no error");
    });
}

#[tokio::test]
async fn a_message_that_is_cut_short_ends_the_connection_with_an_error() {
    let server = Harness::open().await;
    for bytes in [
        message(Some(b'P'), b"\0SELECT 1\0\xff\xff"),
        message(Some(b'B'), b"\0\0\0\x01\0\0\0\x01\0\0\x40\0"),
        message(Some(b'Q'), b"SELECT '\xff'\0"),
        message(Some(b'z'), b""),
        b"Q\0\0\0\x01".to_vec(),
        b"Q\x7f\xff\xff\xff".to_vec(),
    ] {
        let answer = exchange(&server, &[startup(), bytes.clone()].concat()).await;
        let text = String::from_utf8_lossy(&answer);
        assert!(text.contains("SFATAL\0"), "{bytes:?}: {text}");
        assert!(is_whole(&answer));
    }
}
