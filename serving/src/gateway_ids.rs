//! Which gateways a request has come through, and which ones a replica leads to: no row may come back to a gateway
//! that has had it. A gateway that is its own replica, or that others lead back to, would send each row on until
//! nobody has room.
//!
//! A request names the gateways that sent it, as `Via` does (RFC 9110, section 7.6.3); who finds itself among them
//! refuses it. Who looks at a gateway is told which others that one leads to, so that a loop is found before a row is
//! sent. Paths are told and no set: what is told around a loop would keep the name of a gateway that has left.
//! Must not know HTTP's types, nor what a replica is. Pure.

use std::sync::Arc;

use serde_json::Value;

/// The header that names the gateways that a request has come through, the last one last.
pub const VIA: &str = "x-relserve-via";
/// The status of a request that has come back.
pub const LOOP_DETECTED: u16 = 508;
/// Its code: other servers have the status for other things.
pub const LOOP_CODE: &str = "loop_detected";

/// Gateways that a request names: where it came through more, the last of them.
const VIA_MAX: usize = 16;
/// Gateways of a path that is told, and such paths. What is beyond is not told; rows name where they come from.
const PATH_MAX: usize = 16;
const PATHS_MAX: usize = 64;
/// Hexadecimal digits of an id.
const ID_DIGITS: usize = 32;

/// Gateways in the order in which a request reaches them.
pub type GatewayPath = Vec<String>;
/// Paths that begin at one replica.
pub type GatewayPaths = Arc<[GatewayPath]>;

/// What this process is called by other gateways: numbers that it has drawn, which say nothing of it.
#[derive(Clone, Debug)]
pub struct GatewayIds {
    /// In requests to its replicas. Nobody else hears it: no client can have a request refused in its name.
    asking: String,
    /// In answers to those who look at it.
    answering: String,
}

impl GatewayIds {
    /// Of two numbers that were drawn.
    pub fn of(asking: u128, answering: u128) -> Self {
        Self { asking: format!("{asking:032x}"), answering: format!("{answering:032x}") }
    }

    /// The header of what this gateway sends; `before`: that of the request that it is sent for.
    pub fn via(&self, before: Option<&str>) -> String {
        let before: Vec<&str> = ids(before.unwrap_or_default()).collect();
        let kept = before.into_iter().rev().take(VIA_MAX - 1).rev();
        kept.chain([self.asking.as_str()]).collect::<Vec<_>>().join(", ")
    }

    /// Why a request with this header goes in a loop, if this gateway has sent it before.
    pub fn refuses(&self, via: &str) -> Option<String> {
        let since: Vec<&str> = ids(via).collect();
        let between = since.iter().rev().position(|id| *id == self.asking)?;
        Some(match between {
            0 => "requests go in a loop: this gateway is its own replica".to_owned(),
            _ => format!("requests go in a loop: this gateway sent this one (gateways between: {between})"),
        })
    }

    /// The paths that are told to who looks: to this gateway, and on by `behind`, those that begin at its replicas.
    pub fn paths<'a>(&self, behind: impl IntoIterator<Item = &'a GatewayPath>) -> Vec<GatewayPath> {
        let goes_on = |path: &&GatewayPath| path.len() < PATH_MAX && !path.contains(&self.answering);
        let behind = behind.into_iter().filter(goes_on);
        let from_here = |path: &GatewayPath| {
            std::iter::once(&self.answering).chain(path).cloned().collect::<GatewayPath>()
        };
        let mut paths: Vec<GatewayPath> = behind.map(from_here).collect();
        paths.push(vec![self.answering.clone()]);
        paths.sort_by(|one, other| one.len().cmp(&other.len()).then_with(|| one.cmp(other)));
        paths.dedup();
        paths.truncate(PATHS_MAX);
        paths
    }

    /// Why nothing may be sent to a replica at which these paths begin, if one of them comes back to this gateway.
    pub fn found_on(&self, paths: &[GatewayPath]) -> Option<String> {
        let between = paths.iter().find_map(|path| path.iter().position(|id| *id == self.answering))?;
        Some(match between {
            0 => itself(),
            _ => format!(
                "it leads back to this gateway (gateways between: {between}): rows would go in a loop"
            ),
        })
    }
}

