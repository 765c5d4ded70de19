//! What lowering promises, on a byte-level tokenizer.

use base::text::{ByteText, conversation, put_in};
use base::{
    After, ChatTemplate, Generation, MarkupPart, Piece, RenderedPiece, Role, SpanKind, TextError, TokenCount,
    TokenId, Tokenizer, WorkItem,
};

use super::*;
use crate::cell::Cell;
use crate::error::{IrError, RowProblem};
use crate::plan::{Plan, Table, TableRow};
use crate::template::Template;

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

/// Tokens are words with the space before them, as SentencePiece has them: a hidden space goes before a
/// stretch that does not begin with one, and `<..>` in markup is a special token.
struct Words;

impl Words {
    fn id(word: &str) -> TokenId {
        TokenId(word.bytes().fold(7, |id, byte| id * 31 % 1_000_003 + u32::from(byte)))
    }

    fn words(text: &str) -> Vec<TokenId> {
        let mut words: Vec<String> = Vec::new();
        for character in text.chars() {
            match words.last_mut() {
                Some(last) if character != ' ' => last.push(character),
                _ => words.push(character.into()),
            }
        }
        words.iter().map(|word| Self::id(word)).collect()
    }
}

impl Tokenizer for Words {
    fn split_markup(&self, text: &str) -> Vec<MarkupPart> {
        let mut parts = Vec::new();
        for (i, part) in text.split_inclusive('>').enumerate() {
            let (text, special) =
                part.split_once('<').map_or((part, None), |(text, name)| (text, Some(name)));
            parts.extend((!text.is_empty()).then(|| MarkupPart::Text(text.to_owned())));
            parts.extend(special.map(|name| MarkupPart::Special(Self::id(&format!("<{name}")))));
            assert!(i < 9 && part.matches('<').count() < 2, "the tests' templates are this simple");
        }
        parts
    }
    fn encode_stretch(&self, after: After, text: &str) -> Vec<TokenId> {
        match after {
            After::Nothing if !text.is_empty() && !text.starts_with(' ') => Self::words(&format!(" {text}")),
            After::Nothing | After::Special => Self::words(text),
        }
    }
    fn encode_data(&self, text: &str) -> Vec<TokenId> {
        Self::words(text)
    }
    fn decode(&self, _: &[TokenId]) -> String {
        String::new()
    }
    fn vocab_size(&self) -> u32 {
        1_000_300
    }
    fn prompt_start(&self) -> Vec<TokenId> {
        vec![Self::id("<s>")]
    }
}

/// Llama 2's manner: a content has text on both sides, and special tokens only around the turn.
struct Turns(&'static str);

impl ChatTemplate for Turns {
    fn frame(&self, roles: &[Role]) -> Result<Vec<Piece>, TextError> {
        let mut pieces = vec![Piece::Markup(format!("{}[I] ", self.0))];
        for i in 0..roles.len() {
            pieces.extend([Piece::Content(i), Piece::Markup(format!("{i} "))]);
        }
        pieces.push(Piece::Markup("[/I]<e>now:".into()));
        Ok(pieces)
    }
}

#[test]
fn a_row_has_the_tokens_of_its_rendered_prompt() {
    let rows: &[&[&str]] = &[&["so", "x"], &["", "."], &["<e> <s>", "a  b "]];
    for (bos, template) in
        [("<s>", "Say {a} now{b}"), ("", "{a}, {b}"), ("<s>", "{a}{b}"), ("", " {a} and {b} ")]
    {
        let plan = relquery(template, rows, true);
        let lowered = lower(&plan, &Words, Some(&Turns(bos)), &LowerOptions::default()).expect("it lowers");
        for (row, answer) in rows.iter().zip(&lowered.answers) {
            let content = template.replace("{a}", row[0]).replace("{b}", row[1]);
            let text = format!("[I] Be brief.0 {content}1 [/I]");
            let after = if bos.is_empty() { After::Nothing } else { After::Special };
            let mut whole: Vec<TokenId> = Words.split_markup(bos).iter().map(|_| Words::id("<s>")).collect();
            whole.extend(Words.encode_stretch(after, &text));
            whole.extend([Words::id("<e>"), Words::id("now:")]);
            let frame = Turns(bos).frame(&[Role::System, Role::User]).expect("a frame");
            assert_eq!(Words.encode_framed(&frame, &["Be brief.", &content]), whole);
            let item = lowered.items.iter().find(|item| Ok(item.row) == *answer);
            assert_eq!(item.expect("the row runs").prompt.as_ref(), whole, "{template} {row:?}");
        }
    }
}

#[test]
fn a_raw_prompt_is_one_text_after_bos() {
    let plan = relquery("{a}, {b}", &[&["Hello", "you"], &[" so", "<e>"]], false);
    let lowered = lower(&plan, &Words, None, &LowerOptions::default()).expect("it lowers");
    for (item, words) in lowered.items.iter().zip([["<s>", " Hello,", " you"], ["<s>", " so,", " <e>"]]) {
        assert_eq!(item.prompt.as_ref(), words.map(Words::id));
        let spans: u64 = item.spans.iter().map(|span| span.tokens.0).sum();
        assert_eq!(spans, 3);
    }
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
    let generate = |input| Plan::Generate { input: Box::new(input), generation: Box::default() };
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
        let row = |answers: &&[u32]| TableRow::new(Vec::new(), answers.to_vec());
        let rows = Table { columns: Vec::new(), rows: answers.iter().map(row).collect() };
        Plan::Map { template: Box::new(Plan::prompt("a".into(), Generation::default())), rows }
    };
    let problem = |answers| lower(&plan(answers), &ByteText, None, &LowerOptions::default()).map(|_| ());
    assert_eq!(problem(&[&[1], &[0, 2]]), Ok(()));
    assert_eq!(problem(&[&[0], &[2]]), Err(IrError::RowMap { row: 1, times: 0 }));
    assert_eq!(problem(&[&[0, 1], &[1]]), Err(IrError::RowMap { row: 1, times: 2 }));
}

