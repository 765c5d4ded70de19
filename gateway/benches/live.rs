//! What a live view costs the loop thread: `cargo bench -p gateway --bench live`.
//!
//! First what is done for a step that somebody looks at, beside planning and applying that step: 256 rows of
//! four tenants. Then one server whose executor takes no time, so that the loop is all there is; the same
//! relQuery again and again with nobody looking, with one reader and with four, in turn. Of each: the loop
//! thread's own processor time per step (as Linux counts it) and the wall time. Both grow also because
//! readers share the processors with it. A step of a real model takes milliseconds.
#![expect(clippy::print_stdout, reason = "a bench prints")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use base::text::ByteText;
use base::{
    BatchPlan, ExecError, Executor, Generation, Nanos, RelQueryId, RowOutcome, Sampled, SectionReuse,
    ServiceClass, StepOutcome, Submission, TenantId, Time, TokenCount, TokenId, WorkItem,
};
use gateway::app::{Running, start};
use gateway::config::{AuthMode, Config};
use scheduler::{CostModel, Scheduler, SchedulerConfig};
use serde_json::json;
use serving::live::describe::Step;
use serving::load::LoadedModel;
use serving::model::{Defaults, Model, Runs};
use store::Store;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const ROWS: usize = 1_000;
const OUTPUT: u64 = 32;
const ROUNDS: usize = 15;
const READERS: [usize; 3] = [0, 1, 4];

/// Answers at once.
struct Instantly;

impl Executor for Instantly {
    fn step(&mut self, plan: &BatchPlan) -> Result<StepOutcome, ExecError> {
        let sampled = || Ok(Sampled::one(TokenId(97), "a".into(), None));
        let slots = plan.slots.iter().filter(|slot| slot.sample.is_some());
        let rows = slots.map(|slot| RowOutcome { request: slot.request, result: sampled() }).collect();
        Ok(StepOutcome { step: plan.step, elapsed: Nanos(1_000), rows, prompts: Vec::new() })
    }
}

fn model() -> Model {
    Model {
        name: "instantly".into(),
        aliases: Vec::new(),
        description: "answers at once".into(),
        picks_only: false,
        knows_bare_prompts: false,
        text: Arc::new(ByteText),
        has_chat: false,
        constraints: None,
        context_max: TokenCount(2_048),
        vocab: 257,
        revision: 7,
        kv_blocks: 4_096,
        host_kv_blocks: 0,
        block_tokens: 16,
        reuse: SectionReuse::Anywhere,
        scores_prompts: false,
        replicas: None,
        defaults: Defaults { temperature: 1.0, top_p: 1.0, top_k: None },
        created: 0,
        runs: Runs::Engine,
    }
}

async fn serve() -> Running {
    let mut config = Config::default();
    config.server.listen = ([127, 0, 0, 1], 0).into();
    config.server.workers = 1;
    config.auth.mode = AuthMode::None;
    let backend = LoadedModel {
        executor: Some(Box::new(Instantly)),
        fresh: None,
        model: model(),
        cost: CostModel::default(),
    };
    let store = Store::open("sqlite::memory:").await.expect("a store in memory");
    start(config, backend, store).await.expect("a free port")
}

/// Sends a request and gives the connection.
async fn send(running: &Running, method: &str, path: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(running.address).await.expect("the server listens");
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: bench\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(&[head.as_bytes(), body.as_bytes()].concat()).await.expect("the server reads");
    stream
}

/// Processor time of the loop thread so far, where the system counts it by thread.
fn loop_time() -> Option<u64> {
    let tasks = std::fs::read_dir("/proc/self/task").ok()?;
    let is_loop = |path: &std::path::Path| {
        std::fs::read_to_string(path.join("comm")).is_ok_and(|name| name.trim() == "relserve-loop")
    };
    let path = tasks.filter_map(|task| Some(task.ok()?.path())).find(|path| is_loop(path))?;
    std::fs::read_to_string(path.join("schedstat")).ok()?.split(' ').next()?.parse().ok()
}

/// One relQuery: loop time and wall time of a step, in microseconds.
async fn round(running: &Running, body: &str) -> [f64; 2] {
    let steps = || running.app.runtime.view().stats.steps;
    let (before, cpu, wall) = (steps(), loop_time().unwrap_or(0), Instant::now());
    let mut reply = Vec::new();
    send(running, "POST", "/v1/relqueries", body).await.read_to_end(&mut reply).await.expect("a reply");
    assert!(reply.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&reply));
    let wall = wall.elapsed().as_secs_f64() * 1e6;
    let cpu = loop_time().unwrap_or(0).saturating_sub(cpu) as f64 / 1e3;
    let steps = (steps() - before).max(1) as f64;
    [cpu / steps, wall / steps]
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

