//! Tenants, keys, usage, results, calibration, migrations.

use base::{Bytes, Millis, Money, TenantId, TokenCount};
use store::{
    DEFAULT_TENANT, Error, KeyLookup, KeyScope, NewKey, NewResult, ResultKey, ResultLimits, SCHEMA_VERSION,
    Store, UnixMillis, UsageKey, UsageReplay, UsageRow, UsageWrite, Used,
};

use super::{at, first_write, open, second_tenant};

const NEW_KEY: NewKey<'static> = NewKey {
    tenant: DEFAULT_TENANT,
    name: "laptop",
    expires: None,
    is_operator: false,
    scope: KeyScope::ALL,
};

pub(crate) async fn a_key_is_shown_once_and_found_by_its_hash(url: String) {
    let store = open(&url).await;
    let created = store.create_key(NEW_KEY, at(1)).await.expect("created");
    assert!(
        created.plaintext.starts_with("rs-") && created.plaintext.len() == 3 + 64,
        "{}",
        created.plaintext
    );
    assert!(created.plaintext.starts_with(&created.info.shown));
    assert!(!format!("{created:?}").contains(&created.plaintext), "a debug print does not leak it");

    let KeyLookup::Valid { key, tenant_name, weight } =
        store.find_key(&created.plaintext, at(2)).await.expect("asked")
    else {
        panic!("the key works")
    };
    assert_eq!(
        (key.id, key.tenant, tenant_name.as_str(), weight),
        (created.info.id, DEFAULT_TENANT, "default", 1.0)
    );

    let listed = store.keys(None, 9).await.expect("listed");
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].key.last_used, Some(at(2)), "the lookup was noted");
    store.find_key(&created.plaintext, at(30)).await.expect("asked");
    assert_eq!(store.keys(None, 9).await.expect("listed")[0].key.last_used, Some(at(2)), "to the minute");
    store.find_key(&created.plaintext, at(90)).await.expect("asked");
    assert_eq!(store.keys(None, 9).await.expect("listed")[0].key.last_used, Some(at(90)));

    let other = store.create_key(NEW_KEY, at(3)).await.expect("created");
    assert_ne!(other.plaintext, created.plaintext);
    let orphan = store.create_key(NewKey { tenant: TenantId(77), ..NEW_KEY }, at(3)).await;
    assert!(matches!(orphan, Err(Error::Missing("tenant"))), "{orphan:?}");
}

pub(crate) async fn revoked_expired_and_unknown_keys_are_told_apart(url: String) {
    let store = open(&url).await;
    let short = store.create_key(NewKey { expires: Some(at(10)), ..NEW_KEY }, at(0)).await.expect("created");
    let revoked = store.create_key(NEW_KEY, at(0)).await.expect("created");
    assert!(store.revoke_key(revoked.info.id, at(5)).await.expect("revoked"));

    assert!(matches!(store.find_key(&short.plaintext, at(9)).await, Ok(KeyLookup::Valid { .. })));
    assert!(matches!(store.find_key(&short.plaintext, at(10)).await, Ok(KeyLookup::Expired)));
    assert!(matches!(store.find_key(&revoked.plaintext, at(9)).await, Ok(KeyLookup::Revoked)));
    for unknown in ["", "rs-", "rs-0123", "' OR 1=1 --", "\0"] {
        assert!(matches!(store.find_key(unknown, at(9)).await, Ok(KeyLookup::Unknown)), "{unknown:?}");
    }
}

pub(crate) async fn revoking_twice_keeps_the_first_date(url: String) {
    let store = open(&url).await;
    let key = store.create_key(NEW_KEY, at(0)).await.expect("created").info;
    assert!(store.revoke_key(key.id, at(5)).await.expect("revoked"));
    assert!(store.revoke_key(key.id, at(9)).await.expect("revoked again"));
    assert_eq!(store.keys(None, 9).await.expect("listed")[0].key.revoked, Some(at(5)));
    assert!(!store.revoke_key(key.id + 1, at(9)).await.expect("asked"));
}

pub(crate) fn used(day: u64, tenant: TenantId, prompt: u64) -> UsageRow {
    UsageRow {
        key: UsageKey { tenant, day, model: "demo".into(), route: "cells".into() },
        used: Used {
            requests: 1,
            rows: 10,
            prompt: TokenCount(prompt),
            cached: TokenCount(3),
            computed: TokenCount(4),
            output: TokenCount(5),
            cost: Money(6),
        },
    }
}

