//! `relserve pull`: a model from a hub into a folder.

use std::path::PathBuf;

use clap::Args;
use engine::hub::{self, PullProgress, PullRequest};
use gateway::config::Config;
use indicatif::BinaryBytes;

use super::{Failure, say};
use crate::terminal::{Meter, with_default};

#[derive(Debug, Args)]
pub(crate) struct Pull {
    /// ORG/NAME.
    repo: String,
    /// The folder [default: NAME under the data folder's `models`].
    #[arg(long)]
    into: Option<PathBuf>,
    /// The hub.
    #[arg(long, value_name = "URL", help = with_default("The hub's address", hub::ENDPOINT))]
    endpoint: Option<String>,
    /// Branch, tag or commit.
    #[arg(long, help = with_default("Branch, tag or commit", PullRequest::new("").revision))]
    revision: Option<String>,
}

/// How far a pull is, for the person at the terminal: each file is named once, and on a terminal has a bar.
struct FileMeter {
    meter: Meter,
    file: String,
}

impl FileMeter {
    fn show(&mut self, progress: PullProgress<'_>) {
        let PullProgress { file, done, total } = progress;
        if self.file != file {
            file.clone_into(&mut self.file);
            self.meter.note(&format!("{file} ({})", BinaryBytes(total)));
        }
        let share = done as f64 / total.max(1) as f64;
        self.meter.show(share, || format!("{file}, {} of {}", BinaryBytes(done), BinaryBytes(total)));
    }
}

impl Pull {
    pub(crate) fn run(self, config: &Config) -> Result<(), Failure> {
        let folder = self.into.unwrap_or_else(|| {
            let name = self.repo.rsplit('/').next().unwrap_or(&self.repo);
            config.store.data_dir.join("models").join(name)
        });
        let mut request = PullRequest::new(self.repo);
        request.token = gateway::config::hub_token();
        request.endpoint = self.endpoint.unwrap_or(request.endpoint);
        request.revision = self.revision.unwrap_or(request.revision);
        let mut files = FileMeter { meter: Meter::new(), file: String::new() };
        let commit = hub::pull(&request, &folder, &mut |progress| files.show(progress))?;
        files.meter.end();
        say!(
            "{} is in {}; serve it with: relserve serve --model {}",
            commit,
            folder.display(),
            folder.display()
        );
        Ok(())
    }
}
