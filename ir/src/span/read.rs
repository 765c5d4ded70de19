//! The JSON of a span query: one object with one key per node, as the reference implementation writes it.
//!
//! ```text
//! node      = {"system": TEXT} | {"user": TEXT} | {"assistant": TEXT} | {"print": TEXT}
//!           | {"seq": [node, ..]} | {"cross": [node, ..]} | {"plus": [node, ..]}
//!           | {"g": {"input": node, PARAMS}} | {"chat": {"input": [node, ..], PARAMS}}
//!           | {"retrieval": {"corpus": NAME, "query": TEXT or node, "k": COUNT}}
//!           | {"repeat": {"n": COUNT, "g": {..}}} | {"repeat": {"n": COUNT, "query": node}}
//!           | {"map": {"over": [item, ..], "query": node}}
//! item      = TEXT | {NAME: TEXT, ..}
//! PARAMS    = model, max_tokens, temperature, top_p, top_k, seed, stop, constraint: each may be absent
//! ```
//!
//! Both spellings of `repeat` are found there, as are numbers in quotes. `chat` (C) and `retrieval` (R) are
//! the paper's sugar, which the reference has no JSON for; `map` is ours. It is written out as it is read: a
//! copy for each item among the nodes around it, or a `cross` of them where one node is wanted. Its Lisp and YAML notations are no wire format and
//! are not read.

use std::sync::Arc;

use base::Role;
use serde_json::Value;

use super::error::SpanError;
use super::items::{MapItem, fill};
use super::params::{self, SpanFields, brief, whole};
use super::path::{Path, shown};
use super::query::{Generate, Params, Retrieval, SpanQuery};

/// Bounds of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanLimits {
    /// Nodes inside one another.
    pub depth_max: usize,
    /// Nodes, those counted that repetition, retrieval and rules make.
    pub nodes_max: usize,
    /// Bytes of text, counted likewise.
    pub bytes_max: usize,
    /// Copies that one `repeat` makes.
    pub repeat_max: u32,
    /// Fragments that one `retrieval` finds.
    pub fragments_max: u32,
}

impl Default for SpanLimits {
    fn default() -> Self {
        Self { depth_max: 32, nodes_max: 4_096, bytes_max: 4 << 20, repeat_max: 255, fragments_max: 256 }
    }
}

/// The keys of nodes.
const NODES: &str = "system, user, assistant, seq, cross, plus, g, chat, retrieval, repeat, map, print";

impl SpanQuery {
    /// Reads a query from JSON, in which no object had a key twice: who parsed it has seen to that.
    pub fn read(value: &Value, limits: &SpanLimits) -> Result<Self, SpanError> {
        let mut reader = QueryReader { limits, depth: 0, copies: 1, items: Vec::new(), nodes: 0, bytes: 0 };
        reader.node(value, &Path::Root)
    }
}

struct QueryReader<'a> {
    limits: &'a SpanLimits,
    /// Nodes around the one at hand.
    depth: usize,
    /// Times that the node at hand will be there.
    copies: usize,
    /// Of each `map` around the node at hand, outermost first, the item at hand.
    items: Vec<MapItem>,
    nodes: usize,
    bytes: usize,
}

