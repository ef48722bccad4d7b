use super::*;

fn event(kind: u8, body: &[u8]) -> Vec<u8> {
    let size = (EventHeader::SIZE + body.len()) as u32;
    let header = EventHeader { timestamp: 1, kind, server_id: 2, size, log_pos: 0, flags: 0 };
    [&header.to_bytes()[..], body].concat()
}

/// A payload's body. Lengths below 251 take one byte.
fn body(algorithm: u8, uncompressed: u8, payload: &[u8]) -> Vec<u8> {
    let algorithm: &[u8] = if algorithm == 255 { &[2, 3, 252, 255, 0] } else { &[2, 1, 0] };
    [&[1, 1, payload.len() as u8][..], algorithm, &[3, 1, uncompressed, 0], payload].concat()
}

fn read(body: &[u8]) -> Vec<Result<(u8, Vec<u8>), DecodeError>> {
    let payload = TransactionPayload::parse(body).unwrap();
    payload.events().unwrap().map(|event| event.map(|(header, body)| (header.kind, body))).collect()
}

#[test]
fn compressed_and_plain() {
    let events = [event(2, b"BEGIN"), event(16, &[1; 8])].concat();
    let compressed = zstd::encode_all(&events[..], 3).unwrap();
    let all = vec![Ok((2, b"BEGIN".to_vec())), Ok((16, vec![1; 8]))];
    assert_eq!(read(&body(0, events.len() as u8, &compressed)), all);
    assert_eq!(read(&body(255, events.len() as u8, &events)), all);
}

#[test]
fn what_is_missing_or_damaged_is_an_error() {
    let events = [event(2, b"BEGIN"), event(16, &[1; 8])].concat();
    let compressed = zstd::encode_all(&events[..], 3).unwrap();
    let size = events.len() as u8;
    let last = |body: &[u8]| read(body).pop().unwrap();
    assert!(last(&body(0, size, &compressed[..compressed.len() - 5])).is_err());
    assert!(last(&body(0, size + 1, &compressed)).is_err());
    assert!(last(&body(0, size - 1, &compressed)).is_err());
    assert!(last(&body(0, size, b"no zstd")).is_err());
    // Ends between two events, before the announced size.
    assert!(last(&body(255, size, &event(2, b"BEGIN"))).is_err());
    // Ends where announced, but there is more.
    let first = event(2, b"BEGIN");
    assert!(last(&body(255, first.len() as u8, &events)).is_err());
    assert!(TransactionPayload::parse(&[2, 1, 9, 0]).is_err());
    assert!(TransactionPayload::parse(&[1, 1, 200, 0]).is_err());
    assert!(TransactionPayload::parse(&[1]).is_err());
}
