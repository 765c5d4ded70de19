//! Makes replicas of a fleet: a client and a watcher of health for a server, a thread for the local engine.

use std::sync::Arc;
use std::time::Duration;

use base::TokenCount;
use scheduler::fleet::ReplicaId;
use tokio::runtime::Handle;

use super::FleetMessage;
use super::client::{Client, FoundServer};
use super::local::Local;
use super::members::ReplicaMember;
use super::replica::{HealthWatch, Replica, Transport};
use super::request::RequestStyle;
use super::start_error::FleetStartError;
use crate::config::{PriceSettings, PromptForm, ReplicaKind};
use crate::driver::Engine;
use crate::shared::Shared;

/// What all replicas are made with.
pub(super) struct ReplicaFactory {
    /// How prompts are sent.
    pub(super) form: PromptForm,
    /// The model's name at servers that do not say another.
    pub(super) model: String,
    /// The longest prompt and output that rows have.
    pub(super) context_max: TokenCount,
    /// Output tokens that a row may ask for: what an open end is worth.
    pub(super) output_tokens_max: u64,
    /// The model's prices, where a replica has none of its own.
    pub(super) prices: PriceSettings,
    pub(super) shared: Arc<Shared>,
    /// Where requests and watchers run.
    pub(super) runtime: Handle,
}

impl ReplicaFactory {
    /// A replica that nobody has looked at yet; `engine`: the local one's.
    pub(super) fn make(
        &self,
        id: ReplicaId,
        member: ReplicaMember,
        engine: Option<Engine>,
    ) -> Result<Replica, FleetStartError> {
        let metrics = self.shared.metrics.replica(&member.name);
        let failed = |reason| FleetStartError::Replica { name: member.name.clone(), reason };
        let (transport, watch) = match (member.settings.kind, engine) {
            (ReplicaKind::Local, Some(engine)) => {
                (Transport::Local(Local::start(id, engine, Arc::clone(&self.shared))?), None)
            }
            (ReplicaKind::Local, None) => return Err(failed("there is no engine to run".into())),
            (ReplicaKind::Openai, _) => {
                let client = Client::new(&member.settings, &self.shared.gateway).map_err(failed)?;
                let style = self.style(&member);
                let watch = self.watch(id, &member, &client, style.model.clone());
                (Transport::Server { client, style }, Some(watch))
            }
        };
        let prices = member.settings.prices().within(self.prices);
        Ok(Replica::new((member, prices), transport, watch, metrics))
    }

    fn style(&self, member: &ReplicaMember) -> RequestStyle {
        let settings = &member.settings;
        RequestStyle {
            model: settings.model.clone().unwrap_or_else(|| self.model.clone()),
            dialect: settings.dialect,
            form: self.form,
            priority: settings.priority,
            salt: settings.salt,
            open_end: self.output_tokens_max,
        }
    }

    fn watch(&self, id: ReplicaId, member: &ReplicaMember, client: &Client, model: String) -> HealthWatch {
        let takes_tokens = self.form == PromptForm::Tokens;
        let check = HealthCheck {
            client: client.clone(),
            model,
            every: Duration::from_millis(member.settings.health_ms.0),
            context_max: takes_tokens.then_some(self.context_max),
            asks_for_memory: member.settings.tokens_max.is_none(),
        };
        HealthWatch(self.runtime.spawn(watch(id, check, Arc::clone(&self.shared))).abort_handle())
    }
}

/// How a server's health is asked for.
struct HealthCheck {
    client: Client,
    /// The model that the server should have.
    model: String,
    every: Duration,
    /// The tokens that the server should take, where rows go to it as tokens.
    context_max: Option<TokenCount>,
    /// Whether the server is asked how large its KV memory is, when it is first found well and each time that it is
    /// again: nothing is configured.
    asks_for_memory: bool,
}

/// Checks a server's health until its replica has left.
async fn watch(replica: ReplicaId, check: HealthCheck, shared: Arc<Shared>) {
    let HealthCheck { client, model, every, context_max, asks_for_memory } = check;
    let mut looks = tokio::time::interval(every);
    looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let (mut is_reported, mut was_well) = (false, false);
    loop {
        looks.tick().await;
        let found = client.look(&model).await;
        if let (Ok(FoundServer { context_max: Some(takes), .. }), Some(context)) = (&found, context_max)
            && *takes < context.0
            && !std::mem::replace(&mut is_reported, true)
        {
            tracing::warn!(
                replica = replica.0,
                takes,
                context = context.0,
                "longer rows will fail there: set model.context_max"
            );
        }
        if found.is_ok() && !was_well && asks_for_memory {
            let kv_tokens = client.kv_tokens().await;
            shared.intake.tell_fleet(FleetMessage::Reported { replica, kv_tokens });
        }
        was_well = found.is_ok();
        shared.intake.tell_fleet(FleetMessage::Looked { replica, result: found.map(|found| found.gateways) });
    }
}
