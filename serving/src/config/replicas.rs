//! Settings of replicas: what runs rows, where that is not the local engine alone.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};

use base::{Bytes, Millis, TokenCount};
use scheduler::SchedulerConfig;
use scheduler::fleet::FleetConfig;
use serde::{Deserialize, Serialize};

use super::{DiscoveryConfig, InvalidConfig, ModelSettings, PriceSettings, invalid};
use crate::price::TokenPrices;

/// One that runs rows: the local engine, or a server that speaks the OpenAI API.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ReplicaSettings {
    /// What it is called in metrics and routes; by default its number, from 0, and of one that is found or
    /// added while the server runs its host and port.
    pub name: Option<String>,
    /// What it is.
    pub kind: ReplicaKind,
    /// Its address, `http://host:port`, with or without a path in front of `/v1`. Of a server only, as all
    /// that follows.
    pub url: Option<String>,
    /// The model's name there; by default `model.name`.
    pub model: Option<String>,
    /// Its API key; write `${NAME}` to take it from the environment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key: Option<Secret>,
    /// What it understands beyond OpenAI's own fields.
    pub dialect: Dialect,
    /// How prompts are sent; by default `tokens` where `model.tokenizer` is set, else `messages`.
    pub prompt: Option<PromptForm>,
    /// Most rows in flight: what it can run at a time and a fifth more, so that the next ones are there when others
    /// end. Still more would wait there, where nothing re-ranks them.
    pub rows_max: u32,
    /// Most unfinished tokens in flight, prompts and longest outputs: what its KV memory holds. A row that needs
    /// more than the largest replica has is refused alone, and an answer without a limit gets what is left there.
    /// Absent: what the server reports of it (dialects "vllm" and "llama.cpp") bounds its rows together and refuses none;
    /// where it reports nothing rows alone count.
    pub tokens_max: Option<TokenCount>,
    /// Whether each row's priority is sent; a vLLM needs `--scheduling-policy priority` for it.
    pub priority: bool,
    /// Whether each tenant's rows carry a salt of its own (`cache_salt`), so that no tenant shares another's
    /// part of the server's prefix cache; of dialects "vllm" and "sglang".
    pub salt: bool,
    /// Time for a connection.
    pub connect_ms_max: Millis,
    /// Time for one try of a row, from the connection to the last byte of its answer.
    pub try_ms_max: Millis,
    /// Time between two looks at its health.
    pub health_ms: Millis,
    /// Path that says whether it is well, beside its list of models; by default `/health` where the dialect
    /// has one.
    pub health_path: Option<String>,
    /// Failures one after another that open its breaker.
    pub failures_max: u32,
    /// Time for which an open breaker lets nothing through; doubled, up to a minute, each time that the row
    /// after it fails.
    pub open_ms: Millis,
    /// Bytes of an answer; more is a failure.
    pub reply_bytes_max: Bytes,
    /// Price of a million prompt tokens, in the same currency for all models and replicas; by default the model's.
    /// Tenants' budgets of money count with the price where a row ran; SQL's `EXPLAIN` and `relserve.queries` with
    /// that of the dearest.
    pub prompt_price: Option<f64>,
    /// Price of a million prompt tokens that its prefix cache had; by default that of others where it has one of its
    /// own, else the model's.
    pub cached_price: Option<f64>,
    /// Price of a million output tokens; by default the model's.
    pub output_price: Option<f64>,
}

/// What runs rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplicaKind {
    /// A server that speaks the OpenAI API.
    #[default]
    Openai,
    /// The engine of this process, on `model.dir`.
    Local,
}

/// What a server understands beyond OpenAI's own fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Dialect {
    /// Nothing.
    #[default]
    #[serde(rename = "openai")]
    Openai,
    /// vLLM's: `structured_outputs` (from 0.11), `top_k`, `ignore_eos`, `priority`. RelServe itself speaks
    /// it, but for the last.
    #[serde(rename = "vllm")]
    Vllm,
    /// SGLang's: `regex`, `json_schema`, `top_k`, `ignore_eos`.
    #[serde(rename = "sglang")]
    Sglang,
    /// That of llama.cpp's servers: `grammar`, `top_k`.
    #[serde(rename = "llama.cpp")]
    LlamaCpp,
}

impl Dialect {
    /// Whether a server of it takes any id of a request. Others refuse what is not of their own form: the server of
    /// llama-cpp-python a request whose id is no UUID.
    pub fn takes_request_ids(self) -> bool {
        matches!(self, Self::Vllm | Self::Sglang)
    }

