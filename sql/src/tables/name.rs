//! Names of tables: those of files, and those of the tenant's own schema.

use datafusion::common::TableReference;
use datafusion::prelude::SessionContext;

/// The name under which SQL finds a file with this stem: what an unquoted identifier is folded to, so that
/// nobody has to quote it.
pub(super) fn folded(stem: &str) -> String {
    let mut name: String =
        stem.chars().map(|c| if c.is_alphanumeric() { c.to_ascii_lowercase() } else { '_' }).collect();
    if !name.starts_with(|first: char| first.is_alphabetic() || first == '_') {
        name.insert(0, '_');
    }
    name
}

/// The name of a table in the tenant's schema.
pub(super) fn own<'a>(context: &SessionContext, name: &'a TableReference) -> Option<&'a str> {
    let state = context.state_ref();
    let state = state.read();
    let defaults = &state.config_options().catalog;
    let is_ours = name.schema().is_none_or(|schema| schema == defaults.default_schema)
        && name.catalog().is_none_or(|catalog| catalog == defaults.default_catalog);
    is_ours.then(|| name.table())
}

#[cfg(test)]
mod tests {
    use super::folded;

    #[test]
    fn a_stem_becomes_a_name_that_needs_no_quotes() {
        for (stem, name) in [
            ("Reviews", "reviews"),
            ("sales 2024-05", "sales_2024_05"),
            ("2024", "_2024"),
            ("", "_"),
            ("é", "é"),
        ] {
            assert_eq!(folded(stem), name, "{stem}");
        }
    }
}
