//! Names of files as names of tables.

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
