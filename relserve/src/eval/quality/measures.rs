//! What of an answer counts: exact answers and F1 of words as SQuAD normalises them (Rajpurkar et al. 2016,
//! arXiv 1606.05250, `evaluate-v2.0.py`), labels, and ROUGE-L for summaries as LongBench scores them.

/// How a task's answers are scored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Measure {
    /// The label that an answer says first.
    Label(Vec<String>),
    /// Exact and F1 of words; F1 is compared.
    Words,
    /// Whether an answer has the words that are asked for.
    Contains,
    /// ROUGE-L.
    Summary,
}

/// What an answer came to, 0 to 1 each.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RowScore {
    pub(super) accuracy: Option<f64>,
    pub(super) f1: Option<f64>,
}

impl RowScore {
    /// The one that variants are compared by.
    pub(super) fn main(self) -> f64 {
        self.f1.or(self.accuracy).unwrap_or_default()
    }
}

impl Measure {
    /// Scores an answer; one that failed is `None`, and wrong.
    pub(super) fn score(&self, accepted: &[String], answer: Option<&str>) -> RowScore {
        let answer = answer.unwrap_or_default();
        let any = |holds: &dyn Fn(&str) -> bool| Some(f64::from(accepted.iter().any(|one| holds(one))));
        let best = |score: fn(&str, &str) -> f64| {
            Some(accepted.iter().map(|one| score(one, answer)).fold(0.0, f64::max))
        };
        match self {
            Self::Label(labels) => {
                let label = label(labels, answer);
                RowScore { accuracy: any(&|one| label == Some(one)), f1: None }
            }
            Self::Words => {
                let normal = normalised(answer);
                RowScore { accuracy: any(&|one| normalised(one) == normal), f1: best(f1) }
            }
            Self::Contains => {
                let answer = format!(" {} ", normalised(answer));
                let has = |one: &str| answer.contains(&format!(" {} ", normalised(one)));
                RowScore { accuracy: any(&has), f1: None }
            }
            Self::Summary => RowScore { accuracy: None, f1: best(rouge_l) },
        }
    }

    /// What two answers are compared by: the label, or the words.
    pub(super) fn essence(&self, answer: &str) -> String {
        match self {
            Self::Label(labels) => label(labels, answer).map_or_else(|| normalised(answer), str::to_owned),
            Self::Words | Self::Contains | Self::Summary => normalised(answer),
        }
    }
}

/// Lower case, without punctuation, articles and spare white space.
pub(super) fn normalised(text: &str) -> String {
    let lower = text.to_lowercase();
    let kept: String = lower.chars().filter(|letter| !letter.is_ascii_punctuation()).collect();
    let words = kept.split_whitespace().filter(|word| !matches!(*word, "a" | "an" | "the"));
    words.collect::<Vec<_>>().join(" ")
}

/// The harmonic mean of precision and recall of words, as often as each stands there.
pub(super) fn f1(expected: &str, answer: &str) -> f64 {
    let (expected, answer) = (normalised(expected), normalised(answer));
    let mut left: Vec<&str> = expected.split(' ').filter(|word| !word.is_empty()).collect();
    let answer: Vec<&str> = answer.split(' ').filter(|word| !word.is_empty()).collect();
    if left.is_empty() || answer.is_empty() {
        return f64::from(left.is_empty() == answer.is_empty());
    }
    let (total, mut common) = (left.len() + answer.len(), 0);
    for word in answer {
        if let Some(at) = left.iter().position(|other| *other == word) {
            left.swap_remove(at);
            common += 1;
        }
    }
    2.0 * f64::from(common) / total as f64
}

