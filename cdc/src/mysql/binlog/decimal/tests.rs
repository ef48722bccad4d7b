use super::*;

/// Packs as the server does.
fn pack(precision: u8, scale: u8, digits: &str, negative: bool) -> Vec<u8> {
    let integer = usize::from(precision - scale);
    assert_eq!(digits.len(), usize::from(precision));
    let (int, frac) = digits.split_at(integer);
    let mut groups = Vec::new();
    let head = int.len() % 9;
    groups.push(&int[..head]);
    groups.extend(int.as_bytes()[head..].chunks(9).map(|c| std::str::from_utf8(c).unwrap()));
    groups.extend(frac.as_bytes().chunks(9).map(|c| std::str::from_utf8(c).unwrap()));
    let mut bytes = Vec::new();
    for group in groups.into_iter().filter(|g| !g.is_empty()) {
        let value: u32 = group.parse().unwrap();
        bytes.extend_from_slice(&value.to_be_bytes()[4 - usize::from(GROUP_BYTES[group.len()])..]);
    }
    if negative {
        bytes.iter_mut().for_each(|b| *b = !*b);
    }
    bytes[0] ^= 0x80;
    bytes
}

fn text(packed: Packed, bytes: &[u8]) -> String {
    let mut data = Vec::new();
    packed.text(bytes, &mut TextSink::over(&mut data)).unwrap();
    String::from_utf8(data).unwrap()
}

#[test]
fn every_precision_and_scale() {
    for precision in 1..=65_u8 {
        for scale in 0..=precision.min(30) {
            let packed = Packed::new(precision, scale);
            for digit in ["0", "1", "9"] {
                let digits = digit.repeat(usize::from(precision));
                for negative in [false, true] {
                    if digit == "0" && negative {
                        continue;
                    }
                    let bytes = pack(precision, scale, &digits, negative);
                    assert_eq!(bytes.len(), packed.size(), "({precision}, {scale})");
                    if precision <= 38 {
                        let value: i128 = digits.parse().unwrap();
                        assert_eq!(packed.integer(&bytes), Ok(if negative { -value } else { value }));
                    }
                    let (int, frac) = digits.split_at(usize::from(precision - scale));
                    let int = if int.trim_start_matches('0').is_empty() { "0" } else { int };
                    let sign = if negative { "-" } else { "" };
                    let point = if scale > 0 { "." } else { "" };
                    assert_eq!(text(packed, &bytes), format!("{sign}{int}{point}{frac}"));
                }
            }
        }
    }
}

#[test]
fn bytes_that_are_no_decimal() {
    let packed = Packed::new(10, 2);
    assert_eq!(packed.integer(&[0x80, 0]), Err(ValueError::Cut));
    assert_eq!(packed.integer(&[]), Err(ValueError::Cut));
    assert!(matches!(packed.integer(&[0x80, 0xff, 0xff, 0xff, 0xff]), Err(ValueError::Bad(_))));
}
