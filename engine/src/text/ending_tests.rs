//! Conversations that end behind their last message, or inside of it.

use base::{ChatTemplate, PromptEnd, RenderedPiece, Role, TextError, ToolFields};

use super::template::{SpecialNames, Template};

const OPENING: &str = "{% if add_generation_prompt %}<assistant>{% endif %}";

/// A template that writes a message as `inner` says.
fn template(inner: &str) -> Template {
    let source = format!("{{% for m in messages %}}<{{{{ m['role'] }}}}>{inner}<end>{{% endfor %}}{OPENING}");
    let names = SpecialNames { reserved: vec!["<end>".to_owned()], ..SpecialNames::default() };
    Template::new(&source, names, None).expect("it compiles")
}

/// A question and `last` as the answer that has begun, written up to `end`.
fn written(inner: &str, last: &str, end: PromptEnd) -> Result<String, TextError> {
    let template = template(inner);
    let template = template.ending(end).expect("it knows all ends");
    let pieces = template.render(&[(Role::User, "Sure?"), (Role::Assistant, last)])?;
    Ok(pieces.iter().map(RenderedPiece::text).collect())
}

#[test]
fn a_conversation_ends_with_an_opening_a_message_or_the_text_that_is_continued() {
    let inner = "{{ m['content'] }}";
    for (end, expected) in [
        (PromptEnd::Answer, "<user>Sure?<end><assistant>Yes, <end><assistant>"),
        (PromptEnd::Message, "<user>Sure?<end><assistant>Yes, <end>"),
        (PromptEnd::Text, "<user>Sure?<end><assistant>Yes, "),
    ] {
        assert_eq!(written(inner, "Yes, ", end).as_deref(), Ok(expected), "{end:?}");
    }
}

#[test]
fn what_the_template_makes_of_the_text_is_what_is_continued() {
    let check = |inner: &str, last: &str, expected: &str| {
        let found = written(inner, last, PromptEnd::Text);
        assert_eq!(found.as_deref(), Ok(format!("<user>{expected}").as_str()), "{inner} {last:?}");
    };
    check("{{ m['content'] | trim }}", " Yes, ", "Sure?<end><assistant>Yes,");
    check("{{ m['content'] }} ", "Yes", "Sure? <end><assistant>Yes");
    check("{{ m['content'] }}|{{ m['content'] }}", "Yes", "Sure?|Sure?<end><assistant>Yes|Yes");
    // The same text in an earlier message is not the one.
    check("{{ m['content'] }}", "Sure?", "Sure?<end><assistant>Sure?");
    // It looks at the end of a content, so that its end cannot be marked.
    let looks = "{{ m['content'] }}{% if m['content'].endswith('!') %}*{% endif %}";
    check(looks, "Yes!", "Sure?<end><assistant>Yes!");
    // Then the same text in the markup behind it is not its end.
    let looks = "{{ m['content'] }}{% if m['content'].endswith('>') %}*{% endif %}";
    check(looks, ">", "Sure?<end><assistant>>");
    check(looks, " Yes> ", "Sure?<end><assistant> Yes> ");
    let twice = "{{ m['content'] }}|{{ m['content'] }}{% if m['content'].endswith('>') %}*{% endif %}";
    check(twice, ">", "Sure?|Sure?<end><assistant>>|>");
    // A special token that is written in the text stays text.
    check("{{ m['content'] }}", "Yes<end> no", "Sure?<end><assistant>Yes<end> no");
}

#[test]
fn a_template_that_leaves_the_last_message_out_cannot_have_it_continued() {
    let left_out = "{% if m['role'] == 'user' %}{{ m['content'] }}{% endif %}";
    let by_role = |answer: &str| {
        format!("{{% if m['role'] == 'user' %}}{{{{ m['content'] }}}}{{% else %}}{answer}{{% endif %}}")
    };
    // As DeepSeek R1's does with the thoughts of an answer.
    let split = by_role("{{ m['content'].split('?')[-1] }}");
    let marked = "{{ m['content'] }}{% if m['content'].endswith('>') %}<>{% endif %}";
    for (inner, last) in [
        (left_out, "Yes"),
        // What stands in an earlier message, or in the markup, is not it.
        (left_out, "Sure?"),
        (left_out, "user"),
        (&*split, "?"),
        (&*split, "Sure?"),
        // The markup that the text brings about holds it too: which of them is it?
        (marked, ">"),
    ] {
        let TextError::Template(reason) = written(inner, last, PromptEnd::Text).expect_err(inner);
        assert!(reason.contains("the last message"), "{inner} {last:?}: {reason}");
    }
}

#[test]
fn a_conversation_with_tools_ends_there_too() {
    let template = template("{{ m['content'] }}{% if tools %}!{% endif %}");
    let fields = ToolFields { tools: vec!["{}".to_owned()], ..ToolFields::default() };
    let written = |end| {
        let template = template.ending(end).expect("it knows all ends");
        let pieces = template.render_tools(&[(Role::User, "a"), (Role::Assistant, "b")], &fields);
        pieces.expect("it renders").iter().map(RenderedPiece::text).collect::<String>()
    };
    assert_eq!(written(PromptEnd::Text), "<user>a!<end><assistant>b");
    assert_eq!(written(PromptEnd::Message), "<user>a!<end><assistant>b!<end>");
}
