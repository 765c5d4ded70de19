//! Binding: a function and its arguments give a template with one field left, and the cell for it.

use std::collections::BTreeMap;

use base::{Constraint, ExcerptSource, Items, TextReading, TokenCount};

use super::answer::Answer;
use super::argument::{Argument, Checked};
use super::examples;
use super::form;
use super::function::{AnswerKind, CallError, Example, Function, Parameter, ParameterKind};
use super::reading::{NOTHING, can_read};
use crate::cell::Cell;
use crate::template::{Template, TemplatePart};

/// Most labels, tags or example pairs of a call.
const ITEMS_MAX: usize = 100;
/// Most characters of a label or tag.
const LABEL_CHARS_MAX: usize = 200;
/// Most characters of an argument that the calls of a relQuery share.
const SHARED_CHARS_MAX: usize = 20_000;
/// Largest number either way: it must fit the few output tokens of a rating.
const NUMBER_MAX: i64 = 999;

/// Most characters of an item of a list that is asked for.
const ITEM_CHARS_MAX: u32 = 60;
/// Most tags where none are given, and most characters of one.
const FREE_TAGS_MAX: u32 = 5;
const FREE_TAG_CHARS_MAX: u32 = 30;

/// A call, bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundCall {
    /// What it has in common with other rows of its relQuery. Equal: may run together.
    pub shared: SharedCall,
    /// Its own cell, for the template's one field.
    pub row: Cell,
}

/// What the rows of a coalesced relQuery have in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SharedCall {
    pub function: String,
    /// The prompt, all but the row filled in.
    pub template: Template,
    /// What is put before it for models that take turns.
    pub guide: Guide,
    /// Most output tokens.
    pub output_max: TokenCount,
    /// How the answers are read.
    pub answer: Answer,
    /// The form that answers have, where they have one: what they are held to.
    pub form: Option<Constraint>,
}

/// How a call is put to models that take turns: examples first, as turns that were answered already, the same for
/// every row.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Guide {
    /// What was asked and answered.
    pub turns: Vec<(String, String)>,
    /// The prompt in the last turn, where it is another than without turns.
    pub template: Option<Template>,
}

impl SharedCall {
    /// A call without examples.
    pub fn plain(function: &str, template: Template, output_max: TokenCount, answer: Answer) -> Self {
        let form = answer.form();
        Self { function: function.to_owned(), template, guide: Guide::default(), output_max, answer, form }
    }

    /// The one column of the relQuery's table.
    pub fn columns(&self) -> Vec<String> {
        self.template.fields().into_iter().map(str::to_owned).collect()
    }
}

impl Function {
    /// Checks the arguments of a call and binds them.
    pub fn bind(&self, arguments: &[Argument]) -> Result<BoundCall, CallError> {
        let (checked, template, own, row) = self.prompt(arguments)?;
        let guide = self.guide(&checked, &own)?;
        let shared = SharedCall {
            function: self.name.clone(),
            template,
            guide,
            output_max: self.output_max_for(&checked),
            form: self.form_for(&checked, &own),
            answer: self.answer_for(checked),
        };
        Ok(BoundCall { shared, row })
    }

    /// The prompt of a call with one field left: the arguments, the field's name, and the row's cell for it.
    pub(super) fn prompt(
        &self,
        arguments: &[Argument],
    ) -> Result<(Checked, Template, String, Cell), CallError> {
        let limit = self.parameters.len();
        if arguments.len() > limit {
            let function = self.name.clone();
            return Err(CallError::TooManyArguments { function, found: arguments.len(), limit });
        }
        let mut checked = Checked::default();
        let mut cells = BTreeMap::new();
        for (i, parameter) in self.parameters.iter().enumerate() {
            let given = arguments.get(i).filter(|argument| !argument.is_absent());
            if given.is_some() {
                checked.given.push(parameter.name.clone());
            }
            if let Some(Argument::Cell(cell)) = given {
                cells.insert(parameter.name.as_str(), cell.clone());
            }
            self.check(parameter, given, &mut checked)?;
        }
        self.check_scale(&checked)?;
        let (template, own, row) = self.fill(&self.template, &checked, &cells)?;
        Ok((checked, template, own, row))
    }

