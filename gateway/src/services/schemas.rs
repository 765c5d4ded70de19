//! PML schemas by tenant: kept in the store, laid out in memory when they are used, their modules computed
//! when they are registered (Prompt Cache, section 3.3).
//!
//! What is computed is found again by what it is, so nothing here knows where it lies, nor whether it still
//! does: a prompt whose modules are gone computes them. Must not know HTTP.

pub mod ready;

use std::sync::Arc;

use base::{Generation, Nanos, SectionReuse, ServiceClass, Span, SpanKind, TenantId, TokenCount, WorkItem};
use ir::pml::{Encoding, Layout, PmlError, Positions, Schema, TextPosition};
use ready::Ready;
use scheduler::SchedulerConfig;
use serving::caller::Caller;
use serving::error::stored;
use serving::error::{RequestError, internal};
use serving::intake::{PendingRow, TemplateRows};
use serving::model::Model;
use serving::pins::{Pin, PinPermit};
use serving::relquery_state::{RelQueryKind, Usage};
use serving::submit::{self, Prepared, Resumed};
use store::{NewSchema, SchemaLimits, SchemaPut, StoredSchema};

use crate::config::LimitsConfig;
use crate::models::ServedModel;
use crate::state::App;
use crate::wire::openai::verdict;
use crate::wire::pml::pml_error;

/// The server's state, and the model that a schema is laid out for.
type Serving<'a> = (&'a Arc<App>, &'a Arc<ServedModel>);

/// How long what is held ready counts as what is stored: another server may replace it.
const READY: Nanos = Nanos(2_000_000_000);

/// Reads a schema and gives it its positions. Slow where it is long: call it off the connection's thread.
pub fn lay_out(served: &ServedModel, pml: &str) -> Result<Layout, RequestError> {
    let model = served.model();
    let Some(can_shift) = can_shift(model) else {
        let reason = "the model's attention has a window, which leaves no room for modules".to_owned();
        return Err(pml_error("schema", &PmlError { place: START, reason }));
    };
    // A position is left for what follows.
    let length_max = u32::try_from(model.context_max.0.saturating_sub(1)).unwrap_or(u32::MAX);
    let schema = Schema::parse(pml).map_err(|error| pml_error("schema", &error))?;
    let positions = Positions { length_max, can_shift, bounds_arguments: model.has_ids() };
    let layout = Layout::new(&schema, &*model.text, served.tags(), positions);
    layout.map_err(|error| pml_error("schema", &error))
}

/// The place of what concerns a whole document.
pub const START: TextPosition = TextPosition { line: 1, column: 1 };

/// Whether keys can be read elsewhere than where they were computed; `None` where they cannot be read at all.
fn can_shift(model: &Model) -> Option<bool> {
    if !model.has_sections() {
        // Prompts are plain: nothing is read elsewhere.
        return Some(true);
    }
    match model.reuse {
        SectionReuse::Anywhere => Some(true),
        SectionReuse::InPlace => Some(false),
        SectionReuse::Never => None,
    }
}

/// The rows that compute a schema's modules, one each: they are found again wherever prompts put them. None
/// where servers run rows.
fn rows((app, served): (&App, &ServedModel), layout: &Layout) -> Result<Vec<PendingRow>, RequestError> {
    let model = served.model();
    if !model.has_sections() {
        return Ok(Vec::new());
    }
    let encodings = layout.encodings();
    let limit = app.config.limits.rows_max;
    if encodings.len() > limit {
        let reason = format!("it has {} modules, the limit is {limit} (limits.rows_max)", encodings.len());
        return Err(pml_error("schema", &PmlError { place: START, reason }));
    }
    let generation = Arc::new(Generation { output_max: TokenCount(1), ..Generation::default() });
    let row = |(index, encoding): (u32, Encoding)| {
        let Encoding { unit, sectioned } = encoding;
        let tokens = TokenCount(sectioned.prompt.len() as u64);
        let item = WorkItem {
            row: index,
            prompt: sectioned.prompt.into(),
            spans: [Span { kind: SpanKind::Template, tokens }].into(),
            sections: sectioned.sections.into(),
            generation: Arc::clone(&generation),
            seed: 0,
        };
        let (needed, room) = (item.kv_tokens_max(model.block_tokens).0, model.kv_tokens());
        if needed > room {
            let name =
                layout.units[unit].path.last().map_or("its own text".to_owned(), |name| format!("`{name}`"));
            let reason = format!("{name} needs {needed} tokens of KV memory, the engine has {room}");
            return Err(pml_error("schema", &PmlError { place: START, reason }));
        }
        Ok(PendingRow { targets: vec![index], item, key: None })
    };
    (0..).zip(encodings).map(row).collect()
}

