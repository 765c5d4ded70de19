//! `<system>`, `<user>` and `<assistant>` in the words of a model's chat template (Prompt Cache, section
//! 3.2.3).
//!
//! A template renders whole conversations; a module needs the markup of one message, whatever stands around
//! it. So small conversations are rendered and taken apart, and put together again: a template that does not
//! treat messages one by one (it folds the system's into the user's, say) is refused. A first message is a
//! case of its own: templates say something in place of a system message that is not there (Qwen 2.5), or put
//! words into the one that is (Llama 3.1). What a template does to the ends of a content (Llama 3 trims it) is
//! tried out, a character at a time; one that changes what is inside is refused.

use base::{ChatTemplate, MarkupPart, Piece, RenderedPiece, Role, TextError, Tokenizer};

use crate::error::IrError;

/// Markup as a tokenizer cuts it, a part for every special token and every character between them: so that
/// nothing is taken apart inside a special token.
type Markup = Vec<MarkupPart>;

/// The markup of messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tags {
    /// In front of the first message where it is not the system's.
    pub(crate) begin: Markup,
    /// In front of the text of the first message where it is the system's: its own markup is at the end of
    /// it.
    pub(crate) lead: Markup,
    system: RoleTags,
    user: RoleTags,
    assistant: RoleTags,
    /// Behind the last message: here the answer begins.
    pub(crate) answer: Markup,
}

/// The markup in front of a message and behind it, and the white space that the template takes away between
/// them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RoleTags {
    open: Markup,
    close: Markup,
    /// At the beginning of the content.
    trimmed_start: Vec<char>,
    /// At its end.
    trimmed_end: Vec<char>,
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
        // Not every template takes a system's message behind another.
        let later = render(&[User, System, User]).ok();
        let close_user = user_close(&talk, &repeated, &led, later.as_deref());
        let open_user = without_begin(&repeated[1], &close_user)?;
        let begin = without_end(&talk[0], &open_user)?;
        let later = later.and_then(|later| without_begin(&later[1], &close_user).ok());
        let role = |role, open, close| {
            let [trimmed_start, trimmed_end] = trimmed(chat, role)?;
            Ok::<_, IrError>(RoleTags { open, close, trimmed_start, trimmed_end })
        };
        let tags = Self {
            system: role(
                System,
                later.map_or_else(|| without_begin(&led[0], &begin), Ok)?,
                without_end(&led[1], &open_user)?,
            )?,
            assistant: role(
                Assistant,
                without_begin(&talk[1], &close_user)?,
                without_end(&talk[2], &open_user)?,
            )?,
            answer: without_begin(&talk[3], &close_user)?,
            user: role(User, open_user, close_user)?,
            begin,
            lead: led.into_iter().next().expect("two messages have three stretches of markup"),
        };
        let checks = [&[System, User, Assistant, User, Assistant, User][..], &[User, Assistant, User, User]];
        for check in checks {
            if tags.conversation(check) != render(check)? {
                return Err(separate());
            }
        }
        Ok(tags)
    }

    /// What stands in front of a conversation whose first message is this one's, up to the markup of that
    /// message.
    pub(crate) fn before(&self, first: Option<Role>) -> &[MarkupPart] {
        let led = || self.lead.strip_suffix(self.open(Role::System));
        // Words that the template puts into a system's message of its own stand in the one that it makes up.
        if first == Some(Role::System) { led().unwrap_or(&self.begin) } else { &self.begin }
    }

    /// The markup in front of a message.
    pub(crate) fn open(&self, role: Role) -> &[MarkupPart] {
        &self.pair(role).open
    }

    /// The markup behind a message.
    pub(crate) fn close(&self, role: Role) -> &[MarkupPart] {
        &self.pair(role).close
    }

    /// A content as the template writes it.
    pub(crate) fn content<'a>(&self, role: Role, text: &'a str) -> &'a str {
        self.content_end(role, self.content_start(role, text))
    }

    /// The beginning of a content as the template writes it.
    pub(crate) fn content_start<'a>(&self, role: Role, text: &'a str) -> &'a str {
        text.trim_start_matches(&*self.pair(role).trimmed_start)
    }

    /// The end of a content as the template writes it.
    pub(crate) fn content_end<'a>(&self, role: Role, text: &'a str) -> &'a str {
        text.trim_end_matches(&*self.pair(role).trimmed_end)
    }

    fn pair(&self, role: Role) -> &RoleTags {
        match role {
            Role::System => &self.system,
            Role::User => &self.user,
            Role::Assistant => &self.assistant,
        }
    }

    /// The markup before, between and behind these messages.
    fn conversation(&self, roles: &[Role]) -> Vec<Markup> {
        let mut between = vec![self.begin.clone()];
        for (i, role) in roles.iter().enumerate() {
            match between.last_mut() {
                Some(last) if i == 0 && *role == Role::System => last.clone_from(&self.lead),
                Some(last) => last.extend_from_slice(self.open(*role)),
                None => {}
            }
            between.push(self.close(*role).to_vec());
        }
        if let Some(last) = between.last_mut() {
            last.extend_from_slice(&self.answer);
        }
        between
    }
}

