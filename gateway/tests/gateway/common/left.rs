//! Work in the store that another gateway took, and has not ended.

use serde_json::{Value, json};
use store::{Lease, NewTicket, Store, UnixMillis};

/// The lease of a gateway that has been gone since the year 1970.
pub fn gone() -> Lease {
    lease_of("gone")
}

/// The same of a gateway of this name.
pub fn lease_of(holder: &str) -> Lease {
    Lease { holder: holder.to_owned(), process: "gone".into(), until: UnixMillis(2) }
}

/// A ticket of the default tenant, made in 1970 and never past its date, if nothing else is said.
pub struct LeftTicket<'a> {
    pub id: &'a str,
    pub kind: &'static str,
    pub request: Value,
    pub created: UnixMillis,
    pub expires: UnixMillis,
}

impl<'a> LeftTicket<'a> {
    fn new(id: &'a str, kind: &'static str, request: Value) -> Self {
        Self { id, kind, request, created: UnixMillis(1), expires: UnixMillis(i64::MAX as u64) }
    }

    /// A relQuery of one row, which is to say this.
    pub fn relquery(id: &'a str, text: &str) -> Self {
        Self::new(id, "relquery", json!({"template": "Say {w}", "rows": [[text]]}))
    }

    /// A batch of a file, with a window of so many hours.
    pub fn batch(id: &'a str, file: &str, hours: u64) -> Self {
        let request = json!({
            "input_file_id": file,
            "endpoint": "/v1/completions",
            "completion_window": format!("{hours}h"),
            "window": hours * 3_600_000,
            "metadata": null,
        });
        Self::new(id, store::BATCH, request)
    }

    /// Puts it into the store.
    pub async fn put(self, store: &Store, lease: &Lease) {
        let ticket = NewTicket {
            id: self.id,
            tenant: store::DEFAULT_TENANT,
            kind: self.kind,
            request: &self.request.to_string(),
            expires: self.expires,
            lease,
            key: None,
        };
        store.create_ticket(ticket, self.created).await.unwrap();
    }
}
