//! The claims of Dynamic Prefix Bucketing at a size that takes seconds: per replica the rows, the prefixes
//! and the buffer are the published benchmark's.

use ir::bucket::BucketSettings;
use sim::fleet::{Bench, FleetOutcome, MethodKind};

/// The benchmark on `replicas` of its 128.
fn bench(replicas: usize) -> Bench {
    let whole = Bench::default();
    let share = |count: usize| count * replicas / 128;
    Bench {
        replicas,
        rows: share(whole.rows),
        prefixes: share(512) as u32,
        rows_per_second: 10_000 * replicas as u64 / 128,
        buffer: BucketSettings { rows_max: share(whole.buffer.rows_max), ..whole.buffer },
        ..whole
    }
}

fn run(bench: &Bench, kind: MethodKind) -> FleetOutcome {
    let outcome = bench.run(kind).expect("it runs to its end");
    assert_eq!(outcome.rows, bench.rows as u64);
    assert_eq!(outcome.usage.prompt, bench.prompt_tokens(), "every prompt was read");
    assert_eq!(outcome.usage.output.0, bench.rows as u64 * bench.tokens.output, "every answer was written");
    outcome
}

#[test]
fn buckets_hit_as_a_global_sort_does_and_answer_before_the_input_is_read() {
    let bench = bench(2);
    let [sorted, buckets] = [MethodKind::Sorted, MethodKind::Buckets].map(|kind| run(&bench, kind));
    let share = buckets.hit_rate() / sorted.hit_rate();
    assert!(share >= 0.99, "{share:.4} of the sort's hits");
    assert!(
        buckets.first < buckets.read,
        "the first answer at {:?}, all read at {:?}",
        buckets.first,
        buckets.read
    );
    assert!(sorted.first > sorted.read, "a sort cannot answer before it has read all");
    assert!(buckets.total < sorted.total, "{:?} after {:?}", buckets.total, sorted.total);
}

#[test]
fn buckets_take_less_time_than_batches_and_hit_more() {
    // More prefixes than the caches of two replicas hold.
    let bench = Bench { prefixes: 32, ..bench(2) };
    let [naive, buckets] = [MethodKind::Naive, MethodKind::Buckets].map(|kind| run(&bench, kind));
    assert!(buckets.total.0 * 100 < naive.total.0 * 88, "{:?} of {:?}", buckets.total, naive.total);
    assert!(buckets.hit_rate() > 1.1 * naive.hit_rate());
}

#[test]
fn twice_the_replicas_take_little_more_than_half_the_time() {
    let small = Bench { replicas: 2, rows: 1_500, prefixes: 8, rows_per_second: 1_000, ..bench(2) };
    let large = Bench { replicas: 4, ..small.clone() };
    let (small, large) = (run(&small, MethodKind::Buckets), run(&large, MethodKind::Buckets));
    let scaling = small.total.as_seconds() / (2.0 * large.total.as_seconds());
    assert!(scaling > 0.85, "{scaling:.3}");
}

#[test]
fn fewer_prefixes_hit_more() {
    let of = |prefixes| {
        let bench = Bench { rows: 1_000, prefixes, rows_per_second: 1_000, ..bench(2) };
        run(&bench, MethodKind::Buckets).hit_rate()
    };
    let rates = [4, 32, 256, 1_000].map(of);
    assert!(rates.is_sorted_by(|more, less| more > less), "{rates:?}");
    assert!(rates[3] < 0.001, "rows without a twin hit nothing: {rates:?}");
}

#[test]
fn a_replica_in_counts_does_what_the_real_one_does() {
    let bench = Bench { rows: 1_200, prefixes: 16, rows_per_second: 1_000, batch_rows: 300, ..bench(2) };
    for kind in MethodKind::ALL {
        let counted = run(&bench, kind);
        let real = run(&Bench { exact: true, ..bench.clone() }, kind);
        let (time, hits) =
            (counted.total.as_seconds() / real.total.as_seconds(), counted.hit_rate() - real.hit_rate());
        assert!((time - 1.0).abs() < 0.02, "{}: {time:.4} of the time", kind.name());
        assert!(hits.abs() < 0.01, "{}: {hits:.4} more hits", kind.name());
    }
}
