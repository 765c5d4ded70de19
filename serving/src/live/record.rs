//! What is remembered of a relQuery after its end: when it came, how long its rows were and what they shared,
//! how it went. Of prompts and answers lengths alone, no token and no text; beside them the name that its client
//! gave it. Nothing of rows that a cache answered.
//!
//! A relQuery's prompts are compared once, when they come, each with the one before it; the scheduler does
//! the same to order them.

use std::hash::{DefaultHasher, Hash, Hasher};

use base::{
    Nanos, Periods, RelQueryId, ServiceClass, SpanKind, Submission, TenantId, Time, TokenId, WorkItem,
};

use super::RelQueryName;

/// How a relQuery ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All rows ended, or failed each alone.
    Completed {
        /// Its latency in three parts (RelServe, Eq. 2).
        periods: Periods,
    },
    /// It was called off.
    Cancelled,
}

/// How a row ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowOutcome {
    /// With an answer.
    Done,
    /// Without.
    Failed,
    /// It was called off.
    Cancelled,
}

/// How a row ended, and with what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowEnd {
    /// Tokens of its output.
    pub output: u64,
    /// Steps that gave them; 0 where nobody knows.
    pub samplings: u32,
    pub outcome: RowOutcome,
}

/// One row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedRow {
    /// The value that it shares with others: a number in [`RelQueryRecord::groups`].
    pub group: Option<u32>,
    /// Prompt tokens behind the template, those of its group among them.
    pub own: u32,
    /// Tokens of its output: those it had when it ended.
    pub output: u32,
    /// Steps that gave them, fewer where constraints forced some or guesses came true; 0 where nobody knows.
    pub samplings: u32,
}

/// One relQuery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelQueryRecord {
    pub id: RelQueryId,
    pub tenant: TenantId,
    /// The tenant's share, in thousandths.
    pub weight: u32,
    /// Who waited.
    pub class: ServiceClass,
    /// How it is called outside.
    pub name: RelQueryName,
    /// When it arrived.
    pub arrival: Time,
    /// When it ended.
    pub end: Time,
    pub outcome: Outcome,
    /// OL(R).
    pub output_max: u64,
    /// What names its template; equal only where scope and tokens are.
    pub template: u64,
    /// Tokens that all its rows begin with: its template's, and of its values' where that says more.
    pub template_tokens: u32,
    /// Lengths of the values that neighbouring rows share behind the template.
    pub groups: Vec<u32>,
    pub rows: Vec<RecordedRow>,
    /// Rows that failed.
    pub failed: u32,
    /// Rows that were called off.
    pub cancelled: u32,
}

impl RelQueryRecord {
    /// A relQuery that comes, without its rows.
    pub fn begun(submission: &Submission, name: RelQueryName) -> Self {
        let Submission { id, tenant, weight, class, arrival, .. } = *submission;
        Self {
            id,
            tenant,
            weight,
            class,
            name,
            arrival,
            end: arrival,
            outcome: Outcome::Cancelled,
            output_max: 0,
            template: 0,
            template_tokens: 0,
            groups: Vec::new(),
            rows: Vec::new(),
            failed: 0,
            cancelled: 0,
        }
    }

    /// Rows are added, with the first of which the template is set.
    pub fn add(&mut self, scope: u128, items: &[WorkItem]) {
        let Some(first) = items.first() else { return };
        let alike: Vec<usize> =
            items.windows(2).map(|pair| common(&pair[0].prompt, &pair[1].prompt)).collect();
        let lead = first.spans.iter().take_while(|span| span.kind == SpanKind::Template);
        let lead: u64 = lead.map(|span| span.tokens.0).sum();
        let lead = usize::try_from(lead).unwrap_or(usize::MAX).min(first.prompt.len());
        if self.rows.is_empty() {
            let shared = template(lead, alike.iter().copied().min(), items.len());
            self.template_tokens = count(shared);
            self.template = named(scope, &first.prompt[..shared]);
        }
        let lead = self.template_tokens as usize;
        let shared = alike.iter().map(|shared| count(shared.saturating_sub(lead)));
        let mut members = 0;
        for (item, shared) in items.iter().zip(std::iter::once(0).chain(shared)) {
            self.output_max = self.output_max.max(item.generation.output_max.0);
            let own = count(item.prompt.len().saturating_sub(lead));
            let group = self.group(shared, &mut members);
            self.rows.push(RecordedRow { group, own, output: 0, samplings: 0 });
        }
    }

