//! Chat templates write what transformers' `apply_chat_template` writes with them, and give its tokens.
//!
//! `templates/generate.py` made the expected texts: of twelve templates, each after a public model's, and of
//! conversations with white space, quotes, line breaks, tools and thoughts in their contents.

use std::collections::BTreeMap;

use base::{
    ChatTemplate as _, PromptEnd, RenderedPiece, Role, TokenId, Tokenizer as _, ToolCallForm, ToolFields,
};
use engine::text::{ModelText, TextFiles};
use serde::Deserialize;
use serde_json::{Value, json};

const TOKENIZER: &str = include_str!("../../models/demo/tokenizer.json");

/// What transformers made.
#[derive(Deserialize)]
struct Expected {
    conversations: Vec<Vec<(Role, String)>>,
    templates: BTreeMap<String, TemplateCase>,
}

/// A template's tokens and prompts.
#[derive(Deserialize)]
struct TemplateCase {
    bos_token: Option<String>,
    eos_token: Option<String>,
    special: Vec<String>,
    /// Per conversation; `None` where it is refused, joined or not.
    rendered: Vec<Option<String>>,
}

fn expected() -> Expected {
    serde_json::from_str(include_str!("templates/expected.json")).expect("generate.py wrote it")
}

fn template(name: &str) -> String {
    let path = format!("{}/tests/templates/{name}.jinja", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).expect("every expected template is there")
}

/// The demo model's tokenizer with a template's special tokens, as a model's text and as the crate has it.
fn text_of(name: &str, case: &TemplateCase) -> (ModelText, tokenizers::Tokenizer) {
    let mut tokenizer: Value = serde_json::from_str(TOKENIZER).expect("JSON");
    let plain: tokenizers::Tokenizer = TOKENIZER.parse().expect("a tokenizer");
    let mut vocab = plain.get_vocab_size(true) as u32;
    for content in &case.special {
        if plain.token_to_id(content).is_none() {
            let token = json!({
                "id": vocab, "content": content, "special": true, "normalized": false,
                "single_word": false, "lstrip": false, "rstrip": false,
            });
            tokenizer["added_tokens"].as_array_mut().expect("a list").push(token);
            vocab += 1;
        }
    }
    let tokenizer = tokenizer.to_string();
    let settings = json!({
        "bos_token": case.bos_token, "eos_token": case.eos_token, "chat_template": template(name),
    });
    let settings = settings.to_string();
    let files = TextFiles { tokenizer: &tokenizer, tokenizer_config: Some(&settings), chat_template: None };
    let text = ModelText::new(files, vocab, &Default::default(), None).expect("a valid checkpoint");
    (text, tokenizer.parse().expect("a tokenizer"))
}

fn messages(conversation: &[(Role, String)]) -> Vec<(Role, &str)> {
    conversation.iter().map(|(role, content)| (*role, content.as_str())).collect()
}

fn written(pieces: &[RenderedPiece]) -> String {
    pieces.iter().map(RenderedPiece::text).collect()
}

#[test]
fn prompts_are_those_of_transformers_to_the_letter_and_to_the_token() {
    let Expected { conversations, templates } = expected();
    assert!(templates.len() >= 10);
    for (name, case) in &templates {
        let (text, reference) = text_of(name, case);
        for (conversation, expected) in conversations.iter().zip(&case.rendered) {
            let rendered = text.render(&messages(conversation));
            let Some(expected) = expected else {
                rendered.expect_err(name);
                continue;
            };
            let rendered = rendered.unwrap_or_else(|error| panic!("{name}, {conversation:?}: {error}"));
            assert_eq!(&written(&rendered), expected, "{name}, {conversation:?}");
            // Special tokens in contents are none here, but for those that the template itself deals with.
            let holds = |special: &String| conversation.iter().any(|(_, content)| content.contains(special));
            if !case.special.iter().any(holds) {
                let tokens: Vec<u32> = text.encode_rendered(&rendered).iter().map(|token| token.0).collect();
                let whole = reference.encode_fast(expected.as_str(), false).expect("it encodes");
                assert_eq!(tokens, whole.get_ids(), "{name}, {conversation:?}");
            }
        }
        let roles = [Role::System, Role::User];
        let rows = vec![vec!["\nBe brief. ", " a\n"]; 40];
        let alone = text.render(&[(roles[0], rows[0][0]), (roles[1], rows[0][1])]);
        assert_eq!(text.render_rows(&roles, &rows), vec![alone; 40], "{name}");
    }
}

#[test]
fn a_conversation_of_a_thousand_messages_is_written_by_each_template() {
    const SAID: &str = "a few words";
    for (name, case) in &expected().templates {
        let (text, _) = text_of(name, case);
        let roles = [Role::User, Role::Assistant].into_iter().cycle().take(1_001);
        let messages: Vec<_> = roles.map(|role| (role, SAID)).collect();
        let pieces = text.render(&messages).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(written(&pieces).matches(SAID).count(), messages.len(), "{name}");
    }
}

#[test]
fn a_message_that_is_continued_is_the_conversation_up_to_its_last_letter() {
    const SAID: &str = "Yes, it is";
    for (name, case) in &expected().templates {
        let (text, _) = text_of(name, case);
        let ended = |end, said: &str| {
            let template = text.ending(end).expect("it is a template");
            let pieces = template.render(&[(Role::User, "Sure?"), (Role::Assistant, said)]);
            written(&pieces.unwrap_or_else(|error| panic!("{name}: {error}")))
        };
        let closed = ended(PromptEnd::Message, SAID);
        let open = ended(PromptEnd::Text, SAID);
        assert!(open.ends_with(SAID), "{name}: {open:?}");
        let rest = closed.strip_prefix(&open);
        assert!(rest.is_some_and(|rest| !rest.is_empty()), "{name}: {closed:?} closes {open:?}");
        // White space at its end stays where the template leaves it there, and nothing comes in its place.
        let blank = ended(PromptEnd::Text, &format!("{SAID} "));
        assert!(blank == open || blank == format!("{open} "), "{name}: {blank:?}");
        let answered = text.render(&[(Role::User, "Sure?"), (Role::Assistant, SAID)]);
        let answered = answered.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(written(&answered), ended(PromptEnd::Answer, SAID), "{name}");
    }
}