impl QueryReader<'_> {
    fn node(&mut self, value: &Value, path: &Path<'_>) -> Result<SpanQuery, SpanError> {
        let mut nodes = self.spread(value, path)?;
        Ok(if nodes.len() == 1 { nodes.remove(0) } else { SpanQuery::Cross(nodes) })
    }

    /// A node as it stands among others: a `map` is as many as it has items.
    fn spread(&mut self, value: &Value, path: &Path<'_>) -> Result<Vec<SpanQuery>, SpanError> {
        let Value::Object(map) = value else {
            return path.bad(format!("must be an object with one of the keys {NODES}, not {}", brief(value)));
        };
        let mut entries = map.iter();
        let (Some((key, value)), None) = (entries.next(), entries.next()) else {
            let keys = map.len();
            return path.bad(format!("must be an object with one key, has {keys}; the keys are {NODES}"));
        };
        self.depth += 1;
        if self.depth > self.limits.depth_max {
            return path.bad(format!("more than {} nodes inside one another", self.limits.depth_max));
        }
        self.count(path, self.copies)?;
        let nodes = match key.as_str() {
            "map" => self.map(value, &Path::Key(path, key)),
            _ => self.operator(key, value, path).map(|query| vec![query]),
        };
        self.depth -= 1;
        nodes
    }

    fn operator(&mut self, key: &str, value: &Value, parent: &Path<'_>) -> Result<SpanQuery, SpanError> {
        let path = &Path::Key(parent, key);
        Ok(match key {
            "system" => SpanQuery::Message(Role::System, self.text(value, path)?),
            "user" => SpanQuery::Message(Role::User, self.text(value, path)?),
            "assistant" => SpanQuery::Message(Role::Assistant, self.text(value, path)?),
            "print" => SpanQuery::Print(self.text(value, path)?),
            "seq" => SpanQuery::Seq(self.nodes(value, path)?),
            "cross" => SpanQuery::Cross(self.nodes(value, path)?),
            "plus" => SpanQuery::Plus(self.nodes(value, path)?),
            "g" => {
                let fields = SpanFields::of(value, path, &[&["input"], &params::NAMES])?;
                let input = Box::new(self.node(fields.required("input")?, &Path::Key(path, "input"))?);
                SpanQuery::Generate(Generate {
                    input,
                    params: Arc::new(params::read(fields)?),
                    with_input: false,
                })
            }
            "chat" => {
                let fields = SpanFields::of(value, path, &[&["input"], &params::NAMES])?;
                let input = self.nodes(fields.required("input")?, &Path::Key(path, "input"))?;
                SpanQuery::Chat { input, params: Arc::<Params>::new(params::read(fields)?) }
            }
            "retrieval" => self.retrieval(value, path)?,
            "repeat" => self.repeat(value, path)?,
            other => {
                return parent.bad(format!("`{}` is no node; the keys are {NODES}", shown(other)));
            }
        })
    }

    fn nodes(&mut self, value: &Value, path: &Path<'_>) -> Result<Vec<SpanQuery>, SpanError> {
        let Value::Array(items) = value else {
            return path.bad(format!("must be an array of nodes, not {}", brief(value)));
        };
        let mut nodes = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            nodes.extend(self.spread(item, &Path::Index(path, index))?);
        }
        Ok(nodes)
    }

    fn map(&mut self, value: &Value, path: &Path<'_>) -> Result<Vec<SpanQuery>, SpanError> {
        let fields = SpanFields::of(value, path, &[&["over", "query"]])?;
        let (over, query) = (fields.required("over")?, fields.required("query")?);
        let mut copies = Vec::new();
        for item in MapItem::all(over, &Path::Key(path, "over"))? {
            self.items.push(item);
            copies.extend(self.spread(query, &Path::Key(path, "query"))?);
            self.items.pop();
        }
        Ok(copies)
    }

    fn repeat(&mut self, value: &Value, path: &Path<'_>) -> Result<SpanQuery, SpanError> {
        let fields = SpanFields::of(value, path, &[&["n", "g", "query"]])?;
        let limit = self.limits.repeat_max;
        let times = |value: &Value| {
            whole(value).and_then(|n| u32::try_from(n).ok()).filter(|n| (1..=limit).contains(n))
        };
        fields.required("n")?;
        let times = fields.read("n", times, &format!("a whole number from 1 to {limit}"))?;
        let times = times.expect("it is there");
        let outside = self.copies;
        self.copies = outside.saturating_mul(times as usize);
        let query = match (fields.get("g"), fields.get("query")) {
            (Some(g), None) => {
                // Stands for {"g": ..}, without the braces; the path is what was written.
                self.count(path, self.copies)?;
                self.operator("g", g, path)?
            }
            (None, Some(query)) => self.node(query, &Path::Key(path, "query"))?,
            _ => return path.bad("must have `n` and one of `g` and `query`"),
        };
        self.copies = outside;
        Ok(SpanQuery::Repeat { times, query: Box::new(query) })
    }

    fn retrieval(&mut self, value: &Value, path: &Path<'_>) -> Result<SpanQuery, SpanError> {
        let fields = SpanFields::of(value, path, &[&["corpus", "query", "k"]])?;
        let limit = self.limits.fragments_max;
        let name = |value: &Value| value.as_str().filter(|name| !name.is_empty()).map(Arc::from);
        let count = |value: &Value| {
            whole(value).and_then(|k| u32::try_from(k).ok()).filter(|k| (1..=limit).contains(k))
        };
        for name in ["corpus", "k"] {
            fields.required(name)?;
        }
        let corpus = fields.read("corpus", name, "a corpus's name")?.expect("it is there");
        let k = fields.read("k", count, &format!("a whole number from 1 to {limit}"))?.expect("it is there");
        let at = Path::Key(path, "query");
        let query = match fields.required("query")? {
            text @ Value::String(_) => self.text(text, &at)?,
            other => {
                let (node, mut texts) = (self.node(other, &at)?, Vec::new());
                words(&node, &mut texts, &at)?;
                texts.join("\n").into()
            }
        };
        if query.trim().is_empty() {
            return at.bad("there is nothing to search for");
        }
        // What it finds counts when it is found; that it may find so much counts here.
        self.count(path, self.copies.saturating_mul(k as usize))?;
        Ok(SpanQuery::Retrieval(Retrieval { corpus, query, k }))
    }

    fn text(&mut self, value: &Value, path: &Path<'_>) -> Result<Arc<str>, SpanError> {
        let Value::String(text) = value else {
            return path.bad(format!("must be a text, not {}", brief(value)));
        };
        let limit = self.limits.bytes_max;
        let filled = fill(text, &self.items, limit, path)?;
        let bytes = filled.as_ref().map_or(limit.saturating_add(1), |text| text.len());
        self.bytes = self.bytes.saturating_add(bytes.saturating_mul(self.copies));
        match filled {
            Some(text) if self.bytes <= limit => Ok(text.into()),
            _ => {
                path.bad(format!("up to here the query has more than {limit} bytes of text, copies counted"))
            }
        }
    }

    /// Counts so many nodes.
    fn count(&mut self, path: &Path<'_>, nodes: usize) -> Result<(), SpanError> {
        self.nodes = self.nodes.saturating_add(nodes);
        let limit = self.limits.nodes_max;
        if self.nodes > limit {
            return path.bad(format!("up to here the query has more than {limit} nodes, copies counted"));
        }
        Ok(())
    }
}

/// The texts of a query that is made of nothing else.
fn words<'a>(query: &'a SpanQuery, texts: &mut Vec<&'a str>, path: &Path<'_>) -> Result<(), SpanError> {
    match query {
        SpanQuery::Message(_, text) => texts.push(text),
        SpanQuery::Seq(parts) | SpanQuery::Cross(parts) => {
            for part in parts {
                words(part, texts, path)?;
            }
        }
        _ => return path.bad("a corpus is searched for text: messages, `seq` and `cross`, nothing else"),
    }
    Ok(())
}