/// Llama 3's manner: contents are trimmed. A content that holds "No" is refused, as some refuse roles.
struct RefusingTemplate;

impl ChatTemplate for RefusingTemplate {
    fn frame(&self, roles: &[Role]) -> Result<Vec<Piece>, TextError> {
        ByteText.frame(roles)
    }

    fn render(&self, messages: &[(Role, &str)]) -> Result<Vec<RenderedPiece>, TextError> {
        if messages.iter().any(|(_, content)| content.contains("No")) {
            return Err(TextError::Template("no".into()));
        }
        let (roles, contents): (Vec<_>, Vec<_>) =
            messages.iter().map(|(role, content)| (*role, content.trim())).unzip();
        Ok(put_in(&self.frame(&roles)?, &contents))
    }
}

#[test]
fn a_row_is_what_the_chat_template_makes_of_its_own_contents() {
    let rows: &[&[&str]] = &[&["so", " "], &[" \n so\n", "b "], &["<end> ", "No"], &["", "e"]];
    let plan = relquery(" {a}\nand {b}\n", rows, true);
    let lowered =
        lower(&plan, &ByteText, Some(&RefusingTemplate), &LowerOptions::default()).expect("it lowers");
    let prompts: Vec<String> = lowered.items.iter().map(shown).collect();
    let prompt = |content: &str| format!("[system]Be brief.<END>[user]{content}<END>[assistant]");
    assert_eq!(prompts, ["so\nand", "so\n\nand b", "and e"].map(prompt));
    assert_eq!(lowered.answers[2], Err(RowProblem::Template("no".into())), "it fails alone");
    use SpanKind::{Field, Template};
    let spans =
        |item: &WorkItem| item.spans.iter().map(|span| (span.kind, span.tokens.0)).collect::<Vec<_>>();
    let markup = 24; // up to the second content
    assert_eq!(spans(&lowered.items[0]), [(Template, markup), (Field, 2), (Template, 16)]);
    assert_eq!(
        spans(&lowered.items[1]),
        [(Template, markup), (Field, 3), (Template, 5), (Field, 1), (Template, 12)]
    );
    let refused = relquery("No {a}", &[&["a"], &["b"]], true);
    let error = lower(&refused, &ByteText, Some(&RefusingTemplate), &LowerOptions::default());
    assert_eq!(error, Err(TextError::Template("no".into()).into()), "nothing is wrong with one row alone");
    for (role, content) in [(Role::User, " a\n"), (Role::User, "a")] {
        let talk = Plan::conversation(vec![(role, content.into())], Generation::default());
        let lowered =
            lower(&talk, &ByteText, Some(&RefusingTemplate), &LowerOptions::default()).expect("it lowers");
        assert_eq!(shown(&lowered.items[0]), "[user]a<END>[assistant]");
        let rendered = RefusingTemplate.render(&conversation(&[role], &[content])).expect("it renders");
        assert_eq!(*lowered.items[0].prompt, ByteText.encode_rendered(&rendered));
    }
}

#[test]
fn rows_whose_markup_differs_have_each_its_own() {
    /// Says how long a content is, and puts a special token between.
    struct CountingTemplate;
    impl ChatTemplate for CountingTemplate {
        fn frame(&self, roles: &[Role]) -> Result<Vec<Piece>, TextError> {
            ByteText.frame(roles)
        }
        fn render(&self, messages: &[(Role, &str)]) -> Result<Vec<RenderedPiece>, TextError> {
            let text = messages[0].1;
            let begin = if text.len() > 2 { "<end>" } else { "" };
            let upper = RenderedPiece::Content { message: 0, text: text.to_uppercase() };
            Ok(vec![RenderedPiece::Markup(format!("{begin}{}:", text.len())), upper])
        }
    }
    let template = Template::parse("{a}").expect("the template parses");
    let rows = ["a", "abc", "b", "abd"].map(|cell| vec![Cell::from(cell)]).to_vec();
    let table = Table::new(vec!["a".into()], rows).expect("one column");
    let plan = Plan::relquery(&template, None, true, table, Generation::default()).expect("it fits");
    let lowered =
        lower(&plan, &ByteText, Some(&CountingTemplate), &LowerOptions::default()).expect("it lowers");
    let prompts: Vec<String> = lowered.items.iter().map(shown).collect();
    assert_eq!(prompts, ["1:A", "<END>3:ABC", "1:B", "<END>3:ABD"]);
    let spans: Vec<u64> = lowered.items[1].spans.iter().map(|span| span.tokens.0).collect();
    assert_eq!(spans, [3, 3], "what the template changed counts as the cell's");
}
