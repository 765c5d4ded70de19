//! Characters of zero width that join what stands beside them (U+200D), or keep it apart (U+200C), where a script or an
//! emoji needs them: there they are seen. Elsewhere a name with one looks like the name without it.
//!
//! The places are those of RFC 5892 (A.1 and A.2) for the scripts of India and for Arabic, and sequences of emoji. Must not
//! know what is named.

/// Keeps letters apart.
const NON_JOINER: char = '\u{200c}';
/// Joins letters, or emoji.
const JOINER: char = '\u{200d}';
/// Asks for a coloured form of the emoji before it.
const EMOJI_FORM: char = '\u{fe0f}';

/// Whether a character joins, or keeps apart.
pub(super) fn is_joiner(c: char) -> bool {
    matches!(c, NON_JOINER | JOINER)
}

/// Whether the joiner between these parts of a name is seen.
pub(super) fn is_seen(before: &str, joiner: char, after: &str) -> bool {
    let (Some(last), Some(next)) = (before.chars().next_back(), after.chars().next()) else { return false };
    if is_virama(last) {
        return is_indic(next) && next.is_alphabetic();
    }
    match joiner {
        JOINER => {
            let mut emoji = before.chars().rev().skip_while(|c| *c == EMOJI_FORM || is_skin_tone(*c));
            emoji.next().is_some_and(is_emoji) && is_emoji(next)
        }
        NON_JOINER => {
            let is_letter = |c: &char| !is_arabic_mark(*c);
            let last = before.chars().rev().find(is_letter);
            let next = after.chars().find(is_letter);
            last.is_some_and(joins_both_sides) && next.is_some_and(joins_before)
        }
        _ => false,
    }
}

/// A sign that takes the vowel of the letter before it: what follows decides how both are drawn.
fn is_virama(c: char) -> bool {
    matches!(
        c,
        '\u{94d}'
            | '\u{9cd}'
            | '\u{a4d}'
            | '\u{acd}'
            | '\u{b4d}'
            | '\u{bcd}'
            | '\u{c4d}'
            | '\u{ccd}'
            | '\u{d4d}'
            | '\u{dca}'
    )
}

/// Devanagari to Sinhala.
fn is_indic(c: char) -> bool {
    matches!(c, '\u{900}'..='\u{dff}')
}

/// Pictures; what is no part of a sequence is drawn beside the others.
fn is_emoji(c: char) -> bool {
    let is_picture = matches!(c, '\u{2190}'..='\u{21ff}' | '\u{2600}'..='\u{27bf}' | '\u{2b00}'..='\u{2bff}');
    is_picture || matches!(c, '\u{1f300}'..='\u{1faff}') && !is_skin_tone(c)
}

fn is_skin_tone(c: char) -> bool {
    matches!(c, '\u{1f3fb}'..='\u{1f3ff}')
}

/// Marks on Arabic letters, which join as if these were not there.
fn is_arabic_mark(c: char) -> bool {
    matches!(c, '\u{64b}'..='\u{65f}' | '\u{670}')
}

/// Letters of Arabic that join the one behind them and the one before (Joining_Type D).
fn joins_both_sides(c: char) -> bool {
    matches!(
        c,
        '\u{620}' | '\u{626}' | '\u{628}' | '\u{62a}'..='\u{62e}' | '\u{633}'..='\u{63f}'
            | '\u{641}'..='\u{647}' | '\u{649}' | '\u{64a}' | '\u{66e}' | '\u{66f}' | '\u{678}'..='\u{687}'
            | '\u{69a}'..='\u{6bf}' | '\u{6c1}' | '\u{6c2}' | '\u{6cc}' | '\u{6ce}' | '\u{6d0}' | '\u{6d1}'
            | '\u{6fa}'..='\u{6fc}' | '\u{6ff}'
    )
}

/// Letters of Arabic that join the one before them (Joining_Type D or R).
fn joins_before(c: char) -> bool {
    joins_both_sides(c)
        || matches!(
            c,
            '\u{622}'..='\u{625}' | '\u{627}' | '\u{629}' | '\u{62f}'..='\u{632}' | '\u{648}'
                | '\u{671}'..='\u{673}' | '\u{675}'..='\u{677}' | '\u{688}'..='\u{699}' | '\u{6c0}'
                | '\u{6c3}'..='\u{6cb}' | '\u{6cd}' | '\u{6cf}' | '\u{6d2}' | '\u{6d3}' | '\u{6d5}'
                | '\u{6ee}' | '\u{6ef}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether every joiner of a name is seen.
    fn are_seen(name: &str) -> bool {
        let mut joiners = name.char_indices().filter(|(_, c)| is_joiner(*c));
        joiners.all(|(at, c)| is_seen(&name[..at], c, &name[at + c.len_utf8()..]))
    }

    #[test]
    fn joiners_are_seen_where_a_script_or_an_emoji_needs_them_and_nowhere_else() {
        for name in [
            // Persian, with and without a mark; Hindi, Sinhala.
            "می\u{200c}خواهم",
            "هفته\u{64e}\u{200c}ها",
            "क्\u{200d}ष",
            "क्\u{200c}ष",
            "ශ්\u{200d}රී",
            // A woman at a computer, of a colour too; a family; two flags.
            "👩\u{200d}💻",
            "👩🏽\u{200d}💻",
            "👨\u{200d}👩\u{200d}👧",
            "🏳\u{fe0f}\u{200d}🌈",
            "🏴\u{200d}☠\u{fe0f}",
        ] {
            assert!(are_seen(name), "{}", name.escape_unicode());
        }
        for name in [
            "ac\u{200d}me",
            "ac\u{200c}me",
            "株\u{200d}式",
            // At an end, or doubled.
            "\u{200d}👩",
            "👩\u{200d}",
            "می\u{200c}",
            "क्\u{200d}",
            "👩\u{200d}\u{200d}💻",
            "می\u{200c}\u{200c}خواهم",
            // One that keeps apart what does not join, and one that joins what does by itself.
            "او\u{200c}را",
            "می\u{200d}خواهم",
            "👩\u{200c}💻",
            "क\u{200d}ष",
            "क्\u{200d}a",
            "\u{fe0f}\u{200d}💻",
        ] {
            assert!(!are_seen(name), "{}", name.escape_unicode());
        }
    }
}
