use super::*;

fn index_file() -> (Vec<u8>, Vec<DeletionVectorMeta>, Vec<(String, RoaringBitmap)>) {
    let scattered: RoaringBitmap = [0, 7, 65_536, u32::MAX].into_iter().collect();
    let run: RoaringBitmap = (100..300).collect();
    let dense: RoaringBitmap = (0..200_000).step_by(3).collect();
    let vectors =
        vec![("a.parquet".to_owned(), scattered), ("b.parquet".to_owned(), run), ("c.parquet".to_owned(), dense)];
    let (bytes, metas) =
        encode_index_file(&vectors.iter().map(|(name, bitmap)| (name.clone(), bitmap)).collect::<Vec<_>>()).unwrap();
    (bytes, metas, vectors)
}

#[test]
fn vectors_survive_a_round_trip() {
    let (bytes, metas, vectors) = index_file();
    assert_eq!(metas[0].offset, 1);
    assert_eq!(metas[1].offset, metas[0].offset + metas[0].length + 8);
    assert_eq!(metas[1].cardinality, Some(200));
    assert_eq!(decode_index_file("index/i", &bytes, &metas).unwrap(), vectors);
    assert_eq!(decode_index_file("index/i", &bytes, &metas[1..2]).unwrap(), vectors[1..2]);
}

#[test]
fn a_bucket_without_vectors_is_one_byte() {
    let (bytes, metas) = encode_index_file(&[]).unwrap();
    assert_eq!((bytes.as_slice(), metas.len()), (&[1_u8][..], 0));
    assert!(decode_index_file("index/i", &bytes, &[]).unwrap().is_empty());
    assert!(decode_index_file("index/i", &[], &[]).is_err());
}

#[test]
fn every_flipped_bit_is_found() {
    let (mut bytes, metas, _) = index_file();
    let tail = bytes.len() - 20;
    // The third vector's bitmap is long; its beginning and end stand for it.
    for offset in (0..600).chain(tail..bytes.len()) {
        for bit in 0..8 {
            bytes[offset] ^= 1 << bit;
            let error = decode_index_file("t/index/i-0", &bytes, &metas).expect_err("a flipped bit");
            assert_eq!(error.kind(), crate::ErrorKind::Corrupt, "bit {bit} of byte {offset}");
            assert!(error.to_string().contains("t/index/i-0"), "{error}");
            bytes[offset] ^= 1 << bit;
        }
    }
}

#[test]
fn a_manifest_that_disagrees_with_the_file_is_found() {
    let (bytes, metas, _) = index_file();
    type Change = fn(&mut DeletionVectorMeta);
    let cases: [(Change, &str); 5] = [
        (|meta| meta.offset = -1, "negative"),
        (|meta| meta.length = -1, "negative"),
        (|meta| meta.offset = i32::MAX, "shorter"),
        (|meta| meta.length += 8, "not the manifest's"),
        (|meta| meta.cardinality = Some(1), "not as many rows"),
    ];
    for (change, what) in cases {
        let mut meta = metas[1].clone();
        change(&mut meta);
        let error = decode_index_file("i", &bytes, &[meta]).expect_err(what).to_string();
        assert!(error.contains(what), "{error}");
    }
    for length in [1, 5, 9, bytes.len() - 1] {
        assert!(decode_index_file("i", &bytes[..length], &metas).is_err(), "cut at {length}");
    }
}

/// A vector as `deletion-vectors.bitmap64` has other engines write it.
#[test]
fn vectors_of_64_bits_are_read() {
    let encoded = |wide: &RoaringTreemap| {
        let mut payload = MAGIC_64.to_vec();
        wide.serialize_into(&mut payload).unwrap();
        let mut file = vec![VERSION];
        file.extend((payload.len() as u32).to_be_bytes());
        file.extend(&payload);
        file.extend(crc32fast::hash(&payload).to_be_bytes());
        let meta = DeletionVectorMeta {
            data_file: "data".into(),
            offset: 1,
            length: payload.len() as i32 + 8,
            cardinality: Some(wide.len() as i64),
        };
        (file, meta)
    };
    let rows = [0, 7, 70_000, u64::from(u32::MAX)];
    let (file, meta) = encoded(&rows.into_iter().collect());
    let read = decode_index_file("index", &file, [&meta]).unwrap();
    assert_eq!(read[0].1.iter().map(u64::from).collect::<Vec<_>>(), rows);
    let (file, meta) = encoded(&[1, 1 << 32].into_iter().collect());
    let error = decode_index_file("index", &file, [&meta]).unwrap_err().to_string();
    assert!(error.contains("rows that no file has"), "{error}");
}

/// The bytes of an index file as Java Paimon 1.3.1 wrote them.
#[test]
fn a_vector_of_64_bits_by_java_is_read() {
    let file = [
        1, 0, 0, 0, 0x24, 0xd1, 0xd3, 0x39, 0x64, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x3a, 0x30, 0, 0, 1, 0, 0, 0, 0,
        0, 1, 0, 0x10, 0, 0, 0, 1, 0, 2, 0, 0x71, 0x2f, 0xa6, 0xe8,
    ];
    let meta = DeletionVectorMeta { data_file: "data".into(), offset: 1, length: 44, cardinality: Some(2) };
    let read = decode_index_file("index", &file, [&meta]).unwrap();
    assert_eq!(read[0].1.iter().collect::<Vec<_>>(), [1, 2]);
}
