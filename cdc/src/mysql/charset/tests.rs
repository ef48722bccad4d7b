use super::*;

fn decoded(charset: &str, bytes: &[u8]) -> String {
    decode_lossy(charset, bytes).unwrap()
}

#[test]
fn single_byte_sets_as_the_server_converts_them() {
    assert_eq!(decoded("latin1", b"\x80\x81\xe4\xff"), "\u{20ac}\u{81}äÿ");
    assert_eq!(decoded("ascii", b"a\x80"), "a?");
    assert_eq!(decoded("cp1251", b"\xcf\xf0\xe8"), "При");
    assert_eq!(decoded("koi8r", b"\xf0\xd2\xc9"), "При");
    assert_eq!(decoded("latin2", b"\xa3\xf3d\xbc"), "Łódź");
    assert_eq!(decoded("greek", b"\xc5\xeb"), "Ελ");
    assert_eq!(decoded("swe7", b"a[\0]"), "aÄ\0Å");
}

#[test]
fn unicode() {
    assert_eq!(decoded("utf16", b"\xd8\x3d\xde\x00\x00x"), "😀x");
    assert_eq!(decoded("utf16le", b"\x3d\xd8\x00\xde"), "😀");
    assert_eq!(decoded("ucs2", b"\x03\xa9\xd8\x00\x01"), "Ω??");
    assert_eq!(decoded("utf32", b"\x00\x01\xf6\x00\x00\x11\x00\x00\x01"), "😀??");
    assert!(TextDecoder::Utf8.decode(b"\xc3", &mut TextSink::over(&mut Vec::new())).is_err());
    assert_eq!(decoded("utf8mb3", "ü".as_bytes()), "ü");
}

#[test]
fn multi_byte_sets() {
    assert_eq!(decoded("gbk", b"\xd6\xd0\xce\xc4"), "中文");
    assert_eq!(decoded("gb18030", b"\xd6\xd0\x94\x39\xfc\x36"), "中😀");
    assert_eq!(decoded("big5", b"\xc1\x63\xc5\xe9"), "繁體");
    assert_eq!(decoded("sjis", b"\x83\x5c\x95\x5c"), "ソ表");
    assert_eq!(decoded("cp932", b"\x87\x40"), "①");
    assert_eq!(decoded("ujis", b"\xa4\xd2"), "ひ");
    assert_eq!(decoded("euckr", b"\xc7\xd1"), "한");
    // Where the server's tables are not those of the web.
    assert_eq!(decoded("ujis", b"\xa1\xc1\x8f\xb0\xa1\x8e\xb1"), "〜丂ｱ");
    assert_eq!(decoded("eucjpms", b"\xa1\xc1"), "～");
    assert_eq!(decoded("big5", b"\xc6\xe7"), "ゃ");
    assert_eq!(decoded("gb2312", b"\xa1\xaa"), "―");
    assert_eq!(decoded("gb18030", b"\xe3\x32\x9a\x35\x90\x30\x81\x30\x81\x30\x81\x30"), "\u{10ffff}\u{10000}\u{80}");
    // Not defined, cut short, and NUL.
    assert_eq!(decoded("gbk", b"a\xff\xff\x00\xd6"), "a?\0?");
    assert_eq!(decoded("gb18030", b"\xe3\x32\x9a\x36\xfe\x39\xfe\x39"), "??");
}

#[test]
fn names_and_numbers() {
    assert_eq!(charset_of_collation(8), Some("latin1"));
    assert_eq!(charset_of_collation(45), Some("utf8mb4"));
    assert_eq!(charset_of_collation(255), Some("utf8mb4"));
    assert_eq!(charset_of_collation(63), Some("binary"));
    assert_eq!(charset_of_collation(0), None);
    assert_eq!(charset_of_collation(100), None);
    assert_eq!(charset_of_collation(u32::MAX), None);
    assert!(same_charset("utf8", "utf8mb3") && !same_charset("utf8", "utf8mb4"));
    assert!(TextDecoder::for_charset("klingon").is_none());
}

#[test]
fn ranges_of_collations_ascend_and_name_known_character_sets() {
    for id in 0..5000 {
        if let Some(charset) = charset_of_collation(id) {
            assert!(charset == "binary" || TextDecoder::for_charset(charset).is_some(), "{id}: {charset}");
        }
    }
}
