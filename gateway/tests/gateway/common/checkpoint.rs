//! A server on the real engine, with a small random checkpoint.

use std::sync::Arc;

use engine::checkpoint::synthetic::Synthetic;
use gateway::app::start;
use gateway::config::Config;
use scheduler::CostModel;
use serde_json::Value;
use serving::clock::Clock;
use serving::load;
use serving::load::LoadedModel;
use store::{DEFAULT_TENANT, Store};

use super::client::Client;
use super::double::Gate;
use super::{Server, key_of};

/// A server on a store, with nothing in the engine's memory.
pub async fn serve_checkpoint(mut config: Config, checkpoint: &Synthetic, store: Store) -> Server {
    let folder = tempfile::tempdir().unwrap();
    checkpoint.write(folder.path()).unwrap();
    config.model.dir = Some(folder.path().to_owned());
    config.model.name = Some("random".into());
    config.engine.threads = Some(1);
    let engine = load::load(config.backend()).unwrap();
    let model = load::model_of(&engine, config.backend(), Clock::start());
    let backend = LoadedModel {
        executor: Some(Box::new(engine.executor)),
        fresh: None,
        model,
        cost: CostModel::default(),
    };
    let key = key_of(&store, DEFAULT_TENANT).await;
    let running = start(config, backend, store).await.unwrap();
    let client = Client { address: running.address, key: Some(key) };
    Server { running, client, gate: Arc::new(Gate::open()) }
}

/// Prompt tokens of a reply: all, exact, shifted, computed.
pub fn prompt_tokens(reply: &Value) -> [u64; 4] {
    let usage = &reply["usage"];
    let details = &usage["prompt_tokens_details"];
    let counts = [
        &usage["prompt_tokens"],
        &details["exact_tokens"],
        &details["shifted_tokens"],
        &usage["computed_tokens"],
    ];
    let [all, exact, shifted, computed] = counts.map(|count| count.as_u64().unwrap());
    let repaired = details.get("repaired_tokens").map_or(0, |tokens| tokens.as_u64().unwrap());
    assert_eq!(all + repaired, exact + shifted + computed, "{usage}");
    assert_eq!(details["cached_tokens"].as_u64(), Some(exact + shifted));
    [all, exact, shifted, computed]
}
