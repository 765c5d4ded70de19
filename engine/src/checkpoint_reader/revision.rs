//! A number that changes whenever a checkpoint's files do: what it answers is kept under it.

use std::hash::Hasher as _;

use siphasher::sip128::{Hasher128 as _, SipHasher13};

use super::ModelFiles;
use crate::checkpoint::Safetensors;
use crate::checkpoint::safetensors::Storage;

/// Up to this size a file of weights is hashed whole.
const HASHED_WHOLE_MAX: usize = 64 << 20;
/// Of a larger one, this much...
const SAMPLE_BYTES: usize = 4 << 10;
/// ...of every so much.
const SAMPLE_STRIDE: usize = 1 << 20;

/// A hash of all that decides a model's answers: every text, and of the weights all headers and all
/// bytes of small files, or samples that no training step leaves as they were.
pub(super) fn of_files(files: &ModelFiles<'_>, weights: &Safetensors) -> u128 {
    let mut hash = SipHasher13::new();
    add_texts(&mut hash, files);
    for storage in weights.storages() {
        add_file(&mut hash, storage, header_end(storage.bytes()));
    }
    hash.finish128().as_u128()
}

/// The same of one file that holds everything, whose header ends at `header`.
pub(super) fn of_file(file: &Storage, header: usize) -> u128 {
    let mut hash = SipHasher13::new();
    add_file(&mut hash, file, header);
    hash.finish128().as_u128()
}

/// The same of texts alone.
pub(super) fn of_texts(files: &ModelFiles<'_>) -> u128 {
    let mut hash = SipHasher13::new();
    add_texts(&mut hash, files);
    hash.finish128().as_u128()
}

/// Hashes every text.
fn add_texts(hash: &mut SipHasher13, files: &ModelFiles<'_>) {
    let texts = [files.tokenizer_config, files.generation_config, files.chat_template];
    for text in [Some(files.config), Some(files.tokenizer)].into_iter().chain(texts) {
        add(hash, &[u8::from(text.is_some())]);
        add(hash, text.unwrap_or_default().as_bytes());
    }
}

/// Hashes bytes and their number.
fn add(hash: &mut SipHasher13, bytes: &[u8]) {
    hash.write_u64(bytes.len() as u64);
    hash.write(bytes);
}

/// Hashes a file of weights: all of a small one, of a large one its header and samples of the rest.
fn add_file(hash: &mut SipHasher13, file: &Storage, header: usize) {
    let bytes = file.bytes();
    if bytes.len() <= HASHED_WHOLE_MAX {
        file.will_read(0..bytes.len());
        return add(hash, bytes);
    }
    let samples = (0..bytes.len()).step_by(SAMPLE_STRIDE);
    let samples = samples.map(|first| first..bytes.len().min(first + SAMPLE_BYTES));
    // All are asked for before the first is waited for: a large file has thousands.
    samples.clone().for_each(|sample| file.will_read(sample));
    add(hash, &(bytes.len() as u64).to_le_bytes());
    add(hash, bytes.get(..header).unwrap_or_default());
    samples.for_each(|sample| add(hash, &bytes[sample]));
}

/// Where the header of a safetensors file ends.
fn header_end(bytes: &[u8]) -> usize {
    bytes.first_chunk::<8>().map_or(0, |length| u64::from_le_bytes(*length) as usize + 8)
}
