//! The tasks: rows of tables with a label, passages with questions, documents in random order, a needle among
//! many, and formats in LongBench's manner (Bai et al. 2023, arXiv 2308.14508). What is drawn depends on the
//! seed alone, and on the tokens that the model's context bears.

mod passages;

use base::Tokenizer;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;

use super::data::{TaskData, TextTable};
use super::measures::Measure;
use crate::bench::BenchError;

/// The tasks, in the order of the table.
pub(super) const TASKS: [&str; 9] = [
    "classify-movies",
    "classify-products",
    "classify-beer",
    "extract",
    "qa",
    "rag",
    "needle",
    "summary",
    "few-shot",
];

/// Rows that are put to the model alike.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct EvalTask {
    pub(super) name: &'static str,
    pub(super) form: PromptShape,
    pub(super) measure: Measure,
    /// Most tokens of an answer.
    pub(super) output_max: u64,
    pub(super) rows: Vec<TaskRow>,
}

/// How a task's rows become prompts.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum PromptShape {
    /// A question about each row's record.
    Records { columns: Vec<&'static str>, question: String },
    /// Documents, and a question about them.
    Documents { instruction: &'static str },
    /// The cell function EXTRACT: of the row's text what its question asks for.
    Extract,
}

/// A row with its answers.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct TaskRow {
    /// The record, in the order of the columns.
    pub(super) cells: Vec<String>,
    pub(super) documents: Vec<String>,
    pub(super) question: String,
    pub(super) accepted: Vec<String>,
    /// In which third of its documents the one with the answer stands.
    pub(super) third: Option<usize>,
}

/// How much is asked, and what the model bears.
pub(super) struct TaskSizes<'a> {
    pub(super) rows: usize,
    /// Most tokens of the needle's documents.
    pub(super) needle_tokens: usize,
    pub(super) seed: u64,
    /// The model's context.
    pub(super) context: usize,
    pub(super) tokenizer: &'a dyn Tokenizer,
}

/// Tokens of a message beside its text, at most: markup and a role.
const MARKUP: usize = 12;
/// Characters of a record: longer rows are left out, so that no row takes as long as many.
const RECORD_MAX: usize = 1_500;
/// Examples of the few-shot task.
const EXAMPLES: usize = 6;

impl TaskSizes<'_> {
    fn random(&self, task: &str) -> StdRng {
        let place = TASKS.iter().position(|name| *name == task).unwrap_or(TASKS.len());
        StdRng::seed_from_u64(self.seed.wrapping_mul(1_000).wrapping_add(place as u64))
    }

    fn tokens(&self, texts: &[String]) -> Vec<usize> {
        self.tokenizer.count_stretches(texts).into_iter().map(|count| count as usize + MARKUP).collect()
    }

    /// Tokens that a prompt's documents may have beside its other texts and its answer.
    fn room(&self, instruction: &str, question: &str, output_max: u64) -> usize {
        let used: usize = self.tokens(&[instruction.to_owned(), question.to_owned()]).iter().sum();
        self.context.saturating_sub(used + MARKUP + output_max as usize)
    }
}

