//! Which replicas a fleet has: the union of what operators, the configuration, a file and DNS name.
//!
//! Whoever names a replica is a [`ReplicaSource`]. A server that two of them name is one replica, as the first of
//! them describes it, and stays until none names it. Each change is told to the loop as the whole list, which
//! is the only thing that both sides have to agree on. Must not know how sources are read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

use base::{Millis, Time, TokenCount};
use scheduler::fleet::Departed;

use super::FleetMessage;
use super::client::Client;
use super::names::ReplicaNames;
use super::source::ReplicaSource;
use crate::config::{Dialect, FleetRules, InvalidConfig, ReplicaKind, ReplicaSettings, invalid, plain};
use crate::error::RequestError;
use crate::shared::Shared;

/// Most replicas of a fleet.
const MEMBERS_MAX: usize = 1_024;
/// Most replicas that are remembered to be out of service; beyond it those that are away longest are forgotten.
const DRAINED_MAX: usize = MEMBERS_MAX;

/// What makes a replica the same one: its address, the model there, and which of several equal entries of one
/// source it is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MemberKey {
    address: String,
    model: String,
    occurrence: usize,
}

/// A replica that a fleet should have.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplicaMember {
    pub key: MemberKey,
    pub name: String,
    /// What it is called where another takes its name: by its address.
    name_by_address: String,
    /// Who named it first.
    pub source: ReplicaSource,
    /// Whether an operator keeps it out of service.
    pub is_drained: bool,
    pub settings: ReplicaSettings,
}

impl ReplicaMember {
    fn new(source: ReplicaSource, settings: &ReplicaSettings, rules: &FleetRules, occurrence: usize) -> Self {
        let key = key_of(settings, rules, occurrence);
        let (name, name_by_address) = (name_of(settings, rules), name_at(&key.address, rules));
        Self { key, name, name_by_address, source, is_drained: false, settings: settings.clone() }
    }

    /// What it is called from now on where another takes its name: by its address. None where that is the other's
    /// too: who was there is there no more.
    pub fn name_beside(&self, other: &Self) -> Option<String> {
        (self.key.address != other.key.address).then(|| self.name_by_address.clone())
    }
}

/// How the last reading of a source went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceStatus {
    pub source: ReplicaSource,
    /// Replicas that it names.
    pub replicas: usize,
    /// Why the last reading changed nothing, and when that was first so (unix milliseconds).
    pub error: Option<(String, u64)>,
}

/// The replicas that a fleet should have. Shared by the routes and the readers of file and DNS.
pub struct ReplicaMembers {
    rules: FleetRules,
    shared: Arc<Shared>,
    /// What replicas of all models are called.
    names: Arc<ReplicaNames>,
    /// The model that they run: its name at this gateway.
    model: String,
    state: Mutex<MemberState>,
}

#[derive(Clone, Debug, Default)]
struct MemberState {
    named: BTreeMap<ReplicaSource, Vec<ReplicaSettings>>,
    /// What operators took out, although a source names it.
    removed: BTreeSet<MemberKey>,
    /// What operators took out of service, the last one last, with the name that it had: also while nobody names it.
    drained: Vec<(MemberKey, String)>,
    current: Vec<ReplicaMember>,
    /// What those could hold that left lately.
    departed: Departed,
    /// What servers of this fleet may speak: what it began with.
    dialects: BTreeSet<Dialect>,
    /// Why a source was not taken in last.
    errors: BTreeMap<ReplicaSource, (String, u64)>,
}

