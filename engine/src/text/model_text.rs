//! [`ModelText`]: all that one checkpoint's text files say, behind the traits that other crates use.

use base::text::{conversation, put_in};
use base::{
    After, ChatTemplate, MarkupPart, Piece, PromptEnd, RenderedPiece, Role, TextError, TokenId, Tokenizer,
    TokenizerInfo, ToolCallForm, ToolFields,
};
use rayon::prelude::*;
use serde_json::Value;

use crate::checkpoint::error::CheckpointError;
use crate::checkpoint::generation::SpecialIds;
use crate::text::decode::Decoding;
use crate::text::encode::Encoder;
use crate::text::incremental::{DecodeState, TOKENIZER_CONFIG_FILE, TOKENIZER_FILE, TokenText};
use crate::text::info::{token_name, tokenizer_info};
use crate::text::template::{SpecialNames, Template};

/// Conversations that a task renders at least: less is not worth waking a thread for.
const ROWS_PER_TASK: usize = 16;

/// The contents of a checkpoint's text files.
#[derive(Clone, Copy, Debug, Default)]
pub struct TextFiles<'a> {
    /// tokenizer.json.
    pub tokenizer: &'a str,
    /// tokenizer_config.json.
    pub tokenizer_config: Option<&'a str>,
    /// chat_template.jinja, or the template of chat_template.json; wins over tokenizer_config.json.
    pub chat_template: Option<&'a str>,
}

/// A checkpoint's tokenizer and chat template.
#[derive(Debug)]
pub struct ModelText {
    encoder: Encoder,
    decoding: Decoding,
    template: Option<Template>,
    prompt_start: Vec<TokenId>,
    /// How the special token that starts prompts is written, where one does.
    begin: Option<String>,
    ends: Vec<TokenId>,
    info: TokenizerInfo,
}

impl ModelText {
    /// Reads the files of a model with `vocab` token ids and these special ones. `now` (unix seconds)
    /// is the date that the template may ask for; without it such templates use their own fixed date.
    pub fn new(
        files: TextFiles<'_>,
        vocab: u32,
        ids: &SpecialIds,
        now: Option<u64>,
    ) -> Result<Self, CheckpointError> {
        let encoder = Encoder::new(files.tokenizer, vocab)?;
        let decoding = Decoding::of(encoder.tokenizer())?;
        let settings: Value = match files.tokenizer_config {
            Some(text) => serde_json::from_str(text)
                .map_err(|error| CheckpointError::malformed(TOKENIZER_CONFIG_FILE, error))?,
            None => Value::Null,
        };
        let name_of = |id: Option<&u32>| id.and_then(|id| encoder.tokenizer().id_to_token(*id));
        let begin = token_name(&settings["bos_token"]).or_else(|| name_of(ids.begin.as_ref()));
        let end = token_name(&settings["eos_token"]);
        let id_of = |name: &String| encoder.tokenizer().token_to_id(name);
        let mut ends: Vec<u32> = ids.ends.iter().copied().chain(end.as_ref().and_then(id_of)).collect();
        ends.retain(|id| *id < vocab);
        ends.sort_unstable();
        ends.dedup();
        let begin_id = begin.as_ref().and_then(id_of);
        let starts = prompt_start(encoder.tokenizer(), &settings, begin_id)?;
        let prompt_start: Vec<TokenId> = starts.into_iter().filter(|id| *id < vocab).map(TokenId).collect();
        let starts_with = prompt_start.first().map(|id| id.0);
        let source = match files.chat_template {
            Some(text) => Some(text.to_owned()),
            None => template_in(&settings["chat_template"])?,
        };
        let end = end.or_else(|| name_of(ends.first())).unwrap_or_default();
        // A model that says it has no BOS has none in its template either, whatever its prompts start with.
        let bos_token = begin.clone().filter(|_| settings.get("bos_token") != Some(&Value::Null));
        let names = SpecialNames {
            bos_token: bos_token.unwrap_or_default(),
            eos_token: end,
            reserved: encoder.added_names(),
        };
        let info = tokenizer_info(
            &settings,
            encoder.added_tokens(),
            (names.bos_token.as_str(), names.eos_token.as_str()),
            source.clone(),
        );
        let template = source.map(|source| Template::new(&source, names, now)).transpose()?;
        template.iter().for_each(warn_of_loss);
        let begin = begin.filter(|_| begin_id.is_some() && begin_id == starts_with);
        let ends = ends.into_iter().map(TokenId).collect();
        Ok(Self { encoder, decoding, template, prompt_start, begin, ends, info })
    }

