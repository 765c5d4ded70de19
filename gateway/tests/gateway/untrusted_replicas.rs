//! Servers behind that are not what they should be: one whose replies have no end, one that sends rows elsewhere.

use base::Bytes;
use serde_json::json;

use crate::common::replica::{Act, FakeReplica, fleet};
use crate::common::words::{assert_answered, table, until_up};
use crate::common::{seen_in_time, serve_fleet};

#[actix_web::test]
async fn a_redirect_leads_no_prompt_to_another_server() {
    let (named, elsewhere) = (FakeReplica::start().await, FakeReplica::start().await);
    let server = serve_fleet(fleet(vec![named.executor()])).await;
    until_up(&server, 1).await;
    let location = format!("Location: http://{}/v1/chat/completions\r\n", elsewhere.address);
    named.next([Act::Reply(307, location.leak(), "")]);
    assert_answered(&server.relquery(table(1)).await.json(), 1);
    assert_eq!(named.state().asked.len(), 2, "the row was tried again where it was");
    assert!(elsewhere.state().asked.is_empty(), "a stranger has seen a prompt");
}

#[actix_web::test]
async fn a_reply_without_an_end_fails_its_row_and_is_hung_up_on() {
    let replica = FakeReplica::start().await;
    let mut config = fleet(vec![replica.executor()]);
    config.replicas[0].reply_bytes_max = Bytes(100_000);
    let server = serve_fleet(config).await;
    until_up(&server, 1).await;
    replica.next([Act::Endless("application/json", " ")]);
    let reply = server.relquery(table(1)).await;
    assert!(reply.body.contains("more than 100000 bytes"), "{}", reply.body);
    server.until("it is hung up on", |_| replica.state().left == 1).await;
    // Events without meaning, one event without an end, and what is none.
    let pieces = ["data: {\"choices\": []}\n\n", "data: 1\n", ": nothing\n"];
    let chat = json!({"model": "m", "stream": true, "messages": [{"role": "user", "content": "say x"}]});
    for (piece, left) in pieces.into_iter().zip(2..) {
        replica.next([Act::Endless("text/event-stream", piece)]);
        let reply = server.client.post("/v1/chat/completions", &chat);
        let reply = seen_in_time("the end of what has none", reply).await;
        assert!(reply.body.contains("more than 100000 bytes"), "{piece:?}: {}", reply.body);
        server.until("it is hung up on", |_| replica.state().left == left).await;
    }
    assert_answered(&server.relquery(table(1)).await.json(), 1);
}