impl ReplicaMembers {
    /// Those that the configuration names. `dialects`: what others may speak that come later.
    pub fn new(
        rules: FleetRules,
        replicas: Vec<ReplicaSettings>,
        dialects: impl IntoIterator<Item = Dialect>,
        (model, names): (&str, Arc<ReplicaNames>),
        shared: Arc<Shared>,
    ) -> Result<Self, InvalidConfig> {
        let mut state = MemberState { dialects: dialects.into_iter().collect(), ..MemberState::default() };
        state.named.insert(ReplicaSource::Config, replicas);
        state.merge(&rules)?;
        names.take(model, state.current.iter().map(|member| member.name.as_str()))?;
        Ok(Self { rules, shared, names, model: model.to_owned(), state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, MemberState> {
        // A change is made on a copy, so that a panic leaves nothing half made.
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The replicas that the fleet should have now.
    pub fn list(&self) -> Vec<ReplicaMember> {
        self.state().current.clone()
    }

    /// Most tokens that one of them holds at a time, or one held that left lately; none where one has no limit, or
    /// there is none.
    pub fn tokens_max(&self) -> Option<TokenCount> {
        self.state().largest(self.shared.clock.now())
    }

    /// Most tokens that one of those holds that get rows now; none where one has no limit, or none gets any.
    pub fn serving_tokens_max(&self) -> Option<TokenCount> {
        let view = self.shared.view.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let mut largest = None;
        for replica in view.replicas.iter().filter(|replica| replica.is_up) {
            largest = largest.max(Some(replica.tokens_max?));
        }
        largest
    }

    /// What its servers speak.
    pub fn dialects(&self) -> Vec<Dialect> {
        self.state().dialects.iter().copied().collect()
    }

    /// How the last reading of each source went that is read while the server runs.
    pub fn statuses(&self) -> Vec<SourceStatus> {
        let state = self.state();
        let sources =
            state.named.keys().chain(state.errors.keys()).copied().collect::<BTreeSet<ReplicaSource>>();
        let found =
            sources.into_iter().filter(|source| matches!(source, ReplicaSource::File | ReplicaSource::Dns));
        let status = |source| SourceStatus {
            source,
            replicas: state.named.get(&source).map_or(0, Vec::len),
            error: state.errors.get(&source).cloned(),
        };
        found.map(status).collect()
    }

    /// Takes in all that a source names, or nothing of it.
    pub fn set(&self, source: ReplicaSource, replicas: Vec<ReplicaSettings>) -> Result<(), InvalidConfig> {
        self.change(|state| {
            state.named.insert(source, replicas);
            state.errors.remove(&source);
            Ok(())
        })
    }

    /// A source could not be read: what it named before stays.
    pub fn failed(&self, source: ReplicaSource, reason: String) {
        let now = self.shared.clock.unix_ms();
        let mut state = self.state();
        match state.errors.get_mut(&source) {
            Some((last, _)) if *last == reason => {}
            _ => {
                tracing::warn!(
                    source = source.name(),
                    reason,
                    "replicas are not read anew: the old ones stay"
                );
                state.errors.insert(source, (reason, now));
            }
        }
    }

    /// An operator adds a replica. Returns its name.
    pub fn add(&self, replica: ReplicaSettings) -> Result<String, RequestError> {
        let refused = |error: InvalidConfig| RequestError::invalid(error.field, error.reason);
        if replica.kind == ReplicaKind::Local {
            return Err(RequestError::invalid(
                "kind",
                "the local engine is there from the start, or not at all",
            ));
        }
        self.rules.check("", &replica).map_err(refused)?;
        Client::new(&replica, &self.shared.gateway).map_err(|reason| RequestError::invalid("url", reason))?;
        let key = key_of(&replica, &self.rules, 0);
        let name = name_of(&replica, &self.rules);
        self.change(|state| {
            if state.current.iter().any(|member| member.name == name && member.key != key) {
                return Err(invalid("name", "is another replica's too"));
            }
            let rules = &self.rules;
            let own = state.named.entry(ReplicaSource::Route).or_default();
            own.retain(|other| key_of(other, rules, 0) != key);
            own.push(replica);
            state.removed.remove(&key);
            Ok(())
        })
        .map_err(refused)?;
        Ok(name)
    }

    /// An operator takes a replica out, whoever named it: it finishes what it has, or with `is_now` its rows
    /// go elsewhere at once. It stays out until it is added, its source has stopped naming it, or the process
    /// ends.
    pub fn remove(&self, name: &str, is_now: bool) -> Result<(), RequestError> {
        let is_leaving = || {
            let view = self.shared.view.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            view.replicas.iter().any(|replica| replica.name == name)
        };
        let member = self.state().current.iter().find(|member| member.name == name).cloned();
        match member {
            Some(member) => {
                let rules = &self.rules;
                let removed = self.change(|state| {
                    if let Some(own) = state.named.get_mut(&ReplicaSource::Route) {
                        own.retain(|other| key_of(other, rules, 0) != member.key);
                    }
                    state.removed.insert(member.key);
                    Ok(())
                });
                removed.map_err(|error| RequestError::invalid(error.field, error.reason))?;
            }
            None if is_now && is_leaving() => {}
            None => return Err(not_found(name)),
        }
        if is_now {
            self.shared.intake.tell_fleet(FleetMessage::Evict { name: name.to_owned() });
        }
        Ok(())
    }

    /// An operator takes a replica out of service, or back. It is out also where it leaves and returns, until an
    /// operator takes it back, which may be while it is away, or the process ends.
    pub fn drain(&self, name: &str, is_drained: bool) -> Result<(), RequestError> {
        let mut is_known = false;
        let changed = self.change(|state| {
            is_known = state.drain(name, is_drained);
            Ok(())
        });
        changed.map_err(|error| RequestError::invalid(error.field, error.reason))?;
        if is_known { Ok(()) } else { Err(not_found(name)) }
    }

    /// Makes a change on a copy, and tells the loop what it leads to.
    fn change(
        &self,
        change: impl FnOnce(&mut MemberState) -> Result<(), InvalidConfig>,
    ) -> Result<(), InvalidConfig> {
        let mut state = self.state();
        let mut changed = state.clone();
        change(&mut changed)?;
        changed.merge(&self.rules)?;
        changed.let_go(&state.current, self.shared.clock.now(), self.rules.trouble_ms_max);
        let is_new = changed.current != state.current;
        if is_new {
            self.names.take(&self.model, changed.current.iter().map(|member| member.name.as_str()))?;
        }
        *state = changed;
        if is_new {
            // Under the lock: lists reach the loop in the order in which they were made.
            self.shared.intake.tell_fleet(FleetMessage::Members(state.current.clone()));
        }
        Ok(())
    }
}

impl MemberState {
    /// Makes one list of what all sources name.
    fn merge(&mut self, rules: &FleetRules) -> Result<(), InvalidConfig> {
        let mut keys = BTreeSet::new();
        let mut names = BTreeSet::new();
        let mut merged = Vec::new();
        for (source, replicas) in &self.named {
            let mut occurrences: BTreeMap<MemberKey, usize> = BTreeMap::new();
            for (index, replica) in replicas.iter().enumerate() {
                let place = format!("replicas[{index}]");
                rules.check(&place, replica)?;
                if replica.kind == ReplicaKind::Local && *source != ReplicaSource::Config {
                    return Err(invalid(
                        &format!("{place}.kind"),
                        "the local engine is of the configuration",
                    ));
                }
                let occurrence = occurrences.entry(key_of(replica, rules, 0)).or_default();
                let mut member = ReplicaMember::new(*source, replica, rules, *occurrence);
                *occurrence += 1;
                member.is_drained = self.drained.iter().any(|(key, _)| *key == member.key);
                if !keys.insert(member.key.clone()) || self.removed.contains(&member.key) {
                    continue;
                }
                if !names.insert(member.name.clone()) {
                    return Err(invalid(&format!("{place}.name"), "is another replica's too"));
                }
                merged.push(member);
            }
        }
        if merged.len() > MEMBERS_MAX {
            return Err(invalid("replicas", &format!("are {}, and {MEMBERS_MAX} the limit", merged.len())));
        }
        self.speak(&merged)?;
        self.removed.retain(|key| keys.contains(key));
        self.current = merged;
        Ok(())
    }

    /// Remembers what those could hold that are no longer there.
    fn let_go(&mut self, before: &[ReplicaMember], now: Time, span: Millis) {
        let keys: BTreeSet<&MemberKey> = self.current.iter().map(|member| &member.key).collect();
        for gone in before.iter().filter(|member| !keys.contains(&member.key)) {
            self.departed.leave(gone.settings.tokens_max, now, span.into());
        }
    }

    /// Most tokens that one holds, or one held that left lately; none: one has no limit, or there is none.
    fn largest(&self, now: Time) -> Option<TokenCount> {
        if self.current.is_empty() {
            return None;
        }
        let rooms = self.current.iter().map(|member| member.settings.tokens_max);
        let mut largest = None;
        for room in rooms.chain(self.departed.rooms(now)) {
            largest = largest.max(Some(room?));
        }
        largest
    }

    /// Takes a replica out of service, or back; whether there is one of that name, or one that is out and away.
    fn drain(&mut self, name: &str, is_drained: bool) -> bool {
        let current = &self.current;
        let is_away = |(key, _): &&(MemberKey, String)| !current.iter().any(|member| member.key == *key);
        let named = current.iter().find(|member| member.name == name).map(|member| &member.key);
        let away = self.drained.iter().filter(is_away).find(|(_, old)| old == name).map(|(key, _)| key);
        let Some(key) = named.or(away).cloned() else { return false };
        self.drained.retain(|(other, _)| *other != key);
        if is_drained {
            self.drained.push((key, name.to_owned()));
        }
        if self.drained.len() > DRAINED_MAX
            && let Some(oldest) = self.drained.iter().position(|one| is_away(&one))
        {
            self.drained.remove(oldest);
        }
        true
    }

    /// Refuses dialects that the fleet did not begin with: rows under way were checked against those, and a
    /// server of another might have no words for them.
    fn speak(&mut self, merged: &[ReplicaMember]) -> Result<(), InvalidConfig> {
        let servers = merged.iter().filter(|member| member.settings.kind == ReplicaKind::Openai);
        if self.dialects.is_empty() {
            self.dialects = servers.map(|member| member.settings.dialect).collect();
            return Ok(());
        }
        let mut servers = servers;
        let Some(other) = servers.find(|member| !self.dialects.contains(&member.settings.dialect)) else {
            return Ok(());
        };
        let spoken: Vec<&str> = self.dialects.iter().map(|dialect| dialect.name()).collect();
        let reason = format!(
            "of replica `{}` is \"{}\", and this fleet began with {}: rows under way may ask for what it has \
             no words for",
            other.name,
            other.settings.dialect.name(),
            spoken.join(", ")
        );
        Err(invalid("dialect", &reason))
    }
}

fn not_found(name: &str) -> RequestError {
    RequestError::NotFound(format!("the replica `{name}`"))
}

fn key_of(replica: &ReplicaSettings, rules: &FleetRules, occurrence: usize) -> MemberKey {
    let address = match replica.kind {
        ReplicaKind::Local => "local".to_owned(),
        ReplicaKind::Openai => address_of(replica.url.as_deref().unwrap_or_default()),
    };
    let model = replica.model.clone().or_else(|| rules.model.clone()).unwrap_or_default();
    MemberKey { address, model, occurrence }
}

/// An address as it is compared: host in lower case, the scheme's own port left out, up to where `/v1`
/// begins.
fn address_of(url: &str) -> String {
    let parsed = reqwest::Url::parse(url).map_or_else(|_| url.to_owned(), String::from);
    let whole = parsed.trim_end_matches('/');
    whole.strip_suffix("/v1").unwrap_or(whole).trim_end_matches('/').to_owned()
}

/// What a replica is called: by its entry, or by its host and port.
fn name_of(replica: &ReplicaSettings, rules: &FleetRules) -> String {
    let url = replica.url.as_deref().unwrap_or_default();
    replica.name.clone().unwrap_or_else(|| name_at(url, rules))
}

/// Host and port, as a name can hold them, behind what names of this model begin with.
fn name_at(url: &str, rules: &FleetRules) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest).trim_end_matches('/');
    let rest = rest.strip_suffix("/v1").unwrap_or(rest);
    format!("{}{}", rules.name_prefix, plain(&rest.replace(['[', ']'], "")))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::config::PromptForm;

    /// A replica of the configuration.
    pub(in crate::replicas) fn member(settings: &ReplicaSettings) -> ReplicaMember {
        ReplicaMember::new(ReplicaSource::Config, settings, &rules(), 0)
    }

    fn server(url: &str) -> ReplicaSettings {
        ReplicaSettings { url: Some(url.into()), ..ReplicaSettings::default() }
    }

    fn rules() -> FleetRules {
        FleetRules {
            form: PromptForm::Messages,
            model: Some("m".into()),
            name_prefix: String::new(),
            trouble_ms_max: Millis(1),
        }
    }

    fn merged(named: &[(ReplicaSource, Vec<ReplicaSettings>)]) -> Result<MemberState, String> {
        let mut state = MemberState { named: named.iter().cloned().collect(), ..MemberState::default() };
        state.merge(&rules()).map_err(|error| error.to_string())?;
        Ok(state)
    }

    fn names(state: &MemberState) -> Vec<(&str, ReplicaSource)> {
        state.current.iter().map(|member| (member.name.as_str(), member.source)).collect()
    }

    #[test]
    fn a_server_that_two_sources_name_is_one_replica_as_the_first_describes_it() {
        let own = ReplicaSettings { rows_max: 3, ..server("http://Host:80/v1/") };
        let state = merged(&[
            (ReplicaSource::Dns, vec![server("http://host"), server("http://10.0.0.1:8000")]),
            (ReplicaSource::Route, vec![own]),
        ])
        .expect("valid");
        assert_eq!(names(&state), [("Host:80", ReplicaSource::Route), ("10.0.0.1:8000", ReplicaSource::Dns)]);
        assert_eq!(state.current[0].settings.rows_max, 3);
        let twice = merged(&[(
            ReplicaSource::Config,
            vec![
                ReplicaSettings { name: Some("a".into()), ..server("http://h") },
                ReplicaSettings { name: Some("b".into()), ..server("http://h") },
            ],
        )]);
        assert_eq!(names(&twice.expect("valid")).len(), 2, "a source may count a server twice");
        let other = ReplicaSettings { model: Some("n".into()), ..server("http://h") };
        let two =
            merged(&[(ReplicaSource::File, vec![server("http://h")]), (ReplicaSource::Dns, vec![other])]);
        assert!(
            two.is_err_and(|error| error.contains("another replica's")),
            "another model is another replica"
        );
    }

    #[test]
    fn a_replica_whose_name_another_takes_is_called_by_its_address_as_those_of_its_model_are() {
        let of = |url: &str, rules: &FleetRules| {
            let settings = ReplicaSettings { name: Some("x".into()), ..server(url) };
            ReplicaMember::new(ReplicaSource::Config, &settings, rules, 0)
        };
        let further = FleetRules { name_prefix: "n-".into(), ..rules() };
        let (one, other) = (of("http://Host:80/v1/", &further), of("http://[::1]:8000", &further));
        assert_eq!(one.name_beside(&other).as_deref(), Some("n-host"));
        assert_eq!(other.name_beside(&one).as_deref(), Some("n-::1:8000"));
        assert_eq!(of("http://h:1", &rules()).name_beside(&one).as_deref(), Some("h:1"));
        assert_eq!(one.name_beside(&of("http://host", &rules())), None, "it is at the same address");
    }

    #[test]
    fn a_row_may_take_what_the_largest_replica_holds_and_anything_where_one_has_no_limit() {
        let holds = |tokens: &[Option<u64>]| {
            let one = |(port, tokens): (usize, &Option<u64>)| {
                let tokens_max = tokens.map(TokenCount);
                ReplicaSettings { tokens_max, ..server(&format!("http://h:{port}")) }
            };
            let replicas = tokens.iter().enumerate().map(one).collect();
            merged(&[(ReplicaSource::File, replicas)]).expect("valid").largest(Time(0))
        };
        assert_eq!(holds(&[Some(30), Some(70), Some(50)]), Some(TokenCount(70)));
        assert_eq!(holds(&[Some(30), None]), None);
        assert_eq!(holds(&[]), None, "nobody has come yet");
    }

    #[test]
    fn a_row_may_take_what_a_replica_held_that_left_lately_as_long_as_others_are_there() {
        let of = |port: u32, tokens| ReplicaSettings {
            tokens_max: Some(TokenCount(tokens)),
            ..server(&format!("http://h:{port}"))
        };
        let large = merged(&[(ReplicaSource::Dns, vec![of(1, 90), of(2, 40)])]).expect("valid");
        let mut state = merged(&[(ReplicaSource::Dns, vec![of(2, 30)])]).expect("valid");
        state.let_go(&large.current, Time(5), Millis(1));
        assert_eq!(
            state.largest(Time(1_000_004)),
            Some(TokenCount(90)),
            "what has other settings is not away"
        );
        assert_eq!(state.largest(Time(1_000_005)), Some(TokenCount(30)));
    }

    #[test]
    fn what_was_removed_stays_out_until_nobody_names_it() {
        let mut state =
            merged(&[(ReplicaSource::Dns, vec![server("http://a"), server("http://b")])]).expect("valid");
        state.removed.insert(key_of(&server("http://a"), &rules(), 0));
        state.merge(&rules()).expect("valid");
        assert_eq!(names(&state), [("b", ReplicaSource::Dns)]);
        state.named.insert(ReplicaSource::Dns, vec![server("http://b")]);
        state.merge(&rules()).expect("valid");
        assert!(state.removed.is_empty());
        state.named.insert(ReplicaSource::Dns, vec![server("http://a"), server("http://b")]);
        state.merge(&rules()).expect("valid");
        assert_eq!(names(&state).len(), 2, "it is another server of the same address");
    }

    #[test]
    fn what_is_drained_is_so_when_it_returns_until_it_is_taken_back() {
        let both = || vec![server("http://a"), server("http://b")];
        let mut state = merged(&[(ReplicaSource::Dns, both())]).expect("valid");
        let dns = |state: &mut MemberState, servers: Vec<ReplicaSettings>| {
            state.named.insert(ReplicaSource::Dns, servers);
            state.merge(&rules()).expect("valid");
            let drained = state.current.iter().filter(|member| member.is_drained);
            drained.map(|member| member.name.clone()).collect::<Vec<_>>()
        };
        assert!(state.drain("a", true) && !state.drain("c", true));
        assert_eq!(dns(&mut state, both()), ["a"]);
        assert!(dns(&mut state, vec![server("http://b")]).is_empty());
        assert_eq!(dns(&mut state, both()), ["a"], "it has been away");
        dns(&mut state, vec![server("http://b")]);
        assert!(state.drain("a", false), "it can be taken back while it is away");
        assert!(!state.drain("a", false), "nobody knows it any more");
        assert!(dns(&mut state, both()).is_empty());
    }

    #[test]
    fn of_many_that_are_drained_and_away_the_oldest_are_forgotten_and_none_that_is_there() {
        let mut state = MemberState::default();
        for port in 0..=DRAINED_MAX {
            let servers = vec![server("http://stays"), server(&format!("http://h:{port}"))];
            state.named.insert(ReplicaSource::Dns, servers);
            state.merge(&rules()).expect("valid");
            assert!(port > 0 || state.drain("stays", true));
            assert!(state.drain(&format!("h:{port}"), true));
        }
        let names: Vec<&str> = state.drained.iter().map(|(_, name)| name.as_str()).collect();
        assert_eq!((names.len(), names[0], names[1]), (DRAINED_MAX, "stays", "h:2"));
    }

    #[test]
    fn what_could_not_stand_beside_the_others_is_refused_by_name() {
        let named = |name: &str, url: &str| ReplicaSettings { name: Some(name.into()), ..server(url) };
        let check = |config: Vec<ReplicaSettings>, file: Vec<ReplicaSettings>, part: &str| {
            let error = merged(&[(ReplicaSource::Config, config), (ReplicaSource::File, file)])
                .err()
                .unwrap_or_default();
            assert!(error.contains(part), "{error:?} lacks {part:?}");
        };
        check(vec![named("a", "http://a")], vec![named("a", "http://b")], "replicas[0].name");
        check(
            vec![named("a", "http://a")],
            vec![ReplicaSettings { rows_max: 0, ..server("http://b") }],
            "rows_max",
        );
        let local = ReplicaSettings { kind: ReplicaKind::Local, ..ReplicaSettings::default() };
        check(Vec::new(), vec![local], "replicas[0].kind");
        let many = (0..=MEMBERS_MAX).map(|port| server(&format!("http://h:{port}")));
        check(Vec::new(), many.collect(), "1024 the limit");
        let mut state = merged(&[(ReplicaSource::Config, vec![server("http://a")])]).expect("valid");
        let vllm = ReplicaSettings { dialect: Dialect::Vllm, ..server("http://b") };
        state.named.insert(ReplicaSource::File, vec![vllm]);
        let error = state.merge(&rules()).map_err(|error| error.to_string()).err().unwrap_or_default();
        assert!(error.contains("`dialect`") && error.contains("began with openai"), "{error}");
    }
}
