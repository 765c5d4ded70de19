//! How likely a whole answer was, where its constraint lists all answers: labels, and integers of a short
//! range. And what is added to logits so that another answer is drawn than the likeliest.
//!
//! The product of its tokens' probabilities is less than that: a tokenizer cuts a text in many ways
//! (`positive`, `pos` and `itive`, each with or without a space in front), and all of them are the same
//! answer. So at each token the others that lead to the answer count with it.

use base::{AnswerScoring, Constraint, TokenId};

/// Longer lists are not looked through.
const ANSWERS_MAX: usize = 512;

/// Whether a constraint lists all answers, and not too many.
pub(super) fn is_listed(constraint: Option<&Constraint>) -> bool {
    match constraint {
        Some(Constraint::Choice(texts)) => texts.len() <= ANSWERS_MAX,
        Some(Constraint::Integer { low, high }) => high.abs_diff(*low) < ANSWERS_MAX as u64,
        _ => false,
    }
}

/// What is remembered of a row whose answer is one of a list.
#[derive(Clone, Debug, Default)]
pub(super) struct AnswerProbability {
    written: Vec<u8>,
    places: Vec<DrawnPlace>,
}

/// A token that was drawn.
#[derive(Clone, Debug)]
struct DrawnPlace {
    /// How much was written before it.
    before: usize,
    /// The probability of each token that was allowed.
    probabilities: Vec<(TokenId, f32)>,
}

impl AnswerProbability {
    /// Takes a token's bytes, and the probabilities of those that were allowed in its place; of a forced one
    /// none.
    pub(super) fn push(&mut self, bytes: &[u8], probabilities: Vec<(TokenId, f32)>) {
        if !probabilities.is_empty() {
            self.places.push(DrawnPlace { before: self.written.len(), probabilities });
        }
        self.written.extend_from_slice(bytes);
    }

    /// How likely the answer was that ends with `rest`. `bytes` tells those of a token, where it has any.
    ///
    /// From its end to its beginning: what leads to no other answer counts as it is; what may still lead to
    /// others counts for this one by as much as the token did that was drawn, of which alone the rest is
    /// known.
    pub(super) fn probability(
        mut self,
        rest: &[u8],
        constraint: &Constraint,
        bytes: impl Fn(TokenId) -> Option<Vec<u8>>,
    ) -> Option<f64> {
        self.written.extend_from_slice(rest);
        let answers = Answers::of(constraint);
        let own = answers.all.iter().position(|(answer, _)| is_answer(&self.written, answer))?;
        let mut ahead = 1.0f64;
        for DrawnPlace { before, probabilities } in self.places.iter().rev() {
            let before = &self.written[..*before];
            let counts = |(token, probability): &(TokenId, f32)| {
                let probability = f64::from(*probability);
                let Some(bytes) = bytes(*token) else {
                    // An end: of what is written, and of nothing else.
                    return if is_answer(before, &answers.all[own].0) { probability } else { 0.0 };
                };
                let written = [before, &bytes].concat();
                match answers.led_to(&written) {
                    _ if !leads_to(&written, &answers.all[own].0) => 0.0,
                    1 => probability,
                    _ => probability * ahead,
                }
            };
            ahead = probabilities.iter().map(counts).sum();
        }
        Some(ahead.min(1.0))
    }
}

/// Answers in the order of their bytes: those that begin alike stand together.
struct Answers {
    /// Each with its number in the constraint's order.
    all: Vec<(Vec<u8>, usize)>,
}

impl Answers {
    /// All that a constraint lists.
    fn of(constraint: &Constraint) -> Self {
        let texts: Vec<Vec<u8>> = match constraint {
            Constraint::Choice(texts) => texts.iter().map(|text| text.clone().into_bytes()).collect(),
            Constraint::Integer { low, high } => {
                (*low..=*high).map(|number| number.to_string().into_bytes()).collect()
            }
            Constraint::Regex(_)
            | Constraint::JsonSchema(_)
            | Constraint::StructuralTag(_)
            | Constraint::TriggeredTags(_)
            | Constraint::Grammar(_)
            | Constraint::Ebnf(_)
            | Constraint::Excerpt { .. }
            | Constraint::Items(_)
            | Constraint::Reading { .. } => Vec::new(),
        };
        let mut all: Vec<(Vec<u8>, usize)> = texts.into_iter().zip(0..).collect();
        all.sort_unstable();
        all.dedup_by(|later, earlier| later.0 == earlier.0);
        Self { all }
    }

    /// How many of them what is written leads to.
    fn led_to(&self, written: &[u8]) -> usize {
        self.leading(written).map(<[_]>::len).sum()
    }

