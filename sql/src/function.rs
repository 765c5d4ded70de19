//! The AI functions of SQL: their names, what they take and what their answers are.
//!
//! In a plan they are names only: [`crate::lift`] takes each call out of its expression before anything is
//! optimised. A call that was left in place is an error when it runs.

use std::sync::LazyLock;

use base::{Constraint, TokenCount};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{Result, ScalarValue, exec_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use ir::catalogue::{Answer, AnswerValue, Argument, Catalogue, SharedCall};
use ir::{Cell, Template};

use crate::options::CallOptions;
use crate::prompt::PromptTemplate;
use crate::runner::{AiColumn, CorpusSearch};
use crate::{cell, prompt};

/// The functions that SQL has beside those of the cells.
static OWN: LazyLock<Catalogue> = LazyLock::new(|| {
    Catalogue::parse(include_str!("../functions.toml")).expect("a test reads the same file")
});

/// What a call gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ResultType {
    /// `yes` or `no`.
    Boolean,
    Text,
    Integer,
    /// A number of a scale.
    Number,
    /// Items, one a line.
    Lines,
    /// Those of the labels that the answer names.
    Labels,
    /// A JSON array of texts.
    Texts,
    /// The numbers of a text's vector.
    Vector,
    /// How likely the answer is, 0 to 1; of a yes-or-no question, how likely yes is.
    Probability,
}

impl ResultType {
    /// Its type in SQL.
    pub fn data_type(self) -> DataType {
        match self {
            Self::Boolean => DataType::Boolean,
            Self::Text => DataType::Utf8,
            Self::Integer => DataType::Int64,
            Self::Number | Self::Probability => DataType::Float64,
            Self::Lines | Self::Labels | Self::Texts => cell::list_of_text(),
            Self::Vector => cell::list_of_numbers(),
        }
    }

    /// No value.
    pub fn null(self) -> ScalarValue {
        ScalarValue::try_new_null(&self.data_type()).unwrap_or(ScalarValue::Null)
    }
}

/// An AI function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Function {
    /// Its name in SQL.
    pub name: &'static str,
    /// The function of a catalogue that it calls.
    target: &'static str,
    output: ResultType,
}

/// Every AI function. Those of the cells that SQL has no word of its own for follow by their names.
static NAMED: [Function; 12] = [
    Function { name: "ai_if", target: "if", output: ResultType::Boolean },
    Function { name: "ai_classify", target: "classify", output: ResultType::Text },
    Function { name: "ai_classify_many", target: "tag", output: ResultType::Labels },
    Function { name: "ai_score", target: "rate", output: ResultType::Number },
    Function { name: "ai_extract", target: "extract", output: ResultType::Text },
    Function { name: "ai_complete", target: "complete", output: ResultType::Text },
    Function { name: "ai_translate", target: "translate", output: ResultType::Text },
    Function { name: "ai_summarize", target: "summarize", output: ResultType::Text },
    Function { name: "ai_sentiment", target: "classify", output: ResultType::Text },
    Function { name: "ai_rank", target: "rank", output: ResultType::Integer },
    Function { name: "ai_embed", target: "embed", output: ResultType::Vector },
    Function { name: "ai_similarity", target: "similarity", output: ResultType::Number },
];

/// How likely answers are that are one of a list. They ask the same prompts as the functions without
/// `_probability`, so that both together run once.
static PROBABILITIES: [Function; 5] = [
    Function { name: "ai_if_probability", target: "if", output: ResultType::Probability },
    Function { name: "ai_classify_probability", target: "classify", output: ResultType::Probability },
    Function { name: "ai_score_probability", target: "rate", output: ResultType::Probability },
    Function { name: "ai_rate_probability", target: "rate", output: ResultType::Probability },
    Function { name: "ai_sentiment_probability", target: "classify", output: ResultType::Probability },
];

/// The rest of the catalogue of cell functions.
static CELLS: [Function; 7] = [
    Function { name: "ai_ask", target: "ask", output: ResultType::Text },
    Function { name: "ai_edit", target: "edit", output: ResultType::Text },
    Function { name: "ai_fill", target: "fill", output: ResultType::Text },
    Function { name: "ai_format", target: "format", output: ResultType::Text },
    Function { name: "ai_list", target: "list", output: ResultType::Lines },
    Function { name: "ai_rate", target: "rate", output: ResultType::Integer },
    Function { name: "ai_tag", target: "tag", output: ResultType::Text },
];

