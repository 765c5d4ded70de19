//! Tools of `/v1/responses` that stand in namespaces. Models know functions by their names alone: they are told a name
//! made of both, and what they call by it is told to clients as they named it.

use serde_json::Value;
use serving::error::RequestError;

use crate::json::JsonFields;

/// The type of a tool that holds others.
const NAMESPACE: &str = "namespace";
/// Stands between a namespace and the name of a function in it, where a model is told one name.
const BETWEEN: &str = "__";

/// What a model is told that a function of a namespace is called.
pub(super) fn joined_name(namespace: &str, name: &str) -> String {
    format!("{namespace}{BETWEEN}{name}")
}

/// The tools that one of a request stands for, each with its place in the request: itself, or the functions of a namespace
/// by the names that a model is told. `place`: its own.
pub(super) fn flattened(place: String, tool: &Value) -> Result<Vec<(String, Value)>, RequestError> {
    if tool["type"] != NAMESPACE {
        return Ok(vec![(place, tool.clone())]);
    }
    let mut fields = JsonFields::nested(place, tool.clone())?;
    let namespace = fields.string("name")?.filter(|name| !name.is_empty());
    let Some(namespace) = namespace else { return fields.bad("name", "is required") };
    let Some(functions) = fields.array("tools")? else { return fields.bad("tools", "is required") };
    let mut told = Vec::with_capacity(functions.len());
    for (number, mut function) in functions.into_iter().enumerate() {
        let path = fields.name(&format!("tools[{number}]"));
        if function["type"] != "function" {
            return Err(RequestError::invalid(format!("{path}.type"), "must be function"));
        }
        let Some(name) = function["name"].as_str().map(|name| joined_name(&namespace, name)) else {
            return Err(RequestError::invalid(format!("{path}.name"), "is required"));
        };
        function["name"] = name.into();
        told.push((path, function));
    }
    Ok(told)
}

/// The name of a field of the tools that a model is told, as the request has it. `places`: of these tools in the request.
pub(super) fn own_field(field: String, places: &[String]) -> String {
    let told = field.strip_prefix("tools[").and_then(|rest| rest.split_once(']'));
    let own = told.and_then(|(number, rest)| {
        let place = places.get(number.parse::<usize>().ok()?)?;
        Some(format!("{place}{rest}"))
    });
    own.unwrap_or(field)
}

/// The namespace and the name of a function that is called, as its request's `tools` have them.
pub(super) fn own_names<'a>(tools: &'a [Value], called: &'a str) -> (Option<&'a str>, &'a str) {
    for tool in tools.iter().filter(|tool| tool["type"] == NAMESPACE) {
        let Some(namespace) = tool["name"].as_str() else { continue };
        let name = called.strip_prefix(namespace).and_then(|rest| rest.strip_prefix(BETWEEN));
        let mut functions = tool["tools"].as_array().into_iter().flatten();
        if let Some(name) = name.filter(|name| functions.any(|function| function["name"] == *name)) {
            return (Some(namespace), name);
        }
    }
    (None, called)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn functions_of_a_namespace_have_one_name_for_the_model_and_two_for_the_client() {
        let plain = json!({"type": "function", "name": "files__read"});
        let space = json!({"type": "namespace", "name": "files", "description": "Files.", "tools": [
            {"type": "function", "name": "list", "parameters": {"type": "object"}}, {"type": "function", "name": "a__b"}]});
        let all =
            |(number, tool): (usize, &Value)| flattened(format!("tools[{number}]"), tool).expect("valid");
        let (places, told): (Vec<String>, Vec<Value>) =
            [&plain, &space].into_iter().enumerate().flat_map(all).unzip();
        assert_eq!(places, ["tools[0]", "tools[1].tools[0]", "tools[1].tools[1]"]);
        let names: Vec<&Value> = told.iter().map(|tool| &tool["name"]).collect();
        assert_eq!(names, [&json!("files__read"), &json!("files__list"), &json!("files__a__b")]);
        assert_eq!(told[1]["parameters"], json!({"type": "object"}));
        for (field, own) in [
            ("tools[2].function.name", "tools[1].tools[1].function.name"),
            ("tools[9]", "tools[9]"),
            ("tools", "tools"),
        ] {
            assert_eq!(own_field(field.to_owned(), &places), own);
        }
        let tools = [plain, space];
        for (called, own) in [
            ("files__list", (Some("files"), "list")),
            ("files__a__b", (Some("files"), "a__b")),
            ("files__read", (None, "files__read")),
            ("list", (None, "list")),
        ] {
            assert_eq!(own_names(&tools, called), own);
        }
    }

    #[test]
    fn a_namespace_that_is_none_is_refused_by_name() {
        for (tool, blamed) in [
            (json!({"type": "namespace", "tools": []}), "tools[3].name"),
            (json!({"type": "namespace", "name": "", "tools": []}), "tools[3].name"),
            (json!({"type": "namespace", "name": "n"}), "tools[3].tools"),
            (json!({"type": "namespace", "name": "n", "tools": ["f"]}), "tools[3].tools[0].type"),
            (
                json!({"type": "namespace", "name": "n", "tools": [{"type": "custom", "name": "f"}]}),
                "tools[3].tools[0].type",
            ),
            (
                json!({"type": "namespace", "name": "n", "tools": [{"type": "function"}]}),
                "tools[3].tools[0].name",
            ),
        ] {
            match flattened("tools[3]".to_owned(), &tool) {
                Err(RequestError::Invalid { field, .. }) => assert_eq!(field, blamed, "{tool}"),
                other => panic!("{tool} gave {other:?}"),
            }
        }
    }
}
