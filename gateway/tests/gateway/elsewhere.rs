//! Responses in the background that another gateway on the same database runs: who reads them here is told how they grow, in
//! the same events, and nothing is written for that while nobody reads.

use base::Millis;
use serde_json::Value;
use sqlx::AnyPool;
use store::{ClaimKind, Lease, ProgressPiece, Store, UnixMillis};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

use crate::background::{chatty, path_of, until};
use crate::background_streams::{begin, deltas, events, follow, numbers, told};
use crate::batches::hasty;
use crate::common::client::{Client, finish, read_until};
use crate::common::{Server, key_of, seen_in_time, serve_on, until_count};
use crate::takes::end;

/// A gateway on a database.
async fn gateway(url: &str, node: &str) -> Server {
    let mut config = hasty();
    config.store.node = node.into();
    // Whatever comes runs beside what runs.
    config.scheduler.policy = scheduler::Policy::Sarathi;
    serve_on(config, chatty(), Store::open(url).await.unwrap()).await
}

/// The address of a database that several gateways of a machine can use.
fn file(folder: &tempfile::TempDir) -> String {
    format!("sqlite://{}", folder.path().join("test.db").display())
}

/// Begins to read a response from its first event on.
async fn follow_all(client: &Client, response: &Value) -> TcpStream {
    let path = format!("{}?stream=true", path_of(response));
    client.send(&client.request("GET", &path, "application/json", b"")).await
}

/// Reads a stream until a piece of the text is told.
async fn until_said(stream: &mut TcpStream, piece: &str) -> String {
    seen_in_time(piece, read_until(stream, &format!("\"delta\":\"{piece}\""))).await
}

/// A reader at one gateway of what the other one runs: told before the end, and in the same events.
pub(crate) async fn an_answer_grows_at_another_gateway(url: &str) {
    let (a, b) = (gateway(url, "a").await, gateway(url, "b").await);
    a.gate.shut();
    let (response, at_a) = begin(&a.client).await;
    let mut early = follow_all(&b.client, &response).await;
    let whole = follow_all(&b.client, &response).await;
    read_until(&mut early, "response.queued").await;
    a.gate.allow(6);
    let text = until_said(&mut early, "one").await;
    assert!(text.contains("response.in_progress") && !text.contains("output_text.done"), "{text}");
    let behind = follow(&b.client, &response, 2).await;
    // Another tenant is told of no response of this one's.
    let zeta = b.running.app.runtime.store.create_tenant("zeta", 1.0, UnixMillis(1)).await.unwrap().id;
    let theirs = b.client.with_key(&key_of(&b.running.app.runtime.store, zeta).await);
    assert_eq!(theirs.get(&format!("{}?stream=true", path_of(&response))).await.status, 404);
    a.gate.release();

    drop(at_a);
    let whole = events(&finish(whole).await);
    assert_eq!(deltas(&whole), ["one", " two", " three", " four"]);
    assert_eq!(numbers(&whole), (0..whole.len() as u64).collect::<Vec<_>>());
    assert_eq!(whole, told(&a.client, &response, "").await, "as where it runs");
    assert_eq!(events(&finish(behind).await), whole[3..]);
    assert_eq!(b.gate.passed(), 0, "it ran at one alone");
    // Nothing is left of what was told.
    let pool = AnyPool::connect(url).await.unwrap();
    until_count(&pool, 0, "SELECT COUNT(*) FROM ticket_progress").await;
    until_count(&pool, 0, "SELECT COUNT(*) FROM ticket_readers").await;
    a.until_free().await;
}

#[actix_web::test]
async fn a_reader_at_another_gateway_is_told_the_same_events_before_the_end() {
    let folder = tempfile::tempdir().unwrap();
    an_answer_grows_at_another_gateway(&file(&folder)).await;
}

#[actix_web::test]
async fn of_what_nobody_reads_at_another_gateway_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let url = file(&folder);
    let (a, b) = (gateway(&url, "a").await, gateway(&url, "b").await);
    let pool = AnyPool::connect(&url).await.unwrap();
    // Whatever is written is noted, and stays so when it is deleted.
    let noting = "CREATE TABLE noted (ticket TEXT);
        CREATE TRIGGER noted_readers AFTER INSERT ON ticket_readers BEGIN INSERT INTO noted VALUES (NEW.ticket); END;
        CREATE TRIGGER noted_progress AFTER INSERT ON ticket_progress BEGIN INSERT INTO noted VALUES (NEW.ticket); END";
    sqlx::raw_sql(noting).execute(&pool).await.unwrap();
    a.gate.shut();
    // One is read where it runs, and one at the other gateway too; the answer to one has begun before the other is told.
    let (alone, mut here) = begin(&a.client).await;
    let (read, _stream) = begin(&a.client).await;
    let mut there = follow_all(&b.client, &read).await;
    a.gate.allow(12);
    until_said(&mut here, "one").await;
    until_said(&mut there, "one").await;
    let noted: Vec<(String,)> =
        sqlx::query_as("SELECT DISTINCT ticket FROM noted").fetch_all(&pool).await.unwrap();
    let [(noted,)] = &noted[..] else { panic!("of one: {noted:?}, and not of {alone}") };
    assert_eq!(read["id"], noted.as_str());
    a.gate.release();
    for response in [&alone, &read] {
        until(&a.client, response, "completed").await;
    }
    a.until_free().await;
}

