//! What is too heavy for every change, in one command: each part is a command that exists, with a night's
//! numbers.

use clap::{Args, ValueEnum};

use crate::arm::arm;
use crate::cargo::{Failed, built, cargo, program, program_or_skip};
use crate::measured::{chaos, checkpoint, compare, edge, race};
use crate::sanitized::{fuzz, soak};

#[derive(Args)]
pub(crate) struct Nightly {
    /// Which parts; all of them where none is named.
    parts: Vec<NightlyPart>,
    /// Prints the parts with their commands and runs nothing.
    #[arg(long)]
    list: bool,
    /// Seeds of the chaos worlds. The tests' own are below 100,000.
    #[arg(long, default_value = "100000..400000", value_name = "FIRST..LAST")]
    seeds: String,
    /// Damaged files of each form.
    #[arg(long, default_value_t = 1_000_000)]
    cases: u64,
    /// Minutes of the soak.
    #[arg(long, default_value_t = 60)]
    minutes: u64,
    /// Minutes of the chaos of processes.
    #[arg(long, default_value_t = 10)]
    chaos_minutes: u64,
    /// Its seed.
    #[arg(long, default_value_t = 1)]
    chaos_seed: u64,
    /// Our server and its peers, as loadgen/scenarios/race-servers.toml with this machine's paths; no race
    /// without it.
    #[arg(long, value_name = "FILE")]
    servers: Option<String>,
    /// A clone of RustSec's advisories; licences, bans and sources alone without it.
    #[arg(long, value_name = "DIR")]
    advisories: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum NightlyPart {
    /// Damaged files against their readers, under AddressSanitizer.
    Fuzz,
    /// Random worlds against the scheduler's promises.
    Chaos,
    /// Real gateways, replicas and a Postgres under load, killed, stopped, cut off and started again.
    ChaosOfProcesses,
    /// Random mixed load on a server under AddressSanitizer, every answer judged.
    Soak,
    /// Known cells at a rate beside 10,000 idle connections and 1,000 slow clients, and the limits of their times.
    Edge,
    /// Our server and its peers on the same relQueries.
    Race,
    /// A real vLLM: as the replica of a gateway's tests; alone, behind us, and beside our own engine, on the paper's
    /// workload at four loads.
    Vllm,
    /// Two and four replicas in turn and behind us, one killed and one added; two beside what the simulator says.
    Replicas,
    /// Clients of Postgres that are too heavy for every change: JDBC, ODBC, dbt, pgcli, Superset, DuckDB.
    Clients,
    /// Other people's clients of OpenAI's API, each from its registry: the table of docs/CLIENTS.md.
    OpenAiClients,
    /// What others wrote to try their own servers and clients: openai-python's examples, vLLM's tests of its routes.
    TheirTests,
    /// Load generators of others: aiperf, guidellm, `vllm bench serve`.
    LoadClients,
    /// Loops of SDKs over columns, of three tenants at once: whole loops where they join and where they do not.
    Loops,
    /// The Python package's types, its wheel, and its parts for Daft, Ray, Spark and LOTUS.
    Python,
    /// Requests drawn from the OpenAPI document, thousands of them, each reply held to it.
    OpenApi,
    /// A trained model's answers in each format beside those of transformers in f32.
    Quality,
    /// A year's rows of usage in SQLite, and what reads and merges them; where sqlite3 and curl are.
    Year,
    /// Licences, bans and sources of dependencies; with --advisories what is known of them too.
    Advisories,
    /// Every panel, rule and alert asked of a real Prometheus, where prometheus and promtool are.
    Dashboards,
    /// The image built and run, alone and with Postgres, where podman or docker is.
    Image,
    /// The engine's kernels for ARM in an emulator.
    Arm,
}

/// Runs the parts that were asked for, and names all that failed.
pub(crate) fn nightly(with: &Nightly) -> Result<(), Failed> {
    let parts = if with.parts.is_empty() { NightlyPart::value_variants() } else { &with.parts };
    let mut failed = Vec::new();
    for part in parts {
        eprintln!("== {}", part.command(with));
        if !with.list
            && let Err(Failed(what)) = part.run(with)
        {
            eprintln!("failed: {what}");
            failed.push(what);
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(Failed(failed.join("; "))) }
}

impl NightlyPart {
    /// The command that does the same by hand.
    fn command(self, with: &Nightly) -> String {
        match self {
            Self::Fuzz => format!("cargo xtask fuzz {}", with.cases),
            Self::Chaos => format!("cargo run --release --package sim --example seed -- {}", with.seeds),
            Self::ChaosOfProcesses => format!("cargo xtask chaos {}", chaos_arguments(with).join(" ")),
            Self::Soak => format!("cargo xtask soak --minutes {}", with.minutes),
            Self::Edge => {
                "cargo build --release -p relserve && cargo run --release --package loadgen -- edge --server \
                           target/release/relserve"
                    .into()
            }
            Self::Race => match &with.servers {
                Some(file) => format!("cargo xtask race {SCENARIO} --servers {file}"),
                None => "race: skipped, since no --servers FILE names our server and its peers".into(),
            },
            Self::Vllm => format!(
                "{VLLM} && cargo {VLLM_TESTS} && cargo xtask checkpoint {} && cargo xtask compare {}",
                PAPER_MODEL.join(" "),
                VLLM_COMPARE.join(" ")
            ),
            Self::Replicas => format!(
                "cargo xtask compare {} && cargo xtask checkpoint {} && cargo xtask compare {}",
                REPLICAS.join(" "),
                PAPER_MODEL.join(" "),
                TWO_REPLICAS.join(" ")
            ),
            Self::Clients => format!("cargo build -p relserve && {CLIENTS} target/debug/relserve heavy"),
            Self::OpenAiClients => quick_command(OPEN_AI_CLIENTS, &[]),
            Self::TheirTests => quick_command(THEIR_TESTS, &[]),
            Self::LoadClients => quick_command(LOAD_CLIENTS, &LOAD_GENERATORS),
            Self::Loops => quick_command(LOOPS, &LOOPS_MODEL),
            Self::Python => quick_command(PYTHON, &[]),
            Self::OpenApi => quick_command(OPEN_API, &[]),
            Self::Quality => quick_command(QUALITY, &[]),
            Self::Year => quick_command(YEAR, &YEAR_ROWS),
            Self::Advisories => match &with.advisories {
                Some(folder) => format!("{ADVISORIES} {folder}"),
                None => ADVISORIES.into(),
            },
            Self::Dashboards => {
                format!(
                    "cargo build --profile quick -p relserve && {DASHBOARDS} --relserve target/quick/relserve"
                )
            }
            Self::Image => quick_command(IMAGE, &[]),
            Self::Arm => "cargo xtask arm".into(),
        }
    }

    fn run(self, with: &Nightly) -> Result<(), Failed> {
        match self {
            Self::Fuzz => fuzz(with.cases),
            Self::Chaos => {
                cargo("run --release --package sim --example seed --", std::slice::from_ref(&with.seeds))
            }
            Self::ChaosOfProcesses => chaos(&chaos_arguments(with)),
            Self::Soak => soak(&["--minutes".into(), with.minutes.to_string()]),
            Self::Edge => edge(&[]),
            Self::Race => match &with.servers {
                Some(file) => race(&[SCENARIO.into(), "--servers".into(), file.clone()]),
                None => Ok(()),
            },
            Self::Vllm => vllm(),
            Self::Replicas => replicas(),
            Self::Clients => clients(),
            Self::OpenAiClients => on_quick_build(OPEN_AI_CLIENTS, &[]),
            Self::TheirTests => on_quick_build(THEIR_TESTS, &[]),
            Self::LoadClients => on_quick_build(LOAD_CLIENTS, &LOAD_GENERATORS),
            Self::Loops => on_quick_build(LOOPS, &LOOPS_MODEL),
            Self::Python => on_quick_build(PYTHON, &[]),
            Self::OpenApi => on_quick_build(OPEN_API, &[]),
            Self::Quality => on_quick_build(QUALITY, &[]),
            Self::Year => on_quick_build(YEAR, &YEAR_ROWS),
            Self::Advisories => program_or_skip(ADVISORIES, with.advisories.as_slice()),
            Self::Dashboards => dashboards(),
            Self::Image => on_quick_build(IMAGE, &[]),
            Self::Arm => arm(),
        }
    }
}

fn chaos_arguments(with: &Nightly) -> [String; 4] {
    ["--minutes".into(), with.chaos_minutes.to_string(), "--seed".into(), with.chaos_seed.to_string()]
}

/// What the race asks.
const SCENARIO: &str = "loadgen/scenarios/race.toml";

/// What installs vLLM.
const VLLM: &str = "tests/vllm/install.sh";

/// The tests that are skipped where it is not (gateway/tests/gateway/vllm.rs).
const VLLM_TESTS: &str = "test --package gateway --test gateway vllm::";

/// What vLLM serves, and two replicas of ours, and what is asked of them: the paper's workload.
const PAPER_MODEL: [&str; 2] = ["llama-60m-bf16", "target/llama-60m-bf16"];
const VLLM_COMPARE: [&str; 5] = [
    "loadgen/scenarios/paper-60m.toml",
    "--servers",
    "loadgen/scenarios/vllm-servers.toml",
    "--out",
    "target/nightly/vllm",
];

/// Replicas in turn and behind us.
const REPLICAS: [&str; 5] = [
    "loadgen/scenarios/replicas.toml",
    "--servers",
    "loadgen/scenarios/replicas-servers.toml",
    "--out",
    "target/nightly/replicas",
];

/// Two of them, each on a core of its own, beside what the simulator says of them.
const TWO_REPLICAS: [&str; 5] = [
    "loadgen/scenarios/paper-60m.toml",
    "--servers",
    "loadgen/scenarios/two-replicas-servers.toml",
    "--out",
    "target/nightly/two-replicas",
];

fn replicas() -> Result<(), Failed> {
    compare(&REPLICAS.map(str::to_owned))?;
    checkpoint(&PAPER_MODEL.map(str::to_owned))?;
    compare(&TWO_REPLICAS.map(str::to_owned))
}

fn vllm() -> Result<(), Failed> {
    program(VLLM, &[])?;
    cargo(VLLM_TESTS, &[])?;
    checkpoint(&PAPER_MODEL.map(str::to_owned))?;
    compare(&VLLM_COMPARE.map(str::to_owned))
}

/// What runs the clients of Postgres, installing what it lacks.
const CLIENTS: &str = "tests/clients/run.sh";

/// What draws requests from the OpenAPI document, installing what it lacks.
const OPEN_API: &str = "tests/openapi/run.sh";

/// What compares answers with those of transformers, installing what it lacks.
const QUALITY: &str = "tests/quality/run.sh";

/// What fills a database with a year's rows and reads them.
const YEAR: &str = "tests/year/run.sh";
const YEAR_ROWS: [&str; 1] = ["10000000"];

/// What holds dependencies to licences, bans, sources and advisories, installing what it lacks.
const ADVISORIES: &str = "tests/advisories/run.sh";

/// What asks a real Prometheus for every panel.
const DASHBOARDS: &str = "dashboards/check.py";

/// What builds the image's last stage over the program, and runs it.
const IMAGE: &str = "tests/packaging/image.sh";

/// What runs the clients of OpenAI's API, others' tests, load generators, loops of SDKs and the Python package, each
/// installing what it lacks.
const OPEN_AI_CLIENTS: &str = "tests/clients/openai/run.sh";
const THEIR_TESTS: &str = "tests/clients/theirs/run.sh";
const LOAD_CLIENTS: &str = "tests/clients/load/run.sh";
const LOAD_GENERATORS: [&str; 3] = ["aiperf", "guidellm", "vllm"];
const LOOPS: &str = "tests/clients/loops/run.sh";
const LOOPS_MODEL: [&str; 1] = ["smollm2-135m-instruct"];
const PYTHON: &str = "python/test-heavy.sh";

fn quick_command(script: &str, arguments: &[&str]) -> String {
    let words = [[script, "target/quick/relserve"].as_slice(), arguments].concat();
    format!("cargo build --profile quick -p relserve && {}", words.join(" "))
}

fn on_quick_build(script: &str, arguments: &[&str]) -> Result<(), Failed> {
    cargo("build --profile quick --package relserve", &[])?;
    let mut words = vec![built("quick", "relserve")];
    words.extend(arguments.iter().map(|word| (*word).to_owned()));
    program_or_skip(script, &words)
}

fn dashboards() -> Result<(), Failed> {
    cargo("build --profile quick --package relserve", &[])?;
    program_or_skip(DASHBOARDS, &["--relserve".into(), built("quick", "relserve")])
}

fn clients() -> Result<(), Failed> {
    cargo("build --package relserve", &[])?;
    program(CLIENTS, &[built("debug", "relserve"), "heavy".into()])
}
