//! The live view: what readers see of the loop's work, what tenants see of each other, and that nobody is
//! held up by it.

use base::Millis;
use serde_json::{Value, json};

use crate::common::client::Client;
use crate::common::replica::{FakeReplica, fleet};
use crate::common::watcher::Watcher;
use crate::common::{Parties, Server, config, model, serve, serve_fleet, serve_parties, serve_with};

/// A table whose answers have eight tokens and are not kept.
fn table(rows: usize) -> Value {
    let rows: Vec<Value> = (0..rows).map(|row| json!([format!("word{row:04}")])).collect();
    json!({"template": "A template of more than one block. Repeat: {w}", "columns": ["w"], "rows": rows,
        "max_tokens": 8, "cache": false})
}

fn ended(watcher: &Watcher, count: usize) -> bool {
    watcher.each("ended").len() >= count
}

/// Whether the last look found nothing held.
fn is_at_rest(watcher: &Watcher) -> bool {
    let scenes = watcher.scenes();
    scenes
        .last()
        .is_some_and(|snapshot| snapshot["rows_running"] == 0 && snapshot["steps"].as_u64() > Some(0))
}

fn numbers(steps: &[Value]) -> Vec<u64> {
    steps.iter().map(|step| step["step"].as_u64().unwrap()).collect()
}

#[actix_web::test]
async fn two_readers_see_every_step_why_it_was_and_the_relquery_that_ended() {
    let server = serve().await;
    let mut readers = [Watcher::open(&server.client).await, Watcher::open(&server.client).await];
    assert_eq!(server.metric("relserve_live_readers"), 2.0);
    server.relquery(table(20)).await;
    for reader in &mut readers {
        reader.until("the end of it", |reader| ended(reader, 1) && is_at_rest(reader)).await;
        let steps = reader.each("steps");
        assert_eq!(numbers(&steps), (1..=steps.len() as u64).collect::<Vec<_>>(), "each once, in order");
        assert_eq!(reader.lost(), 0);
        let sum = |path: &str| steps.iter().filter_map(|step| step.pointer(path)?.as_u64()).sum::<u64>();
        assert_eq!(sum("/prefill/rows"), 20);
        assert_eq!(sum("/decode_rows"), 20 * 7, "the prefill gives the first of eight tokens");
        assert_eq!(server.metric("relserve_prefix_query_tokens_total") as u64, 20 * 51);
        for step in &steps {
            assert!(["prefill", "decode", "mixed"].contains(&step["kind"].as_str().unwrap()));
            assert!(!step["reason"].as_str().unwrap().is_empty());
            assert_eq!(step["shares"][0]["tenant"], "you");
        }
        let one = &reader.each("ended")[0];
        assert_eq!(
            (&one["outcome"], &one["rows"], &one["route"]),
            (&json!("completed"), &json!(20), &json!("relqueries"))
        );
        assert_eq!(one["output_tokens"], 160);
        let periods = ["waiting_us", "core_us", "tail_us"].map(|name| one["periods"][name].as_u64().unwrap());
        let latency = one["end_us"].as_u64().unwrap() - one["arrival_us"].as_u64().unwrap();
        assert!(periods.iter().sum::<u64>() <= latency + 3, "Eq. 2: {one}");
    }
    drop(readers);
    server.until("nobody looks", |server| server.metric("relserve_live_readers") == 0.0).await;
}