    /// Those that what is written leads to.
    fn leading(&self, written: &[u8]) -> impl Iterator<Item = &[(Vec<u8>, usize)]> {
        let (whole, bare) = match written.strip_prefix(b" ") {
            // Nothing but the space that counts for nothing.
            Some([]) => (None, Some(&[][..])),
            bare => (Some(written), bare),
        };
        whole.into_iter().chain(bare).map(|prefix| self.beginning(prefix))
    }

    fn beginning(&self, prefix: &[u8]) -> &[(Vec<u8>, usize)] {
        let from = self.all.partition_point(|(answer, _)| answer.as_slice() < prefix);
        let rest = &self.all[from..];
        &rest[..rest.partition_point(|(answer, _)| answer.starts_with(prefix))]
    }
}

/// Which answer is drawn, where it is not simply the likeliest.
pub(super) struct ScoredAnswers<'a> {
    answers: Answers,
    scoring: &'a AnswerScoring,
}

impl<'a> ScoredAnswers<'a> {
    /// Of a constraint that lists its answers; `None` of any other.
    pub(super) fn new(constraint: Option<&Constraint>, scoring: Option<&'a AnswerScoring>) -> Option<Self> {
        let (constraint, scoring) = constraint.filter(|_| is_listed(constraint)).zip(scoring)?;
        Some(Self { answers: Answers::of(constraint), scoring })
    }

    /// What is added to a token's logit before anything is made of it.
    ///
    /// A token stands for all answers that it leads to: it is divided by the sum of theirs, so that over a whole
    /// answer every factor but its own falls out.
    pub(super) fn before(&self, written: &[u8], token: &[u8]) -> f32 {
        /// Keeps an answer that was never likely from winning by noise.
        const LEAST: f32 = 1e-6;
        let AnswerScoring::Calibrated(priors) = self.scoring else { return 0.0 };
        let prior = |(_, number): &(Vec<u8>, usize)| priors.get(*number).copied().unwrap_or(LEAST);
        let sum: f32 = self.meant(written, token).map(prior).sum();
        -sum.max(LEAST).ln()
    }

    /// Whether a token may be drawn.
    pub(super) fn may_be(&self, written: &[u8], token: &[u8]) -> bool {
        match self.scoring {
            AnswerScoring::Calibrated(_) => true,
            AnswerScoring::Only(wanted) => {
                self.meant(written, token).any(|(_, number)| *number == *wanted as usize)
            }
        }
    }

    /// The answers that may come of a token; of one that ends the output, the one that is written.
    fn meant(&self, written: &[u8], token: &[u8]) -> impl Iterator<Item = &(Vec<u8>, usize)> {
        let next = [written, token].concat();
        let ends = token.is_empty();
        let found: Vec<&(Vec<u8>, usize)> = self.answers.leading(&next).flatten().collect();
        found.into_iter().filter(move |(answer, _)| !ends || is_answer(&next, answer))
    }
}

/// Whether what is written is an answer; a space in front of it is none of its own.
fn is_answer(written: &[u8], answer: &[u8]) -> bool {
    written == answer || written.strip_prefix(b" ") == Some(answer)
}

