//! The command line: `loadgen run`, `loadgen compare`, `loadgen race`, `loadgen soak` and `loadgen reproduce`.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use loadgen::Error;
use loadgen::beside::{Beside, measure};
use loadgen::client::Target;
use loadgen::compare::{Plan, compare};
use loadgen::html::{Run, page};
use loadgen::race::{Contest, Lap, race};
use loadgen::report::{Summary, table};
use loadgen::reproduce::page::markdown;
use loadgen::reproduce::{Scope, reproduce};
use loadgen::run::{Mode, run};
use loadgen::scenario::Scenario;
use loadgen::server::Server;
use loadgen::single::{Endpoint, first_model};
use loadgen::soak::{Soak, soak};
use loadgen::table::Table;
use loadgen::workload::{RelQuery, trace};

/// Longest soak.
const SOAK_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// How long a soak waits for one answer.
const SOAK_REQUEST_MAX: Duration = Duration::from_secs(300);
/// How long a column may take.
const BESIDE_REQUEST_MAX: Duration = Duration::from_secs(60 * 60);

/// A black-box load generator for relQuery servers.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Send a scenario to a running server.
    Run {
        /// The scenario's TOML file.
        scenario: PathBuf,
        /// The server, `http://HOST:PORT`.
        #[arg(long)]
        url: String,
        /// The API key, if the server wants one.
        #[arg(long)]
        key: Option<String>,
        /// One request per relQuery, or one per row to any OpenAI-compatible server.
        #[arg(long, value_enum, default_value = "relquery")]
        mode: ModeName,
        /// Where single rows go.
        #[arg(long, value_enum, default_value = "chat")]
        endpoint: Endpoint,
        /// Mean arrivals per second, instead of the scenario's.
        #[arg(long)]
        rate: Option<f64>,
        /// Where requests.jsonl, summary.json and report.html go.
        #[arg(long, default_value = "loadgen-out")]
        out: PathBuf,
    },
    /// Start the server under several policies, one after another, and replay the same trace to each.
    Compare {
        /// The scenario's TOML file.
        scenario: PathBuf,
        /// The server's program.
        #[arg(long)]
        server: PathBuf,
        /// Further arguments of the server, in one string; split at white space.
        #[arg(long, default_value = "", allow_hyphen_values = true)]
        server_args: String,
        /// The policies.
        #[arg(long, value_delimiter = ',', default_value = "fcfs,static-priority,relserve")]
        policies: Vec<String>,
        /// Mean arrivals per second, instead of the scenario's.
        #[arg(long)]
        rate: Option<f64>,
        /// How often each policy runs, in rounds of all of them; the median run of each is shown.
        #[arg(long, default_value_t = 1)]
        repeat: u32,
        /// Where the records, comparison.json and report.html go.
        #[arg(long, default_value = "loadgen-out")]
        out: PathBuf,
    },
    /// Start servers, each by its own command, one after another, and ask each the same relQueries one at a time.
    Race {
        /// The scenario's TOML file; its first relQuery warms a server up.
        scenario: PathBuf,
        /// The servers' TOML file.
        #[arg(long)]
        servers: PathBuf,
        /// How often each server runs, in rounds of all of them.
        #[arg(long, default_value_t = 3)]
        rounds: u32,
        /// Where race.json goes.
        #[arg(long, default_value = "loadgen-out")]
        out: PathBuf,
    },
    /// Minutes of random mixed load (answers, cancels, hang-ups, constraints, nonsense), each answer judged.
    Soak {
        /// The server's program; it is started, and must end well.
        #[arg(long)]
        server: PathBuf,
        /// Further arguments of the server, in one string; split at white space.
        #[arg(long, default_value = "", allow_hyphen_values = true)]
        server_args: String,
        /// How long.
        #[arg(long, default_value_t = 10.0)]
        minutes: f64,
        /// What is sent.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Clients at once.
        #[arg(long, default_value_t = 8)]
        clients: u32,
    },
    /// Start the server, and ask it for a few cells at rest and again while a column of another tenant runs: both times, and their
    /// ratio.
    Beside {
        /// The server's program.
        #[arg(long)]
        server: PathBuf,
        /// Further arguments of the server, in one string; split at white space.
        #[arg(long, default_value = "", allow_hyphen_values = true)]
        server_args: String,
        /// The policy that the server is started with.
        #[arg(long, default_value = "marginal-work")]
        policy: String,
        /// Rows of the column.
        #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(1..))]
        rows: u32,
        /// Cells that are asked together.
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
        cells: u32,
        /// How often they are asked, at rest and again beside the column.
        #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
        rounds: u32,
        /// What stands in the cells.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Regenerate the figures and tables of the RelServe paper in virtual time, with its claims beside ours.
    Reproduce {
        /// One seed and three loads instead of three and six.
        #[arg(long)]
        quick: bool,
        /// Where reproduction.html, figures.json, summary.md and the SVG files go.
        #[arg(long, default_value = "reproduction")]
        out: PathBuf,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum ModeName {
    Relquery,
    Single,
}

#[tokio::main]
async fn main() -> std::process::ExitCode {
    match act(Arguments::parse().command).await {
        Ok(true) => std::process::ExitCode::SUCCESS,
        // The records say what failed; a script should notice.
        Ok(false) => std::process::ExitCode::from(2),
        Err(error) => {
            eprintln!("loadgen: {error}");
            std::process::ExitCode::FAILURE
        }
    }
}

/// Does what was asked; `false` where a relQuery or a row failed.
async fn act(command: Action) -> Result<bool, Error> {
    match command {
        Action::Run { scenario: path, url, key, mode, endpoint, rate, out } => {
            let (scenario, trace) = load(&path, rate)?;
            let target = Target::new(&url, key, Duration::from_millis(scenario.timeout_ms))?;
            let mode = match (mode, &scenario.model) {
                (ModeName::Relquery, _) => Mode::RelQuery,
                (ModeName::Single, Some(model)) => Mode::Single { endpoint, model: model.clone() },
                (ModeName::Single, None) => {
                    Mode::Single { endpoint, model: first_model(&target).await.map_err(Error::Client)? }
                }
            };
            let name = if mode == Mode::RelQuery { "relquery" } else { "single" };
            std::fs::create_dir_all(&out).map_err(|error| Error::file(&out, error))?;
            let records = run(target, &scenario, mode, &trace, &out.join("requests.jsonl")).await?;
            let summary = Summary::of(name, &records);
            say(&summary.text());
            write_json(&out.join("summary.json"), &summary)?;
            let sound = summary.is_sound();
            write(&out.join("report.html"), &page("loadgen", &[Run { summary, records }]))?;
            Ok(sound)
        }
        Action::Compare { scenario: path, server, server_args, policies, rate, repeat, out } => {
            let (scenario, trace) = load(&path, rate)?;
            let arguments: Vec<String> = server_args.split_whitespace().map(str::to_owned).collect();
            let plan =
                Plan { program: &server, arguments: &arguments, policies: &policies, repeat, out: &out };
            let (runs, states): (Vec<Run>, Vec<_>) =
                compare(&plan, &scenario, &trace).await?.into_iter().unzip();
            write(&out.join("report.html"), &page("loadgen: policies on one trace", &runs))?;
            let summaries: Vec<Summary> = runs.into_iter().map(|run| run.summary).collect();
            write_json(
                &out.join("comparison.json"),
                &serde_json::json!({ "runs": summaries, "schedulers": states }),
            )?;
            say(&table(&summaries));
            Ok(summaries.iter().all(Summary::is_sound))
        }
        Action::Race { scenario: path, servers, rounds, out } => {
            let (scenario, trace) = load(&path, None)?;
            let contest = Contest::load(&servers)?;
            std::fs::create_dir_all(&out).map_err(|error| Error::file(&out, error))?;
            let tell = |lap: &Lap| {
                eprintln!("round {}, {}: {:.0} ms", lap.round, lap.server, lap.total_ms);
            };
            let laps = race(&contest, &scenario, &trace, rounds, tell).await?;
            write_json(&out.join("race.json"), &laps)?;
            say(&loadgen::race::table(&contest, &laps));
            Ok(laps.iter().all(|lap| lap.failed.is_none()))
        }
        Action::Soak { server, server_args, minutes, seed, clients } => {
            let arguments: Vec<String> = server_args.split_whitespace().map(str::to_owned).collect();
            let span = Duration::try_from_secs_f64(minutes * 60.0).unwrap_or(SOAK_MAX).min(SOAK_MAX);
            let server = Server::start(&server, &arguments, "marginal-work", SOAK_REQUEST_MAX).await?;
            let tally = soak(&server.target, Soak { span, seed, clients }).await;
            say(&tally.text());
            server.stop_well().await?;
            say("the server ended well\n");
            Ok(tally.is_sound())
        }
        Action::Beside { server: program, server_args, policy, rows, cells, rounds, seed } => {
            let arguments: Vec<String> = server_args.split_whitespace().map(str::to_owned).collect();
            let server = Server::start(&program, &arguments, &policy, BESIDE_REQUEST_MAX).await?;
            let key = server.key_of(&program, "column").await?;
            let column = Target { key: Some(key), ..server.target.clone() };
            let outcome = measure(&server.target, &column, Beside { rows, cells, rounds, seed }).await?;
            say(&outcome.text());
            server.stop().await?;
            Ok(outcome.is_sound())
        }
        Action::Reproduce { quick, out } => {
            let scope = if quick { Scope::quick() } else { Scope::paper() };
            let figures = reproduce(&scope, &out)?;
            say(&markdown(&figures));
            say(&format!("\n{}\n", out.join("reproduction.html").display()));
            Ok(true)
        }
    }
}

/// The scenario of a file, and its trace.
fn load(path: &Path, rate: Option<f64>) -> Result<(Scenario, Vec<RelQuery>), Error> {
    let mut scenario = Scenario::load(path)?;
    scenario.rate_per_s = rate.unwrap_or(scenario.rate_per_s);
    scenario.validate()?;
    let tables: Vec<Table> =
        scenario.tables.iter().map(|spec| Table::load(spec, scenario.seed)).collect::<Result<_, _>>()?;
    let trace = trace(&scenario, &tables);
    Ok((scenario, trace))
}

/// Prints; a reader that has gone (a closed pipe) is no error.
fn say(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

fn write_json(path: &Path, value: &impl serde::Serialize) -> Result<(), Error> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Error::file(path, error))?;
    write(path, &(text + "\n"))
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    std::fs::write(path, text).map_err(|error| Error::file(path, error))
}
