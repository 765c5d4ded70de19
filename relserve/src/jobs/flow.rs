//! The rows of a job: read, put together by prefix, sent, written down.
//!
//! With `--order fields` the rows of a window of the table, and the fields of each, are ordered before they
//! are sent; else rows with a common prefix are put together. Reading, running and writing go on side by
//! side. Bounds: the rows read ahead, the buffer, and the requests under way.

use std::ops::Range;
use std::time::Duration;

use ir::bucket::{BucketSettings, Buffer};
use ir::{Template, TemplatePart};
use serde_json::{Map, Value};
use tokio::task::JoinSet;

use super::client::{Answers, Client, Refusal, RequestTokens};
use super::journal::{Journal, JournalRecord, JournalState, RowError};
use super::layout::Layout;
use super::options::Options;
use super::progress::Progress;
use super::window::{Window, WindowRow};
use super::{Failure, tell};
use crate::input::{Input, InputRow, InputRows};

/// Records written down at a time, where they come without a request.
const RECORDS_PER_WRITE: usize = 500;
/// Time between two looks at the progress.
const LOOK: Duration = Duration::from_millis(200);

/// What a job is.
pub(super) struct Job<'a> {
    /// What it was told.
    pub(super) options: &'a Options,
    /// The prompt.
    pub(super) template: &'a Template,
    /// Its columns.
    pub(super) layout: &'a Layout,
    /// The relQuery without its rows.
    pub(super) request: Map<String, Value>,
    /// Groups of columns that determine each other, for `--order fields`.
    pub(super) dependencies: Vec<Vec<String>>,
}

/// A row that waits or runs.
#[derive(Clone, Debug)]
struct QueuedRow {
    number: u64,
    /// What is kept of it.
    kept: Vec<Value>,
    /// What goes into the prompt: cells in the order of the columns, or by name.
    sent: Value,
}

/// Rows that wait.
enum Waiting {
    /// By what their prompts begin with.
    Buckets(Buffer<u8, QueuedRow>),
    /// In windows that are ordered as a whole.
    Windows(Window<QueuedRow>),
}

impl Waiting {
    fn is_empty(&self) -> bool {
        match self {
            Self::Buckets(buffer) => buffer.is_empty(),
            Self::Windows(window) => window.is_empty(),
        }
    }

    fn is_full(&self) -> bool {
        match self {
            Self::Buckets(buffer) => buffer.is_full(),
            Self::Windows(window) => window.is_full(),
        }
    }
}

/// Rows that have run.
type Ran = Result<(Vec<QueuedRow>, Answers, RequestTokens), String>;

/// A job under way.
struct Flow<'a> {
    job: Job<'a>,
    client: Client,
    journal: Journal,
    progress: Progress,
    waiting: Waiting,
    running: JoinSet<Ran>,
    /// Rows that are over without having run.
    unwritten: Vec<JournalRecord>,
    number: u64,
    /// Whether it was said that the server does not answer.
    is_away: bool,
}

/// Runs all rows that are not over. Stopped by Ctrl-C, it leaves the journal for the next time.
pub(super) async fn run(
    job: Job<'_>,
    input: Input,
    journal: Journal,
    client: Client,
) -> Result<Journal, Failure> {
    let rows_max = job.options.buffer_rows as usize;
    let settings = BucketSettings { rows_max, ..BucketSettings::default() };
    let waiting = if job.options.orders_fields() {
        let (template, columns) = (job.template.clone(), job.layout.sent.clone());
        Waiting::Windows(Window::new(template, columns, job.dependencies.clone(), settings))
    } else {
        Waiting::Buckets(Buffer::new(settings))
    };
    let progress = Progress::new(input.size, journal.counts());
    let mut flow = Flow {
        job,
        client,
        journal,
        progress,
        waiting,
        running: JoinSet::new(),
        unwritten: Vec::new(),
        number: 0,
        is_away: false,
    };
    flow.progress.show(flow.journal.counts());
    let mut rows = input.start();
    let ended = tokio::select! {
        ended = flow.course(&mut rows) => ended,
        _ = tokio::signal::ctrl_c() => Err("stopped".into()),
    };
    // Also what was read last is kept, whatever ended it.
    flow.write()?;
    flow.progress.end(flow.journal.counts());
    match ended {
        Ok(()) => Ok(flow.journal),
        Err(reason) => {
            let counts = flow.journal.counts();
            tell!("{} rows are kept; run the same command again to go on", counts.done + counts.failed);
            Err(reason)
        }
    }
}

