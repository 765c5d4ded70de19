//! The rows that the benches wait with.

use std::sync::Arc;

use base::{
    Generation, RelQueryId, ServiceClass, Span, SpanKind, Submission, TenantId, Time, TokenCount, TokenId,
    WorkItem,
};

/// Prompt tokens: a template and a value of its own.
const TEMPLATE: u64 = 60;
const VALUE: u64 = 140;
/// Most output tokens of a row.
const OUTPUT_MAX: u64 = 50;

/// A relQuery of so many rows; twenty templates take turns.
pub(crate) fn submission(id: u64, rows: u64) -> Submission {
    let generation = Arc::new(Generation { output_max: TokenCount(OUTPUT_MAX), ..Generation::default() });
    let spans: Arc<[Span]> = Arc::from([
        Span { kind: SpanKind::Template, tokens: TokenCount(TEMPLATE) },
        Span { kind: SpanKind::Field, tokens: TokenCount(VALUE) },
    ]);
    let items = (0..rows)
        .map(|row| {
            let template = (0..TEMPLATE).map(|i| TokenId((id % 20 * 1_000 + i) as u32));
            let value = (0..VALUE).map(|i| TokenId((id * 100_000 + row * 1_000 + i) as u32));
            WorkItem {
                row: row as u32,
                prompt: template.chain(value).collect(),
                spans: Arc::clone(&spans),
                sections: Arc::default(),
                generation: Arc::clone(&generation),
                seed: id * 1_000 + row,
            }
        })
        .collect();
    Submission {
        id: RelQueryId(id),
        tenant: TenantId(1),
        weight: 1_000,
        scope: 1,
        class: ServiceClass::Interactive,
        arrival: Time(id),
        deadline: None,
        items,
    }
}
