//! Fragments with their vectors, and which are nearest to a question's.
//!
//! A search looks at all fragments exactly, until there is a graph of them ([`crate::graph`]), which takes
//! long to make and is made beside the searches: [`Index::draft`], [`GraphDraft::finish`], [`Index::adopt`].
//! Its candidates are ranked again by their exact scores, and what was added since is looked at exactly. A
//! removed fragment is skipped at once and leaves the memory when a quarter is dead. Equal scores are ordered
//! by document and place.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::error::Error;
use crate::graph::{Graph, dot};

/// So many fragments need no graph: looking at all of them takes less than a millisecond.
const EXACT_MAX: usize = 2_048;
/// A graph is made anew when what was added since is more than one in this many of it.
const ADDED_SHARE: usize = 4;
/// Of this many fragments one may be dead before all are packed anew.
const DEAD_SHARE: usize = 4;
/// A piece of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// The document's name.
    pub document: Arc<str>,
    /// Its place among the document's fragments.
    pub number: u32,
    /// What it says.
    pub text: Arc<str>,
    /// Its tokens, as the embedding model counts them.
    pub tokens: u32,
}

/// A fragment that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Hit {
    pub fragment: Fragment,
    /// The cosine of its vector and the question's, from -1 to 1.
    pub score: f32,
}

/// Fragments of one corpus.
pub struct Index {
    dims: usize,
    fragments_max: usize,
    /// By slot; a dead one is `None`.
    fragments: Vec<Option<Fragment>>,
    /// `dims` numbers a slot.
    vectors: Vec<f32>,
    dead: usize,
    /// The first slots, once they are many.
    graph: Option<Graph>,
    /// Another whenever slots get other numbers.
    numbering: Arc<()>,
}

/// What a graph is made of.
pub struct GraphDraft {
    numbering: Arc<()>,
    dims: usize,
    vectors: Vec<f32>,
}

/// A finished graph.
pub struct Links {
    numbering: Arc<()>,
    graph: Graph,
}

impl GraphDraft {
    /// Makes the graph: about a millisecond a fragment. None where `stop` said so.
    pub fn finish(self, stop: &dyn Fn() -> bool) -> Option<Links> {
        let graph = Graph::of(&self.vectors, self.dims, stop)?;
        Some(Links { numbering: self.numbering, graph })
    }
}

impl std::fmt::Debug for Index {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Index {{ dims: {}, fragments: {} }}", self.dims, self.len())
    }
}

impl Index {
    /// An empty index of vectors of `dims` numbers, for at most `fragments_max` fragments.
    pub fn new(dims: usize, fragments_max: usize) -> Self {
        let (fragments, vectors, numbering) = (Vec::new(), Vec::new(), Arc::new(()));
        Self { dims, fragments_max, fragments, vectors, dead: 0, graph: None, numbering }
    }

