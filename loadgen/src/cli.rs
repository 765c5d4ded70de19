//! The command line as clap has it: one struct of arguments per command. It must not know what commands do.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue};
use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum, value_parser};
use loadgen::chaos::FaultKind;
use loadgen::single::Endpoint;

/// A black-box load generator for relQuery servers.
#[derive(Parser)]
#[command(version)]
pub(crate) struct CommandLine {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Send a scenario to a running server.
    Run(RunArguments),
    /// Replay the same trace to one server under several policies, or to different servers, which are started
    /// one after another.
    Compare(CompareArguments),
    /// Start servers, each by its own command, one after another, and ask each the same relQueries one at a
    /// time.
    Race(RaceArguments),
    /// Minutes of random mixed load (answers, cancels, hang-ups, constraints, nonsense), each answer judged.
    Soak(SoakArguments),
    /// Minutes of faults of a seeded plan (kills, stops, broken connections, full disks) while several tenants send
    /// to two gateways on one Postgres and two replicas, all started for it; then all that was promised is checked.
    Chaos(ChaosArguments),
    /// Start the server, and ask it for a few cells at rest and again while a column of another tenant runs:
    /// both times, and their ratio.
    Interference(InterferenceArguments),
    /// Start the server, and ask it for cells whose answers it knows: one after another, then so many a second beside
    /// idle and slow connections.
    Edge(EdgeArguments),
    /// Regenerate the figures and tables of the RelServe paper in virtual time, with its claims beside ours.
    Reproduce(ReproduceArguments),
}

/// Words that were renamed, and what they are called now.
const RENAMED: [(&str, &str); 2] = [("beside", "interference"), ("--quick", "--smoke")];

impl CommandLine {
    /// Reads a command line. A word that was renamed is refused with its new name.
    pub(crate) fn read(words: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        Self::try_parse_from(words).map_err(|error| {
            let refused =
                [ContextKind::InvalidSubcommand, ContextKind::InvalidArg].map(|kind| error.get(kind));
            let is_refused = |old: &str| refused.contains(&Some(&ContextValue::String(old.to_owned())));
            match RENAMED.iter().find(|(old, _)| is_refused(old)) {
                Some((old, new)) => {
                    Self::command().error(error.kind(), format!("`{old}` is now called `{new}`"))
                }
                None => error,
            }
        })
    }
}

#[derive(Args)]
pub(crate) struct RunArguments {
    /// The scenario's TOML file.
    pub(crate) scenario: PathBuf,
    /// The server, `http://HOST:PORT`.
    #[arg(long)]
    pub(crate) url: String,
    /// The API key, if the server wants one.
    #[arg(long)]
    pub(crate) key: Option<String>,
    /// One request per relQuery, or one per row to any OpenAI-compatible server.
    #[arg(long, value_enum, default_value = "relquery")]
    pub(crate) mode: ModeName,
    /// Where single rows go.
    #[arg(long, value_enum, default_value = "chat")]
    pub(crate) endpoint: Endpoint,
    /// Mean arrivals per second, instead of the scenario's.
    #[arg(long)]
    pub(crate) rate: Option<f64>,
    /// Where requests.jsonl, summary.json and report.html go.
    #[arg(long, default_value = "loadgen-out")]
    pub(crate) out: PathBuf,
}

#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum ModeName {
    Relquery,
    Single,
}

// The server that a command starts. No `///`: clap would take it for what the command does.
#[derive(Args)]
pub(crate) struct ProgramArguments {
    /// The server's program.
    #[arg(long = "server", value_name = "SERVER")]
    pub(crate) program: PathBuf,
    /// Further arguments of the server, in one string; split at white space.
    #[arg(long = "server-args", value_name = "SERVER_ARGS", default_value = "", allow_hyphen_values = true)]
    line: String,
}

impl ProgramArguments {
    /// The further arguments, one by one.
    pub(crate) fn further(&self) -> Vec<String> {
        self.line.split_whitespace().map(str::to_owned).collect()
    }
}

#[derive(Args)]
pub(crate) struct CompareArguments {
    /// The scenario's TOML file.
    pub(crate) scenario: PathBuf,
    /// The server's program.
    #[arg(long, required_unless_present = "servers")]
    server: Option<PathBuf>,
    /// Further arguments of the server, in one string; split at white space.
    #[arg(long, default_value = "", allow_hyphen_values = true)]
    server_args: String,
    /// Different servers instead of one: their TOML file. Its servers with `{policy}` run under each policy.
    #[arg(long, conflicts_with_all = ["server", "server_args", "repeat"])]
    pub(crate) servers: Option<PathBuf>,
    /// Of those, the ones of these names.
    #[arg(long, value_delimiter = ';', requires = "servers")]
    pub(crate) only: Vec<String>,
    /// The policies.
    #[arg(long, value_delimiter = ',', default_value = "fcfs,static-priority,relserve")]
    pub(crate) policies: Vec<String>,
    /// Mean arrivals per second, instead of the scenario's or, for different servers, of the loads in their file;
    /// several for different servers.
    #[arg(long, value_delimiter = ',')]
    pub(crate) rate: Vec<f64>,
    /// How often each policy runs, in rounds of all of them; the median run of each is shown.
    #[arg(long, default_value_t = 1)]
    pub(crate) repeat: u32,
    /// Where the records, comparison.json, report.html and, of different servers, latency.svg and latency.csv go.
    #[arg(long, default_value = "loadgen-out")]
    pub(crate) out: PathBuf,
}

