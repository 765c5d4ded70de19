//! What a policy cannot do in front of replicas, for `relserve config` and the live view: servers plan their own steps.

use scheduler::Policy;

use super::BackendConfig;

/// Settings of `scheduler.marginal_work` that a queue in front of servers does not read.
const MARGINAL_WORK: &str = "no effect there: marginal_work.steps, learned_lengths (lengths are learned), \
     exact_sharing, grouped_rows (rows are grouped), gain.bare, gain.hidden, age_half_works, prefill_tokens_min, \
     first_rows_permille, bulk_share_permille, evict_lower_class; in place of tail_permille_max and \
     late_permille_max count fleet.tail_permille_max and fleet.late_permille_max";

impl BackendConfig<'_> {
    /// What the policy cannot do here, a line each; nothing where the local engine alone runs rows.
    pub fn limits_of_policy(&self) -> Vec<String> {
        if !self.has_fleet() {
            return Vec::new();
        }
        let policy = self.scheduler.policy;
        let mut lines = vec![
            format!(
                "scheduler.policy = {policy} orders the queue in front of the replicas; what a server computes in \
                 a step is the server's:"
            ),
            "no effect there: step_tokens_max beyond Eq. 10, chunk_tokens, sequences_max, sample_rows, \
             prefix_cache, publish_generated, the KV pool, speculation"
                .to_owned(),
            "a row that was sent runs to its end: nothing that comes before it calls it back".to_owned(),
        ];
        lines.extend(transition(policy).map(str::to_owned));
        if self.scheduler.is_fair() || reads_marginal_work(policy) {
            lines.push(MARGINAL_WORK.to_owned());
        }
        if self.has_local_engine() {
            lines.push("the local engine among them plans its own steps, by all of these".to_owned());
        }
        lines
    }
}

/// What becomes of the transitional case (Eq. 14-17), where the policy knows one.
fn transition(policy: Policy) -> Option<&'static str> {
    match policy {
        Policy::RelServe | Policy::MarginalWork | Policy::MarginalWorkSlowAging | Policy::Auto => Some(
            "the transitional case is weighed when a row could be sent, by the replica's fitted cost, and not \
             before each step; until 16 of its rows are answered every row goes that finds room",
        ),
        Policy::RelServePrefill => Some("the transitional case sends every row that finds room"),
        Policy::RelServeDecode => Some(
            "the transitional case has rows wait until those that come before them have left the replica, once \
             16 of its rows are answered",
        ),
        Policy::Fcfs | Policy::Sarathi | Policy::StaticPriority | Policy::StaticPriorityWeak => None,
    }
}

/// Whether the policy is `marginal-work`, or may become it.
fn reads_marginal_work(policy: Policy) -> bool {
    matches!(policy, Policy::MarginalWork | Policy::MarginalWorkSlowAging | Policy::Auto)
}

#[cfg(test)]
mod tests {
    use scheduler::fleet::FleetConfig;
    use scheduler::{PaperVariant, SchedulerConfig};

    use super::*;
    use crate::config::{DiscoveryConfig, ModelConfig, ReplicaKind, ReplicaSettings};

    fn said(policy: Policy, replicas: &[ReplicaSettings]) -> String {
        let model = ModelConfig::default();
        let config = BackendConfig {
            model: model.settings(),
            engine: &engine::EngineConfig::default(),
            scheduler: &SchedulerConfig { policy, ..SchedulerConfig::default() },
            fleet: &FleetConfig::default(),
            replicas,
            discovery: &DiscoveryConfig::default(),
            variable: |_| None,
            output_tokens_max: 1,
            is_further: false,
        };
        config.limits_of_policy().join("\n")
    }

    #[test]
    fn what_a_policy_cannot_do_in_front_of_replicas_is_said_and_what_it_does_is_not_denied() {
        let server = || ReplicaSettings { url: Some("http://h".into()), ..ReplicaSettings::default() };
        let local = ReplicaSettings { kind: ReplicaKind::Local, ..ReplicaSettings::default() };
        assert_eq!(said(Policy::Auto, &[]), "", "an engine of ours plans steps");
        for policy in
            [Policy::Fcfs, Policy::StaticPriority, Policy::RelServe, Policy::MarginalWork, Policy::Auto]
        {
            let lines = said(policy, &[server()]);
            assert!(lines.contains(policy.name()) && lines.contains("chunk_tokens"), "{lines}");
            // The queue reads all readings of the paper, and weighs rows of a lower class.
            let readings = serde_json::to_value(PaperVariant::default()).expect("plain data");
            let named = readings.as_object().expect("fields").keys().map(String::as_str);
            for read in named.chain(["paper_variant", "gain.lower_class", "marginal_key", "tenant_lag"]) {
                assert!(!lines.contains(read), "{policy} reads {read}: {lines}");
            }
            assert!(!lines.contains("local engine"), "{lines}");
        }
        let unread = "first_rows_permille";
        assert!(said(Policy::Auto, &[server()]).contains(unread));
        assert!(!said(Policy::RelServe, &[server()]).contains(unread), "it has no such setting anywhere");
        assert!(said(Policy::RelServe, &[server()]).contains("the transitional case is weighed"));
        assert!(said(Policy::RelServeDecode, &[server()]).contains("have left the replica"));
        assert!(!said(Policy::Fcfs, &[server()]).contains("transitional"), "it knows none");
        assert!(said(Policy::Auto, &[server(), local]).contains("the local engine among them"));
    }
}