pub(crate) async fn usage_adds_up_and_is_read_by_range(url: String) {
    let store = open(&url).await;
    let zeta = second_tenant(&store).await;
    let rows = [used(7, DEFAULT_TENANT, 100), used(8, DEFAULT_TENANT, 1), used(7, zeta, 9)];
    store.add_usage(first_write("a", &rows)).await.expect("added");
    let rows = [used(7, DEFAULT_TENANT, 20), used(7, DEFAULT_TENANT, 3)];
    store.add_usage(first_write("b", &rows)).await.expect("added");

    let mine = store.usage(Some(DEFAULT_TENANT), 7..=7).await.expect("read");
    assert_eq!(mine.len(), 1);
    let sum = mine[0].used;
    assert_eq!((sum.requests, sum.rows, sum.prompt), (3, 30, TokenCount(123)));
    assert_eq!((sum.cached, sum.computed, sum.output), (TokenCount(9), TokenCount(12), TokenCount(15)));
    assert_eq!(sum.cost, Money(18));
    let days: Vec<_> = store.usage(None, 0..=u64::MAX).await.expect("read");
    assert_eq!(
        days.iter().map(|row| (row.key.day, row.key.tenant)).collect::<Vec<_>>(),
        [(7, DEFAULT_TENANT), (7, zeta), (8, DEFAULT_TENANT)]
    );
    let rows = [used(9, DEFAULT_TENANT, 1), used(9, TenantId(77), 1)];
    let orphan = store.add_usage(first_write("c", &rows)).await;
    assert!(matches!(orphan, Err(Error::Missing("tenant"))), "{orphan:?}");
    assert!(store.usage(None, 9..=9).await.expect("read").is_empty(), "all or none");
    store.add_usage(first_write("c", &rows[..1])).await.expect("added");
    assert_eq!(store.usage(None, 9..=9).await.expect("read").len(), 1, "what was refused is no write");
}

pub(crate) async fn days_of_a_month_are_merged_into_its_first_once(url: String) {
    let store = open(&url).await;
    assert_eq!(store.first_usage_day().await.expect("read"), None);
    let zeta = second_tenant(&store).await;
    let other =
        UsageRow { key: UsageKey { route: "sql".into(), ..used(7, zeta, 9).key }, ..used(7, zeta, 9) };
    let days = [(5, 100), (6, 20), (8, 3), (9, 1)];
    let mut rows = days.map(|(day, prompt)| used(day, DEFAULT_TENANT, prompt)).to_vec();
    rows.extend([used(6, zeta, 4), other]);
    store.add_usage(first_write("a", &rows)).await.expect("added");
    assert_eq!(store.first_usage_day().await.expect("read"), Some(5));
    assert_eq!(store.tenants_with_usage((5, 9)).await.expect("read"), [DEFAULT_TENANT, zeta]);
    assert!(store.tenants_with_usage((8, 9)).await.expect("read").is_empty(), "nothing to merge");
    for _ in 0..2 {
        for tenant in [DEFAULT_TENANT, zeta] {
            store.merge_usage(tenant, (5, 9)).await.expect("merged");
        }
        let all = store.usage(None, 0..=u64::MAX).await.expect("read");
        let sums: Vec<_> = all
            .iter()
            .map(|row| {
                (row.key.day, row.key.tenant, row.key.route.as_str(), row.used.prompt.0, row.used.rows)
            })
            .collect();
        assert_eq!(
            sums,
            [
                (5, DEFAULT_TENANT, "cells", 123, 30),
                (5, zeta, "cells", 4, 10),
                (5, zeta, "sql", 9, 10),
                (9, DEFAULT_TENANT, "cells", 1, 10)
            ]
        );
        assert_eq!(all[0].used.cost, Money(18));
        assert!(store.tenants_with_usage((5, 9)).await.expect("read").is_empty());
    }
}