/// What looks texts up, and asks no model.
static SEARCHES: [Function; 1] =
    [Function { name: "ai_retrieve", target: "retrieve", output: ResultType::Texts }];

/// Fragments that `ai_retrieve` gives where the call does not say.
const RETRIEVED: usize = 5;

/// Functions of the texts of a group.
static AGGREGATES: [Function; 2] = [
    Function { name: "ai_agg", target: "aggregate", output: ResultType::Text },
    Function { name: "ai_summarize_agg", target: "aggregate", output: ResultType::Text },
];

/// What `ai_summarize_agg` asks for.
const SUMMARIZE: &str = "Summarize these texts together in a few sentences.";

/// Labels of a sentiment.
const SENTIMENTS: [&str; 4] = ["positive", "negative", "neutral", "mixed"];
/// What a yes-or-no question may be answered with.
const YES_NO: [&str; 2] = ["yes", "no"];

/// The functions, in the order of their tables.
pub fn all() -> impl Iterator<Item = Function> {
    NAMED.iter().chain(&PROBABILITIES).chain(&CELLS).chain(&SEARCHES).copied()
}

/// A row's call, ready to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Bound {
    /// What it shares with other rows.
    pub column: AiColumn,
    /// The row's own cells.
    pub cells: Vec<Cell>,
}

/// What the rows of a call share whose arguments after the data are equal.
#[derive(Clone, Debug, PartialEq)]
pub struct BoundColumn {
    pub column: AiColumn,
    pub cells: RowCells,
}

/// Where the cells of a row come from.
#[derive(Clone, Debug, PartialEq)]
pub enum RowCells {
    /// The data.
    Data,
    /// These of the prompt's values.
    Places(Vec<usize>),
    /// An argument after the data is the row's own (`ai_ask` with a context): these cells, of this row alone.
    Own(Vec<Cell>),
}

/// The input of a call: a value, or a prompt of several.
#[derive(Clone, Debug, PartialEq)]
pub enum BoundInput {
    Value(ScalarValue),
    Prompt(PromptTemplate, Vec<ScalarValue>),
}

impl Function {
    /// The function of this name.
    pub fn by_name(name: &str) -> Option<Self> {
        all().find(|function| function.name == name)
    }

    /// The functions of groups.
    pub fn aggregates() -> impl Iterator<Item = Self> {
        AGGREGATES.iter().copied()
    }

    /// Whether its data are the texts of a group.
    pub fn is_aggregate(self) -> bool {
        self.target == "aggregate"
    }

    /// Whether it orders rows, by comparing their texts with one another.
    pub fn is_rank(self) -> bool {
        self.target == "rank"
    }

    /// Whether an embedding model answers it.
    pub fn is_embedding(self) -> bool {
        self.target == "embed"
    }

    /// Whether it is written with calls of another: the similarity of two texts is that of their vectors.
    pub fn is_similarity(self) -> bool {
        self.target == "similarity"
    }

    /// The function of vectors.
    pub fn embedding() -> Self {
        NAMED[10]
    }

    /// What a call gives.
    pub fn output(self) -> ResultType {
        self.output
    }

    /// Binds a row's call. `Ok(None)`: an input is NULL, and so is the answer.
    pub fn bind(
        self,
        input: &BoundInput,
        rest: &[ScalarValue],
        options: &CallOptions,
    ) -> Result<Option<Bound>, String> {
        let (values, is_null) = match input {
            BoundInput::Value(value) => (std::slice::from_ref(value), value.is_null()),
            BoundInput::Prompt(prompt, values) => (values.as_slice(), prompt.lacks_a_value(values)),
        };
        if is_null {
            return Ok(None);
        }
        let BoundColumn { column, cells } = self.column(input, rest, options)?;
        let cells = match cells {
            RowCells::Data => values.iter().map(cell::of).collect(),
            RowCells::Places(places) => places.into_iter().map(|at| cell::of(&values[at])).collect(),
            RowCells::Own(cells) => cells,
        };
        Ok(Some(Bound { column, cells }))
    }

