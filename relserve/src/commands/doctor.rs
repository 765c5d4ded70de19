//! `relserve doctor`: whether `serve` with the same flags would find what it needs. Each line says what is
//! well, what to know of, or what is wrong and what to do about it. Nothing is made or changed.

mod machine;
mod model;
mod storage;

use std::fmt;
use std::process::ExitCode;

use gateway::config::Config;

use super::{Failure, say};

/// How a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CheckStatus {
    Ok,
    /// The server starts, but not as one may think.
    Warning,
    /// The server would not start, or not work.
    Failure,
}

impl CheckStatus {
    fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Failure => "failure",
        }
    }
}

/// A thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Finding {
    status: CheckStatus,
    subject: &'static str,
    text: String,
    /// What to do about it.
    remedy: Option<String>,
}

impl Finding {
    fn ok(subject: &'static str, text: impl Into<String>) -> Self {
        Self { status: CheckStatus::Ok, subject, text: text.into(), remedy: None }
    }

    fn warning(subject: &'static str, text: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { status: CheckStatus::Warning, remedy: Some(remedy.into()), ..Self::ok(subject, text) }
    }

    fn failure(subject: &'static str, text: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { status: CheckStatus::Failure, remedy: Some(remedy.into()), ..Self::ok(subject, text) }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<8}{}: {}", self.status.name(), self.subject, self.text)?;
        match &self.remedy {
            Some(remedy) => write!(f, "; to do: {remedy}"),
            None => Ok(()),
        }
    }
}

/// Looks at everything and prints what it finds. The exit is a success where the server would start.
pub(crate) async fn run(config: Result<Config, Failure>) -> ExitCode {
    let findings = match config {
        Ok(config) => findings(&config).await,
        Err(reason) => {
            let remedy = "correct the file or the flag; `relserve config` prints every setting";
            vec![Finding::failure("configuration", reason.to_string(), remedy)]
        }
    };
    for finding in &findings {
        say!("{finding}");
    }
    let count = |status| findings.iter().filter(|finding| finding.status == status).count();
    let (warnings, failures) = (count(CheckStatus::Warning), count(CheckStatus::Failure));
    say!("checks: {}, warnings: {warnings}, failures: {failures}", findings.len());
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn findings(config: &Config) -> Vec<Finding> {
    let mut findings: Vec<Finding> = config.warnings().into_iter().map(configuration).collect();
    if findings.is_empty() {
        findings.push(Finding::ok("configuration", "every setting can work"));
    }
    findings.extend(model::check(config).await);
    findings.push(machine::gpus(config));
    findings.extend(machine::ports(config));
    findings.push(storage::database(config).await);
    findings.push(storage::disk(config));
    findings
}

fn configuration(warning: String) -> Finding {
    Finding::warning("configuration", warning, "change server.listen or auth.mode, unless it is meant so")
}
