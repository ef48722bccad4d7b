use super::*;
use crate::error::Retry;

#[test]
fn offsets_are_counted_beyond_four_gigabytes() {
    let mut place = Place { file: "b.000001".to_owned(), offset: 4 };
    for (log_pos, offset) in [
        (1_000, 1_000),
        (0, 1_000),
        (u32::MAX - 10, u64::from(u32::MAX) - 10),
        (5, (1 << 32) + 5),
        (5, (1 << 32) + 5),
        (u32::MAX, (1 << 32) + u64::from(u32::MAX)),
        (9, (2 << 32) + 9),
    ] {
        place.advance(log_pos);
        assert_eq!(place.offset, offset);
    }
}

#[test]
fn a_flipped_bit_is_found_and_the_in_use_flag_does_not_count() {
    let body = b"some event".to_vec();
    let header = EventHeader { timestamp: 1, kind: 2, server_id: 3, size: 33, log_pos: 4, flags: 0 };
    let crc = |header: &EventHeader| {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&header.to_bytes());
        hasher.update(&body);
        hasher.finalize()
    };
    let place = Place::default();
    assert!(verify(&header, &body, crc(&header), &place).is_ok());
    let error = verify(&header, b"same event", crc(&header), &place).expect_err("another body");
    assert_eq!(error.code, Code::ChecksumMismatch);
    let closed = EventHeader { kind: kind::FORMAT_DESCRIPTION, ..header };
    let open = EventHeader { flags: IN_USE, ..closed };
    assert!(verify(&open, &body, crc(&closed), &place).is_ok());
    let query = EventHeader { flags: IN_USE, ..header };
    assert!(verify(&query, &body, crc(&header), &place).is_err());
}

#[test]
fn the_texts_of_error_1236() {
    for (text, code) in [
        (
            "Cannot replicate because the source purged required binary logs. Replicate the missing transactions from elsewhere",
            Code::PositionPurged,
        ),
        (
            "The slave is connecting using CHANGE MASTER TO MASTER_AUTO_POSITION = 1, but the master has purged binary logs containing GTIDs that the slave requires.",
            Code::PositionPurged,
        ),
        ("Could not find first log file name in binary log index file", Code::PositionPurged),
        (
            "Could not find GTID state requested by slave in any binlog files. Probably the slave state is too old and required binlog files have been purged.",
            Code::PositionPurged,
        ),
        (
            "A replica with the same server_uuid/server_id as this replica has connected to the source; the first event '' at 4",
            Code::ServerIdTaken,
        ),
        ("A slave with the same server_uuid/server_id as this slave has connected to the master", Code::ServerIdTaken),
        (
            "Error: connecting slave requested to start from GTID 0-1-50, which is not in the master's binlog",
            Code::OtherServer,
        ),
        ("Slave has more GTIDs than the master has, using the master's SERVER_UUID.", Code::OtherServer),
        ("Client requested source to start replication from impossible position", Code::OtherServer),
        ("Binary log is not open", Code::BinlogOff),
        ("log event entry exceeded max_allowed_packet; Increase max_allowed_packet on source", Code::QueryFailed),
    ] {
        assert_eq!(classify_dump_error(text).0, code, "{text}");
    }
}

#[test]
fn only_what_may_pass_is_tried_again() {
    let error = |code, message: &str| {
        stream_failed(mysql_async::ServerError { code, message: message.to_owned(), state: "HY000".to_owned() }.into())
    };
    assert_eq!(error(1236, "purged").retry, Retry::Never);
    assert_eq!(error(1236, "A replica with the same server_uuid/server_id").retry, Retry::Backoff);
    assert_eq!(error(1227, "Access denied").code, Code::MissingRight);
    assert_eq!(error(1053, "Server shutdown in progress").code, Code::ConnectionLost);
}
