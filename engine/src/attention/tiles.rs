//! A step's attention in tiles of consecutive tokens, so that its partial results take bounded memory.
//!
//! Parts stay as they were cut for the whole step, and a slot reads them in the same order: what a token gets
//! does not depend on the tiles, to the bit.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use super::plan::{AttentionPlan, Member, Part};

impl AttentionPlan {
    /// Tiles of at most `rows_max` query rows, or of one token where that one reads more parts. Most steps
    /// are one tile, which is the plan itself.
    pub(super) fn tiles(&self, rows_max: usize) -> Vec<(Range<usize>, Cow<'_, Self>)> {
        if self.rows() <= rows_max {
            return vec![(0..self.tokens.len(), Cow::Borrowed(self))];
        }
        let mut tiles = Vec::new();
        let (mut first, mut rows) = (0, 0);
        for token in 0..self.tokens.len() {
            let own = self.readers[self.tokens[token].0].len();
            if rows + own > rows_max && token > first {
                tiles.push((first..token, Cow::Owned(self.tile(first..token))));
                (first, rows) = (token, 0);
            }
            rows += own;
        }
        tiles.push((first..self.tokens.len(), Cow::Owned(self.tile(first..self.tokens.len()))));
        tiles
    }

    /// The plan of some of its tokens: their rows alone, numbered anew.
    fn tile(&self, tokens: Range<usize>) -> Self {
        let mut tile = Self::default();
        let mut moved = HashMap::new(); // (part, row) of a reader, before and after
        let mut first_row = 0;
        for (number, part) in self.parts.iter().enumerate() {
            let (mut members, mut rows) = (Vec::new(), 0);
            for member in &part.members {
                let Some(cut) = member.cut(&tokens, rows) else { continue };
                moved.insert((number, member.row), (tile.parts.len(), rows));
                rows += cut.tokens;
                members.push(cut);
            }
            if rows > 0 {
                tile.parts.push(Part { members, rows, first_row, ..part.clone() });
                first_row += rows;
            }
        }
        let read = |reads: &Vec<_>| reads.iter().filter_map(|read| moved.get(read).copied()).collect();
        tile.readers = self.readers.iter().map(read).collect();
        let (first_slot, skipped) = self.tokens[tokens.start];
        let renumbered =
            |(slot, i): &(usize, usize)| (*slot, if *slot == first_slot { i - skipped } else { *i });
        tile.tokens = self.tokens[tokens].iter().map(renumbered).collect();
        tile
    }
}

impl Member {
    /// What of it lies in `tokens`, at `row` of its part's new stack.
    fn cut(&self, tokens: &Range<usize>, row: usize) -> Option<Self> {
        let token = self.token.max(tokens.start);
        let end = (self.token + self.tokens).min(tokens.end);
        let skipped = token - self.token;
        (token < end).then(|| Self {
            token,
            tokens: end - token,
            position: self.position + skipped,
            angle: self.angle + skipped,
            row,
        })
    }
}