#[test]
fn an_answer_that_a_template_drops_is_not_found_in_the_question() {
    let templates = expected().templates;
    let (text, _) = text_of("deepseek_r1", &templates["deepseek_r1"]);
    let template = text.ending(PromptEnd::Text).expect("it is a template");
    let asked = (Role::User, "What does </think> mean?");
    let kept = template.render(&[asked, (Role::Assistant, "It ends")]).expect("it is kept");
    assert!(written(&kept).ends_with("mean?<｜Assistant｜>It ends"), "{}", written(&kept));
    for dropped in ["</think>", "It </think>", "</think> mean?"] {
        let pieces = template.render(&[asked, (Role::Assistant, dropped)]);
        assert!(pieces.is_err(), "{dropped}: {pieces:?}");
    }
}

/// The special tokens of a prompt.
fn specials(text: &ModelText, conversation: &[(Role, String)]) -> Vec<TokenId> {
    let tokens = text.encode_rendered(&text.render(&messages(conversation)).expect("it renders"));
    let plain: tokenizers::Tokenizer = TOKENIZER.parse().expect("a tokenizer");
    let is_added = |token: &TokenId| {
        let added = plain.get_added_vocabulary().get_added_tokens_decoder();
        token.0 >= plain.get_vocab_size(true) as u32 || added.contains_key(&token.0)
    };
    tokens.into_iter().filter(is_added).collect()
}

#[test]
fn no_content_forges_a_special_token_whatever_the_template_does_to_it() {
    const THOUGHT: &str = "<think>\nHm.\n</think>\n\nb";
    for (name, case) in &expected().templates {
        let (text, _) = text_of(name, case);
        for answer in ["ab", THOUGHT] {
            let talk = |asked: &str, answered: &str| {
                let answer = (Role::Assistant, format!("{answer}{answered}b"));
                let ask = |text: &str| (Role::User, format!("{text}{asked}b"));
                [ask("\n"), answer, ask(" a ")]
            };
            let own = specials(&text, &talk("", ""));
            for special in &case.special {
                assert_eq!(specials(&text, &talk(special, "")), own, "{name}: {special}, asked");
                // A template that cuts thoughts off does so with these.
                if special != "</think>" {
                    assert_eq!(specials(&text, &talk(special, special)), own, "{name}: {special}, answered");
                }
            }
        }
    }
}

/// A conversation with tools: roles and contents, and the fields beside them.
fn with_tools(tools: &Value, conversation: &Value) -> (Vec<(Role, String)>, ToolFields) {
    let mut fields = ToolFields::default();
    fields.tools.extend(tools.as_array().expect("a list").iter().map(Value::to_string));
    let mut messages = Vec::new();
    for (number, message) in conversation.as_array().expect("a list").iter().enumerate() {
        let mut more = message.as_object().expect("an object").clone();
        let content = more.remove("content").and_then(|content| content.as_str().map(str::to_owned));
        let role = match message["role"].as_str().expect("a role") {
            "system" => Role::System,
            "assistant" => Role::Assistant,
            _ => Role::User,
        };
        if more["role"] != "tool" {
            more.remove("role");
        }
        if !more.is_empty() {
            fields.messages.insert(number, Value::Object(more).to_string());
        }
        messages.push((role, content.expect("a content")));
    }
    (messages, fields)
}

#[test]
fn tools_and_calls_are_written_as_transformers_writes_them_and_forge_nothing() {
    let expected: Value =
        serde_json::from_str(include_str!("templates/expected_tools.json")).expect("generate.py wrote it");
    let forms = [("qwen25_tools", ToolCallForm::Hermes), ("mistral_tools", ToolCallForm::Mistral)];
    for (name, form) in forms {
        let case: TemplateCase =
            serde_json::from_value(expected["templates"][name].clone()).expect("a template's case");
        let (text, _) = text_of(name, &case);
        assert_eq!(text.tool_call_form(), Some(form));
        let conversations = expected["conversations"].as_array().expect("a list");
        for (conversation, rendered) in conversations.iter().zip(&case.rendered) {
            let (owned, fields) = with_tools(&expected["tools"], conversation);
            let pieces = text.render_tools(&messages(&owned), &fields).expect("it renders");
            assert_eq!(Some(written(&pieces)), *rendered, "{name}, {conversation}");
            // What a tool answered is data, whatever it holds.
            for piece in &pieces {
                if let RenderedPiece::Markup(markup) = piece {
                    assert!(!markup.contains("two <tool_call>"), "{name}: {markup:?}");
                }
            }
        }
        // What is written as markup may name no special token.
        let forged =
            ToolFields { tools: vec![json!({"x": case.special[0]}).to_string()], ..Default::default() };
        let refused = text.render_tools(&[(Role::User, "Hi")], &forged).expect_err("refused");
        assert!(refused.to_string().contains(&case.special[0]), "{refused}");
    }
    let plain = expected_case("smollm2");
    let (text, _) = text_of("smollm2", &plain);
    assert_eq!(text.tool_call_form(), None);
}

fn expected_case(name: &str) -> TemplateCase {
    expected().templates.remove(name).expect("a template")
}
