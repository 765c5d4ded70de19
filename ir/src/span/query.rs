//! The tree of a span query (Span Queries, Definition 2 and Table 1).

use std::sync::Arc;

use base::{Constraint, Role};

use super::path::Place;

/// A span query, or a part of one.
#[derive(Clone, Debug, PartialEq)]
pub enum SpanQuery {
    /// A message (S, U or A).
    Message(Role, Arc<str>),
    /// Parts one after the other. The reference executes them in turn; a query has no side effects, so that
    /// their outputs stand in turn is all that is left of it.
    Seq(Vec<SpanQuery>),
    /// Parts that do not commute (⋈).
    Cross(Vec<SpanQuery>),
    /// Parts that commute (+): each is computed seeing only itself.
    Plus(Vec<SpanQuery>),
    /// Text that a model writes (G).
    Generate(Generate),
    /// A span that is computed before anybody asks for it (G¹): what it generates is of no use, its keys and
    /// values are.
    Prepare(Box<SpanQuery>),
    /// A chat completion (C): sugar for a generate over a join.
    Chat {
        /// Its messages, in order.
        input: Vec<SpanQuery>,
        /// How it is generated.
        params: Arc<Params>,
    },
    /// What a corpus has on something (R).
    Retrieval(Retrieval),
    /// Copies of a query, each with outputs of its own.
    Repeat {
        /// How many; at least 1.
        times: u32,
        /// Of what.
        query: Box<SpanQuery>,
    },
    /// Something said to the user while the query runs; nothing to a model.
    Print(Arc<str>),
}

/// A call of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Generate {
    /// What it answers.
    pub input: Box<SpanQuery>,
    pub params: Arc<Params>,
    /// Whether who takes its output takes its input with it, in front (Fig. 7d): so the output stands where
    /// its keys and values were computed.
    pub with_input: bool,
}

/// How text is generated. What is absent is the server's to decide.
#[derive(Clone, Debug, PartialEq)]
pub struct Params {
    /// The model's name.
    pub model: Option<Arc<str>>,
    /// Most output tokens; `max_tokens` 0 is absent.
    pub max_tokens: Option<u64>,
    /// 0 is greedy.
    pub temperature: f32,
    /// Keep the most likely tokens whose probabilities sum to this.
    pub top_p: Option<f32>,
    /// Keep this many most likely tokens.
    pub top_k: Option<u32>,
    /// What draws follow from; each call draws its own.
    pub seed: Option<u64>,
    /// Texts that end the output and are no part of it.
    pub stop: Vec<String>,
    /// The form of the output.
    pub constraint: Option<Constraint>,
    /// The node that says so.
    pub place: Place,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            model: None,
            max_tokens: None,
            // What the reference takes where a query does not say.
            temperature: 0.6,
            top_p: None,
            top_k: None,
            seed: None,
            stop: Vec::new(),
            constraint: None,
            place: Place::default(),
        }
    }
}

impl Params {
    /// Whether they say the same but for the seed.
    pub fn is_like(&self, other: &Self) -> bool {
        let Self { model, max_tokens, temperature, top_p, top_k, seed: _, stop, constraint, place: _ } = self;
        (model, max_tokens, temperature, top_p)
            == (&other.model, &other.max_tokens, &other.temperature, &other.top_p)
            && (top_k, stop, constraint) == (&other.top_k, &other.stop, &other.constraint)
    }
}

/// A search for fragments of a corpus.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Retrieval {
    /// The corpus's name.
    pub corpus: Arc<str>,
    /// What is searched for.
    pub query: Arc<str>,
    /// Most fragments.
    pub k: u32,
}

/// How large a query is, copies counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct QuerySize {
    pub(super) nodes: usize,
    pub(super) bytes: usize,
}

impl SpanQuery {
    /// The searches of a query, in order, each once.
    pub fn retrievals(&self) -> Vec<Retrieval> {
        let mut found = Vec::new();
        self.visit(&mut |query| {
            if let Self::Retrieval(retrieval) = query
                && !found.contains(retrieval)
            {
                found.push(retrieval.clone());
            }
        });
        found
    }

    /// The nodes directly below this one, in reading order.
    pub fn children(&self) -> &[Self] {
        match self {
            Self::Message(..) | Self::Retrieval(_) | Self::Print(_) => &[],
            Self::Seq(parts) | Self::Cross(parts) | Self::Plus(parts) | Self::Chat { input: parts, .. } => {
                parts
            }
            Self::Generate(Generate { input, .. }) => std::slice::from_ref(input),
            Self::Prepare(query) | Self::Repeat { query, .. } => std::slice::from_ref(query),
        }
    }

    /// The same, to change them.
    pub(super) fn children_mut(&mut self) -> &mut [Self] {
        match self {
            Self::Message(..) | Self::Retrieval(_) | Self::Print(_) => &mut [],
            Self::Seq(parts) | Self::Cross(parts) | Self::Plus(parts) | Self::Chat { input: parts, .. } => {
                parts
            }
            Self::Generate(Generate { input, .. }) => std::slice::from_mut(input),
            Self::Prepare(query) | Self::Repeat { query, .. } => std::slice::from_mut(query),
        }
    }

    /// Calls `see` for this node and all below it, in reading order.
    pub(super) fn visit<'a>(&'a self, see: &mut dyn FnMut(&'a Self)) {
        see(self);
        self.children().iter().for_each(|child| child.visit(see));
    }

    /// Nodes and bytes of text.
    pub(super) fn size(&self) -> QuerySize {
        let own = match self {
            Self::Message(_, text) | Self::Print(text) => text.len(),
            Self::Retrieval(retrieval) => retrieval.query.len(),
            _ => 0,
        };
        let mut size = QuerySize { nodes: 1, bytes: own };
        for child in self.children().iter().map(Self::size) {
            size.nodes = size.nodes.saturating_add(child.nodes);
            size.bytes = size.bytes.saturating_add(child.bytes);
        }
        if let Self::Repeat { times, .. } = self {
            let times = *times as usize;
            size = QuerySize {
                nodes: size.nodes.saturating_mul(times),
                bytes: size.bytes.saturating_mul(times),
            };
        }
        size
    }
}
