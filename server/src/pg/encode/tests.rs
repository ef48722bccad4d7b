use std::sync::Arc;

use arrow::array::types::{Int32Type, Int64Type, UInt64Type};
use arrow::array::{
    Array as _, ArrayRef, BinaryArray, BinaryViewArray, BooleanArray, Date32Array, Decimal128Array, Decimal256Array,
    DictionaryArray, DurationSecondArray, FixedSizeBinaryArray, Float32Array, Float64Array, Int8Array, Int16Array,
    Int32Array, Int64Array, IntervalMonthDayNanoArray, IntervalYearMonthArray, LargeStringArray, ListArray, NullArray,
    RecordBatch, StringArray, StringViewArray, StructArray, Time64NanosecondArray, TimestampMicrosecondArray,
    TimestampSecondArray, UInt8Array, UInt16Array, UInt32Array, UInt64Array,
};
use arrow::array::{ListBuilder, PrimitiveArray, StringBuilder};
use arrow::datatypes::{DataType, Field, Fields, IntervalMonthDayNano, Schema, i256};
use bytes::{Buf, BytesMut};
use chrono::NaiveDate;

use super::*;

fn write_in(
    field: Field,
    array: ArrayRef,
    row: usize,
    format: Format,
    zone: &str,
) -> Result<Option<Vec<u8>>, SqlError> {
    let schema = Arc::new(Schema::new(vec![field]));
    let batch = RecordBatch::try_new(Arc::clone(&schema), vec![array]).expect("a valid batch");
    let rows = Rows::new(&batch, &columns(&schema, &[format]), Style { zone: Zone::parse(zone), escape_bytes: false })?;
    let mut buf = BytesMut::new();
    rows.write(row, &mut buf)?;
    assert_eq!(buf.get_u8(), b'D');
    assert_eq!(buf.get_i32() as usize, buf.len() + 4);
    assert_eq!(buf.get_u16(), 1);
    let length = buf.get_i32();
    Ok(if length < 0 {
        assert!(buf.is_empty());
        None
    } else {
        assert_eq!(length as usize, buf.len());
        Some(buf.to_vec())
    })
}

fn written(array: ArrayRef, row: usize, format: Format) -> Option<Vec<u8>> {
    let field = Field::new("c", array.data_type().clone(), true);
    write_in(field, array, row, format, "UTC").expect("can be written")
}

fn text(array: impl arrow::array::Array + 'static) -> String {
    let bytes = written(Arc::new(array), 0, Format::Text).expect("not null");
    String::from_utf8(bytes).expect("text is UTF-8")
}

fn binary(array: impl arrow::array::Array + 'static) -> Vec<u8> {
    written(Arc::new(array), 0, Format::Binary).expect("not null")
}

fn oid(data_type: DataType) -> u32 {
    pg_type(&Arc::new(Field::new("c", data_type, true))).oid()
}

#[test]
fn integers() {
    assert_eq!(text(Int8Array::from(vec![-128])), "-128");
    assert_eq!(binary(Int8Array::from(vec![-2])), (-2_i16).to_be_bytes());
    assert_eq!(text(Int16Array::from(vec![i16::MIN])), "-32768");
    assert_eq!(binary(Int16Array::from(vec![i16::MIN])), i16::MIN.to_be_bytes());
    assert_eq!(text(Int32Array::from(vec![i32::MIN])), "-2147483648");
    assert_eq!(text(Int64Array::from(vec![i64::MIN])), "-9223372036854775808");
    assert_eq!(binary(Int64Array::from(vec![i64::MAX])), i64::MAX.to_be_bytes());
    assert_eq!(text(Int64Array::from(vec![0])), "0");
    assert_eq!(text(UInt8Array::from(vec![255])), "255");
    assert_eq!(binary(UInt8Array::from(vec![255])), 255_i16.to_be_bytes());
    assert_eq!(binary(UInt16Array::from(vec![65_535])), 65_535_i32.to_be_bytes());
    assert_eq!(binary(UInt32Array::from(vec![u32::MAX])), i64::from(u32::MAX).to_be_bytes());
    assert_eq!(text(UInt64Array::from(vec![u64::MAX])), "18446744073709551615");
    // 1844 6744 0737 0955 1615, weight 4.
    let groups = [5_u16, 4, 0, 0, 1844, 6744, 737, 955, 1615];
    assert_eq!(binary(UInt64Array::from(vec![u64::MAX])), groups.map(u16::to_be_bytes).concat());
    for (data_type, expected) in [
        (DataType::Int8, 21),
        (DataType::UInt16, 23),
        (DataType::UInt32, 20),
        (DataType::Int64, 20),
        (DataType::UInt64, 1700),
    ] {
        assert_eq!(oid(data_type), expected);
    }
}