    /// The turns before a call.
    fn guide(&self, checked: &Checked, own: &str) -> Result<Guide, CallError> {
        if let Some(template) = &self.pair_template {
            let turns =
                checked.pairs.iter().filter(|(input, output)| !input.is_empty() && !output.is_empty());
            return Ok(Guide { turns: turns.cloned().collect(), template: Some(template.clone()) });
        }
        let derived = match (self.answer, checked.texts.get("target")) {
            (AnswerKind::Format, Some(target)) => form::examples(target),
            _ => Vec::new(),
        };
        if !derived.is_empty() {
            let asked = |(value, answer): (String, String)| {
                let arguments =
                    [Argument::Cell(value.into()), Argument::Cell(checked.texts["target"].clone().into())];
                self.asked(&arguments).map(|asked| (asked, answer))
            };
            let turns = derived.into_iter().map(asked).collect::<Result<_, _>>()?;
            return Ok(Guide { turns, template: None });
        }
        let chosen = examples::most_like(self, checked, own);
        let scale = checked.numbers.get("low").copied().zip(checked.numbers.get("high").copied());
        let turns = chosen.into_iter().map(|number| self.turn(number, scale)).collect::<Result<_, _>>()?;
        Ok(Guide { turns, template: None })
    }

    /// An example as a turn; a rating on the scale of the call, whose ends and middle have names.
    pub(super) fn turn(
        &self,
        number: usize,
        scale: Option<(i64, i64)>,
    ) -> Result<(String, String), CallError> {
        let Example { arguments, answer } = &self.examples[number];
        let Some((low, high)) = scale.filter(|_| self.answer == AnswerKind::Integer) else {
            return Ok((self.asked(arguments)?, answer.clone()));
        };
        let mut arguments = arguments.clone();
        arguments.extend([low, high].map(|end| Argument::Cell(Cell::Number(end.to_string()))));
        let answer = match answer.as_str() {
            "low" => low.to_string(),
            "middle" => (low + (high - low) / 2).to_string(),
            "high" => high.to_string(),
            other => other.to_owned(),
        };
        Ok((self.asked(&arguments)?, answer))
    }

    /// The prompt of a call, filled in.
    fn asked(&self, arguments: &[Argument]) -> Result<String, CallError> {
        let (_, template, _, row) = self.prompt(arguments)?;
        let parts = template.parts().iter().map(|part| match part {
            TemplatePart::Text(text) => text.clone(),
            TemplatePart::Field(_) | TemplatePart::Record => row.text().into_owned(),
        });
        Ok(parts.collect())
    }

    fn fail<T>(&self, argument: &str, reason: impl Into<String>) -> Result<T, CallError> {
        let (function, argument) = (self.name.clone(), argument.to_owned());
        Err(CallError::Argument { function, argument, reason: reason.into() })
    }

    fn check(
        &self,
        parameter: &Parameter,
        given: Option<&Argument>,
        checked: &mut Checked,
    ) -> Result<(), CallError> {
        let name = parameter.name.as_str();
        let text = match (given, parameter.kind) {
            (None, _) if !parameter.optional => return self.fail(name, "is missing"),
            (None, kind) => {
                let Some(default) = parameter.default.clone() else { return Ok(()) };
                if kind == ParameterKind::Number {
                    let number = self.number(name, &Cell::Number(default.clone()))?;
                    checked.numbers.insert(name.to_owned(), number);
                }
                default
            }
            (Some(Argument::Cell(cell)), ParameterKind::Text) => {
                if cell.is_blank() && !parameter.optional {
                    return self.fail(name, "is empty");
                }
                cell.text().into_owned()
            }
            (Some(_), ParameterKind::Text) => return self.fail(name, "must be one cell, not a range"),
            (Some(Argument::Cell(cell)), ParameterKind::Number) => {
                let number = self.number(name, cell)?;
                checked.numbers.insert(name.to_owned(), number);
                number.to_string()
            }
            (Some(_), ParameterKind::Number) => return self.fail(name, "must be one number, not a range"),
            (Some(argument), ParameterKind::List) => {
                checked.items = self.list(name, argument)?;
                checked.items.join(", ")
            }
            (Some(argument), ParameterKind::Pairs) => {
                checked.pairs = self.pairs(name, argument)?;
                let lines = checked.pairs.iter().map(|(input, output)| format!("{input} -> {output}"));
                lines.collect::<Vec<_>>().join("\n")
            }
        };
        checked.texts.insert(name.to_owned(), text);
        Ok(())
    }

