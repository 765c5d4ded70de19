//! `<system>`, `<user>` and `<assistant>` in the words of a model's chat template (Prompt Cache, section 3.2.3).
//!
//! A template renders whole conversations; a module needs the markup of one message, whatever stands around it. So
//! small conversations are rendered and taken apart, and put together again: a template that does not treat messages
//! one by one (it folds the system's into the user's, say) is refused.

use base::{ChatTemplate, MarkupPart, Piece, Role, TextError, Tokenizer};

use crate::IrError;

/// Markup as a tokenizer cuts it, a part for every special token and every character between them: so that nothing
/// is taken apart inside a special token.
type Markup = Vec<MarkupPart>;

/// The markup of messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tags {
    /// In front of the first message.
    pub(crate) begin: Markup,
    system: Pair,
    user: Pair,
    assistant: Pair,
    /// Behind the last message: here the answer begins.
    pub(crate) answer: Markup,
}

/// The markup in front of a message and behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pair {
    open: Markup,
    close: Markup,
}

const SEPARATE: &str =
    "the model's chat template does not treat messages one by one, so they cannot be placed freely";

impl Tags {
    /// Takes a template apart.
    pub fn of(chat: &dyn ChatTemplate, tokenizer: &dyn Tokenizer) -> Result<Self, IrError> {
        use Role::{Assistant, System, User};
        let render = |roles: &[Role]| rendered(chat, tokenizer, roles);
        let talk = render(&[User, Assistant, User])?;
        let repeated = render(&[User, User])?;
        let led = render(&[System, User])?;
        // begin + open(user) and close(user) + open(user) end alike.
        let open_user = common_end(&talk[0], &repeated[1]);
        let begin = without_end(&talk[0], &open_user)?;
        let close_user = without_end(&repeated[1], &open_user)?;
        let tags = Self {
            system: Pair { open: without_begin(&led[0], &begin)?, close: without_end(&led[1], &open_user)? },
            assistant: Pair {
                open: without_begin(&talk[1], &close_user)?,
                close: without_end(&talk[2], &open_user)?,
            },
            answer: without_begin(&talk[3], &close_user)?,
            user: Pair { open: open_user, close: close_user },
            begin,
        };
        let check = [System, User, Assistant, User, Assistant, User];
        if tags.conversation(&check) == render(&check)? { Ok(tags) } else { Err(separate()) }
    }

    /// The markup in front of a message.
    pub(crate) fn open(&self, role: Role) -> &[MarkupPart] {
        &self.pair(role).open
    }

    /// The markup behind a message.
    pub(crate) fn close(&self, role: Role) -> &[MarkupPart] {
        &self.pair(role).close
    }

    fn pair(&self, role: Role) -> &Pair {
        match role {
            Role::System => &self.system,
            Role::User => &self.user,
            Role::Assistant => &self.assistant,
        }
    }

    /// The markup before, between and behind these messages.
    fn conversation(&self, roles: &[Role]) -> Vec<Markup> {
        let mut between = vec![self.begin.clone()];
        for role in roles {
            if let Some(last) = between.last_mut() {
                last.extend_from_slice(self.open(*role));
            }
            between.push(self.close(*role).to_vec());
        }
        if let Some(last) = between.last_mut() {
            last.extend_from_slice(&self.answer);
        }
        between
    }
}

fn separate() -> IrError {
    TextError::Template(SEPARATE.into()).into()
}

/// The markup before, between and behind messages of these roles.
fn rendered(
    chat: &dyn ChatTemplate,
    tokenizer: &dyn Tokenizer,
    roles: &[Role],
) -> Result<Vec<Markup>, IrError> {
    let mut between = vec![Markup::new()];
    for piece in chat.frame(roles)? {
        match piece {
            Piece::Content(i) if i + 1 == between.len() => between.push(Markup::new()),
            Piece::Content(_) => return Err(separate()),
            Piece::Markup(text) => {
                let last = between.last_mut().expect("it began with one and only grows");
                for part in tokenizer.split_markup(&text) {
                    match part {
                        MarkupPart::Special(token) => last.push(MarkupPart::Special(token)),
                        MarkupPart::Text(text) => {
                            last.extend(text.chars().map(|c| MarkupPart::Text(c.to_string())));
                        }
                    }
                }
            }
        }
    }
    if between.len() == roles.len() + 1 { Ok(between) } else { Err(separate()) }
}

/// The longest end that both have.
fn common_end(one: &[MarkupPart], other: &[MarkupPart]) -> Markup {
    let same = one.iter().rev().zip(other.iter().rev()).take_while(|(one, other)| one == other).count();
    one[one.len() - same..].to_vec()
}

fn without_end(whole: &[MarkupPart], end: &[MarkupPart]) -> Result<Markup, IrError> {
    whole.strip_suffix(end).map(<[_]>::to_vec).ok_or_else(separate)
}

fn without_begin(whole: &[MarkupPart], begin: &[MarkupPart]) -> Result<Markup, IrError> {
    whole.strip_prefix(begin).map(<[_]>::to_vec).ok_or_else(separate)
}