#[test]
fn floats_are_the_shortest_that_read_back() {
    for (value, expected) in [
        (0.0, "0"),
        (-0.0, "-0"),
        (1.0, "1"),
        (0.1, "0.1"),
        (-1234.5, "-1234.5"),
        (0.0001, "0.0001"),
        (0.000_012_3, "1.23e-05"),
        (123_456_789_012_345.0, "123456789012345"),
        (1e15, "1e+15"),
        (1.234_567_890_123_456_8e17, "1.2345678901234568e+17"),
        (f64::MAX, "1.7976931348623157e+308"),
        (5e-324, "5e-324"),
        (f64::NAN, "NaN"),
        (f64::NEG_INFINITY, "-Infinity"),
    ] {
        assert_eq!(text(Float64Array::from(vec![value])), expected);
    }
    for (value, expected) in [
        (0.1_f32, "0.1"),
        (123_456.0, "123456"),
        (1e6, "1e+06"),
        (1.5e-5, "1.5e-05"),
        (3.402_823_5e38, "3.4028235e+38"),
    ] {
        assert_eq!(text(Float32Array::from(vec![value])), expected);
    }
    assert_eq!(binary(Float64Array::from(vec![-1.5])), (-1.5_f64).to_be_bytes());
    assert_eq!(binary(Float32Array::from(vec![-1.5])), (-1.5_f32).to_be_bytes());
}

#[test]
fn decimals() {
    let decimal = |value: i128, scale: i8| {
        Decimal128Array::from(vec![value]).with_precision_and_scale(38, scale).expect("a valid scale")
    };
    for (value, scale, expected) in [
        (0, 0, "0"),
        (0, 2, "0.00"),
        (5, 2, "0.05"),
        (-5, 2, "-0.05"),
        (-123_456, 2, "-1234.56"),
        (100, 2, "1.00"),
        (7, -3, "7000"),
        (10_i128.pow(37), 0, "10000000000000000000000000000000000000"),
        (10_i128.pow(36) + 7, 18, "1000000000000000000.000000000000000007"),
    ] {
        assert_eq!(text(decimal(value, scale)), expected);
    }
    let numeric = |groups: &[u16]| groups.iter().flat_map(|group| group.to_be_bytes()).collect::<Vec<_>>();
    // count, weight, sign, scale, groups
    assert_eq!(binary(decimal(0, 2)), numeric(&[0, 0, 0, 2]));
    assert_eq!(binary(decimal(123_450, 2)), numeric(&[2, 0, 0, 2, 1234, 5000]));
    assert_eq!(binary(decimal(-5, 2)), numeric(&[1, 0xffff, 0x4000, 2, 500]));
    assert_eq!(binary(decimal(1, 8)), numeric(&[1, 0xfffe, 0, 8, 1]));
    assert_eq!(binary(decimal(10_000, 0)), numeric(&[1, 1, 0, 0, 1]));
    assert_eq!(binary(decimal(12_345, 0)), numeric(&[2, 1, 0, 0, 1, 2345]));
    assert_eq!(binary(decimal(7, -4)), numeric(&[1, 1, 0, 0, 7]));
    let wide =
        Decimal256Array::from(vec![i256::from_string("-12345678901234567890123456789012345678901").expect("digits")])
            .with_precision_and_scale(60, 1)
            .expect("a valid scale");
    assert_eq!(text(wide), "-1234567890123456789012345678901234567890.1");
    assert_eq!(type_modifier(&DataType::Decimal128(10, 2)), (10 << 16 | 2) + 4);
}

#[test]
fn binary_decimals_hold_the_value_of_the_text() {
    // Read back by the definition: the sum of group · 10000^(weight - index).
    for value in [1_i128, 9, 10, 9999, 10_000, 99_999_999, 123_456_789_012, 10_i128.pow(30) + 1, 10_i128.pow(37) * 9] {
        for scale in 0..38_i8 {
            let mut buf = BytesMut::new();
            number::decimal_binary(value, scale, &mut buf);
            let (count, weight) = (buf.get_i16(), i32::from(buf.get_i16()));
            let (_, display) = (buf.get_u16(), buf.get_i16());
            assert_eq!(display, i16::from(scale));
            let mut digits = String::new();
            for _ in 0..count {
                digits.push_str(&format!("{:04}", buf.get_u16()));
            }
            // digits · 10^(4·(weight + 1) - digits) = value · 10^-scale, compared as digits without trailing zeros.
            let exponent = 4 * (weight + 1) - digits.len() as i32;
            let significant = digits.trim_end_matches('0');
            let exponent = exponent + (digits.len() - significant.len()) as i32;
            let expected = value.to_string();
            let expected_digits = expected.trim_end_matches('0');
            assert_eq!(significant.trim_start_matches('0'), expected_digits, "{value} scale {scale}");
            assert_eq!(exponent, (expected.len() - expected_digits.len()) as i32 - i32::from(scale));
        }
    }
}

