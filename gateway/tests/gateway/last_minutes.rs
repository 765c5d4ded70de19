//! What is remembered of the last minutes: the trace of it, and what another policy would have made of it.

use base::{Millis, TokenCount};
use gateway::config::Config;
use serde_json::{Value, json};
use serving::live::pace::Pace;
use serving::live::trace::recorded;
use serving::live::what_if::{ReplayDeadline, replay};
use sim::Trace;

use crate::common::client::Client;
use crate::common::replica::{FakeReplica, fleet};
use crate::common::{
    Parties, Server, config, model, seen_in_time, serve, serve_fleet, serve_parties, serve_with,
};
use crate::constraints::{serve_demo, steps};

const WHAT_IF: &str = "/v1/scheduler/what-if";

fn table(rows: usize) -> Value {
    let rows: Vec<Value> = (0..rows).map(|row| json!([format!("word{row:04}")])).collect();
    json!({"template": "A template of more than one block. Repeat: {w}", "columns": ["w"],
        "rows": rows, "max_tokens": 8, "cache": false})
}

async fn run(server: &Server, rows: usize) {
    assert_eq!(server.relquery(table(rows)).await.status, 200);
}

async fn until_remembered(server: &Server, count: usize) {
    let live = server.running.app.runtime.shared.live.clone();
    server.until("it is remembered", |_| live.records(base::Time(0)).len() == count).await;
}

async fn what_if(server: &Server, policy: &str) -> Value {
    let reply = server.client.post(WHAT_IF, &json!({ "policy": policy })).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    reply.json()
}

#[actix_web::test]
async fn a_recorded_load_is_replayed_under_another_policy_and_the_present_one() {
    let server = serve().await;
    for rows in [30, 2, 5] {
        run(&server, rows).await;
    }
    until_remembered(&server, 3).await;
    let answer = what_if(&server, "fcfs,relserve").await;
    assert_eq!(
        (&answer["relqueries"], &answer["rows"], &answer["left_out"]),
        (&json!(3), &json!(37), &json!(0))
    );
    assert_eq!(answer["measured"]["relqueries"], 3);
    let replays = answer["replays"].as_array().unwrap();
    let names: Vec<_> = replays.iter().map(|replay| replay["policy"].as_str().unwrap()).collect();
    assert_eq!(names, ["marginal-work", "fcfs", "relserve"]);
    assert_eq!((&replays[0]["is_present"], &replays[1]["is_present"]), (&json!(true), &json!(false)));
    for replay in replays {
        assert_eq!(replay["latency"]["relqueries"], 3);
        let ms = |name: &str| replay["latency"][name].as_f64().unwrap();
        assert!(ms("mean_ms") > 0.0);
        let parts = ms("waiting_ms") + ms("core_ms") + ms("tail_ms");
        assert!((parts - ms("mean_ms")).abs() < 1e-3, "Eq. 2: {replay}");
    }
    assert_eq!(server.metric("relserve_what_ifs_total"), 1.0);
}

#[actix_web::test]
async fn the_trace_is_read_by_the_simulator_and_says_how_long_the_rows_were() {
    let server = serve().await;
    run(&server, 3).await;
    until_remembered(&server, 1).await;
    let reply = server.client.get("/v1/scheduler/trace").await;
    let trace = Trace::parse(&reply.body).unwrap();
    let one = &trace.relqueries[0];
    assert_eq!((one.tenant.as_str(), one.ol, one.rows.len()), ("tenant-1", 8, 3));
    assert!(one.rows.iter().all(|row| row[2] == 8), "what each said: {:?}", one.rows);
    let prompts: u64 =
        trace.lower().unwrap().submissions[0].items.iter().map(|item| item.prompt.len() as u64).sum();
    assert_eq!(prompts, 3 * 51);
    assert_eq!(trace.templates[0].tokens, 43, "the text before the first value");
    assert_eq!(one.groups, [7], "`word000`, which the values begin with");
}

