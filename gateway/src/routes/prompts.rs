//! `/v1/prompts`: complete a prompt made of a schema's modules and new text (Prompt Cache, section 3.4).

use std::sync::Arc;

use actix_web::web::{self, Data, Payload, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use base::{Generation, Section, Span, SpanKind, Time, TokenCount, TokenId, WorkItem};
use ir::pml::{PmlError, PmlPrompt, Sectioned, Unit};
use serving::caller::Caller;
use serving::clock::{Deadline, Late};
use serving::error::{RequestError, internal};

use crate::auth::Authenticated;
use crate::error::ApiError;
use crate::error::Refusals;
use crate::json::JsonFields;
use crate::models::ServedModel;
use crate::routes::{ask_timely, only_post, openai};
use crate::services::constraints::Purpose;
use crate::services::openai::{COMPLETION_TOKENS, Endpoint, PreparedRequest, asked, lowering};
use crate::services::prepare::RequestContext;
use crate::services::prepare::rows::prompt_bytes_max;
use crate::services::schemas;
use crate::services::schemas::ready::Ready;
use crate::state::App;
use crate::wire::label;
use crate::wire::openai::{Api, CompletionChoice, Reply};
use crate::wire::pml::{PromptRequest, pml_error};

/// The route.
pub fn configure(routes: &mut ServiceConfig) {
    let resource = web::resource("/v1/prompts");
    routes.service(resource.route(web::post().to(create)).default_service(web::to(only_post)));
}

/// Completes a prompt. Its modules are computed once and read wherever prompts put them.
#[utoipa::path(
    post, path = "/v1/prompts", tag = "pml",
    request_body(content = Object, description = "prompt (PML: `<prompt schema=\"...\">` with `<module-name \
        parameter=\"argument\"/>` and new text; required), and what `/v1/completions` takes: model, max_tokens \
        (default 16), temperature, top_p, top_k, seed, stop, stream, stream_options.include_usage, constraint, ignore_eos, \
        class, cache, deadline_ms; repair_tokens: first tokens of each module that are computed again"),
    responses(
        (status = 200, body = Reply<CompletionChoice>),
        Refusals,
    ),
    security(("key" = []))
)]
pub async fn create(
    app: Data<App>,
    Authenticated(caller): Authenticated,
    request: HttpRequest,
    payload: Payload,
) -> Result<HttpResponse, ApiError> {
    let ((model, wanted), peek) = match ask_timely((&app, caller), &request, payload, read).await? {
        (Ok(asked), peek) => (asked, peek),
        (Err(Late), peek) => return Ok(openai::late(peek.is_stream())),
    };
    let (stream, arrival) = (wanted.common.stream, peek.arrival());
    let deadline = wanted.common.deadline.map(|span| Deadline::new(arrival, span));
    let assembled = assemble(&app, &model, caller, wanted, arrival);
    match app.runtime.shared.clock.within(deadline, assembled).await {
        Ok(asked) => {
            let asked = asked?.labelled(label::of_client(request.headers()));
            openai::answer(app, &model, caller, asked).await
        }
        Err(Late) => Ok(openai::late(stream)),
    }
}

/// Finds the prompt's schema and puts the prompt together.
async fn assemble(
    app: &Data<App>,
    model: &Arc<ServedModel>,
    caller: Caller,
    wanted: PromptRequest,
    arrival: Time,
) -> Result<PreparedRequest, RequestError> {
    let Some(ready) = schemas::find((app, model), caller.tenant, &wanted.prompt.schema).await? else {
        let reason = format!("there is no schema `{}`: POST /v1/schemas registers one", wanted.prompt.schema);
        return Err(pml_error("prompt", &PmlError { place: wanted.prompt.place, reason }));
    };
    schemas::hold((app, model), caller, &ready);
    let (state, model, tenant) = (app.clone(), Arc::clone(model), caller.tenant);
    let lowered = web::block(move || {
        let context = RequestContext { app: &state, model: &model, tenant, purpose: Purpose::Run, arrival };
        lower(context, wanted, &ready)
    });
    lowered.await.map_err(internal)?
}

