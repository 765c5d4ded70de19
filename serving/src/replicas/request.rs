//! A row as a server is asked it: the path and the body of one request.

use std::sync::Arc;

use base::{Generation, WorkItem};
use serde_json::{Map, Value, json};

use super::dialect;
use super::logprobs::Beside;
use super::prompt_scores::{PromptIds, PromptScoring};
use super::text::{PlainText, PromptText};
use crate::config::{Dialect, PromptForm};

/// How a server is asked.
#[derive(Clone, Debug)]
pub struct RequestStyle {
    /// The model's name there.
    pub model: String,
    /// What it understands.
    pub dialect: Dialect,
    /// How it takes prompts.
    pub form: PromptForm,
    /// Whether it is told priorities.
    pub priority: bool,
    /// Whether it is told whose prefixes may be shared.
    pub salt: bool,
    /// An answer of a conversation whose request named no limit may have as many tokens as there is room, where its row
    /// allows so many: one that allows fewer was cut to what its replica has room for.
    pub open_end: u64,
}

/// One request.
#[derive(Clone, Debug, PartialEq)]
pub struct Ask {
    /// Below the server's address.
    pub path: &'static str,
    /// JSON.
    pub body: Value,
    /// What of the prompt's tokens the reply has to tell.
    pub scoring: Option<PromptScoring>,
    /// What it has to tell beside each token of the answer.
    pub beside: Beside,
}

/// Path of conversations.
pub const CHAT: &str = "/v1/chat/completions";
/// Path of other prompts.
pub const COMPLETIONS: &str = "/v1/completions";

impl RequestStyle {
    /// What a row asks; why it cannot be asked, where its request has no words in this dialect. `rank`: its
    /// priority, lower is sooner; `scope`: only rows of the same share prefixes.
    pub fn ask(&self, item: &WorkItem, rank: i64, scope: u128) -> Result<Ask, String> {
        if !item.sections.is_empty() {
            return Err("only the local engine computes sections of a prompt apart".into());
        }
        let mut body = Map::new();
        body.insert("model".into(), json!(self.model));
        let path = match self.form {
            PromptForm::Tokens => {
                let ids: Vec<u32> = item.prompt.iter().map(|token| token.0).collect();
                body.insert("prompt".into(), json!(ids));
                COMPLETIONS
            }
            PromptForm::Messages => match PlainText::said(&item.prompt)? {
                PromptText::Text(text) => {
                    body.insert("prompt".into(), json!(text));
                    COMPLETIONS
                }
                PromptText::Messages(messages, end) => {
                    let last = messages.last().map(|(role, _)| *role);
                    let fields = dialect::ending(end, last, self.dialect)?;
                    body.extend(fields.iter().map(|(name, value)| ((*name).to_owned(), json!(value))));
                    let message = |(role, content): (base::Role, String)| json!({ "role": role.name(), "content": content });
                    body.insert("messages".into(), messages.into_iter().map(message).collect());
                    CHAT
                }
            },
        };
        self.generation(&item.generation, path, &mut body)?;
        let scoring = item.generation.prompt_logprobs.map(|top| PromptScoring { top, ids: self.ids(item) });
        if scoring.as_ref().is_some_and(|scoring| matches!(scoring.ids, PromptIds::OfText { .. })) {
            body.insert("return_token_ids".into(), json!(true));
        }
        if item.generation.streams {
            body.insert("stream".into(), json!(true));
            // Else a stream has no usage.
            body.insert("stream_options".into(), json!({ "include_usage": true }));
        }
        if item.generation.temperature > 0.0 {
            // 31 bits: what every server takes.
            body.insert("seed".into(), json!(item.seed & 0x7fff_ffff));
        }
        if self.priority {
            body.insert("priority".into(), json!(rank));
        }
        if self.salt {
            body.insert("cache_salt".into(), json!(format!("{scope:032x}")));
        }
        let beside = match (item.generation.logprobs, item.generation.logprob_tokens.len()) {
            (Some(_), named @ 1..) => Beside::Named(named),
            (top, _) => Beside::Likeliest(top.unwrap_or(0) as usize),
        };
        Ok(Ask { path, body: Value::Object(body), scoring, beside })
    }

    /// Which tokens a row's prompt has at the server.
    fn ids(&self, item: &WorkItem) -> PromptIds {
        match self.form {
            PromptForm::Tokens => PromptIds::Sent(Arc::clone(&item.prompt)),
            // A byte of text is a token here.
            PromptForm::Messages => {
                let most = usize::try_from(PlainText::tokens_max(&item.prompt)).unwrap_or(usize::MAX);
                PromptIds::OfText { most }
            }
        }
    }

