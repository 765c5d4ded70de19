//! Retrieval from a corpus (Span Queries, section 3.1): documents are cut into contiguous fragments
//! ([`fragment`]), an embedding model gives each a unit vector ([`Embedder`]), and an [`Index`] finds the
//! fragments nearest to a question's vector.
//!
//! Everything here is computed in memory from arguments; who owns a corpus, where it is kept and how it is
//! asked for is the gateway's matter. Must not know HTTP, tenants, the scheduler or the model that reads the
//! fragments.

mod embedder;
mod error;
mod folder;
pub mod fragment;
mod graph;
mod index;
pub mod synthetic;
mod tokens;

pub use embedder::{Embedder, Embedding};
pub use error::Error;
pub use fragment::{Cut, FragmentRange};
pub use index::{Fragment, GraphDraft, Hit, Index, Links};
pub use tokens::TokenizedTexts;