/// Computes a schema's modules through the scheduler, as any other rows; what that took.
async fn encode(
    model: &ServedModel,
    caller: Caller,
    rows: Vec<PendingRow>,
    pin: Option<PinPermit>,
) -> Result<Usage, RequestError> {
    if rows.is_empty() {
        return Ok(Usage::default());
    }
    let work = Prepared {
        kind: RelQueryKind::RelQuery,
        route: "schemas",
        class: ServiceClass::Interactive,
        rows: rows.len(),
        failed: Vec::new(),
        answered: Vec::new(),
        deadline: None,
        pin,
        parts: vec![TemplateRows { open: None, label: None, rows }],
    };
    let handle = submit::submit(&model.runtime, caller, work, Resumed::default()).await?;
    handle.wait(None).await;
    let state = handle.relquery().read();
    verdict(&state)?;
    Ok(state.usage)
}

/// A schema that is to be registered.
#[derive(Debug)]
pub struct SchemaDraft {
    /// Its text.
    pub pml: String,
    /// The text laid out.
    pub layout: Layout,
    /// Whether its modules stay in the engine's memory.
    pub is_pinned: bool,
}

/// Registers a schema in place of the one of its name, all of it or nothing: its modules are computed first.
pub async fn register(
    (app, model): Serving<'_>,
    caller: Caller,
    wanted: SchemaDraft,
) -> Result<(Arc<Ready>, Usage), RequestError> {
    let SchemaDraft { pml, layout, is_pinned } = wanted;
    if is_pinned && !model.model().has_sections() {
        let reason =
            "cannot be held: servers (`[[replicas]]`) run the rows, and what their caches keep is theirs";
        return Err(RequestError::invalid("pin", reason.to_owned()));
    }
    let rows = rows((app, model), &layout)?;
    let pinned = if is_pinned { pinned((app, model.model()), &rows)? } else { TokenCount(0) };
    let limits = &app.config.limits;
    let new = NewSchema { tenant: caller.tenant, name: &layout.name, pml: &pml, pinned };
    let bounds = SchemaLimits {
        schemas: limits.tenant_schemas_max,
        bytes: limits.tenant_schemas_bytes_max,
        pinned: TokenCount(limits.tenant_pinned_tokens_max),
    };
    let allowed = |kept| allowed(limits, pinned, kept);
    allowed(stored(app.runtime.store.can_put_schema(new, bounds).await)?)?;
    // Until it is stored it is nobody's: what fails here lets go what it pinned.
    let pin = (pinned.0 > 0).then(|| model.runtime.shared.pin());
    let usage = encode(model, caller, rows, pin.as_ref().and_then(Pin::fill)).await?;
    let now = app.runtime.shared.unix_now();
    allowed(stored(app.runtime.store.put_schema(new, bounds, now).await)?)?;
    let name = layout.name.clone();
    let kept = stored(app.runtime.store.schema(caller.tenant, &name).await)?.filter(|kept| kept.pml == pml);
    // Replaced by another since: this one was registered all the same.
    let kept = kept.unwrap_or(StoredSchema { name, pml, pinned, created: now, updated: now });
    let ready = Arc::new(Ready { stored: kept, layout, pin });
    app.models.iter().for_each(|other| other.schemas.ready().remove(caller.tenant, &ready.stored.name));
    model.schemas.ready().put(caller.tenant, Arc::clone(&ready), app.runtime.shared.clock.now());
    // Removed since it was stored, it would stay ready, and its pin with it.
    refresh((app, model), caller.tenant, Arc::clone(&ready)).await;
    Ok((ready, usage))
}

/// Tokens that a pin on what these rows compute would hold.
fn pinned((app, model): (&App, &Model), rows: &[PendingRow]) -> Result<TokenCount, RequestError> {
    let (mut tokens, mut blocks) = (0, 0);
    for section in
        rows.iter().flat_map(|row| row.item.sections.split_last().map_or(&[][..], |(_, units)| units))
    {
        tokens += section.tokens.0;
        blocks += section.tokens.0.div_ceil(u64::from(model.block_tokens));
    }
    let share = SchedulerConfig { kv_blocks: model.kv_blocks, ..app.config.scheduler.clone() };
    let limit = u64::from(share.pinned_blocks_max());
    if blocks > limit {
        let reason = format!(
            "its modules need {blocks} blocks of KV memory, {limit} may be pinned (scheduler.pinned_permille)"
        );
        return Err(RequestError::invalid("pin", reason));
    }
    Ok(TokenCount(tokens))
}

