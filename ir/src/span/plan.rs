//! The calls that a query takes, inputs first, and what each one reads.
//!
//! A rewritten query is a tree of generates; a plan is the same as a list, in which every input stands before
//! what reads it. Who runs it is free to run side by side whatever does not wait for one another, and to send
//! calls that share a [`Call::batch`] as rows of one relQuery.

use std::sync::Arc;

use base::Role;

use super::error::SpanError;
use super::query::{Generate, Params, SpanQuery};

/// Number of a call in its plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub usize);

/// The calls of a query.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The calls by number; those whose outputs a call reads stand before it.
    pub calls: Vec<Call>,
    /// What the query becomes when all have run: its messages, and the outputs that nobody reads.
    pub output: Vec<SpanPart>,
}

/// A call of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// Its number.
    pub id: CallId,
    /// How it generates.
    pub params: Arc<Params>,
    /// What it reads, in order; never nothing.
    pub items: Vec<Item>,
    /// The calls whose outputs it reads, each once, ascending.
    pub inputs: Vec<CallId>,
    /// The longest way from it to a call without inputs.
    pub level: u32,
    /// Calls with this number have equal parameters (but for the seed, which is a row's own) and level, so
    /// that none waits for another: rows of one relQuery. Batches only read outputs of lower ones.
    pub batch: u32,
    /// Whether a call reads its prompt with its output, as a span: worth preparing when it ends
    /// ([`Plan::span`]).
    pub is_span: bool,
}

/// Something that a call reads.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// Seen by all that follows it.
    Part(SpanPart),
    /// Spans that commute. Each sees only itself.
    Group(Vec<SpanMember>),
}

/// A span among others with which it commutes.
#[derive(Clone, Debug, PartialEq)]
pub struct SpanMember {
    /// What it is made of; never nothing. A plus inside it is no group: its parts stand here in the order
    /// given, and see one another as any text does.
    pub parts: Vec<SpanPart>,
    /// Whether it may be computed before the call that reads it (G¹).
    pub is_prepared: bool,
}

/// A part of a prompt or of a result.
#[derive(Clone, Debug, PartialEq)]
pub enum SpanPart {
    Message(Role, Arc<str>),
    /// The output of a call, as an assistant's message.
    Output(CallId),
    /// The prompt of a call and its output: its tokens as they lie in the cache, and the end of the message.
    Whole(CallId),
}

impl Plan {
    /// Plans a query in which no sugar is left, and which asks a model.
    pub fn new(query: &SpanQuery) -> Result<Self, SpanError> {
        let plan = Self::to_explain(query)?;
        if plan.calls.is_empty() { Err(SpanError::NoGenerate) } else { Ok(plan) }
    }

    /// The same of a query that may ask no model: there is nothing to run then, and something to explain.
    pub fn to_explain(query: &SpanQuery) -> Result<Self, SpanError> {
        let mut planner = Planner { calls: Vec::new() };
        let mut output = Vec::new();
        planner.parts(query, &mut output)?;
        let mut calls = planner.calls;
        number_batches(&mut calls);
        Ok(Self { calls, output })
    }

    /// A call.
    ///
    /// # Panics
    /// Where the number is another plan's.
    pub fn call(&self, id: CallId) -> &Call {
        &self.calls[id.0]
    }

    /// The plan in which a call reads other calls' outputs alone, not behind their prompts: as it was before
    /// `distribute_plus`. `None` where it reads no prompt.
    pub fn without_prompts(&self, id: CallId) -> Option<Self> {
        let mut plan = self.clone();
        let mut is_other = false;
        for part in plan.calls[id.0].items.iter_mut().flat_map(Item::parts_mut) {
            if let SpanPart::Whole(inner) = *part {
                *part = SpanPart::Output(inner);
                is_other = true;
            }
        }
        is_other.then_some(plan)
    }
}

impl Call {
    /// Whether its prompt has spans: without, it is an exact prompt like any other.
    pub fn has_groups(&self) -> bool {
        self.items.iter().any(|item| matches!(item, Item::Group(_)))
    }

    /// Its spans that may be computed ahead of it.
    pub fn prepared(&self) -> impl Iterator<Item = &SpanMember> {
        let members = self.items.iter().flat_map(|item| match item {
            Item::Group(members) => members.as_slice(),
            Item::Part(_) => &[],
        });
        members.filter(|member| member.is_prepared)
    }
}

impl SpanPart {
    /// The call whose output it holds.
    pub fn call(&self) -> Option<CallId> {
        match self {
            Self::Message(..) => None,
            Self::Output(id) | Self::Whole(id) => Some(*id),
        }
    }
}

struct Planner {
    calls: Vec<Call>,
}

