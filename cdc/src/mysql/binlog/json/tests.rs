use super::*;

fn printed(document: &[u8]) -> Result<String, ValueError> {
    let mut data = Vec::new();
    write(document, &mut TextSink::over(&mut data))?;
    Ok(String::from_utf8(data).unwrap())
}

fn double(value: f64) -> String {
    let mut data = Vec::new();
    write_double(&mut TextSink::over(&mut data), value);
    String::from_utf8(data).unwrap()
}

#[test]
fn doubles_as_the_server_prints_them() {
    for (value, text) in [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (-1.5, "-1.5"),
        (1e14, "100000000000000.0"),
        (1e15, "1e15"),
        (123_456_789_012_345.6, "123456789012345.6"),
        (1_234_567_890_123_456.8, "1234567890123456.8"),
        (1e-14, "0.00000000000001"),
        (1e-15, "0.000000000000001"),
        (1e-16, "1e-16"),
        (1.5e-20, "1.5e-20"),
        (1.797_693_134_862_315_7e308, "1.7976931348623157e308"),
        (5e-324, "5e-324"),
        (0.1 + 0.2, "0.30000000000000004"),
    ] {
        assert_eq!(double(value), text);
    }
}

#[test]
fn small_documents() {
    assert_eq!(printed(&[]).unwrap(), "null");
    assert_eq!(printed(&[4, 1]).unwrap(), "true");
    assert_eq!(printed(&[5, 0xff, 0xff]).unwrap(), "-1");
    assert_eq!(printed(&[0, 0, 0, 4, 0]).unwrap(), "{}");
    assert_eq!(printed(&[2, 1, 0, 7, 0, 4, 0, 0]).unwrap(), "[null]");
    assert_eq!(printed(&[12, 3, b'a', b'"', 7]).unwrap(), "\"a\\\"\\u0007\"");
}

#[test]
fn malformed_documents() {
    for document in [
        &[4_u8][..],
        &[4, 9],
        &[3],
        &[99, 0],
        &[12, 5, b'a'],
        &[12, 0x80, 0x80, 0x80, 0x80, 0x80],
        &[12, 1, 0xff],
        // An array of one element that ends before its entry, and one that is larger than its bytes.
        &[2, 1, 0, 4, 0],
        &[2, 1, 0, 200, 0, 4, 0, 0],
        // A count that does not fit.
        &[3, 0xff, 0xff, 0xff, 0xff, 8, 0, 0, 0],
        &[1, 0xff, 0xff, 0xff, 0xff, 8, 0, 0, 0],
        &[15, 246, 2, 70, 1],
        &[15, 12, 3, 0, 0, 0],
    ] {
        assert!(printed(document).is_err(), "{document:?}");
    }
}

#[test]
fn an_array_that_contains_itself_is_an_error() {
    // Both elements start at offset 0, which is the array.
    let looped = [2, 2, 0, 10, 0, 2, 0, 0, 2, 0, 0];
    assert!(printed(&looped).is_err());
}