#[actix_web::test]
async fn the_queue_shows_places_priorities_and_why_they_changed() {
    let mut config = config();
    (config.live.frame_ms, config.live.snapshot_ms) = (Millis(2), Millis(1));
    config.scheduler.sequences_max = 4;
    let server = serve_with(config, model()).await;
    let mut reader = Watcher::open(&server.client).await;
    server.gate.shut();
    let _first = server.client.begin("/v1/relqueries", &table(3)).await;
    server.until("a step waits", |server| server.gate.passed() == 1).await;
    let _second = server.client.begin("/v1/relqueries", &table(9)).await;
    let both = |server: &Server| server.running.app.runtime.shared.intake.unfinished() == 12;
    server.until("both are there", both).await;
    for step in 1..=12_u64 {
        server.gate.allow(1);
        server.until("the next step waits", |server| server.gate.passed() == step + 1).await;
        // A step that ends while a reader has the buffer is published with the next.
        let is_told = |reader: &Watcher| numbers(&reader.each("steps")).iter().any(|told| *told + 1 >= step);
        reader.until("the step or the one before it is told", |reader| step == 1 || is_told(reader)).await;
    }
    let is_split = |snapshot: &Value| {
        let periods: Vec<_> =
            snapshot["relqueries"].as_array().unwrap().iter().map(|one| &one["period"]).collect();
        periods.len() == 2 && periods.iter().any(|period| *period != "waiting")
    };
    reader.until("a queue of two", |reader| reader.scenes().iter().any(is_split)).await;
    let scenes = reader.scenes();
    let snapshot = scenes.iter().rfind(|snapshot| is_split(snapshot)).unwrap();
    let queue = snapshot["relqueries"].as_array().unwrap();
    assert_eq!((&queue[0]["place"], &queue[1]["place"]), (&json!(1), &json!(2)));
    assert!(queue.iter().all(|one| one["priority"].as_u64() > Some(0) && one["tenant"] == "you"));
    assert_eq!(queue[0]["unit"], "aged", "as policy `marginal-work` counts");
    assert!(queue[0]["breakdown"].as_str().unwrap().contains("prompts"), "{snapshot}");
    assert_eq!(snapshot["others"]["relqueries"], 0);
    let kv = &snapshot["kv"];
    let kinds = ["private", "shared", "independent", "pinned", "cached", "free"];
    assert_eq!(
        kinds.iter().map(|kind| kv[kind].as_u64().unwrap()).sum::<u64>(),
        kv["total"].as_u64().unwrap()
    );
    assert!(kv["shared"].as_u64() > Some(0), "rows of one template share it: {kv}");
    let said: Vec<String> = scenes
        .iter()
        .flat_map(|snapshot| snapshot["relqueries"].as_array().cloned().unwrap())
        .filter_map(|one| one["why"].as_str().map(str::to_owned))
        .collect();
    assert!(said.iter().any(|why| why.starts_with("it came: ")), "{said:?}");
    assert!(said.iter().any(|why| why.contains("prompts computed")), "{said:?}");
    server.gate.release();
    reader.until("both end", |reader| ended(reader, 2)).await;
}

#[actix_web::test]
async fn a_reader_that_is_behind_loses_old_steps_and_is_told_how_many() {
    let mut config = config();
    config.live.steps_max = 4;
    config.live.frame_ms = Millis(300);
    let server = serve_with(config, model()).await;
    let mut reader = Watcher::open(&server.client).await;
    // One that never reads holds nobody up.
    let deaf = Watcher::open(&server.client).await;
    for _ in 0..5 {
        server.relquery(table(1)).await;
    }
    reader.until("the end of all", |reader| ended(reader, 5) && is_at_rest(reader)).await;
    let steps = reader.each("steps").len() as u64;
    assert_eq!(reader.scenes().last().unwrap()["steps"].as_u64(), Some(steps + reader.lost()));
    assert_eq!(steps + reader.lost(), 40);
    assert!(reader.lost() > 0, "40 steps, of which four are kept, take no second");
    assert!(server.metric("relserve_live_lost_steps_total") > 0.0);
    drop(deaf);
}

#[actix_web::test]
async fn a_tenant_sees_others_as_one_load_and_an_operator_sees_all() {
    let Parties { server, theirs, operators } = serve_parties(config()).await;
    let mut mine = Watcher::open(&server.client).await;
    let mut others = Watcher::open(&theirs).await;
    let mut all = Watcher::open(&operators).await;
    let sees = |watcher: &Watcher| watcher.all("hello")[0]["visible_to"].clone();
    assert_eq!([&mine, &others, &all].map(sees), ["own", "own", "all"]);
    let reply = server.relquery(table(6)).await.json();
    theirs.post("/v1/relqueries", &table(2)).await;
    mine.until("mine", |watcher| ended(watcher, 1) && is_at_rest(watcher)).await;
    others.until("theirs", |watcher| ended(watcher, 1) && is_at_rest(watcher)).await;
    all.until("both", |watcher| ended(watcher, 2) && is_at_rest(watcher)).await;
    let one = &mine.each("ended")[0];
    assert_eq!(reply["id"], format!("rq-{}", one["request"].as_str().unwrap()));
    let ids = [one["id"].as_str().unwrap(), one["request"].as_str().unwrap()];
    let seen = others.text();
    assert!(ids.iter().all(|id| !seen.contains(id)), "another tenant's ids are not told");
    assert!(!seen.contains("\"tenant "), "nor whose they are");
    let ended = others.each("ended");
    assert_eq!((ended.len(), &ended[0]["rows"]), (1, &json!(2)), "nor what became of them");
    let tenants = |watcher: &Watcher| {
        let shares: Vec<Value> = watcher
            .each("steps")
            .iter()
            .flat_map(|step| step["shares"].as_array().cloned().unwrap())
            .collect();
        let mut tenants: Vec<String> =
            shares.iter().map(|share| share["tenant"].as_str().unwrap().to_owned()).collect();
        tenants.sort();
        tenants.dedup();
        tenants
    };
    assert_eq!(tenants(&others), ["others", "you"]);
    assert_eq!(tenants(&all), ["default", "other"], "by their names");
    let wrong = server.client.with_key("not the operator's");
    assert_eq!(wrong.get("/v1/scheduler/events").await.status, 401);
}

