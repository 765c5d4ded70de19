//! Requests of the load: what tenants of a busy gateway send, each with words that are its tenant's alone. Pure.

use serde_json::{Value, json};

use super::plan::GATEWAYS;
use crate::random::SplitMix64;

/// Tokens of an answer: all labels fit.
const OUTPUT_MAX: u64 = 32;
/// Rows of an answer that is waited for.
const ROWS_MAX: u64 = 8;
/// Rows of an answer that outlives its client's deadline.
const TICKET_ROWS: (u64, u64) = (10, 40);
/// Of a hundred draws those up to this one are waited for.
const WAITED_FOR: u64 = 66;
/// Requests of a batch.
const BATCH_ROWS: (u64, u64) = (20, 60);

/// What a client does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestKind {
    RelQuery {
        stream: bool,
    },
    Cells {
        stream: bool,
    },
    Chat {
        stream: bool,
    },
    Sql,
    /// Hangs up after so many bytes of a stream.
    Left {
        after: usize,
    },
    /// Has a deadline of a millisecond, so that it gets a ticket.
    Ticket {
        cancel: bool,
    },
    SqlTicket,
    Batch {
        cancel: bool,
    },
    /// Its own files and batches, listed.
    Lists,
    /// What another tenant was promised.
    Foreign,
}

impl RequestKind {
    /// What the report calls it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::RelQuery { .. } => "relQueries",
            Self::Cells { .. } => "cells",
            Self::Chat { .. } => "chats",
            Self::Sql => "statements",
            Self::Left { .. } => "streams left early",
            Self::Ticket { cancel: false } => "tickets",
            Self::Ticket { cancel: true } => "tickets, cancelled",
            Self::SqlTicket => "statements with a ticket",
            Self::Batch { cancel: false } => "batches",
            Self::Batch { cancel: true } => "batches, cancelled",
            Self::Lists => "lists",
            Self::Foreign => "looks at what is another's",
        }
    }
}

/// A request.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ChaosRequest {
    pub(super) kind: RequestKind,
    pub(super) tenant: usize,
    /// The gateway that is asked first.
    pub(super) gateway: usize,
    /// Unique among all.
    pub(super) number: u64,
    pub(super) rows: u64,
    /// What its answers are held to: the tenant's marker is in both.
    pub(super) labels: [String; 2],
}

/// Who sends it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sender<'a> {
    pub(super) tenant: usize,
    /// In every text of this tenant, and in no other's.
    pub(super) marker: &'a str,
    pub(super) number: u64,
}

impl ChaosRequest {
    /// Draws one. The first tenant sends only what it waits for, so that it knows of each row whether it came: what is
    /// counted twice shows in its usage.
    pub(super) fn draw(sender: Sender<'_>, random: &mut SplitMix64) -> Self {
        let (stream, rare) = (random.between(0, 1) == 1, random.between(0, 3) == 0);
        let most = if sender.tenant == 0 { WAITED_FOR } else { 99 };
        let kind = match random.between(0, most) {
            0..=29 => RequestKind::RelQuery { stream },
            30..=49 => RequestKind::Cells { stream },
            50..=59 => RequestKind::Chat { stream },
            60..=WAITED_FOR => RequestKind::Sql,
            67..=74 => RequestKind::Left { after: random.between(0, 600) as usize },
            75..=84 => RequestKind::Ticket { cancel: rare },
            85..=88 => RequestKind::SqlTicket,
            89..=92 => RequestKind::Batch { cancel: rare },
            93..=95 => RequestKind::Lists,
            _ => RequestKind::Foreign,
        };
        Self::of(kind, sender, random)
    }

    /// One of a kind.
    pub(super) fn of(kind: RequestKind, sender: Sender<'_>, random: &mut SplitMix64) -> Self {
        let rows = match kind {
            RequestKind::Ticket { .. } | RequestKind::SqlTicket => {
                random.between(TICKET_ROWS.0, TICKET_ROWS.1)
            }
            RequestKind::Batch { .. } => random.between(BATCH_ROWS.0, BATCH_ROWS.1),
            RequestKind::Chat { .. } => 1,
            RequestKind::Lists | RequestKind::Foreign => 0,
            _ => random.between(1, ROWS_MAX),
        };
        let gateway = random.between(0, GATEWAYS as u64 - 1) as usize;
        let Sender { tenant, marker, number } = sender;
        // Cells and SQL give an answer of twelve tokens: no number fits beside the marker.
        let labels = match kind {
            RequestKind::Cells { .. } | RequestKind::Sql | RequestKind::SqlTicket => {
                ["yes", "no"].map(|word| format!("{marker} {word}"))
            }
            _ => ["yes", "no"].map(|word| format!("{marker} {number} {word}")),
        };
        Self { kind, tenant, gateway, number, rows, labels }
    }

