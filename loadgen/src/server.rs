//! Starts and stops the server to be compared, as an operator would: by its command line and its signals.

use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::Error;
use crate::client::{ApiTarget, chain, refused};

/// What the server prints before its first key, on standard output.
const KEY_LINE: &str = "API key: ";
/// How long a server may take to load its model, and to stop.
const START_MAX: Duration = Duration::from_secs(600);
const STOP_MAX: Duration = Duration::from_secs(60);
/// Pause between two questions whether the server is ready.
const POLL: Duration = Duration::from_millis(100);
/// How much of the server's log an error repeats, in bytes from its end.
const LAST_WORDS: usize = 8_000;

/// How a server is started.
pub struct Launch<'a> {
    /// Its name in errors.
    pub name: &'a str,
    /// Program and arguments; `{port}` stands for a free loopback port, `{dir}` for a directory of its own,
    /// `{config}` for a file in it that holds `config`, `{upstream}` for the first server behind it.
    pub command: &'a [String],
    /// The text of its settings' file, with the same words in braces.
    pub config: Option<&'a str>,
    /// The first server that it shall stand in front of, `http://HOST:PORT`.
    pub upstream: Option<&'a str>,
    /// What answers 200 when it is ready.
    pub ready: &'a str,
    /// Whether it prints its key first.
    pub prints_key: bool,
}

/// A running server with a directory of its own. Killed when dropped.
pub struct ServerProcess {
    child: Child,
    name: String,
    /// Its data and its log; removed with it.
    dir: tempfile::TempDir,
    /// Where to send.
    pub target: ApiTarget,
}

impl ServerProcess {
    /// Starts `program serve` under a policy on a free loopback port and waits until it is ready.
    pub async fn start(
        program: &Path,
        arguments: &[String],
        policy: &str,
        timeout: Duration,
    ) -> Result<Self, Error> {
        let own = ["serve", "--listen", "127.0.0.1:{port}", "--policy", policy, "--data-dir", "{dir}/data"];
        let command = std::iter::once(program.display().to_string());
        let command: Vec<String> =
            command.chain(own.map(str::to_owned)).chain(arguments.iter().cloned()).collect();
        let ready = "/readyz";
        let launch =
            Launch { name: policy, command: &command, config: None, upstream: None, ready, prints_key: true };
        Self::launch(&launch, timeout).await
    }

    /// Starts a server and waits until it is ready.
    pub async fn launch(launch: &Launch<'_>, timeout: Duration) -> Result<Self, Error> {
        let fail = |reason: String| Error::Server { name: launch.name.to_owned(), reason };
        let dir = tempfile::tempdir().map_err(|error| fail(error.to_string()))?;
        let port = free_port().map_err(|error| fail(error.to_string()))?;
        let log = std::fs::File::create(dir.path().join("log")).map_err(|error| fail(error.to_string()))?;
        let place = dir.path().display().to_string();
        let config = dir.path().join("config.toml");
        let fill = |word: &str| {
            word.replace("{port}", &port.to_string())
                .replace("{dir}", &place)
                .replace("{config}", &config.display().to_string())
                .replace("{upstream}", launch.upstream.unwrap_or_default())
        };
        if let Some(text) = launch.config {
            std::fs::write(&config, fill(text)).map_err(|error| Error::file(&config, error))?;
        }
        let mut words = launch.command.iter().map(|word| fill(word));
        let program = words.next().ok_or_else(|| fail("no command".into()))?;
        let child = Command::new(&program)
            .args(words)
            // Ours prints its first key then.
            .env("RELSERVE_SHOW_KEY", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| fail(format!("{program}: {error}")))?;
        let target = ApiTarget::new(&format!("http://127.0.0.1:{port}"), None, timeout)?;
        let mut server = Self { child, name: launch.name.to_owned(), dir, target };
        match tokio::time::timeout(START_MAX, server.wait_until_ready(launch)).await {
            Ok(ready) => ready?,
            Err(_) => return Err(server.error(format!("not ready within {} s", START_MAX.as_secs()))),
        }
        Ok(server)
    }