#[actix_web::test]
async fn before_anything_ended_there_is_nothing_to_replay() {
    let server = serve().await;
    let answer = what_if(&server, "fcfs").await;
    assert_eq!(
        (&answer["relqueries"], &answer["replays"], &answer["measured"]),
        (&json!(0), &json!([]), &json!(null))
    );
    let bad = server.client.post(WHAT_IF, &json!({"policy": "best"})).await;
    assert_eq!(bad.status, 400);
    assert!(bad.error().contains("`policy`") && bad.error().contains("relserve"), "{}", bad.body);
    assert_eq!(server.client.get(WHAT_IF).await.status, 405);
}

#[actix_web::test]
async fn one_replay_runs_at_a_time_and_none_for_longer_than_it_may() {
    let mut config = config();
    config.live.what_if_ms_max = Millis(1);
    let server = serve_with(config, model()).await;
    for _ in 0..6 {
        run(&server, 400).await;
    }
    until_remembered(&server, 6).await;
    let late = server.client.post(WHAT_IF, &json!({"policy": "all"})).await;
    assert_eq!((late.status, late.json()["error"]["code"].as_str()), (504, Some("deadline_exceeded")));
    let permit = server.running.app.runtime.shared.live.begin_replay().unwrap();
    let busy = server.client.post(WHAT_IF, &json!({"policy": "fcfs"})).await;
    assert_eq!((busy.status, busy.json()["error"]["code"].as_str()), (429, Some("busy")));
    drop(permit);
    assert_eq!(server.client.post(WHAT_IF, &json!({"policy": "fcfs"})).await.status, 504);
}

#[actix_web::test]
async fn what_is_remembered_and_replayed_is_bounded() {
    let bounded = |change: fn(&mut Config)| {
        let mut config = config();
        change(&mut config);
        config
    };
    let by_count = serve_with(bounded(|config| config.live.record_relqueries_max = 2), model()).await;
    let by_rows = serve_with(bounded(|config| config.live.record_rows_max = 6), model()).await;
    for server in [&by_count, &by_rows] {
        for _ in 0..4 {
            run(server, 3).await;
        }
        until_remembered(server, 2).await;
        assert_eq!(what_if(server, "fcfs").await["relqueries"], 2);
    }
    let small = bounded(|config| config.live.what_if_tokens_max = TokenCount(1_200));
    let by_tokens = serve_with(small, model()).await;
    for _ in 0..4 {
        run(&by_tokens, 3).await;
    }
    until_remembered(&by_tokens, 4).await;
    let answer = what_if(&by_tokens, "fcfs").await;
    assert_eq!((&answer["relqueries"], &answer["left_out"]), (&json!(2), &json!(2)), "537 each");
    let off = serve_with(bounded(|config| config.live.record_relqueries_max = 0), model()).await;
    run(&off, 3).await;
    assert_eq!(what_if(&off, "fcfs").await["relqueries"], 0);
}

#[actix_web::test]
async fn a_tenant_gets_its_own_trace() {
    let Parties { server, theirs, operators } = serve_parties(config()).await;
    run(&server, 5).await;
    until_remembered(&server, 1).await;
    let relqueries = |json: &str| Trace::parse(json).unwrap().relqueries.len();
    for (client, own) in [(&server.client, 1), (&theirs, 0), (&operators, 1)] {
        assert_eq!(relqueries(&client.get("/v1/scheduler/trace").await.body), own);
    }
}

