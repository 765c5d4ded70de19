//! Tasks over passages with questions: extraction, questions about one passage, about one among many (RAG), and
//! about a sentence that was put into many.

use std::collections::{BTreeMap, BTreeSet};

use rand::Rng as _;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;

use super::{EvalTask, PromptShape, TaskRow, TaskSizes};
use crate::bench::BenchError;
use crate::eval::quality::data::TextTable;
use crate::eval::quality::measures::{Measure, normalised};

/// Documents of a RAG prompt.
const DOCUMENTS: std::ops::RangeInclusive<usize> = 4..=10;
/// Most tokens of an answer.
const OUTPUT: u64 = 24;

/// A passage, its question and its answer.
struct PassageQuestion<'a> {
    context: &'a str,
    question: &'a str,
    answer: &'a str,
}

/// The questions that have an answer, in random order, those of different passages first.
fn questions<'a>(table: &'a TextTable, random: &mut StdRng) -> Result<Vec<PassageQuestion<'a>>, BenchError> {
    let [context, question, answer] = table.places(["context", "question", "answer"])?;
    let mut all: Vec<PassageQuestion<'_>> = table
        .rows
        .iter()
        .filter(|row| !row[answer].is_empty() && !row[context].is_empty())
        .map(|row| PassageQuestion { context: &row[context], question: &row[question], answer: &row[answer] })
        .collect();
    all.shuffle(random);
    let mut times: BTreeMap<&str, usize> = BTreeMap::new();
    let mut turns: Vec<(usize, PassageQuestion<'_>)> = Vec::new();
    for question in all {
        let turn = times.entry(question.context).or_default();
        turns.push((*turn, question));
        *turn += 1;
    }
    turns.sort_by_key(|(turn, _)| *turn);
    Ok(turns.into_iter().map(|(_, question)| question).collect())
}

fn passage(text: &str) -> String {
    format!("Passage:\n{text}")
}

/// EXTRACT of the sheet: a passage, and the question as what is looked for.
pub(super) fn extract(table: &TextTable, sizes: &TaskSizes<'_>) -> Result<EvalTask, BenchError> {
    let questions = questions(table, &mut sizes.random("extract"))?;
    let row = |PassageQuestion { context, question, answer }: PassageQuestion<'_>| TaskRow {
        cells: vec![context.to_owned()],
        question: question.to_owned(),
        accepted: vec![answer.to_owned()],
        ..TaskRow::default()
    };
    let rows = questions.into_iter().take(sizes.rows).map(row).collect();
    let output_max = 2 * OUTPUT;
    Ok(EvalTask { name: "extract", form: PromptShape::Extract, measure: Measure::Words, output_max, rows })
}

/// Questions about one passage.
pub(super) fn qa(table: &TextTable, sizes: &TaskSizes<'_>) -> Result<EvalTask, BenchError> {
    let questions = questions(table, &mut sizes.random("qa"))?;
    let row = |PassageQuestion { context, question, answer }: PassageQuestion<'_>| TaskRow {
        documents: vec![passage(context)],
        question: format!(
            "Now, answer the following question based on the above text, only give me the answer and do not output \
             any other words.\n\nQuestion: {question}\nAnswer:"
        ),
        accepted: vec![answer.to_owned()],
        ..TaskRow::default()
    };
    let rows = questions.into_iter().take(sizes.rows).map(row).collect();
    let form = PromptShape::Documents { instruction: "Read the following text and answer briefly." };
    Ok(EvalTask { name: "qa", form, measure: Measure::Words, output_max: OUTPUT, rows })
}

const BASED_ON_PASSAGES: &str = "Answer the question based on the given passages. Only give me the answer and do \
    not output any other words.";

/// Questions about one of 4 to 10 passages: those that share most with the question without holding its
/// answer, in random order. The one with the answer stands in each third of them equally often.
pub(super) fn rag(table: &TextTable, sizes: &TaskSizes<'_>) -> Result<EvalTask, BenchError> {
    let mut random = sizes.random("rag");
    let questions = questions(table, &mut random)?;
    let index = PassageIndex::new(questions.iter().map(|question| question.context));
    let mut rows = Vec::new();
    for PassageQuestion { context, question, answer } in questions {
        if rows.len() >= sizes.rows.div_ceil(2) {
            break;
        }
        let asked = format!("{BASED_ON_PASSAGES}\n\nQuestion: {question}\nAnswer:");
        let mut documents: Vec<String> = vec![passage(context)];
        let count = random.random_range(DOCUMENTS);
        documents.extend(index.nearest(question, context, answer).take(count - 1).map(passage));
        let mut room = sizes.room(BASED_ON_PASSAGES, &asked, OUTPUT);
        let mut fits = |tokens: &usize| {
            let is_room = *tokens <= room;
            room = room.saturating_sub(*tokens);
            is_room
        };
        let kept = sizes.tokens(&documents).iter().take_while(|tokens| fits(tokens)).count();
        if kept < *DOCUMENTS.start() {
            continue;
        }
        documents.truncate(kept);
        let with_answer = documents.remove(0);
        documents.shuffle(&mut random);
        let third = rows.len() % 3;
        let places: Vec<usize> = (0..kept).filter(|at| at * 3 / kept == third).collect();
        documents.insert(places[random.random_range(0..places.len())], with_answer);
        let accepted = vec![answer.to_owned()];
        rows.push(TaskRow { documents, question: asked, accepted, third: Some(third), ..TaskRow::default() });
    }
    let form = PromptShape::Documents { instruction: BASED_ON_PASSAGES };
    Ok(EvalTask { name: "rag", form, measure: Measure::Words, output_max: OUTPUT, rows })
}