#[test]
fn booleans_text_and_bytes() {
    assert_eq!(text(BooleanArray::from(vec![true])), "t");
    assert_eq!(text(BooleanArray::from(vec![false])), "f");
    assert_eq!(binary(BooleanArray::from(vec![true])), [1]);
    assert_eq!(text(StringArray::from(vec!["né"])), "né");
    assert_eq!(text(LargeStringArray::from(vec![""])), "");
    assert_eq!(text(StringViewArray::from(vec!["a view that is longer than twelve bytes"])).len(), 39);
    assert_eq!(binary(StringViewArray::from(vec!["x"])), b"x");
    assert_eq!(text(BinaryArray::from(vec![&b"\x00\xab\xff"[..]])), "\\x00abff");
    assert_eq!(binary(BinaryViewArray::from(vec![&b"\x00\xff"[..]])), [0, 255]);
    let fixed = FixedSizeBinaryArray::try_from_iter([[1_u8, 2]].into_iter()).expect("one size");
    assert_eq!(text(fixed), "\\x0102");
    let dictionary: DictionaryArray<Int32Type> = vec!["paid"].into_iter().collect();
    assert_eq!(oid(dictionary.data_type().clone()), 25);
    assert_eq!(text(dictionary), "paid");
    assert_eq!(oid(DataType::Utf8View), 25);
    assert_eq!(oid(DataType::BinaryView), 17);
}

#[test]
fn bytes_in_the_older_form() {
    let schema = Arc::new(Schema::new(vec![Field::new("c", DataType::Binary, true)]));
    let array: ArrayRef = Arc::new(BinaryArray::from(vec![&b"a\\\x01\xff"[..]]));
    let batch = RecordBatch::try_new(Arc::clone(&schema), vec![array]).expect("a valid batch");
    let style = Style { zone: Zone::Utc, escape_bytes: true };
    let rows = Rows::new(&batch, &columns(&schema, &[]), style).expect("can be prepared");
    let mut buf = BytesMut::new();
    rows.write(0, &mut buf).expect("can be written");
    assert_eq!(&buf[11..], br"a\\\001\377");
}

#[test]
fn nulls_of_every_kind() {
    for format in [Format::Text, Format::Binary] {
        assert_eq!(written(Arc::new(NullArray::new(1)), 0, format), None);
        assert_eq!(written(Arc::new(Int64Array::from(vec![Some(1), None])), 1, format), None);
        assert_eq!(written(Arc::new(StringViewArray::from(vec![None::<&str>])), 0, format), None);
        let interval: ArrayRef = Arc::new(IntervalMonthDayNanoArray::from(vec![None]));
        assert_eq!(written(interval, 0, format), None);
        let dictionary: DictionaryArray<Int32Type> = vec![Some("a"), None].into_iter().collect();
        assert_eq!(written(Arc::new(dictionary), 1, format), None);
    }
}

fn day(year: i32, month: u32, day: u32) -> i32 {
    let date = NaiveDate::from_ymd_opt(year, month, day).expect("a date");
    date.signed_duration_since(NaiveDate::default()).num_days() as i32
}

#[test]
fn dates() {
    for (value, expected) in [
        (day(1970, 1, 1), "1970-01-01"),
        (day(2000, 2, 29), "2000-02-29"),
        (day(1900, 3, 1), "1900-03-01"),
        (day(9999, 12, 31), "9999-12-31"),
        (day(12_345, 1, 2), "12345-01-02"),
        (day(1, 1, 1), "0001-01-01"),
        (day(0, 12, 31), "0001-12-31 BC"),
        (day(-43, 3, 15), "0044-03-15 BC"),
    ] {
        assert_eq!(text(Date32Array::from(vec![value])), expected);
    }
    assert_eq!(binary(Date32Array::from(vec![day(2000, 1, 2)])), 1_i32.to_be_bytes());
    // Every day of eight centuries, against chrono.
    for days in day(1600, 1, 1)..day(2400, 1, 1) {
        let mut buf = BytesMut::new();
        datetime::date_text(i64::from(days), &mut buf);
        let expected = NaiveDate::default() + chrono::Duration::days(i64::from(days));
        assert_eq!(buf, expected.to_string().as_bytes());
    }
}

