//! The servers of a race or of a comparison: how each is started, and how it is asked.

use std::path::Path;
use std::time::Duration;

use serde::Deserialize;

use crate::Error;
use crate::server::{Launch, ServerProcess};
use crate::single::{ChoiceField, Endpoint};

/// Stands for a policy in a server's name, command and settings.
const POLICY: &str = "{policy}";

/// The servers, as TOML.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contest {
    /// The loads of a comparison whose command line names none.
    #[serde(default)]
    pub loads: Vec<LoadSpec>,
    /// Servers that others stand in front of.
    #[serde(default)]
    pub upstreams: Vec<Upstream>,
    /// In the order of the table.
    pub servers: Vec<Contestant>,
    /// Names of servers that a comparison divides by the others' means.
    #[serde(default)]
    pub baselines: Vec<String>,
}

/// A load, and who runs at it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadSpec {
    /// Mean arrivals per second.
    pub rate_per_s: f64,
    /// Names of the servers that run at it; empty: all.
    #[serde(default)]
    pub only: Vec<String>,
}

/// A server that is asked itself or through another one.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Upstream {
    /// What `servers.upstreams` calls it.
    pub name: String,
    /// How many there are: `name-1`, `name-2` and so on. Absent: one, called `name`.
    pub count: Option<u32>,
    /// Program and arguments; `{port}` stands for a free port, `{dir}` for an empty directory, `{config}` for
    /// the file of `config`.
    pub command: Vec<String>,
    /// The text of a settings' file.
    pub config: Option<String>,
    /// What answers 200 when it is ready.
    #[serde(default = "health")]
    pub ready: String,
    /// The route that empties its prefix cache; without one it is started anew for each run.
    pub reset: Option<String>,
}

/// One server: how it is started, and how it is asked.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contestant {
    /// Its name in the table.
    pub name: String,
    /// Program and arguments; `{port}` stands for a free port, `{dir}` for an empty directory, `{config}` for
    /// the file of `config`, `{policy}` for one of `policies`. Empty: the upstreams themselves are asked, of
    /// several one row after another in turn.
    #[serde(default)]
    pub command: Vec<String>,
    /// The text of a settings' file, in which `{upstream}` stands for the first upstream's address.
    pub config: Option<String>,
    /// The upstreams that it stands in front of.
    #[serde(default)]
    pub upstreams: Vec<String>,
    /// What RelServe's `[[replicas]]` says of an upstream beside its name and its address: with it such an
    /// entry for each upstream follows `config`, and is what is sent where one is added in the run.
    pub replica: Option<toml::Table>,
    /// What happens to its upstreams in a run of a comparison, in order.
    #[serde(default)]
    pub events: Vec<UpstreamEvent>,
    /// The key of operators' routes, on which an upstream is added.
    pub admin_key: Option<String>,
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

/// An upstream that dies or comes in a run; one of both.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpstreamEvent {
    /// When, counted from the run's start.
    pub at_s: f64,
    /// The upstream that is killed (SIGKILL), one of the server's.
    pub kill: Option<String>,
    /// The upstream that is started and, once it is ready, added by `POST /v1/replicas`.
    pub add: Option<String>,
}

