//! Selectors of a form of the character before them: they draw nothing by themselves. Behind an emoji, a Han character or a
//! Mongolian letter they choose how it is drawn; elsewhere a name with one looks like the name without it.
//!
//! The page knows the same places: `dashboards/web/src/core/visible.ts`. Must not know what is named.

/// Draws a key around the digit before it.
const CAP: char = '\u{20e3}';

/// Whether a character selects a form.
pub(super) fn is_selector(c: char) -> bool {
    is_of_emoji(c) || is_of_han(c) || is_of_mongolian(c)
        // Of signs and of a few scripts: no name is known to need them.
        || matches!(c, '\u{fe00}'..='\u{fe0d}')
}

/// Whether the selector between these parts of a name is seen.
pub(super) fn is_seen(before: &str, selector: char, after: &str) -> bool {
    let Some(last) = before.chars().next_back() else { return false };
    match selector {
        c if is_of_emoji(c) => is_emoji(last) || is_key(last) && after.starts_with(CAP),
        c if is_of_han(c) => is_han(last),
        c if is_of_mongolian(c) => is_mongolian(last),
        _ => false,
    }
}

/// As a text, or as a picture.
fn is_of_emoji(c: char) -> bool {
    matches!(c, '\u{fe0e}' | '\u{fe0f}')
}

/// The forms of Han characters that names of people and places have.
fn is_of_han(c: char) -> bool {
    matches!(c, '\u{e0100}'..='\u{e01ef}')
}

fn is_of_mongolian(c: char) -> bool {
    matches!(c, '\u{180b}'..='\u{180d}' | '\u{180f}')
}

fn is_key(c: char) -> bool {
    matches!(c, '0'..='9' | '#' | '*')
}

fn is_han(c: char) -> bool {
    matches!(
        c,
        '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{fa0e}'..='\u{fa29}'
            | '\u{20000}'..='\u{3fffd}'
    )
}

fn is_mongolian(c: char) -> bool {
    matches!(c, '\u{1820}'..='\u{1878}' | '\u{1880}'..='\u{1884}' | '\u{1887}'..='\u{18a8}' | '\u{18aa}')
}

