use object_store::memory::InMemory;

use super::*;
use crate::paimon::data_file::tests::{batch, schema};
use crate::paimon::data_file::{Age, encode};
use crate::store::faulty::{Faulty, Operation};
use crate::store::{read, write};
use crate::{Error as StorageError, ErrorKind};

struct Fixture {
    below: Arc<Faulty>,
    checked: Checked,
    path: Path,
    bytes: Bytes,
}

/// A file of `rows` rows in a store.
async fn fixture(rows: i32) -> Fixture {
    let schema = schema();
    let bytes = Bytes::from(encode("f", &schema, Age::Young, &[batch(&schema, rows)]).unwrap());
    let below = Arc::new(Faulty::new(Arc::new(InMemory::new())));
    let path = Path::from("t/bucket-0/data-1.parquet");
    write(&*below, &path, bytes.clone()).await.unwrap();
    let checked = Checked::new(Arc::clone(&below) as StoreRef);
    Fixture { below, checked, path, bytes }
}

impl Fixture {
    fn slice(&self, range: &Range<u64>) -> Bytes {
        self.bytes.slice(range.start as usize..range.end as usize)
    }

    async fn flipped(rows: i32, at: usize) -> Self {
        let fixture = fixture(rows).await;
        fixture.below.flip_bit(&fixture.path, at).await.unwrap();
        fixture
    }
}

#[tokio::test]
async fn ranges_are_those_of_the_file() {
    let fixture = fixture(100_000).await;
    let size = fixture.bytes.len() as u64;
    let ranges =
        [0..4, 100_000..100_100, 40_000..40_001, 32_768..65_536, 70_000..170_000, 5..5, size - 8..size, 0..size];
    let got = fixture.checked.get_ranges(&fixture.path, &ranges).await.unwrap();
    for (range, got) in ranges.iter().zip(got) {
        assert_eq!(got, fixture.slice(range), "{range:?}");
        if !range.is_empty() {
            let alone = fixture.checked.get_range(&fixture.path, range.clone()).await.unwrap();
            assert_eq!(alone, fixture.slice(range), "{range:?}");
        }
    }
    assert_eq!(read(&fixture.checked, &fixture.path).await.unwrap(), fixture.bytes);
    let suffix = GetOptions::new().with_range(Some(GetRange::Suffix(9)));
    let suffix = fixture.checked.get_opts(&fixture.path, suffix).await.unwrap();
    assert_eq!(suffix.range, size - 9..size);
    assert_eq!(suffix.bytes().await.unwrap(), fixture.slice(&(size - 9..size)));
    let head = fixture.checked.head(&fixture.path).await.unwrap();
    assert_eq!(head.size, size);
}

#[tokio::test]
async fn a_footer_costs_one_request() {
    let fixture = fixture(100_000).await;
    let size = fixture.bytes.len() as u64;
    let before = fixture.below.count(Operation::Get);
    for range in [size - FOOTER_BYTES as u64..size, size - 8..size, size - 5000..size - 1000] {
        assert_eq!(fixture.checked.get_range(&fixture.path, range.clone()).await.unwrap(), fixture.slice(&range));
    }
    assert_eq!(fixture.below.count(Operation::Get) - before, 1);
    // Ranges near each other are fetched together with their blocks.
    fixture.checked.get_ranges(&fixture.path, &[0..10, 33_000..34_000, 70_000..70_001]).await.unwrap();
    assert_eq!(fixture.below.count(Operation::Get) - before, 2);
}

#[tokio::test]
async fn every_flipped_byte_of_a_small_file_is_named() {
    let intact = fixture(40).await;
    for at in 0..intact.bytes.len() {
        for whole in [true, false] {
            let fixture = Fixture::flipped(40, at).await;
            let read = if whole {
                read(&fixture.checked, &fixture.path).await
            } else {
                let range = at as u64..at as u64 + 1;
                let read = fixture.checked.get_range(&fixture.path, range).await;
                read.map_err(|error| StorageError::from_store("another", "read", error))
            };
            match read {
                Err(StorageError::Corrupt { object, .. }) => assert_eq!(object, fixture.path.as_ref()),
                other => panic!("byte {at}: {other:?}"),
            }
        }
    }
}

#[tokio::test]
async fn damage_elsewhere_in_a_large_file_does_no_harm() {
    let fixture = Fixture::flipped(100_000, 100_000).await;
    let fine = 0..BLOCK_BYTES;
    assert_eq!(fixture.checked.get_range(&fixture.path, fine.clone()).await.unwrap(), fixture.slice(&fine));
    let error = fixture.checked.get_ranges(&fixture.path, &[fine, 99_000..99_001]).await.unwrap_err();
    let damage = DamagedFile::find(&error).unwrap();
    assert_eq!((damage.object.as_str(), damage.range.clone()), (fixture.path.as_ref(), 98_304..131_072));
    let error = read(&fixture.checked, &fixture.path).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("bytes 98304 to 131072"), "{error}");
}

#[tokio::test]
async fn a_file_that_is_too_short_is_damaged() {
    let fixture = fixture(40).await;
    let size = fixture.bytes.len() as u64;
    let error = fixture.checked.get_range(&fixture.path, size - 8..size + 1).await.unwrap_err();
    assert!(DamagedFile::find(&error).unwrap().to_string().contains("shorter than it should be"));
    for length in [0, 1, 7, 8, 100] {
        let cut = fixture.bytes.slice(..length);
        let other = Path::from(format!("t/bucket-0/cut-{length}.parquet"));
        write(&*fixture.below, &other, cut).await.unwrap();
        let error = read(&fixture.checked, &other).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{length}: {error}");
        let error = fixture.checked.get_range(&other, 0..4).await.unwrap_err();
        assert!(DamagedFile::find(&error).is_some(), "{length}: {error}");
    }
}

#[tokio::test]
async fn what_is_no_data_file_is_passed_through_and_missing_files_are_missing() {
    let fixture = fixture(40).await;
    let other = Path::from("t/manifest/manifest-1");
    write(&*fixture.below, &other, Bytes::from_static(b"anything")).await.unwrap();
    assert_eq!(fixture.checked.get_range(&other, 3..5).await.unwrap(), "th");
    assert_eq!(read(&fixture.checked, &other).await.unwrap(), "anything");
    let missing = Path::from("t/bucket-0/data-9.parquet");
    for error in [
        fixture.checked.get(&missing).await.map(drop).unwrap_err(),
        fixture.checked.get_range(&missing, 0..1).await.map(drop).unwrap_err(),
    ] {
        assert!(matches!(error, Error::NotFound { .. }), "{error}");
    }
}

#[tokio::test]
async fn a_deleted_file_is_forgotten() {
    let fixture = fixture(40).await;
    fixture.checked.get_range(&fixture.path, 0..4).await.unwrap();
    fixture.checked.delete(&fixture.path).await.unwrap();
    let error = fixture.checked.get_range(&fixture.path, 0..4).await.unwrap_err();
    assert!(matches!(error, Error::NotFound { .. }), "{error}");
}
