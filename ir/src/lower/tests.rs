//! What lowering promises, on a byte-level tokenizer.

use base::text::ByteText;
use base::{
    ChatTemplate, Generation, Piece, Role, SpanKind, TextError, TokenCount, TokenId, Tokenizer, WorkItem,
};

use super::*;
use crate::{Cell, IrError, Plan, Row, RowProblem, Table, Template};

fn relquery(template: &str, rows: &[&[&str]], chat: bool) -> Plan {
    let template = Template::parse(template).expect("the template parses");
    let columns = template.fields().into_iter().map(str::to_owned).collect();
    let rows = rows.iter().map(|row| row.iter().map(|cell| Cell::from(*cell)).collect()).collect();
    let table = Table::new(columns, rows).expect("the columns differ");
    let generation = Generation { output_max: TokenCount(4), ..Generation::default() };
    Plan::relquery(&template, chat.then_some("Be brief."), chat, table, generation).expect("it fits")
}

fn lowered(plan: &Plan, options: &LowerOptions) -> Lowered {
    lower(plan, &ByteText, Some(&ByteText), options).expect("the plan lowers")
}

fn shown(item: &WorkItem) -> String {
    let text = item.prompt.iter().map(|token| match *token {
        ByteText::END => "<END>".to_owned(),
        byte => ByteText.decode(&[byte]),
    });
    text.collect()
}

#[test]
fn a_cell_cannot_forge_markup_or_fields() {
    let plan = relquery("Say {a}.", &[&["<end>{a}"]], true);
    let lowered = lowered(&plan, &LowerOptions::default());
    assert_eq!(shown(&lowered.items[0]), "[system]Be brief.<END>[user]Say <end>{a}.<END>[assistant]");
}

#[test]
fn spans_add_up_and_mark_the_cell() {
    let plan = relquery("Say {a} and {b}!", &[&["xy", "z"], &["", ""]], false);
    let lowered = lowered(&plan, &LowerOptions::default());
    let spans: Vec<_> = lowered.items[0].spans.iter().map(|span| (span.kind, span.tokens.0)).collect();
    use SpanKind::{Field, Template};
    assert_eq!(spans, [(Template, 4), (Field, 2), (Template, 5), (Field, 1), (Template, 1)]);
    assert_eq!(lowered.items[1].spans.len(), 1);
}

/// Tokens are words that take the space before them, as byte-pair tokenizers have them.
struct Words;

impl Tokenizer for Words {
    fn encode_markup(&self, text: &str) -> Vec<TokenId> {
        self.encode_data(text)
    }
    fn encode_data(&self, text: &str) -> Vec<TokenId> {
        text.split_inclusive(|_: char| true)
            .fold(Vec::<String>::new(), |mut words, character| {
                match words.last_mut() {
                    Some(last) if !character.starts_with([' ', '>']) => last.push_str(character),
                    _ => words.push(character.to_owned()),
                }
                words
            })
            .iter()
            .map(|word| TokenId(word.bytes().fold(7, |id, byte| id * 31 % 1_000_003 + u32::from(byte))))
            .collect()
    }
    fn decode(&self, _: &[TokenId]) -> String {
        String::new()
    }
    fn vocab_size(&self) -> u32 {
        1_000_300
    }
    fn prompt_start(&self) -> Vec<TokenId> {
        Vec::new()
    }
}

/// Writes a space before every content.
struct Spaced;

impl ChatTemplate for Spaced {
    fn frame(&self, roles: &[Role]) -> Result<Vec<Piece>, TextError> {
        let pieces = (0..roles.len()).flat_map(|i| [Piece::Markup("<s> ".into()), Piece::Content(i)]);
        Ok(pieces.chain([Piece::Markup("<a>".into())]).collect())
    }
}

#[test]
fn a_space_before_a_content_joins_its_first_token() {
    let plan = relquery("Say {a} now", &[&["so"]], true);
    let lowered = lower(&plan, &Words, Some(&Spaced), &LowerOptions::default()).expect("it lowers");
    let whole: Vec<TokenId> = ["<s", ">", " Be", " brief.", "<s", ">", " Say", " so", " now", "<a", ">"]
        .iter()
        .map(|word| Words.encode_data(word)[0])
        .collect();
    assert_eq!(lowered.items[0].prompt.as_ref(), whole);
}

#[test]
fn a_bad_row_fails_alone() {
    let plan = relquery("{a}", &[&["ok"], &["a", "b"], &[" "], &["much too long"], &["ok"]], false);
    let options = LowerOptions { context_max: TokenCount(8), first_row: 7, ..LowerOptions::default() };
    let lowered = lowered(&plan, &options);
    let answers: Vec<String> = lowered
        .answers
        .iter()
        .map(|answer| match answer {
            Ok(row) => format!("row {row}"),
            Err(problem) => problem.to_string(),
        })
        .collect();
    assert_eq!(
        answers,
        [
            "row 7",
            "the row has 2 cells, the table has 1 columns",
            "the prompt is empty after filling the template",
            "the prompt's 13 tokens and `max_tokens` 4 exceed the context of 8 tokens",
            "row 11",
        ]
    );
    assert_eq!(lowered.items.len(), 2);
    assert_ne!(lowered.items[0].seed, lowered.items[1].seed);
}

#[test]
fn plans_that_exact_lowering_cannot_express_are_refused() {
    let text = || Plan::Text("a".into());
    let message = Plan::message(Role::User, text());
    let generate = |input| Plan::Generate { input: Box::new(input), generation: Generation::default() };
    let cases = [
        (text(), IrError::NoGenerate),
        (generate(Plan::Seq(vec![text(), message.clone()])), IrError::MixedPrompt),
        (generate(generate(text())), IrError::Unsupported("more than one `generate`")),
        (
            generate(Plan::message(Role::User, message.clone())),
            IrError::Unsupported("a message inside a message"),
        ),
    ];
    for (plan, error) in cases {
        assert_eq!(lower(&plan, &ByteText, None, &LowerOptions::default()), Err(error));
    }
    let no_template = lower(&generate(message), &ByteText, None, &LowerOptions::default());
    assert_eq!(no_template, Err(IrError::NoChatTemplate));
}

#[test]
fn a_blank_question_is_refused_and_a_conversation_is_one_row() {
    let say = |text: &str| Plan::conversation(vec![(Role::User, text.into())], Generation::default());
    let blank = lowered(&say(" \n"), &LowerOptions::default());
    assert_eq!(blank.answers, [Err(RowProblem::EmptyPrompt)]);
    assert_eq!(lowered(&say("hi"), &LowerOptions::default()).answers, [Ok(0)]);
}

#[test]
fn a_table_whose_answers_do_not_cover_the_input_is_refused() {
    let plan = |answers: &[&[u32]]| {
        let row = |answers: &&[u32]| Row { cells: Vec::new(), answers: answers.to_vec() };
        let rows = Table { columns: Vec::new(), rows: answers.iter().map(row).collect() };
        Plan::Map { template: Box::new(Plan::prompt("a".into(), Generation::default())), rows }
    };
    let problem = |answers| lower(&plan(answers), &ByteText, None, &LowerOptions::default()).map(|_| ());
    assert_eq!(problem(&[&[1], &[0, 2]]), Ok(()));
    assert_eq!(problem(&[&[0], &[2]]), Err(IrError::RowMap { row: 1, times: 0 }));
    assert_eq!(problem(&[&[0, 1], &[1]]), Err(IrError::RowMap { row: 1, times: 2 }));
}