/// The tasks that the source's tables bear, those of `names`; and why others are missing.
pub(super) fn tasks(
    source: TaskData<'_>,
    names: &[&'static str],
    sizes: &TaskSizes<'_>,
) -> Result<(Vec<EvalTask>, Vec<String>), BenchError> {
    let (mut tasks, mut notes) = (Vec::new(), Vec::new());
    for name in names {
        let table_name = match *name {
            "classify-movies" => "movies",
            "classify-products" | "summary" | "few-shot" => "products",
            "classify-beer" => "beer",
            _ => "squad",
        };
        let Some(table) = source.table(table_name)? else {
            notes.push(format!("{name}: not run: there is no table {table_name}"));
            continue;
        };
        let mut task = match *name {
            "summary" => summary(&table, sizes)?,
            "few-shot" => few_shot(&table, sizes)?,
            "extract" => passages::extract(&table, sizes)?,
            "qa" => passages::qa(&table, sizes)?,
            "rag" => passages::rag(&table, sizes)?,
            "needle" => passages::needle(&table, sizes)?,
            _ => classify(name, &table, sizes)?,
        };
        drop_too_long(&mut task, sizes);
        if task.rows.is_empty() {
            notes.push(format!("{name}: not run: no row of {} fits the model's context", table.origin));
        } else {
            tasks.push(task);
        }
    }
    Ok((tasks, notes))
}

/// Leaves out rows that have no room in the context.
fn drop_too_long(task: &mut EvalTask, sizes: &TaskSizes<'_>) {
    let instruction = match &task.form {
        PromptShape::Records { question, columns } => format!("{question} {}", columns.join(", ")),
        PromptShape::Documents { instruction } => (*instruction).to_owned(),
        PromptShape::Extract => "Extract from the text. Answer with the words of the text alone.".to_owned(),
    };
    let output_max = task.output_max;
    task.rows.retain(|row| {
        let texts: Vec<String> = row.cells.iter().chain(&row.documents).cloned().collect();
        sizes.tokens(&texts).iter().sum::<usize>() <= sizes.room(&instruction, &row.question, output_max)
    });
}

/// The fields of a table's record, its two labels, and which of them a row has.
struct Labelling {
    fields: Vec<&'static str>,
    label: &'static str,
    /// Which of the labels a text of that column means; rows of neither are left out.
    side: fn(&str) -> Option<bool>,
    labels: [&'static str; 2],
    question: &'static str,
}

const POSITIVE: [&str; 2] = ["negative", "positive"];

fn stars(rating: &str) -> Option<bool> {
    match rating.parse::<f64>().ok()? {
        stars if stars >= 4.0 => Some(true),
        stars if stars <= 2.0 => Some(false),
        _ => None,
    }
}

fn labelling(name: &str) -> Labelling {
    match name {
        "classify-movies" => Labelling {
            fields: vec!["genres", "movie_info", "production_company", "review_content", "top_critic"],
            label: "review_type",
            side: |label| match label {
                "Fresh" => Some(true),
                "Rotten" => Some(false),
                _ => None,
            },
            labels: POSITIVE,
            question: "Given the fields of a movie review, is the review positive or negative? Answer with one \
                word, positive or negative.",
        },
        "classify-beer" => Labelling {
            fields: vec![
                "review/profileName",
                "review/taste",
                "review/palate",
                "review/appearance",
                "beer/name",
                "beer/style",
                "beer/beerId",
            ],
            label: "review/overall",
            side: |overall| match overall.strip_suffix("/20")?.parse::<u32>().ok()? {
                16.. => Some(true),
                ..=10 => Some(false),
                _ => None,
            },
            labels: ["poor", "good"],
            question: "Given the fields of a beer's rating, did the taster find the beer good or poor? Answer with \
                one word, good or poor.",
        },
        _ => Labelling {
            fields: vec!["description", "product_title", "review_title", "text", "verified_purchase"],
            label: "rating",
            side: stars,
            labels: POSITIVE,
            question: "Given the fields of a product review, is the review positive or negative? Answer with one \
                word, positive or negative.",
        },
    }
}

/// Places of the columns of these names.
fn places(table: &TextTable, names: &[&'static str]) -> Result<Vec<usize>, BenchError> {
    names.iter().map(|name| table.places([name]).map(|[place]| place)).collect()
}

/// A title that is a number of stars says the label.
fn says_stars(row: &[String]) -> bool {
    row.iter().any(|cell| cell.ends_with("Stars") || cell.ends_with("Star"))
}

/// Records with both labels equally often, in random order: by chance half is right.
fn classify(name: &'static str, table: &TextTable, sizes: &TaskSizes<'_>) -> Result<EvalTask, BenchError> {
    let Labelling { fields, label, side, labels, question } = labelling(name);
    let (of_fields, [of_label]) = (places(table, &fields)?, table.places([label])?);
    let mut sides: [Vec<TaskRow>; 2] = Default::default();
    for row in table.rows.iter().filter(|row| !says_stars(row)) {
        let cells: Vec<String> = of_fields.iter().map(|place| row[*place].clone()).collect();
        let length: usize = cells.iter().map(String::len).sum();
        if let Some(side) = side(&row[of_label])
            && length <= RECORD_MAX
        {
            let accepted = vec![labels[usize::from(side)].to_owned()];
            sides[usize::from(side)].push(TaskRow { cells, accepted, ..TaskRow::default() });
        }
    }
    let mut random = sizes.random(name);
    let each = sides.iter().map(Vec::len).min().unwrap_or(0).min(sizes.rows.div_ceil(2));
    let mut rows = Vec::new();
    for mut side in sides {
        side.shuffle(&mut random);
        rows.extend(side.into_iter().take(each));
    }
    rows.shuffle(&mut random);
    let measure = Measure::Label(labels.map(str::to_owned).to_vec());
    let form = PromptShape::Records { columns: fields, question: question.to_owned() };
    Ok(EvalTask { name, form, measure, output_max: 8, rows })
}

/// Reviews whose title is asked for, scored as LongBench scores summaries.
fn summary(table: &TextTable, sizes: &TaskSizes<'_>) -> Result<EvalTask, BenchError> {
    let [title, text] = table.places(["review_title", "text"])?;
    let is_summary = |row: &&Vec<String>| {
        let words = row[title].split_whitespace().count();
        // Where nobody wrote a title, a shop takes the first words.
        let is_own = !row[text].starts_with(row[title].trim_end_matches(['.', ' ']));
        !says_stars(row) && is_own && words >= 3 && (100..=RECORD_MAX).contains(&row[text].len())
    };
    let row = |row: &Vec<String>| TaskRow {
        documents: vec![format!("Review:\n{}", row[text])],
        question: "Now, write a title for the above review, of at most ten words.\n\nTitle:".into(),
        accepted: vec![row[title].clone()],
        ..TaskRow::default()
    };
    let mut rows: Vec<TaskRow> = table.rows.iter().filter(is_summary).map(row).collect();
    rows.shuffle(&mut sizes.random("summary"));
    rows.truncate(sizes.rows);
    let instruction = "You are given a review of a product. Write its title, a summary in a few words.";
    let form = PromptShape::Documents { instruction };
    Ok(EvalTask { name: "summary", form, measure: Measure::Summary, output_max: 20, rows })
}

/// Reviews behind examples, each of which is a document; all rows have the same ones, as a column has.
fn few_shot(table: &TextTable, sizes: &TaskSizes<'_>) -> Result<EvalTask, BenchError> {
    let [text, rating] = table.places(["text", "rating"])?;
    let mut sides: [Vec<&str>; 2] = Default::default();
    for row in &table.rows {
        if let Some(side) = stars(&row[rating])
            && (20..=RECORD_MAX / 3).contains(&row[text].len())
        {
            sides[usize::from(side)].push(&row[text]);
        }
    }
    let mut random = sizes.random("few-shot");
    sides.iter_mut().for_each(|side| side.shuffle(&mut random));
    let shown = |text: &str, label: &str| format!("Review: {text}\nSentiment:{label}");
    let examples: Vec<String> = (0..EXAMPLES)
        .filter_map(|at| {
            let side = at % 2;
            Some(shown(sides[side].get(at / 2)?, &format!(" {}", POSITIVE[side])))
        })
        .collect();
    let per_side = sides.iter().map(Vec::len).min().unwrap_or(0).saturating_sub(EXAMPLES / 2);
    let each = per_side.min(sizes.rows.div_ceil(2));
    let mut rows: Vec<TaskRow> = Vec::new();
    for (side, label) in sides.iter().zip(POSITIVE) {
        rows.extend(side.iter().skip(EXAMPLES / 2).take(each).map(|text| TaskRow {
            documents: examples.clone(),
            question: shown(text, ""),
            accepted: vec![label.to_owned()],
            ..TaskRow::default()
        }));
    }
    rows.shuffle(&mut random);
    let instruction = "Please determine the sentiment of the review, positive or negative. Here are some examples \
        of reviews.";
    let measure = Measure::Label(POSITIVE.map(str::to_owned).to_vec());
    Ok(EvalTask {
        name: "few-shot",
        form: PromptShape::Documents { instruction },
        measure,
        output_max: 8,
        rows,
    })
}

#[cfg(test)]
mod tests;