    /// Fragments in it.
    pub fn len(&self) -> usize {
        self.fragments.len() - self.dead
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a fragment. Its vector must be of length 1.
    pub fn add(&mut self, fragment: Fragment, vector: &[f32]) -> Result<(), Error> {
        if self.len() >= self.fragments_max {
            let reason = format!("are {} already, the most that an index holds", self.fragments_max);
            return Err(Error::Invalid { field: "fragments", reason });
        }
        self.check(vector)?;
        self.fragments.push(Some(fragment));
        self.vectors.extend_from_slice(vector);
        Ok(())
    }

    /// Removes all fragments of a document; says how many those were.
    pub fn remove(&mut self, document: &str) -> usize {
        let is_its =
            |fragment: &Option<Fragment>| fragment.as_ref().is_some_and(|f| &*f.document == document);
        let mut removed = 0;
        for fragment in self.fragments.iter_mut().filter(|fragment| is_its(fragment)) {
            *fragment = None;
            removed += 1;
        }
        self.dead += removed;
        if self.dead * DEAD_SHARE > self.fragments.len() {
            self.pack();
        }
        removed
    }

    /// The `count` fragments nearest to a vector of length 1, the nearest first.
    pub fn search(&self, vector: &[f32], count: usize) -> Result<Vec<Hit>, Error> {
        self.check(vector)?;
        let wanted = count.min(self.len());
        let mut ranked = match &self.graph {
            // As many more candidates as there may be dead among them; and all that the graph does not know.
            Some(graph) => {
                let near = graph.near(vector, wanted + wanted / DEAD_SHARE + 1);
                self.rank(vector, near.into_iter().chain(graph.points()..self.fragments.len()))
            }
            None => Vec::new(),
        };
        // Dead ones may have left too few.
        if ranked.len() < wanted {
            ranked = self.rank(vector, 0..self.fragments.len());
        }
        ranked.truncate(wanted);
        Ok(ranked.into_iter().map(|(score, fragment)| Hit { fragment: fragment.clone(), score }).collect())
    }

    /// The living of these slots, by score.
    fn rank(&self, vector: &[f32], slots: impl Iterator<Item = usize>) -> Vec<(f32, &Fragment)> {
        let scored = |slot: usize| Some((dot(vector, self.vector(slot)), self.fragments[slot].as_ref()?));
        let mut ranked: Vec<(f32, &Fragment)> = slots.filter_map(scored).collect();
        ranked.sort_by(|a, b| best_first(*a, *b));
        ranked
    }

    fn vector(&self, slot: usize) -> &[f32] {
        &self.vectors[slot * self.dims..][..self.dims]
    }

    /// Whether a graph, or another one, would make searches shorter.
    pub fn wants_graph(&self) -> bool {
        let points = self.graph.as_ref().map_or(0, Graph::points);
        self.fragments.len() - points > EXACT_MAX.max(points / ADDED_SHARE)
    }

    /// What to make a graph of; none where a search does well as it is.
    pub fn draft(&self) -> Option<GraphDraft> {
        let numbering = || Arc::clone(&self.numbering);
        let draft = || GraphDraft { numbering: numbering(), dims: self.dims, vectors: self.vectors.clone() };
        self.wants_graph().then(draft)
    }

    /// Searches by a graph from now on. One of another index, or of before slots got other numbers, is not
    /// taken.
    pub fn adopt(&mut self, links: Links) {
        if Arc::ptr_eq(&links.numbering, &self.numbering) {
            self.graph = Some(links.graph);
        }
    }

    /// Forgets dead slots.
    fn pack(&mut self) {
        let mut vectors = Vec::with_capacity(self.len() * self.dims);
        for (slot, _) in self.fragments.iter().enumerate().filter(|(_, fragment)| fragment.is_some()) {
            vectors.extend_from_slice(self.vector(slot));
        }
        self.fragments.retain(Option::is_some);
        (self.vectors, self.dead) = (vectors, 0);
        (self.graph, self.numbering) = (None, Arc::new(()));
    }

    fn check(&self, vector: &[f32]) -> Result<(), Error> {
        if vector.len() != self.dims {
            let reason = format!("has {} numbers where {} are due", vector.len(), self.dims);
            return Err(Error::Invalid { field: "vector", reason });
        }
        let is_unit = (dot(vector, vector) - 1.0).abs() < 1e-3;
        if !is_unit {
            return Err(Error::Invalid { field: "vector", reason: "is not of length 1".into() });
        }
        Ok(())
    }

    /// Panics where the parts do not agree.
    pub fn check_invariants(&self) {
        assert_eq!(self.vectors.len(), self.fragments.len() * self.dims, "a vector for each slot");
        let living = self.fragments.iter().flatten().count();
        assert_eq!(living + self.dead, self.fragments.len(), "each slot lives or is dead");
        assert!(living <= self.fragments_max, "the bound holds");
        let points = self.graph.as_ref().map_or(0, Graph::points);
        assert!(points <= self.fragments.len(), "the graph knows no more than there is");
    }
}

/// The higher score, then the earlier document and place. Scores are numbers: unit vectors made them.
fn best_first(a: (f32, &Fragment), b: (f32, &Fragment)) -> Ordering {
    let place = |fragment: &Fragment| (Arc::clone(&fragment.document), fragment.number);
    b.0.total_cmp(&a.0).then_with(|| place(a.1).cmp(&place(b.1)))
}