/// A gateway that is tested, and a response of which another one was killed, with leases that have not run out.
struct LeftBehind {
    _folder: tempfile::TempDir,
    store: Store,
    reader: Server,
    response: Value,
    /// How often the response was taken over.
    takes: u64,
}

impl LeftBehind {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = file(&folder);
        let first = gateway(&url, "a").await;
        first.gate.shut();
        let (response, _stream) = begin(&first.client).await;
        end(first).await;
        let reader = gateway(&url, "b").await;
        let store = Store::open(&url).await.unwrap();
        Self { _folder: folder, store, reader, response, takes: 0 }
    }

    fn id(&self) -> &str {
        self.response["id"].as_str().unwrap()
    }

    /// A process of another gateway takes the response over, and all others' time is over.
    async fn take(&mut self) -> Lease {
        self.takes += 1;
        let now = self.reader.running.app.runtime.shared.unix_now();
        // Far apart: looks at the database's clock may set it back a little between two takes.
        let at = |time: u64| now.after(Millis(time * 10_000_000));
        let (holder, until) = (format!("gateway {}", self.takes), at(2 * self.takes + 1));
        let lease = Lease { process: format!("process of {holder}"), holder, until };
        let claimed =
            self.store.claim_tickets(ClaimKind::Replies, &lease, 9, at(2 * self.takes)).await.unwrap();
        assert_eq!(claimed.iter().map(|ticket| ticket.id.as_str()).collect::<Vec<_>>(), [self.id()]);
        self.store.take_tickets(&[self.id()], &lease).await.unwrap();
        lease
    }

    /// That process tells the next piece of the answer, once somebody reads.
    async fn tell(&self, lease: &Lease, number: u32, text: &str) {
        let content = format!("{{\"text\":\"{text}\",\"tokens\":[]}}");
        let piece = ProgressPiece { number, run: format!("run of {}", lease.process), content };
        let pieces = [(self.id().to_owned(), piece)];
        let is_written = async {
            let mut looks = tokio::time::interval(std::time::Duration::from_millis(5));
            while self.store.append_progress(lease, &pieces).await.unwrap().is_empty() {
                looks.tick().await;
            }
        };
        seen_in_time("somebody reads", is_written).await;
    }
}

#[actix_web::test]
async fn a_reader_stays_with_an_answer_that_is_begun_anew_with_the_same_words() {
    let mut left = LeftBehind::new().await;
    let client = left.reader.client.clone();
    let first = left.take().await;
    let mut along = follow_all(&client, &left.response).await;
    let whole = follow_all(&client, &left.response).await;
    left.tell(&first, 0, "one two th").await;
    until_said(&mut along, " two").await;

    // The first is killed, and another one goes on: it says less at first, and then more.
    let second = left.take().await;
    left.tell(&second, 0, "one t").await;
    left.tell(&second, 1, "wo three f").await;
    let text = until_said(&mut along, " three").await;
    assert_eq!(text.matches("response.output_text.delta\ndata").count(), 1, "nothing is told twice: {text}");

    // The lease of that one runs out, and the gateway of the readers runs it itself.
    let over = Lease { until: UnixMillis(1), ..second };
    assert_eq!(left.store.renew_tickets(&over).await.unwrap(), 1);
    let whole = events(&finish(whole).await);
    let done = until(&client, &left.response, "completed").await;
    assert_eq!(deltas(&whole), ["one", " two", " three", " four"]);
    assert_eq!(numbers(&whole), (0..whole.len() as u64).collect::<Vec<_>>());
    assert_eq!(whole[whole.len() - 1]["response"], done);
    assert_eq!(whole, told(&client, &left.response, "").await);
    left.reader.until_free().await;
}

#[actix_web::test]
async fn a_reader_is_told_of_no_other_answer_than_the_one_that_it_has_read() {
    let mut left = LeftBehind::new().await;
    let client = left.reader.client.clone();
    let first = left.take().await;
    let mut along = follow_all(&client, &left.response).await;
    left.tell(&first, 0, "one two th").await;
    until_said(&mut along, " two").await;
    // One that reads learns of another answer while that runs, and one when the readers' own gateway runs it.
    let second = left.take().await;
    left.tell(&second, 0, "one other answer").await;
    let mut rest = String::new();
    along.read_to_string(&mut rest).await.unwrap();
    assert!(rest.contains("\"code\":\"answer_changed\""), "{rest}");
    assert!(rest.contains("event: error") && !rest.contains("response.output_text"), "{rest}");
    let mut again = follow_all(&client, &left.response).await;
    until_said(&mut again, " other").await;

    let over = Lease { until: UnixMillis(1), ..second };
    assert_eq!(left.store.renew_tickets(&over).await.unwrap(), 1);
    until(&client, &left.response, "completed").await;
    let mut rest = String::new();
    again.read_to_string(&mut rest).await.unwrap();
    assert!(rest.contains("\"code\":\"answer_changed\"") && !rest.contains("response.completed"), "{rest}");
    assert_eq!(deltas(&told(&client, &left.response, "").await), ["one", " two", " three", " four"]);
    left.reader.until_free().await;
}