    /// The group of a new row that shares so much with the one before it, whose group has so many `members`.
    fn group(&mut self, shared: u32, members: &mut u64) -> Option<u32> {
        let before = std::mem::take(members);
        let neighbour = self.rows.last_mut().filter(|_| shared > 0)?;
        let Some(group) = neighbour.group else {
            self.groups.push(shared);
            neighbour.group = Some(count(self.groups.len() - 1));
            *members = 2;
            return neighbour.group;
        };
        let length = &mut self.groups[group as usize];
        // A group that is cut to what one more has in common may save more than it did.
        let saves = |members: u64, length: u32| members.saturating_sub(1) * u64::from(length);
        if shared < *length && saves(before + 1, shared) < saves(before, *length) {
            return None;
        }
        *length = shared.min(*length);
        *members = before + 1;
        Some(group)
    }

    /// A row has ended.
    pub fn row_ended(&mut self, number: u32, RowEnd { output, samplings, outcome }: RowEnd) {
        match outcome {
            RowOutcome::Done => {}
            RowOutcome::Failed => self.failed += 1,
            RowOutcome::Cancelled => self.cancelled += 1,
        }
        if let Some(row) = self.rows.get_mut(number as usize) {
            row.output = u32::try_from(output).unwrap_or(u32::MAX);
            row.samplings = samplings;
        }
    }

    /// Tokens of all prompts.
    pub fn prompt_tokens(&self) -> u64 {
        self.rows.iter().map(|row| u64::from(self.template_tokens) + u64::from(row.own)).sum()
    }

    /// Tokens of all outputs.
    pub fn output_tokens(&self) -> u64 {
        self.rows.iter().map(|row| u64::from(row.output)).sum()
    }

    /// Its latency in three parts, where it completed.
    pub fn periods(&self) -> Option<Periods> {
        match self.outcome {
            Outcome::Completed { periods } => Some(periods),
            Outcome::Cancelled => None,
        }
    }

