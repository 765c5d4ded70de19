//! Golden plans: `golden/<case>.json` is a relQuery, `golden/<case>.plan` what the rules make of it.
//!
//! `RELSERVE_BLESS=1 cargo test -p ir` writes the plans anew; read the difference before committing it.

use std::path::Path;

use base::Generation;
use ir::{Cell, Plan, Rules, Table, Template, characters, explain, rewrite};
use serde::Deserialize;

/// A relQuery, and the rules that are off.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RelQueryCase {
    template: String,
    columns: Vec<String>,
    rows: Vec<Vec<serde_json::Value>>,
    system: Option<String>,
    #[serde(default = "yes")]
    chat: bool,
    #[serde(default)]
    temperature: f32,
    #[serde(default)]
    off: Vec<String>,
    /// Whether the entries of its record may be ordered.
    #[serde(default)]
    order_fields: bool,
}

fn yes() -> bool {
    true
}

fn explained(case: RelQueryCase) -> String {
    let template = Template::parse(&case.template).expect("the template parses");
    let cell = |value: &serde_json::Value| Cell::from_json(value).expect("cells are scalars");
    let rows = case.rows.iter().map(|row| row.iter().map(cell).collect()).collect();
    let table = Table::new(case.columns, rows).expect("the columns differ");
    let generation = Generation { temperature: case.temperature, ..Generation::default() };
    let system = case.system.as_deref();
    let plan =
        Plan::relquery(&template, system, case.chat, table, generation).expect("the template fits the table");
    let rules = case.off.iter().fold(Rules::all(), |rules, name| rules.without(name));
    let rules = if case.order_fields { rules.with_fields() } else { rules };
    let (plan, log) = rewrite(plan, &rules, &characters);
    let read_back: Plan =
        serde_json::from_str(&serde_json::to_string(&plan).expect("plans serialize")).expect("and back");
    assert_eq!(read_back, plan, "a plan survives JSON");
    explain(&plan, &log)
}

#[test]
fn every_golden_plan_is_as_it_was() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let bless = std::env::var_os("RELSERVE_BLESS").is_some();
    let mut cases = 0;
    for entry in folder.read_dir().expect("the golden folder is there") {
        let path = entry.expect("it can be listed").path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("a case can be read");
        let found = explained(serde_json::from_str(&text).expect("a case is JSON"));
        let golden = path.with_extension("plan");
        if bless {
            std::fs::write(&golden, &found).expect("a plan can be written");
        }
        let expected = std::fs::read_to_string(&golden).unwrap_or_default();
        assert_eq!(found, expected, "{}", golden.display());
        cases += 1;
    }
    assert!(cases >= 6, "only {cases} golden cases were found");
}