    fn number(&self, name: &str, cell: &Cell) -> Result<i64, CallError> {
        let text = cell.text();
        // A sheet's number arrives as 5.0 where its client knows doubles only.
        match text.trim().trim_end_matches(".0").parse::<i64>() {
            Ok(number) if number.abs() <= NUMBER_MAX => Ok(number),
            Ok(_) => self.fail(name, format!("must be between -{NUMBER_MAX} and {NUMBER_MAX}")),
            Err(_) => self.fail(name, "must be a whole number"),
        }
    }

    fn list(&self, name: &str, argument: &Argument) -> Result<Vec<String>, CallError> {
        let cells: Vec<Cell> = match argument {
            Argument::Cell(cell) => cell.text().split([',', '\n']).map(Cell::from).collect(),
            Argument::List(cells) => cells.clone(),
            Argument::Range(rows) => rows.concat(),
        };
        // Blank cells of a range are no labels: people select a bit more than they filled.
        let items: Vec<String> =
            cells.iter().filter(|cell| !cell.is_blank()).map(|cell| cell.text().trim().to_owned()).collect();
        if items.is_empty() || items.len() > ITEMS_MAX {
            return self.fail(name, format!("must have 1 to {ITEMS_MAX} items, has {}", items.len()));
        }
        let mut seen = BTreeMap::new();
        for item in &items {
            if item.chars().count() > LABEL_CHARS_MAX {
                return self.fail(name, format!("has an item of more than {LABEL_CHARS_MAX} characters"));
            }
            if let Some(first) = seen.insert(item.to_lowercase(), item) {
                return self.fail(name, format!("has `{item}` twice (the other is `{first}`)"));
            }
        }
        Ok(items)
    }

    fn pairs(&self, name: &str, argument: &Argument) -> Result<Vec<(String, String)>, CallError> {
        let Argument::Range(rows) = argument else {
            return self.fail(name, "must be a range of two columns");
        };
        if rows.is_empty() || rows.len() > ITEMS_MAX {
            return self.fail(name, format!("must have 1 to {ITEMS_MAX} rows, has {}", rows.len()));
        }
        let mut pairs = Vec::with_capacity(rows.len());
        for (row, number) in rows.iter().zip(1..) {
            let [input, output] = row.as_slice() else {
                return self.fail(name, format!("must have two columns, row {number} has {}", row.len()));
            };
            pairs.push((input.text().trim().to_owned(), output.text().trim().to_owned()));
        }
        Ok(pairs)
    }

    /// Ranges that arguments must form together.
    fn check_scale(&self, checked: &Checked) -> Result<(), CallError> {
        let number = |name: &str| checked.numbers.get(name).copied();
        if let (Some(low), Some(high)) = (number("low"), number("high"))
            && low >= high
        {
            return self.fail("high", format!("must be above `low`, got {low} to {high}"));
        }
        match number("count") {
            Some(count) if !(1..=ITEMS_MAX as i64).contains(&count) => {
                self.fail("count", format!("must be between 1 and {ITEMS_MAX}, got {count}"))
            }
            _ => Ok(()),
        }
    }

    /// Fills in all but the row: the last argument of the template that the caller gave.
    fn fill(
        &self,
        template: &Template,
        checked: &Checked,
        cells: &BTreeMap<&str, Cell>,
    ) -> Result<(Template, String, Cell), CallError> {
        let fields = template.fields();
        let is_text = |name: &str| {
            self.parameters
                .iter()
                .any(|parameter| parameter.name == name && parameter.kind == ParameterKind::Text)
        };
        let own = fields.iter().rev().find_map(|name| {
            cells.get(name).filter(|cell| is_text(name) && !cell.is_blank()).map(|cell| (*name, cell.clone()))
        });
        let Some((own_name, row)) = own else {
            return self.fail(fields.first().copied().unwrap_or_default(), "is empty");
        };
        let mut filled = Template::default();
        for part in template.parts() {
            match part {
                TemplatePart::Text(text) => filled.push_text(text),
                // A function's arguments are named one by one: the catalogue takes no template with a record.
                TemplatePart::Record => {}
                TemplatePart::Field(name) if name == own_name => filled.push_field(name),
                TemplatePart::Field(name) => {
                    let text = checked.texts.get(name).map_or("", String::as_str);
                    if text.chars().count() > SHARED_CHARS_MAX {
                        return self.fail(name, format!("has more than {SHARED_CHARS_MAX} characters"));
                    }
                    filled.push_text(text);
                }
            }
        }
        filled.trim_end();
        Ok((filled, own_name.to_owned(), row))
    }

