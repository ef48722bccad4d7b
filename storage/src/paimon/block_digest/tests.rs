use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;

use super::super::data_file::tests::{batch, schema};
use super::super::data_file::{Age, encode};
use super::*;

fn file(rows: i32) -> Vec<u8> {
    let schema = schema();
    encode("f", &schema, Age::Young, &[batch(&schema, rows)]).unwrap()
}

fn digests(file: &[u8]) -> BlockDigests {
    match End::read(file.len() as u64, file) {
        Ok(End::Digested(digests)) => digests,
        other => panic!("{other:?}"),
    }
}

/// Whether a reader of the whole file notices that it is not what was written.
fn is_refused(file: &[u8]) -> bool {
    match End::read(file.len() as u64, file) {
        Ok(End::Digested(digests)) => digests.verify(0, file).is_err(),
        Ok(End::Foreign | End::Longer(_)) => false,
        Err(_) => true,
    }
}

#[test]
fn every_flipped_bit_is_found() {
    let file = file(40);
    assert!(!is_refused(&file));
    for at in 0..file.len() {
        for bit in 0..8 {
            let mut flipped = file.clone();
            flipped[at] ^= 1 << bit;
            assert!(is_refused(&flipped), "bit {bit} of byte {at} of {}", file.len());
        }
    }
}

#[test]
fn every_flipped_byte_of_many_blocks_is_found_where_it_is() {
    let file = file(100_000);
    let digests = digests(&file);
    assert!(digests.data > 4 * BLOCK_BYTES, "{} bytes of data", digests.data);
    for at in (0..file.len()).step_by(997) {
        let mut flipped = file.clone();
        flipped[at] ^= 0xff;
        let part = digests.part_of(at as u64);
        assert_eq!(digests.verify(0, &flipped), Err(part));
    }
}

#[test]
fn a_part_is_verified_alone() {
    let file = file(100_000);
    let size = file.len() as u64;
    let digests = digests(&file);
    let (block, data) = (BLOCK_BYTES, digests.data);
    for (range, widened) in [
        (0..1, 0..block),
        (block - 1..block, 0..block),
        (block - 1..block + 1, 0..2 * block),
        (block..2 * block, block..2 * block),
        (data - 1..data, data - data % block..data),
        (data - 1..data + 1, data - data % block..size),
        (size - 8..size, data..size),
    ] {
        assert_eq!(digests.widen(&range), widened, "{range:?}");
        let bytes = &file[widened.start as usize..widened.end as usize];
        assert_eq!(digests.verify(widened.start, bytes), Ok(()), "{range:?}");
        // Neither fewer bytes nor those of another place.
        assert!(digests.verify(widened.start, &bytes[1..]).is_err());
        assert!(digests.verify((widened.start + block) % size, bytes).is_err());
    }
    assert_eq!(digests.next_border(0), 0);
    assert_eq!(digests.next_border(1), block);
    assert_eq!(digests.next_border(data), data);
    assert_eq!(digests.next_border(data + 1), size);
}

#[test]
fn the_digests_are_found_in_the_end_of_a_file() {
    let file = file(100_000);
    let size = file.len() as u64;
    let whole = digests(&file);
    let tail = size - whole.data;
    let read = |bytes: u64| End::read(size, &file[(size - bytes) as usize..]).unwrap();
    assert_eq!(read(tail), End::Digested(whole));
    assert_eq!(read(tail - 1), End::Longer(tail));
    assert!(matches!(read(TRAILER as u64), End::Longer(needed) if needed < tail));
}

#[test]
fn a_file_of_another_writer_has_no_digests() {
    let schema = schema();
    let write = |properties: WriterProperties| {
        let mut writer = ArrowWriter::try_new(Vec::new(), schema.file_schema(), Some(properties)).unwrap();
        writer.write(&batch(&schema, 40)).unwrap();
        writer.into_inner().unwrap()
    };
    let foreign = write(WriterProperties::builder().set_created_by("another".to_owned()).build());
    assert_eq!(End::read(foreign.len() as u64, &foreign), Ok(End::Foreign));
    let without = write(WriterProperties::builder().set_created_by(format!("{CREATED_BY} 7")).build());
    assert_eq!(End::read(without.len() as u64, &without), Err("its digests are missing or cannot be read"));
    let unknown = vec![parquet::file::metadata::KeyValue::new(KEY.to_owned(), "2 what".to_owned())];
    let unknown = write(WriterProperties::builder().set_key_value_metadata(Some(unknown)).build());
    assert_eq!(End::read(unknown.len() as u64, &unknown), Err("its digests are missing or cannot be read"));
}

#[test]
fn a_file_that_is_cut_short_is_refused() {
    let file = file(40);
    for length in 0..file.len() {
        assert!(is_refused(&file[..length]), "{length} bytes");
    }
}