#[actix_web::test]
async fn a_tenant_that_takes_all_its_seats_keeps_neither_others_nor_operators_from_looking() {
    let mut config = config();
    (config.live.tenant_readers_max, config.live.operator_readers_max) = (2, 1);
    let Parties { server, theirs, operators } = serve_parties(config).await;
    let refused = async |client: &Client, setting: &str| {
        let reply = client.get("/v1/scheduler/events").await;
        assert_eq!((reply.status, reply.json()["error"]["code"].as_str()), (429, Some("busy")));
        assert!(reply.header("retry-after").is_some() && reply.error().contains(setting), "{}", reply.body);
    };
    let mut mine = vec![Watcher::open(&server.client).await, Watcher::open(&server.client).await];
    refused(&server.client, "live.tenant_readers_max").await;
    let other = Watcher::open(&theirs).await;
    let operator = Watcher::open(&operators).await;
    refused(&operators, "live.operator_readers_max").await;
    mine.pop();
    server
        .until("a subscription is free", |server| server.running.app.runtime.shared.live.readers() == 3)
        .await;
    mine.push(Watcher::open(&server.client).await);
    drop((mine, other, operator));
}

#[actix_web::test]
async fn rows_of_a_relquery_that_was_called_off_are_not_told_as_ended() {
    let mut config = config();
    config.scheduler.sequences_max = 2;
    let server = serve_with(config, model()).await;
    let mut reader = Watcher::open(&server.client).await;
    server.gate.shut();
    let mut body = table(6);
    body["stream"] = json!(true);
    let stream = server.client.begin("/v1/relqueries", &body).await;
    server.until("a step waits", |server| server.gate.passed() == 1).await;
    // A step that waits at the gate comes after all that the one before it ended.
    while server.running.app.runtime.shared.intake.unfinished() > 4 {
        let before = server.gate.passed();
        server.gate.allow(1);
        server.until("the next step waits", |server| server.gate.passed() > before).await;
    }
    drop(stream);
    server.until("the client is gone", |server| server.metric("relserve_disconnects_total") == 1.0).await;
    server.gate.release();
    reader.until("its end", |reader| ended(reader, 1)).await;
    let one = &reader.each("ended")[0];
    let counts = ["rows", "failed_rows", "cancelled_rows"].map(|name| one[name].as_u64().unwrap());
    assert_eq!((counts, one["outcome"].as_str()), ([6, 0, 4], Some("cancelled")), "{one}");
}

#[actix_web::test]
async fn a_stream_ends_for_its_client_to_ask_anew() {
    let mut config = config();
    config.live.stream_ms_max = Millis(1);
    let server = serve_with(config, model()).await;
    let mut reader = Watcher::open(&server.client).await;
    reader.finish().await;
    assert_eq!(reader.all("end"), [json!({"reason": "again"})]);
}

#[actix_web::test]
async fn the_end_of_the_server_is_the_end_of_the_stream() {
    let server = serve().await;
    let mut reader = Watcher::open(&server.client).await;
    server.relquery(table(2)).await;
    let live = server.running.app.runtime.shared.live.clone();
    let ((), ()) = tokio::join!(reader.finish(), server.running.drain(std::future::pending()));
    assert_eq!(reader.all("end"), [json!({"reason": "shutting_down"})]);
    assert_eq!(live.readers(), 0);
}

#[actix_web::test]
async fn who_looks_late_sees_the_last_steps_and_why_they_were() {
    let server = serve().await;
    server.relquery(table(4)).await;
    let ran = server.metric("relserve_step_seconds_count") as u64;
    let mut reader = Watcher::open(&server.client).await;
    let has_all = |reader: &Watcher| ended(reader, 1) && reader.each("steps").len() as u64 == ran;
    reader.until("what ran and ended before", has_all).await;
    let steps = reader.each("steps");
    assert_eq!(numbers(&steps), (1..=ran).collect::<Vec<_>>());
    assert_eq!((steps[0]["prefill"]["rows"].as_u64(), reader.lost()), (Some(4), 0));
    assert!(steps.iter().all(|step| !step["reason"].as_str().unwrap().is_empty()));
    assert!(reader.scenes().is_empty() || reader.scenes()[0]["relqueries"] == json!([]));
}

