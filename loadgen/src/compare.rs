//! Replays one trace against the server under one policy after another.

use std::path::Path;
use std::time::Duration;

use crate::Error;
use crate::html::Run;
use crate::report::Summary;
use crate::run::{Mode, run};
use crate::scenario::Scenario;
use crate::server::Server;
use crate::workload::RelQuery;

/// What is compared.
pub struct Plan<'a> {
    /// The server's program.
    pub program: &'a Path,
    /// Arguments beyond those that every start needs.
    pub arguments: &'a [String],
    /// The policies, in order.
    pub policies: &'a [String],
    /// Where the records go: a folder per policy.
    pub out: &'a Path,
}

/// Each policy's run, and what the last server told of its scheduler (JSON as it came).
pub async fn compare(
    plan: &Plan<'_>,
    scenario: &Scenario,
    trace: &[RelQuery],
) -> Result<(Vec<Run>, Option<serde_json::Value>), Error> {
    let mut runs = Vec::new();
    let mut scheduler = None;
    for policy in plan.policies {
        let dir = plan.out.join(policy);
        std::fs::create_dir_all(&dir).map_err(|error| Error::file(&dir, error))?;
        let timeout = Duration::from_millis(scenario.timeout_ms);
        let server = Server::start(plan.program, plan.arguments, policy, timeout).await?;
        let lines = dir.join("requests.jsonl");
        let records = run(server.target.clone(), scenario, Mode::RelQuery, trace, &lines).await?;
        scheduler = server.scheduler().await.or(scheduler);
        server.stop().await?;
        runs.push(Run { summary: Summary::of(policy, &records), records });
    }
    Ok((runs, scheduler))
}
