use std::collections::BTreeSet;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::*;

const A: &str = "3e11fa47-71ca-11e1-9e33-c80aa9429562";
const B: &str = "4f22ab58-71ca-11e1-9e33-c80aa9429562";

fn mysql(text: &str) -> MysqlGtidSet {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

fn maria(text: &str) -> MariaGtidSet {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn files_are_ordered_by_number_and_not_by_name() {
    let at = |file: &str, offset| FilePosition::new(file, offset);
    assert!(at("binlog.999999", 9) < at("binlog.1000000", 4));
    assert!(at("binlog.000002", 4) > at("binlog.000001", 5_000_000_000));
    assert!(at("binlog.000002", 5_000_000_000) > at("binlog.000002", 4_999_999_999));
    assert_eq!(at("a.b.000002", 7).to_string().parse(), Ok(at("a.b.000002", 7)));
    assert!("binlog.000001".parse::<FilePosition>().is_err());
    assert!(":4".parse::<FilePosition>().is_err());
}

#[test]
fn mysql_sets_are_printed_in_canonical_form() {
    let set = mysql(&format!("{},\n {}:7:1-3:4-5:red:2:1", B.to_uppercase() + ":9", A));
    assert_eq!(set.to_string(), format!("{A}:1-5:7:red:1-2,{B}:9"));
    assert_eq!(mysql(""), MysqlGtidSet::new());
    assert_eq!(mysql(&format!("{A}:1-3:red:1,{A}:4:RED:2")).to_string(), format!("{A}:1-4:red:1-2"));
    assert_eq!(mysql(&set.to_string()), set);
}

#[test]
fn what_is_no_mysql_set_is_refused() {
    for text in [
        "x",
        A,
        &format!("{A}:"),
        &format!("{A}:0"),
        &format!("{A}:5-3"),
        &format!("{A}:1:red"),
        &format!("{A}:-1"),
        &format!("{A}:9223372036854775808"),
        &format!("{A}:1-"),
        "0-1-100",
        &format!("{A}:re-d:1"),
    ] {
        assert!(text.parse::<MysqlGtidSet>().is_err(), "{text}");
    }
    let largest = format!("{A}:1-9223372036854775807");
    assert_eq!(mysql(&largest).to_string(), largest);
}

#[test]
fn a_set_is_cut_at_the_first_gap_of_each_server_and_tag() {
    let none = MysqlGtidSet::new();
    let executed = mysql(&format!("{A}:1-5:7-9:red:1-2:4,{B}:3-8"));
    assert_eq!(executed.cut_at_first_gap(&none).to_string(), format!("{A}:1-5:red:1-2"));
    // What was purged is finished: gaps in it and in front of it are no transactions in flight.
    let purged = mysql(&format!("{B}:3-4"));
    assert_eq!(executed.cut_at_first_gap(&purged).to_string(), format!("{A}:1-5:red:1-2,{B}:3-8"));
    let purged = mysql(&format!("{A}:1-5:7"));
    assert_eq!(executed.cut_at_first_gap(&purged).to_string(), format!("{A}:1-5:7-9:red:1-2"));
    assert!(executed.contains(&executed.cut_at_first_gap(&purged)));
}

#[test]
fn sets_agree_with_sets_of_numbers() {
    type Naive = BTreeSet<(usize, usize, u64)>;
    let uuids = [A, B].map(|uuid| Uuid::parse_str(uuid).unwrap_or_default());
    let tags = ["", "red"];
    let mut random = StdRng::seed_from_u64(7);
    let make = |random: &mut StdRng| {
        let (mut set, mut naive) = (MysqlGtidSet::new(), Naive::new());
        for _ in 0..random.random_range(0..40) {
            let (u, t, n) = (random.random_range(0..2), random.random_range(0..2), random.random_range(1..25));
            set.add(uuids[u], tags[t], n);
            naive.insert((u, t, n));
        }
        (set, naive)
    };
    let same = |set: &MysqlGtidSet, naive: &Naive| {
        let mut rebuilt = MysqlGtidSet::new();
        for &(u, t, n) in naive {
            rebuilt.add(uuids[u], tags[t], n);
        }
        assert_eq!(*set, rebuilt);
        assert_eq!(mysql(&set.to_string()), *set, "printed and read again");
        for (u, uuid) in uuids.iter().enumerate() {
            for (t, tag) in tags.iter().enumerate() {
                for n in 1..26 {
                    assert_eq!(set.contains_one(*uuid, tag, n), naive.contains(&(u, t, n)));
                }
            }
        }
        for (_, _, intervals) in set.groups() {
            assert!(intervals.iter().all(|(start, end)| start < end));
            assert!(intervals.windows(2).all(|pair| pair[0].1 < pair[1].0), "sorted, and not adjacent");
        }
    };
    for _ in 0..300 {
        let ((a, na), (b, nb)) = (make(&mut random), make(&mut random));
        same(&a, &na);
        same(&a.union(&b), &na.union(&nb).copied().collect());
        same(&a.subtract(&b), &na.difference(&nb).copied().collect());
        assert_eq!(a.contains(&b), nb.is_subset(&na));
        assert!(a.union(&b).contains(&a) && a.contains(&a.subtract(&b)));
        let kept: Naive = na.iter().copied().filter(|&(u, t, n)| (1..=n).all(|m| na.contains(&(u, t, m)))).collect();
        same(&a.cut_at_first_gap(&MysqlGtidSet::new()), &kept);
    }
}

#[test]
fn mariadb_positions_compare_by_domain() {
    let set = maria("1-2-50,0-1-100");
    assert_eq!(set.to_string(), "0-1-100,1-2-50");
    assert!(set.contains(&maria("0-9-100")), "the server does not matter, the number does");
    assert!(set.contains(&maria("")) && !set.contains(&maria("2-1-1")) && !set.contains(&maria("0-1-101")));
    assert_eq!(set.union(&maria("0-3-101,2-1-1")).to_string(), "0-3-101,1-2-50,2-1-1");
    assert_eq!(set.subtract(&maria("0-1-100,1-2-49")).to_string(), "1-2-50");
    let mut set = set;
    set.add(0, 7, 99);
    assert_eq!(set.to_string(), "0-1-100,1-2-50", "a position never moves back");
    for text in ["0-1", "0-1-2-3", "a-1-2", "0-1-100:1", A] {
        assert!(text.parse::<MariaGtidSet>().is_err(), "{text}");
    }
}

#[test]
fn positions_survive_json_and_keep_their_flavour() {
    let positions = [
        Position {
            gtid: Some(GtidSet::Mysql(mysql(&format!("{A}:1-5")))),
            file: None,
            server_uuid: Some(A.to_owned()),
        },
        Position {
            gtid: Some(GtidSet::MariaDb(MariaGtidSet::new())),
            file: Some(FilePosition::new("b.000001", 4)),
            server_uuid: None,
        },
        Position::default(),
    ];
    for position in positions {
        let json = serde_json::to_string(&position).unwrap_or_default();
        assert_eq!(serde_json::from_str::<Position>(&json).ok(), Some(position), "{json}");
    }
    assert!(serde_json::from_str::<GtidSet>("\"0-1-1\"").is_err());
}

#[test]
fn sets_of_different_flavours_do_not_mix() {
    let (a, b) = (GtidSet::Mysql(mysql(&format!("{A}:1"))), GtidSet::MariaDb(maria("0-1-1")));
    assert!(!a.contains(&b) && a.union(&b).is_none() && a.subtract(&b) == a);
    assert!(!a.contains_one(&Gtid::MariaDb { domain: 0, server: 1, sequence: 1 }));
}

#[test]
fn the_file_before_has_the_number_before() {
    let before = |file: &str| FilePosition::new(file, 4).file_before();
    assert_eq!(before("binlog.000010").as_deref(), Some("binlog.000009"));
    assert_eq!(before("a.b.1000000").as_deref(), Some("a.b.0999999"));
    assert_eq!(before("binlog.000001"), None);
    assert_eq!(before("binlog"), None);
}
