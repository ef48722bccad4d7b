use super::*;

fn data_type(text: &str) -> DataType {
    text.parse().unwrap()
}

#[test]
fn every_value_has_one_text() {
    for (type_text, text) in [
        ("BOOLEAN", "true"),
        ("TINYINT", "-128"),
        ("SMALLINT", "32767"),
        ("INT", "0"),
        ("BIGINT", "-9223372036854775808"),
        ("FLOAT", "0.1"),
        ("FLOAT", "3.4028235e38"),
        ("DOUBLE", "-0.0"),
        ("DOUBLE", "5e-324"),
        ("DECIMAL(20, 0)", "18446744073709551615"),
        ("DECIMAL(38, 38)", "-0.99999999999999999999999999999999999999"),
        ("DECIMAL(12, 2)", "1234567890.50"),
        ("VARCHAR(5)", "Größe"),
        ("CHAR(3)", ""),
        ("STRING", " \"quoted\"\n\u{1f600}'"),
        ("BINARY(3)", "00ff10"),
        ("VARBINARY(3)", ""),
        ("BYTES", "deadbeef"),
        ("DATE", "0001-01-01"),
        ("DATE", "9999-12-31"),
        ("TIMESTAMP(6)", "1969-12-31 23:59:59.999999"),
        ("TIMESTAMP(6)", "0001-01-01 00:00:00.000001"),
        ("TIMESTAMP(6)", "9999-12-31 23:59:59.999999"),
        ("TIMESTAMP(4)", "2024-02-29 12:30:00.123400"),
        ("TIMESTAMP(6) WITH LOCAL TIME ZONE", "2024-02-29 12:30:00.000000Z"),
    ] {
        let data_type = data_type(type_text);
        let array = value(&data_type, text).unwrap_or_else(|error| panic!("{type_text}: {error}"));
        assert_eq!((array.len(), array.data_type()), (1, &data_type.arrow()), "{type_text} {text}");
        assert_eq!(print(&data_type, &array).unwrap(), text, "{type_text}");
        assert_eq!(canonical(&data_type, text).unwrap(), text, "{type_text}");
    }
    for (type_text, text, expected) in [
        ("INT", "+007", "7"),
        ("DOUBLE", "5", "5.0"),
        ("DOUBLE", "1000000000000000000000", "1e21"),
        ("DECIMAL(4, 2)", "1.5", "1.50"),
        ("DECIMAL(4, 2)", "-0", "0.00"),
        ("BYTES", "ABcd", "abcd"),
        ("TIMESTAMP(6)", "2024-02-29 12:30:00", "2024-02-29 12:30:00.000000"),
        ("TIMESTAMP(6) WITH LOCAL TIME ZONE", "2024-02-29 12:30:00.5Z", "2024-02-29 12:30:00.500000Z"),
    ] {
        assert_eq!(canonical(&data_type(type_text), text).unwrap(), expected, "{type_text} {text}");
    }
}

#[test]
fn what_is_not_exactly_a_value_is_refused() {
    for (type_text, text) in [
        ("BOOLEAN", "1"),
        ("TINYINT", "128"),
        ("INT", "1.0"),
        ("INT", " 1"),
        ("INT", ""),
        ("FLOAT", "1e39"),
        ("DOUBLE", "NaN"),
        ("DOUBLE", "inf"),
        ("DECIMAL(4, 2)", "100"),
        ("DECIMAL(4, 2)", "0.005"),
        ("DECIMAL(4, 2)", ".5"),
        ("DECIMAL(4, 2)", "1e1"),
        ("DECIMAL(4, 2)", "--1"),
        ("DECIMAL(38, 0)", "170141183460469231731687303715884105728"),
        ("VARCHAR(3)", "four"),
        ("BINARY(2)", "00"),
        ("VARBINARY(1)", "0000"),
        ("BYTES", "0"),
        ("BYTES", "0g"),
        ("BYTES", "\u{e9}"),
        ("DATE", "2023-02-29"),
        ("DATE", "0000-00-00"),
        ("DATE", "2024-1-1"),
        ("DATE", "20240101"),
        ("DATE", "2024-01-01 00:00:00"),
        ("TIMESTAMP(6)", "2024-01-01"),
        ("TIMESTAMP(6)", "2024-01-01T00:00:00"),
        ("TIMESTAMP(6)", "2024-01-01 24:00:00"),
        ("TIMESTAMP(6)", "2024-01-01 1:00:00"),
        ("TIMESTAMP(6)", "2024-01-01 01:00"),
        ("TIMESTAMP(6)", "2024-01-01 01:00:00:00"),
        ("TIMESTAMP(6)", "2024-01-01 01:00:00."),
        ("TIMESTAMP(6)", "2024-01-01 01:00:00.-1"),
        ("TIMESTAMP(6)", "2024-02-30 01:00:00"),
        ("TIMESTAMP(6)", "2024-01-01 00:00:00Z"),
        ("TIMESTAMP(6)", "2024-01-01 00:00:00.1234567"),
        ("TIMESTAMP(4)", "2024-01-01 00:00:00.00001"),
        ("TIMESTAMP(6) WITH LOCAL TIME ZONE", "2024-01-01 00:00:00"),
        ("TIMESTAMP(6) WITH LOCAL TIME ZONE", "2024-01-01 00:00:00+01:00Z"),
    ] {
        let error = value(&data_type(type_text), text).expect_err(type_text).to_string();
        assert!(error.contains(type_text) && error.contains(&format!("{text:?}")), "{error}");
    }
}

#[test]
fn a_wider_type_has_the_value_that_stored_rows_have() {
    for (from, to, text, expected) in [
        ("TINYINT", "BIGINT", "-5", "-5"),
        ("INT", "DECIMAL(12, 2)", "7", "7.00"),
        // The bits of the FLOAT, as a stored 0.1 is read; not the DOUBLE nearest to 0.1.
        ("FLOAT", "DOUBLE", "0.1", "0.10000000149011612"),
        ("DECIMAL(4, 2)", "DECIMAL(10, 4)", "-1.50", "-1.5000"),
        ("CHAR(3)", "STRING", "abc", "abc"),
        ("BINARY(2)", "BYTES", "00ff", "00ff"),
        ("DATE", "TIMESTAMP(6)", "1969-12-31", "1969-12-31 00:00:00.000000"),
        ("TIMESTAMP(4)", "TIMESTAMP(6)", "2024-01-01 00:00:00.123400", "2024-01-01 00:00:00.123400"),
    ] {
        let (from, to) = (data_type(from), data_type(to));
        assert!(from.widens_to(&to));
        assert_eq!(widened(&from, &to, text).unwrap(), expected, "{from} to {to}");
    }
}