pub(crate) async fn a_day_of_usage_is_read_in_parts_from_its_end(url: String) {
    let store = open(&url).await;
    let zeta = second_tenant(&store).await;
    let of = |day, tenant, model: &str, route: &str| {
        let row = used(day, tenant, 1);
        UsageRow { key: UsageKey { model: model.into(), route: route.into(), ..row.key }, ..row }
    };
    let mut rows = Vec::new();
    for tenant in [DEFAULT_TENANT, zeta] {
        for (model, route) in [("a", "cells"), ("a", "sql"), ("b", "cells")] {
            rows.push(of(7, tenant, model, route));
        }
    }
    store.add_usage(first_write("a", &rows)).await.expect("added");
    let others = [of(6, zeta, "a", "cells"), of(8, DEFAULT_TENANT, "a", "cells")];
    store.add_usage(first_write("b", &others)).await.expect("added");
    rows.reverse();
    for limit in [1, 2, 4, 6, 7] {
        let mut read: Vec<UsageRow> = Vec::new();
        loop {
            let before = read.last().map(|row| row.key.clone());
            let part = store.usage_of_day(7, before.as_ref(), limit).await.expect("read");
            assert!(part.len() <= limit as usize, "{limit}");
            if part.is_empty() {
                break;
            }
            read.extend(part);
        }
        assert_eq!(read, rows, "{limit} at a time");
    }
    let gone = of(7, zeta, "aa", "gone").key;
    let read = store.usage_of_day(7, Some(&gone), 1).await.expect("read");
    assert_eq!(read, [of(7, zeta, "a", "sql")], "what it is before need not be there");
}

pub(crate) async fn a_write_of_usage_that_is_sent_again_counts_once(url: String) {
    let (store, again) = (open(&url).await, open(&url).await);
    let rows = [used(7, DEFAULT_TENANT, 100), used(8, DEFAULT_TENANT, 1)];
    let first = first_write("a", &rows);
    for store in [&store, &again, &store] {
        store.add_usage(first).await.expect("taken");
    }
    let sums = || async {
        let sums = store.usage(None, 7..=8).await.expect("read");
        sums.iter().map(|row| (row.used.requests, row.used.prompt.0)).collect::<Vec<_>>()
    };
    assert_eq!(sums().await, [(1, 100), (1, 1)]);
    store.add_usage(UsageWrite { number: 2, ..first }).await.expect("taken");
    again.add_usage(first).await.expect("one before the last, late");
    assert_eq!(sums().await, [(2, 200), (2, 2)], "equal amounts of another write");
    store.add_usage(UsageWrite { writer: "b", ..first }).await.expect("taken");
    assert_eq!(sums().await, [(3, 300), (3, 3)], "another's first");

    let late = UsageWrite { writer: "b", number: 2, at: at(50), ..first };
    store.add_usage(late).await.expect("taken");
    assert_eq!(store.forget_usage_writers(at(50)).await.expect("forgotten"), 1, "the one that is silent");
    store.add_usage(late).await.expect("taken");
    assert_eq!(sums().await, [(4, 400), (4, 4)], "the other is known");
}

pub(crate) async fn a_write_that_a_process_left_counts_where_its_writer_is_known_and_it_is_not_there(
    url: String,
) {
    let store = open(&url).await;
    let rows = [used(7, DEFAULT_TENANT, 100)];
    let write = |number| UsageWrite { number, ..first_write("a", &rows) };
    let sum = || async { store.usage(None, 7..=7).await.expect("read").first().map(|row| row.used.prompt.0) };
    let replay = async |number| store.replay_usage(write(number)).await.expect("taken");
    assert_eq!(replay(1).await, UsageReplay::Foreign);
    store.know_usage_writer("a", at(1), at(0)).await.expect("known from now on");
    assert_eq!((replay(0).await, sum().await), (UsageReplay::Known, None));
    store.add_usage(write(1)).await.expect("added");
    assert_eq!((replay(1).await, sum().await), (UsageReplay::Known, Some(100)));
    assert_eq!((replay(2).await, sum().await), (UsageReplay::Added, Some(200)));
    assert_eq!((replay(2).await, sum().await), (UsageReplay::Known, Some(200)));
    store.add_usage(write(2)).await.expect("its process was slower to say it");
    assert_eq!(sum().await, Some(200));
    store.know_usage_writer("a", at(50), at(0)).await.expect("it was heard of lately");
    store.know_usage_writer("a", at(60), at(1)).await.expect("it lives, and has nothing to write");
    assert_eq!(store.forget_usage_writers(at(60)).await.expect("none"), 0);
    assert_eq!(replay(2).await, UsageReplay::Known, "what it wrote is known as before");
    assert_eq!(store.forget_usage_writers(UnixMillis(u64::MAX)).await.expect("forgotten"), 1);
    assert_eq!((replay(3).await, sum().await), (UsageReplay::Foreign, Some(200)));
}

