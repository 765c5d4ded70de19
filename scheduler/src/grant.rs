//! Carries a decision out: grants and publishes blocks, and writes the plan.
//!
//! The order matters: what the new rows hit is held before anything is granted, or a grant could evict it;
//! then decodes are served, then the new rows in order, each hitting what earlier ones publish. What a row
//! hits on the host is granted a block too, so all hits of all new rows are protected before the first of
//! them is held.

use std::ops::Range;

use base::{BatchPlan, BlockId, RelQueryId, RequestId, Run, SampleSpec, Slot, StepId, Time, TokenId};

use crate::Scheduler;
use crate::admit::Admitted;
use crate::cache_view::CacheView;
use crate::choice::Choice;
use crate::flight::{Draft, Flight, FlightSlot};
use crate::kv::PublicationId;
use crate::kv::prefix::Publication;
use crate::row::{Row, RowState};
use crate::runs::{Context, cut};
use crate::sections::{self, PromptPart};

impl Scheduler {
    /// Grants, publishes, and writes the plan; `None` if not a single slot came of the choice.
    pub(crate) fn carry_out(&mut self, choice: Choice, now: Time) -> Option<BatchPlan> {
        let (partials, new): (Vec<Admitted>, Vec<Admitted>) =
            choice.prefill.into_iter().partition(|row| self.is_running(row));
        let protected = self.protect(&new);
        for row in &new {
            self.admit(row, now);
        }
        self.kv.ledger.unprotect(&protected);
        let mut published = Vec::new();
        let mut drafts = Vec::new();
        if choice.decodes {
            self.draft_decodes(&mut drafts, &mut published);
        }
        for row in &partials {
            self.draft_partial(row, &mut drafts, &mut published);
        }
        for row in &new {
            self.draft_new(row, &mut drafts, &mut published);
        }
        self.place_all(new.iter().map(|row| row.relquery));
        if drafts.is_empty() {
            return None;
        }
        self.add_openings(&mut drafts);
        self.add_draft_tokens(&mut drafts);
        let plan = self.write(&drafts);
        let slots = flight_slots(drafts, &plan);
        self.steps.flight = Some(Flight { step: plan.step, slots, published, retired: plan.retired.clone() });
        self.telemetry.decision.step = Some(plan.step);
        self.telemetry.decision.decode_rows = plan.decode_sequences() as u32;
        Some(plan)
    }

    fn is_running(&self, row: &Admitted) -> bool {
        self.relqueries[&row.relquery].running.contains(&row.index)
    }

    /// Updates the places of relQueries named in runs.
    pub(crate) fn place_all(&mut self, ids: impl Iterator<Item = RelQueryId>) {
        let mut last = None;
        for id in ids {
            if last != Some(id) {
                self.place(id);
            }
            last = Some(id);
        }
    }

    /// Keeps what these rows hit from being evicted for one another. Where nothing lies on the host, holding
    /// evicts nothing.
    fn protect(&mut self, rows: &[Admitted]) -> Vec<BlockId> {
        if self.kv.ledger.tier().used == 0 {
            return Vec::new();
        }
        let view = CacheView::new(&self.kv.ledger, &self.kv.hasher, &self.config);
        let mut found = Vec::new();
        for admitted in rows {
            let Some(relquery) = self.relqueries.get_mut(&admitted.relquery) else { continue };
            let scope = relquery.scope;
            let row = relquery.row_mut(admitted.index);
            for number in 0..=row.parts.len() {
                view.resident(scope, row, number, |place| found.push(place));
            }
        }
        self.kv.ledger.protect(&found)
    }

    /// Makes a waiting row a running one that holds what it hits.
    fn admit(&mut self, admitted: &Admitted, now: Time) {
        let Some(relquery) = self.relqueries.get_mut(&admitted.relquery) else { return };
        relquery.started.get_or_insert(now);
        relquery.admit(admitted.index);
        let row = relquery.row_mut(admitted.index);
        if row.request.is_none() {
            row.request = Some(self.queues.new_request(admitted.relquery, admitted.index));
        }
        row.state = RowState::Prefilling;
        self.queues.running_rows += 1;
        self.hold_hits(admitted.relquery, admitted.index);
    }

    /// Holds what lies in the pool or on the host of the row's blocks after those it holds already.
    fn hold_hits(&mut self, id: RelQueryId, index: u32) {
        let Some(relquery) = self.relqueries.get_mut(&id) else { return };
        let scope = relquery.scope;
        let row = relquery.row_mut(index);
        let view = CacheView::new(&self.kv.ledger, &self.kv.hasher, &self.config);
        let hittable: Vec<usize> =
            (0..=row.parts.len()).map(|number| view.hittable(row, number) as usize).collect();
        for (number, hittable) in hittable.into_iter().enumerate() {
            let scope = row.chain_scope(&self.kv.hasher, scope, number);
            while row.chain(number).blocks.len() < hittable {
                let chain = row.chain(number);
                let block = chain.blocks.len();
                let parent = chain.links.last().copied().unwrap_or_default();
                let content = row.block_content(number, block, self.config.block_tokens);
                let Some((place, link)) = self.kv.ledger.find(scope, parent, chain.keys[block], &content)
                else {
                    break;
                };
                drop(content);
                let Some(block) = self.kv.ledger.take(place) else { break };
                let chain = row.chain_mut(number);
                chain.blocks.push(block);
                chain.links.push(link);
            }
        }
    }

