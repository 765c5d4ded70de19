//! Which lines are logged: what `RELSERVE_LOG` asks for, but of libraries nothing that clients sent.

/// Libraries that log what they work on, at `debug` and `trace`: statements with their texts, headers, frames, each
/// letter of a text that is made into tokens.
const TALKATIVE: [&str; 8] =
    ["datafusion", "h2", "hyper", "sqlparser", "sqlx", "tokenizers", "tokio_postgres", "ureq"];

/// Levels at which they tell none of it, by their names and numbers.
const TERSE: [&str; 8] = ["off", "error", "warn", "info", "0", "1", "2", "3"];

/// A filter under which these libraries only warn, unless it names them itself.
pub(super) fn without_contents(filter: &str) -> String {
    let directives: Vec<&str> = filter.split(',').map(str::trim).filter(|one| !one.is_empty()).collect();
    let is_terse = |directive: &&str| {
        // A target without a level is logged whole.
        let level = directive.rsplit('=').next().unwrap_or_default();
        TERSE.iter().any(|terse| level.trim().eq_ignore_ascii_case(terse))
    };
    if directives.iter().all(is_terse) {
        return filter.to_owned();
    }
    let is_named = |library: &str| {
        directives.iter().any(|directive| directive.split(['=', '[']).next().map(str::trim) == Some(library))
    };
    let unnamed = TALKATIVE.into_iter().filter(|library| !is_named(library));
    unnamed.fold(filter.to_owned(), |filter, library| format!("{filter},{library}=warn"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_libraries_work_on_is_logged_where_they_are_named_alone() {
        for filter in ["", "info", "warn", "3", "gateway=info,error", "gateway=INFO, off"] {
            assert_eq!(without_contents(filter), filter);
        }
        let quiet = "datafusion=warn,h2=warn,hyper=warn,sqlparser=warn,sqlx=warn,tokenizers=warn,\
                     tokio_postgres=warn,ureq=warn";
        // A target stands for all that begin with it: `sql` for `sqlx` and `sqlparser` too.
        for filter in
            ["TRACE", "debug", "5", "info,gateway=4", "info,sql", "trace,hyper_util=info", "sqlx_core=trace"]
        {
            assert_eq!(without_contents(filter), format!("{filter},{quiet}"));
        }
        let named = without_contents("debug,sqlparser=trace");
        assert_eq!(named, format!("debug,sqlparser=trace,{}", quiet.replace("sqlparser=warn,", "")));
    }
}
