//! Requests of a client's loop as rows of one relQuery. An SDK sends a column's rows one by one; what the loop keeps
//! the same in all of them, or calls itself, is the key under which they join, as cells join under their template.
//!
//! No request waits for another: one that comes alone runs alone. Must not know sockets.

use serving::intake::OpenTo;
use store::ResultKey;

use crate::wire::openai::{Common, CompletionPrompt, LoopHeaders, LoopNames, Message};

/// Words that requests have to begin with where nothing stands before their own text.
const WORDS: usize = 2;
/// Tokens of such a beginning, where the prompt is token ids.
const TOKENS: usize = 16;

/// What a request has in common with the others of its loop.
#[derive(Clone, Debug)]
pub(crate) struct ClientLoop {
    /// The route and how outputs are produced. Requests that differ in that are of different loops.
    settings: ResultKey,
    names: LoopNames,
    /// What the loop's requests begin with, where a request that names no loop may be of one.
    beginning: Option<ResultKey>,
}

impl ClientLoop {
    /// Of a conversation: what stands before its last message is the loop's, else how that begins.
    pub(crate) fn of_chat(common: &Common, messages: &[Message]) -> Self {
        let beginning = match messages {
            [] => None,
            [only] => words(&only.content).map(|words| ResultKey::of(&[&words])),
            [leading @ .., _] => {
                let pieces = leading
                    .iter()
                    .flat_map(|message| [message.role.name().as_bytes(), message.content.as_bytes()]);
                Some(ResultKey::of(&pieces.collect::<Vec<_>>()))
            }
        };
        Self::new("chat", common, beginning)
    }

    /// Of a prompt to complete. Several prompts are a relQuery already, which others join by its name alone.
    pub(crate) fn of_completion(common: &Common, prompts: &[CompletionPrompt]) -> Self {
        let first = match prompts {
            [CompletionPrompt::Text(text)] => words(text),
            [CompletionPrompt::Tokens(tokens)] if tokens.len() > TOKENS => {
                Some(tokens[..TOKENS].iter().flat_map(|token| token.0.to_le_bytes()).collect())
            }
            _ => None,
        };
        Self::new("completions", common, first.map(|first| ResultKey::of(&[&first])))
    }

    fn new(route: &str, common: &Common, beginning: Option<ResultKey>) -> Self {
        let generation =
            serde_json::to_vec(&*common.sampling.generation).expect("a generation is plain data");
        let class = format!("{:?}", common.class);
        let settings = ResultKey::of(&[route.as_bytes(), class.as_bytes(), &generation]);
        // Who reads a stream waits for this answer, not for a column's last.
        let beginning = beginning.filter(|_| !common.stream);
        Self { settings, names: common.loop_names.clone(), beginning }
    }

    /// What its rows join; none where nothing says that there are others.
    pub(crate) fn open_to(&self, headers: &LoopHeaders) -> Option<OpenTo> {
        let name = headers.relquery.as_deref().or(self.names.relquery.as_deref());
        let key = match (name, self.beginning) {
            (Some(name), _) => ResultKey::of(&[&self.settings.0, b"name", name.as_bytes()]),
            (None, Some(beginning)) => {
                let user = self.names.user.as_deref().unwrap_or_default();
                ResultKey::of(&[&self.settings.0, b"beginning", &beginning.0, user.as_bytes()])
            }
            (None, None) => return None,
        };
        Some(OpenTo { is_last: headers.is_last, ..OpenTo::client_loop(key.0) })
    }
}

/// The first words of a text that has more.
fn words(text: &str) -> Option<Vec<u8>> {
    let mut words = text.split_whitespace();
    let first: Vec<&str> = words.by_ref().take(WORDS).collect();
    words.next().map(|_| first.join(" ").into_bytes())
}
