//! What survives a restart: tenants, keys, usage, results, tickets, batches, files, uploads, schemas, corpora,
//! workbooks, idempotent replies, responses, calibration, limits, what SQL has spent and what operators did; and what several gateways tell each other.
//!
//! One [`Store`] over SQLite (a file, the default) or Postgres (several gateways), with one schema and one
//! set of statements for both. Each table family has its file with its SQL in sight: [`tenants`], [`keys`], [`name_search`], [`key_scope`],
//! [`sign_ins`], [`usage`], [`limits`], [`audit`], [`spending`], [`results`], [`tickets`], [`takes`], [`progress`], [`batches`], [`files`], [`uploads`], [`schemas`], [`corpora`],
//! [`workbooks`], [`shares`], [`idempotency`], [`key_claims`], [`responses`], [`calibration`], [`nodes`], [`replica_leases`]. How its calls
//! fared is told by [`health`]; [`backup`] copies a database that is in use.
//!
//! The store reads no clock: every instant is an argument, in unix milliseconds. (Leases of replicas, claims of
//! idempotency keys and readers of tickets count by the database's, which all gateways share.) It must not know HTTP, scheduling or models; JSON passes through it as
//! text.

pub mod audit;
pub mod backup;
pub mod batches;
pub mod calibration;
pub mod corpora;
pub mod error;
pub mod files;
pub mod health;
pub mod idempotency;
mod inspect;
pub mod key_claims;
pub mod key_scope;
pub mod keys;
pub mod limits;
mod migrate;
pub mod name_search;
pub mod nodes;
mod open;
mod opened_file;
pub mod progress;
#[cfg(test)]
mod query_plan;
pub mod replica_leases;
pub mod responses;
pub mod results;
pub mod schemas;
pub mod shares;
pub mod sign_ins;
pub mod spending;
pub mod takes;
pub mod tenants;
pub mod tickets;
pub mod time;
pub mod uploads;
pub mod usage;
pub mod workbooks;

pub use audit::{AuditEntry, NewAuditEntry};
pub use batches::BatchEnd;
pub use corpora::{
    CORPORA_BYTES, Corpus, CorpusLimits, CorpusOf, FragmentKey, NewCorpus, NewDocument, StoredFragment,
    vector_bytes,
};
pub use error::{Error, StoreOutage};
pub use files::{FILE_BYTES_COMING, FileInfo, FileLimits, NewFile, ReceivedChunk};
pub use health::{StoreErrors, StoreHealth};
pub use idempotency::{IdempotentReply, ReplyLimits};
pub use inspect::Inspection;
pub use key_claims::{KeyClaim, KeyClaimed};
pub use key_scope::KeyScope;
pub use keys::{CreatedKey, KeyInfo, KeyLookup, KeyRotation, ListedKey, NewKey};
pub use limits::{Computed, TenantLimits};
pub use migrate::SCHEMA_VERSION;
pub use name_search::{NameSearch, NamesFound};
pub use nodes::NodeClaim;
pub use open::{Store, StoreOptions};
pub use progress::{ProgressPiece, ProgressPlace};
pub use replica_leases::{OtherLease, ReplicaLease};
pub use responses::{NewResponse, RESPONSE, StoredResponse};
pub use results::{NewResult, ResultKey, ResultLimits};
pub use schemas::{NewSchema, SchemaLimits, SchemaPut, StoredSchema};
pub use shares::WorkbookShare;
pub use sign_ins::SignIn;
pub use spending::Spending;
pub use tenants::{DEFAULT_TENANT, Tenant};
pub use tickets::{
    BATCH, ClaimKind, FIRST_WORK_ROW, Lease, NewTicket, Page, RowCounts, Ticket, TicketBytes, TicketKey,
    TicketMade, TicketRow, TicketState,
};
pub use time::{UnixMillis, month_start};
pub use uploads::{BYTES_COMING, NewPartedUpload, PartedUpload, UploadState};
pub use usage::{UsageKey, UsageReplay, UsageRow, UsageWrite, Used};
pub use workbooks::{
    Workbook, WorkbookDeleted, WorkbookDraft, WorkbookLimits, WorkbookSaved, WorkbookUsage, WorkbookVersion,
};
