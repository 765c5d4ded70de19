//! The left operand of a product: rows in single precision, or rounded already and laid out as the product's
//! weights meet them.
//!
//! What lies between two operations of a layer is read once, by a product: an operation that knows its weights
//! writes the rows as these want them, half as many bytes, and the product packs nothing.

use half::bf16;

use super::layout::pairs::ZERO;
use super::layout::tiles::{Line, TILE, full_blocks, step_count, tile_count};

/// Rows for a product, in memory that is kept for the next.
#[derive(Default)]
pub struct Operand {
    rows: usize,
    /// Whether they lie in the tiles of a matrix unit, and not one after another.
    is_tiled: bool,
    singles: Vec<f32>,
    tiles: Vec<Line>,
}

/// What a product reads on the left.
#[derive(Clone, Copy)]
pub enum LeftOperand<'a> {
    /// `[rows, inputs]`
    Singles(&'a [f32]),
    /// In the tiles of a matrix unit.
    Tiles {
        rows: usize,
        /// Blocks of rows, as weights in tiles meet them.
        lines: TiledRows<'a>,
    },
}

/// Rows in tiles; how these lie is the device's own.
#[derive(Clone, Copy)]
pub struct TiledRows<'a>(pub(super) &'a [Line]);

impl<'a> From<&'a [f32]> for LeftOperand<'a> {
    fn from(singles: &'a [f32]) -> Self {
        Self::Singles(singles)
    }
}

impl<'a> From<&'a Vec<f32>> for LeftOperand<'a> {
    fn from(singles: &'a Vec<f32>) -> Self {
        Self::Singles(singles)
    }
}

impl<'a> From<&'a Operand> for LeftOperand<'a> {
    fn from(operand: &'a Operand) -> Self {
        if operand.is_tiled {
            return Self::Tiles { rows: operand.rows, lines: TiledRows(&operand.tiles) };
        }
        Self::Singles(&operand.singles)
    }
}

impl LeftOperand<'_> {
    /// How many rows of `inputs` there are.
    pub(super) fn rows(&self, inputs: usize) -> usize {
        match self {
            Self::Singles(numbers) => {
                assert!(numbers.len().is_multiple_of(inputs));
                numbers.len() / inputs
            }
            Self::Tiles { rows, .. } => *rows,
        }
    }
}

/// Where a product's finished sums go.
pub(super) enum ProductResult<'a> {
    /// `[rows, outputs]`
    Singles(&'a mut [f32]),
    /// Rounded, for weights in tiles.
    Tiles(&'a mut [Line]),
}

impl Operand {
    /// Room for `rows` of `inputs`.
    pub(super) fn make_room(&mut self, rows: usize, inputs: usize, is_tiled: bool) -> ProductResult<'_> {
        (self.rows, self.is_tiled) = (rows, is_tiled);
        if is_tiled {
            let steps = step_count(inputs);
            let len = full_blocks(rows).map(|block| tile_count(block.rows) * TILE * steps).sum();
            self.tiles.resize(len, Line([ZERO; TILE]));
            if !inputs.is_multiple_of(2 * TILE) {
                self.clear_last_steps(steps);
            }
            return ProductResult::Tiles(&mut self.tiles);
        }
        self.singles.resize(rows * inputs, 0.0);
        ProductResult::Singles(&mut self.singles)
    }

    /// Empties what is behind the rows' ends: weights are zero there, but nothing times zero may be no number.
    fn clear_last_steps(&mut self, steps: usize) {
        let mut rest = &mut self.tiles[..];
        for block in full_blocks(self.rows) {
            let of_step = tile_count(block.rows) * TILE;
            let (lines, after) = rest.split_at_mut(of_step * steps);
            lines[of_step * (steps - 1)..].fill(Line([ZERO; TILE]));
            rest = after;
        }
    }
}

const _: () = assert!(size_of::<Line>() == 2 * TILE * size_of::<bf16>());
