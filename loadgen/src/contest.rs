//! The servers of a race or of a comparison: how each is started, and how it is asked.

use std::path::Path;
use std::time::Duration;

use serde::Deserialize;

use crate::Error;
use crate::client::ApiTarget;
use crate::server::{Launch, ServerProcess};
use crate::single::{ChoiceField, Endpoint};

/// Stands for a policy in a server's name, command and settings.
const POLICY: &str = "{policy}";

/// The servers, as TOML.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contest {
    /// Servers that others stand in front of.
    #[serde(default)]
    pub upstreams: Vec<Upstream>,
    /// In the order of the table.
    pub servers: Vec<Contestant>,
    /// Names of servers that a comparison divides by the others' means.
    #[serde(default)]
    pub baselines: Vec<String>,
}

/// A server that is asked itself or through another one.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Upstream {
    /// What `servers.upstream` calls it.
    pub name: String,
    /// Program and arguments; `{port}` stands for a free port, `{dir}` for an empty directory.
    pub command: Vec<String>,
    /// What answers 200 when it is ready.
    #[serde(default = "health")]
    pub ready: String,
    /// The route that empties its prefix cache; without one it is started anew for each run.
    pub reset: Option<String>,
}

/// One server: how it is started, and how it is asked.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contestant {
    /// Its name in the table.
    pub name: String,
    /// Program and arguments; `{port}` stands for a free port, `{dir}` for an empty directory, `{config}` for
    /// the file of `config`, `{policy}` for one of `policies`. Empty: the upstream itself is asked.
    #[serde(default)]
    pub command: Vec<String>,
    /// The text of a settings' file, in which `{upstream}` stands for the upstream's address.
    pub config: Option<String>,
    /// The upstream that it stands in front of.
    pub upstream: Option<String>,
    /// What `{policy}` stands for, one server each; empty: what the command line names.
    #[serde(default)]
    pub policies: Vec<String>,
    /// What answers 200 when it is ready.
    #[serde(default = "health")]
    pub ready: String,
    /// Whether it prints a line `API key: ...` before it is ready.
    #[serde(default)]
    pub prints_key: bool,
    /// What it is sent.
    pub sent: Sent,
    /// How it is told the answers that it may give, where a task has such.
    #[serde(default)]
    pub choice: ChoiceField,
    /// What the `priority` of a row's request is; absent: rows have none.
    pub priority: Option<PriorityKey>,
}

fn health() -> String {
    "/health".into()
}

/// What a relQuery is to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sent {
    /// One request.
    RelQuery,
    /// A chat completion per row, all at once.
    Chat,
    /// A completion per row, all at once.
    Completions,
}

impl Sent {
    /// Where single rows go; none where the relQuery is one request.
    pub fn endpoint(self) -> Option<Endpoint> {
        match self {
            Self::RelQuery => None,
            Self::Chat => Some(Endpoint::Chat),
            Self::Completions => Some(Endpoint::Completions),
        }
    }
}

/// What a client that knows of relQueries but not of the server's queue can tell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PriorityKey {
    /// Prompt and output tokens of the whole relQuery (the paper's vLLM-SP).
    TotalTokens,
}

impl Contest {
    /// Reads and checks a contest's file.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path).map_err(|error| Error::file(path, error))?;
        let contest: Self = toml::from_str(&text).map_err(|error| Error::file(path, error))?;
        let check = |sound: bool, reason: &str| if sound { Ok(()) } else { Err(Error::file(path, reason)) };
        check(!contest.servers.is_empty(), "`servers` must not be empty")?;
        let is_upstream = |name: &String| contest.upstreams.iter().any(|upstream| upstream.name == *name);
        for server in &contest.servers {
            let has_program = !server.command.is_empty() || server.upstream.is_some();
            check(has_program, "`servers.command` must not be empty without `servers.upstream`")?;
            check(
                server.upstream.iter().all(is_upstream),
                &format!("`servers.upstream` of `{}` is none of `upstreams`", server.name),
            )?;
        }
        let has_program = |upstream: &Upstream| !upstream.command.is_empty();
        check(contest.upstreams.iter().all(has_program), "`upstreams.command` must not be empty")?;
        Ok(contest)
    }

    /// The servers with every `{policy}` filled in: one server for each of its own `policies`, or else of
    /// `policies`.
    pub fn under(&self, policies: &[String]) -> Vec<Contestant> {
        let mut servers = Vec::new();
        for server in &self.servers {
            let text = server.command.iter().chain(&server.config).chain([&server.name]);
            if !text.into_iter().any(|text| text.contains(POLICY)) {
                servers.push(server.clone());
                continue;
            }
            let own = if server.policies.is_empty() { policies } else { &server.policies };
            servers.extend(own.iter().map(|policy| server.under(policy)));
        }
        servers
    }

    /// The upstream of a server.
    pub fn upstream(&self, server: &Contestant) -> Option<&Upstream> {
        let name = server.upstream.as_ref()?;
        self.upstreams.iter().find(|upstream| upstream.name == *name)
    }
}

