//! Uploads whose parts this gateway puts together: each once at a time, as each time writes the whole file. Must not know
//! what an upload is.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The uploads that are being put together.
#[derive(Debug, Default)]
pub struct UploadJoins(Mutex<HashSet<String>>);

impl UploadJoins {
    /// Notes that an upload is being put together, for as long as the guard lives. `None`: it is already.
    pub fn begin(self: &Arc<Self>, id: &str) -> Option<UploadJoin> {
        let is_first = self.ids().insert(id.to_owned());
        is_first.then(|| UploadJoin { all: Arc::clone(self), id: id.to_owned() })
    }

    fn ids(&self) -> MutexGuard<'_, HashSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// That an upload is being put together.
#[derive(Debug)]
pub struct UploadJoin {
    all: Arc<UploadJoins>,
    id: String,
}

impl Drop for UploadJoin {
    fn drop(&mut self) {
        self.all.ids().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upload_is_put_together_once_at_a_time() {
        let joins = Arc::new(UploadJoins::default());
        let first = joins.begin("a");
        assert!(first.is_some() && joins.begin("a").is_none() && joins.begin("b").is_some());
        drop(first);
        assert!(joins.begin("a").is_some());
    }
}