    /// Whether a server of it says how likely the tokens of prompts are (`prompt_logprobs`), and which these are.
    pub fn scores_prompts(self) -> bool {
        self == Self::Vllm
    }

    /// Where a server of it says how large its KV memory is.
    pub fn kv_path(self) -> Option<&'static str> {
        match self {
            Self::Vllm => Some("/metrics"),
            Self::LlamaCpp => Some("/props"),
            Self::Openai | Self::Sglang => None,
        }
    }

    /// How it is written.
    pub fn name(self) -> &'static str {
        match self {
            Self::Openai => "openai",
            Self::Vllm => "vllm",
            Self::Sglang => "sglang",
            Self::LlamaCpp => "llama.cpp",
        }
    }
}

/// How prompts are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PromptForm {
    /// As token ids to `/v1/completions`: exact, and no cell's text can become a special token.
    Tokens,
    /// Conversations as messages to `/v1/chat/completions`, other prompts as text to `/v1/completions`.
    Messages,
}

/// A text that is never shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(pub String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("(secret)")
    }
}

impl Default for ReplicaSettings {
    fn default() -> Self {
        Self {
            name: None,
            kind: ReplicaKind::Openai,
            url: None,
            model: None,
            api_key: None,
            dialect: Dialect::Openai,
            prompt: None,
            rows_max: 64,
            tokens_max: None,
            priority: false,
            salt: false,
            connect_ms_max: Millis(2_000),
            try_ms_max: Millis(120_000),
            health_ms: Millis(2_000),
            health_path: None,
            failures_max: 5,
            open_ms: Millis(1_000),
            reply_bytes_max: Bytes(16 << 20),
            prompt_price: None,
            cached_price: None,
            output_price: None,
        }
    }
}

impl ReplicaSettings {
    /// Its path of health.
    pub fn health_path(&self) -> Option<&str> {
        match (&self.health_path, self.dialect) {
            (Some(path), _) => Some(path),
            (None, Dialect::Vllm | Dialect::Sglang) => Some("/health"),
            // One of llama.cpp's two servers has none.
            (None, Dialect::Openai | Dialect::LlamaCpp) => None,
        }
    }

    /// Its own prices.
    pub fn prices(&self) -> PriceSettings {
        PriceSettings { prompt: self.prompt_price, cached: self.cached_price, output: self.output_price }
    }

    fn validate(&self, place: &str) -> Result<(), InvalidConfig> {
        let bad = |field: &str, reason: &str| Err(invalid(&field_of(place, field), reason));
        self.prices().validate(place)?;
        if self.kind == ReplicaKind::Local {
            return match &self.url {
                Some(_) => bad("url", "is of a server, and this is the local engine"),
                None => Ok(()),
            };
        }
        let Some(url) = &self.url else { return bad("url", "is missing; or set kind = \"local\"") };
        match url.split_once("://") {
            Some(("http" | "https", rest)) if !rest.is_empty() && !rest.starts_with('/') => {
                if rest.split('/').next().is_some_and(|host| host.contains('@')) {
                    return bad("url", "must hold no password; set api_key");
                }
            }
            _ => return bad("url", "must start with http:// or https:// and name a host"),
        }
        if self.priority && self.dialect != Dialect::Vllm {
            return bad("priority", "is only understood by dialect \"vllm\"");
        }
        if self.salt && !matches!(self.dialect, Dialect::Vllm | Dialect::Sglang) {
            return bad("salt", "is only understood by dialects \"vllm\" and \"sglang\"");
        }
        let positive = [
            ("rows_max", u64::from(self.rows_max)),
            ("tokens_max", self.tokens_max.map_or(1, |tokens| tokens.0)),
            ("connect_ms_max", self.connect_ms_max.0),
            ("try_ms_max", self.try_ms_max.0),
            ("health_ms", self.health_ms.0),
            ("failures_max", u64::from(self.failures_max)),
            ("open_ms", self.open_ms.0),
            ("reply_bytes_max", self.reply_bytes_max.0),
        ];
        match positive.iter().find(|(_, value)| *value == 0) {
            Some((field, _)) => bad(field, "must be positive"),
            None => Ok(()),
        }
    }
}

/// A field of the entry at a place; without a place, of the only one there is.
fn field_of(place: &str, field: &str) -> String {
    if place.is_empty() { field.to_owned() } else { format!("{place}.{field}") }
}

