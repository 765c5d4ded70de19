//! Products of 9 rows and more by clusters of blocks (kernels/split.cuh), on cards that have them.

use super::{Args, Element, Factors, Grid, Linear, Scales};

/// How such a kernel is laid out, as its source says too.
struct SplitLayout {
    /// Rows, at most.
    rows: usize,
    /// Outputs of a tile.
    outputs: usize,
    /// Blocks of a cluster.
    blocks: u32,
    /// Inputs that are multiplied at once; each block has some.
    chunk: usize,
    /// Warps that multiply; one more fetches.
    warps: u32,
    /// Bytes of shared memory of a block.
    shared: u32,
}

const OF_HALVES: [SplitLayout; 2] = [
    SplitLayout { rows: 16, outputs: 32, blocks: 4, chunk: 64, warps: 7, shared: 202_896 },
    SplitLayout { rows: 32, outputs: 32, blocks: 4, chunk: 64, warps: 5, shared: 204_912 },
];
const OF_E4M3: [SplitLayout; 2] = [
    SplitLayout { rows: 16, outputs: 32, blocks: 4, chunk: 128, warps: 8, shared: 215_200 },
    SplitLayout { rows: 32, outputs: 32, blocks: 4, chunk: 128, warps: 7, shared: 209_040 },
];
const OF_Q4: [SplitLayout; 3] = [
    SplitLayout { rows: 16, outputs: 32, blocks: 4, chunk: 128, warps: 8, shared: 211_104 },
    SplitLayout { rows: 32, outputs: 32, blocks: 4, chunk: 128, warps: 7, shared: 216_720 },
    SplitLayout { rows: 64, outputs: 16, blocks: 8, chunk: 64, warps: 10, shared: 219_840 },
];

/// With so many rows a kernel that reads `x` from the cache is as fast.
const FEWEST_ROWS: usize = 9;

/// Outputs are written by eights, those of gates and of what they gate.
const EIGHT: usize = 8;

impl SplitLayout {
    /// So many clusters.
    fn grid(&self, clusters: usize) -> Grid {
        let threads = 32 * (self.warps + 1);
        let blocks = [clusters as u32 * self.blocks, 1];
        Grid { blocks, threads, shared: self.shared, cluster: self.blocks }
    }
}

/// One cluster of the kernel of this name, where it is one of these.
pub(crate) fn split_cluster(kernel: &str) -> Option<Grid> {
    let kind = kernel.strip_prefix("product_split_")?;
    let rows: usize = kind.rsplit('_').next()?.parse().ok()?;
    let layouts: &[SplitLayout] = match kind.strip_prefix("gated_").unwrap_or(kind) {
        of if of.starts_with("q4") => &OF_Q4,
        of if of.starts_with("e4m3") => &OF_E4M3,
        _ => &OF_HALVES,
    };
    layouts.iter().find(|layout| layout.rows == rows).map(|layout| layout.grid(1))
}

impl Grid {
    /// The same with no more clusters than a card has room for at once: each has what the others leave.
    pub fn at_once(self, clusters: usize) -> Self {
        let [x, y] = self.blocks;
        Self { blocks: [x.min(clusters as u32 * self.cluster), y], ..self }
    }
}

impl Linear {
    /// The kernel of a product by clusters of blocks, where there is one, and a cluster for each tile ([`Grid::at_once`]).
    pub fn split(&self) -> Option<(String, Grid, Vec<u8>)> {
        let Self { rows, outputs, inputs, factors, x, w, bias, y, out, adds, .. } = *self;
        let layouts: &[SplitLayout] = match factors {
            Factors::Of(Element::F32) => return None,
            Factors::Of(_) => &OF_HALVES,
            Factors::E4m3 => &OF_E4M3,
            Factors::Q4(_) => &OF_Q4,
        };
        let layout = layouts.iter().find(|layout| rows <= layout.rows)?;
        // Of what is gated a tile has as many gates as what they gate.
        let (width, tile) = match self.gate {
            Some(_) => (outputs / 2, layout.outputs / 2),
            None => (outputs, layout.outputs),
        };
        let chunks = inputs / layout.chunk;
        let is_whole = inputs.is_multiple_of(layout.chunk) && width.is_multiple_of(EIGHT);
        if rows < FEWEST_ROWS || !is_whole || chunks < layout.blocks as usize {
            return None;
        }
        let of_rows = self.scales.map(|Scales { rows, .. }| rows);
        let of_outputs = self.scales.map(|Scales { outputs, .. }| outputs);
        let product = [Some(x), Some(w), bias, Some(y), of_rows, of_outputs];
        let numbers = [rows, outputs, inputs, usize::from(adds)];
        let (kind, args) = match self.gate {
            None => (format!("{}_{}", factors.name(), out.suffix()), Args::new(product).numbers(&numbers)),
            Some(gate) => {
                let kind = format!("gated_{}", factors.gated_name(out)?);
                let args = Args::new([gate.most].into_iter().chain(product)).numbers(&numbers);
                (kind, args.numbers(&[gate.activation]))
            }
        };
        let name = format!("product_split_{kind}_{}", layout.rows);
        Some((name, layout.grid(width.div_ceil(tile)), args.bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::cuda::{kernel_names, source};

    #[test]
    fn kernels_and_their_launches_agree_on_the_layout() {
        let source = source();
        for (weights, layouts, bytes) in
            [("bf16", &OF_HALVES[..], 2), ("e4m3", &OF_E4M3[..], 1), ("FourBits<T>", &OF_Q4[..], 2)]
        {
            for SplitLayout { rows, outputs, blocks, chunk, warps, shared } in layouts {
                let begins = format!(
                    "SplitOf<{weights}, {rows}> : SplitLayout<{rows}, {}, {blocks}, {}, ",
                    outputs / 16,
                    chunk * bytes,
                );
                let line = source.lines().find(|line| line.contains(&begins)).expect(&begins);
                let (layout, rest) = line.split_once("> {").expect("its last number");
                let numbers: Vec<&str> = layout.split(", ").collect();
                assert_eq!(numbers[numbers.len() - 2], warps.to_string(), "{line}");
                assert!(rest.contains(&format!("SHARED_BYTES = {shared};")), "{line}");
            }
        }
        let names: Vec<&str> =
            kernel_names(&source).filter(|name| name.starts_with("product_split")).collect();
        assert!(names.len() > 30, "{names:?}");
        for name in names {
            let grid = split_cluster(name).expect("it has a layout");
            let line =
                source.lines().find(|line| line.contains(&format!("({name},"))).expect("it is declared");
            assert!(line.contains(&format!(", {}) {{", grid.threads)), "{line}");
        }
        assert_eq!(split_cluster("product_bf16_bf16_16"), None);
    }

    #[test]
    fn a_grid_has_the_clusters_that_fit_or_as_many_as_there_are_tiles() {
        let grid = OF_HALVES[0].grid(112);
        assert_eq!((grid.blocks, grid.cluster, grid.threads), ([448, 1], 4, 256));
        assert_eq!(grid.at_once(30).blocks, [120, 1]);
        assert_eq!(grid.at_once(400).blocks, [448, 1]);
    }
}
