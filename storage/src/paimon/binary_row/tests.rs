use super::*;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// One column of each type: a value and a NULL.
fn samples() -> Vec<(DataType, ArrayRef)> {
    let decimal = |value, precision, scale| -> ArrayRef {
        Arc::new(Decimal128Array::from(vec![Some(value), None]).with_precision_and_scale(precision, scale).unwrap())
    };
    vec![
        (DataType::Boolean, Arc::new(BooleanArray::from(vec![Some(true), None]))),
        (DataType::TinyInt, Arc::new(Int8Array::from(vec![Some(-2), None]))),
        (DataType::SmallInt, Arc::new(Int16Array::from(vec![Some(-3), None]))),
        (DataType::Int, Arc::new(Int32Array::from(vec![Some(-4), None]))),
        (DataType::BigInt, Arc::new(Int64Array::from(vec![Some(-5), None]))),
        (DataType::Float, Arc::new(Float32Array::from(vec![Some(1.5), None]))),
        (DataType::Double, Arc::new(Float64Array::from(vec![Some(-2.5), None]))),
        (DataType::Decimal { precision: 18, scale: 2 }, decimal(-12345, 18, 2)),
        (DataType::Decimal { precision: 20, scale: 0 }, decimal(u64::MAX.into(), 20, 0)),
        (DataType::Decimal { precision: 38, scale: 5 }, decimal(-(10_i128.pow(37)), 38, 5)),
        (DataType::Varchar(9), Arc::new(StringArray::from(vec![Some("é✓"), None]))),
        (DataType::String, Arc::new(StringArray::from(vec![Some("RETURNED_TO_SENDER"), None]))),
        (DataType::Varbinary(8), Arc::new(BinaryArray::from(vec![Some(&[0_u8, 1, 2, 3, 4, 5, 6][..]), None]))),
        (DataType::Bytes, Arc::new(BinaryArray::from(vec![Some(&[0xff_u8; 8][..]), None]))),
        (DataType::Date, Arc::new(Date32Array::from(vec![Some(-1), None]))),
        (DataType::Timestamp(6), Arc::new(TimestampMicrosecondArray::from(vec![Some(-1), None]))),
        (DataType::Timestamp(3), Arc::new(TimestampMicrosecondArray::from(vec![Some(-2000), None]))),
        (
            DataType::TimestampLtz(6),
            Arc::new(TimestampMicrosecondArray::from(vec![Some(1_767_225_600_000_001), None]).with_timezone("UTC")),
        ),
    ]
}

#[test]
fn slots_hold_what_the_format_says() {
    for (data_type, array, expected) in [
        // NULL bits, slot, and for what does not fit, the variable part.
        (DataType::Int, 3, "0000000000000000 fcffffff00000000"),
        (DataType::Decimal { precision: 18, scale: 2 }, 7, "0000000000000000 c7cfffffffffffff"),
        // Unscaled, big endian and as short as can be: a leading zero byte keeps the number positive.
        (
            DataType::Decimal { precision: 20, scale: 0 },
            8,
            "0000000000000000 0900000010000000 00ffffffffffffffff00000000000000",
        ),
        (DataType::Varchar(9), 10, "0000000000000000 c3a9e29c93000085"),
        (DataType::Varbinary(8), 12, "0000000000000000 0001020304050687"),
        (DataType::Bytes, 13, "0000000000000000 0800000010000000 ffffffffffffffff"),
        // One microsecond before 1970: the millisecond before, and 999,000 nanoseconds into it.
        (DataType::Timestamp(6), 15, "0000000000000000 583e0f0010000000 ffffffffffffffff"),
        (DataType::Timestamp(3), 16, "0000000000000000 feffffffffffffff"),
    ] {
        let (sample_type, sample) = &samples()[array];
        assert_eq!(*sample_type, data_type);
        let row = encode(&[data_type], std::slice::from_ref(sample), 0).unwrap();
        assert_eq!(hex(&row), expected.replace(' ', ""), "{sample_type}");
    }
}

#[test]
fn nulls_keep_the_place_of_values_that_may_be_set_later() {
    for (index, expected) in [
        (3, "0001000000000000 0000000000000000"),
        (8, "0001000000000000 0000000010000000 00000000000000000000000000000000"),
        (15, "0001000000000000 0000000010000000 0000000000000000"),
        (11, "0001000000000000 0000000000000000"),
    ] {
        let (data_type, array) = &samples()[index];
        let row = encode(std::slice::from_ref(data_type), std::slice::from_ref(array), 1).unwrap();
        assert_eq!(hex(&row), expected.replace(' ', ""), "{data_type}");
    }
}

#[test]
fn rows_of_all_types_decode_to_what_was_encoded() {
    // So many columns that the NULL bits take more than one word.
    let columns: Vec<_> = std::iter::repeat_with(samples).take(4).flatten().collect();
    let (types, arrays): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
    assert_eq!(null_bytes(types.len()), 16);
    for row in [0, 1] {
        let serialized = serialize(&types, &arrays, row).unwrap();
        assert_eq!((serialized.len() - 4) % 8, 0, "hashes are over whole words");
        let decoded = decode("test", &types, &serialized).unwrap();
        for ((data_type, array), decoded) in types.iter().zip(&arrays).zip(&decoded) {
            assert_eq!(decoded.data_type(), &data_type.arrow());
            assert_eq!(decoded, &array.slice(row, 1), "{data_type}");
        }
    }
}

#[test]
fn a_row_cut_short_is_named() {
    let (types, arrays): (Vec<_>, Vec<_>) = samples().into_iter().unzip();
    let serialized = serialize(&types, &arrays, 0).unwrap();
    for length in 0..serialized.len() {
        // The last string's padding may be missing without harm; everything else may not.
        if let Err(error) = decode("manifest/m-0", &types, &serialized[..length]) {
            assert!(error.to_string().contains("manifest/m-0"), "{error}");
        } else {
            assert!(length > serialized.len() - 8, "cut at {length} of {}", serialized.len());
        }
    }
    let error = decode("manifest/m-0", &types[1..], &serialized).unwrap_err();
    assert_eq!(error.kind(), crate::ErrorKind::Corrupt);
}

#[test]
fn columns_of_another_type_are_refused() {
    let column: ArrayRef = Arc::new(Int32Array::from(vec![1]));
    let error = encode(&[DataType::BigInt], std::slice::from_ref(&column), 0).unwrap_err();
    assert_eq!(error.to_string(), "a column of type BIGINT is held as Int32");
    assert!(encode(&[], &[column], 0).is_err());
    assert_eq!(serialize(&[], &[], 0).unwrap(), EMPTY_ROW);
}