impl Flow<'_> {
    async fn course(&mut self, rows: &mut InputRows) -> Result<(), Failure> {
        let mut is_read = false;
        let mut looks = tokio::time::interval(LOOK);
        loop {
            self.send(is_read).await?;
            if is_read && self.waiting.is_empty() && self.running.is_empty() {
                return Ok(());
            }
            tokio::select! {
                item = rows.next(), if !is_read && !self.waiting.is_full() => match item {
                    Some(row) => self.take(row?)?,
                    None => {
                        is_read = true;
                        self.progress.read(self.number);
                    }
                },
                Some(ran) = self.running.join_next(), if !self.running.is_empty() => {
                    self.record(ran??)?;
                }
                _ = looks.tick() => {
                    self.tell_outage();
                    self.progress.show(self.journal.counts());
                }
            }
        }
    }

    /// Says that the server has stopped answering, and that it answers again.
    fn tell_outage(&mut self) {
        let outage = self.client.outage();
        match &outage {
            Some(reason) if !self.is_away => {
                let patience = self.job.options.patience;
                self.progress.note(&format!("{reason}; trying again for up to {patience} s"));
            }
            None if self.is_away => self.progress.note("the server answers again"),
            Some(_) | None => {}
        }
        self.is_away = outage.is_some();
    }

    /// Takes a row of the input in.
    fn take(&mut self, row: InputRow) -> Result<(), Failure> {
        self.number += 1;
        self.progress.position(row.position);
        let pick =
            |places: &[usize]| places.iter().map(|place| row.cells[*place].clone()).collect::<Vec<_>>();
        let layout = self.job.layout;
        let (number, kept, fields) = (self.number, pick(&layout.places), pick(&layout.fields));
        let retry = self.job.options.retry_errors;
        match self.journal.look(number, &kept)? {
            JournalState::Changed => {
                return Err(
                    format!("row {number} is not what it was when this job began: use --restart").into()
                );
            }
            JournalState::New if !retry => {}
            JournalState::Failed if retry => {}
            JournalState::New | JournalState::Done | JournalState::Failed => return Ok(()),
        }
        if let Some(message) = row.bad {
            let error = Some(RowError { message, code: Some("bad_row".into()) });
            self.unwritten.push(JournalRecord { row: number, cells: kept, text: None, error });
            if self.unwritten.len() >= RECORDS_PER_WRITE {
                self.write()?;
            }
            return Ok(());
        }
        let bytes: usize = kept.iter().map(size).sum();
        match &mut self.waiting {
            Waiting::Buckets(buffer) => {
                let key = key(self.job.template, &layout.sent, &fields);
                let bytes = (key.len() + bytes) as u64;
                buffer.push(key, bytes, QueuedRow { number, kept, sent: Value::Array(fields) });
            }
            Waiting::Windows(window) => {
                let bytes = (fields.iter().map(size).sum::<usize>() + bytes) as u64;
                window.push(bytes, fields, QueuedRow { number, kept, sent: Value::Null });
            }
        }
        Ok(())
    }

    /// Sends rows while requests may be begun.
    async fn send(&mut self, is_read: bool) -> Result<(), Failure> {
        let options = self.job.options;
        let limit = options.rows_per_request as usize;
        while (self.running.len() as u64) < options.requests {
            let rows = match &mut self.waiting {
                Waiting::Buckets(buffer) => {
                    let must = is_read || self.running.is_empty();
                    // The first rows need not go alone: many are read in the time of one request.
                    let must = must && (is_read || buffer.len() >= limit);
                    buffer.pop(limit, must).map(|bucket| bucket.rows)
                }
                Waiting::Windows(window) => {
                    let named = |WindowRow { row, sent }| QueuedRow { sent, ..row };
                    window.pop(limit, is_read).await?.map(|rows| rows.into_iter().map(named).collect())
                }
            };
            let Some(rows) = rows else { return Ok(()) };
            self.running.spawn(ask(self.client.clone(), self.job.request.clone(), rows));
        }
        Ok(())
    }

    /// Writes down what has run.
    fn record(
        &mut self,
        (lines, answers, tokens): (Vec<QueuedRow>, Answers, RequestTokens),
    ) -> Result<(), Failure> {
        self.progress.add(tokens);
        let records = lines.into_iter().zip(answers).map(|(line, answer)| {
            let (text, error) = match answer {
                Ok(text) => (Some(text), None),
                Err(error) => (None, Some(error)),
            };
            JournalRecord { row: line.number, cells: line.kept, text, error }
        });
        self.unwritten.extend(records);
        self.write()
    }

    fn write(&mut self) -> Result<(), Failure> {
        if self.unwritten.is_empty() {
            return Ok(());
        }
        self.journal.append(&std::mem::take(&mut self.unwritten))
    }
}

