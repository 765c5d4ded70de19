//! What a connection knows of its last responses, kept or not: of each `stream_id` one, so that its next goes on from it.

use std::collections::VecDeque;

use store::StoredResponse;

/// Most of them. The one that is oldest goes.
const STREAMS_MAX: usize = 16;
/// Bytes of all of them, which a connection may have for long. One that has more is not gone on from, unless it is kept.
const BYTES_MAX: usize = 4 << 20;

/// The last responses of a connection, the newest at the end.
#[derive(Debug, Default)]
pub(super) struct LastResponses(VecDeque<LastResponse>);

/// The last response of those with a `stream_id`, or of those without.
#[derive(Debug)]
struct LastResponse {
    stream_id: Option<String>,
    id: String,
    response: StoredResponse,
}

impl LastResponses {
    /// The last one of a stream, by its identity, which is forgotten.
    pub(super) fn take(&mut self, stream_id: Option<&str>) -> Option<(String, StoredResponse)> {
        let place = self.0.iter().position(|last| last.stream_id.as_deref() == stream_id)?;
        self.0.remove(place).map(|last| (last.id, last.response))
    }

    pub(super) fn forget(&mut self, stream_id: Option<&str>) {
        self.take(stream_id);
    }

    /// One of that identity, whichever stream it is of.
    pub(super) fn find(&self, id: &str) -> Option<StoredResponse> {
        self.0.iter().find(|last| last.id == id).map(|last| last.response.clone())
    }

    /// A stream's response is its last one now.
    pub(super) fn keep(&mut self, stream_id: Option<String>, (id, response): (String, StoredResponse)) {
        self.forget(stream_id.as_deref());
        self.0.push_back(LastResponse { stream_id, id, response });
        while self.0.len() > STREAMS_MAX || self.bytes() > BYTES_MAX {
            self.0.pop_front();
        }
    }

    fn bytes(&self) -> usize {
        self.0.iter().map(|last| last.response.input.len() + last.response.reply.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(bytes: usize) -> StoredResponse {
        StoredResponse { input: "x".repeat(bytes), reply: String::new() }
    }

    #[test]
    fn each_stream_has_one_and_the_oldest_go() {
        let mut last = LastResponses::default();
        let name = |number: usize| (number > 0).then(|| format!("s{number}"));
        for number in 0..=STREAMS_MAX {
            last.keep(name(number), (format!("r{number}"), response(1)));
        }
        assert_eq!(last.take(None), None, "one stream too many");
        last.keep(name(3), ("r".into(), response(2)));
        assert_eq!((last.find("r3"), last.find("r")), (None, Some(response(2))));
        assert_eq!(last.take(Some("s3")), Some(("r".into(), response(2))));
        assert_eq!((last.take(Some("s3")), last.find("r4")), (None, Some(response(1))));
        last.keep(None, ("large".into(), response(BYTES_MAX)));
        assert_eq!((last.find("r4"), last.find("large")), (None, Some(response(BYTES_MAX))));
        last.keep(None, ("larger".into(), response(BYTES_MAX + 1)));
        assert_eq!((last.find("large"), last.find("larger")), (None, None));
    }
}