/// Why nothing may be sent to a replica that turns out to be this gateway.
pub fn itself() -> String {
    "this replica is this gateway itself: rows would come back to it".to_owned()
}

/// The paths that a server tells to who looks at it; none, where it is no gateway.
pub fn told(paths: &Value) -> GatewayPaths {
    let path = |path: &Value| -> Option<GatewayPath> {
        let ids = path.as_array().filter(|ids| (1..=PATH_MAX).contains(&ids.len()))?;
        ids.iter().map(|id| id.as_str().filter(|id| is_id(id)).map(str::to_owned)).collect()
    };
    paths.as_array().into_iter().flatten().take(PATHS_MAX).filter_map(path).collect()
}

/// Whether a reply of that status is a gateway's, which has had the request before.
pub fn says_loop(body: &[u8]) -> bool {
    let said: Option<Value> = serde_json::from_slice(body).ok();
    said.is_some_and(|said| said["error"]["code"] == LOOP_CODE)
}

/// What is kept of a header: the last gateways that it names, if it names any.
pub fn named(via: &str) -> Option<String> {
    let all: Vec<&str> = ids(via).collect();
    let last = &all[all.len().saturating_sub(VIA_MAX)..];
    (!last.is_empty()).then(|| last.join(", "))
}

/// The ids that a header names; what is none of ours is left out.
fn ids(via: &str) -> impl Iterator<Item = &str> {
    via.split(',').map(str::trim).filter(|id| is_id(id))
}