#[actix_web::test]
async fn of_a_fleet_the_queue_and_the_replicas_are_shown() {
    let replica = FakeReplica::start().await;
    replica.state().metrics =
        Some("vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"99\"} 1.0\n".into());
    let server = serve_fleet(fleet(vec![replica.executor()])).await;
    let is_up =
        |server: &Server| server.running.app.runtime.view().replicas.iter().any(|executor| executor.is_up);
    server.until("the replica is up", is_up).await;
    let mut reader = Watcher::open(&server.client).await;
    let hello = reader.all("hello").remove(0);
    assert_eq!(hello["backend"], "fleet");
    let limits = hello["limits_of_policy"].as_array().unwrap();
    let limits: Vec<&str> = limits.iter().filter_map(Value::as_str).collect();
    let first = "scheduler.policy = marginal-work orders the queue in front of the replicas";
    assert!(limits[0].starts_with(first), "{limits:?}");
    let last = "a row that was sent runs to its end: nothing that comes before it calls it back";
    assert!(limits.contains(&last), "{limits:?}");
    let body = json!({"template": "Say {w}", "columns": ["w"], "rows": [["w0"], ["w1"]], "max_tokens": 8, "cache": false});
    server.relquery(body).await;
    reader.until("its end", |reader| ended(reader, 1) && !reader.scenes().is_empty()).await;
    assert!(reader.each("steps").is_empty(), "a gateway sees no steps of its replicas");
    assert!(reader.each("ended")[0]["periods"]["tail_us"].is_u64());
    let scenes = reader.scenes();
    let snapshot = scenes.last().unwrap();
    assert_eq!(
        (snapshot["kv"]["total"].as_u64(), snapshot["replicas"][0]["state"].as_str()),
        (Some(0), Some("up"))
    );
    let shown = &snapshot["replicas"][0];
    assert_eq!(shown["kv"], json!({"tokens": 1_584, "source": "reported"}));
    assert_eq!(shown.get("cost"), Some(&Value::Null), "two rows say nothing of it");
}

#[actix_web::test]
async fn of_a_fleet_too_each_relquery_that_began_is_told() {
    let replica = FakeReplica::start().await;
    let server = serve_fleet(fleet(vec![replica.executor()])).await;
    let is_up =
        |server: &Server| server.running.app.runtime.view().replicas.iter().any(|executor| executor.is_up);
    server.until("the replica is up", is_up).await;
    for (column, rows) in [("one", 1), ("more", 3)] {
        assert_eq!(server.relquery(labelled(column, rows)).await.status, 200);
    }
    let mut late = Watcher::open(&server.client).await;
    late.until("what ended", |watcher| ended(watcher, 2)).await;
    let first = |decision: &Value| decision["first"]["label"]["column"].clone();
    let begun: Vec<Value> = late.each("decisions").iter().map(first).collect();
    assert_eq!(begun, ["one", "more"]);
}

/// A relQuery that says what it is for.
fn labelled(column: &str, rows: usize) -> Value {
    let mut body = table(rows);
    body["label"] =
        json!({"workbook": "Reviews", "sheet": "Sheet 1", "column": column, "formula": "=AI.RATE(A2)"});
    body
}

