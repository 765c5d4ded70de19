//! How products are cut into tasks and pieces, with a kernel that only counts.

use super::super::layout::blocks::row_blocks;
use super::*;

/// Adds the number of a panel for each step, to three times what is there: a piece that is left out, taken twice, in
/// another order or elsewhere shows.
struct CountingKernel {
    depth: usize,
    order: Order,
}

impl Kernel for CountingKernel {
    fn depth(&self) -> usize {
        self.depth
    }

    fn depth_step(&self, _blocks: usize) -> usize {
        2
    }

    fn order(&self, _blocks: usize) -> Order {
        self.order
    }

    unsafe fn unpack<'a>(
        &'a self,
        panel: usize,
        steps: Steps,
        memory: &'a mut Aligned<f32>,
    ) -> Option<&'a [f32]> {
        memory.resize(2);
        memory.copy_from_slice(&[panel as f32, steps.first as f32]);
        Some(memory)
    }

    unsafe fn add(&self, _: RowBlock, piece: PanelPiece<'_>, sums: &mut [f32], _: Option<Next>) {
        let PanelPiece { panel, steps, unpacked } = piece;
        assert!(unpacked.is_some_and(|unpacked| unpacked == [panel as f32, steps.first as f32]));
        for sum in sums {
            let before = if steps.first > 0 { *sum } else { 0.0 };
            *sum = 3.0 * before + (panel * steps.count) as f32;
        }
    }
}

/// Every panel's and block's sums of a task, in the order in which they are whole.
fn summed(order: Order, blocks: &[RowBlock], panels: Range<usize>) -> Vec<(usize, usize, Vec<f32>)> {
    let mut all = Vec::new();
    let kernel = CountingKernel { depth: 5, order };
    sum_panels(&kernel, blocks, (panels, 16), |panel, block, sums| {
        all.push((panel, block.first, sums.to_vec()));
    });
    all
}

#[test]
fn sums_are_the_same_in_either_order_of_pieces() {
    // Of so many rows, six panels are under way at once, and one is left of nineteen.
    let blocks: Vec<RowBlock> = row_blocks(SUMS_MAX / 16 / 6, 40).collect();
    let mut deep = summed(Order::DepthOutermost, &blocks, 3..22);
    let by_panels = summed(Order::PanelsOutermost, &blocks, 3..22);
    assert_eq!(deep.len(), 19 * blocks.len());
    // Steps of 2, 2 and 1.
    let expected = |panel: usize| (9.0 * 2.0 + 3.0 * 2.0 + 1.0) * panel as f32;
    for (panel, _, sums) in &by_panels {
        assert!(sums.iter().all(|sum| *sum == expected(*panel)), "panel {panel}");
    }
    deep.sort_by_key(|(panel, first, _)| (*panel, *first));
    assert!(deep == by_panels);
}

#[test]
fn only_so_many_sums_are_under_way_as_a_cache_holds() {
    let of_panel = 512 * 64;
    let order = PieceOrder::new(Order::DepthOutermost, (593, 10), of_panel);
    assert_eq!(order.under_way, 8);
    assert_eq!(order.count(), 5930);
    assert_eq!(PieceOrder::new(Order::DepthOutermost, (3, 10), of_panel).under_way, 3);
    assert_eq!(PieceOrder::new(Order::DepthOutermost, (9, 10), 2 * SUMS_MAX).under_way, 1);
    assert_eq!(PieceOrder::new(Order::PanelsOutermost, (593, 10), of_panel).under_way, 1);
    // Every piece of a panel comes once, in order, and no panel begins where another's sums are not whole yet.
    let mut seen = vec![0; 593];
    let mut places = [None; 8];
    for number in 0..order.count() {
        let (panel, piece) = order.get(number);
        assert_eq!(piece, seen[panel], "piece {number}");
        seen[panel] += 1;
        let place = &mut places[panel % order.under_way];
        assert!(place.is_none_or(|other| other == panel || seen[other] == 10), "piece {number}");
        *place = Some(panel);
    }
    assert!(seen.iter().all(|pieces| *pieces == 10));
    // The first pieces of eight panels, then their second ones.
    assert_eq!([0, 7, 8, 79, 80].map(|number| order.get(number)), [(0, 0), (7, 0), (0, 1), (7, 9), (8, 0)]);
}

/// Row blocks and panels of all tasks, each with how often it comes.
fn shares(tasks: &Tasks<'_>, blocks: &[RowBlock], panels: usize) -> Vec<usize> {
    let mut counts = vec![0; blocks.len() * panels];
    for (group, of_task) in (0..tasks.count()).map(|task| tasks.get(task)) {
        assert!(!group.is_empty() && !of_task.is_empty());
        for block in group {
            let number = blocks.iter().position(|other| other == block).expect("it is one of them");
            of_task.clone().for_each(|panel| counts[number * panels + panel] += 1);
        }
    }
    counts
}

#[test]
fn few_panels_and_many_rows_are_tasks_for_all_threads() {
    let blocks: Vec<RowBlock> = full_blocks(512).collect();
    // All rows each where panels are enough, else a third, a fourth, or as few as are worth the reading of a panel.
    for (panels, wanted, count) in [(14, 8, 8), (14, 32, 42), (14, 64, 56), (1, 64, 8), (2374, 64, 64)] {
        let tasks = Tasks::cut(&blocks, panels, wanted);
        assert_eq!(tasks.count(), count, "{panels} panels, {wanted} tasks");
        assert!(shares(&tasks, &blocks, panels).iter().all(|count| *count == 1), "{panels} panels");
    }
}

#[test]
fn few_rows_are_not_cut() {
    for (rows, panels) in [(1, 14), (6, 14), (33, 14), (64, 1)] {
        for blocks in [row_blocks(rows, 6).collect::<Vec<_>>(), full_blocks(rows).collect()] {
            let tasks = Tasks::cut(&blocks, panels, 64);
            assert_eq!(tasks.count(), panels, "{rows} rows");
            assert!(shares(&tasks, &blocks, panels).iter().all(|count| *count == 1), "{rows} rows");
        }
    }
    assert_eq!(Tasks::cut(&[], 14, 64).count(), 0);
    assert_eq!(Tasks::cut(&[RowBlock { first: 0, rows: 1 }], 0, 64).count(), 0);
}

#[test]
fn the_parts_of_the_next_piece_are_all_of_it_in_order() {
    for (len, parts) in [0, 1, 5, 64, 1000].into_iter().flat_map(|len| [1, 2, 3, 7].map(|parts| (len, parts)))
    {
        let piece: Vec<usize> = (0..len).collect();
        let part_of =
            |part| Next { panel: 0, steps: Steps { first: 0, count: 1 }, part, parts }.part_of(&piece);
        assert_eq!((0..parts).map(part_of).collect::<Vec<_>>().concat(), piece, "{parts} parts");
    }
}
