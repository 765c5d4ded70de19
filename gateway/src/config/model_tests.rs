//! What is refused of `[[models]]`, as files are written.

use super::replica_tests::check;
use super::*;

const TWO: &str = "\
[[models]]
name = \"org/m\"
aliases = [\"small\"]
[[models.replicas]]
url = \"http://a:8000\"
[[models.replicas]]
url = \"http://b:8000\"

[[models]]
name = \"n\"
[models.discovery]
dns = \"vllm-n\"
[models.discovery.replica]
dialect = \"vllm\"
";

#[test]
fn models_have_servers_of_their_own_and_the_first_is_the_default_where_none_stands_at_the_top() {
    check(TWO, "valid");
    let config = Config::parse(TWO, &|_| None).expect("valid");
    let names = |config: &Config| {
        let names = config.backends().into_iter().map(|(place, backend)| {
            (place, backend.model.name.unwrap_or_default().to_owned(), backend.has_local_engine())
        });
        names.collect::<Vec<_>>()
    };
    let both = [("models[0]", "org/m"), ("models[1]", "n")].map(|(at, name)| (at.into(), name.into(), false));
    assert_eq!(names(&config), both);
    assert_eq!(config.backend().model.name, Some("org/m"));
    let replicas = config.backend().named_replicas().into_iter().filter_map(|replica| replica.name);
    assert_eq!(replicas.collect::<Vec<_>>(), ["org-m-0", "org-m-1"]);
    let own = Config::parse(&format!("[model]\nname = \"d\"\n{TWO}"), &|_| None).expect("valid");
    assert_eq!(names(&own).first(), Some(&(String::new(), "d".into(), true)), "a local engine at the top");
    assert_eq!(own.backends().len(), 3);
    let fleet = "[model]\nname = \"d\"\n[[replicas]]\nurl = \"http://c\"\n";
    check(&format!("{fleet}{TWO}"), "valid");
}

#[test]
fn what_cannot_stand_beside_other_models_is_named() {
    let top = "[model]\nname = \"d\"\naliases = [\"e\"]\n[[replicas]]\nurl = \"http://c\"\nname = \"c\"\n";
    let one = |head: &str, replica: &str| {
        format!("{top}[[models]]\n{head}\n[[models.replicas]]\nurl = \"http://a\"\n{replica}")
    };
    check(&one("name = \"m\"", ""), "valid");
    check(&one("", ""), "`models[0].name`: must not be empty");
    check(&one("name = \"d\"", ""), "`models[0].name`: is `d`, as is model.name");
    check(&one("name = \"e\"", ""), "`models[0].name`: is `e`, as is model.aliases[0]");
    check(&one("name = \"m\"\naliases = [\"x\", \"d\"]", ""), "`models[0].aliases[1]`: is `d`");
    check(&one("name = \"m\"\naliases = [\"m\"]", ""), "models[0].aliases[0]");
    check(&one("name = \"m\\u0001\"", ""), "models[0].name");
    check(&format!("{}[[models]]\nname = \"m\"", one("name = \"m\"", "")), "`models[1].replicas`: is empty");
    check(&one("name = \"m\"", "name = \"c\""), "`models[0].replicas[0].name`: is another replica's too");
    check(&one("name = \"m\"", "rows_max = 0"), "models[0].replicas[0].rows_max");
    check(&one("name = \"m\"", "prompt = \"tokens\""), "needs models[0].tokenizer");
    check(&one("name = \"m\"\ncontext_max = 9", ""), "models[0].context_max counts tokens");
    check(&one("name = \"m\"", "[models.discovery]\ndns = \"x\"\nsrv = \"y\""), "models[0].discovery.srv");
    check(&one("name = \"m\"\ndir = \"x\"", ""), "dir");
    let local = "[[models]]\nname = \"m\"\n[[models.replicas]]\nkind = \"local\"\n";
    check(&format!("{top}{local}"), "`models[0].replicas`: has the local engine");
}

#[test]
fn a_key_of_a_further_model_comes_from_the_environment() {
    let text = TWO.replacen("url = ", "api_key = \"${KEY}\"\nurl = ", 1);
    let config = Config::parse(&text, &|_| Some("k3y".into())).expect("valid");
    assert_eq!(config.models[0].replicas[0].api_key, Some(Secret("k3y".into())));
}
