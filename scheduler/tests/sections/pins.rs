//! Pins hold sections that rows have computed, within a bound, as long as their memory is there.

use base::{PinId, RelQueryId, Section, Sees, Time, TokenCount, WorkItem};
use scheduler::{CostModel, Policy, Scheduler, SchedulerConfig};

use crate::common::{item, submission};
use crate::{SectionMemory, Stretch, config, row};

/// Runs what was submitted to its end; prompt tokens computed.
fn finish(scheduler: &mut Scheduler, memory: &mut SectionMemory) -> u64 {
    let (before, mut steps) = (memory.computed, 0);
    while let Some(plan) = scheduler.plan(Time(1_000 + steps)) {
        steps += 1;
        assert!(steps < 4_000, "no end in sight");
        scheduler.apply(&memory.step(&plan), Time(1_000 + steps));
        scheduler.check_invariants().expect("the books balance");
    }
    assert!(scheduler.is_idle(), "rows wait and nothing is planned");
    memory.computed - before
}

/// Submits a row as a relQuery, with a pin or without, and runs it.
fn ask(
    (scheduler, memory): (&mut Scheduler, &mut SectionMemory),
    id: u64,
    item: WorkItem,
    pin: Option<u64>,
) -> u64 {
    memory.items.insert(item.seed, item.clone());
    scheduler.submit(submission(id, 0, vec![item])).expect("it fits");
    if let Some(pin) = pin {
        assert!(scheduler.pin(RelQueryId(id), PinId(pin)));
    }
    finish(scheduler, memory)
}

/// A row of one section, unlike those of other numbers.
fn plain(number: u64, tokens: u32, output_max: u64) -> WorkItem {
    let prompt = (0..tokens).map(|at| 500_000 + 1_000 * number as u32 + at).collect();
    let whole = Section { tokens: TokenCount(tokens.into()), position: 0, sees: Sees::Before };
    WorkItem { sections: [whole].into(), ..item(0, prompt, output_max, number) }
}

fn pinning(policy: Policy, kv_blocks: u32, pinned_permille: u32) -> (Scheduler, SectionMemory) {
    let config = SchedulerConfig { pinned_permille, ..config(policy, kv_blocks) };
    (Scheduler::new(config, CostModel::default()).expect("a valid configuration"), SectionMemory::default())
}

#[test]
fn a_pinned_module_stays_where_others_are_evicted() {
    use Stretch::Module;
    for policy in Policy::ALL {
        let (mut scheduler, mut memory) = pinning(policy, 24, 500);
        let lab = (&mut scheduler, &mut memory);
        assert_eq!(ask(lab, 1, row(0, &[Module(0)], 0, 1, 1, 1), Some(7)), 8 + 1);
        assert_eq!(ask((&mut scheduler, &mut memory), 2, row(0, &[Module(1)], 0, 1, 1, 2), None), 8 + 1);
        assert_eq!((scheduler.pinned(PinId(7)), scheduler.stats().kv_used_blocks), (Some(2), 2));
        for number in 10..16 {
            ask((&mut scheduler, &mut memory), number, plain(number, 60, 8), None);
        }
        let lab = (&mut scheduler, &mut memory);
        assert_eq!(ask(lab, 3, row(1, &[Module(0)], 1, 2, 1, 3), None), 2, "{policy}: it is there");
        let lab = (&mut scheduler, &mut memory);
        assert_eq!(ask(lab, 4, row(1, &[Module(1)], 1, 2, 1, 4), None), 8 + 2, "{policy}: it is gone");
        assert!(scheduler.unpin(PinId(7)) && !scheduler.unpin(PinId(7)));
        assert_eq!((scheduler.pinned(PinId(7)), scheduler.stats().kv_used_blocks), (None, 0));
        assert_eq!(scheduler.drain_lost_pins(), [], "it did not give way");
    }
}

#[test]
fn pins_hold_a_bounded_share_and_the_oldest_gives_way() {
    use Stretch::Module;
    let (mut scheduler, mut memory) = pinning(Policy::MarginalWork, 24, 209); // Five blocks.
    for pin in [1, 2, 3] {
        let module = row(0, &[Module(pin as usize - 1)], 0, 1, 1, pin);
        ask((&mut scheduler, &mut memory), pin, module, Some(pin));
    }
    // Two blocks, two, and two for each of the third's two pieces.
    assert_eq!([1, 2, 3].map(|pin| scheduler.pinned(PinId(pin))), [None, None, Some(4)]);
    assert_eq!(scheduler.drain_lost_pins(), [PinId(1), PinId(2)]);
    assert_eq!(scheduler.stats().kv_pinned_blocks, 4);
    let again = row(0, &[Module(0)], 0, 1, 1, 9);
    assert_eq!(ask((&mut scheduler, &mut memory), 9, again, Some(1)), 1, "it was not evicted yet");
    assert_eq!(
        (scheduler.pinned(PinId(1)), scheduler.pinned(PinId(3))),
        (None, Some(4)),
        "the oldest is the newcomer"
    );
    assert!(!scheduler.pin(RelQueryId(99), PinId(4)));
}

#[test]
fn a_row_that_could_not_run_otherwise_takes_a_pins_memory() {
    use Stretch::Module;
    for policy in Policy::ALL {
        let (mut scheduler, mut memory) = pinning(policy, 10, 500);
        ask((&mut scheduler, &mut memory), 1, row(0, &[Module(2)], 0, 1, 1, 1), Some(1));
        assert_eq!(scheduler.pinned(PinId(1)), Some(4));
        // Six blocks are free: the prompt has room, its output does not.
        ask((&mut scheduler, &mut memory), 2, plain(2, 20, 18), None);
        assert_eq!(
            (scheduler.pinned(PinId(1)), scheduler.drain_lost_pins()),
            (None, vec![PinId(1)]),
            "{policy}"
        );
    }
}

#[test]
fn a_lost_memory_takes_its_pins_along() {
    let (mut scheduler, mut memory) = pinning(Policy::MarginalWork, 24, 500);
    let module = || row(0, &[Stretch::Module(0)], 0, 1, 1, 1);
    ask((&mut scheduler, &mut memory), 1, module(), Some(1));
    assert!(scheduler.forget_memory());
    memory.cells.clear();
    scheduler.check_invariants().expect("the books balance");
    assert_eq!((scheduler.drain_lost_pins(), scheduler.stats().kv_used_blocks), (vec![PinId(1)], 0));
    assert_eq!(ask((&mut scheduler, &mut memory), 2, module(), Some(1)), 8 + 1, "computed again");
    assert_eq!(scheduler.pinned(PinId(1)), Some(2));
}