    /// What a row's call shares with other rows; none of the inputs is NULL, but for those of a record.
    pub fn column(
        self,
        input: &BoundInput,
        rest: &[ScalarValue],
        options: &CallOptions,
    ) -> Result<BoundColumn, String> {
        if self.target == "retrieve" {
            return self.retrieval(input, rest);
        }
        if self.is_embedding() {
            return Ok(BoundColumn { column: AiColumn::embedding(), cells: RowCells::Data });
        }
        let first = match input {
            BoundInput::Value(value) => cell::argument(value),
            // Stands where the prompt is put in its place.
            BoundInput::Prompt(..) => Argument::Cell(Cell::Text("prompt".into())),
        };
        let mut arguments = vec![first];
        arguments.extend(rest.iter().map(|value| match self.target {
            "classify" | "tag" => cell::labels(value),
            _ => cell::argument(value),
        }));
        let bound = self.catalogue_call(arguments).map_err(|error| {
            error.to_string().replacen(&format!("{}:", self.target), &format!("{}:", self.name), 1)
        })?;
        let mut shared = bound.shared;
        if self.target == "if" {
            shared.answer = Answer::Label { labels: YES_NO.map(str::to_owned).to_vec() };
            shared.form = shared.answer.form();
        }
        if let Some(tokens) = options.max_tokens {
            shared.output_max = TokenCount(tokens);
        }
        let (cells, record) = match input {
            BoundInput::Value(_) if self.has_data_of(&shared) => (RowCells::Data, Vec::new()),
            BoundInput::Value(_) => (RowCells::Own(vec![bound.row]), Vec::new()),
            BoundInput::Prompt(prompt, _) => {
                shared.template = prompt::splice(&shared.template, &prompt.template);
                shared.guide.template =
                    shared.guide.template.take().map(|last| prompt::splice(&last, &prompt.template));
                // A prompt of several values is no text to copy from.
                shared.form = shared.form.take().and_then(Constraint::without_field);
                let placed = shared.columns();
                let placed = placed.iter().filter_map(|name| name.parse().ok());
                let places = placed.chain(prompt.record.iter().map(|(place, _)| *place));
                let names = prompt.record.iter().map(|(_, name)| name.clone());
                (RowCells::Places(places.collect()), names.collect())
            }
        };
        let constraint = options.schema.as_ref().map(|schema| Constraint::JsonSchema(schema.clone()));
        let model = options.model.clone();
        let column = AiColumn { shared, constraint, record, search: None, model };
        Ok(BoundColumn { column, cells })
    }

    /// A look into a corpus: the text, the corpus, how many fragments.
    fn retrieval(self, input: &BoundInput, rest: &[ScalarValue]) -> Result<BoundColumn, String> {
        let name = self.name;
        if matches!(input, BoundInput::Prompt(..)) {
            return Err(format!("{name}: takes a text, and no prompt"));
        }
        let Some(corpus) = rest.first().and_then(|corpus| corpus.try_as_str().flatten()) else {
            return Err(format!("{name}: `corpus` must be the name of a corpus"));
        };
        let count = match rest.get(1) {
            None => Some(RETRIEVED),
            Some(count) => count.to_string().parse().ok().filter(|count| *count > 0),
        };
        let Some(count) = count.filter(|_| rest.len() <= 2) else {
            return Err(format!("{name}: takes a text, a corpus and a positive number of fragments"));
        };
        let template = Template::parse("{0}").map_err(|error| error.to_string())?;
        let shared = SharedCall::plain(self.target, template, TokenCount(0), Answer::Text);
        let search = Some(CorpusSearch { corpus: corpus.to_owned(), count });
        let column = AiColumn { shared, constraint: None, record: Vec::new(), search, model: None };
        Ok(BoundColumn { column, cells: RowCells::Data })
    }

    /// Whether the field that a template has left is for the data, the first of the arguments.
    fn has_data_of(self, shared: &SharedCall) -> bool {
        let data =
            self.catalogue().function(self.target).ok().and_then(|function| function.parameters.first());
        data.is_some_and(|data| shared.template.fields() == [data.name.as_str()])
    }

