//! What happens at the doors: requests, searches of corpora, live views, another configuration.

use std::sync::Arc;

use prometheus::{Histogram, IntCounter};

use super::register::Registrar;
use crate::live::Live;

/// Handles of requests.
pub struct RequestMetrics {
    /// Reading, rewriting and tokenising a request, off the connection's thread.
    pub prepare_seconds: Histogram,
    /// Clients that went away before their answer.
    pub disconnects: IntCounter,
    /// Requests that joined what their idempotency key had begun.
    pub repeats: IntCounter,
    pub(super) overloaded: IntCounter,
    /// Replies cut short by their deadline.
    pub partial: IntCounter,
    /// Tickets, batches and lines of batches that failed because servers ended with them.
    pub given_up: IntCounter,
    /// Lines of the access log that were lost because too many waited.
    pub access_lines_lost: IntCounter,
}

/// Handles of what becomes of a configuration that is read again.
pub struct ReloadMetrics {
    /// It was taken, as far as a server that runs can.
    pub taken: IntCounter,
    /// It was wrong, or could not be written down: all stayed as it was.
    pub refused: IntCounter,
}

/// Handles of corpora.
pub struct RetrievalMetrics {
    /// Texts embedded for corpora and searches.
    pub embedded_texts: IntCounter,
    pub embedded_tokens: IntCounter,
    /// Searches of corpora.
    pub searches: IntCounter,
    /// Graphs made for large corpora.
    pub graphs: IntCounter,
}

/// Handles of live views.
pub struct LiveMetrics {
    /// Steps that live views were too slow to see.
    pub lost_steps: IntCounter,
    /// Replays of the last minutes.
    pub what_ifs: IntCounter,
    /// Times that policy `auto` changed the policy in force.
    pub policy_changes: IntCounter,
    /// What its replays took.
    pub auto_seconds: Histogram,
}

impl RequestMetrics {
    pub(super) fn register(r: &Registrar<'_>) -> Self {
        Self {
            prepare_seconds: r
                .latency("relserve_prepare_seconds", "Time to read, rewrite and tokenise a request"),
            disconnects: r.counter("relserve_disconnects_total", "Clients gone before their answer"),
            repeats: r.counter("relserve_repeats_total", "Requests that joined an earlier one by their key"),
            overloaded: r.counter("relserve_overloaded_total", "Requests refused for a full queue"),
            partial: r.counter("relserve_partial_replies_total", "Replies cut short by their deadline"),
            given_up: r.counter(
                "relserve_work_given_up_total",
                "Tickets, batches and lines of batches that failed because servers ended with them",
            ),
            access_lines_lost: r.counter(
                "relserve_access_log_lost_lines_total",
                "Lines of the access log that were lost because too many waited",
            ),
        }
    }
}

impl ReloadMetrics {
    pub(super) fn register(r: &Registrar<'_>) -> Self {
        let [taken, refused] = r.counters(
            "relserve_config_reloads_total",
            "Times that the configuration was read again, and taken or refused",
            ("outcome", ["taken", "refused"]),
        );
        Self { taken, refused }
    }
}

impl RetrievalMetrics {
    pub(super) fn register(r: &Registrar<'_>) -> Self {
        Self {
            embedded_texts: r
                .counter("relserve_embedded_texts_total", "Texts embedded for corpora and searches"),
            embedded_tokens: r.counter("relserve_embedded_tokens_total", "Tokens of embedded texts"),
            searches: r.counter("relserve_retrieval_searches_total", "Searches of corpora"),
            graphs: r
                .counter("relserve_retrieval_graphs_total", "Graphs made for the indexes of large corpora"),
        }
    }
}

impl LiveMetrics {
    /// Who looks is known to `live`, and read at each scrape.
    pub(super) fn register(r: &Registrar<'_>, live: Arc<Live>) -> Self {
        r.pulled("relserve_live_readers", "Live views that are open", move || live.readers() as f64);
        Self {
            lost_steps: r
                .counter("relserve_live_lost_steps_total", "Steps that live views were too slow to see"),
            what_ifs: r.counter("relserve_what_ifs_total", "Replays of the last minutes that were asked for"),
            policy_changes: r.counter(
                "relserve_policy_changes_total",
                "Times that policy `auto` changed the policy in force",
            ),
            auto_seconds: r.latency(
                "relserve_auto_replay_seconds",
                "Time that policy `auto` took to replay the last minutes",
            ),
        }
    }
}
