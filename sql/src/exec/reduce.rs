//! `ai_agg`: the texts of a group become one. They are cut into prompts that fit, whose answers are texts
//! again, until one is left: a tree, whose prompts of one level run side by side.

use super::rows::Waiter;

/// A group on its way to one text.
#[derive(Debug)]
pub(super) struct Reduction {
    /// Who waits for the last text.
    pub waiter: Waiter,
    parts: Vec<Option<String>>,
    open: usize,
}

impl Reduction {
    /// A level of so many prompts.
    pub(super) fn new(waiter: Waiter, prompts: usize) -> Self {
        Self { waiter, parts: vec![None; prompts], open: prompts }
    }

    /// The answer of a prompt of this level. True: it was the last.
    pub(super) fn answered(&mut self, place: usize, text: String) -> bool {
        if self.parts[place].replace(text).is_none() {
            self.open -= 1;
        }
        self.open == 0
    }

    /// Whether the level has one prompt: its answer is the group's.
    pub(super) fn is_last(&self) -> bool {
        self.parts.len() == 1
    }

    /// The texts of a level that is whole.
    pub(super) fn texts(&mut self) -> Vec<String> {
        std::mem::take(&mut self.parts).into_iter().flatten().collect()
    }

    /// The next level.
    pub(super) fn begin(&mut self, prompts: usize) {
        (self.parts, self.open) = (vec![None; prompts], prompts);
    }
}

/// Puts texts together, as many as fit into `chars_max` characters and two at least, so that each level has
/// fewer; a text that fills a prompt alone is cut.
pub(super) fn packed(texts: &[String], chars_max: usize) -> Vec<String> {
    let most = chars_max / if texts.len() > 1 { 2 } else { 1 };
    let mut prompts: Vec<(usize, usize, String)> = Vec::new();
    for text in texts {
        let text: String = text.trim().chars().take(most.saturating_sub(3)).collect();
        let chars = text.chars().count() + 3;
        match prompts.last_mut() {
            Some((count, filled, prompt)) if *filled + chars <= chars_max || *count < 2 => {
                prompt.push_str("\n- ");
                prompt.push_str(&text);
                *filled += chars;
                *count += 1;
            }
            _ => prompts.push((1, chars, format!("- {text}"))),
        }
    }
    prompts.into_iter().map(|(.., prompt)| prompt).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_level_has_fewer_prompts_that_fit() {
        let texts: Vec<String> =
            (0..100).map(|number| format!("text {number} {}", "x".repeat(number))).collect();
        let level = packed(&texts, 300);
        assert!(level.len() <= 50 && level.iter().all(|prompt| prompt.chars().count() <= 300));
        assert_eq!(level.iter().map(|prompt| prompt.lines().count()).sum::<usize>(), 100);
        let long: Vec<String> = (0..3).map(|_| "y".repeat(1_000)).collect();
        let level = packed(&long, 300);
        assert_eq!(level.len(), 2);
        assert!(level.iter().all(|prompt| prompt.chars().count() <= 300));
        assert_eq!(packed(&["one".into()], 300), ["- one"]);
    }
}
