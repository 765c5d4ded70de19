//! Messages as a model's tokens, one by one: the markup around each, text in which nothing can become markup,
//! and prompts cut into sections. What PML and span queries have in common.
//!
//! Must not know who says what, nor in which order.

mod sectioned;
mod tags;
mod text;

pub use sectioned::Sectioned;
pub use tags::Tags;
pub use text::Encoder;
pub(crate) use text::Text;