#[test]
fn times_and_timestamps() {
    const NOON: i64 = 1_795_953_600_000_000; // 2026-11-29 12:00:00
    assert_eq!(text(Time64NanosecondArray::from(vec![45_296_000_700_000])), "12:34:56.0007");
    assert_eq!(text(TimestampMicrosecondArray::from(vec![NOON])), "2026-11-29 12:00:00");
    assert_eq!(text(TimestampMicrosecondArray::from(vec![NOON + 120])), "2026-11-29 12:00:00.00012");
    assert_eq!(text(TimestampMicrosecondArray::from(vec![-1])), "1969-12-31 23:59:59.999999");
    assert_eq!(text(TimestampSecondArray::from(vec![NOON / 1_000_000])), "2026-11-29 12:00:00");
    assert_eq!(binary(TimestampMicrosecondArray::from(vec![946_684_800_000_001])), 1_i64.to_be_bytes());
    let zoned = |zone: &str, micros: i64| {
        let array = TimestampMicrosecondArray::from(vec![micros]).with_timezone("UTC");
        let field = Field::new("c", array.data_type().clone(), true);
        let bytes = write_in(field, Arc::new(array), 0, Format::Text, zone).expect("can be written").expect("not null");
        String::from_utf8(bytes).expect("text is UTF-8")
    };
    assert_eq!(zoned("UTC", NOON), "2026-11-29 12:00:00+00");
    assert_eq!(zoned("Europe/Berlin", NOON), "2026-11-29 13:00:00+01");
    assert_eq!(zoned("Asia/Kolkata", NOON), "2026-11-29 17:30:00+05:30");
    assert_eq!(zoned("-03:30", NOON), "2026-11-29 08:30:00-03:30");
    assert_eq!(zoned("America/New_York", 0), "1969-12-31 19:00:00-05");
    let far = TimestampMicrosecondArray::from(vec![i64::MIN]);
    let field = Field::new("c", far.data_type().clone(), true);
    let error = write_in(field, Arc::new(far), 0, Format::Binary, "UTC").expect_err("out of range");
    assert_eq!(error.sqlstate, "22008");
    assert_eq!(oid(DataType::Timestamp(arrow::datatypes::TimeUnit::Microsecond, Some("UTC".into()))), 1184);
}

#[test]
fn intervals() {
    let interval = |months, days, micros: i64| {
        text(IntervalMonthDayNanoArray::from(vec![IntervalMonthDayNano::new(months, days, micros * 1_000)]))
    };
    assert_eq!(interval(14, 3, 14_706_700_000), "1 year 2 mons 3 days 04:05:06.7");
    assert_eq!(interval(0, 0, 0), "00:00:00");
    assert_eq!(interval(0, 1, 0), "1 day");
    assert_eq!(interval(-1, 2, -1_000_000), "-1 mons +2 days -00:00:01");
    assert_eq!(interval(0, -2, 3_600_000_000), "-2 days +01:00:00");
    assert_eq!(text(IntervalYearMonthArray::from(vec![25])), "2 years 1 mon");
    assert_eq!(text(DurationSecondArray::from(vec![90_061])), "25:01:01");
    let bytes = binary(IntervalMonthDayNanoArray::from(vec![IntervalMonthDayNano::new(1, 2, 3_000)]));
    assert_eq!(bytes, [&3_i64.to_be_bytes()[..], &2_i32.to_be_bytes(), &1_i32.to_be_bytes()].concat());
}