#[actix_web::test]
async fn a_what_if_tells_a_tenant_of_its_own_relqueries_among_all() {
    let Parties { server, theirs, operators } = serve_parties(config()).await;
    run(&server, 5).await;
    until_remembered(&server, 1).await;
    let ask = async |client: &Client| client.post(WHAT_IF, &json!({"policy": "fcfs"})).await.json();
    let nothing = ask(&theirs).await;
    let counts = |answer: &Value| ["relqueries", "rows", "left_out"].map(|name| answer[name].clone());
    assert_eq!(counts(&nothing), [0, 0, 0].map(|count| json!(count)), "{nothing}");
    assert_eq!((&nothing["replays"], &nothing["measured"]), (&json!([]), &json!(null)));
    assert_eq!(nothing["span_ms"], 0.0);
    assert_eq!(theirs.post("/v1/relqueries", &table(2)).await.status, 200);
    until_remembered(&server, 2).await;
    let [mine, others, all] = [ask(&server.client).await, ask(&theirs).await, ask(&operators).await];
    assert_eq!([&mine, &others, &all].map(|answer| answer["relqueries"].clone()), [1, 1, 2]);
    assert_eq!([&mine, &others, &all].map(|answer| answer["rows"].clone()), [5, 2, 7]);
    assert_eq!([&mine, &others, &all].map(|answer| answer["measured"]["relqueries"].clone()), [1, 1, 2]);
    for place in 0..2 {
        let replay = |answer: &Value| answer["replays"][place].clone();
        let mean = |answer: &Value| replay(answer)["latency"]["mean_ms"].as_f64().unwrap();
        assert_eq!(replay(&mine)["latency"]["relqueries"], 1);
        let average = (mean(&mine) + mean(&others)) / 2.0;
        assert!((average - mean(&all)).abs() < 1e-6, "one replay of the whole load: {average} {all}");
        assert!(replay(&all)["steps"].is_u64() && replay(&all)["prefix_hits"].is_f64());
        for answer in [&mine, &others] {
            assert_eq!(
                (&replay(answer)["steps"], &replay(answer)["prefix_hits"]),
                (&json!(null), &json!(null))
            );
        }
    }
}

#[actix_web::test]
async fn a_relquery_that_was_called_off_counts_with_what_it_got() {
    let server = serve().await;
    server.gate.shut();
    let rows: Vec<Value> = (0..3).map(|row| json!([format!("word{row:04}")])).collect();
    let body = json!({"template": "Repeat: {w}", "columns": ["w"], "rows": rows, "max_tokens": 8, "cache": false, "stream": true});
    let stream = server.client.begin("/v1/relqueries", &body).await;
    server.until("a step waits", |server| server.gate.passed() == 1).await;
    server.gate.allow(2);
    server.until("two steps ran", |server| server.gate.passed() == 3).await;
    drop(stream);
    server.until("the client is gone", |server| server.metric("relserve_disconnects_total") == 1.0).await;
    server.gate.release();
    until_remembered(&server, 1).await;
    let trace = Trace::parse(&server.client.get("/v1/scheduler/trace").await.body).unwrap();
    let rows = &trace.relqueries[0].rows;
    assert!(rows.len() == 3 && rows.iter().all(|row| (2..=8).contains(&row[2])), "{rows:?}");
    assert_eq!(what_if(&server, "fcfs").await["measured"], json!(null));
}

