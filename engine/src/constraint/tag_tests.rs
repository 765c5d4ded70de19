//! Free text in which tags begin JSON: those of tools' calls, and those of a caller's own.

use base::{Constraint, MarkedJson, StructuralTag, TriggeredTags};

use super::tests::writes;

fn tag(is_repeated: bool, otherwise: Option<&str>) -> Constraint {
    let schema = r#"{"type":"object","properties":{"name":{"const":"f"},"arguments":{"type":"object",
        "properties":{"x":{"type":"integer"}},"required":["x"],"additionalProperties":false}},
        "required":["name","arguments"],"additionalProperties":false}"#;
    Constraint::StructuralTag(Box::new(StructuralTag {
        begin: "<tool_call>".into(),
        schema: schema.into(),
        end: "</tool_call>".into(),
        is_repeated,
        otherwise: otherwise.map(str::to_owned),
    }))
}

#[test]
fn a_tag_begins_json_of_its_schema_wherever_it_is_written() {
    let call =
        |x: &str| format!("<tool_call>\n{{\"name\": \"f\", \"arguments\": {{\"x\": {x}}}}}\n</tool_call>");
    let many = tag(true, None);
    for text in [
        "Paris.".to_owned(),
        "1 < 2 <tool".to_owned(),
        call("7"),
        format!("I look.\n{}", call("7")),
        format!("{}\n{}\nDone.", call("7"), call("-12")),
    ] {
        assert!(writes(&many, &text), "{text}");
    }
    for text in [
        "<tool_call>find it</tool_call>".to_owned(),
        "So <tool_call>\n{\"name\": \"g\"".to_owned(),
        call("true"),
        format!("{}<tool_call>x", call("7")),
    ] {
        assert!(!writes(&many, &text), "{text}");
    }
    let once = tag(false, None);
    assert!(writes(&once, &format!("So: {}", call("7"))));
    assert!(!writes(&once, &format!("{}\n{}", call("7"), call("8"))));
    let formed = tag(true, Some(r#"{"enum":["x","y"]}"#));
    assert!(writes(&formed, "\"x\"") && writes(&formed, &format!("{}\n{}", call("7"), call("8"))));
    assert!(!writes(&formed, "So."));
}

#[test]
fn a_trigger_begins_one_of_its_tags_wherever_it_is_written() {
    let tag = |begin: &str, schema: &str| MarkedJson {
        begin: begin.into(),
        schema: schema.into(),
        end: "</fn>".into(),
    };
    let object = r#"{"type":"object","properties":{"x":{"type":"integer"}},"required":["x"],"additionalProperties":false}"#;
    let tags =
        vec![tag("<fn=a>", object), tag("<fn=b>", r#"{"enum":["p","q"]}"#), tag("<fn=", r#"{"const":7}"#)];
    let tags = Constraint::TriggeredTags(Box::new(TriggeredTags { trigger: "<fn=".into(), tags }));
    for text in [
        "Paris.",
        "1 < 2 <f",
        "<fn=a>{\"x\": 7}</fn>",
        "So: <fn=b>\"p\"</fn> and <fn=a>{\"x\": -12}</fn> Done.",
        "<fn=7</fn><fn=b>\"q\"</fn>",
    ] {
        assert!(writes(&tags, text), "{text}");
    }
    for text in ["<fn=c>", "<fn=a>\"p\"</fn>", "<fn=b>\"p\"", "So <fn=b>\"r\"</fn>", "<fn=b>\"p\"</fn> <fn=x"]
    {
        assert!(!writes(&tags, text), "{text}");
    }
}
