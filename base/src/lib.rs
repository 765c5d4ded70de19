//! The words every other crate shares: units, identifiers, work items and the step contract.
//!
//! A leaf crate: plain data and a few small traits. It must not know HTTP, tensors, storage,
//! clocks or threads; everything here can be built in a test by hand.

pub mod adjust;
pub mod constraint;
pub mod ids;
pub mod logprob;
pub mod spreadsheet;
pub mod step;
pub mod text;
pub mod tokenizer_info;
pub mod units;
pub mod work;

pub use adjust::LogitAdjustments;
pub use constraint::{
    AnswerScoring, Compiled, Constraint, ConstraintCompiler, ConstraintError, ExcerptSource, Items,
    MarkedJson, StructuralTag, TextReading, TriggeredTags,
};
pub use ids::{BlockId, HostBlockId, PinId, RelQueryId, RequestId, StepId, TenantId, TokenId};
pub use logprob::{LikelyPromptToken, Logprob, PromptLikelihood, PromptToken, TokenLogprob};
pub use step::{
    BatchKind, BatchPlan, End, ExecError, Executor, MoveBack, MoveOut, Moves, PromptOutcome, PromptTargets,
    RowError, RowOutcome, Run, SampleSpec, Sampled, Slot, StepOutcome,
};
pub use text::{
    After, ChatTemplate, MarkupPart, Piece, PromptEnd, RenderedPiece, Role, TextError, Tokenizer,
    ToolCallForm, ToolFields,
};
pub use tokenizer_info::{AddedToken, TokenizerInfo};
pub use units::{Bytes, Millis, Money, Nanos, Time, TokenCount};
pub use work::{
    Generation, Periods, Section, SectionReuse, Sees, ServiceClass, Span, SpanKind, Submission, WorkItem,
    repairs,
};
