//! Bulk load beside interactive relQueries: who is held back, by how much, and that nobody is for ever.

use sim::isolation::measure;

#[test]
fn interactive_latency_beside_bulk_load_stays_within_a_tenth_of_what_it_is_alone() {
    for hide_permille in [0, 1_000] {
        let got = measure(Some(50), hide_permille, 0.2, 2).expect("a replay");
        let ratio = got.beside / got.alone;
        eprintln!("hide {hide_permille}: {ratio:.3}, {:.2} of the bulk relQueries done", got.bulk);
        assert!(ratio <= 1.10, "hide {hide_permille}: {ratio:.3} times the latency");
        assert!(got.bulk > 0.25, "bulk work goes on: {:.2} done", got.bulk);
    }
}

#[test]
fn without_a_share_of_its_own_bulk_load_delays_interactive_relqueries_more() {
    let [shared, kept] = [None, Some(50)].map(|share| measure(share, 1_000, 0.2, 2).expect("a replay"));
    assert_eq!(shared.alone, kept.alone, "alone nothing changes");
    assert!(shared.beside / shared.alone > 1.15, "{:?}", shared);
    assert!(kept.beside < shared.beside);
}