#[actix_web::test]
async fn in_front_of_replicas_the_queue_is_replayed_on_as_many_as_are_in_service() {
    let (one, other) = (FakeReplica::start().await, FakeReplica::start().await);
    let server = serve_fleet(fleet(vec![one.executor(), other.executor()])).await;
    let up = |server: &Server, count: usize| {
        server.running.app.runtime.view().replicas.iter().filter(|replica| replica.is_up).count() == count
    };
    server.until("both are up", |server| up(server, 2)).await;
    for rows in [30, 2, 5] {
        run(&server, rows).await;
    }
    until_remembered(&server, 3).await;
    let answer = what_if(&server, "all").await;
    assert_eq!(
        (&answer["relqueries"], &answer["rows"], &answer["left_out"]),
        (&json!(3), &json!(37), &json!(0))
    );
    let replays = answer["replays"].as_array().unwrap();
    let names: Vec<_> = replays.iter().map(|replay| replay["policy"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        ["marginal-work", "fcfs", "static-priority", "relserve", "relserve-pp", "relserve-dp"],
        "the orders that differ there"
    );
    for replay in replays {
        assert_eq!(replay["latency"]["relqueries"], 3);
        let ms = |name: &str| replay["latency"][name].as_f64().unwrap();
        assert!(ms("mean_ms") > 0.0 && ms("max_ms") >= ms("mean_ms"), "{replay}");
    }
    one.kill().await;
    other.kill().await;
    server.until("both are down", |server| up(server, 0)).await;
    let reply = server.client.post(WHAT_IF, &json!({"policy": "fcfs"})).await;
    assert_eq!((reply.status, reply.json()["error"]["code"].as_str()), (503, Some("no_replica")));
}

#[actix_web::test]
async fn what_was_measured_and_what_is_replayed_are_of_the_same_relqueries() {
    let server = serve().await;
    run(&server, 3).await;
    until_remembered(&server, 1).await;
    server.gate.shut();
    let before = server.gate.passed();
    let body = json!({"template": "Repeat: {w}", "columns": ["w"], "rows": [["word0000"], ["word0001"]], "max_tokens": 8,
        "cache": false, "stream": true});
    let stream = server.client.begin("/v1/relqueries", &body).await;
    server.until("a step waits", |server| server.gate.passed() == before + 1).await;
    server.gate.allow(1);
    server.until("a step ran, the next waits", |server| server.gate.passed() == before + 2).await;
    drop(stream);
    let is_off = |server: &Server| server.running.app.runtime.registry.running().is_empty();
    server.until("the work is called off", is_off).await;
    server.gate.release();
    until_remembered(&server, 2).await;
    let answer = what_if(&server, "fcfs").await;
    assert_eq!(
        (&answer["relqueries"], &answer["measured"]["relqueries"]),
        (&json!(2), &json!(1)),
        "{answer}"
    );
    for replay in answer["replays"].as_array().unwrap() {
        assert_eq!(
            replay["latency"]["relqueries"], 1,
            "the one that was called off has no latency to compare"
        );
    }
    let ms = |latency: &Value| latency["mean_ms"].as_f64().unwrap();
    let off = ms(&answer["replays"][0]["latency"]) / ms(&answer["measured"]) - 1.0;
    assert!((answer["error"].as_f64().unwrap() - off).abs() < 1e-9, "{answer}");
    assert!(answer["pace"].as_f64() > Some(0.0), "the steps were timed: {answer}");
    let timelines = answer["timelines"].as_array().unwrap();
    assert_eq!(timelines.len(), 2);
    assert!(timelines[0]["measured"]["core_ms"].is_f64() && timelines[1]["measured"].is_null(), "{answer}");
    for one in timelines {
        assert_eq!((one["replays"].as_array().unwrap().len(), &one["tenant"]), (2, &json!("you")));
    }
    assert!(timelines[0]["arrival_ms"] == 0.0 && timelines[1]["arrival_ms"].as_f64() > Some(0.0));
    let sum: f64 = ["waiting_ms", "core_ms", "tail_ms"]
        .iter()
        .map(|part| timelines[0]["replays"][0][part].as_f64().unwrap())
        .sum();
    assert!((sum - ms(&answer["replays"][0]["latency"])).abs() < 1e-9, "its latency is the average of one");
}

#[actix_web::test]
async fn answers_whose_tokens_are_forced_are_replayed_in_the_steps_that_they_took() {
    let (running, client) = serve_demo().await;
    let schema = json!({"type": "object", "properties": {"what_the_reviewer_thinks": {"type": "boolean"}},
        "required": ["what_the_reviewer_thinks"], "additionalProperties": false});
    let body = json!({"template": "Classify the text: {text}", "rows": [["A wonderful film, I loved it."]],
        "max_tokens": 60, "constraint": {"json_schema": schema}, "cache": false});
    let reply = client.post("/v1/relqueries", &body).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    let live = running.app.runtime.shared.live.clone();
    let mut looks = tokio::time::interval(std::time::Duration::from_millis(2));
    seen_in_time("it is remembered", async {
        while live.records(base::Time(0)).is_empty() {
            looks.tick().await;
        }
    })
    .await;
    let trace = Trace::parse(&client.get("/v1/scheduler/trace").await.body).unwrap();
    let one = &trace.relqueries[0];
    let (tokens, samplings) = (one.rows[0][2], one.samplings.first().copied().unwrap_or_default());
    assert!(samplings > 0 && (samplings as i64) < tokens, "{tokens} tokens in {samplings} steps: {one:?}");
    let ran: u64 = ["prefill", "decode", "mixed"].map(|kind| steps(&running, kind)).iter().sum();
    let replay = sim::replay(&trace, scheduler::Policy::MarginalWork, &sim::ReplayConfig::default()).unwrap();
    assert_eq!(replay.counts.iters, ran, "as many steps as there were: {one:?}");
    running.drain(std::future::pending()).await;
}

/// Prints what a replay of a few columns says with the cost model as it is fitted, at the pace of the steps, and what
/// was measured: `docs/LIVE.md` has the numbers of one run.
#[actix_web::test]
async fn a_replay_goes_at_the_pace_that_the_steps_had() {
    let (running, client) = serve_demo().await;
    for (column, rows) in [(0, 12), (1, 12), (2, 12), (3, 50), (4, 50)] {
        let call = |row: u64| {
            let text = format!("Order {column}-{row}: the thing arrived late and it broke after {row} days.");
            json!({"function": "classify", "args": [text, ["good", "bad"]]})
        };
        let calls: Vec<Value> = (0..rows).map(call).collect();
        assert_eq!(client.post("/v1/cells", &json!({ "calls": calls })).await.status, 200);
    }
    let runtime = &running.app.runtime;
    let live = runtime.shared.live.clone();
    let mut looks = tokio::time::interval(std::time::Duration::from_millis(2));
    seen_in_time("all is remembered", async {
        while live.records(base::Time(0)).len() < 5 {
            looks.tick().await;
        }
    })
    .await;
    let cost = runtime.view().cost;
    let pace = live.pace(base::Time(0), &cost);
    let ran: u64 = ["prefill", "decode", "mixed"].map(|kind| steps(&running, kind)).iter().sum();
    assert_eq!(pace.steps, ran, "each step was timed, though nobody looked");
    let paced = live.pace(base::Time(0), &cost.paced(pace.measured, pace.modelled));
    assert!(paced.ratio().is_some_and(|ratio| (ratio - 1.0).abs() < 0.01), "{paced:?}");
    let machine = serving::start::imitated(&running.app.config.scheduler, None, &runtime.model);
    let recorded = recorded(live.records(base::Time(0)), TokenCount(8_000_000));
    let mean = |periods: &[base::Periods]| {
        periods.iter().map(|one| one.total().as_seconds() * 1e3).sum::<f64>() / periods.len() as f64
    };
    let replayed = |pace| {
        let judge = machine.judge(&runtime.view(), pace).unwrap().unwrap();
        let clock = runtime.shared.clock;
        let deadline = ReplayDeadline { clock, end: clock.now() + base::Nanos(60_000_000_000) };
        let replays = replay(&recorded.trace, &[scheduler::Policy::MarginalWork], &judge, deadline).unwrap();
        mean(&replays[0].periods)
    };
    let measured: Vec<base::Periods> =
        recorded.records.iter().filter_map(|record| record.periods()).collect();
    println!("{ran} steps, pace {:.2}", pace.ratio().unwrap_or_default());
    println!("as fitted {:.1} ms, at the pace {:.1} ms", replayed(Pace::default()), replayed(pace));
    println!("measured {:.1} ms", mean(&measured));
    running.drain(std::future::pending()).await;
}