impl Contest {
    /// Reads and checks a contest's file.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path).map_err(|error| Error::file(path, error))?;
        let mut contest: Self = toml::from_str(&text).map_err(|error| Error::file(path, error))?;
        contest.upstreams = contest.upstreams.iter().flat_map(Upstream::numbered).collect();
        contest.check().map_err(|reason| Error::file(path, reason))?;
        Ok(contest)
    }

    /// What is wrong with it, by the field's name.
    fn check(&self) -> Result<(), String> {
        let check = |sound: bool, reason: &str| if sound { Ok(()) } else { Err(reason.to_owned()) };
        check(!self.servers.is_empty(), "`servers` must not be empty")?;
        let has_program = |upstream: &Upstream| !upstream.command.is_empty();
        check(self.upstreams.iter().all(has_program), "`upstreams.command` must not be empty")?;
        let rates = self.loads.iter().map(|load| load.rate_per_s);
        let mut sound = rates.map(|rate| rate.is_finite() && rate > 0.0);
        check(sound.all(|is_sound| is_sound), "`loads.rate_per_s` must be positive")?;
        for server in &self.servers {
            let has_program = !server.command.is_empty() || !server.upstreams.is_empty();
            check(has_program, "`servers.command` must not be empty without `servers.upstreams`")?;
            if let Some(name) = server.upstreams.iter().find(|name| self.upstream(name).is_none()) {
                return Err(format!(
                    "`servers.upstreams` of `{}`: `{name}` is none of `upstreams`",
                    server.name
                ));
            }
            self.check_events(server)
                .map_err(|reason| format!("`servers.events` of `{}`: {reason}", server.name))?;
        }
        Ok(())
    }

    /// Whether the events of a server can happen: none of them before the one above it.
    fn check_events(&self, server: &Contestant) -> Result<(), String> {
        let mut last_s = 0.0;
        for UpstreamEvent { at_s, kill, add } in &server.events {
            if !at_s.is_finite() || *at_s < last_s {
                return Err(format!("`at_s` ({at_s}) must not be before that of the event above it"));
            }
            last_s = *at_s;
            match (kill, add) {
                (Some(name), None) if !server.upstreams.contains(name) => {
                    return Err(format!("`kill`: `{name}` is none of its `upstreams`"));
                }
                (None, Some(name)) if server.upstreams.contains(name) || self.upstream(name).is_none() => {
                    return Err(format!(
                        "`add`: `{name}` must be one of `upstreams` that the server has not"
                    ));
                }
                (None, Some(_)) if server.replica.is_none() || server.admin_key.is_none() => {
                    return Err("`add` needs `servers.replica` and `servers.admin_key`".into());
                }
                (Some(_), None) | (None, Some(_)) => {}
                _ => return Err("one of `kill` and `add` must be there".into()),
            }
        }
        Ok(())
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

    /// The upstream of a name.
    pub fn upstream(&self, name: &str) -> Option<&Upstream> {
        self.upstreams.iter().find(|upstream| upstream.name == name)
    }
}

impl Upstream {
    /// As many upstreams as `count` says.
    fn numbered(&self) -> Vec<Self> {
        let one = |number: u32| Self { name: format!("{}-{number}", self.name), count: None, ..self.clone() };
        self.count.map_or_else(|| vec![self.clone()], |count| (1..=count).map(one).collect())
    }