fn is_id(text: &str) -> bool {
    text.len() == ID_DIGITS && text.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The gateways 1, 2 and 3.
    fn gateways() -> [GatewayIds; 3] {
        [1, 2, 3].map(|number| GatewayIds::of(number, 16 + number))
    }

    fn asking(number: u128) -> String {
        format!("{number:032x}")
    }

    #[test]
    fn a_gateway_refuses_what_it_has_sent_itself_and_no_more() {
        let [a, b, c] = gateways();
        let of_a = a.via(None);
        assert_eq!(of_a, asking(1));
        assert!(a.refuses(&of_a).is_some_and(|reason| reason.contains("its own replica")));
        let of_b = b.via(Some(&of_a));
        assert_eq!(of_b, format!("{}, {}", asking(1), asking(2)));
        assert!(a.refuses(&of_b).is_some_and(|reason| reason.contains("between: 1")));
        assert_eq!(c.refuses(&of_b), None);
        assert_eq!(a.refuses(&asking(17)), None, "what it is called in answers refuses nothing");
        assert_eq!(a.refuses(""), None);
    }

    #[test]
    fn of_a_long_way_the_last_gateways_are_named_and_what_is_no_id_is_left_out() {
        let [a, ..] = gateways();
        let many: Vec<String> = (100..100 + VIA_MAX as u128).map(asking).collect();
        let via = a.via(Some(&many.join(",")));
        let sent: Vec<&str> = via.split(", ").collect();
        assert_eq!((sent.len(), sent[0], sent[VIA_MAX - 1]), (VIA_MAX, &*many[1], &*asking(1)));
        let kept = named(&format!("x, {}", many.join(",")));
        assert_eq!(kept, Some(many.join(", ")));
        let more = named(&format!("{}, {}", asking(7), many.join(",")));
        assert_eq!(more, Some(many.join(", ")), "{VIA_MAX} of them");
        for odd in ["", "a, b", "1.1 proxy", &asking(0xabc).to_uppercase()] {
            assert_eq!((a.via(Some(odd)), named(odd)), (asking(1), None), "{odd:?}");
        }
    }

    #[test]
    fn each_gateway_of_a_loop_finds_itself_behind_its_replica_and_none_of_a_tree_does() {
        let [a, b, c] = gateways();
        let told = |one: &GatewayIds, behind: &[GatewayPath]| one.paths(behind);
        // a -> b -> c and a -> c.
        let of_c = told(&c, &[]);
        let of_b = told(&b, &of_c);
        assert_eq!((a.found_on(&of_b), a.found_on(&of_c), b.found_on(&of_c)), (None, None, None));
        // And c -> a: what c looks at tells it of itself, then what b and a look at.
        let of_a = told(&a, &of_b);
        assert!(c.found_on(&of_a).is_some_and(|reason| reason.contains("between: 2")));
        let of_c = told(&c, &of_a);
        assert!(b.found_on(&of_c).is_some());
        let of_b = told(&b, &of_c);
        assert!(a.found_on(&of_b).is_some());
        // c has another replica now: nobody is told of the old way any more once all have looked.
        let of_c = told(&c, &[]);
        let of_b = told(&b, &of_c);
        assert_eq!((a.found_on(&of_b), b.found_on(&of_c)), (None, None));
        assert_eq!(told(&a, &of_b).iter().map(Vec::len).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(a.found_on(&told(&a, &[])), Some(itself()), "where a header is lost on the way");
    }

    #[test]
    fn a_gateway_that_left_a_loop_is_forgotten_by_those_that_stay_in_it() {
        let [a, b, c] = gateways();
        // a and b lead to each other, and b to c, until it does not.
        let (mut of_a, mut of_b) = (a.paths(&[]), b.paths(&c.paths(&[])));
        let names_c = |paths: &[GatewayPath]| c.found_on(paths).is_some();
        for _ in 0..3 {
            let behind_b: Vec<GatewayPath> = of_a.iter().cloned().chain(c.paths(&[])).collect();
            (of_a, of_b) = (a.paths(&of_b), b.paths(&behind_b));
        }
        assert!(names_c(&of_a) && names_c(&of_b));
        for _ in 0..2 {
            (of_a, of_b) = (a.paths(&of_b), b.paths(&of_a));
        }
        assert!(!names_c(&of_a) && !names_c(&of_b), "{of_a:?} {of_b:?}");
        assert!(a.found_on(&of_b).is_some() && b.found_on(&of_a).is_some(), "those two still are in one");
    }

    #[test]
    fn a_refusal_of_what_came_back_is_known_by_its_code() {
        assert!(says_loop(br#"{"error": {"message": "in a loop", "code": "loop_detected"}}"#));
        for other in [&b""[..], b"508 Resource Limit Is Reached", br#"{"error": "loop_detected"}"#] {
            assert!(!says_loop(other), "{}", String::from_utf8_lossy(other));
        }
    }

    #[test]
    fn what_servers_tell_is_read_within_bounds_or_not_at_all() {
        let [a, ..] = gateways();
        let path = json!([asking(17), asking(18)]);
        assert_eq!(told(&json!([path])).to_vec(), [[asking(17), asking(18)]]);
        assert!(
            a.found_on(&told(&json!([["x"], path]))).is_some(),
            "an odd one says nothing against the others"
        );
        let long: Vec<String> = (0..=PATH_MAX as u128).map(asking).collect();
        for odd in
            [json!(null), json!("x"), json!([]), json!([[]]), json!([[1]]), json!([["x"]]), json!([long])]
        {
            assert!(told(&odd).is_empty(), "{odd}");
        }
        assert_eq!(told(&json!(vec![path; PATHS_MAX + 1])).len(), PATHS_MAX);
        let many: Vec<GatewayPath> = (0..2 * PATHS_MAX as u128).map(|id| vec![asking(100 + id)]).collect();
        assert_eq!(a.paths(&many).len(), PATHS_MAX);
        assert_eq!(a.paths(&[vec![asking(7); PATH_MAX]]).len(), 1);
    }
}
