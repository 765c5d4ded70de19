//! The checkpoint's chat template: Jinja, as Hugging Face tokenizers carry it.
//!
//! A conversation is framed before its contents are known: the template is rendered with stand-ins,
//! and the text is cut where they come out. So contents stay apart from markup, whatever they hold,
//! and nothing the template would do to a content (`trim`) is done to it.

use base::{Piece, Role, TextError};
use minijinja::{Environment, Error, ErrorKind, Value, context};

use crate::checkpoint::error::CheckpointError;
use crate::text::strftime::strftime;

/// What the template is called in errors.
const NAME: &str = "chat_template";

/// A compiled chat template.
#[derive(Debug)]
pub(crate) struct Template {
    environment: Environment<'static>,
    bos_token: String,
    eos_token: String,
    /// What stands in for contents; long and odd enough that no template holds it by chance.
    stand_in: String,
}

impl Template {
    /// Compiles `source`. With `now` (unix seconds) the template may ask for the date.
    pub(crate) fn new(
        source: &str,
        bos_token: String,
        eos_token: String,
        now: Option<u64>,
    ) -> Result<Self, CheckpointError> {
        let mut environment = Environment::new();
        environment.set_trim_blocks(true);
        environment.set_lstrip_blocks(true);
        environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, message))
        });
        if let Some(now) = now {
            environment.add_function("strftime_now", move |format: String| strftime(now, &format));
        }
        environment
            .add_template_owned(NAME, without_generation_blocks(source))
            .map_err(|error| CheckpointError::malformed(NAME, error))?;
        let stand_in = stand_in(source);
        Ok(Self { environment, bos_token, eos_token, stand_in })
    }

    /// The markup around messages with these roles.
    ///
    /// Where the template refuses or drops messages as they stand, neighbours of one role are joined, a blank
    /// line between; where that is not enough, a system message joins the user message after it too: what
    /// Mistral's templates do.
    pub(crate) fn frame(&self, roles: &[Role]) -> Result<Vec<Piece>, TextError> {
        let same = |before: Role, role: Role| before == role;
        let is_led = |before: Role, role: Role| (before, role) == (Role::System, Role::User);
        self.cut(&self.turns(roles, |_, _| false), roles.len()).or_else(|error| {
            self.cut(&self.turns(roles, same), roles.len())
                .or_else(|_| self.cut(&self.turns(roles, |a, b| same(a, b) || is_led(a, b)), roles.len()))
                .map_err(|_| error)
        })
    }

    /// Messages that hold their stand-ins; one joins the message before it where `joins` says so of their
    /// roles.
    fn turns(&self, roles: &[Role], joins: impl Fn(Role, Role) -> bool) -> Vec<(Role, String)> {
        let mut turns: Vec<(Role, String)> = Vec::with_capacity(roles.len());
        for (i, role) in roles.iter().enumerate() {
            match turns.last_mut() {
                Some((before, text)) if joins(*before, *role) => {
                    *before = *role;
                    text.push_str("\n\n");
                    text.push_str(&self.stand_in_of(i));
                }
                _ => turns.push((*role, self.stand_in_of(i))),
            }
        }
        turns
    }

    /// What stands in for message `i`; fixed in length, so that none begins another.
    fn stand_in_of(&self, i: usize) -> String {
        format!("{}{i:08}", self.stand_in)
    }

    /// Renders and cuts; every one of `count` contents must come out, in any order.
    fn cut(&self, messages: &[(Role, String)], count: usize) -> Result<Vec<Piece>, TextError> {
        let text = self.render(messages).map_err(|error| TextError::Template(reason(&error)))?;
        let mut pieces = Vec::new();
        let mut seen = vec![false; count];
        for (n, part) in text.split(&self.stand_in).enumerate() {
            let mut markup = part;
            if n > 0 {
                let number = part.get(..8).and_then(|digits| digits.parse::<usize>().ok());
                let number = number.filter(|number| *number < count);
                let number =
                    number.ok_or_else(|| TextError::Template("it changes a message's content".into()))?;
                seen[number] = true;
                pieces.push(Piece::Content(number));
                markup = &part[8..];
            }
            if !markup.is_empty() {
                pieces.push(Piece::Markup(markup.to_owned()));
            }
        }
        match seen.iter().position(|seen| !seen) {
            Some(lost) => Err(TextError::Template(format!("it leaves out or changes message {lost}"))),
            None => Ok(pieces),
        }
    }

    /// Renders, ending where the answer begins.
    fn render(&self, messages: &[(Role, String)]) -> Result<String, Error> {
        let messages: Vec<Value> = messages
            .iter()
            .map(|(role, content)| context! { role => role.name(), content => content.as_str() })
            .collect();
        self.environment.get_template(NAME)?.render(context! {
            messages => messages,
            add_generation_prompt => true,
            bos_token => self.bos_token,
            eos_token => self.eos_token,
            // A cell has no room for a model's reasoning; templates that know the switch obey it (Qwen3).
            enable_thinking => false,
        })
    }
}

/// What a person should read of a template's refusal.
fn reason(error: &Error) -> String {
    error.detail().map_or_else(|| error.to_string(), str::to_owned)
}

/// A text that does not stand in `source`. Digits and lower-case letters pass `trim`, `lower` and
/// escapes unchanged; a template that still changes it is found out when its parts are missing.
fn stand_in(source: &str) -> String {
    let mut n = 0u128;
    loop {
        let text = format!("0x{:032x}", 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c834_u128.wrapping_add(n));
        if !source.contains(&text) {
            return text;
        }
        n += 1;
    }
}

/// `{% generation %}` marks the assistant's part for training; it has no effect on the text.
fn without_generation_blocks(source: &str) -> String {
    let mut text = String::with_capacity(source.len());
    let mut rest = source;
    while let Some((before, after)) = rest.split_once("{%") {
        text.push_str(before);
        let Some((block, behind)) = after.split_once("%}") else {
            text.push_str("{%");
            rest = after;
            break;
        };
        let inner = block.trim_matches(|c: char| c.is_whitespace() || matches!(c, '-' | '+'));
        let block = match inner {
            "generation" => block.replace("generation", "if true"),
            "endgeneration" => block.replace("endgeneration", "endif"),
            _ => block.to_owned(),
        };
        text.push_str("{%");
        text.push_str(&block);
        text.push_str("%}");
        rest = behind;
    }
    text.push_str(rest);
    text
}