    fn output_max_for(&self, checked: &Checked) -> TokenCount {
        match (self.output_max_per_item, checked.numbers.get("count")) {
            (Some(each), Some(count)) => self.output_max.max(each * count.unsigned_abs()),
            _ => self.output_max,
        }
    }

    /// The form that answers have; `own` is the field of the row.
    fn form_for(&self, checked: &Checked, own: &str) -> Option<Constraint> {
        let items = |separator: &str, count: (u32, u32), chars_max| Items {
            texts: None,
            separator: separator.to_owned(),
            count_min: count.0,
            count_max: count.1,
            chars_max,
        };
        match self.answer {
            AnswerKind::Text => None,
            AnswerKind::Label => Some(Constraint::Choice(checked.items.clone())),
            AnswerKind::Integer => {
                let number = |name: &str, otherwise| checked.numbers.get(name).copied().unwrap_or(otherwise);
                Some(Constraint::Integer {
                    low: number("low", -NUMBER_MAX),
                    high: number("high", NUMBER_MAX),
                })
            }
            AnswerKind::Lines => {
                let count = checked.numbers.get("count").and_then(|count| u32::try_from(*count).ok());
                Some(Constraint::Items(items(
                    "\n",
                    count.map_or((1, ITEMS_MAX as u32), |count| (count, count)),
                    ITEM_CHARS_MAX,
                )))
            }
            AnswerKind::Tags if checked.items.is_empty() => {
                Some(Constraint::Items(items(", ", (1, FREE_TAGS_MAX), FREE_TAG_CHARS_MAX)))
            }
            AnswerKind::Tags => {
                let most = checked.items.len() as u32;
                Some(Constraint::Items(Items {
                    texts: Some(checked.items.clone()),
                    ..items(", ", (1, most), 0)
                }))
            }
            AnswerKind::Excerpt => {
                let excerpt = Constraint::Excerpt {
                    of: ExcerptSource::Field(own.to_owned()),
                    otherwise: Some(NOTHING.to_owned()),
                };
                let what = checked.texts.get("what").cloned().unwrap_or_default();
                read(own, TextReading::Stretches { what }, Some(excerpt))
            }
            AnswerKind::Format => {
                let target = checked.texts.get("target")?.clone();
                let regex = form::of_target(&target).map(Constraint::Regex);
                read(own, TextReading::Formatted { target }, regex)
            }
            AnswerKind::Pair => form::of_answers(checked.pairs.iter().map(|(_, output)| output.as_str())),
        }
    }

    fn answer_for(&self, checked: Checked) -> Answer {
        let number = |name: &str, otherwise| checked.numbers.get(name).copied().unwrap_or(otherwise);
        match self.answer {
            AnswerKind::Text
            | AnswerKind::Excerpt
            | AnswerKind::Tags
            | AnswerKind::Format
            | AnswerKind::Pair => Answer::Text,
            AnswerKind::Label => Answer::Label { labels: checked.items },
            AnswerKind::Lines => Answer::Lines {
                count_max: usize::try_from(number("count", ITEMS_MAX as i64)).unwrap_or(ITEMS_MAX),
            },
            AnswerKind::Integer => {
                Answer::Integer { low: number("low", -NUMBER_MAX), high: number("high", NUMBER_MAX) }
            }
        }
    }
}

