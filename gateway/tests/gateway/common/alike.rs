//! Replies that say the same, though their numbers were computed in other products or sums.

use serde_json::{Map, Value};

/// Whether two values are the same but for numbers, which may differ by less than that.
pub fn is_alike(one: &Value, other: &Value, tolerance: f64) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => {
            (one.as_f64().unwrap() - other.as_f64().unwrap()).abs() < tolerance
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len()
                && one.iter().zip(other).all(|(one, other)| is_alike(one, other, tolerance))
        }
        (Value::Object(one), Value::Object(other)) => are_entries_alike(one, other, tolerance),
        _ => one == other,
    }
}

fn are_entries_alike(one: &Map<String, Value>, other: &Map<String, Value>, tolerance: f64) -> bool {
    let is_there =
        |(name, one): (&String, &Value)| other.get(name).is_some_and(|other| is_alike(one, other, tolerance));
    one.len() == other.len() && one.iter().all(is_there)
}
