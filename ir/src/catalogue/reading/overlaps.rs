//! Stretches of a text that several regular expressions match.

use std::ops::Range;

use regex::Regex;

/// What any of these matches, in the text's order; of what overlaps, the longest.
pub(super) fn longest<'a>(text: &'a str, regexes: &[&Regex]) -> Vec<&'a str> {
    let mut found: Vec<Range<usize>> =
        regexes.iter().flat_map(|regex| regex.find_iter(text).map(|one| one.range())).collect();
    found.sort_by_key(|range| (range.start, std::cmp::Reverse(range.end)));
    let mut kept: Vec<Range<usize>> = Vec::new();
    for range in found {
        match kept.last_mut() {
            Some(last) if range.start < last.end => {
                if range.len() > last.len() {
                    *last = range;
                }
            }
            _ => kept.push(range),
        }
    }
    kept.into_iter().filter_map(|range| text.get(range)).collect()
}