    /// Reads the key, where there is one, then asks until the answer is yes.
    async fn wait_until_ready(&mut self, launch: &Launch<'_>) -> Result<(), Error> {
        let stdout = self.child.stdout.take().ok_or_else(|| self.error("no standard output".into()))?;
        let mut lines = BufReader::new(stdout).lines();
        if launch.prints_key {
            self.target.key = Some(self.read_key(&mut lines).await?);
        }
        // Whatever it prints from now on is read and dropped, so that it never waits for a reader.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(self.error(format!("it ended: {status}")));
            }
            let asked = self.target.get(launch.ready).send().await;
            if asked.is_ok_and(|response| response.status().is_success()) {
                return Ok(());
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// The key from the line that brings it.
    async fn read_key(&self, lines: &mut Lines<BufReader<ChildStdout>>) -> Result<String, Error> {
        loop {
            match lines.next_line().await {
                Ok(Some(line)) => {
                    let key = line.split_once(KEY_LINE).and_then(|(_, key)| key.split_whitespace().next());
                    if let Some(key) = key {
                        return Ok(key.to_owned());
                    }
                }
                Ok(None) => return Err(self.error("it ended, or printed no line `API key: ...`".into())),
                Err(error) => return Err(self.error(error.to_string())),
            }
        }
    }

    /// A key of another tenant, made by the server's own command beside it. For one that was started by
    /// [`Self::start`].
    pub async fn key_of(&self, program: &Path, tenant: &str) -> Result<String, Error> {
        let data = self.dir.path().join("data");
        let make = ["key", "create", tenant, "--tenant", tenant, "--data-dir"];
        let made = Command::new(program).args(make).arg(data).stdin(Stdio::null()).output().await;
        let made = made.map_err(|error| self.error(error.to_string()))?;
        let shown = String::from_utf8_lossy(&made.stdout);
        let key = shown.lines().find_map(|line| line.strip_prefix(KEY_LINE)).map(|key| key.trim().to_owned());
        key.ok_or_else(|| self.error(format!("no key was made: {}", String::from_utf8_lossy(&made.stderr))))
    }

    /// What it was called when it was started.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Adds an entry of `[[replicas]]` on the route of RelServe that takes the operators' key.
    pub async fn add_replica(&self, entry: &toml::Table, key: Option<String>) -> Result<(), Error> {
        let path = "/v1/replicas";
        let target = ApiTarget { key, ..self.target.clone() };
        self.accepted(path, target.post(path, &serde_json::json!(entry))).await
    }

    /// Kills it as the machine would that loses power (SIGKILL).
    pub async fn kill(&mut self) -> Result<(), Error> {
        self.child.kill().await.map_err(|error| self.error(error.to_string()))
    }

    /// What the server says of its scheduler, if it does: `GET /v1/scheduler` with a field `cost`.
    pub async fn scheduler(&self) -> Option<serde_json::Value> {
        let response = self.target.get("/v1/scheduler").send().await.ok()?;
        let state: serde_json::Value = response.error_for_status().ok()?.json().await.ok()?;
        state["cost"].is_object().then_some(state)
    }

    /// Plan and apply as a share of the executor's time, from the sums of `GET /metrics`; none where the
    /// server counts no such thing, or nothing yet.
    pub async fn scheduler_share(&self) -> Option<f64> {
        let text = self.metrics().await?;
        let steps = metric(&text, "relserve_step_seconds_sum").filter(|seconds| *seconds > 0.0)?;
        Some(metric(&text, "relserve_scheduler_seconds_sum")? / steps)
    }

    /// What a histogram of seconds counted since the server's start, from `GET /metrics`.
    pub async fn seconds(&self, name: &str) -> Option<SecondsCount> {
        let text = self.metrics().await?;
        let of = |part: &str| metric(&text, &format!("{name}_{part}"));
        Some(SecondsCount { sum: of("sum")?, count: of("count")? })
    }

    async fn metrics(&self) -> Option<String> {
        self.target.get("/metrics").send().await.ok()?.error_for_status().ok()?.text().await.ok()
    }

    /// What vLLM counts of its prefix cache since its start, from `GET /metrics`; none of another server.
    pub async fn prefix_counts(&self) -> Option<PrefixCounts> {
        let text = self.metrics().await?;
        let asked = metric(&text, "vllm:prefix_cache_queries_total")?;
        Some(PrefixCounts { asked, hit: metric(&text, "vllm:prefix_cache_hits_total")? })
    }

    /// Asks the server to forget what its prefix cache holds, on the route that it has for that.
    pub async fn reset(&self, path: &str) -> Result<(), Error> {
        self.accepted(path, self.target.post(path, &serde_json::json!({}))).await
    }

    /// Sends a request whose answer must be a success.
    async fn accepted(&self, path: &str, request: reqwest::RequestBuilder) -> Result<(), Error> {
        let fail = |reason: String| self.error(format!("{path}: {reason}"));
        let response = request.send().await.map_err(|error| fail(chain(&error)))?;
        match response.status().is_success() {
            true => Ok(()),
            false => Err(fail(refused(response).await.error.unwrap_or_default())),
        }
    }

    /// Asks the server to end (SIGTERM) and waits; kills it where it does not.
    pub async fn stop(mut self) -> Result<(), Error> {
        self.end().await.map(|_| ())
    }

    /// The same, and to end with success: a sanitizer speaks up at the end.
    pub async fn stop_well(mut self) -> Result<(), Error> {
        let status = self.end().await?;
        if status.success() { Ok(()) } else { Err(self.error(format!("it ended with {status}"))) }
    }

    async fn end(&mut self) -> Result<ExitStatus, Error> {
        if let Some(id) = self.child.id() {
            // The shell's own `kill`: a signal without unsafe code.
            let asked =
                Command::new("/bin/sh").args(["-c", "kill -TERM \"$0\"", &id.to_string()]).status().await;
            if !asked.is_ok_and(|status| status.success()) {
                return Err(self.error("it cannot be signalled".into()));
            }
        }
        match tokio::time::timeout(STOP_MAX, self.child.wait()).await {
            Ok(Ok(status)) => Ok(status),
            Ok(Err(error)) => Err(self.error(error.to_string())),
            Err(_) => Err(self.error(format!("it did not end within {} s of SIGTERM", STOP_MAX.as_secs()))),
        }
    }

    /// An error with the end of the server's log.
    fn error(&self, reason: String) -> Error {
        let log = std::fs::read(self.dir.path().join("log")).unwrap_or_default();
        let end = String::from_utf8_lossy(&log[log.len().saturating_sub(LAST_WORDS)..]).into_owned();
        Error::Server { name: self.name.clone(), reason: format!("{reason}\n{end}") }
    }
}

/// What a server counted of its prefix cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PrefixCounts {
    /// Prompt tokens that were looked for.
    pub asked: f64,
    /// Those of them that were found.
    pub hit: f64,
}

/// A histogram's sum and count.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SecondsCount {
    /// Seconds in all.
    pub sum: f64,
    /// How many things took them.
    pub count: f64,
}

impl SecondsCount {
    /// Both together.
    pub fn plus(self, other: Self) -> Self {
        Self { sum: self.sum + other.sum, count: self.count + other.count }
    }

    /// The mean of what was counted after `before`, s; none where nothing was.
    pub fn mean_since(self, before: Self) -> Option<f64> {
        let count = self.count - before.count;
        (count > 0.0).then(|| (self.sum - before.sum) / count)
    }
}

/// The sum over all label sets of a metric in Prometheus' text form; none where it is not there.
fn metric(text: &str, name: &str) -> Option<f64> {
    let of = |line: &str| {
        let rest = line.strip_prefix(name)?;
        let (is_it, value) = (rest.starts_with([' ', '{']), rest.rsplit_once(' ')?.1);
        if is_it { value.parse::<f64>().ok() } else { None }
    };
    let found: Vec<f64> = text.lines().filter_map(of).collect();
    (!found.is_empty()).then(|| found.iter().sum())
}

/// A port that was free a moment ago.
fn free_port() -> std::io::Result<u16> {
    Ok(std::net::TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}
