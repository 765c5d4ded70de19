//! What a reproduced figure consists of: a chart, the paper's claims beside our numbers, tables, data.

use serde::Serialize;
use serde_json::Value;

use crate::chart::Chart;

/// Whether a claim of the paper holds here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It does.
    Holds,
    /// The effect is there and not as large, or it is there in most settings.
    InPart,
    /// It does not.
    Fails,
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Holds => "holds",
            Self::InPart => "in part",
            Self::Fails => "does not hold",
        })
    }
}

/// A claim of the paper beside what we get.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Claim {
    /// What the paper says, as briefly as it can be quoted.
    pub paper: String,
    /// What we get, in words and numbers.
    pub ours: String,
    /// Our number, where the claim has one.
    pub value: Option<f64>,
    /// Whether it holds.
    pub verdict: Verdict,
    /// The section of docs/REPRODUCTION.md that explains the difference.
    pub see: Option<&'static str>,
}

impl Claim {
    /// A factor by which something is better, in the paper between `low` and `high`. It holds where our mean
    /// lies between them or above, in part where there is an advantage at all (5 %).
    pub fn factor(paper: &str, (low, high): (f64, f64), ours: &[f64]) -> Self {
        let mean = crate::reproduce::run::mean(ours.iter().copied());
        // The paper rounds to tenths.
        let verdict = match (mean >= low - 0.05, mean >= 1.05) {
            (true, _) => Verdict::Holds,
            (false, true) => Verdict::InPart,
            (false, false) => Verdict::Fails,
        };
        let (least, most) = ours.iter().fold((f64::INFINITY, 0.0_f64), |(a, b), x| (a.min(*x), b.max(*x)));
        let range = if ours.len() > 1 { format!(" ({least:.2} to {most:.2})") } else { String::new() };
        let above = if mean > high + 0.05 { ", more than the paper's" } else { "" };
        let ours = format!("{mean:.2}×{range}{above}");
        Self { paper: paper.to_owned(), ours, value: Some(mean), verdict, see: None }
    }

    /// A number. It holds within a tenth of the paper's, in part within a third.
    pub fn number(paper: &str, published: f64, ours: f64, unit: &str) -> Self {
        let off = (ours / published - 1.0).abs();
        let verdict = match (off <= 0.1, off <= 1.0 / 3.0) {
            (true, _) => Verdict::Holds,
            (false, true) => Verdict::InPart,
            (false, false) => Verdict::Fails,
        };
        let decimals = if ours >= 100.0 { 0 } else { usize::from(ours < 10.0) + 1 };
        let text = format!("{ours:.decimals$}");
        let ours_text = format!("{text}{unit}");
        Self { paper: paper.to_owned(), ours: ours_text, value: Some(ours), verdict, see: None }
    }

    /// Something that is so in `count` of `total` settings.
    pub fn so_in(paper: &str, count: usize, total: usize, what: &str) -> Self {
        let verdict = match (count == total, 2 * count > total) {
            (true, _) => Verdict::Holds,
            (false, true) => Verdict::InPart,
            (false, false) => Verdict::Fails,
        };
        let value = Some(count as f64 / total.max(1) as f64);
        Self {
            paper: paper.to_owned(),
            ours: format!("{count} of {total} {what}"),
            value,
            verdict,
            see: None,
        }
    }

    /// The same, with more words about ours.
    pub fn and(mut self, more: &str) -> Self {
        self.ours += "; ";
        self.ours += more;
        self
    }

    /// The same, explained in a section of docs/REPRODUCTION.md.
    pub fn see(self, section: &'static str) -> Self {
        Self { see: Some(section), ..self }
    }
}

/// A table of text.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FigureTable {
    /// What it shows.
    pub caption: String,
    /// Its columns.
    pub header: Vec<String>,
    pub rows: Vec<Vec<String>>,
    /// Whether a page shows it at once.
    pub is_open: bool,
}

/// A reproduced figure or table of the paper.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// A name for files and JSON.
    pub id: &'static str,
    /// What it is in the paper.
    pub title: &'static str,
    /// The setting, and how ours is measured.
    pub setting: String,
    pub chart: Chart,
    pub claims: Vec<Claim>,
    pub tables: Vec<FigureTable>,
    /// Its numbers.
    pub data: Value,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_follows_from_the_numbers() {
        let factor = |ours: &[f64]| Claim::factor("p", (2.3, 3.1), ours);
        assert_eq!(factor(&[2.2, 2.4]).verdict, Verdict::Holds);
        assert_eq!(factor(&[1.9, 2.1]).verdict, Verdict::InPart);
        assert_eq!(factor(&[1.0, 1.02]).verdict, Verdict::Fails);
        assert_eq!(factor(&[1.9, 2.1]).ours, "2.00× (1.90 to 2.10)");
        assert_eq!(factor(&[4.0]).ours, "4.00×, more than the paper's");
        let number = |ours| Claim::number("p", 34.0, ours, " %").verdict;
        assert_eq!(
            [number(31.0), number(28.0), number(10.0)],
            [Verdict::Holds, Verdict::InPart, Verdict::Fails]
        );
        let count = |n| Claim::so_in("p", n, 4, "lowest").verdict;
        assert_eq!([count(4), count(3), count(2)], [Verdict::Holds, Verdict::InPart, Verdict::Fails]);
    }
}
