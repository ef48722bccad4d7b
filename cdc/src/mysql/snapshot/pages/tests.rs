use super::*;

#[test]
fn decimals_become_integers_at_their_scale() {
    assert_eq!(decimal(b"12.340", 3), Some(12_340));
    assert_eq!(decimal(b"-0.01", 2), Some(-1));
    assert_eq!(decimal(b"7", 2), Some(700));
    assert_eq!(decimal(b".5", 1), Some(5));
    assert_eq!(decimal(b"-99999999999999999999999999999999999999", 0), Some(-(10_i128.pow(38) - 1)));
    assert_eq!(decimal(b"1.234", 2), None, "more digits than the column has");
    assert_eq!(decimal(b"1.2.3", 2), None);
    assert_eq!(decimal(b"1e5", 2), None);
}
