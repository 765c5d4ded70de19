//! `relserve batch`: a table in, the same table with a column of answers out.
//!
//! The input is read as a stream, rows with a common prefix are put together (Dynamic Prefix Bucketing) and
//! sent to a server as relQueries of class bulk; without an address, to a server in this very process. What
//! has ended is written to a journal beside the output before it counts, so a job that is killed goes on
//! where it was, and each row is in the output once. It speaks HTTP like any client: it must not know what
//! stands behind the routes.

mod client;
mod flow;
mod journal;
mod layout;
mod options;
mod output;
mod progress;
mod server;
mod window;

use std::path::Path;
use std::process::ExitCode;

use gateway::config::Config;
use journal::{Journal, Opened};
pub use options::Options;
use output::OutputFile;

use crate::input::Input;
pub(crate) use crate::terminal::{Failure, tell};

/// How the command exits where the job is over and some rows failed: the output has the others.
pub const ROWS_FAILED: u8 = 3;

/// Runs a job to its end. The exit is a success where all rows have answers, and else [`ROWS_FAILED`].
pub async fn run(options: Options, config: Config) -> Result<ExitCode, Failure> {
    let target = OutputFile::of(&options.output)?;
    let input = Input::open(&options.source).await?;
    let template = options.template()?;
    let columns = input.columns().to_vec();
    let layout = layout::Layout::new(&options, &columns, &template)?;
    let request = options.request(&template, &layout.sent)?;
    let dependencies = options.dependencies(&template, &layout.sent)?;
    let fingerprint = journal::fingerprint(&input.identity()?, &request, &layout);
    let folder = target.beside("job");
    let (journal, is_new) = match Journal::open(&folder, &fingerprint, options.restart)? {
        Opened::Finished => {
            journal::clean_up(&folder)?;
            tell!("all rows are in {} already", options.output.display());
            return Ok(ExitCode::SUCCESS);
        }
        Opened::New(_) if options.output.exists() && !options.restart => {
            let _ = std::fs::remove_dir_all(&folder);
            return Err(exists(&options.output).into());
        }
        Opened::New(journal) => (journal, true),
        Opened::Begun(journal) => {
            let counts = journal.counts();
            tell!("going on: {} rows are done, {} failed", counts.done, counts.failed);
            (journal, false)
        }
    };
    let mut server = match server::Server::of(&options, config, &folder).await {
        Ok(server) => server,
        Err(reason) => {
            // A job that has not begun leaves nothing behind.
            if is_new {
                let _ = std::fs::remove_dir_all(&folder);
            }
            return Err(reason);
        }
    };
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
) -> Result<ExitCode, Failure> {
    let counts = journal.counts();
    output::write(target, layout, &journal, options.raw)?;
    let errors = output::write_errors(target, layout, &journal)?;
    tell!("{} rows in {}", counts.done, options.output.display());
    if counts.failed == 0 {
        journal.finish()?;
        return Ok(ExitCode::SUCCESS);
    }
    tell!("{} rows failed: {}", counts.failed, errors.display());
    tell!("`--retry-errors` with the same command runs those again");
    Ok(ExitCode::from(ROWS_FAILED))
}

fn exists(path: &Path) -> String {
    format!(
        "the output {} exists and no job of it is under way: name another, or use --restart",
        path.display()
    )
}
