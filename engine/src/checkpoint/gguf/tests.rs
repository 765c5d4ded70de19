//! Against candle's reader, and against damage.

use std::borrow::Cow;
use std::io::Cursor;

use candle_core::Device;
use candle_core::quantized::gguf_file::Content;
use proptest::prelude::*;

use super::*;

const KINDS: [u32; 7] = [0, 1, 2, 8, 12, 14, 30];

fn text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend((text.len() as u64).to_le_bytes());
    bytes.extend(text.as_bytes());
}

/// A file with a few values and one tensor `w` of 2 rows of 512 of type `kind`, made from `seed`.
fn file(kind: u32, seed: u64) -> Vec<u8> {
    let mut bytes = b"GGUF".to_vec();
    bytes.extend(3_u32.to_le_bytes());
    bytes.extend(1_u64.to_le_bytes());
    bytes.extend(2_u64.to_le_bytes());
    text(&mut bytes, "general.architecture");
    bytes.extend(8_u32.to_le_bytes());
    text(&mut bytes, "llama");
    text(&mut bytes, "tokens");
    bytes.extend([9_u32, 8].map(u32::to_le_bytes).concat());
    bytes.extend(2_u64.to_le_bytes());
    text(&mut bytes, "a");
    text(&mut bytes, "é");
    text(&mut bytes, "w");
    bytes.extend(2_u32.to_le_bytes());
    bytes.extend([512_u64, 2].map(u64::to_le_bytes).concat());
    bytes.extend(kind.to_le_bytes());
    bytes.extend(0_u64.to_le_bytes());
    bytes.resize(bytes.len().next_multiple_of(32), 0);
    let format = BlockFormat::of_id(kind).expect("a known kind");
    let mut state = seed;
    for _ in 0..1024 / format.elements() * format.bytes() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // Bit 6 clear: in the upper byte of a float it keeps the exponent from meaning infinity.
        bytes.push((state >> 56) as u8 & 0xbf);
    }
    bytes
}

#[test]
fn every_format_means_the_numbers_that_candle_reads_from_the_same_bytes() {
    for kind in KINDS {
        let bytes = file(kind, u64::from(kind) + 1);
        let mut cursor = Cursor::new(&bytes);
        let content = Content::read(&mut cursor).expect("candle reads it");
        let theirs = content.tensor(&mut cursor, "w", &Device::Cpu).expect("candle has the tensor");
        let theirs = theirs.dequantize(&Device::Cpu).expect("candle dequantises it");
        let theirs = theirs.flatten_all().and_then(|all| all.to_vec1::<f32>()).expect("numbers");
        let gguf = Gguf::from_bytes("x.gguf", Cow::Owned(bytes)).expect("a valid file");
        let (shape, format, data) = gguf.tensor("w").expect("it is there");
        assert_eq!(shape, [2, 512]);
        let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect::<Vec<_>>();
        assert_eq!(bits(format.to_f32(data)), bits(theirs), "{format:?}");
    }
}

#[test]
fn a_mapped_file_gives_its_metadata_and_names() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("x.gguf");
    std::fs::write(&path, file(8, 1)).expect("it can be written");
    let gguf = Gguf::open(&path).expect("a valid file");
    assert_eq!(gguf.metadata("general.architecture"), Some(&MetaValue::Text("llama".to_owned())));
    let tokens = ["a", "é"].map(|token| MetaValue::Text(token.to_owned())).to_vec();
    assert_eq!(gguf.metadata("tokens"), Some(&MetaValue::List(tokens)));
    assert_eq!((gguf.names().collect::<Vec<_>>(), gguf.file()), (vec!["w"], "x.gguf"));
    assert!(matches!(gguf.tensor("v"), Err(CheckpointError::MissingTensor { name }) if name == "v"));
}

#[test]
fn an_error_names_the_field() {
    let check = |change: &dyn Fn(&mut Vec<u8>), expected: &str| {
        let mut bytes = file(8, 1);
        change(&mut bytes);
        let error = Gguf::from_bytes("x.gguf", Cow::Owned(bytes)).expect_err("refused").to_string();
        assert_eq!(error, expected);
    };
    check(&|bytes| bytes[0] = 0, "x.gguf: field `magic`: is not `GGUF`: no GGUF file");
    check(&|bytes| bytes[4] = 9, "x.gguf: field `version`: is 9, only 2 and 3 are known");
    let truncated = "x.gguf: field `tensor_count`: needs 8 bytes, 2 are left: truncated";
    check(&|bytes| bytes.truncate(10), truncated);
    check(&|bytes| bytes.clear(), "x.gguf: field `magic`: needs 4 bytes, 0 are left: truncated");
}

#[test]
fn every_truncation_is_refused() {
    let bytes = file(14, 3);
    for length in 0..bytes.len() {
        assert!(Gguf::from_bytes("x", Cow::Owned(bytes[..length].to_vec())).is_err(), "{length} bytes");
    }
}

/// Reads a file that may be damaged, and all of its tensors.
fn read_all(bytes: Vec<u8>) {
    let Ok(gguf) = Gguf::from_bytes("x", Cow::Owned(bytes)) else { return };
    for name in gguf.names() {
        let (shape, format, data) = gguf.tensor(name).expect("the name is the file's");
        assert_eq!(format.to_f32(data).len(), shape.iter().product::<usize>());
    }
}

proptest! {
    #[test]
    fn no_flipped_bytes_make_the_reader_panic(
        flips in prop::collection::vec((0..200_usize, any::<u8>()), 1..6),
        kind in prop::sample::select(KINDS.to_vec()),
    ) {
        let mut bytes = file(kind, 1);
        for (at, value) in flips {
            bytes[at] = value;
        }
        read_all(bytes);
    }

    #[test]
    fn no_header_makes_the_reader_panic(rest in prop::collection::vec(any::<u8>(), 0..300)) {
        read_all([b"GGUF\x03\0\0\0".as_slice(), &rest].concat());
    }
}
