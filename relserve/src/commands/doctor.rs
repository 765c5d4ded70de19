//! `relserve doctor`: whether `serve` with the same flags would find what it needs. Each line says what is
//! well, what to know of, or what is wrong and what to do about it. Nothing is made or changed.

mod gpu_memory;
mod machine;
mod model;
mod storage;

use std::fmt;
use std::process::ExitCode;

use base::Bytes;
use clap::Args;
use gateway::config::Config;

use super::serve::Serve;
use super::{Failure, say};

/// Most GiB of a GPU that may be asked about.
const GPU_GIB_MAX: f64 = 1_048_576.0;

/// What is asked of `doctor`.
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    serve: Serve,
    /// Says whether the model fits GPUs with so many GiB free on each, also where there are none; `--tp` says how
    /// many [default: what the GPUs here have free].
    #[arg(long, value_name = "GIB", value_parser = gibibytes)]
    gpu_memory: Option<Bytes>,
}

impl DoctorArgs {
    /// The flags of the server.
    pub(crate) fn serve(&self) -> &Serve {
        &self.serve
    }
}

fn gibibytes(text: &str) -> Result<Bytes, String> {
    match text.parse::<f64>() {
        Ok(gib) if gib > 0.0 && gib <= GPU_GIB_MAX => Ok(Bytes((gib * f64::from(1 << 30)) as u64)),
        _ => Err(format!("must be a number of GiB, above 0 and at most {GPU_GIB_MAX}")),
    }
}

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
pub(crate) async fn run(args: &DoctorArgs, config: Result<Config, Failure>) -> ExitCode {
    let findings = match config {
        Ok(config) => findings(args, &config).await,
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

async fn findings(args: &DoctorArgs, config: &Config) -> Vec<Finding> {
    let mut findings: Vec<Finding> = config.warnings().into_iter().map(configuration).collect();
    if findings.is_empty() {
        findings.push(Finding::ok("configuration", "every setting can work"));
    }
    findings.extend(model::check(config, args.gpu_memory).await);
    findings.push(machine::gpus(config));
    findings.extend(machine::ports(config));
    findings.push(storage::database(config).await);
    findings.push(storage::disk(config));
    findings
}

fn configuration(warning: String) -> Finding {
    Finding::warning("configuration", warning, "change server.listen or auth.mode, unless it is meant so")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_a_gpu_is_a_positive_number_of_gibibytes() {
        assert_eq!(gibibytes("80"), Ok(Bytes(80 << 30)));
        assert_eq!(gibibytes("0.5"), Ok(Bytes(1 << 29)));
        for text in ["", "0", "-1", "80G", "nan", "inf", "1048577"] {
            assert_eq!(
                gibibytes(text),
                Err("must be a number of GiB, above 0 and at most 1048576".to_owned()),
                "{text}"
            );
        }
    }
}