pub(crate) async fn usage_from_many_tasks_loses_nothing(url: String) {
    let store = open(&url).await;
    let zeta = second_tenant(&store).await;
    let tasks: Vec<_> = (0..16u64)
        .map(|task| {
            let store = store.clone();
            // Opposite orders: the upserts would deadlock on Postgres if they did not queue.
            let mut rows = vec![used(7, DEFAULT_TENANT, task), used(7, zeta, task)];
            if task % 2 == 0 {
                rows.reverse();
            }
            tokio::spawn(async move {
                let writer = format!("writer {task}");
                store.add_usage(first_write(&writer, &rows)).await
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic").expect("added");
    }
    let sums = store.usage(None, 7..=7).await.expect("read");
    assert_eq!(
        sums.iter().map(|row| (row.used.requests, row.used.prompt.0)).collect::<Vec<_>>(),
        [(16, 120); 2]
    );
}

fn key(number: u32) -> ResultKey {
    ResultKey::of(&[&number.to_le_bytes()])
}

fn results(numbers: std::ops::Range<u32>) -> Vec<NewResult> {
    numbers.map(|number| NewResult { key: key(number), value: format!("\"v{number}\"") }).collect()
}

async fn known(store: &Store, tenant: TenantId, numbers: std::ops::Range<u32>, now: u64) -> Vec<u32> {
    let keys: Vec<_> = numbers.clone().map(key).collect();
    let found = store.results(tenant, &keys, at(now)).await.expect("read");
    numbers.zip(found).filter_map(|(number, value)| value.map(|_| number)).collect()
}

pub(crate) async fn results_come_back_in_the_order_asked(url: String) {
    let store = open(&url).await;
    store.put_results(DEFAULT_TENANT, &results(0..3), ResultLimits::default(), at(0)).await.expect("kept");
    let changed = NewResult { key: key(1), value: "\"new\"".into() };
    store.put_results(DEFAULT_TENANT, &[changed], ResultLimits::default(), at(1)).await.expect("kept");
    let found = store.results(DEFAULT_TENANT, &[key(2), key(9), key(1), key(2)], at(2)).await.expect("read");
    let text = |value: &str| Some(value.to_owned());
    assert_eq!(found, [text("\"v2\""), None, text("\"new\""), text("\"v2\"")]);
    assert!(store.results(DEFAULT_TENANT, &[], at(2)).await.expect("read").is_empty());

    let long = NewResult { key: key(5), value: "x".repeat(11) };
    let limits = ResultLimits { value_bytes_max: 10, ..Default::default() };
    store.put_results(DEFAULT_TENANT, &[long], limits, at(2)).await.expect("no error");
    assert!(known(&store, DEFAULT_TENANT, 5..6, 3).await.is_empty(), "too long to keep");
}

pub(crate) async fn a_tenant_never_sees_anothers_results(url: String) {
    let store = open(&url).await;
    let zeta = second_tenant(&store).await;
    store.put_results(DEFAULT_TENANT, &results(0..2), ResultLimits::default(), at(0)).await.expect("kept");
    let own = NewResult { key: key(1), value: "\"zeta's\"".into() };
    store.put_results(zeta, &[own], ResultLimits::default(), at(0)).await.expect("kept");
    assert_eq!(
        store.results(zeta, &[key(0), key(1)], at(1)).await.expect("read"),
        [None, Some("\"zeta's\"".into())]
    );
    assert_eq!(store.results(DEFAULT_TENANT, &[key(1)], at(1)).await.expect("read"), [Some("\"v1\"".into())]);
    let mut counts = store.result_counts(DEFAULT_TENANT..=zeta).await.expect("counted");
    counts.sort_by_key(|(tenant, _)| tenant.0);
    assert_eq!(counts, [(DEFAULT_TENANT, 2), (zeta, 1)]);
    assert_eq!(store.result_counts(zeta..=zeta).await.expect("counted"), [(zeta, 1)]);
    assert_eq!(store.clear_results(zeta).await.expect("cleared"), 1);
    assert_eq!(known(&store, DEFAULT_TENANT, 0..2, 1).await, [0, 1]);
}

pub(crate) async fn results_expire(url: String) {
    let store = open(&url).await;
    let limits = ResultLimits { lifetime: Millis(10_000), ..Default::default() };
    store.put_results(DEFAULT_TENANT, &results(0..1), limits, at(0)).await.expect("kept");
    assert_eq!(known(&store, DEFAULT_TENANT, 0..1, 9).await, [0]);
    assert!(known(&store, DEFAULT_TENANT, 0..1, 10).await.is_empty());
    store.put_results(DEFAULT_TENANT, &results(1..2), limits, at(11)).await.expect("kept");
    assert!(known(&store, DEFAULT_TENANT, 0..1, 5).await.is_empty(), "the next put swept it out");
}

pub(crate) async fn a_tenants_least_recently_used_results_go_first(url: String) {
    let store = open(&url).await;
    let zeta = second_tenant(&store).await;
    let limits = ResultLimits { tenant_rows_max: 3, ..Default::default() };
    store.put_results(zeta, &results(0..3), limits, at(0)).await.expect("kept");
    for number in 0..3 {
        let second = u64::from(number);
        store
            .put_results(DEFAULT_TENANT, &results(number..number + 1), limits, at(second))
            .await
            .expect("kept");
    }
    assert_eq!(known(&store, DEFAULT_TENANT, 0..1, 100).await, [0], "a read makes it recent");
    store.put_results(DEFAULT_TENANT, &results(3..4), limits, at(101)).await.expect("kept");
    assert_eq!(known(&store, DEFAULT_TENANT, 0..4, 102).await, [0, 2, 3]);
    assert_eq!(known(&store, zeta, 0..3, 102).await, [0, 1, 2], "another tenant's bound is its own");
}

pub(crate) async fn what_a_tenants_results_take_is_bounded_in_bytes(url: String) {
    let store = open(&url).await;
    let zeta = second_tenant(&store).await;
    let limits = ResultLimits { tenant_bytes_max: Bytes(20), ..Default::default() };
    store.put_results(zeta, &results(0..4), limits, at(0)).await.expect("kept");
    for number in 0..5 {
        let second = u64::from(number);
        let new = results(number..number + 1);
        store.put_results(DEFAULT_TENANT, &new, limits, at(second)).await.expect("kept");
    }
    assert_eq!(known(&store, DEFAULT_TENANT, 0..1, 100).await, [0], "a read makes it recent");
    let of_bytes = |bytes: usize, number: u32| NewResult { key: key(number), value: "x".repeat(bytes) };
    store.put_results(DEFAULT_TENANT, &[of_bytes(9, 5)], limits, at(101)).await.expect("kept");
    assert_eq!(known(&store, DEFAULT_TENANT, 0..6, 102).await, [0, 4, 5], "so many of 4 bytes had to go");
    store.put_results(DEFAULT_TENANT, &[of_bytes(2, 5)], limits, at(103)).await.expect("kept");
    store.put_results(DEFAULT_TENANT, &results(6..8), limits, at(104)).await.expect("kept");
    assert_eq!(known(&store, DEFAULT_TENANT, 0..8, 105).await, [0, 4, 5, 6, 7], "one counts as it is now");
    store.put_results(DEFAULT_TENANT, &[of_bytes(21, 8)], limits, at(106)).await.expect("no error");
    assert_eq!(known(&store, DEFAULT_TENANT, 0..9, 107).await, [0, 4, 5, 6, 7], "what never fits costs none");
    assert_eq!(known(&store, zeta, 0..4, 107).await, [0, 1, 2, 3], "another tenant's bound is its own");
}

pub(crate) async fn the_total_bound_holds_over_all_tenants(url: String) {
    let store = open(&url).await;
    let zeta = second_tenant(&store).await;
    let limits = ResultLimits { rows_max: 4, ..Default::default() };
    store.put_results(zeta, &results(0..3), limits, at(0)).await.expect("kept");
    store.put_results(DEFAULT_TENANT, &results(0..3), limits, at(1)).await.expect("kept");
    assert_eq!(known(&store, DEFAULT_TENANT, 0..3, 2).await, [0, 1, 2]);
    assert_eq!(known(&store, zeta, 0..3, 2).await.len(), 1);
}

pub(crate) async fn a_batch_longer_than_a_statement_takes_is_kept_whole(url: String) {
    let store = open(&url).await;
    store.put_results(DEFAULT_TENANT, &results(0..600), ResultLimits::default(), at(0)).await.expect("kept");
    assert_eq!(known(&store, DEFAULT_TENANT, 0..600, 100).await.len(), 600);
}

pub(crate) async fn two_stores_on_one_database_see_each_others_writes(url: String) {
    let (one, two) = (open(&url).await, open(&url).await);
    let key = one.create_key(NEW_KEY, at(0)).await.expect("created");
    assert!(matches!(two.find_key(&key.plaintext, at(1)).await, Ok(KeyLookup::Valid { .. })));
    let mut writes = Vec::new();
    for (offset, store) in [(0u32, one.clone()), (1_000, two.clone())] {
        writes.push(tokio::spawn(async move {
            for number in offset..offset + 20 {
                let new = results(number..number + 1);
                store.put_results(DEFAULT_TENANT, &new, ResultLimits::default(), at(2)).await.expect("kept");
            }
        }));
    }
    for write in writes {
        write.await.expect("no panic");
    }
    assert_eq!(
        known(&one, DEFAULT_TENANT, 0..2_000, 3).await,
        known(&two, DEFAULT_TENANT, 0..2_000, 3).await
    );
    assert_eq!(known(&one, DEFAULT_TENANT, 0..2_000, 3).await.len(), 40);
}

pub(crate) async fn opening_again_migrates_nothing_and_loses_nothing(url: String) {
    let store = open(&url).await;
    let zeta = second_tenant(&store).await;
    store.close().await;
    assert!(store.ping().await.is_err(), "closed is closed");
    let again = open(&url).await;
    let names: Vec<_> =
        again.tenants().await.expect("listed").into_iter().map(|tenant| tenant.name).collect();
    assert_eq!(names, ["default", "zeta"]);
    assert_eq!(again.tenant_named("zeta").await.expect("asked").map(|tenant| tenant.id), Some(zeta));
}

pub(crate) async fn many_stores_open_a_fresh_database_at_once(url: String) {
    let opening: Vec<_> = (0..6)
        .map(|_| {
            let url = url.clone();
            tokio::spawn(async move { open(&url).await.tenants().await.expect("listed").len() })
        })
        .collect();
    for store in opening {
        assert_eq!(store.await.expect("no panic"), 1, "exactly the default tenant");
    }
}

pub(crate) async fn tenants_have_unique_names_and_ids_never_used_again(url: String) {
    let store = open(&url).await;
    let zeta = second_tenant(&store).await;
    let taken = store.create_tenant("zeta", 1.0, at(1)).await;
    assert!(matches!(taken, Err(Error::Taken { what: "tenant", .. })), "{taken:?}");
    let acme = store.create_tenant("acme", 0.5, at(1)).await.expect("a new name");
    assert!(acme.id > zeta && zeta > DEFAULT_TENANT);
    store.set_weight(acme.id, 4.0).await.expect("changed");
    assert_eq!(store.tenant_named("acme").await.expect("asked").map(|tenant| tenant.weight), Some(4.0));
    assert!(matches!(store.set_weight(TenantId(99), 1.0).await, Err(Error::Missing("tenant"))));
}

pub(crate) async fn calibration_is_kept_per_revision_and_machine(url: String) {
    let store = open(&url).await;
    store.put_calibration("r1", "m1", "{\"a\":1}", at(0)).await.expect("kept");
    store.put_calibration("r1", "m1", "{\"a\":2}", at(1)).await.expect("kept");
    assert_eq!(store.calibration("r1", "m1").await.expect("read").as_deref(), Some("{\"a\":2}"));
    assert_eq!(store.calibration("r1", "m2").await.expect("read"), None);
    assert_eq!(store.calibration("r2", "m1").await.expect("read"), None);
}

pub(crate) async fn a_database_of_a_newer_program_is_refused(url: String) {
    open(&url).await.close().await;
    let pool = sqlx::AnyPool::connect(&url).await.expect("connects");
    sqlx::query("INSERT INTO schema_version (version) VALUES (999)").execute(&pool).await.expect("written");
    pool.close().await;
    let refused = Store::open(&url).await;
    let refused = refused.expect_err("a newer program made it");
    assert!(matches!(refused, Error::Newer { found: 999, known: SCHEMA_VERSION }), "{refused:?}");
    let versions = format!("is version 999, this program knows up to {SCHEMA_VERSION}");
    assert!(refused.to_string().contains(&versions), "{refused}");
}