/// Stands inside contents that are tried out.
const INNER: &str = "a \"b\"  'c'\n\n{{ d }} <e> & \u{c9}";

/// The white space that a template takes away at the beginning and at the end of a role's contents.
fn trimmed(chat: &dyn ChatTemplate, role: Role) -> Result<[Vec<char>; 2], IrError> {
    let around = around(chat, role)?;
    let [mut start, mut end] = [Vec::new(), Vec::new()];
    // Four separators count in Python.
    for space in ('\0'..='\u{3000}').filter(|c| c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(c)) {
        let whole = text_of(&chat.render(&around.messages(&format!("{space}{INNER}{space}")))?);
        let content = whole.strip_prefix(&*around.before).and_then(|rest| rest.strip_suffix(&*around.behind));
        let (lead, trail) = content.and_then(|content| content.split_once(INNER)).ok_or_else(separate)?;
        for (trimmed, left) in [(&mut start, lead), (&mut end, trail)] {
            match left {
                "" => trimmed.push(space),
                _ if left.chars().eq([space]) => {}
                _ => return Err(separate()),
            }
        }
    }
    Ok([start, end])
}

/// A conversation around a message, as text.
struct Around {
    roles: Vec<Role>,
    /// The message's number.
    at: usize,
    before: String,
    behind: String,
}

/// Stands in for contents that are of no interest.
const STAND_IN: &str = "x";

/// A conversation around a message of this role.
fn around(chat: &dyn ChatTemplate, role: Role) -> Result<Around, IrError> {
    let (roles, at) = match role {
        Role::System => (vec![Role::System, Role::User], 0),
        Role::User => (vec![Role::User], 0),
        Role::Assistant => (vec![Role::User, Role::Assistant, Role::User], 1),
    };
    let mut around = Around { roles, at, before: String::new(), behind: String::new() };
    let pieces = chat.render(&around.messages(STAND_IN))?;
    let is_it =
        |piece: &RenderedPiece| matches!(piece, RenderedPiece::Content { message, .. } if *message == at);
    let place = pieces.iter().position(is_it).ok_or_else(separate)?;
    (around.before, around.behind) = (text_of(&pieces[..place]), text_of(&pieces[place + 1..]));
    Ok(around)
}

impl Around {
    /// The conversation with this content in the message.
    fn messages<'a>(&self, content: &'a str) -> Vec<(Role, &'a str)> {
        let content = |i| if i == self.at { content } else { STAND_IN };
        self.roles.iter().enumerate().map(|(i, role)| (*role, content(i))).collect()
    }
}

