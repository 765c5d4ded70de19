//! `${NAME}` inside strings of a configuration file. Pure: who reads the environment is an argument.

use super::{InvalidConfig, invalid};

/// Looks up a variable of the environment.
pub type Variable<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Replaces `${NAME}` in all strings under a value; `field` is what errors call it.
pub fn expand(field: &str, value: &mut toml::Value, variable: Variable<'_>) -> Result<(), InvalidConfig> {
    match value {
        toml::Value::String(text) => *text = expand_text(field, text, variable)?,
        toml::Value::Array(items) => {
            for item in items {
                expand(field, item, variable)?;
            }
        }
        toml::Value::Table(table) => {
            for (key, value) in table {
                expand(&format!("{field}.{key}"), value, variable)?;
            }
        }
        toml::Value::Integer(_)
        | toml::Value::Float(_)
        | toml::Value::Boolean(_)
        | toml::Value::Datetime(_) => {}
    }
    Ok(())
}

/// Replaces `${NAME}` in one string; what comes out of a variable is not expanded again.
fn expand_text(field: &str, text: &str, variable: Variable<'_>) -> Result<String, InvalidConfig> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        out.push_str(before);
        let Some((name, tail)) = after.split_once('}') else {
            return Err(invalid(field, "has `${` without `}`"));
        };
        let unset = || format!("refers to the environment variable {name}, which is not set");
        out.push_str(&variable(name).ok_or_else(|| invalid(field, &unset()))?);
        rest = tail;
    }
    out.push_str(rest);
    Ok(out)
}