#[test]
fn lists() {
    let numbers = ListArray::from_iter_primitive::<Int64Type, _, _>([Some(vec![Some(1), None, Some(-3)])]);
    assert_eq!(oid(numbers.data_type().clone()), 1016);
    assert_eq!(text(numbers.clone()), "{1,NULL,-3}");
    let mut expected = Vec::new();
    for word in [1_i32, 1, 20, 3, 1, 8] {
        expected.extend_from_slice(&word.to_be_bytes());
    }
    expected.extend_from_slice(&1_i64.to_be_bytes());
    expected.extend_from_slice(&(-1_i32).to_be_bytes());
    expected.extend_from_slice(&8_i32.to_be_bytes());
    expected.extend_from_slice(&(-3_i64).to_be_bytes());
    assert_eq!(binary(numbers), expected);

    let mut builder = ListBuilder::new(StringBuilder::new());
    for item in ["a", "", "null", "two words", "q\"\\", "{}"] {
        builder.values().append_value(item);
    }
    builder.append(true);
    assert_eq!(text(builder.finish()), r#"{a,"","null","two words","q\"\\","{}"}"#);

    let empty = ListArray::from_iter_primitive::<UInt64Type, _, _>([Some(Vec::<Option<u64>>::new())]);
    assert_eq!(oid(empty.data_type().clone()), 1231);
    assert_eq!(text(empty.clone()), "{}");
    assert_eq!(binary(empty), [0_i32, 0, 1700].map(i32::to_be_bytes).concat());
}

#[test]
fn lists_of_lists_are_rectangles() {
    let nested = |rows: [Vec<i32>; 2]| {
        let mut builder = ListBuilder::new(ListBuilder::new(PrimitiveArray::<Int32Type>::builder(4)));
        for row in rows {
            builder.values().values().append_slice(&row);
            builder.values().append(true);
        }
        builder.append(true);
        builder.finish()
    };
    let square = nested([vec![1, 2], vec![3, 4]]);
    assert_eq!(oid(square.data_type().clone()), 1007);
    assert_eq!(text(square.clone()), "{{1,2},{3,4}}");
    let mut expected = Vec::new();
    for word in [2_i32, 0, 23, 2, 1, 2, 1] {
        expected.extend_from_slice(&word.to_be_bytes());
    }
    for value in 1_i32..=4 {
        expected.extend_from_slice(&4_i32.to_be_bytes());
        expected.extend_from_slice(&value.to_be_bytes());
    }
    assert_eq!(binary(square), expected);
    let ragged = nested([vec![1, 2], vec![3]]);
    let field = Field::new("c", ragged.data_type().clone(), true);
    let error = write_in(field, Arc::new(ragged), 0, Format::Binary, "UTC").expect_err("not a rectangle");
    assert_eq!(error.sqlstate, "2202E");
}

#[test]
fn records() {
    let fields = Fields::from(vec![
        Field::new("a", DataType::Int32, true),
        Field::new("b", DataType::Utf8, true),
        Field::new("c", DataType::Utf8, true),
    ]);
    let record = StructArray::new(
        fields,
        vec![
            Arc::new(Int32Array::from(vec![1])),
            Arc::new(StringArray::from(vec!["x, \"y\""])),
            Arc::new(StringArray::from(vec![None::<&str>])),
        ],
        None,
    );
    assert_eq!(oid(record.data_type().clone()), 2249);
    assert_eq!(text(record.clone()), r#"(1,"x, ""y""",)"#);
    let bytes = binary(record);
    assert_eq!(&bytes[..16], [3_i32, 23, 4, 1].map(i32::to_be_bytes).concat());
    assert_eq!(&bytes[bytes.len() - 8..], [25_i32, -1].map(i32::to_be_bytes).concat());
}

#[test]
fn object_ids_and_single_characters() {
    let tagged = |data_type, key: &str, value: &str| {
        Field::new("c", data_type, true).with_metadata([(key.to_owned(), value.to_owned())].into())
    };
    let oid_field = tagged(DataType::Int32, "pg.oid_alias", "oid");
    assert_eq!(pg_type(&Arc::new(oid_field.clone())).oid(), 26);
    let array: ArrayRef = Arc::new(Int32Array::from(vec![-1]));
    let text = write_in(oid_field.clone(), Arc::clone(&array), 0, Format::Text, "UTC");
    assert_eq!(text, Ok(Some(b"4294967295".to_vec())));
    assert_eq!(write_in(oid_field, array, 0, Format::Binary, "UTC"), Ok(Some(vec![255; 4])));
    let char_field = tagged(DataType::Utf8, "pg.char", "true");
    assert_eq!(pg_type(&Arc::new(char_field.clone())).oid(), 18);
    let array: ArrayRef = Arc::new(StringArray::from(vec!["r"]));
    assert_eq!(write_in(char_field.clone(), Arc::clone(&array), 0, Format::Text, "UTC"), Ok(Some(b"r".to_vec())));
    assert_eq!(write_in(char_field, array, 0, Format::Binary, "UTC"), Ok(Some(b"r".to_vec())));
}

#[test]
fn formats_of_a_bind_message() {
    assert_eq!(spread_formats(&[], 2, "result"), Ok(vec![Format::Text; 2]));
    assert_eq!(spread_formats(&[1], 2, "result"), Ok(vec![Format::Binary; 2]));
    assert_eq!(spread_formats(&[0, 1], 2, "result"), Ok(vec![Format::Text, Format::Binary]));
    assert_eq!(spread_formats(&[0, 1], 3, "result").map_err(|error| error.sqlstate), Err("08P01"));
    assert_eq!(spread_formats(&[2], 1, "result").map_err(|error| error.sqlstate), Err("22023"));
}