fn allowed(limits: &LimitsConfig, pinned: TokenCount, kept: SchemaPut) -> Result<(), RequestError> {
    match kept {
        SchemaPut::Yes => Ok(()),
        SchemaPut::TooMany => {
            let limit = limits.tenant_schemas_max;
            let reason = format!("this tenant has {limit} schemas, the limit (limits.tenant_schemas_max)");
            Err(RequestError::invalid("schema", reason))
        }
        SchemaPut::TooManyBytes(others) => Err(RequestError::TooLarge {
            what: format!("`schema` beside {} bytes of this tenant's other schemas", others.0),
            limit: format!("{} bytes (limits.tenant_schemas_bytes_max)", limits.tenant_schemas_bytes_max.0),
        }),
        SchemaPut::TooManyPinned(others) => {
            let limit = limits.tenant_pinned_tokens_max;
            let reason = format!(
                "it has {pinned} and this tenant's other schemas have {others} pinned, the limit is {limit} tokens \
                 (limits.tenant_pinned_tokens_max)"
            );
            Err(RequestError::invalid("pin", reason))
        }
    }
}

/// Sees to it that a pinned schema's modules are held: after a restart, or a loss, they are computed again.
/// Nobody waits for that.
pub fn hold((app, model): Serving<'_>, caller: Caller, ready: &Ready) {
    if !model.model().has_sections() {
        return;
    }
    let Some(filling) = ready.pin.as_ref().and_then(Pin::fill) else { return };
    let Ok(rows) = rows((app, model), &ready.layout) else { return };
    let model = Arc::clone(model);
    tokio::spawn(async move {
        if let Err(error) = encode(&model, caller, rows, Some(filling)).await {
            tracing::warn!(%error, "a pinned schema's modules are not held");
        }
    });
}

/// A tenant's schema, ready for prompts; `None` where it has none of that name.
pub async fn find(
    (app, model): Serving<'_>,
    tenant: TenantId,
    name: &str,
) -> Result<Option<Arc<Ready>>, RequestError> {
    let now = app.runtime.shared.clock.now();
    let found = model.schemas.ready().get(tenant, name, now, READY);
    let Some((ready, is_old)) = found else {
        let Some(kept) = stored(app.runtime.store.schema(tenant, name).await)? else { return Ok(None) };
        let ready = load(model, kept).await?;
        model.schemas.ready().put(tenant, Arc::clone(&ready), app.runtime.shared.clock.now());
        // Removed since it was read, it would stay ready, and its pin with it.
        refresh((app, model), tenant, Arc::clone(&ready)).await;
        return Ok(Some(ready));
    };
    if is_old {
        // Nobody waits for the store: what is ready serves until another is.
        let (app, model, ready) = (app.clone(), Arc::clone(model), Arc::clone(&ready));
        tokio::spawn(async move { refresh((&app, &model), tenant, ready).await });
    }
    Ok(Some(ready))
}

/// Lays a stored schema out. That it once could be does not mean that it can: the model may be another one.
async fn load(model: &Arc<ServedModel>, kept: StoredSchema) -> Result<Arc<Ready>, RequestError> {
    let model = Arc::clone(model);
    let laid_out = tokio::task::spawn_blocking(move || {
        let layout = lay_out(&model, &kept.pml)?;
        let pin = (kept.pinned.0 > 0).then(|| model.runtime.shared.pin());
        Ok(Arc::new(Ready { stored: kept, layout, pin }))
    });
    laid_out.await.map_err(internal)?
}

/// Looks whether what is ready is still what is stored.
async fn refresh((app, model): Serving<'_>, tenant: TenantId, ready: Arc<Ready>) {
    let name = &ready.stored.name;
    let found = match app.runtime.store.schema(tenant, name).await {
        Ok(found) => found,
        Err(error) => {
            tracing::warn!(%error, "schemas cannot be read; those that are ready still serve");
            return;
        }
    };
    let next = match found {
        None => None,
        Some(kept) if kept == ready.stored => Some(Arc::clone(&ready)),
        Some(kept) => load(model, kept).await.ok(),
    };
    let now = app.runtime.shared.clock.now();
    model.schemas.ready().renew(tenant, &ready, next, now);
}

/// Forgets a tenant's schema; says whether there was one.
pub async fn remove(app: &App, tenant: TenantId, name: &str) -> Result<bool, RequestError> {
    let was_there = stored(app.runtime.store.delete_schema(tenant, name).await)?;
    app.models.iter().for_each(|model| model.schemas.ready().remove(tenant, name));
    Ok(was_there)
}