/// What all replicas of a fleet have in common, so that a row can go to any of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetRules {
    /// How prompts are sent.
    pub form: PromptForm,
    /// The model's name at replicas that do not say another.
    pub model: Option<String>,
    /// What stands before the names of replicas that name none.
    pub name_prefix: String,
    /// How long rows wait for one that has left, where it alone could hold them.
    pub trouble_ms_max: Millis,
}

impl FleetRules {
    /// Refuses an entry that could not be one of them; `place`: where it is written, for the error.
    pub fn check(&self, place: &str, replica: &ReplicaSettings) -> Result<(), InvalidConfig> {
        replica.validate(place)?;
        let bad = |field: &str, reason: &str| Err(invalid(&field_of(place, field), reason));
        if replica.name.as_ref().is_some_and(|name| !is_plain(name)) {
            return bad("name", "must be letters, digits and -_.: only");
        }
        if replica.prompt.is_some_and(|own| own != self.form) {
            return bad("prompt", "must be the same for all replicas: a row can go to any of them");
        }
        if replica.kind == ReplicaKind::Openai && replica.model.is_none() && self.model.is_none() {
            return bad("model", "is missing; or set model.name, the name for all of them");
        }
        Ok(())
    }
}

/// Whether a name can be a label and a part of a path.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.chars().all(is_plain_char)
}

fn is_plain_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-_.:".contains(c)
}

/// A text as a label and a part of a path can hold it.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if is_plain_char(c) { c } else { '-' }).collect()
}

/// What runs the model: the sections of the configuration that say so.
#[derive(Clone, Copy, Debug)]
pub struct BackendConfig<'a> {
    /// What is served.
    pub model: ModelSettings<'a>,
    /// How the local engine runs it.
    pub engine: &'a engine::EngineConfig,
    /// In which order relQueries are served.
    pub scheduler: &'a SchedulerConfig,
    /// How rows are shared out among replicas.
    pub fleet: &'a FleetConfig,
    /// What runs rows; without any, and without `discovery`, the local engine alone.
    pub replicas: &'a [ReplicaSettings],
    /// Where more of them are found.
    pub discovery: &'a DiscoveryConfig,
    /// Looks up a variable of the environment, for the file that `discovery` names.
    pub variable: fn(&str) -> Option<String>,
    /// Output tokens that a row may ask for: what an open end is worth.
    pub output_tokens_max: u64,
    /// Whether it is one of `[[models]]`: replicas that name none are called after the model then.
    pub is_further: bool,
}