    /// Starts it and waits until it is ready.
    pub async fn start(&self, timeout: Duration) -> Result<ServerProcess, Error> {
        let launch = Launch {
            name: &self.name,
            command: &self.command,
            config: self.config.as_deref(),
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

    /// An upstream as an entry of RelServe's `[[replicas]]`.
    pub fn replica_entry(&self, upstream: &ServerProcess) -> toml::Table {
        let mut entry = toml::Table::new();
        entry.insert("name".into(), upstream.name().into());
        entry.insert("url".into(), upstream.target.url.as_str().into());
        entry.extend(self.replica.clone().unwrap_or_default());
        entry
    }

    /// The text of its settings' file, with an entry for each upstream where it says what stands in them.
    fn settings(&self, upstreams: &[ServerProcess]) -> Result<Option<String>, Error> {
        let entries: Vec<toml::Value> = match self.replica {
            Some(_) => upstreams.iter().map(|upstream| self.replica_entry(upstream).into()).collect(),
            None => Vec::new(),
        };
        if entries.is_empty() {
            return Ok(self.config.clone());
        }
        let replicas = toml::Table::from_iter([("replicas".to_owned(), toml::Value::Array(entries))]);
        let text = toml::to_string(&replicas)
            .map_err(|error| Error::Server { name: self.name.clone(), reason: error.to_string() })?;
        Ok(Some(format!("{}\n{text}", self.config.as_deref().unwrap_or_default())))
    }

    /// Starts it, in front of its upstreams where it has any, and waits until it is ready. None where the
    /// upstreams themselves are asked.
    pub async fn start(
        &self,
        upstreams: &[ServerProcess],
        timeout: Duration,
    ) -> Result<Option<ServerProcess>, Error> {
        if self.command.is_empty() {
            return Ok(None);
        }
        let settings = self.settings(upstreams)?;
        let launch = Launch {
            name: &self.name,
            command: &self.command,
            config: settings.as_deref(),
            upstream: upstreams.first().map(|server| server.target.url.as_str()),
            ready: &self.ready,
            prints_key: self.prints_key,
        };
        ServerProcess::launch(&launch, timeout).await.map(Some)
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
            (
                "[[servers]]\nname = \"a\"\nupstreams = [\"v\"]\nsent = \"chat\"",
                "`servers.upstreams` of `a`: `v`",
            ),
            (
                "[[upstreams]]\nname = \"v\"\ncommand = []\n[[servers]]\nname = \"a\"\nupstreams = [\"v\"]\nsent = \"chat\"",
                "`upstreams.command`",
            ),
            (
                "[[loads]]\nrate_per_s = 0.0\n[[servers]]\nname = \"a\"\ncommand = [\"x\"]\nsent = \"chat\"",
                "`loads.rate_per_s`",
            ),
        ] {
            let error = load(text).expect_err(text).to_string();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn a_server_stands_once_for_each_policy_its_own_or_those_asked_for() {
        let contest = load(
            "[[upstreams]]\nname = \"v\"\ncount = 2\ncommand = [\"v\"]\n\
             [[servers]]\nname = \"v\"\nupstreams = [\"v-1\", \"v-2\"]\nsent = \"chat\"\n\
             [[servers]]\nname = \"front, {policy}\"\nupstreams = [\"v-2\"]\ncommand = [\"x\", \"{policy}\"]\n\
             config = \"p = '{policy}'\"\nsent = \"rel_query\"\n\
             [[servers]]\nname = \"own, {policy}\"\npolicies = [\"c\"]\ncommand = [\"x\"]\nsent = \"rel_query\"\n",
        );
        let contest = contest.expect("sound");
        let servers = contest.under(&["a".into(), "b".into()]);
        let names: Vec<&str> = servers.iter().map(|server| server.name.as_str()).collect();
        assert_eq!(names, ["v", "front, a", "front, b", "own, c"]);
        assert_eq!(servers[2].command, ["x", "b"]);
        assert_eq!(servers[2].config.as_deref(), Some("p = 'b'"));
        let names: Vec<&str> = contest.upstreams.iter().map(|upstream| upstream.name.as_str()).collect();
        assert_eq!(names, ["v-1", "v-2"]);
    }

    #[test]
    fn events_that_cannot_happen_are_refused_with_their_field() {
        let with = |events: &str, rest: &str| {
            load(&format!(
                "[[upstreams]]\nname = \"v\"\ncount = 3\ncommand = [\"v\"]\n\
                 [[servers]]\nname = \"a\"\ncommand = [\"x\"]\nsent = \"rel_query\"\n\
                 upstreams = [\"v-1\", \"v-2\"]\n{rest}\nevents = [{events}]\n"
            ))
        };
        let can_add = "admin_key = \"k\"\nreplica = { dialect = \"vllm\" }";
        let sound = "{ at_s = 1, kill = \"v-1\" }, { at_s = 1, add = \"v-3\" }";
        assert_eq!(with(sound, can_add).expect("sound").servers[0].events.len(), 2);
        for (events, rest, reason) in [
            (sound, "", "`add` needs `servers.replica`"),
            ("{ at_s = 1, kill = \"v-3\" }", "", "`kill`: `v-3`"),
            ("{ at_s = 1, add = \"v-1\" }", can_add, "`add`: `v-1`"),
            ("{ at_s = 1, add = \"w\" }", can_add, "`add`: `w`"),
            ("{ at_s = 1 }", "", "one of `kill` and `add`"),
            ("{ at_s = 2, kill = \"v-1\" }, { at_s = 1, kill = \"v-2\" }", "", "`at_s` (1)"),
        ] {
            let error = with(events, rest).expect_err(events).to_string();
            assert!(error.contains(reason) && error.contains("`servers.events` of `a`"), "{error}");
        }
    }

    #[test]
    fn the_shipped_contests_are_sound() {
        for name in ["race-servers", "vllm-servers", "replicas-servers"] {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios").join(format!("{name}.toml"));
            Contest::load(&path).expect(name);
        }
    }
}