async fn measure() {
    let running = serve().await;
    let rows: Vec<_> = (0..ROWS).map(|row| json!([format!("word {row}")])).collect();
    let body =
        json!({"template": "Say something of {w}", "columns": ["w"], "rows": rows, "max_tokens": OUTPUT,
        "cache": false, "ignore_eos": true})
        .to_string();
    round(&running, &body).await;
    let mut figures = READERS.map(|_| [Vec::new(), Vec::new()]);
    for _ in 0..ROUNDS {
        for (readers, [cpu, wall]) in READERS.iter().zip(&mut figures) {
            let mut follow = tokio::task::JoinSet::new();
            for _ in 0..*readers {
                let mut stream = send(&running, "GET", "/v1/scheduler/events", "").await;
                follow.spawn(async move {
                    let mut buffer = vec![0; 65_536];
                    while stream.read(&mut buffer).await.is_ok_and(|count| count > 0) {}
                });
            }
            while running.app.runtime.shared.live.readers() != *readers {
                tokio::task::yield_now().await;
            }
            let [used, passed] = round(&running, &body).await;
            cpu.push(used);
            wall.push(passed);
            follow.shutdown().await;
            while running.app.runtime.shared.live.is_watched() {
                tokio::task::yield_now().await;
            }
        }
    }
    println!("{ROWS} rows of {OUTPUT} tokens, medians of {ROUNDS} rounds, per step:");
    let mut bare = [0.0; 2];
    for (readers, [cpu, wall]) in READERS.iter().zip(&mut figures) {
        let now = [median(cpu), median(wall)];
        if *readers == 0 {
            bare = now;
        }
        let ratio = |which: usize| now[which] / bare[which].max(1e-9);
        println!(
            "  {readers} readers: loop thread {:.1} us ({:.3} times), wall {:.1} us ({:.3} times)",
            now[0],
            ratio(0),
            now[1],
            ratio(1)
        );
    }
    running.drain(std::future::pending()).await;
}

/// 64 rows of a tenant.
fn submission(tenant: u64) -> Submission {
    let generation = Arc::new(Generation { output_max: TokenCount(200), ..Generation::default() });
    let item = |row: u32| WorkItem {
        row,
        prompt: (0..40).chain([1_000 + row]).map(TokenId).collect(),
        spans: Arc::from([]),
        sections: Arc::default(),
        generation: Arc::clone(&generation),
        seed: u64::from(row),
    };
    Submission {
        id: RelQueryId(tenant),
        tenant: TenantId(tenant),
        weight: 1_000,
        scope: u128::from(tenant),
        class: ServiceClass::Interactive,
        arrival: Time(tenant),
        deadline: None,
        items: (0..64).map(item).collect(),
    }
}

/// What is done for a step that somebody looks at, and for a look at queue and memory.
fn describe() {
    let config = SchedulerConfig { kv_blocks: 8_192, block_tokens: 16, ..SchedulerConfig::default() };
    let mut scheduler = Scheduler::new(config, CostModel::default()).expect("a valid configuration");
    for tenant in 1..=4 {
        scheduler.submit(submission(tenant)).expect("there is room");
    }
    let [mut plain, mut told, mut looked] = [Duration::ZERO; 3];
    let mut count = 0;
    loop {
        let begun = Instant::now();
        let Some(plan) = scheduler.plan(Time(count)) else { break };
        let planned = Instant::now();
        std::hint::black_box(Step::of(&scheduler, &plan));
        let described = Instant::now();
        std::hint::black_box(scheduler.snapshot(256));
        let surveyed = Instant::now();
        let outcome = Instantly.step(&plan).expect("it never fails");
        let applying = Instant::now();
        scheduler.apply(&outcome, Time(count));
        plain += (planned - begun) + applying.elapsed();
        told += described - planned;
        looked += surveyed - described;
        count += 1;
    }
    let each = |time: Duration| time.as_secs_f64() * 1e6 / count as f64;
    println!("{count} steps of up to 256 rows of four tenants, each:");
    println!("  plan and apply {:.1} us; describe {:.1} us", each(plain), each(told));
    println!("  a look at queue and memory, four times a second: {:.1} us", each(looked));
}

fn main() {
    describe();
    actix_web::rt::System::new().block_on(measure());
}
