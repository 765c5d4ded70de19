//! Whatever route a conversation comes by, its prompt is what the model's chat template makes of it: a chat,
//! the rows of a relQuery, a span query, a PML prompt. What templates make is compared with transformers in
//! engine/tests/chat_templates.rs; the texts here are the same.

use base::{ChatTemplate as _, Generation, Role, TokenId, Tokenizer as _};
use engine::text::{ModelText, TextFiles};
use ir::pml::{Layout, PmlPrompt, Positions, Schema, Stretch};
use ir::span::{CallId, Output, SpanLimits, SpanQuery};
use ir::{Cell, Encoder, LowerOptions, Plan, RowProblem, Table, Tags, Template, lower};
use serde_json::{Value, json};

const TOKENIZER: &str = include_str!("../../models/demo/tokenizer.json");
const EXPECTED: &str = include_str!("../../engine/tests/templates/expected.json");
const LENGTH_MAX: u32 = 100_000;

/// A template and the tokenizer of the demo model, with the template's special tokens.
fn text_of(name: &str, case: &Value) -> ModelText {
    let path = format!("{}/../engine/tests/templates/{name}.jinja", env!("CARGO_MANIFEST_DIR"));
    let template = std::fs::read_to_string(path).expect("every expected template is there");
    let mut tokenizer: Value = serde_json::from_str(TOKENIZER).expect("JSON");
    let mut vocab = 8_192; // above all that the tokenizer has
    for content in case["special"].as_array().expect("a list") {
        let added = tokenizer["added_tokens"].as_array_mut().expect("a list");
        if !added.iter().any(|token| token["content"] == *content) {
            added.push(json!({
                "id": vocab, "content": content, "special": true, "normalized": false,
                "single_word": false, "lstrip": false, "rstrip": false,
            }));
            vocab += 1;
        }
    }
    let settings = json!({
        "bos_token": case["bos_token"], "eos_token": case["eos_token"], "chat_template": template,
    });
    let (tokenizer, settings) = (tokenizer.to_string(), settings.to_string());
    let files = TextFiles { tokenizer: &tokenizer, tokenizer_config: Some(&settings), chat_template: None };
    ModelText::new(files, vocab, &Default::default(), None).expect("a valid checkpoint")
}

type Conversation = Vec<(Role, String)>;

/// The prompt of a plan of one row; `None` where the row asks nothing.
fn lowered(text: &ModelText, plan: &Plan) -> Option<Vec<TokenId>> {
    let options =
        LowerOptions { context_max: base::TokenCount(LENGTH_MAX.into()), ..LowerOptions::default() };
    let lowered = lower(plan, text, Some(text), &options).expect("it lowers");
    match &lowered.answers[0] {
        Err(RowProblem::EmptyPrompt) => None,
        answer => {
            assert_eq!(*answer, Ok(0));
            Some(lowered.items[0].prompt.to_vec())
        }
    }
}

/// The prompt as a row of a relQuery, where it has its messages.
fn relquery(text: &ModelText, conversation: &Conversation) -> Option<Vec<TokenId>> {
    let (system, user) = match &conversation[..] {
        [(Role::System, system), (Role::User, user)] => (Some(system.as_str()), user),
        [(Role::User, user)] => (None, user),
        _ => return None,
    };
    // The white space at the beginning is the template's, the rest the cell's.
    let (lead, cell) = user.split_at(user.len() - user.trim_start().len());
    let template = Template::parse(&format!("{lead}{{a}}")).expect("the template parses");
    let rows = vec![vec![Cell::from(cell)]];
    let table = Table::new(vec!["a".into()], rows).expect("one column");
    let plan = Plan::relquery(&template, system, true, table, Generation::default()).expect("it fits");
    lowered(text, &plan)
}

/// The prompt as a span query.
fn span_query(text: &ModelText, tags: &Tags, conversation: &Conversation) -> Vec<TokenId> {
    let message = |(role, content): &(Role, String)| json!({ role.name(): content });
    let messages: Vec<Value> = conversation.iter().map(message).collect();
    let query = json!({ "g": { "input": { "seq": messages } } });
    let query = SpanQuery::read(&query, &SpanLimits::default()).expect("a query");
    let plan = ir::span::Plan::new(&query).expect("a plan");
    let encoder = Encoder { tokenizer: text, chat: Some((text, tags)) };
    let outputs = &|_| Output::Tokens(&[][..]);
    plan.assemble(CallId(0), encoder, LENGTH_MAX, outputs).expect("it fits").prompt
}