    fn generation(
        &self,
        asked: &Generation,
        path: &str,
        body: &mut Map<String, Value>,
    ) -> Result<(), String> {
        let is_chat = path == CHAT;
        let is_open = is_chat && asked.has_open_end && asked.output_max.0 >= self.open_end;
        if !is_open {
            body.insert("max_tokens".into(), json!(asked.output_max.0));
        }
        body.insert("temperature".into(), json!(asked.temperature));
        body.insert("top_p".into(), json!(asked.top_p));
        if !asked.stop.is_empty() {
            body.insert("stop".into(), json!(asked.stop));
        }
        body.extend(dialect::fields(asked, self.dialect, is_chat)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use base::{ChatTemplate, Constraint, PromptEnd, Role, Section, Sees, TokenCount, TokenId, Tokenizer};

    use super::*;

    /// Nothing is told of tokens.
    const NOTHING: Beside = Beside::Likeliest(0);

    /// A body with what is sent in every one.
    fn with_rest(mut body: Value) -> Value {
        let rest = json!({"top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0});
        for (name, value) in rest.as_object().expect("an object") {
            body[name] = value.clone();
        }
        body
    }

    fn style(form: PromptForm) -> RequestStyle {
        RequestStyle {
            model: "m".into(),
            dialect: Dialect::Vllm,
            form,
            priority: false,
            salt: false,
            open_end: 100,
        }
    }

    fn item(prompt: Vec<TokenId>, generation: Generation) -> WorkItem {
        WorkItem {
            row: 0,
            prompt: prompt.into(),
            spans: Arc::default(),
            sections: Arc::default(),
            generation: Arc::new(generation),
            seed: u64::MAX,
        }
    }

    #[test]
    fn tokens_are_sent_as_they_are() {
        let style = RequestStyle { priority: true, salt: true, ..style(PromptForm::Tokens) };
        let generation = Generation {
            temperature: 0.5,
            stop: vec!["\n".into()],
            constraint: Some(Constraint::Choice(vec!["a".into()])),
            ..Generation::default()
        };
        let ask =
            style.ask(&item(vec![TokenId(7), TokenId(9)], generation), -3, 10).expect("it can be asked");
        let body = json!({
            "model": "m", "prompt": [7, 9], "max_tokens": 64, "temperature": 0.5, "stop": ["\n"],
            "seed": 0x7fff_ffff, "priority": -3, "cache_salt": "0000000000000000000000000000000a", "structured_outputs": {"choice": ["a"]},
        });
        assert_eq!(ask, Ask { path: COMPLETIONS, body: with_rest(body), scoring: None, beside: NOTHING });
    }

    #[test]
    fn a_conversation_is_sent_as_messages_and_a_text_as_a_prompt() {
        let style = style(PromptForm::Messages);
        let frame = PlainText.frame(&[Role::System, Role::User]).expect("a frame");
        let tokens = PlainText.encode_framed(&frame, &["be brief", "hé"]);
        let ask = style.ask(&item(tokens.clone(), Generation::default()), 0, 0).expect("it can be asked");
        let messages = json!([{"role": "system", "content": "be brief"}, {"role": "user", "content": "hé"}]);
        let body = json!({"model": "m", "messages": messages, "max_tokens": 64, "temperature": 0.0});
        assert_eq!(ask, Ask { path: CHAT, body: with_rest(body), scoring: None, beside: NOTHING });
        let limited = Generation { output_max: TokenCount(100), ..Generation::default() };
        let ask = style.ask(&item(tokens.clone(), limited.clone()), 0, 0).expect("it can be asked");
        assert_eq!(ask.body["max_tokens"], 100, "its request named a limit");
        let open = Generation { has_open_end: true, ..limited };
        let ask = style.ask(&item(tokens.clone(), open.clone()), 0, 0).expect("it can be asked");
        assert_eq!(ask.body.get("max_tokens"), None, "as many as there is room");
        let cut = Generation { output_max: TokenCount(99), ..open.clone() };
        let ask = style.ask(&item(tokens, cut), 0, 0).expect("it can be asked");
        assert_eq!(ask.body["max_tokens"], 99, "its replica has room for so many");
        let ask = style.ask(&item(PlainText.encode_data("go on"), open), 0, 0).expect("it can be asked");
        let body = json!({"model": "m", "prompt": "go on", "max_tokens": 100, "temperature": 0.0});
        assert_eq!(ask, Ask { path: COMPLETIONS, body: with_rest(body), scoring: None, beside: NOTHING });
    }

    #[test]
    fn a_conversation_that_is_continued_is_sent_with_the_words_that_the_dialect_has_for_it() {
        let ask = |dialect, end, roles: &[Role]| {
            let template = PlainText.ending(end).expect("it knows all ends");
            let tokens = PlainText.encode_framed(&template.frame(roles).expect("a frame"), &["a", "b"]);
            let style = RequestStyle { dialect, ..style(PromptForm::Messages) };
            style.ask(&item(tokens, Generation::default()), 0, 0).map(|ask| {
                let last = ask.body["messages"][1]["content"].clone();
                (last, ask.body["add_generation_prompt"].clone(), ask.body["continue_final_message"].clone())
            })
        };
        let (answered, asked) = ([Role::User, Role::Assistant], [Role::Assistant, Role::User]);
        let (no, yes) = (json!(false), json!(true));
        let found = ask(Dialect::Vllm, PromptEnd::Text, &answered);
        assert_eq!(found, Ok((json!("b"), no.clone(), yes.clone())));
        assert_eq!(ask(Dialect::Vllm, PromptEnd::Message, &asked), Ok((json!("b"), no, Value::Null)));
        let plain = Ok((json!("b"), Value::Null, Value::Null));
        assert_eq!(ask(Dialect::Vllm, PromptEnd::Answer, &asked), plain);
        let found = ask(Dialect::Sglang, PromptEnd::Text, &answered);
        assert_eq!(found, Ok((json!("b"), Value::Null, yes)), "its template begins no answer then");
        for (dialect, end, roles, name) in [
            (Dialect::Sglang, PromptEnd::Text, &asked, "continue_final_message"),
            (Dialect::Sglang, PromptEnd::Message, &asked, "add_generation_prompt"),
            (Dialect::Openai, PromptEnd::Text, &answered, "continue_final_message"),
            (Dialect::LlamaCpp, PromptEnd::Message, &answered, "add_generation_prompt"),
        ] {
            let refused = ask(dialect, end, roles).expect_err("it has no word for it");
            assert!(refused.contains(name) && refused.contains(dialect.name()), "{refused}");
        }
    }

    #[test]
    fn a_row_that_streams_asks_for_its_usage_too() {
        let streams = Generation { streams: true, ..Generation::default() };
        let ask = style(PromptForm::Tokens).ask(&item(vec![TokenId(7)], streams), 0, 0);
        let body = ask.expect("it can be asked").body;
        assert_eq!(
            (&body["stream"], &body["stream_options"]),
            (&json!(true), &json!({ "include_usage": true }))
        );
    }

    #[test]
    fn a_prompt_that_is_scored_is_so_by_its_own_tokens_which_a_text_has_to_be_told() {
        let generation = Generation { prompt_logprobs: Some(3), ..Generation::default() };
        let asked = |form, prompt: Vec<TokenId>| {
            style(form).ask(&item(prompt, generation.clone()), 0, 0).expect("it can be asked")
        };
        let ids = [TokenId(7), TokenId(9)];
        let ask = asked(PromptForm::Tokens, ids.to_vec());
        assert_eq!((&ask.body["prompt_logprobs"], ask.body.get("return_token_ids")), (&json!(3), None));
        assert_eq!(ask.scoring, Some(PromptScoring { top: 3, ids: PromptIds::Sent(ids.into()) }));
        let frame = PlainText.frame(&[Role::User]).expect("a frame");
        for (prompt, path, more) in [
            (PlainText.encode_data("go on"), COMPLETIONS, 8),
            (PlainText.encode_framed(&frame, &["hé"]), CHAT, 1_024),
        ] {
            let most = prompt.len() + more;
            let ask = asked(PromptForm::Messages, prompt);
            let told = (&ask.body["prompt_logprobs"], &ask.body["return_token_ids"]);
            assert_eq!((ask.path, told), (path, (&json!(3), &json!(true))));
            assert_eq!(ask.scoring, Some(PromptScoring { top: 3, ids: PromptIds::OfText { most } }));
        }
        let unknown = RequestStyle { dialect: Dialect::LlamaCpp, ..style(PromptForm::Messages) };
        let refused = unknown.ask(&item(PlainText.encode_data("go on"), generation), 0, 0);
        assert!(refused.expect_err("refused").contains("prompt_logprobs"));
    }

    #[test]
    fn a_reply_has_to_tell_the_likeliest_tokens_or_those_that_are_named() {
        let beside = |logprobs, named: &[u32]| {
            let logprob_tokens = named.iter().map(|id| TokenId(*id)).collect();
            let generation = Generation { logprobs, logprob_tokens, ..Generation::default() };
            let ask = style(PromptForm::Tokens).ask(&item(vec![TokenId(7)], generation), 0, 0);
            ask.expect("it can be asked").beside
        };
        assert_eq!(beside(None, &[]), NOTHING);
        assert_eq!(beside(Some(2), &[]), Beside::Likeliest(2));
        assert_eq!(beside(Some(2), &[9, 8, 7]), Beside::Named(3));
    }

    #[test]
    fn sections_stay_on_the_local_engine() {
        let section = Section { tokens: TokenCount(1), position: 0, sees: Sees::Before };
        let item = WorkItem { sections: [section].into(), ..item(vec![TokenId(1)], Generation::default()) };
        assert!(style(PromptForm::Tokens).ask(&item, 0, 0).expect_err("refused").contains("local engine"));
    }
}
