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

/// How many bytes of its file a chunk has.
pub fn bytes_in(is_encoded: bool, chunk: &str) -> Bytes {
    let length = chunk.len() as u64;
    if !is_encoded {
        return Bytes(length);
    }
    let padding = chunk.bytes().rev().take_while(|byte| *byte == b'=').count() as u64;
    Bytes(length / 4 * 3 - padding)
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
        assert_eq!(chunks.iter().map(|chunk| bytes_in(true, chunk).0).sum::<u64>(), 700_001);
        let back = chunks.into_iter().map(|chunk| content_of(true, chunk).expect("base64"));
        assert_eq!(back.collect::<Vec<_>>().concat(), bytes);
        assert!(content_of(true, "no base64".into()).is_err());
        for length in 0..7 {
            let chunk = STANDARD.encode(vec![b'a'; length]);
            assert_eq!(bytes_in(true, &chunk), Bytes(length as u64));
            assert_eq!(bytes_in(false, &"a".repeat(length)), Bytes(length as u64));
        }
    }
}
