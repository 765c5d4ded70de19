//! Other names of routes, by which clients of other servers know them.
//!
//! A route is served under all its names by one handler; the OpenAPI document has each of them. What goes by routes
//! (scopes of keys, metrics, logs) goes by a route's own name.

/// Routes with their other names: those that vLLM has without a version, and Cohere's, which vLLM has too.
const OTHER_NAMES: [(&str, &[&str]); 2] =
    [("/v1/score", &["/score"]), ("/v1/rerank", &["/rerank", "/v2/rerank"])];

/// All names of a route, its own first.
pub(crate) fn names_of(route: &'static str) -> Vec<&'static str> {
    let others = other_names().filter(|(of, _)| *of == route).map(|(_, name)| name);
    std::iter::once(route).chain(others).collect()
}

/// Each other name, behind the route that it is of.
pub(crate) fn other_names() -> impl Iterator<Item = (&'static str, &'static str)> {
    OTHER_NAMES.iter().flat_map(|(route, names)| names.iter().map(|name| (*route, *name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_stands_before_its_other_names_and_one_without_any_stands_alone() {
        assert_eq!(names_of("/v1/rerank"), ["/v1/rerank", "/rerank", "/v2/rerank"]);
        assert_eq!(names_of("/v1/models"), ["/v1/models"]);
        assert!(other_names().any(|pair| pair == ("/v1/score", "/score")));
    }
}
