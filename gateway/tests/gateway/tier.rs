//! The host tier: prefixes that were evicted from a small pool come back instead of being computed again.

use serde_json::json;
use serving::model::Model;
use store::Store;

use crate::common::checkpoint::{prompt_tokens, serve_checkpoint};
use crate::common::{Server, config};
use crate::pml::{llama, text};

/// Bytes of a block of this checkpoint.
const BLOCK_BYTES: u64 = 16 * 384;

/// A server whose engine has 128 blocks, and so many behind them.
async fn serve(host_blocks: u64) -> Server {
    let mut config = config();
    config.engine.kv_bytes = Some(base::Bytes(128 * BLOCK_BYTES));
    config.engine.host_kv_bytes = base::Bytes(host_blocks * BLOCK_BYTES);
    let server = serve_checkpoint(config, &llama(), Store::open("sqlite::memory:").await.unwrap()).await;
    let Model { kv_blocks, host_kv_blocks, .. } = server.running.app.runtime.model;
    assert_eq!((u64::from(kv_blocks), u64::from(host_kv_blocks)), (128, host_blocks));
    server
}

/// Four prompts of 60 blocks each, asked in turn, three times: answers, and prompt tokens computed.
async fn ask(server: &Server) -> (Vec<String>, u64) {
    let (mut answers, mut computed) = (Vec::new(), 0);
    for _ in 0..3 {
        for prompt in ["abcdefgh", "ijklmnop", "qrstuvwx", "yz012345"] {
            let prompt = prompt.repeat(120);
            let body = json!({"prompt": prompt, "max_tokens": 8, "temperature": 0, "ignore_eos": true});
            let reply = server.client.post("/v1/completions", &body).await;
            assert_eq!(reply.status, 200, "{}", reply.body);
            computed += prompt_tokens(&reply.json())[3];
            answers.push(text(&reply.json()).to_owned());
        }
    }
    server.until_free().await;
    (answers, computed)
}

#[actix_web::test]
async fn with_a_tier_the_same_requests_compute_less_and_answer_the_same() {
    let (without, with) = (serve(0).await, serve(256).await);
    let (answers, computed) = ask(&without).await;
    let (same, fewer) = ask(&with).await;
    assert_eq!(same, answers);
    // Twelve prompts of 960 tokens; with the tier four of them, and of the others the last block.
    assert_eq!((computed, fewer), (12 * 960, 4 * 960 + 8 * 16));
    let moved = |server: &Server, way: &str| {
        server.metric(&format!("relserve_host_moved_blocks_total{{way=\"{way}\"}}"))
    };
    assert_eq!((moved(&without, "out"), moved(&without, "back")), (0.0, 0.0));
    assert_eq!(with.metric("relserve_restored_tokens_total"), 16.0 * moved(&with, "back"));
    assert!(moved(&with, "out") >= moved(&with, "back") && moved(&with, "back") > 300.0);
    let used = with.metric("relserve_host_kv_blocks{state=\"used\"}");
    assert!(used > 0.0 && used + with.metric("relserve_host_kv_blocks{state=\"free\"}") == 256.0);
    let said = with.client.get("/v1/scheduler").await.json();
    assert_eq!(
        (&said["host_kv_blocks"]["total"], &said["limits"]["host_kv_blocks"]),
        (&json!(256), &json!(256))
    );
    assert_eq!(said["restored_tokens"].as_f64(), Some(with.metric("relserve_restored_tokens_total")));
}