    /// Its encoder.
    #[cfg(test)]
    pub(super) fn encoder(&self) -> &Encoder {
        &self.encoder
    }

    /// Whether the checkpoint brings a chat template.
    pub fn has_chat_template(&self) -> bool {
        self.template.is_some()
    }

    /// Tokens that end an answer: the union of what all files name.
    pub fn ends(&self) -> &[TokenId] {
        &self.ends
    }
}

impl Tokenizer for ModelText {
    fn split_markup(&self, text: &str) -> Vec<MarkupPart> {
        self.encoder.split(text)
    }

    fn encode_stretch(&self, after: After, text: &str) -> Vec<TokenId> {
        self.encoder.stretch(after, text)
    }

    fn encode_stretches(&self, after: After, head: &str, texts: &[&str]) -> Vec<Vec<TokenId>> {
        self.encoder.stretches(after, head, texts)
    }

    fn encode_data(&self, text: &str) -> Vec<TokenId> {
        self.encoder.data(text)
    }

    fn decode(&self, tokens: &[TokenId]) -> String {
        let mut state = self.start();
        let mut text: String = tokens.iter().map(|token| self.push(&mut state, *token)).collect();
        text += &self.flush(&mut state);
        text
    }

    fn decode_written(&self, tokens: &[TokenId]) -> String {
        let (mut state, mut text) = (self.start(), String::new());
        for token in tokens {
            match self.special(*token) {
                Some(written) => {
                    text += &self.flush(&mut state);
                    text += &written;
                    // What follows is no longer the start.
                    (state.is_started, state.strip_left) = (true, 0);
                }
                None => text += &self.push(&mut state, *token),
            }
        }
        text += &self.flush(&mut state);
        text
    }

    fn vocab_size(&self) -> u32 {
        self.encoder.vocab()
    }

    fn prompt_start(&self) -> Vec<TokenId> {
        self.prompt_start.clone()
    }

    fn vocabulary_name(&self, token: TokenId) -> String {
        self.encoder.piece(token).or_else(|| self.encoder.special(token)).unwrap_or_default()
    }

    fn info(&self) -> TokenizerInfo {
        self.info.clone()
    }
}

impl ChatTemplate for ModelText {
    fn frame(&self, roles: &[Role]) -> Result<Vec<Piece>, TextError> {
        if let Some(template) = &self.template {
            return template.frame(roles); // which writes its own BOS, where it wants one
        }
        let begin = self.begin.iter().cloned().map(Piece::Markup);
        let lines = (0..roles.len()).flat_map(|i| [Piece::Content(i), Piece::Markup("\n".to_owned())]);
        Ok(begin.chain(lines).collect())
    }

    fn render(&self, messages: &[(Role, &str)]) -> Result<Vec<RenderedPiece>, TextError> {
        if let Some(template) = &self.template {
            return template.render(messages);
        }
        let (roles, contents): (Vec<Role>, Vec<&str>) = messages.iter().copied().unzip();
        Ok(put_in(&self.frame(&roles)?, &contents))
    }

    fn tool_call_form(&self) -> Option<ToolCallForm> {
        self.template.as_ref()?.tool_call_form
    }

    fn render_tools(
        &self,
        messages: &[(Role, &str)],
        fields: &ToolFields,
    ) -> Result<Vec<RenderedPiece>, TextError> {
        match &self.template {
            Some(template) => template.render_tools(messages, fields),
            None => Err(TextError::Template("there is none that has words for tools".to_owned())),
        }
    }

