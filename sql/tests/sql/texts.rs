//! Texts that functions make have a bound, whatever they are made of.

use crate::common::shown;
use crate::tenant::Tenant;

#[tokio::test]
async fn a_text_that_a_function_would_make_too_long_is_refused_before_it_is_made() {
    let tenant = Tenant::new(&[("n.csv", "n\n1\n2\n")]);
    let session = tenant.plain().await;
    for (long, name) in [
        ("repeat('a', 2000000000)", "repeat"),
        ("repeat('a', n * 100000000)", "repeat"),
        ("repeat(repeat('a', 1000000), 1000000)", "repeat"),
        ("lpad('a', 2147483647)", "lpad"),
        ("rpad('a', n * 100000000, 'xyz')", "rpad"),
        ("replace(repeat('a', 1000000), 'a', repeat('b', 10000))", "replace"),
        ("regexp_replace(repeat('a', 100000), 'a', repeat('b', 100000), 'g')", "regexp_replace"),
        ("concat(repeat('a', n * 6000000), repeat('b', n * 6000000))", "concat"),
        ("concat_ws('-', repeat('a', n * 6000000), repeat('b', n * 6000000))", "concat_ws"),
    ] {
        let said = shown(&session, &format!("SELECT length({long}) AS n FROM n")).await;
        let is_named = said.contains(&format!("{name}: a text of "));
        assert!(is_named && said.contains("exceeds the limit of 16777216"), "{long}: {said}");
    }
    let many = "SELECT sum(length(repeat('a', 1000000 + value))) AS n FROM generate_series(1, 8000)";
    let said = shown(&session, many).await;
    assert!(said.contains("rows exceed the limit of 536870912"), "{said}");
}

#[tokio::test]
async fn texts_within_the_bound_are_made_as_before() {
    let tenant = Tenant::new(&[("n.csv", "n\n1\n2\n")]);
    let session = tenant.plain().await;
    for (text, made) in [
        ("repeat('ab', 2)", "abab"),
        ("repeat('ab', -1) || '.'", "."),
        ("coalesce(repeat(NULL, 3), 'none')", "none"),
        ("lpad('a', 3, 'xy')", "xya"),
        ("rpad('a', 3)", "a  "),
        ("replace('banana', 'an', 'o')", "booa"),
        ("regexp_replace('banana', 'an', 'o', 'g')", "booa"),
        ("concat('a', 1, NULL, 'b')", "a1b"),
        ("concat_ws('-', 'a', NULL, 'b')", "a-b"),
        ("repeat('x', max(n)::int)", "xx"),
    ] {
        let said = shown(&session, &format!("SELECT '<' || {text} || '>' AS made FROM n")).await;
        assert!(said.contains(&format!("<{made}>")), "{text}: {said}");
    }
}
