//! Texts most like a query by the rare words they share: enough to give a benchmark's questions contexts that
//! repeat as real ones do, without an embedding model. `/v1/corpora` is what answers users.

use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Different texts, and who has which word.
pub(super) struct Nearest {
    texts: Vec<String>,
    /// Per word, the texts it is in.
    places: HashMap<String, Vec<usize>>,
}

fn words(text: &str) -> BTreeSet<String> {
    let words = text.split(|character: char| !character.is_alphanumeric());
    words.filter(|word| !word.is_empty()).map(str::to_lowercase).collect()
}

impl Nearest {
    /// Of these texts, each once.
    pub(super) fn new(all: impl IntoIterator<Item = String>) -> Self {
        let mut seen = BTreeSet::new();
        let texts: Vec<String> = all.into_iter().filter(|text| seen.insert(text.clone())).collect();
        let mut places: HashMap<String, Vec<usize>> = HashMap::new();
        for (place, text) in texts.iter().enumerate() {
            for word in words(text) {
                places.entry(word).or_default().push(place);
            }
        }
        Self { texts, places }
    }

    /// The texts that share most with a query, the first of equals first: a shared word counts the logarithm
    /// of one over its share of texts (inverse document frequency).
    pub(super) fn of(&self, query: &str, count: usize) -> Vec<String> {
        let mut scores: BTreeMap<usize, f64> = BTreeMap::new();
        for word in words(query) {
            let Some(places) = self.places.get(&word) else { continue };
            let rarity = (1.0 + self.texts.len() as f64 / places.len() as f64).ln();
            for place in places {
                *scores.entry(*place).or_default() += rarity;
            }
        }
        let mut ranked: Vec<(usize, f64)> = scores.into_iter().collect();
        ranked.sort_by(|(place, score), (other, others)| others.total_cmp(score).then(place.cmp(other)));
        ranked.into_iter().take(count).map(|(place, _)| self.texts[place].clone()).collect()
    }
}
