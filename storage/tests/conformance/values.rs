//! Which values there are of a type, and how they compare.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use tidegate_storage::paimon::DataType;

use crate::texts::{hex, unhex};

/// 64 bits that look random, always the same for one `n`.
pub(crate) fn scatter(n: u64) -> u64 {
    let n = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

/// Days since 1970 of 0001-01-01 and of 9999-12-31: the years that every reader knows.
const DAYS: (i64, i64) = (-719_162, 2_932_896);
const MICROS_OF_DAY: i64 = 86_400_000_000;

/// The type's smallest and largest values, those around zero, and those where an encoding changes its form.
pub(crate) fn borders(data_type: &DataType) -> Vec<String> {
    fn all<T: ToString>(values: impl IntoIterator<Item = T>) -> Vec<String> {
        values.into_iter().map(|value| value.to_string()).collect()
    }
    match data_type {
        DataType::Boolean => all([false, true]),
        DataType::TinyInt => all([i8::MIN, -1, 0, 1, i8::MAX]),
        DataType::SmallInt => all([i16::MIN, -1, 0, 1, i16::MAX]),
        DataType::Int => all([i32::MIN, -1, 0, 1, i32::MAX]),
        DataType::BigInt => all([i64::MIN, -1, 0, 1, i64::MAX]),
        DataType::Float => [f32::MIN, -1.5, -0.0, 0.0, f32::from_bits(1), f32::MIN_POSITIVE, f32::MAX]
            .iter()
            .map(|value| hex(&value.to_be_bytes()))
            .collect(),
        DataType::Double => [f64::MIN, -1.5, -0.0, 0.0, f64::from_bits(1), f64::MIN_POSITIVE, f64::MAX]
            .iter()
            .map(|value| hex(&value.to_be_bytes()))
            .collect(),
        DataType::Decimal { precision, .. } => {
            let most = 10_i128.pow(u32::from(*precision)) - 1;
            // Around a byte more, where the shortest form of a large decimal grows.
            all([-most, -129, -128, -1, 0, 1, 127, 128, most].into_iter().filter(|value| value.abs() <= most))
        }
        DataType::Char(_) | DataType::Varchar(_) | DataType::String => {
            let longest = length(data_type);
            let texts = [
                String::new(),
                "a".into(),
                "A".into(),
                "a ".into(),
                // Up to seven bytes lie in their slot.
                "1234567".into(),
                "12345678".into(),
                "é".into(),
                // By their bytes these ascend; by UTF-16 they would not.
                "\u{ffff}".into(),
                "\u{10000}".into(),
                "\u{1}\t\n\"\\'%_|".into(),
                // Statistics are cut at 64 bytes: within a character, and behind one that cannot be incremented.
                format!("{}☂ and more", "x".repeat(63)),
                "\u{10ffff}".repeat(20),
            ];
            let fits = texts.into_iter().filter(|text| text.chars().count() <= longest);
            fits.map(|text| padded(data_type, text)).collect()
        }
        DataType::Binary(length) => [0_u8, 1, 0x7f, 0x80, 0xff].map(|byte| hex(&vec![byte; *length as usize])).into(),
        DataType::Varbinary(_) | DataType::Bytes => {
            let longest = length(data_type);
            let values = [
                vec![],
                vec![0],
                vec![0, 0],
                vec![0x7f],
                vec![0x80],
                vec![0xff; 7],
                vec![0xff; 8],
                vec![0xff; 80],
                [vec![b'x'; 64], vec![0xff]].concat(),
            ];
            values.iter().filter(|value| value.len() <= longest).map(|value| hex(value)).collect()
        }
        DataType::Date => all([DAYS.0, -1, 0, 1, DAYS.1]),
        DataType::Timestamp(digits) | DataType::TimestampLtz(digits) => {
            let step = 10_i64.pow(6 - u32::from(*digits));
            let (first, last) = (DAYS.0 * MICROS_OF_DAY, (DAYS.1 + 1) * MICROS_OF_DAY - 1);
            let mut values = [first, -1_001_000, -1_000_000, -1001, -1000, -999, -1, 0, 1, 999, 1000, 1001, last]
                .map(|at| at.div_euclid(step) * step);
            values.sort_unstable();
            let distinct: BTreeSet<i64> = values.into_iter().collect();
            all(distinct)
        }
    }
}

/// The longest string or byte string that is tried, in characters or bytes.
fn length(data_type: &DataType) -> usize {
    match data_type {
        DataType::Char(n) | DataType::Varchar(n) | DataType::Binary(n) | DataType::Varbinary(n) => *n as usize,
        _ => 200,
    }
}

/// A CHAR is always as long as its type.
fn padded(data_type: &DataType, text: String) -> String {
    match data_type {
        DataType::Char(n) => format!("{text}{}", "_".repeat(*n as usize - text.chars().count())),
        _ => text,
    }
}

/// Some value of the type, one in four of them at a border.
pub(crate) fn value(data_type: &DataType, n: u64) -> String {
    let bits = scatter(n);
    if bits.is_multiple_of(4) {
        let borders = borders(data_type);
        return borders[(bits >> 8) as usize % borders.len()].clone();
    }
    let signed = (bits >> 8) as i64 - (1 << 55);
    match data_type {
        DataType::Boolean => (bits & 8 == 0).to_string(),
        DataType::TinyInt => (signed as i8).to_string(),
        DataType::SmallInt => (signed as i16).to_string(),
        DataType::Int => (signed as i32).to_string(),
        DataType::BigInt => (signed.wrapping_mul(1021)).to_string(),
        DataType::Float => hex(&(signed as f32 / 3.0).to_be_bytes()),
        DataType::Double => hex(&(signed as f64 / 3.0).to_be_bytes()),
        DataType::Decimal { precision, .. } => {
            let wide = i128::from(signed) * i128::from(signed.unsigned_abs()) * 977;
            (wide % 10_i128.pow(u32::from(*precision))).to_string()
        }
        DataType::Char(_) | DataType::Varchar(_) | DataType::String => {
            let longest = length(data_type).min(40);
            let alphabet: Vec<char> = "abcXYZ 019-_éß☂漢🦀".chars().collect();
            let character = |i: usize| alphabet[scatter(bits + i as u64) as usize % alphabet.len()];
            let text = (0..(bits >> 32) as usize % (longest + 1)).map(character).collect();
            padded(data_type, text)
        }
        DataType::Binary(_) | DataType::Varbinary(_) | DataType::Bytes => {
            let longest = length(data_type).min(40);
            let length = match data_type {
                DataType::Binary(n) => *n as usize,
                _ => (bits >> 32) as usize % (longest + 1),
            };
            hex(&(0..length).map(|i| scatter(bits + i as u64) as u8).collect::<Vec<_>>())
        }
        DataType::Date => (DAYS.0 + (bits >> 8) as i64 % (DAYS.1 - DAYS.0)).to_string(),
        DataType::Timestamp(digits) | DataType::TimestampLtz(digits) => {
            let step = 10_i64.pow(6 - u32::from(*digits));
            let range = (DAYS.1 - DAYS.0) * MICROS_OF_DAY;
            let at = DAYS.0 * MICROS_OF_DAY + (bits >> 4) as i64 % range;
            (at.div_euclid(step) * step).to_string()
        }
    }
}

/// About `count` distinct keys of these types, fewer if there are no more.
pub(crate) fn keys(types: &[DataType], count: usize) -> Vec<Vec<String>> {
    let mut keys = Vec::new();
    let mut seen = BTreeSet::new();
    let mut add = |key: Vec<String>| {
        // Negative zero is a key of its own here, and no key at all where the rows come from.
        let negative_zero = types.iter().zip(&key).any(|(data_type, text)| match data_type {
            DataType::Float => text == "80000000",
            DataType::Double => text == "8000000000000000",
            _ => false,
        });
        if !negative_zero && seen.insert(key.clone()) {
            keys.push(key);
        }
        seen.len()
    };
    if let [data_type] = types {
        for border in borders(data_type) {
            add(vec![border]);
        }
    }
    for n in 0..count as u64 * 4 {
        let column = |(i, data_type): (usize, &DataType)| value(data_type, n * 31 + i as u64);
        if add(types.iter().enumerate().map(column).collect()) >= count {
            break;
        }
    }
    keys
}

/// How two values of a type compare, in the order of Paimon's keys.
pub(crate) fn compare(data_type: &DataType, a: &str, b: &str) -> Ordering {
    let number = |text: &str| text.parse::<i128>().unwrap();
    match data_type {
        DataType::Boolean | DataType::Char(_) | DataType::Varchar(_) | DataType::String => {
            a.as_bytes().cmp(b.as_bytes())
        }
        DataType::Float | DataType::Double => {
            let real = |text: &str| match unhex(text).as_slice() {
                [a, b, c, d] => f64::from(f32::from_be_bytes([*a, *b, *c, *d])),
                bytes => f64::from_be_bytes(bytes.try_into().unwrap()),
            };
            real(a).partial_cmp(&real(b)).unwrap()
        }
        DataType::Binary(_) | DataType::Varbinary(_) | DataType::Bytes => unhex(a).cmp(&unhex(b)),
        _ => number(a).cmp(&number(b)),
    }
}