    /// The rows that decode: what they got last, usually one token, is computed. It may need blocks.
    fn draft_decodes(&mut self, drafts: &mut Vec<Draft>, published: &mut Vec<(RequestId, BlockId)>) {
        for (relquery, index) in self.decoding_rows() {
            let row = self.relqueries.get_mut(&relquery).expect("it runs").row_mut(index);
            let mut missing = row.blocks_missing(self.config.block_tokens);
            while let Some(block) = (missing > 0).then(|| self.kv.ledger.grant()).flatten() {
                row.own.blocks.push(block);
                missing -= 1;
            }
            if missing > 0 {
                continue; // Room was made before; a row that finds none all the same waits for the next step.
            }
            let (start, end) = (row.computed, row.total());
            if self.config.publish_generated {
                self.publish(relquery, index, start, end, published);
            }
            drafts.push(Draft {
                relquery,
                index,
                start,
                end,
                drafted: None,
                is_new: false,
                leads: true,
                is_prefill: false,
            });
        }
    }

    /// The next chunk of a row whose blocks are granted already.
    fn draft_partial(
        &mut self,
        admitted: &Admitted,
        drafts: &mut Vec<Draft>,
        published: &mut Vec<(RequestId, BlockId)>,
    ) {
        let row = self.relqueries[&admitted.relquery].row(admitted.index);
        let end = row.behind(admitted.take);
        self.draft_prefill(admitted, end, false, (drafts, published));
    }

    /// A slot for each section that is computed before index `end`.
    fn draft_prefill(
        &mut self,
        &Admitted { relquery, index, .. }: &Admitted,
        end: u32,
        is_new: bool,
        (drafts, published): (&mut Vec<Draft>, &mut Vec<(RequestId, BlockId)>),
    ) {
        let left: Vec<_> = self.relqueries[&relquery].row(index).left(end).collect();
        for (number, Range { start, end }) in left.into_iter().enumerate() {
            self.publish(relquery, index, start, end, published);
            let leads = number == 0;
            let is_new = is_new && leads;
            drafts.push(Draft {
                relquery,
                index,
                start,
                end,
                drafted: None,
                is_new,
                leads,
                is_prefill: true,
            });
        }
    }

    /// The first chunk, usually the whole, of a new row.
    fn draft_new(
        &mut self,
        admitted: &Admitted,
        drafts: &mut Vec<Draft>,
        published: &mut Vec<(RequestId, BlockId)>,
    ) {
        let Admitted { relquery, index, take } = *admitted;
        self.hold_hits(relquery, index);
        let block_tokens = self.config.block_tokens;
        // Only who continues chunks may make one; hits may be fewer than admission saw.
        let may_cut = self.continues_prompts();
        let row = self.relqueries.get_mut(&relquery).expect("it was admitted").row_mut(index);
        for part in &mut row.parts {
            part.hit = part.tokens().min(part.chain.blocks.len() as u32 * block_tokens);
        }
        row.own_hit = row.own.blocks.len() as u32 * block_tokens;
        for number in 0..=row.parts.len() {
            let tokens = row.parts.get(number).map_or(row.own_total(), PromptPart::tokens);
            while row.chain(number).blocks.len() < tokens.div_ceil(block_tokens) as usize {
                match self.kv.ledger.grant() {
                    Some(block) => row.chain_mut(number).blocks.push(block),
                    None => {
                        // Fewer hits than admission counted on (a forced collision): the row waits on.
                        self.take_back(relquery, index);
                        return;
                    }
                }
            }
        }
        let end = if may_cut { row.behind(take) } else { row.total() };
        self.telemetry.counters.prompt_tokens += u64::from(row.total());
        self.telemetry.counters.prefix_hit_tokens += u64::from(row.total() - row.missing());
        self.draft_prefill(admitted, end, true, (drafts, published));
    }