/// F of the longest common subsequence of words (Lin 2004), articles left out like SQuAD's.
pub(super) fn rouge_l(expected: &str, answer: &str) -> f64 {
    let (expected, answer) = (normalised(expected), normalised(answer));
    let words = |text| str::split_whitespace(text).collect::<Vec<&str>>();
    let (expected, answer) = (words(&expected), words(&answer));
    let mut lengths = vec![0usize; answer.len() + 1];
    for word in &expected {
        let mut diagonal = 0;
        for (at, other) in (1..).zip(&answer) {
            let above = lengths[at];
            lengths[at] = if word == other { diagonal + 1 } else { above.max(lengths[at - 1]) };
            diagonal = above;
        }
    }
    2.0 * lengths[answer.len()] as f64 / (expected.len() + answer.len()).max(1) as f64
}

/// The label that a text says first, as whole words.
fn label<'a>(labels: &'a [String], answer: &str) -> Option<&'a str> {
    let answer = format!(" {} ", normalised(answer));
    let place = |label: &&String| answer.find(&format!(" {} ", normalised(label)));
    labels.iter().filter(|label| place(label).is_some()).min_by_key(place).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: f64, expected: f64) {
        assert!((found - expected).abs() < 1e-9, "{found}, not {expected}");
    }

    #[test]
    fn answers_are_normalised_as_squad_does() {
        assert_eq!(normalised("The Norse, (a  \"Norseman\")!"), "norse norseman");
        assert_eq!(normalised("An answer\n a theatre"), "answer theatre");
        assert_eq!(normalised("U.S. 1,000"), "us 1000");
        assert_eq!(normalised("Ärger – the"), "ärger –");
    }

    #[test]
    fn f1_and_rouge_are_those_of_known_cases() {
        close(f1("the river Elb", "It is the River Elb."), 2.0 * 2.0 / (2.0 + 4.0));
        close(f1("one one two", "one two two"), 2.0 * 2.0 / 6.0);
        close(f1("white", "black"), 0.0);
        close(f1("the", "a"), 1.0);
        close(f1("white", ""), 0.0);
        // Lin's own example: the longest common subsequence of both is "police ... gunman" without the article.
        close(rouge_l("police killed the gunman", "police kill the gunman"), 2.0 * 2.0 / 6.0);
        close(rouge_l("police killed the gunman", "the gunman kill police"), 2.0 * 1.0 / 6.0);
        close(rouge_l("", ""), 0.0);
    }

    #[test]
    fn every_measure_scores_what_it_is_for() {
        let accepted = |text: &str| vec![text.to_owned()];
        let labels = Measure::Label(vec!["negative".into(), "positive".into()]);
        let accuracy = |measure: &Measure, one: &str, answer| measure.score(&accepted(one), answer).accuracy;
        assert_eq!(accuracy(&labels, "positive", Some("Positive.")), Some(1.0));
        assert_eq!(accuracy(&labels, "positive", Some("positive, not negative")), Some(1.0));
        assert_eq!(accuracy(&labels, "positive", Some("negative or positive")), Some(0.0));
        assert_eq!(accuracy(&labels, "positive", Some("positively")), Some(0.0));
        assert_eq!(accuracy(&labels, "positive", None), Some(0.0));
        assert_eq!(accuracy(&Measure::Contains, "48213", Some("The code is 48213.")), Some(1.0));
        assert_eq!(accuracy(&Measure::Contains, "48213", Some("The code is 482134.")), Some(0.0));
        let words =
            Measure::Words.score(&["Paris".into(), "the city of Paris".into()], Some("City of Paris"));
        assert_eq!((words.accuracy, words.f1), (Some(1.0), Some(1.0)));
        let summary = Measure::Summary.score(&accepted("good cup"), Some("good tea"));
        assert_eq!((summary.accuracy, summary.main()), (None, 0.5));
    }

    #[test]
    fn answers_agree_by_their_label_or_their_words() {
        let labels = Measure::Label(vec!["negative".into(), "positive".into()]);
        assert_eq!(labels.essence("It is Positive!"), labels.essence("positive"));
        assert_ne!(labels.essence("I do not know"), labels.essence("positive"));
        assert_eq!(Measure::Words.essence("The Elb."), Measure::Words.essence("elb"));
    }
}
