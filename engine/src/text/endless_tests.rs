//! Templates that would run or write for ever, and long conversations that do not.

use base::{RenderedPiece, Role, TextError};

use super::template::{SpecialNames, Template};

fn template(source: &str) -> Template {
    Template::new(source, SpecialNames::default(), None).expect("it compiles")
}

/// Why a template does not write a conversation of one message.
fn refusal(source: &str, content: &str) -> String {
    match template(source).render(&[(Role::User, content)]) {
        Err(TextError::Template(reason)) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_template_that_would_run_for_hours_is_stopped() {
    let nested = "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}";
    let reason = refusal(&format!("{nested}{{{{ messages[0].content }}}}"), "x");
    assert_eq!(reason, "it takes more than 20000000 instructions");
}

#[test]
fn a_template_that_writes_without_an_end_is_stopped() {
    let source = "{% for a in range(100000) %}{{ messages[0].content }}{% endfor %}";
    let reason = refusal(source, &"x".repeat(1 << 20));
    assert_eq!(reason, "it writes more than 67108864 bytes");
}

#[test]
fn a_template_that_meets_a_bound_is_not_asked_for_the_messages_joined() {
    let source =
        "{% for m in messages %}{% for a in range(40) %}{{ messages[0].content }}{% endfor %}{% endfor %}";
    // Two messages are 80 MiB; joined into one they are 40.
    let long = "x".repeat(1 << 20);
    let refused = template(source).render(&[(Role::User, long.as_str()), (Role::User, "x")]);
    let Err(TextError::Template(reason)) = refused else { panic!("it is written") };
    assert_eq!(reason, "it writes more than 67108864 bytes");
}

#[test]
fn a_long_conversation_is_far_from_both_bounds() {
    let source = "{% for m in messages %}{% if m.role == 'user' %}<u>{% else %}<a>{% endif %}\
                  {{ m.content | trim }}{% if not loop.last %}<end>{% endif %}{% endfor %}";
    let roles = [Role::User, Role::Assistant].into_iter().cycle().take(2_000);
    let messages: Vec<_> = roles.map(|role| (role, "a few words")).collect();
    let pieces = template(source).render(&messages).expect("it is written");
    let text: String = pieces.iter().map(RenderedPiece::text).collect();
    assert_eq!(text.matches("a few words").count(), 2_000);
}
