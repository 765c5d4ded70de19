//! `relserve batch`: a table in, the same table with a column of answers out.
//!
//! The input is read as a stream, rows with a common prefix are put together (Dynamic Prefix Bucketing) and
//! sent to a server as relQueries of class bulk; without an address, to a server in this very process. What
//! has ended is written to a journal beside the output before it counts, so a job that is killed goes on
//! where it was, and each row is in the output once. It speaks HTTP like any client: it must not know what
//! stands behind the routes.

mod client;
mod flow;
mod input;
mod journal;
mod layout;
mod options;
mod output;
mod progress;
mod server;
mod window;

use std::path::Path;

use gateway::config::Config;
use input::Input;
use journal::{Journal, Opened};
use options::Format;
pub use options::Options;
use output::OutputFile;

/// What went wrong, for a person at a terminal.
pub(crate) type Failure = Box<dyn std::error::Error>;

/// Says a thing to the person at the terminal, beside what the command puts out.
macro_rules! tell {
    ($($arg:tt)*) => {{
        use std::io::Write as _;
        // Nobody listens any more: nothing is left to do about it.
        let _ = writeln!(std::io::stderr(), $($arg)*);
    }};
}
pub(crate) use tell;

/// Runs a job to its end.
pub async fn run(options: Options, config: Config) -> Result<(), Failure> {
    let target = OutputFile::of(&options.output)?;
    let input = Input::open(&options).await?;
    let template = options.template()?;
    let columns = input.columns().to_vec();
    let layout = layout::Layout::new(&options, &columns, &template)?;
    let request = options.request(&template, &layout.sent)?;
    let dependencies = options.dependencies(&template, &layout.sent)?;
    let fingerprint = journal::fingerprint(&input.identity()?, &request, &layout);
    let folder = target.beside("job");
    let journal = match Journal::open(&folder, &fingerprint, options.restart)? {
        Opened::Finished => {
            journal::clean_up(&folder)?;
            tell!("all rows are in {} already", options.output.display());
            return Ok(());
        }
        Opened::New(_) if options.output.exists() && !options.restart => {
            let _ = std::fs::remove_dir_all(&folder);
            return Err(exists(&options.output).into());
        }
        Opened::New(journal) => journal,
        Opened::Begun(journal) => {
            let counts = journal.counts();
            tell!("going on: {} rows are done, {} failed", counts.done, counts.failed);
            journal
        }
    };
    let mut server = server::Server::of(&options, config, &folder).await?;
    let job = flow::Job { options: &options, template: &template, layout: &layout, request, dependencies };
    let ended = flow::run(job, input, journal, server.client()).await;
    server.stop().await;
    let journal = ended?;
    finish(&options, &target, &layout, journal)
}

/// Writes the output and the errors, whole and at once.
fn finish(
    options: &Options,
    target: &OutputFile,
    layout: &layout::Layout,
    journal: Journal,
) -> Result<(), Failure> {
    let counts = journal.counts();
    output::write(target, layout, &journal)?;
    let errors = output::write_errors(target, layout, &journal)?;
    tell!("{} rows in {}", counts.done, options.output.display());
    if counts.failed == 0 {
        return journal.finish();
    }
    tell!("{} rows failed: {}", counts.failed, errors.display());
    tell!("`--retry-errors` with the same command runs those again");
    Ok(())
}

fn exists(path: &Path) -> String {
    format!(
        "the output {} exists and no job of it is under way: name another, or use --restart",
        path.display()
    )
}

impl Format {
    /// The format of a file's name.
    fn of(path: &Path) -> Result<Self, String> {
        let name = path.extension().and_then(|name| name.to_str()).map(str::to_ascii_lowercase);
        match name.as_deref() {
            Some("csv") => Ok(Self::Csv),
            Some("tsv") => Ok(Self::Tsv),
            Some("jsonl" | "ndjson") => Ok(Self::Jsonl),
            Some("parquet") => Ok(Self::Parquet),
            _ => Err(format!("{}: must end in .csv, .tsv, .jsonl or .parquet", path.display())),
        }
    }
}
