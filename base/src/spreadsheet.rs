//! What spreadsheets take for formulas. Whoever wrote a text may want a reader's spreadsheet to compute it.

use std::borrow::Cow;

/// A text as a cell of delimited text: one that a spreadsheet would compute has a mark in front, and is shown as it is.
pub fn marked(text: &str) -> Cow<'_, str> {
    if is_formula(text) { Cow::Owned(format!("'{text}")) } else { Cow::Borrowed(text) }
}

/// Whether a spreadsheet would compute a text instead of showing it. A number is one either way; `-inf` is
/// none to it, but a name.
fn is_formula(text: &str) -> bool {
    text.starts_with(['=', '+', '-', '@', '\t', '\r'])
        && !text.trim().parse::<f64>().is_ok_and(f64::is_finite)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_spreadsheet_would_compute_is_marked_and_numbers_are_not() {
        for formula in ["=1+1", "+49 30 1234", "-x", "@SUM(A1)", "\t=1", "\r=1", "- a list", "-inf", "+nan"] {
            assert_eq!(marked(formula), format!("'{formula}"));
        }
        for text in ["-5", "+3.2", "-1e9", "good", "'=1", " =1", ""] {
            assert_eq!(marked(text), text);
        }
    }
}
