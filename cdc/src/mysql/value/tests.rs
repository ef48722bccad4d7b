use super::*;

fn text(write: impl FnOnce(&mut TextSink<'_>)) -> String {
    let mut data = Vec::new();
    write(&mut TextSink::over(&mut data));
    String::from_utf8(data).unwrap()
}

#[test]
fn days() {
    assert_eq!(date_days(1970, 1, 1), Some(0));
    assert_eq!(date_days(1969, 12, 31), Some(-1));
    assert_eq!(date_days(2000, 2, 29), Some(11_016));
    assert_eq!(date_days(9999, 12, 31), Some(2_932_896));
    assert_eq!(date_days(1000, 1, 1), Some(-354_285));
    assert_eq!(date_days(0, 3, 1), Some(-719_468));
    for (year, month, day) in [
        (0, 0, 0),
        (2024, 0, 15),
        (2024, 5, 0),
        (2023, 2, 29),
        (1900, 2, 29),
        (2024, 4, 31),
        (2024, 13, 1),
        (10_000, 1, 1),
    ] {
        assert_eq!(date_days(year, month, day), None, "{year}-{month}-{day}");
    }
}

#[test]
fn every_day_follows_the_one_before() {
    let mut last = date_days(1899, 12, 31).unwrap();
    for year in 1900..2101 {
        for month in 1..=12 {
            for day in 1..=31 {
                if let Some(days) = date_days(year, month, day) {
                    assert_eq!(days, last + 1, "{year}-{month}-{day}");
                    last = days;
                }
            }
        }
    }
}

#[test]
fn times_of_day() {
    let parts = DateTimeParts { year: 1969, month: 12, day: 31, hour: 23, minute: 59, second: 59, micros: 999_999 };
    assert_eq!(parts.micros_since_epoch(), Some(-1));
    assert_eq!(DateTimeParts { hour: 24, ..parts }.micros_since_epoch(), None);
    assert_eq!(DateTimeParts { month: 0, ..parts }.micros_since_epoch(), None);
}

#[test]
fn time_text() {
    assert_eq!(text(|out| write_time(out, true, 838, 59, 59, 0, 6)), "-838:59:59.000000");
    assert_eq!(text(|out| write_time(out, false, 1, 2, 3, 450_000, 2)), "01:02:03.45");
    assert_eq!(text(|out| write_time(out, true, 0, 0, 1, 500_000, 1)), "-00:00:01.5");
    assert_eq!(text(|out| write_time(out, false, 0, 0, 0, 0, 0)), "00:00:00");
}

#[test]
fn labels() {
    let labels = ["a".to_owned(), "b".to_owned(), "c".to_owned()];
    assert_eq!(enum_label(&labels, 0), Some(""));
    assert_eq!(enum_label(&labels, 3), Some("c"));
    assert_eq!(enum_label(&labels, 4), None);
    assert_eq!(text(|out| assert!(write_set(out, &labels, 0b101))), "a,c");
    assert_eq!(text(|out| assert!(write_set(out, &labels, 0))), "");
    text(|out| assert!(!write_set(out, &labels, 0b1000)));
}
