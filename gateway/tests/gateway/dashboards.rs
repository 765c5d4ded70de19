//! A server under load has every series that the dashboards, the rules and vLLM's public dashboard ask for.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use gateway::config::Config;
use serde_json::json;

use crate::common::replica::{FakeReplica, fleet};
use crate::common::{Server, config, model, serve_fleet, serve_with};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../dashboards")
}

/// As dashboards are served: with series of single tenants and replicas.
fn for_all(mut config: Config) -> Config {
    config.server.metrics_for_all = true;
    config
}

/// A server that has answered a column, twice for the cache, and some calls.
async fn worked() -> Server {
    let server = serve_with(for_all(config()), serving::model::Model { has_chat: true, ..model() }).await;
    let rows: Vec<_> = (0..8).map(|row| json!([format!("several words, the last is w{row}")])).collect();
    for _ in 0..2 {
        let reply = server.relquery(json!({"template": "Say {w}", "rows": rows, "max_tokens": 3})).await;
        assert_eq!(reply.status, 200, "{}", reply.body);
    }
    let chat = json!({"messages": [{"role": "user", "content": "Say yes"}]});
    assert_eq!(server.client.post("/v1/chat/completions", &chat).await.status, 200);
    server.until_rows_end().await;
    server
}

/// The lines of `/metrics` as name and labels.
async fn series(server: &Server) -> Vec<(String, String)> {
    let text = server.client.get("/metrics").await.body;
    let line = |line: &str| {
        let (series, _value) = line.rsplit_once(' ')?;
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        Some((name.to_owned(), labels.to_owned()))
    };
    text.lines().filter(|line| !line.starts_with('#')).filter_map(line).collect()
}

#[actix_web::test]
async fn vllms_public_dashboard_finds_every_series_with_the_labels_it_chooses_by() {
    let server = worked().await;
    let series = series(&server).await;
    let text = std::fs::read_to_string(folder().join("vllm.toml")).unwrap();
    let asked: toml::Table = text.parse().unwrap();
    let asked = asked["series"].as_array().unwrap();
    assert!(asked.len() > 8);
    let words = |value: &toml::Value| -> Vec<String> {
        value.as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect()
    };
    for entry in asked {
        let labels = words(&entry["labels"]);
        for name in words(&entry["names"]) {
            let has = |found: &str| labels.iter().all(|label| found.contains(&format!("{label}=\"")));
            let found = series.iter().any(|(known, found)| *known == name && has(found));
            assert!(found, "{name} with {labels:?} is not served");
        }
    }
    // The dashboard's variable is the model's name.
    assert!(series.iter().any(|(_, labels)| labels.contains("model_name=\"double\"")));
}

#[actix_web::test]
async fn its_times_and_counts_say_what_ran() {
    let server = worked().await;
    // Eight rows of the column, the same eight out of the cache, and a chat.
    let of = |name: &str| server.metric(&format!("{name}{{engine=\"0\",model_name=\"double\"}}"));
    for histogram in
        ["request_prompt_tokens", "request_generation_tokens", "request_max_num_generation_tokens"]
    {
        assert_eq!(of(&format!("vllm:{histogram}_count")), 9.0, "{histogram}: rows that ran");
    }
    assert_eq!(of("vllm:request_generation_tokens_sum"), of("vllm:generation_tokens_total"));
    for histogram in
        ["e2e_request_latency", "request_queue_time", "request_prefill_time", "request_decode_time"]
    {
        assert_eq!(of(&format!("vllm:{histogram}_seconds_count")), 3.0, "{histogram}: relQueries");
    }
    assert_eq!(of("vllm:time_to_first_token_seconds_count"), 2.0, "one of them was answered by the cache");
    let gaps = of("vllm:inter_token_latency_seconds_count");
    assert!(gaps >= 9.0 && gaps <= of("vllm:generation_tokens_total"), "{gaps}");
    assert_eq!(server.metric("relserve_tenant_rows_total{tenant=\"1\"}"), 9.0);
}

#[actix_web::test]
async fn every_metric_of_every_panel_and_rule_is_served() {
    let server = worked().await;
    // Only a gateway with replicas has their series.
    let replica = FakeReplica::start().await;
    let front = serve_fleet(for_all(fleet(vec![replica.executor()]))).await;
    front.until("its replica is shown", |front| !front.running.app.runtime.view().replicas.is_empty()).await;
    let served = [series(&server).await, series(&front).await].concat();
    let served: BTreeSet<String> = served.into_iter().map(|(name, _)| name).collect();
    let files = ["gateway", "tenants", "scheduler", "engine", "fleet"];
    let files =
        files.map(|name| format!("grafana/{name}.json")).into_iter().chain(["prometheus/rules.yml".into()]);
    let mut asked = 0;
    for file in files {
        let text = std::fs::read_to_string(folder().join(&file)).unwrap();
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
        for name in text.split(|c: char| !is_name(c)) {
            if name.starts_with("relserve_") || name.starts_with("vllm:") {
                assert!(served.contains(name), "{file}: {name} is not served");
                asked += 1;
            }
        }
    }
    assert!(asked > 100, "{asked} names were found");
}