impl BackendConfig<'_> {
    /// Whether rows run anywhere else than on the local engine alone.
    pub fn has_fleet(&self) -> bool {
        !self.replicas.is_empty() || self.discovery.is_on()
    }

    /// Whether the local engine runs rows.
    pub fn has_local_engine(&self) -> bool {
        let is_local = |replica: &ReplicaSettings| replica.kind == ReplicaKind::Local;
        !self.has_fleet() || self.replicas.iter().any(is_local)
    }

    /// Whether a fleet that runs with this can go on with the replicas of `next`. Not where one of them has the local
    /// engine and the other not as it is: it is loaded once. Nor where prompts would have another form, or servers
    /// another model: what is kept of answers, and what the model is called, is of those that there were.
    pub fn can_take_replicas_of(&self, next: &Self) -> bool {
        let local = |config: &Self| -> Vec<ReplicaSettings> {
            let named = config.named_replicas().into_iter();
            named.filter(|replica| replica.kind == ReplicaKind::Local).collect()
        };
        let models = |config: &Self| -> BTreeSet<String> {
            config.known_replicas().filter_map(|replica| replica.model.clone()).collect()
        };
        let name = |config: &Self| {
            let first = config.known_replicas().find_map(|replica| replica.model.clone());
            config.model.name.map(str::to_owned).or(first)
        };
        self.has_fleet()
            && next.has_fleet()
            && local(self) == local(next)
            && self.prompt_form() == next.prompt_form()
            && models(self) == models(next)
            && name(self) == name(next)
    }

    /// The entries of `[[replicas]]`, each with its name.
    pub fn named_replicas(&self) -> Vec<ReplicaSettings> {
        let prefix = self.name_prefix();
        let named = |(index, replica): (usize, &ReplicaSettings)| {
            let name = replica.name.clone().unwrap_or_else(|| format!("{prefix}{index}"));
            ReplicaSettings { name: Some(name), ..replica.clone() }
        };
        self.replicas.iter().enumerate().map(named).collect()
    }

    /// What stands before the names of replicas that name none: nothing, or of one of several models its name
    /// in letters that a path can hold.
    fn name_prefix(&self) -> String {
        let name = self.model.name.filter(|_| self.is_further);
        name.map_or_else(String::new, |name| format!("{}-", plain(name)))
    }

    /// What every replica has to be, whoever names it.
    pub fn rules(&self) -> FleetRules {
        FleetRules {
            form: self.prompt_form(),
            model: self.model.name.map(str::to_owned),
            name_prefix: self.name_prefix(),
            trouble_ms_max: self.fleet.trouble_ms_max,
        }
    }

    /// The entries that the configuration has, and what DNS finds more of.
    pub fn known_replicas(&self) -> impl Iterator<Item = &ReplicaSettings> {
        self.replicas.iter().chain(self.discovery.asks_dns().then_some(&self.discovery.replica))
    }

    /// Prices of a million prompt tokens and a million output tokens where the dearest replica computes them,
    /// one that was found among them. `None`: nothing has a price.
    pub fn price(&self, found: &[ReplicaSettings]) -> Option<(f64, f64)> {
        let own = self.model.prices;
        let dearest = |own: Option<f64>, of: fn(PriceSettings) -> Option<f64>| {
            let replicas = self.known_replicas().chain(found).map(ReplicaSettings::prices);
            replicas.filter_map(of).chain(own).max_by(f64::total_cmp)
        };
        match (dearest(own.prompt, |prices| prices.prompt), dearest(own.output, |prices| prices.output)) {
            (None, None) => None,
            (prompt, output) => Some((prompt.unwrap_or(0.0), output.unwrap_or(0.0))),
        }
    }

    /// Of each kind of token the highest price where rows may run.
    pub fn token_prices(&self) -> TokenPrices {
        let model = self.model.prices;
        let replicas = self.known_replicas().map(|replica| replica.prices().within(model));
        replicas.reduce(TokenPrices::dearest).unwrap_or_else(|| PriceSettings::default().within(model))
    }

    /// How prompts are sent to the replicas.
    pub fn prompt_form(&self) -> PromptForm {
        let has_local = self.replicas.iter().any(|replica| replica.kind == ReplicaKind::Local);
        let has_ids = has_local || self.model.tokenizer.is_some();
        let asked = self.known_replicas().find_map(|replica| replica.prompt);
        asked.unwrap_or(if has_ids { PromptForm::Tokens } else { PromptForm::Messages })
    }

    /// Refuses replicas that could not work together.
    pub fn validate(&self) -> Result<(), InvalidConfig> {
        self.discovery.validate()?;
        self.model.validate()?;
        let rules = self.rules();
        let form = rules.form;
        let mut names = BTreeSet::new();
        let mut locals = 0;
        for (index, replica) in self.named_replicas().iter().enumerate() {
            let place = format!("replicas[{index}]");
            rules.check(&place, replica)?;
            if !names.insert(replica.name.clone()) {
                return Err(invalid(&format!("{place}.name"), "is another replica's too"));
            }
            locals += usize::from(replica.kind == ReplicaKind::Local);
        }
        if self.discovery.asks_dns() {
            let any = SocketAddr::from((Ipv4Addr::LOCALHOST, self.discovery.port));
            rules.check("discovery.replica", &self.discovery.found(any))?;
        }
        if self.discovery.file.is_some() && self.known_replicas().next().is_none() && rules.model.is_none() {
            return Err(invalid(
                "model.name",
                "is missing: a fleet that begins empty needs the model's name",
            ));
        }
        let reason = match (locals, form, &self.model.tokenizer) {
            (2.., ..) => "there is one local engine at most",
            (1, PromptForm::Messages, _) => {
                "the local engine takes tokens: prompt = \"messages\" cannot be beside it"
            }
            (1, _, Some(_)) => {
                "model.tokenizer is for fleets without a local engine, whose tokenizer is used otherwise"
            }
            (0, PromptForm::Messages, None) if self.model.context_max.is_some() => {
                "model.context_max counts tokens, which needs model.tokenizer; servers refuse what is too long for them"
            }
            (0, PromptForm::Tokens, None) => "prompt = \"tokens\" needs model.tokenizer",
            (0, PromptForm::Messages, Some(_)) => "prompt = \"messages\" makes no use of model.tokenizer",
            _ => return self.fleet.validate().map_err(|error| invalid(error.field, error.reason)),
        };
        if !self.has_fleet() {
            return Ok(());
        }
        Err(invalid("replicas", reason))
    }
}
