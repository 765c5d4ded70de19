//! Bytes of files as the store keeps them: text as it is, anything else in base64, chunk by chunk.

use base::Bytes;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serving::error::{RequestError, internal};

/// Bytes of a chunk, before they are encoded.
const CHUNK_BYTES: usize = 192 << 10;

/// Where bytes that are no text come to: base64 of so many at a time.
#[derive(Debug, Default)]
pub struct Base64Chunks {
    pending: Vec<u8>,
    bytes: u64,
}

impl Base64Chunks {
    /// Takes bytes in. Gives a chunk once there is enough for one.
    pub fn push(&mut self, bytes: &[u8]) -> Option<String> {
        self.pending.extend_from_slice(bytes);
        self.bytes += bytes.len() as u64;
        (self.pending.len() >= CHUNK_BYTES).then(|| STANDARD.encode(std::mem::take(&mut self.pending)))
    }

    /// The last chunk, if anything is left, and how many bytes came in all.
    pub fn end(self) -> (Option<String>, Bytes) {
        let chunk = (!self.pending.is_empty()).then(|| STANDARD.encode(&self.pending));
        (chunk, Bytes(self.bytes))
    }
}

/// The bytes of a chunk, as they were uploaded.
pub fn content_of(is_encoded: bool, chunk: String) -> Result<Vec<u8>, RequestError> {
    if is_encoded { STANDARD.decode(chunk).map_err(internal) } else { Ok(chunk.into_bytes()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_as_they_were() {
        let bytes: Vec<u8> = (0..700_001_u32).map(|place| (place % 251) as u8).collect();
        let mut encoder = Base64Chunks::default();
        let mut chunks: Vec<String> = bytes.chunks(9_999).filter_map(|piece| encoder.push(piece)).collect();
        let (last, size) = encoder.end();
        chunks.extend(last);
        assert_eq!((chunks.len(), size), (4, Bytes(700_001)));
        let back = chunks.into_iter().map(|chunk| content_of(true, chunk).expect("base64"));
        assert_eq!(back.collect::<Vec<_>>().concat(), bytes);
        assert!(content_of(true, "no base64".into()).is_err());
    }
}