/// Whether an answer begins so.
fn leads_to(written: &[u8], answer: &[u8]) -> bool {
    answer.starts_with(written) || written.strip_prefix(b" ").is_some_and(|rest| answer.starts_with(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Token 0 ends, the others are these.
    const TEXTS: [&str; 9] = ["", "p", "pos", " pos", " ", "n", "good", " enough", "itive"];

    fn bytes(token: TokenId) -> Option<Vec<u8>> {
        (token.0 > 0).then(|| TEXTS[token.0 as usize].as_bytes().to_vec())
    }

    fn of(of: &[(&str, f32)]) -> Vec<(TokenId, f32)> {
        let id =
            |text: &str| TokenId(TEXTS.iter().position(|one| *one == text).expect("it is a token") as u32);
        of.iter().map(|(text, probability)| (id(text), *probability)).collect()
    }

    fn choice(texts: &[&str]) -> Constraint {
        Constraint::Choice(texts.iter().map(|text| (*text).to_owned()).collect())
    }

    /// Of tokens, each with the probabilities of its place, and what follows by itself.
    fn probability(
        tokens: &[(&str, Vec<(TokenId, f32)>)],
        rest: &str,
        constraint: &Constraint,
    ) -> Option<f64> {
        let mut row = AnswerProbability::default();
        tokens.iter().for_each(|(text, allowed)| row.push(text.as_bytes(), allowed.clone()));
        row.probability(rest.as_bytes(), constraint, bytes)
    }

    #[track_caller]
    fn close(found: Option<f64>, expected: f64) {
        let found = found.expect("it is known");
        assert!((found - expected).abs() < 1e-6, "{found}, not {expected}");
    }

    #[test]
    fn all_ways_to_write_an_answer_count() {
        let labels = choice(&["positive", "negative"]);
        let first = of(&[("p", 0.1), ("pos", 0.2), (" pos", 0.3), ("n", 0.4)]);
        close(probability(&[(" pos", first.clone())], "itive", &labels), 0.6);
        close(probability(&[("n", first.clone())], "egative", &labels), 0.4);
        let only = of(&[("p", 0.5), ("pos", 0.2), (" pos", 0.3)]);
        close(probability(&[("pos", only)], "itive", &choice(&["positive"])), 1.0);
    }

    #[test]
    fn what_decides_nothing_counts_by_what_follows_it() {
        let labels = choice(&["positive", "negative"]);
        let first = of(&[(" ", 0.5), ("p", 0.2), ("n", 0.3)]);
        let second = of(&[("p", 0.6), ("n", 0.4)]);
        close(probability(&[(" ", first), ("p", second)], "ositive", &labels), 0.2 + 0.5 * 0.6);
    }

    #[test]
    fn an_answer_that_begins_another_ends_by_its_end() {
        let labels = choice(&["good", "good enough"]);
        let first = of(&[("good", 1.0)]);
        let second = of(&[("", 0.7), (" enough", 0.3)]);
        close(probability(&[("good", first.clone()), ("", second.clone())], "", &labels), 0.7);
        close(probability(&[("good", first), (" enough", second)], "", &labels), 0.3);
    }

    #[test]
    fn what_is_written_leads_to_the_answers_that_begin_so() {
        let answers = Answers::of(&choice(&["good", "good enough", "goods", "bad", " odd"]));
        for (written, expected) in [
            ("", 5),
            (" ", 5),
            ("g", 3),
            (" good", 3),
            ("good ", 1),
            ("goods", 1),
            (" o", 1),
            ("  o", 1),
            ("x", 0),
        ] {
            assert_eq!(answers.led_to(written.as_bytes()), expected, "`{written}`");
        }
    }

    #[test]
    fn calibration_divides_each_answer_by_its_own_probability_without_content() {
        let labels = choice(&["pos", "posh", "neg"]);
        let scoring = AnswerScoring::Calibrated(vec![0.3, 0.2, 0.5]);
        let scored = ScoredAnswers::new(Some(&labels), Some(&scoring)).expect("labels are listed");
        let close =
            |found: f32, expected: f32| assert!((found - expected).abs() < 1e-5, "{found} {expected}");
        close(scored.before(b"", b"ne"), -0.5f32.ln());
        close(scored.before(b"", b"po"), -0.5f32.ln());
        close(scored.before(b"", b" po"), -0.5f32.ln());
        close(scored.before(b"po", b"sh"), -0.2f32.ln());
        close(scored.before(b"pos", b""), -0.3f32.ln());
        // Over all tokens of `pos`: what others share with it falls out.
        close(scored.before(b"", b"pos") - scored.before(b"", b"neg"), 0.0);
        assert!(scored.may_be(b"", b"neg"));
        let rest = choice(&["a"]);
        assert!(ScoredAnswers::new(Some(&rest), None).is_none());
        assert!(ScoredAnswers::new(Some(&Constraint::Regex("a".into())), Some(&scoring)).is_none());
    }

    #[test]
    fn one_answer_alone_may_be_asked_for() {
        let labels = choice(&["posh", "pos", "neg"]);
        let scoring = AnswerScoring::Only(1);
        let scored = ScoredAnswers::new(Some(&labels), Some(&scoring)).expect("labels are listed");
        let may = |written: &str, token: &str| scored.may_be(written.as_bytes(), token.as_bytes());
        assert!(may("", "po") && may("po", "s") && may("pos", ""));
        assert!(!may("", "ne") && !may("pos", "h") && !may("posh", ""));
        assert!(scored.before(b"", b"po").abs() < 1e-6, "likelihoods stay as they are");
    }

    #[test]
    fn numbers_of_a_short_range_are_listed_and_others_are_not() {
        assert!(is_listed(Some(&Constraint::Integer { low: 1, high: 5 })));
        assert!(!is_listed(Some(&Constraint::Integer { low: i64::MIN, high: i64::MAX })));
        assert!(!is_listed(Some(&Constraint::Regex("a".into()))) && !is_listed(None));
        let rating = Constraint::Integer { low: 1, high: 5 };
        assert_eq!(probability(&[], "4", &rating), Some(1.0), "nothing was to decide");
        assert_eq!(probability(&[], "9", &rating), None, "no answer of the list");
    }
}