    /// Publishes the blocks that indices `start..end`, of one section, fill; of a row whose prompt is still scored,
    /// none.
    pub(crate) fn publish(
        &mut self,
        id: RelQueryId,
        index: u32,
        start: u32,
        end: u32,
        published: &mut Vec<(RequestId, BlockId)>,
    ) {
        let block_tokens = self.config.block_tokens;
        let relquery = self.relqueries.get_mut(&id).expect("its slot is being written");
        let scope = relquery.scope;
        let row = relquery.row_mut(index);
        if row.scores_prompt() {
            return; // It holds none of the cached blocks that others would have to reach its own by.
        }
        let part = row.part_at(start);
        let first = row.part_start(part);
        let content_end = if self.config.publish_generated { end } else { end.min(row.prompt_len()) };
        let filled_end = match row.parts.get(part) {
            // Nothing is ever added to a whole section: its last block can be hit as it is.
            Some(part) if content_end == part.end() => part.tokens().div_ceil(block_tokens),
            _ => content_end.saturating_sub(first) / block_tokens,
        };
        let filled = ((start - first) / block_tokens)..filled_end;
        if filled.is_empty() {
            return;
        }
        row.make_keys(&self.kv.hasher, scope, (part, filled.end), block_tokens);
        let scope = row.chain_scope(&self.kv.hasher, scope, part);
        for number in filled {
            let number = number as usize;
            let chain = row.chain(part);
            if chain.links.len() != number {
                return; // A block before it is private, so this one cannot be reached.
            }
            let parent = chain.links.last().copied().unwrap_or(PublicationId::default());
            let (block, key) = (chain.blocks[number], chain.keys[number]);
            let content = row.block_content(part, number, block_tokens);
            let publication = self.kv.ledger.publish(block, scope, parent, key, &content);
            drop(content);
            match publication {
                Publication::New(link) => {
                    published.extend(row.request.map(|request| (request, block)));
                    row.chain_mut(part).links.push(link);
                }
                Publication::Known(link) => row.chain_mut(part).links.push(link),
                Publication::Collision => return,
            }
        }
    }

    /// The plan of the drafted slots.
    fn write(&mut self, drafts: &[Draft]) -> BatchPlan {
        let step = StepId(self.steps.next_step);
        self.steps.next_step += 1;
        let block_tokens = self.config.block_tokens;
        let rows: Vec<&Row> =
            drafts.iter().map(|draft| self.relqueries[&draft.relquery].row(draft.index)).collect();
        let contexts: Vec<Context<'_>> =
            drafts.iter().zip(&rows).map(|(draft, row)| context(row, draft.start)).collect();
        let runs = cut(&contexts, block_tokens);
        let slots = drafts.iter().zip(rows).zip(runs);
        let slots = slots.map(|((draft, row), context)| slot(draft, row, context, block_tokens)).collect();
        let moves = self.kv.ledger.send_moves();
        BatchPlan { step, moves, slots, retired: std::mem::take(&mut self.steps.retired) }
    }
}

/// What stands before index `start` in its section.
fn context(row: &Row, start: u32) -> Context<'_> {
    let part = row.part_at(start);
    Context { blocks: &row.chain(part).blocks, tokens: start - row.part_start(part) }
}

/// What is remembered of each slot until the step is settled.
fn flight_slots(drafts: Vec<Draft>, plan: &BatchPlan) -> Vec<FlightSlot> {
    let slots = drafts.into_iter().zip(&plan.slots);
    slots
        .map(|(draft, slot)| FlightSlot {
            request: slot.request,
            relquery: draft.relquery,
            start: draft.start,
            end: draft.end,
            drafted: draft.drafted,
            is_prefill: draft.is_prefill,
            samples: slot.sample.is_some(),
            targets: slot.prompt_targets.as_ref().map(|targets| targets.tokens.len() as u64),
            is_new: draft.is_new,
            leads: draft.leads,
        })
        .collect()
}

/// One slot of the plan.
fn slot(draft: &Draft, row: &Row, own: Vec<Run>, block_tokens: u32) -> Slot {
    let mut input: Vec<TokenId> = row.tokens(draft.start, draft.end).into_owned();
    let guesses: &[TokenId] = draft.drafted.as_ref().map_or(&[], |drafted| &drafted.tokens);
    input.extend_from_slice(guesses);
    let guesses = guesses.len() as u32;
    let number = row.part_at(draft.start);
    let section = row.parts.get(number).map_or_else(|| row.own_section(), |part| part.section);
    let (from, to) = (draft.start - row.part_start(number), draft.end - row.part_start(number) + guesses);
    let (first, last) = ((from / block_tokens) as usize, to.div_ceil(block_tokens) as usize);
    let context = match row.parts.is_empty() {
        true => own,
        false => [sections::runs(&row.parts, section, number, block_tokens), own].concat(),
    };
    let sample = (draft.end == row.total()).then(|| SampleSpec {
        generation: row.item.generation.clone(),
        seed: row.item.seed,
        output_index: row.generated.len() as u32,
        already_generated: if draft.is_prefill { row.generated.clone() } else { Vec::new() },
        prompt: row.item.generation.needs_prompt().then(|| row.item.prompt.clone()),
    });
    Slot {
        request: row.request.expect("given when the row was admitted"),
        start: section.numbering() + from,
        input,
        guesses,
        context,
        write_blocks: row.chain(number).blocks[first..last].to_vec(),
        write_offset: from % block_tokens,
        prompt_targets: if draft.is_prefill { row.prompt_targets(draft.start, draft.end) } else { None },
        sample,
        is_prefill: draft.is_prefill,
    }
}