impl CompareArguments {
    /// The one server that runs under several policies.
    pub(crate) fn program(&self) -> Option<ProgramArguments> {
        let program = self.server.clone()?;
        Some(ProgramArguments { program, line: self.server_args.clone() })
    }
}

#[derive(Args)]
pub(crate) struct RaceArguments {
    /// The scenario's TOML file; its first relQuery warms a server up.
    #[arg(required_unless_present = "table")]
    pub(crate) scenario: Option<PathBuf>,
    /// The servers' TOML file.
    #[arg(long, required_unless_present = "table")]
    pub(crate) servers: Option<PathBuf>,
    /// Run nothing, and print races that were run as one Markdown table: of these files, as `--out` has them.
    #[arg(
        long,
        value_name = "FILE",
        num_args = 0..,
        default_missing_value = "loadgen-out/race.json",
        conflicts_with_all = ["scenario", "servers"]
    )]
    pub(crate) table: Option<Vec<PathBuf>>,
    /// How often each server runs, in rounds of all of them.
    #[arg(long, default_value_t = 3)]
    pub(crate) rounds: u32,
    /// Where race.json goes.
    #[arg(long, default_value = "loadgen-out")]
    pub(crate) out: PathBuf,
}

#[derive(Args)]
pub(crate) struct SoakArguments {
    #[command(flatten)]
    pub(crate) server: ProgramArguments,
    /// How long.
    #[arg(long, default_value_t = 10.0)]
    pub(crate) minutes: f64,
    /// What is sent.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Clients at once.
    #[arg(long, default_value_t = 8)]
    pub(crate) clients: u32,
}

#[derive(Args)]
pub(crate) struct ChaosArguments {
    /// The server's program.
    #[arg(long = "server", value_name = "SERVER")]
    pub(crate) program: PathBuf,
    /// How long faults come and go.
    #[arg(long, default_value_t = 10.0)]
    pub(crate) minutes: f64,
    /// What is sent, and which faults come when.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Clients at once.
    #[arg(long, default_value_t = 8)]
    pub(crate) clients: u32,
    /// Kinds of faults; all of them where none is named.
    #[arg(long, value_enum, value_delimiter = ',')]
    pub(crate) faults: Vec<FaultKind>,
    /// Where logs and data go, to be looked at afterwards.
    #[arg(long)]
    pub(crate) dir: Option<PathBuf>,
    /// A file for the report as JSON.
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct InterferenceArguments {
    #[command(flatten)]
    pub(crate) server: ProgramArguments,
    /// The policy that the server is started with.
    #[arg(long, default_value = "marginal-work")]
    pub(crate) policy: String,
    /// Rows of the column.
    #[arg(long, default_value_t = 5_000, value_parser = value_parser!(u32).range(1..))]
    pub(crate) rows: u32,
    /// Cells that are asked together.
    #[arg(long, default_value_t = 5, value_parser = value_parser!(u32).range(1..))]
    pub(crate) cells: u32,
    /// How often they are asked, at rest and again beside the column.
    #[arg(long, default_value_t = 20, value_parser = value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,
    /// What stands in the cells.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
}

#[derive(Args)]
pub(crate) struct EdgeArguments {
    #[command(flatten)]
    pub(crate) server: ProgramArguments,
    /// Requests a second.
    #[arg(long, default_value_t = 2_000.0, value_parser = positive)]
    pub(crate) rate: f64,
    /// For how long; idle connections are closed after 75 seconds, and a run that sees one closed fails.
    #[arg(long, default_value_t = 30, value_parser = value_parser!(u64).range(1..))]
    pub(crate) seconds: u64,
    /// Connections that send them.
    #[arg(long, default_value_t = 64, value_parser = value_parser!(u32).range(1..))]
    pub(crate) connections: u32,
    /// Different cells.
    #[arg(long, default_value_t = 100, value_parser = value_parser!(u32).range(1..))]
    pub(crate) cells: u32,
    /// Connections beside them that had an answer and say no more.
    #[arg(long, default_value_t = 10_000)]
    pub(crate) idle: u32,
    /// Clients beside them whose requests come in pieces, over nine seconds.
    #[arg(long, default_value_t = 1_000)]
    pub(crate) slow: u32,
    /// Pieces of such a request; 1000 are a byte at a time.
    #[arg(long, default_value_t = 10, value_parser = value_parser!(u32).range(1..))]
    pub(crate) pieces: u32,
    /// Ends with code 0 where a goal is missed too (without it: with 3). An answer that is missing, or an idle connection that was
    /// closed, is code 2 either way.
    #[arg(long)]
    pub(crate) report_only: bool,
}

/// A number above 0.
fn positive(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "must be a number".to_owned())?;
    if number > 0.0 && number.is_finite() { Ok(number) } else { Err("must be above 0".to_owned()) }
}

#[derive(Args)]
pub(crate) struct ReproduceArguments {
    /// One seed and three loads instead of three and six.
    #[arg(long)]
    pub(crate) smoke: bool,
    /// Where reproduction.html, figures.json, summary.md and the SVG files go.
    #[arg(long, default_value = "reproduction")]
    pub(crate) out: PathBuf,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_one_that_clap_accepts() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn former_names_are_refused_with_the_new_ones() {
        for (line, hint) in [
            ("loadgen beside --server relserve", "`beside` is now called `interference`"),
            ("loadgen reproduce --quick", "`--quick` is now called `--smoke`"),
        ] {
            let refused =
                CommandLine::read(line.split(' ').map(OsString::from)).err().expect("a former name");
            assert!(refused.to_string().contains(hint), "{refused}");
        }
        assert!(CommandLine::read(["loadgen", "reproduce", "--smoke"].map(OsString::from)).is_ok());
    }
}