/// What rows are put together by: their prompts from the first cell on; what stands before it is the same in
/// all.
fn key(template: &Template, names: &[String], cells: &[Value]) -> Vec<u8> {
    let mut key = Vec::new();
    let mut put = |cell: Option<&Value>| match cell {
        Some(Value::String(text)) => key.extend_from_slice(text.as_bytes()),
        Some(other) => key.extend_from_slice(other.to_string().as_bytes()),
        None => {}
    };
    let of = |name: &String| cells.get(names.iter().position(|column| column == name)?);
    let behind = template.parts().iter().skip_while(|part| matches!(part, TemplatePart::Text(_)));
    for part in behind {
        match part {
            TemplatePart::Field(name) => put(of(name)),
            TemplatePart::Record => {
                cells.iter().skip(template.fields().len()).for_each(|cell| put(Some(cell)))
            }
            TemplatePart::Text(text) => put(Some(&Value::String(text.clone()))),
        }
    }
    key
}

/// About how many bytes a cell takes.
fn size(cell: &Value) -> usize {
    match cell {
        Value::String(text) => text.len(),
        Value::Array(_) | Value::Object(_) => cell.to_string().len(),
        Value::Null | Value::Bool(_) | Value::Number(_) => size_of::<Value>(),
    }
}

/// Runs rows as one relQuery. Rows that the server refuses together are halved until it is known which it
/// refuses.
async fn ask(client: Client, request: Map<String, Value>, lines: Vec<QueuedRow>) -> Ran {
    let mut answers: Vec<Option<Result<String, RowError>>> = vec![None; lines.len()];
    let mut tokens = RequestTokens::default();
    let mut left: Vec<Range<usize>> = std::iter::once(0..lines.len()).collect();
    while let Some(range) = left.pop() {
        let mut body = request.clone();
        let rows = lines[range.clone()].iter().map(|line| line.sent.clone());
        body.insert("rows".into(), rows.collect());
        match client.run(&Value::Object(body), range.len()).await {
            Ok((found, spent)) => {
                tokens.prompt += spent.prompt;
                tokens.cached += spent.cached;
                tokens.output += spent.output;
                for (place, answer) in range.zip(found) {
                    answers[place] = Some(answer);
                }
            }
            // `max_tokens` is blamed for a prompt that is too long, too.
            Err(Refusal::Rows(error, Some(field)))
                if request.contains_key(root(&field))
                    && error.code.as_deref() != Some("context_length_exceeded") =>
            {
                return Err(format!("the server refuses this job: {}", error.message));
            }
            Err(Refusal::Rows(error, _)) if range.len() == 1 => answers[range.start] = Some(Err(error)),
            Err(Refusal::Rows(..)) => {
                let middle = range.start + range.len() / 2;
                left.extend([range.start..middle, middle..range.end]);
            }
            Err(Refusal::Job(reason)) => return Err(reason),
        }
    }
    let answers = answers.into_iter().map(|answer| {
        answer.unwrap_or_else(|| Err(RowError { message: "the row was left out".into(), code: None }))
    });
    Ok((lines, answers.collect(), tokens))
}

/// The first name of a field's path.
fn root(field: &str) -> &str {
    field.split(['.', '[']).next().unwrap_or(field)
}