#[actix_web::test]
async fn a_relquery_goes_by_the_label_of_its_client_and_only_its_tenant_and_operators_read_it() {
    let Parties { server, theirs, operators } = serve_parties(config()).await;
    let mut mine = Watcher::open(&server.client).await;
    let mut others = Watcher::open(&theirs).await;
    let mut all = Watcher::open(&operators).await;
    assert_eq!(server.relquery(labelled("C Sentiment", 3)).await.status, 200);
    let call = |text: &str, label: u32| json!({"function": "ask", "args": [text], "label": label});
    let cells = json!({"calls": [call("one", 1), call("two", 0)], "labels": [{"column": "D"}, {"column": "E"}], "cache": false});
    assert_eq!(server.client.post("/v1/cells", &cells).await.status, 200);
    theirs.post("/v1/relqueries", &table(2)).await;
    mine.until("mine", |watcher| ended(watcher, 2) && is_at_rest(watcher)).await;
    others.until("theirs", |watcher| ended(watcher, 1) && is_at_rest(watcher)).await;
    all.until("all", |watcher| ended(watcher, 3) && is_at_rest(watcher)).await;
    let labels = |watcher: &Watcher| -> Vec<Value> {
        watcher.each("ended").iter().map(|one| one["label"].clone()).collect()
    };
    let whole = json!({"workbook": "Reviews", "sheet": "Sheet 1", "column": "C Sentiment", "formula": "=AI.RATE(A2)"});
    assert!(labels(&mine).contains(&whole), "{:?}", labels(&mine));
    assert!(
        labels(&mine).contains(&json!({"column": "E"})),
        "what the first of its calls says: {:?}",
        labels(&mine)
    );
    assert!(!others.text().contains("Sentiment"), "another tenant's labels are not told");
    assert!(labels(&all).contains(&whole));
    let tenants: Vec<Value> = all.each("ended").iter().map(|one| one["tenant"].clone()).collect();
    assert!(
        tenants.contains(&json!("default")) && tenants.contains(&json!("other")),
        "by their names: {tenants:?}"
    );
    let decided = |watcher: &Watcher| watcher.each("decisions").len();
    assert_eq!((decided(&mine), decided(&others), decided(&all)), (2, 1, 3), "each that began is told once");
    let call = json!({"function": "ask", "args": ["x"], "label": 2});
    let reply = server.client.post("/v1/cells", &json!({"calls": [call], "labels": [{}]})).await;
    assert!(
        reply.body.contains("`calls[0].label`") && reply.body.contains("`labels` has 1"),
        "{}",
        reply.body
    );
}

#[actix_web::test]
async fn a_statement_of_sql_goes_by_its_text_and_a_client_by_its_name() {
    let server = serve().await;
    let query = "SELECT count(*) AS n FROM generate_series(1, 3) WHERE ai_if(prompt('{0} yes', value))";
    assert_eq!(server.client.post("/v1/sql", &json!({ "query": query })).await.status, 200);
    let body = json!({"prompt": "Say it", "max_tokens": 2, "cache": false}).to_string();
    let request = server.client.request("POST", "/v1/completions", "application/json", body.as_bytes());
    let request = String::from_utf8(request).unwrap().replacen(
        "Host: test",
        "Host: test\r\nUser-Agent: toy/1.2 (x)",
        1,
    );
    assert_eq!(server.client.raw(request.as_bytes()).await.status, 200);
    let mut late = Watcher::open(&server.client).await;
    late.until("both are told, who looks afterwards too", |watcher| ended(watcher, 2)).await;
    let labels: Vec<Value> = late.each("ended").iter().map(|one| one["label"].clone()).collect();
    assert_eq!(labels, [json!({ "sql": query }), json!({"client": "toy/1.2"})]);
}

#[actix_web::test]
async fn who_looks_when_the_work_is_over_still_reads_what_went_before_what() {
    let mut config = config();
    config.scheduler.sequences_max = 2;
    let server = serve_with(config, model()).await;
    server.gate.shut();
    let long = server.client.begin("/v1/relqueries", &labelled("long", 40)).await;
    server.until("a step waits", |server| server.gate.passed() == 1).await;
    let short = server.client.begin("/v1/relqueries", &labelled("short", 1)).await;
    let both = |server: &Server| server.running.app.runtime.shared.intake.unfinished() == 41;
    server.until("both are there", both).await;
    server.gate.release();
    for stream in [long, short] {
        assert_eq!(crate::common::client::finish(stream).await.status, 200);
    }
    let mut late = Watcher::open(&server.client).await;
    late.until("what ended", |watcher| ended(watcher, 2) && watcher.each("decisions").len() == 2).await;
    let decisions = late.each("decisions");
    let of = |side: &Value| (side["label"]["column"].clone(), side["rows"].as_u64());
    assert_eq!((of(&decisions[0]["first"]), decisions[0].get("rival")), ((json!("long"), Some(40)), None));
    let [first, rival] = ["first", "rival"].map(|side| decisions[1][side].clone());
    assert_eq!((of(&first), &rival["label"]["column"]), ((json!("short"), Some(1)), &json!("long")));
    assert!(
        rival["waiting_rows"].as_u64() > Some(0)
            && rival["arrival_us"].as_u64() < first["arrival_us"].as_u64()
    );
    assert!(first["work_us"].as_u64() < rival["work_us"].as_u64(), "less work was left: {first} {rival}");
    assert_eq!(decisions[1]["policy"], "marginal-work");
}
