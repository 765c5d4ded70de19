//! Fragments with their vectors, and which are nearest to a question's.
//!
//! Small sets are searched exactly; larger ones by the [`crate::graph`], whose candidates are ranked again by their exact
//! scores. A graph can lose points: many copies of one text take all each other's links, and what came later has none. So each
//! point is looked for in the graph, and what it does not reach is looked at in every search. A removed fragment is skipped at once and leaves the memory when a quarter is dead. Equal scores are ordered by
//! document and place, so that an index that was built again answers alike.

use std::cmp::Ordering;
use std::sync::Arc;

use crate::Error;
use crate::graph::{Graph, dot};

/// Up to this many fragments a search looks at all of them, which takes less than a millisecond.
const EXACT_MAX: usize = 2_048;
/// Of this many fragments one may be dead before all are packed anew.
const DEAD_SHARE: usize = 4;
/// When the index has grown so many times, the graph is asked again for all of them.
const GROWTH: usize = 2;
/// Scores this near are the same: those of copies of one text.
const SAME_SCORE: f32 = 1e-5;

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
    /// The fragment.
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
    /// All slots, once they are many.
    graph: Option<Graph>,
    /// Slots that the graph does not reach.
    loose: Vec<usize>,
    /// Slots there were when all were last asked.
    asked: usize,
}

impl std::fmt::Debug for Index {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Index {{ dims: {}, fragments: {} }}", self.dims, self.len())
    }
}

impl Index {
    /// An empty index of vectors of `dims` numbers, for at most `fragments_max` fragments.
    pub fn new(dims: usize, fragments_max: usize) -> Self {
        let (fragments, vectors, loose) = (Vec::new(), Vec::new(), Vec::new());
        Self { dims, fragments_max, fragments, vectors, dead: 0, graph: None, loose, asked: 0 }
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
        let slots = self.fragments.len();
        match &mut self.graph {
            Some(graph) => graph.insert(vector),
            None if slots > EXACT_MAX => {
                self.build();
                return Ok(());
            }
            None => return Ok(()),
        }
        if slots >= self.asked * GROWTH {
            self.ask_all();
        } else if !self.is_reached(slots - 1) {
            self.loose.push(slots - 1);
        }
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
            // As many more candidates as there may be dead among them.
            Some(graph) => {
                let near = graph.near(vector, wanted + wanted / DEAD_SHARE + 1);
                let mut slots: Vec<usize> = near.chain(self.loose.iter().copied()).collect();
                slots.sort_unstable();
                slots.dedup();
                self.rank(vector, slots.into_iter())
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

    /// Makes the graph of all slots.
    fn build(&mut self) {
        let mut graph = Graph::new(self.fragments.len());
        (0..self.fragments.len()).for_each(|slot| graph.insert(self.vector(slot)));
        self.graph = Some(graph);
        self.ask_all();
    }

    /// Notes which slots the graph does not reach.
    fn ask_all(&mut self) {
        self.asked = self.fragments.len();
        self.loose = (0..self.asked).filter(|slot| !self.is_reached(*slot)).collect();
    }

    /// Whether a search for a slot's own vector finds it, or a copy.
    fn is_reached(&self, slot: usize) -> bool {
        let vector = self.vector(slot);
        let nearest = self.graph.as_ref().and_then(|graph| graph.near(vector, 1).next());
        nearest.is_some_and(|found| dot(vector, self.vector(found)) >= dot(vector, vector) - SAME_SCORE)
    }

    /// Forgets dead slots.
    fn pack(&mut self) {
        let mut vectors = Vec::with_capacity(self.len() * self.dims);
        for (slot, _) in self.fragments.iter().enumerate().filter(|(_, fragment)| fragment.is_some()) {
            vectors.extend_from_slice(self.vector(slot));
        }
        self.fragments.retain(Option::is_some);
        (self.vectors, self.dead) = (vectors, 0);
        (self.graph, self.loose) = (None, Vec::new());
        if self.fragments.len() > EXACT_MAX {
            self.build();
        }
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
        assert!(self.loose.iter().all(|slot| *slot < self.fragments.len()), "what is loose is there");
    }
}

/// The higher score, then the earlier document and place. Scores are numbers: unit vectors made them.
fn best_first(a: (f32, &Fragment), b: (f32, &Fragment)) -> Ordering {
    let place = |fragment: &Fragment| (Arc::clone(&fragment.document), fragment.number);
    b.0.total_cmp(&a.0).then_with(|| place(a.1).cmp(&place(b.1)))
}