/// What a row's text says, where such calls can be read; else what holds without.
fn read(own: &str, reading: TextReading, otherwise: Option<Constraint>) -> Option<Constraint> {
    if !can_read(&reading) {
        return otherwise;
    }
    Some(Constraint::Reading { field: own.to_owned(), reading, otherwise: otherwise.map(Box::new) })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::Catalogue;
    use super::*;

    fn bind(function: &str, arguments: Value) -> Result<BoundCall, CallError> {
        let arguments: Vec<Argument> = arguments
            .as_array()
            .expect("arguments are an array")
            .iter()
            .map(|value| Argument::from_json(value).expect("arguments are cells and ranges"))
            .collect();
        Catalogue::built_in().bind(function, &arguments)
    }

    fn check(function: &str, arguments: Value, template: &str, row: &str) {
        let bound = bind(function, arguments).expect("the call is good");
        assert_eq!((bound.shared.template.to_string().as_str(), bound.row.text().as_ref()), (template, row));
    }

    fn refuse(function: &str, arguments: Value, error: &str) {
        assert_eq!(bind(function, arguments).expect_err("the call is bad").to_string(), error);
    }

    #[test]
    fn every_function_leaves_one_field_for_the_row() {
        check(
            "classify",
            json!(["great {film}", [["good"], ["b{a}d"], [null]]]),
            "Classify the text. Answer with one of these labels: good, b{{a}}d.\n\nText: {text}",
            "great {film}",
        );
        check("ask", json!(["Which colour?", "sky"]), "Which colour?\n\n{context}", "sky");
        check("ask", json!(["Which colour?"]), "{prompt}", "Which colour?");
        check("ask", json!(["Which colour?", ""]), "{prompt}", "Which colour?");
        check(
            "summarize",
            json!(["long"]),
            "Summarize the text in one short sentence.\n\nText: {text}",
            "long",
        );
        check(
            "fill",
            json!([[["a", 1], ["b", 2]], "c"]),
            "Continue the pattern.\n\na -> 1\nb -> 2\n{input} ->",
            "c",
        );
        check("list", json!(["fruits", 3.0]), "List 3 items, one a line: {prompt}", "fruits");
        check(
            "rate",
            json!(["fine", null, 0, 10]),
            "Rate the text by how positive it is. Answer with one integer from 0 to 10.\n\nText: {text}",
            "fine",
        );
        check(
            "tag",
            json!(["x", "red, blue"]),
            "Tag the text. Answer with all fitting tags, separated by commas. Tags: red, blue.\n\nText: {text}",
            "x",
        );
    }

    #[test]
    fn examples_most_like_the_call_come_last_and_are_answered_as_it_is() {
        let turns =
            |function: &str, arguments: Value| bind(function, arguments).expect("good").shared.guide.turns;
        let edits = turns("edit", json!(["x", "please correct the grammar"]));
        assert_eq!(edits.len(), 4);
        assert_eq!(
            edits.last().map(|(asked, answer)| (asked.contains("correct the grammar"), answer.as_str())),
            Some((true, "We saw him yesterday."))
        );
        let dates = turns("format", json!(["4 May 2021", "DD/MM/YYYY"]));
        assert!(dates.iter().all(|(asked, _)| asked.contains("in this format: DD/MM/YYYY")), "{dates:?}");
        assert_eq!(dates.last().map(|(_, answer)| answer.as_str()), Some("09/04/2018"));
        let rated = turns("rate", json!(["x", "how urgent it is", 0, 10]));
        let answers: Vec<&str> = rated.iter().map(|(_, answer)| answer.as_str()).collect();
        assert_eq!(answers, ["10", "0", "5"]);
        assert!(
            rated[0].0.contains("by how urgent it is") && rated[0].0.contains("from 0 to 10"),
            "{rated:?}"
        );
        let is_free = |turn: &&(String, String)| turn.0.contains("Tags: any short topics.");
        let (free, listed) = (turns("tag", json!(["x"])), turns("tag", json!(["x", ["a", "b"]])));
        assert_eq!((free.len(), free.iter().filter(is_free).count()), (3, 3), "{free:?}");
        assert_eq!((listed.len(), listed.iter().filter(is_free).count()), (3, 0), "{listed:?}");
        let pairs = bind("fill", json!([[["a", "b"], ["c", "d"]], "e"])).expect("good").shared;
        assert_eq!(pairs.guide.turns, [("a".into(), "b".into()), ("c".into(), "d".into())]);
        assert_eq!(pairs.guide.template.map(|last| last.to_string()).as_deref(), Some("{input}"));
    }

    #[test]
    fn functions_whose_answers_have_a_form_say_it() {
        let form = |function: &str, arguments: Value| bind(function, arguments).expect("good").shared.form;
        let named = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        assert_eq!(form("classify", json!(["x", "a, b"])), Some(Constraint::Choice(named(&["a", "b"]))));
        assert_eq!(form("rate", json!(["x"])), Some(Constraint::Integer { low: 1, high: 5 }));
        let tags = Items {
            texts: Some(named(&["a", "b"])),
            separator: ", ".into(),
            count_min: 1,
            count_max: 2,
            chars_max: 0,
        };
        assert_eq!(form("tag", json!(["x", ["a", "b"]])), Some(Constraint::Items(tags)));
        assert!(matches!(form("tag", json!(["x"])), Some(Constraint::Items(Items { texts: None, .. }))));
        let copied =
            Constraint::Excerpt { of: ExcerptSource::Field("text".into()), otherwise: Some("none".into()) };
        assert_eq!(form("extract", json!(["x", "the person's name"])), Some(copied.clone()));
        let otherwise = |form: Option<Constraint>| match form {
            Some(Constraint::Reading { field, otherwise, .. }) => Some((field, otherwise.map(|form| *form))),
            _ => None,
        };
        let date = otherwise(form("extract", json!(["x", "the date"])));
        assert_eq!(date, Some(("text".to_owned(), Some(copied))));
        assert!(matches!(
            form("list", json!(["x", 3])),
            Some(Constraint::Items(Items { count_min: 3, count_max: 3, .. }))
        ));
        let pattern = otherwise(form("format", json!(["x", "YYYY-MM-DD"])));
        assert!(matches!(pattern, Some((_, Some(Constraint::Regex(_))))), "{pattern:?}");
        assert_eq!(otherwise(form("format", json!(["x", "title case"]))), Some(("text".to_owned(), None)));
        assert_eq!(form("format", json!(["x", "a friendly letter"])), None);
        for free in ["summarize", "ask"] {
            assert_eq!(form(free, json!(["x"])), None, "{free}");
        }
    }

    #[test]
    fn calls_that_differ_in_the_row_alone_share_a_template() {
        let shared =
            |text: &str, labels: Value| bind("classify", json!([text, labels])).expect("good").shared;
        assert_eq!(shared("a", json!(["x", "y"])), shared("b", json!([["x", "y"]])));
        assert_ne!(shared("a", json!(["x", "y"])), shared("a", json!(["y", "x"])));
    }

    #[test]
    fn more_items_may_be_longer() {
        let output_max = |count: u32| bind("list", json!(["a", count])).expect("good").shared.output_max;
        assert_eq!(output_max(5), TokenCount(64));
        assert!(output_max(50) >= TokenCount(500));
    }

    #[test]
    fn bad_arguments_are_named_with_their_limit() {
        refuse("classify", json!(["a"]), "classify: argument `labels` is missing");
        refuse("classify", json!(["a", []]), "classify: argument `labels` must have 1 to 100 items, has 0");
        refuse(
            "classify",
            json!(["a", ["x", "X"]]),
            "classify: argument `labels` has `X` twice (the other is `x`)",
        );
        refuse(
            "classify",
            json!(["a", ["x".repeat(201)]]),
            "classify: argument `labels` has an item of more than 200 characters",
        );
        refuse(
            "classify",
            json!([["a", "b"], ["x"]]),
            "classify: argument `text` must be one cell, not a range",
        );
        refuse("translate", json!(["", "French"]), "translate: argument `text` is empty");
        refuse("translate", json!(["a", "French", 1]), "translate: takes at most 2 arguments, got 3");
        refuse("rate", json!(["a", null, 5, 5]), "rate: argument `high` must be above `low`, got 5 to 5");
        refuse("rate", json!(["a", null, 1.5]), "rate: argument `low` must be a whole number");
        refuse("rate", json!(["a", null, 1, 10000]), "rate: argument `high` must be between -999 and 999");
        refuse("list", json!(["a", 0]), "list: argument `count` must be between 1 and 100, got 0");
        refuse(
            "fill",
            json!([[["a", "b", "c"]], "d"]),
            "fill: argument `examples` must have two columns, row 1 has 3",
        );
    }
}