fn read(context: RequestContext<'_>, fields: JsonFields) -> Result<PromptRequest, RequestError> {
    let bytes_max = prompt_bytes_max(context.model.model(), &context.app.config).0;
    PromptRequest::read(fields, context.validation(), bytes_max)
}

/// A prompt as whoever runs it takes it.
struct Assembled {
    tokens: Vec<TokenId>,
    sections: Vec<Section>,
    /// Position behind the last token.
    end: u64,
}

/// Puts the prompt together: in sections for the engine, as one text for servers.
/// `first_tokens`: how many of a unit's first tokens are repaired.
fn assembled(
    served: &ServedModel,
    prompt: &PmlPrompt,
    ready: &Ready,
    first_tokens: impl Fn(&Unit) -> u32,
) -> Result<Assembled, RequestError> {
    let model = served.model();
    let wrong = |error: PmlError| pml_error("prompt", &error);
    let is_plain = !model.has_sections();
    // What is reserved and stays free takes no room of a plain prompt.
    let length_max = if is_plain { u32::MAX } else { u32::try_from(model.context_max.0).unwrap_or(u32::MAX) };
    let assembly = ready.layout.assemble(prompt, &*model.text, served.tags(), length_max).map_err(wrong)?;
    if is_plain {
        let tokens = assembly.plain(&*model.text, served.tags());
        model.check_prompt(&tokens).map_err(|reason| wrong(PmlError { place: prompt.place, reason }))?;
        let end = tokens.len() as u64;
        return Ok(Assembled { tokens, sections: Vec::new(), end });
    }
    let Sectioned { prompt: tokens, sections } = assembly.repaired(&ready.layout, first_tokens);
    Ok(Assembled { tokens, sections, end: u64::from(assembly.end) })
}

/// Makes a row of the prompt.
fn lower(
    context: RequestContext<'_>,
    request: PromptRequest,
    ready: &Ready,
) -> Result<PreparedRequest, RequestError> {
    let PromptRequest { common, prompt, repair_tokens } = request;
    let (model, config) = (context.model.model(), &context.app.config);
    let limits = &config.limits;
    let context_max = model.context_max.0;
    let output_max = common.max_tokens.unwrap_or(COMPLETION_TOKENS.min(limits.output_tokens_max));
    let first_tokens = |unit: &Unit| repair_tokens.or(unit.repair).unwrap_or(config.reuse.repair_tokens);
    let Assembled { tokens, sections, end } = assembled(context.model, &prompt, ready, first_tokens)?;
    if end.saturating_add(output_max) > context_max {
        return Err(RequestError::TooLong {
            prompt: end,
            output: output_max,
            what: "context",
            limit: context_max,
        });
    }
    // What repairs others is none that the prompt has.
    let repairs = base::repairs(&sections).iter().map(Vec::len).sum::<usize>();
    if sections.len() - repairs > limits.prompt_sections_max {
        let (found, limit) = (sections.len() - repairs, limits.prompt_sections_max);
        let reason =
            format!("it is cut into {found} stretches, the limit is {limit} (limits.prompt_sections_max)");
        return Err(pml_error("prompt", &PmlError { place: prompt.place, reason }));
    }
    let generation =
        Generation { output_max: TokenCount(output_max), ..(*common.sampling.generation).clone() };
    let spans = [Span { kind: SpanKind::Template, tokens: TokenCount(tokens.len() as u64) }];
    let item = WorkItem {
        row: 0,
        prompt: tokens.into(),
        spans: spans.into(),
        sections: sections.into(),
        generation: Arc::new(generation),
        seed: 0,
    };
    let needed = item.kv_tokens_max(model.block_tokens).0;
    if needed > model.kv_tokens() {
        let prompt = needed.saturating_sub(output_max);
        return Err(RequestError::TooLong {
            prompt,
            output: output_max,
            what: "KV pool",
            limit: model.kv_tokens(),
        });
    }
    Ok(asked(
        Endpoint { api: Api::Completion, route: "prompts" },
        &common,
        vec![item],
        lowering(context, &common),
        context.arrival,
    ))
}