impl Planner {
    fn call(&mut self, generate: &Generate) -> Result<CallId, SpanError> {
        let mut items = Vec::new();
        self.items(&generate.input, &mut items)?;
        if items.is_empty() {
            let path = generate.params.place.path().to_owned();
            return Err(SpanError::At { path, reason: "has nothing in its input".into() });
        }
        let mut inputs: Vec<CallId> = items.iter().flat_map(Item::parts).filter_map(SpanPart::call).collect();
        inputs.sort_unstable();
        inputs.dedup();
        let level = inputs.iter().map(|input| self.calls[input.0].level + 1).max().unwrap_or(0);
        for part in items.iter().flat_map(Item::parts) {
            if let SpanPart::Whole(inner) = part {
                self.calls[inner.0].is_span = true;
            }
        }
        let id = CallId(self.calls.len());
        let params = Arc::clone(&generate.params);
        self.calls.push(Call { id, params, items, inputs, level, batch: 0, is_span: false });
        Ok(id)
    }

    /// What a generate reads: a plus is a group, unless another is around it.
    fn items(&mut self, query: &SpanQuery, items: &mut Vec<Item>) -> Result<(), SpanError> {
        match query {
            SpanQuery::Seq(parts) | SpanQuery::Cross(parts) => {
                parts.iter().try_for_each(|part| self.items(part, items))?;
            }
            SpanQuery::Plus(spans) => {
                let mut members = Vec::with_capacity(spans.len());
                for span in spans {
                    let mut parts = Vec::new();
                    self.parts(span, &mut parts)?;
                    if !parts.is_empty() {
                        members
                            .push(SpanMember { parts, is_prepared: matches!(span, SpanQuery::Prepare(_)) });
                    }
                }
                if !members.is_empty() {
                    items.push(Item::Group(members));
                }
            }
            other => {
                let mut parts = Vec::new();
                self.parts(other, &mut parts)?;
                items.extend(parts.into_iter().map(Item::Part));
            }
        }
        Ok(())
    }

    /// The parts of a span, in order.
    fn parts(&mut self, query: &SpanQuery, parts: &mut Vec<SpanPart>) -> Result<(), SpanError> {
        match query {
            SpanQuery::Message(role, text) => parts.push(SpanPart::Message(*role, Arc::clone(text))),
            SpanQuery::Seq(inner) | SpanQuery::Cross(inner) | SpanQuery::Plus(inner) => {
                inner.iter().try_for_each(|part| self.parts(part, parts))?;
            }
            SpanQuery::Generate(generate) => {
                let id = self.call(generate)?;
                let is_whole = generate.with_input && !self.calls[id.0].has_groups();
                parts.push(if is_whole { SpanPart::Whole(id) } else { SpanPart::Output(id) });
            }
            SpanQuery::Prepare(inner) => self.parts(inner, parts)?,
            SpanQuery::Print(_) => {}
            SpanQuery::Chat { .. } => return Err(SpanError::Sugar("chat")),
            SpanQuery::Retrieval(_) => return Err(SpanError::Sugar("retrieval")),
            SpanQuery::Repeat { .. } => return Err(SpanError::Sugar("repeat")),
        }
        Ok(())
    }
}

impl Item {
    fn parts_mut(&mut self) -> impl Iterator<Item = &mut SpanPart> {
        let (own, members) = match self {
            Self::Part(part) => (Some(part), &mut [][..]),
            Self::Group(members) => (None, members.as_mut_slice()),
        };
        own.into_iter().chain(members.iter_mut().flat_map(|member| &mut member.parts))
    }

    /// All parts in it.
    pub fn parts(&self) -> impl Iterator<Item = &SpanPart> {
        let (own, members) = match self {
            Self::Part(part) => (Some(part), &[][..]),
            Self::Group(members) => (None, members.as_slice()),
        };
        own.into_iter().chain(members.iter().flat_map(|member| &member.parts))
    }
}

/// Numbers the batches: by level, and inside a level by the first call.
fn number_batches(calls: &mut [Call]) {
    let mut order: Vec<usize> = (0..calls.len()).collect();
    order.sort_by_key(|call| calls[*call].level);
    let mut level = 0;
    let mut batches: Vec<(u32, Arc<Params>)> = Vec::new();
    let mut next = 0;
    for call in order {
        if calls[call].level > level {
            level = calls[call].level;
            batches.clear();
        }
        let params = &calls[call].params;
        let known = batches.iter().find(|(_, other)| Arc::ptr_eq(other, params) || other.is_like(params));
        calls[call].batch = known.map(|(batch, _)| *batch).unwrap_or_else(|| {
            batches.push((next, Arc::clone(params)));
            next += 1;
            next - 1
        });
    }
}