/// The prompt as PML, the first message in the schema: in a module, and as a server is sent it; and as the
/// schema's own, in pieces.
fn pml(text: &ModelText, tags: &Tags, conversation: &Conversation) -> [Vec<TokenId>; 2] {
    let message = |(role, content): &(Role, String)| {
        let content = content.replace('&', "&amp;").replace('<', "&lt;");
        format!("<{role}>{content}</{role}>", role = role.name())
    };
    let messages: Vec<String> = conversation.iter().map(message).collect();
    let positions = Positions { length_max: LENGTH_MAX, can_shift: true, bounds_arguments: true };
    let made = |schema: &str, import: &str| {
        let schema = Schema::parse(&format!("<schema name=\"s\">{schema}</schema>")).expect("a schema");
        let layout = Layout::new(&schema, text, Ok(tags), positions).expect("it fits");
        let prompt = format!("<prompt schema=\"s\">{import}{}</prompt>", messages[1..].concat());
        let prompt = PmlPrompt::parse(&prompt).expect("a prompt");
        let assembly = layout.assemble(&prompt, text, Ok(tags), LENGTH_MAX).expect("it fits");
        (layout, assembly)
    };
    let (_, assembly) = made(&format!("<module name=\"m\">{}</module>", messages[0]), "<m/>");
    let plain = assembly.plain(text, Ok(tags));
    let (layout, assembly) = made(&messages[0], "");
    let pieces = assembly.stretches.iter().flat_map(|stretch| match stretch {
        Stretch::New { tokens, .. } => tokens.clone(),
        Stretch::Piece { unit, piece, tokens, .. } => {
            layout.units[*unit].pieces[*piece].tokens[..*tokens].to_vec()
        }
    });
    [plain, pieces.collect()]
}

/// What PML, where white space belongs to tags too, can say as it is.
fn is_pml(conversation: &Conversation) -> bool {
    conversation.iter().all(|(_, text)| {
        let at_end = |space: &str| space.contains('\n') && space != "\n";
        let (lead, trail) = (text.len() - text.trim_start().len(), text.trim_end().len());
        let is_xml = !text.contains(|c| ('\0'..' ').contains(&c) && !"\t\n".contains(c) || c == '\u{feff}');
        is_xml && !text.trim().is_empty() && !at_end(&text[..lead]) && !at_end(&text[trail..])
    })
}

/// Messages that some templates do not treat one by one: Qwen 3 cuts off thoughts, and has some for an answer
/// that is the last; DeepSeek puts what the system says in front.
fn depends_on_others(conversation: &Conversation) -> bool {
    let is_answered = conversation.last().is_some_and(|(role, _)| *role == Role::Assistant);
    let has_thoughts = conversation.iter().any(|(_, text)| text.contains("</think>"));
    is_answered || has_thoughts || conversation.iter().skip(1).any(|(role, _)| *role == Role::System)
}

#[test]
fn every_route_gives_the_prompt_that_the_template_makes() {
    let expected: Value = serde_json::from_str(EXPECTED).expect("generate.py wrote it");
    let conversations: Vec<Conversation> =
        serde_json::from_value(expected["conversations"].clone()).expect("conversations");
    let mut compared = [0; 5];
    for (name, case) in expected["templates"].as_object().expect("templates") {
        let text = text_of(name, case);
        let tags = Tags::of(&text, &text);
        let rendered = case["rendered"].as_array().expect("one per conversation");
        for (conversation, expected) in conversations.iter().zip(rendered) {
            let Some(expected) = expected.as_str() else { continue };
            let messages: Vec<_> =
                conversation.iter().map(|(role, content)| (*role, content.as_str())).collect();
            let pieces = text.render(&messages).expect("it renders");
            let whole: String = pieces.iter().map(base::RenderedPiece::text).collect();
            assert_eq!(whole, expected);
            let prompt = text.encode_rendered(&pieces);
            let mut check = |route: usize, found: Option<Vec<TokenId>>| {
                if let Some(found) = found {
                    assert_eq!(found, prompt, "{name}, route {route}: {conversation:?}");
                    compared[route] += 1;
                }
            };
            let chat = Plan::conversation(conversation.clone(), Generation::default());
            check(0, lowered(&text, &chat));
            check(1, relquery(&text, conversation));
            let is_blank = |(_, content): &(Role, String)| content.is_empty();
            if let Ok(tags) = &tags {
                if !conversation.iter().any(is_blank) {
                    check(2, Some(span_query(&text, tags, conversation)));
                }
                if is_pml(conversation) && !depends_on_others(conversation) {
                    let [plain, pieces] = pml(&text, tags, conversation);
                    check(3, Some(plain));
                    // Between the others' messages stands text that joins into tokens.
                    check(4, Some(pieces).filter(|_| name.starts_with("llama")));
                }
            }
        }
    }
    assert!(compared.iter().all(|count| *count >= 10), "{compared:?}");
}