    /// Where its prompt is written.
    fn catalogue(self) -> &'static Catalogue {
        match self.target {
            "if" | "complete" | "aggregate" => &OWN,
            _ => Catalogue::built_in(),
        }
    }

    fn catalogue_call(
        self,
        mut arguments: Vec<Argument>,
    ) -> Result<ir::catalogue::BoundCall, ir::catalogue::CallError> {
        let list = |texts: &[&str]| Argument::List(texts.iter().map(|text| Cell::from(*text)).collect());
        match self.name {
            "ai_summarize_agg" => {
                arguments.truncate(1);
                arguments.push(Argument::Cell(Cell::from(SUMMARIZE)));
            }
            "ai_sentiment" | "ai_sentiment_probability" => arguments.push(list(&SENTIMENTS)),
            _ => {}
        }
        self.catalogue().bind(self.target, &arguments)
    }

    /// Reads what the model wrote.
    pub fn read(
        self,
        column: &AiColumn,
        text: &str,
        probability: Option<f64>,
    ) -> Result<ScalarValue, String> {
        let SharedCall { answer, .. } = &column.shared;
        let value = answer.read(text).map_err(|error| error.to_string())?;
        if self.output == ResultType::Probability {
            let Some(probability) = probability else {
                return Err("the probability is not known: what runs the rows does not tell it".to_owned());
            };
            let is_no = self.target == "if" && value == AnswerValue::Text(YES_NO[1].to_owned());
            return Ok(ScalarValue::from(if is_no { 1.0 - probability } else { probability }));
        }
        Ok(match (self.output, value) {
            (ResultType::Boolean, AnswerValue::Text(label)) => ScalarValue::from(label == YES_NO[0]),
            (ResultType::Integer, AnswerValue::Text(number)) => number
                .parse::<i64>()
                .map(ScalarValue::from)
                .map_err(|_| format!("the model answered `{number}`, which is no integer"))?,
            (ResultType::Number, AnswerValue::Integer(number)) => ScalarValue::from(number as f64),
            (ResultType::Labels, AnswerValue::Text(text)) => {
                let mut labels: Vec<&str> = Vec::new();
                for label in text.split(',').map(str::trim).filter(|label| !label.is_empty()) {
                    if !labels.contains(&label) {
                        labels.push(label);
                    }
                }
                cell::text_list(labels.into_iter().map(str::to_owned))
            }
            (ResultType::Texts, AnswerValue::Text(text)) => {
                let texts: Vec<String> = serde_json::from_str(&text).map_err(|error| error.to_string())?;
                cell::text_list(texts)
            }
            (_, AnswerValue::Text(text)) => ScalarValue::from(text),
            (_, AnswerValue::Integer(number)) => ScalarValue::from(number),
            (_, AnswerValue::List(items)) => cell::text_list(items),
        })
    }
}

/// A function as a plan has it before its calls are lifted.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Marker {
    function: Function,
    signature: Signature,
}

impl Marker {
    /// The function it stands for.
    pub fn function(&self) -> Function {
        self.function
    }
}

impl ScalarUDFImpl for Marker {
    fn name(&self) -> &str {
        self.function.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(self.function.output.data_type())
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        exec_err!("{}: an AI function cannot be called in this place", self.function.name)
    }
}

/// The functions for a session.
pub fn markers() -> Vec<ScalarUDF> {
    let signature = || Signature::variadic_any(Volatility::Stable);
    all().map(|function| ScalarUDF::from(Marker { function, signature: signature() })).collect()
}

/// The AI function that an expression calls, with its arguments.
pub fn called(expr: &Expr) -> Option<(Function, &[Expr])> {
    let Expr::ScalarFunction(call) = expr else { return None };
    let marker = call.func.inner().downcast_ref::<Marker>()?;
    Some((marker.function, &call.args))
}

/// Checks what can be checked before any row is there: the number of arguments, and the place.
pub fn check(function: Function, arguments: usize) -> Result<()> {
    if function.is_rank() {
        return plan_err!(
            "ai_rank: compares rows with one another: it can only be the first key of ORDER BY ai_rank(text, \
             criterion) LIMIT k; a number for each row is ai_score(text, criterion, low, high)"
        );
    }
    match arguments {
        0 => plan_err!("{}: needs an input", function.name),
        2.. if function.is_embedding() => {
            plan_err!("{}: takes one text, got {arguments} arguments", function.name)
        }
        _ => Ok(()),
    }
}