fn text_of(pieces: &[RenderedPiece]) -> String {
    pieces.iter().map(RenderedPiece::text).collect()
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

/// The markup behind a user's message.
///
/// What stands between two of them is the end of one and the beginning of the other. The beginning stands in
/// front of the first message too, so it is what the two have in common at their ends, and most often that
/// tells. It does not where what stands in front of the first message ends like a message: in one that the
/// template makes up where there is no system's, so that a conversation with one does not begin with that and
/// such a message. Then specials tell, among those that stand there whoever is next: a message ends with the
/// first and the white space behind it, and the next begins with the last.
fn user_close(talk: &[Markup], repeated: &[Markup], led: &[Markup], later: Option<&[Markup]>) -> Markup {
    let between = &repeated[1];
    let begun =
        talk[0].iter().rev().zip(between.iter().rev()).take_while(|(one, other)| one == other).count();
    let cut = between.len() - begun;
    let begin = &talk[0][..talk[0].len() - begun];
    let led_alike = led[0].strip_prefix(begin).is_some_and(|open| later.is_none_or(|later| later[1] == open));
    if cut > 0 || led_alike {
        return between[..cut].to_vec();
    }
    let always = between.iter().zip(&talk[1]).zip(&talk[3]);
    let always = always.take_while(|((part, one), other)| part == one && part == other).count();
    let is_special = |part: &MarkupPart| matches!(part, MarkupPart::Special(_));
    let is_space = |part: &&MarkupPart| matches!(part, MarkupPart::Text(text) if text.trim().is_empty());
    let cut = match between[..always].iter().rposition(is_special) {
        Some(0) => 1 + between[1..always].iter().take_while(is_space).count(),
        Some(last) => last,
        None => 0,
    };
    between[..cut].to_vec()
}

fn without_end(whole: &[MarkupPart], end: &[MarkupPart]) -> Result<Markup, IrError> {
    whole.strip_suffix(end).map(<[_]>::to_vec).ok_or_else(separate)
}

fn without_begin(whole: &[MarkupPart], begin: &[MarkupPart]) -> Result<Markup, IrError> {
    whole.strip_prefix(begin).map(<[_]>::to_vec).ok_or_else(separate)
}

#[cfg(test)]
mod tests {
    use base::{After, TokenId};

    use super::*;

    /// One special token: whatever stands in `<| |>`.
    struct Bars;

    impl Tokenizer for Bars {
        fn split_markup(&self, text: &str) -> Vec<MarkupPart> {
            let mut parts = Vec::new();
            for (i, part) in text.split("<|").enumerate() {
                let (name, text) =
                    if i == 0 { ("", part) } else { part.split_once("|>").expect("it is closed") };
                if i > 0 {
                    let number = name.bytes().fold(0, |sum, byte| (sum * 31 + u32::from(byte)) % 65_521);
                    parts.push(MarkupPart::Special(TokenId(number)));
                }
                if !text.is_empty() {
                    parts.push(MarkupPart::Text(text.into()));
                }
            }
            parts
        }

        fn encode_stretch(&self, _: After, text: &str) -> Vec<TokenId> {
            self.encode_data(text)
        }

        fn encode_data(&self, text: &str) -> Vec<TokenId> {
            text.bytes().map(|byte| TokenId(byte.into())).collect()
        }

        fn decode(&self, _: &[TokenId]) -> String {
            String::new()
        }

        fn vocab_size(&self) -> u32 {
            u32::MAX
        }

        fn prompt_start(&self) -> Vec<TokenId> {
            Vec::new()
        }
    }

    /// A template: what it puts before a conversation without a system's message and before one with it, into
    /// a first system's message, around messages, and before the answer.
    struct Words {
        begin: [&'static str; 2],
        into_first: &'static str,
        open: fn(&str) -> String,
        close: &'static str,
        takes_later: bool,
    }

    impl ChatTemplate for Words {
        fn frame(&self, roles: &[Role]) -> Result<Vec<Piece>, TextError> {
            let leads = roles[0] == Role::System;
            let mut pieces = vec![Piece::Markup(self.begin[usize::from(leads)].into())];
            for (i, role) in roles.iter().enumerate() {
                if i > 0 && *role == Role::System && !self.takes_later {
                    return Err(TextError::Template("the system speaks first".into()));
                }
                let into = if i == 0 && leads { self.into_first } else { "" };
                pieces.push(Piece::Markup((self.open)(role.name()) + into));
                pieces.push(Piece::Content(i));
                pieces.push(Piece::Markup(self.close.into()));
            }
            pieces.push(Piece::Markup((self.open)("assistant")));
            Ok(pieces)
        }
    }

    fn check(words: &Words) {
        use Role::{Assistant, System, User};
        let tags = Tags::of(words, &Bars).expect("messages stand one by one");
        for roles in [&[User][..], &[System, User], &[Assistant, User], &[System, Assistant, User, User]] {
            let expected = rendered(words, &Bars, roles).expect("it renders");
            assert_eq!(tags.conversation(roles), expected, "{roles:?}");
        }
        let markup = |text: &str| {
            let pieces = Bars.split_markup(text).into_iter().flat_map(|part| match part {
                MarkupPart::Text(text) => text.chars().map(|c| MarkupPart::Text(c.into())).collect(),
                special @ MarkupPart::Special(_) => vec![special],
            });
            pieces.collect::<Markup>()
        };
        for role in [System, User, Assistant] {
            assert_eq!(tags.open(role), markup(&(words.open)(role.name())), "{role:?} begins where it does");
            assert_eq!(tags.close(role), markup(words.close), "{role:?} ends where it does");
        }
        assert_eq!(tags.begin, markup(words.begin[0]));
    }

    const ZEPHYR: Words = Words {
        begin: ["", ""],
        into_first: "",
        open: |role| format!("[{role}]\n"),
        close: "<|eos|>\n",
        takes_later: true,
    };

    const CHATML: Words = Words {
        begin: ["", ""],
        into_first: "",
        open: |role| format!("<|im_start|>{role}\n"),
        close: "<|im_end|>\n",
        takes_later: true,
    };

    #[test]
    fn messages_have_the_same_markup_wherever_they_stand() {
        check(&CHATML);
        check(&Words { takes_later: false, ..CHATML });
        check(&Words { begin: ["<|begin|>", "<|begin|>"], ..CHATML });
        check(&ZEPHYR);
        check(&Words { close: "", ..ZEPHYR });
        check(&Words { close: "", begin: ["<|begin|>", "<|begin|>"], ..CHATML });
    }

    #[test]
    fn a_system_message_that_the_template_makes_up_is_none_of_the_callers() {
        check(&Words { begin: ["<|im_start|>system\nYou are kind.<|im_end|>\n", ""], ..CHATML });
        check(&Words { begin: ["[system]\nYou are kind.<|eos|>\n", ""], ..ZEPHYR });
    }

    #[test]
    fn words_that_the_template_puts_into_the_first_system_message_stay_there() {
        let llama = Words {
            begin: ["<|begin|><|start|>system<|end|>\n\nIt is 2024.\n\n<|eot|>", "<|begin|>"],
            into_first: "It is 2024.\n\n",
            open: |role| format!("<|start|>{role}<|end|>\n\n"),
            close: "<|eot|>",
            takes_later: true,
        };
        check(&llama);
        let tags = Tags::of(&llama, &Bars).expect("messages stand one by one");
        assert_eq!(tags.before(Some(Role::System)), tags.begin, "where it cannot be put into another's");
    }

    /// Takes this white space away at both ends of the user's contents, and changes letters inside.
    struct Ends(&'static str, fn(&str) -> String);

    impl ChatTemplate for Ends {
        fn frame(&self, roles: &[Role]) -> Result<Vec<Piece>, TextError> {
            CHATML.frame(roles)
        }

        fn render(&self, messages: &[(Role, &str)]) -> Result<Vec<RenderedPiece>, TextError> {
            let written = messages.iter().map(|(role, content)| match role {
                Role::User => (self.1)(content.trim_matches(|c| self.0.contains(c))),
                Role::System | Role::Assistant => (*content).to_owned(),
            });
            let written: Vec<String> = written.collect();
            let written: Vec<&str> = written.iter().map(String::as_str).collect();
            let roles: Vec<Role> = messages.iter().map(|(role, _)| *role).collect();
            Ok(base::text::put_in(&self.frame(&roles)?, &written))
        }
    }

    #[test]
    fn white_space_at_the_ends_is_taken_away_where_the_template_does() {
        let tags = Tags::of(&Ends(" \n\u{1c}", str::to_owned), &Bars).expect("messages stand one by one");
        let text = "\n \t\u{1c} a \n b\t \u{1c}\n";
        assert_eq!(tags.content(Role::User, text), "\t\u{1c} a \n b\t");
        assert_eq!(tags.content_start(Role::User, text), &text[2..]);
        assert_eq!(tags.content_end(Role::User, text), &text[..text.len() - 3]);
        assert_eq!(tags.content(Role::User, " \n"), "");
        assert_eq!(tags.content(Role::System, text), text);
        assert_eq!(tags.content(Role::Assistant, text), text);
    }

    #[test]
    fn a_template_that_changes_what_is_inside_is_refused() {
        let error = Tags::of(&Ends("", str::to_uppercase), &Bars).expect_err("it changes letters");
        assert_eq!(error, separate());
        Tags::of(&Ends("", |text| text.replace("  ", " ")), &Bars).expect_err("it changes white space");
    }
}
