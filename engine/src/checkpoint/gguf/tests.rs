//! Against candle's reader, and against damage.

use std::borrow::Cow;
use std::io::Cursor;

use candle_core::Device;
use candle_core::quantized::gguf_file::Content;
use proptest::prelude::*;

use super::write::GgufWriter;
use super::*;
use crate::checkpoint::error::CheckpointError;
use crate::checkpoint::ggml::BlockFormat;

const KINDS: [u32; 11] = [0, 1, 2, 3, 6, 7, 8, 12, 13, 14, 30];

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
    assert_eq!(gguf.texts("tokens").expect("a list of strings"), Some(vec!["a", "é"]));
    assert!(gguf.numbers("tokens").is_err() && gguf.texts("general.architecture").is_err());
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

/// A file of tensors `a` and `b`, 64 numbers each, and what `change` does to their rows in the table.
fn two_tensors(change: impl Fn(&mut Vec<u8>, usize)) -> Result<Gguf, CheckpointError> {
    let mut writer = GgufWriter::default();
    writer.tensor("a", &[64], BlockFormat::F32, &[1.0; 64]);
    writer.tensor("b", &[64], BlockFormat::F32, &[2.0; 64]);
    let mut bytes = writer.finish();
    let row = 8 + 1 + 4 + 8 + 4 + 8; // name, dimensions, one extent, type, offset
    change(&mut bytes, 24 + row);
    Gguf::from_bytes("x.gguf", Cow::Owned(bytes))
}

#[test]
fn tensors_lie_apart_and_aligned() {
    let gguf = two_tensors(|_, _| ()).expect("a valid file");
    let (.., data) = gguf.tensor("b").expect("it is there");
    assert_eq!(BlockFormat::F32.to_f32(data), [2.0; 64]);
    for (offset, expected) in [
        (0_u64, "x.gguf: field `b`: overlaps the tensor `a`"),
        (224, "x.gguf: field `b`: overlaps the tensor `a`"),
        (257, "x.gguf: field `b`: its offset 257 is no multiple of the alignment, 32"),
        (!31, "x.gguf: field `b`: [64] does not fit the 608 bytes of the file: truncated"),
    ] {
        let put =
            |bytes: &mut Vec<u8>, row: usize| bytes[row + 25..][..8].copy_from_slice(&offset.to_le_bytes());
        assert_eq!(two_tensors(put).expect_err("refused").to_string(), expected);
    }
}

#[test]
fn a_tensor_of_an_unknown_type_is_refused_where_it_is_used() {
    let gguf = two_tensors(|bytes, row| bytes[row + 21] = 99).expect("the file has another tensor");
    assert!(gguf.tensor("a").is_ok());
    let error = gguf.tensor("b").expect_err("its type is not known").to_string();
    assert!(error.starts_with("x.gguf: field `b`: has the type 99, which is not supported; known are F32, "));
}

#[test]
fn an_alignment_is_a_power_of_two() {
    for (alignment, is_right) in [(64, true), (1, true), (0, false), (48, false), (1 << 17, false)] {
        let mut writer = GgufWriter::default();
        writer.unsigned("general.alignment", alignment);
        let read = Gguf::from_bytes("x.gguf", Cow::Owned(writer.finish()));
        assert_eq!(read.is_ok(), is_right, "{alignment}");
    }
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
        let Ok((shape, format, data)) = gguf.tensor(name) else { continue }; // of an unknown type
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