    fn with_variables(&self, variables: &str) -> Option<Box<dyn ChatTemplate + '_>> {
        Some(Box::new(self.template.as_ref()?.with_variables(variables)?))
    }

    fn ending(&self, end: PromptEnd) -> Option<Box<dyn ChatTemplate + '_>> {
        self.template.as_ref()?.ending(end)
    }

    fn render_rows(&self, roles: &[Role], rows: &[Vec<&str>]) -> Vec<Result<Vec<RenderedPiece>, TextError>> {
        let rows = rows.par_iter().with_min_len(ROWS_PER_TASK);
        rows.map(|contents| self.render(&conversation(roles, contents))).collect()
    }
}

impl TokenText for ModelText {
    fn start(&self) -> DecodeState {
        self.decoding.start()
    }

    fn push(&self, state: &mut DecodeState, token: TokenId) -> String {
        // A special token, or the padding of the embedding, has no text.
        self.encoder.piece(token).map_or(String::new(), |piece| self.decoding.push(state, &piece))
    }

    fn flush(&self, state: &mut DecodeState) -> String {
        self.decoding.flush(state)
    }

    fn bytes(&self, token: TokenId) -> Option<Vec<u8>> {
        self.encoder.piece(token).map(|piece| self.decoding.bytes(&piece))
    }

    fn special(&self, token: TokenId) -> Option<String> {
        self.encoder.special(token)
    }

    fn encode(&self, text: &str) -> Vec<TokenId> {
        self.encode_data(text)
    }

    fn drops_leading_space(&self) -> bool {
        self.decoding.drops_leading_space()
    }

    fn ids_end(&self) -> u32 {
        let last_end = self.ends.last().map_or(0, |end| end.0);
        self.encoder.largest().max(last_end) + 1
    }
}

/// Tells who runs the model where a template says nothing of what the system says: it is run as written.
fn warn_of_loss(template: &Template) {
    let pieces = template.render(&[(Role::System, "x"), (Role::User, "x")]);
    let is_system = |piece: &RenderedPiece| matches!(piece, RenderedPiece::Content { message: 0, .. });
    if pieces.is_ok_and(|pieces| !pieces.iter().any(is_system)) {
        tracing::warn!("the model's chat template leaves system messages out");
    }
}

/// The template in tokenizer_config.json: a string, or a list of named ones with a `default`.
fn template_in(value: &Value) -> Result<Option<String>, CheckpointError> {
    match value {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text.clone())),
        Value::Array(named) => {
            let default = named.iter().find(|entry| entry["name"] == "default").or(named.first());
            Ok(default.and_then(|entry| entry["template"].as_str()).map(str::to_owned))
        }
        _ => {
            let reason = "must be a string or a list of named templates";
            Err(CheckpointError::field(TOKENIZER_CONFIG_FILE, "chat_template", reason))
        }
    }
}

/// Ids that begin a prompt. `add_bos_token` decides where it stands; else what the tokenizer's own
/// post-processor puts in front; else the class's default.
fn prompt_start(
    tokenizer: &tokenizers::Tokenizer,
    settings: &Value,
    begin: Option<u32>,
) -> Result<Vec<u32>, CheckpointError> {
    match settings["add_bos_token"].as_bool() {
        Some(false) => return Ok(Vec::new()),
        Some(true) if begin.is_some() => return Ok(begin.into_iter().collect()),
        Some(true) | None => {}
    }
    let encode = |with_special| {
        let encoding = tokenizer.encode_fast("a", with_special);
        encoding
            .map(|e| e.get_ids().to_vec())
            .map_err(|error| CheckpointError::malformed(TOKENIZER_FILE, error))
    };
    let (plain, whole) = (encode(false)?, encode(true)?);
    let added = whole.windows(plain.len().max(1)).position(|window| window == plain).unwrap_or(0);
    if added > 0 {
        return Ok(whole[..added].to_vec());
    }
    let class = settings["tokenizer_class"].as_str().unwrap_or_default();
    let is_default = tokenizer.get_post_processor().is_none() && class.starts_with("LlamaTokenizer");
    Ok(if is_default { begin.into_iter().collect() } else { Vec::new() })
}
