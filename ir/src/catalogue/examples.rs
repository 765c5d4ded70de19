//! Which of a function's examples are shown with a call: those whose arguments are most like the call's own
//! (Liu et al. 2022, arXiv 2101.06804, by shared words). Only what the rows of a call have in common chooses, so
//! that all rows show the same ones and share their prefix.

use std::collections::BTreeSet;

use super::argument::{Argument, Checked};
use super::function::{Example, Function, ParameterKind};

/// Words that say nothing of what is asked.
const COMMON: [&str; 15] =
    ["the", "a", "an", "of", "in", "it", "and", "with", "to", "is", "its", "for", "from", "or", "how"];

/// Numbers of the examples to show, the one most like the call last: what stands nearest to an answer counts
/// most.
pub(super) fn most_like(function: &Function, checked: &Checked, own: &str) -> Vec<usize> {
    let shared = function.parameters.iter().filter(|parameter| parameter.name != own);
    let asked: BTreeSet<String> = shared
        .clone()
        .filter_map(|parameter| checked.texts.get(&parameter.name))
        .flat_map(|text| words(text))
        .collect();
    let given =
        function.parameters.iter().filter(|parameter| checked.given.contains(&parameter.name)).count();
    let likeness = |example: &Example| {
        let texts = function.parameters.iter().zip(&example.arguments);
        let texts = texts.filter(|(parameter, _)| parameter.name != own);
        let words: BTreeSet<String> = texts.flat_map(|(_, argument)| words(&text(argument))).collect();
        (usize::from(example.arguments.len() == given), words.intersection(&asked).count())
    };
    // Without its list a call is another question.
    let has_list = |count: usize, given: &dyn Fn(&str) -> bool| {
        let parameters = function.parameters.iter().take(count);
        parameters.filter(|one| one.kind == ParameterKind::List).any(|one| given(&one.name))
    };
    let asks_list = has_list(function.parameters.len(), &|name| checked.given.iter().any(|one| one == name));
    let is_alike = |one: &Example| has_list(one.arguments.len(), &|_| true) == asks_list;
    let examples = (0..).zip(&function.examples).filter(|(_, one)| is_alike(one));
    let mut ranked: Vec<_> = examples.map(|(number, one)| (likeness(one), number)).collect();
    // Among equals in the file's order.
    ranked.sort_by_key(|(likeness, number)| (std::cmp::Reverse(*likeness), *number));
    ranked.truncate(function.examples_max);
    ranked.reverse();
    ranked.into_iter().map(|(_, number)| number).collect()
}

fn words(text: &str) -> Vec<String> {
    let words = text.split(|character: char| !character.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_lowercase).filter(|word| !COMMON.contains(&word.as_str())).collect()
}

fn text(argument: &Argument) -> String {
    match argument {
        Argument::Cell(cell) => cell.text().into_owned(),
        Argument::List(cells) => cells.iter().map(|cell| cell.text()).collect::<Vec<_>>().join(" "),
        Argument::Range(rows) => rows.iter().flatten().map(|cell| cell.text()).collect::<Vec<_>>().join(" "),
    }
}
