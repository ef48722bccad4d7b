use super::*;

/// A table map's definition: types, their metadata, optional metadata.
fn columns(kinds: &[u8], meta: &[u8], optional: &[u8]) -> Result<Vec<MapColumn>, DecodeError> {
    let mut definition = vec![kinds.len() as u8];
    definition.extend_from_slice(kinds);
    definition.push(meta.len() as u8);
    definition.extend_from_slice(meta);
    definition.resize(definition.len() + kinds.len().div_ceil(8), 0xff);
    definition.extend_from_slice(optional);
    TableMap { table_id: 1, database: "d".to_owned(), table: "t".to_owned(), definition }.columns()
}

fn kind(kind: u8, meta: &[u8]) -> Result<Kind, DecodeError> {
    columns(&[kind], meta, &[]).map(|c| c[0].kind)
}

#[test]
fn types_and_their_metadata() {
    assert_eq!(kind(15, &[0x2c, 1]), Ok(Kind::Varchar { bytes: 300 }));
    assert_eq!(kind(246, &[10, 2]), Ok(Kind::Decimal { precision: 10, scale: 2 }));
    assert_eq!(kind(16, &[2, 1]), Ok(Kind::Bit { bits: 10 }));
    assert_eq!(kind(18, &[6]), Ok(Kind::DateTime { fsp: 6 }));
    assert_eq!(kind(252, &[3]), Ok(Kind::Blob { length_bytes: 3 }));
    assert_eq!(kind(245, &[4]), Ok(Kind::Json { length_bytes: 4 }));
    assert_eq!(kind(254, &[247, 2]), Ok(Kind::Enum { bytes: 2 }));
    assert_eq!(kind(254, &[248, 8]), Ok(Kind::Set { bytes: 8 }));
    assert_eq!(kind(254, &[254, 40]), Ok(Kind::String { bytes: 40 }));
    // CHAR(255) of four bytes each: 1020 = 0x3fc, the high bits inverted in the type.
    assert_eq!(kind(254, &[254 & !0x30, 0xfc]), Ok(Kind::String { bytes: 0x3fc }));
    assert_eq!(kind(254, &[254 & !0x10, 0x00]), Ok(Kind::String { bytes: 0x100 }));
}

#[test]
fn types_that_are_not_known_or_impossible() {
    for (number, meta) in [
        (6, &[][..]),
        (20, &[]),
        (99, &[]),
        (246, &[66, 0]),
        (246, &[5, 6]),
        (16, &[1, 8]),
        (16, &[0, 0]),
        (18, &[7]),
        (252, &[5]),
        (254, &[247, 3]),
        (254, &[0xff, 1]),
    ] {
        assert!(matches!(kind(number, meta), Err(DecodeError::Malformed(_))), "{number}");
    }
    assert_eq!(kind(15, &[1]), Err(DecodeError::Truncated));
    assert_eq!(columns(&[3], &[], &[4, 9, 1]), Err(DecodeError::Truncated));
}

#[test]
fn optional_metadata() {
    // INT, VARCHAR, BIGINT, VARCHAR, TEXT, ENUM, SET.
    let optional = [
        // Signedness of the two numbers, from the highest bit: signed, unsigned.
        &[1, 1, 0x40][..],
        // Text in utf8mb4 (255), but the second in latin1 (8).
        &[2, 5, 252, 255, 0, 1, 8],
        // Enum and set in latin1, the second in 255.
        &[11, 4, 8, 252, 255, 0],
        &[4, 14, 1, b'a', 1, b'b', 1, b'c', 1, b'd', 1, b'e', 1, b'f', 1, b'g'],
        &[5, 5, 2, 1, b'x', 1, b'y'],
        &[6, 3, 1, 1, b'z'],
        // A field that no reader of today knows.
        &[77, 2, 1, 2],
    ]
    .concat();
    let columns = columns(&[3, 15, 8, 15, 252, 254, 254], &[10, 0, 10, 0, 2, 247, 1, 248, 1], &optional).unwrap();
    let collations: Vec<_> = columns.iter().map(|c| c.collation).collect();
    assert_eq!(collations, [None, Some(255), None, Some(8), Some(255), Some(8), Some(255)]);
    let unsigned: Vec<_> = columns.iter().map(|c| c.unsigned).collect();
    assert_eq!(unsigned, [Some(false), None, Some(true), None, None, None, None]);
    assert_eq!(columns[6].name.as_deref(), Some(&b"g"[..]));
    assert_eq!(columns[6].labels.as_deref(), Some(&[b"x".to_vec(), b"y".to_vec()][..]));
    assert_eq!(columns[5].labels.as_deref(), Some(&[b"z".to_vec()][..]));
}