/// Emoji of Unicode 17, without digits, colours of skin and halves of flags.
fn is_emoji(c: char) -> bool {
    matches!(
        c,
        '\u{a9}' | '\u{ae}' | '\u{203c}' | '\u{2049}' | '\u{2122}' | '\u{2139}'
            | '\u{2194}'..='\u{2199}' | '\u{21a9}'..='\u{21aa}' | '\u{231a}'..='\u{231b}' | '\u{2328}'
            | '\u{23cf}' | '\u{23e9}'..='\u{23f3}' | '\u{23f8}'..='\u{23fa}' | '\u{24c2}'
            | '\u{25aa}'..='\u{25ab}' | '\u{25b6}' | '\u{25c0}' | '\u{25fb}'..='\u{25fe}'
            | '\u{2600}'..='\u{2604}' | '\u{260e}' | '\u{2611}' | '\u{2614}'..='\u{2615}' | '\u{2618}'
            | '\u{261d}' | '\u{2620}' | '\u{2622}'..='\u{2623}' | '\u{2626}' | '\u{262a}'
            | '\u{262e}'..='\u{262f}' | '\u{2638}'..='\u{263a}' | '\u{2640}' | '\u{2642}'
            | '\u{2648}'..='\u{2653}' | '\u{265f}'..='\u{2660}' | '\u{2663}' | '\u{2665}'..='\u{2666}'
            | '\u{2668}' | '\u{267b}' | '\u{267e}'..='\u{267f}' | '\u{2692}'..='\u{2697}' | '\u{2699}'
            | '\u{269b}'..='\u{269c}' | '\u{26a0}'..='\u{26a1}' | '\u{26a7}' | '\u{26aa}'..='\u{26ab}'
            | '\u{26b0}'..='\u{26b1}' | '\u{26bd}'..='\u{26be}' | '\u{26c4}'..='\u{26c5}' | '\u{26c8}'
            | '\u{26ce}'..='\u{26cf}' | '\u{26d1}' | '\u{26d3}'..='\u{26d4}' | '\u{26e9}'..='\u{26ea}'
            | '\u{26f0}'..='\u{26f5}' | '\u{26f7}'..='\u{26fa}' | '\u{26fd}' | '\u{2702}' | '\u{2705}'
            | '\u{2708}'..='\u{270d}' | '\u{270f}' | '\u{2712}' | '\u{2714}' | '\u{2716}' | '\u{271d}'
            | '\u{2721}' | '\u{2728}' | '\u{2733}'..='\u{2734}' | '\u{2744}' | '\u{2747}' | '\u{274c}'
            | '\u{274e}' | '\u{2753}'..='\u{2755}' | '\u{2757}' | '\u{2763}'..='\u{2764}'
            | '\u{2795}'..='\u{2797}' | '\u{27a1}' | '\u{27b0}' | '\u{27bf}' | '\u{2934}'..='\u{2935}'
            | '\u{2b05}'..='\u{2b07}' | '\u{2b1b}'..='\u{2b1c}' | '\u{2b50}' | '\u{2b55}' | '\u{3030}'
            | '\u{303d}' | '\u{3297}' | '\u{3299}' | '\u{1f004}' | '\u{1f0cf}'
            | '\u{1f170}'..='\u{1f171}' | '\u{1f17e}'..='\u{1f17f}' | '\u{1f18e}'
            | '\u{1f191}'..='\u{1f19a}' | '\u{1f201}'..='\u{1f202}' | '\u{1f21a}' | '\u{1f22f}'
            | '\u{1f232}'..='\u{1f23a}' | '\u{1f250}'..='\u{1f251}' | '\u{1f300}'..='\u{1f321}'
            | '\u{1f324}'..='\u{1f393}' | '\u{1f396}'..='\u{1f397}' | '\u{1f399}'..='\u{1f39b}'
            | '\u{1f39e}'..='\u{1f3f0}' | '\u{1f3f3}'..='\u{1f3f5}' | '\u{1f3f7}'..='\u{1f3fa}'
            | '\u{1f400}'..='\u{1f4fd}' | '\u{1f4ff}'..='\u{1f53d}' | '\u{1f549}'..='\u{1f54e}'
            | '\u{1f550}'..='\u{1f567}' | '\u{1f56f}'..='\u{1f570}' | '\u{1f573}'..='\u{1f57a}'
            | '\u{1f587}' | '\u{1f58a}'..='\u{1f58d}' | '\u{1f590}' | '\u{1f595}'..='\u{1f596}'
            | '\u{1f5a4}'..='\u{1f5a5}' | '\u{1f5a8}' | '\u{1f5b1}'..='\u{1f5b2}' | '\u{1f5bc}'
            | '\u{1f5c2}'..='\u{1f5c4}' | '\u{1f5d1}'..='\u{1f5d3}' | '\u{1f5dc}'..='\u{1f5de}'
            | '\u{1f5e1}' | '\u{1f5e3}' | '\u{1f5e8}' | '\u{1f5ef}' | '\u{1f5f3}'
            | '\u{1f5fa}'..='\u{1f64f}' | '\u{1f680}'..='\u{1f6c5}' | '\u{1f6cb}'..='\u{1f6d2}'
            | '\u{1f6d5}'..='\u{1f6d8}' | '\u{1f6dc}'..='\u{1f6e5}' | '\u{1f6e9}'
            | '\u{1f6eb}'..='\u{1f6ec}' | '\u{1f6f0}' | '\u{1f6f3}'..='\u{1f6fc}'
            | '\u{1f7e0}'..='\u{1f7eb}' | '\u{1f7f0}' | '\u{1f90c}'..='\u{1f93a}'
            | '\u{1f93c}'..='\u{1f945}' | '\u{1f947}'..='\u{1f9ff}' | '\u{1fa70}'..='\u{1fa7c}'
            | '\u{1fa80}'..='\u{1fa8a}' | '\u{1fa8e}'..='\u{1fac6}' | '\u{1fac8}'
            | '\u{1facd}'..='\u{1fadc}' | '\u{1fadf}'..='\u{1faea}' | '\u{1faef}'..='\u{1faf8}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether every selector of a name is seen.
    fn are_seen(name: &str) -> bool {
        let mut selectors = name.char_indices().filter(|(_, c)| is_selector(*c));
        selectors.all(|(at, c)| is_seen(&name[..at], c, &name[at + c.len_utf8()..]))
    }

    /// The cases of `dashboards/web/test/operators.test.ts`.
    #[test]
    fn selectors_are_seen_behind_what_has_forms_and_nowhere_else() {
        for name in [
            "❤\u{fe0f}",
            "♥\u{fe0e}",
            "⚡\u{fe0f} team",
            "🏳\u{fe0f}\u{200d}🌈",
            "🏴\u{200d}☠\u{fe0f}",
            "1\u{fe0f}\u{20e3}",
            "葛\u{e0100}城市",
            "﨑\u{e0101}",
            "ᠨ\u{180b}ᠠ",
        ] {
            assert!(are_seen(name), "{}", name.escape_unicode());
        }
        for name in [
            "ac\u{fe0f}me",
            "ac\u{fe00}me",
            "acme\u{fe0e}",
            "acme1\u{fe0f}",
            "ac\u{e0100}me",
            "acme\u{e01ef}",
            "ac\u{180b}me",
            "株\u{fe0f}式",
            "株\u{fe00}式",
            "テ\u{e0100}",
            "←\u{fe0f}",
            "👩🏽\u{fe0f}",
            "葛\u{180b}",
            "❤\u{e0100}",
            // At the beginning, or doubled.
            "\u{fe0f}❤",
            "❤\u{fe0f}\u{fe0f}",
            "葛\u{e0100}\u{e0101}",
            "ᠨ\u{180b}\u{180b}",
        ] {
            assert!(!are_seen(name), "{}", name.escape_unicode());
        }
    }
}