impl Upstream {
    /// Starts it and waits until it is ready.
    pub async fn start(&self, timeout: Duration) -> Result<ServerProcess, Error> {
        let launch = Launch {
            name: &self.name,
            command: &self.command,
            config: None,
            upstream: None,
            ready: &self.ready,
            prints_key: false,
        };
        ServerProcess::launch(&launch, timeout).await
    }
}

impl Contestant {
    fn under(&self, policy: &str) -> Self {
        let fill = |text: &String| text.replace(POLICY, policy);
        Self {
            name: fill(&self.name),
            command: self.command.iter().map(fill).collect(),
            config: self.config.as_ref().map(fill),
            ..self.clone()
        }
    }

    /// Starts it, in front of its upstream where it has one, and waits until it is ready. None where the
    /// upstream itself is asked.
    pub async fn start(
        &self,
        upstream: Option<&ServerProcess>,
        timeout: Duration,
    ) -> Result<Option<ServerProcess>, Error> {
        if self.command.is_empty() {
            return Ok(None);
        }
        let launch = Launch {
            name: &self.name,
            command: &self.command,
            config: self.config.as_deref(),
            upstream: upstream.map(|server| server.target.url.as_str()),
            ready: &self.ready,
            prints_key: self.prints_key,
        };
        ServerProcess::launch(&launch, timeout).await.map(Some)
    }
}

/// A server that runs, with its upstream where it has one; at least one of both is there.
pub struct RunningContestant {
    own: Option<ServerProcess>,
    upstream: Option<ServerProcess>,
}

impl RunningContestant {
    /// Starts a server and, before it, its upstream.
    pub async fn start(contest: &Contest, server: &Contestant, timeout: Duration) -> Result<Self, Error> {
        let upstream = match contest.upstream(server) {
            Some(upstream) => Some(upstream.start(timeout).await?),
            None => None,
        };
        let own = server.start(upstream.as_ref(), timeout).await?;
        Ok(Self { own, upstream })
    }

    /// Where to send.
    pub fn target(&self) -> Result<&ApiTarget, Error> {
        let asked = self.own.as_ref().or(self.upstream.as_ref());
        asked.map(|server| &server.target).ok_or_else(|| Error::Client("no server runs".into()))
    }

    /// Ends both.
    pub async fn stop(self) -> Result<(), Error> {
        for server in [self.own, self.upstream].into_iter().flatten() {
            server.stop().await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str) -> Result<Contest, Error> {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("contest.toml");
        std::fs::write(&path, text).expect("written");
        Contest::load(&path)
    }

    #[test]
    fn a_contest_names_what_is_wrong_with_it() {
        for (text, reason) in [
            ("servers = []", "`servers`"),
            ("[[servers]]\nname = \"a\"\ncommand = []\nsent = \"chat\"", "`servers.command`"),
            ("[[servers]]\nname = \"a\"\ncommand = [\"x\"]\nsent = \"letter\"", "letter"),
            ("[[servers]]\nname = \"a\"\nupstream = \"v\"\nsent = \"chat\"", "`servers.upstream` of `a`"),
            (
                "[[upstreams]]\nname = \"v\"\ncommand = []\n[[servers]]\nname = \"a\"\nupstream = \"v\"\nsent = \"chat\"",
                "`upstreams.command`",
            ),
        ] {
            let error = load(text).expect_err(text).to_string();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn a_server_stands_once_for_each_policy_its_own_or_those_asked_for() {
        let contest = load(
            "[[upstreams]]\nname = \"v\"\ncommand = [\"v\"]\n\
             [[servers]]\nname = \"v\"\nupstream = \"v\"\nsent = \"chat\"\n\
             [[servers]]\nname = \"front, {policy}\"\nupstream = \"v\"\ncommand = [\"x\", \"{policy}\"]\n\
             config = \"p = '{policy}'\"\nsent = \"rel_query\"\n\
             [[servers]]\nname = \"own, {policy}\"\npolicies = [\"c\"]\ncommand = [\"x\"]\nsent = \"rel_query\"\n",
        );
        let contest = contest.expect("sound");
        let servers = contest.under(&["a".into(), "b".into()]);
        let names: Vec<&str> = servers.iter().map(|server| server.name.as_str()).collect();
        assert_eq!(names, ["v", "front, a", "front, b", "own, c"]);
        assert_eq!(servers[2].command, ["x", "b"]);
        assert_eq!(servers[2].config.as_deref(), Some("p = 'b'"));
        assert_eq!(contest.upstream(&servers[2]).map(|upstream| upstream.name.as_str()), Some("v"));
        assert_eq!(contest.upstream(&servers[3]), None);
    }

    #[test]
    fn the_shipped_contests_are_sound() {
        for name in ["race-servers", "vllm-servers"] {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios").join(format!("{name}.toml"));
            Contest::load(&path).expect(name);
        }
    }
}