    /// The text of a row: no other row of any request has it.
    fn text(&self, row: u64) -> String {
        let marker = self.labels[0].split(' ').next().unwrap_or_default();
        format!("{marker} request {} row {row}", self.number)
    }

    /// Where it is sent.
    pub(super) fn path(&self) -> &'static str {
        match self.kind {
            RequestKind::Cells { .. } => "/v1/cells",
            RequestKind::Chat { .. } => "/v1/chat/completions",
            RequestKind::Sql | RequestKind::SqlTicket => "/v1/sql",
            RequestKind::Batch { .. } | RequestKind::Lists => "/v1/batches",
            _ => "/v1/relqueries",
        }
    }

    /// What is sent; of a batch that comes from [`Self::file`].
    pub(super) fn body(&self) -> Value {
        let labels = &self.labels;
        match self.kind {
            RequestKind::Cells { stream } => {
                let call = |row| json!({"function": "classify", "args": [self.text(row), labels]});
                json!({"calls": (0..self.rows).map(call).collect::<Vec<_>>(), "stream": stream})
            }
            RequestKind::Chat { stream } => json!({
                "messages": [{"role": "user", "content": self.text(0)}],
                "max_tokens": OUTPUT_MAX, "guided_choice": labels, "stream": stream,
            }),
            RequestKind::Sql => json!({"query": self.statement()}),
            RequestKind::SqlTicket => json!({"query": self.statement(), "deadline_ms": 1}),
            _ => {
                let rows: Vec<[String; 1]> = (0..self.rows).map(|row| [self.text(row)]).collect();
                let mut body = json!({
                    "template": "Is this good? {text}", "columns": ["text"], "rows": rows,
                    "max_tokens": OUTPUT_MAX, "constraint": {"choice": labels},
                });
                match self.kind {
                    RequestKind::Ticket { .. } => {
                        body["deadline_ms"] = json!(1);
                        // Where it is begun twice, its rows run twice.
                        body["cache"] = json!(false);
                    }
                    RequestKind::RelQuery { stream } => body["stream"] = json!(stream),
                    _ => body["stream"] = json!(true),
                }
                body
            }
        }
    }

    fn statement(&self) -> String {
        let [yes, no] = &self.labels;
        let values = (0..self.rows).map(|row| format!("({row}, '{}')", self.text(row)));
        let values = values.collect::<Vec<_>>().join(", ");
        format!("SELECT n, ai_classify(t, ARRAY['{yes}', '{no}']) AS label FROM (VALUES {values}) AS v(n, t)")
    }

    /// The file of a batch: a request a line.
    pub(super) fn file(&self) -> String {
        let line = |row| {
            let body = json!({
                "prompt": self.text(row), "max_tokens": OUTPUT_MAX, "temperature": 0, "guided_choice": self.labels,
            });
            let line = json!({
                "custom_id": format!("row {row}"), "method": "POST", "url": "/v1/completions", "body": body,
            });
            format!("{line}\n")
        };
        (0..self.rows).map(line).collect()
    }

    /// A key under which it may be sent again.
    pub(super) fn idempotency_key(&self) -> String {
        format!("chaos-{}", self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw(seed: u64) -> Vec<ChaosRequest> {
        let mut random = SplitMix64::new(seed, "client 0");
        (0..400)
            .map(|number| ChaosRequest::draw(Sender { tenant: 1, marker: "mk42", number }, &mut random))
            .collect()
    }

    #[test]
    fn a_seed_gives_the_same_requests_and_soon_every_kind() {
        let requests = draw(1);
        assert_eq!(requests, draw(1));
        assert_ne!(requests, draw(2));
        let mut names: Vec<_> = requests.iter().map(|request| request.kind.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 12, "{names:?}");
        let mut random = SplitMix64::new(1, "client 0");
        let first =
            |number| ChaosRequest::draw(Sender { tenant: 0, marker: "mk1", number }, &mut random).kind;
        let waited = ["relQueries", "cells", "chats", "statements"];
        assert!((0..400).map(first).all(|kind| waited.contains(&kind.name())));
    }

    #[test]
    fn every_row_and_every_label_has_the_marker_of_its_tenant() {
        for request in draw(3).into_iter().filter(|request| request.rows > 0) {
            let sent = match request.kind {
                RequestKind::Batch { .. } => request.file(),
                _ => request.body().to_string(),
            };
            let rows = request.rows as usize;
            assert!(sent.matches("mk42 request").count() == rows, "{sent}");
            assert!(request.labels.iter().all(|label| label.starts_with("mk42 ") && sent.contains(label)));
        }
    }
}