    /// From its arrival to its end.
    pub fn latency(&self) -> Nanos {
        self.end.since(self.arrival)
    }
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Tokens of a template before `lead` that rows begin with. Those that all rows share beyond it count as the
/// template's where the rows save more by them than others, of the same template, would by its shorter form.
fn template(lead: usize, shared: Option<usize>, rows: usize) -> usize {
    let shared = shared.unwrap_or(lead);
    let saved = shared.saturating_sub(lead).saturating_mul(rows - 1);
    if saved > lead { shared } else { shared.min(lead) }
}

fn named(scope: u128, tokens: &[TokenId]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (scope, tokens).hash(&mut hasher);
    hasher.finish()
}

/// Tokens that two prompts begin with, compared in strides.
fn common(a: &[TokenId], b: &[TokenId]) -> usize {
    const STRIDE: usize = 32;
    let strides = a.chunks_exact(STRIDE).zip(b.chunks_exact(STRIDE));
    let whole = strides.take_while(|(a, b)| a == b).count() * STRIDE;
    whole + a[whole..].iter().zip(&b[whole..]).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::Arc;

    use base::{Generation, Span, TokenCount};

    use super::*;

    /// A row whose first `template` tokens are the template's.
    pub(crate) fn item(row: u32, template: u64, prompt: &[u32]) -> WorkItem {
        let own = TokenCount(prompt.len() as u64 - template);
        WorkItem {
            row,
            prompt: prompt.iter().copied().map(TokenId).collect(),
            spans: Arc::from([
                Span { kind: SpanKind::Template, tokens: TokenCount(template) },
                Span { kind: SpanKind::Field, tokens: own },
            ]),
            sections: Arc::default(),
            generation: Arc::new(Generation { output_max: TokenCount(9), ..Generation::default() }),
            seed: u64::from(row),
        }
    }

    pub(crate) fn submission(id: u64, tenant: u64, arrival: u64) -> Submission {
        Submission {
            id: RelQueryId(id),
            tenant: TenantId(tenant),
            weight: 1_000,
            scope: u128::from(tenant),
            class: ServiceClass::Interactive,
            arrival: Time(arrival),
            deadline: None,
            items: Vec::new(),
        }
    }

    pub(crate) const NAME: RelQueryName = RelQueryName { route: "relqueries", request: None, label: None };

    /// The end of a row that took a step a token.
    pub(crate) fn ended(output: u64, outcome: RowOutcome) -> RowEnd {
        RowEnd { output, samplings: output as u32, outcome }
    }

    #[test]
    fn lengths_and_what_neighbours_share_are_kept() {
        let mut record = RelQueryRecord::begun(&submission(1, 1, 5), NAME);
        let rows = [item(0, 2, &[1, 2, 3, 4, 5]), item(1, 2, &[1, 2, 3, 4, 6, 7]), item(2, 2, &[1, 2, 8, 9])];
        record.add(1, &rows);
        assert_eq!((record.template_tokens, record.output_max), (2, 9));
        assert_eq!(record.groups, [2]);
        let rows: Vec<_> = record.rows.iter().map(|row| (row.group, row.own)).collect();
        assert_eq!(rows, [(Some(0), 3), (Some(0), 4), (None, 2)]);
        assert_eq!(record.prompt_tokens(), 5 + 6 + 4);
        record.row_ended(2, ended(4, RowOutcome::Done));
        record.row_ended(0, ended(3, RowOutcome::Failed));
        record.row_ended(1, ended(2, RowOutcome::Cancelled));
        record.row_ended(99, ended(1, RowOutcome::Done));
        assert_eq!((record.output_tokens(), record.failed, record.cancelled), (9, 1, 1));
    }

    #[test]
    fn rows_that_join_later_follow_the_template_of_the_first_and_templates_are_told_apart() {
        let mut record = RelQueryRecord::begun(&submission(1, 1, 5), NAME);
        record.add(1, &[item(0, 2, &[1, 2, 3])]);
        record.add(1, &[item(1, 2, &[1, 2, 4, 5]), item(2, 2, &[1, 2, 4, 6])]);
        assert_eq!(record.prompt_tokens(), 3 + 4 + 4);
        assert_eq!(record.rows[1].group, Some(0));
        let template = |scope, tokens: &[u32]| {
            let mut record = RelQueryRecord::begun(&submission(1, 1, 5), NAME);
            record.add(scope, &[item(0, 2, tokens)]);
            record.template
        };
        assert_eq!(template(1, &[1, 2, 7]), record.template);
        assert_ne!(template(2, &[1, 2, 7]), record.template);
        assert_ne!(template(1, &[1, 3, 7]), record.template);
    }

    #[test]
    fn what_many_rows_share_is_found_whoever_wrote_it() {
        let mut record = RelQueryRecord::begun(&submission(1, 1, 5), NAME);
        let own = |row: u32| [1, 2, 7, 7, 7, row / 4, row / 4, row, row];
        let rows: Vec<WorkItem> = (0..16).map(|row| item(row, 2, &own(row))).collect();
        record.add(1, &rows);
        assert_eq!(record.template_tokens, 5, "the values begin alike");
        assert_eq!(record.groups, [2; 4], "and by fours they go on alike");
        let mut pair = RelQueryRecord::begun(&submission(1, 1, 5), NAME);
        pair.add(1, &[item(0, 3, &[1, 2, 3, 7, 8]), item(1, 3, &[1, 2, 3, 7, 9])]);
        assert_eq!((pair.template_tokens, pair.groups), (3, vec![1]), "two rows do not make a template");
    }

    #[test]
    fn a_group_is_cut_where_that_takes_more_rows_in() {
        let mut record = RelQueryRecord::begun(&submission(1, 1, 5), NAME);
        let rows = [&[1, 2, 3, 4, 5], &[1, 2, 3, 4, 6], &[1, 2, 3, 7, 8], &[1, 2, 9, 9, 9], &[1, 8, 8, 8, 8]];
        let rows: Vec<_> = (0..).zip(rows).map(|(row, prompt)| item(row, 1, prompt)).collect();
        record.add(1, &rows);
        assert_eq!(record.groups, [2], "three, cut to two for a third row, and not to one for a fourth");
        let grouped: Vec<bool> = record.rows.iter().map(|row| row.group.is_some()).collect();
        assert_eq!(grouped, [true, true, true, false, false]);
    }

    #[test]
    fn long_beginnings_are_compared_to_the_token() {
        let long: Vec<TokenId> = (0..100).map(TokenId).collect();
        for differs in [0, 31, 32, 33, 64, 99] {
            let mut other = long.clone();
            other[differs] = TokenId(1_000);
            assert_eq!(common(&long, &other), differs);
        }
        assert_eq!((common(&long, &long), common(&long, &long[..40])), (100, 40));
    }
}