/// Passages by their words, the rarer the weightier.
struct PassageIndex<'a> {
    passages: Vec<(&'a str, BTreeSet<String>)>,
    /// In how many passages a word stands.
    counts: BTreeMap<String, usize>,
}

impl<'a> PassageIndex<'a> {
    fn new(texts: impl Iterator<Item = &'a str>) -> Self {
        let different: BTreeSet<&str> = texts.collect();
        let passages: Vec<_> = different.into_iter().map(|text| (text, words(text))).collect();
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for word in passages.iter().flat_map(|(_, words)| words) {
            *counts.entry(word.clone()).or_default() += 1;
        }
        Self { passages, counts }
    }

    /// Other passages without the answer, those first that share most with the question.
    fn nearest(&self, question: &str, own: &str, answer: &str) -> impl Iterator<Item = &'a str> {
        let (asked, answer) = (words(question), normalised(answer));
        let weight = |word: &String| {
            let count = self.counts.get(word).copied().unwrap_or(1);
            (1.0 + self.passages.len() as f64 / count as f64).ln()
        };
        let others =
            self.passages.iter().filter(|(text, _)| *text != own && !normalised(text).contains(&answer));
        let mut ranked: Vec<(f64, &str)> = others
            .map(|(text, words)| (words.intersection(&asked).map(weight).sum::<f64>(), *text))
            .collect();
        ranked.sort_by(|one, other| other.0.total_cmp(&one.0));
        ranked.into_iter().map(|(_, text)| text)
    }
}

fn words(text: &str) -> BTreeSet<String> {
    normalised(text).split(' ').map(str::to_owned).collect()
}

/// People with safes.
const PEOPLE: [&str; 8] = ["Tarek", "Ilse", "Bruno", "Yuki", "Amara", "Piotr", "Leila", "Otto"];

/// A sentence in one of many passages, longer and longer ones up to what the context and the tables bear. It
/// stands in each third of them equally often.
pub(super) fn needle(table: &TextTable, sizes: &TaskSizes<'_>) -> Result<EvalTask, BenchError> {
    let mut random = sizes.random("needle");
    let mut seen = BTreeSet::new();
    let mut haystack: Vec<String> = questions(table, &mut random)?
        .into_iter()
        .filter(|question| seen.insert(question.context))
        .map(|question| passage(question.context))
        .collect();
    haystack.sort();
    haystack.shuffle(&mut random);
    let count = (sizes.rows / 8).max(3);
    let asked = |person: &str| {
        format!("{BASED_ON_PASSAGES}\n\nQuestion: What is the code of the safe of {person}?\nAnswer:")
    };
    // The sentence has fewer tokens than the longest question.
    let most = sizes.room(BASED_ON_PASSAGES, &asked(PEOPLE[0]), OUTPUT).saturating_sub(48);
    let most = most.min(sizes.needle_tokens);
    let tokens = sizes.tokens(&haystack);
    let all = most.min(tokens.iter().sum());
    let row = |at: usize| {
        let length = all * (at + 1) / count;
        let mut left = length;
        let fits = |tokens: &&usize| {
            let is_room = **tokens <= left;
            left = left.saturating_sub(**tokens);
            is_room
        };
        let kept = tokens.iter().take_while(fits).count().max(1);
        let mut documents = haystack[..kept].to_vec();
        let (person, code) = (PEOPLE[at % PEOPLE.len()], random.random_range(10_000..100_000));
        let third = at % 3;
        let places: Vec<usize> = (0..kept).filter(|at| at * 3 / kept == third).collect();
        let place = if places.is_empty() { 0 } else { places[random.random_range(0..places.len())] };
        documents[place] += &format!(" The code of the safe of {person} is {code}.");
        let accepted = vec![code.to_string()];
        TaskRow { documents, question: asked(person), accepted, ..TaskRow::default() }
    };
    let rows = (0..count).map(row).collect();
    let form = PromptShape::Documents { instruction: BASED_ON_PASSAGES };
    Ok(EvalTask { name: "needle", form, measure: Measure::Contains, output_max: OUTPUT, rows })
}
