use arrow::array::{ArrayRef, Int8Array, Int32Array, Int64Array, StringArray};
use bytes::Bytes;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::reader::{FileReader, SerializedFileReader};

use super::super::{DataType, NewField};
use super::*;

pub(crate) fn schema() -> TableSchema {
    let field =
        |name: &str, data_type, nullable| NewField { name: name.into(), data_type, nullable, description: None };
    let fields = vec![field("id", DataType::Int, false), field("name", DataType::String, true)];
    TableSchema::new(fields, vec!["id".into()], TableSchema::default_options(1, 8), None, 0).unwrap()
}

pub(crate) fn batch(schema: &TableSchema, rows: i32) -> RecordBatch {
    let ids: ArrayRef = Arc::new(Int32Array::from_iter_values(0..rows));
    let columns: Vec<ArrayRef> = vec![
        Arc::clone(&ids),
        Arc::new(Int64Array::from_iter_values((0..rows).map(i64::from))),
        Arc::new(Int8Array::from_value(0, rows as usize)),
        ids,
        Arc::new(StringArray::from_iter((0..rows).map(|i| (i % 3 != 0).then(|| format!("name {i}"))))),
    ];
    RecordBatch::try_new(schema.file_schema(), columns).unwrap()
}

#[test]
fn young_files_are_fast_and_old_ones_small_and_both_read_back() {
    let schema = schema();
    let batch = batch(&schema, 200_000);
    let mut sizes = Vec::new();
    let of_age = [(Age::New, "UNCOMPRESSED"), (Age::Young, "LZ4_RAW"), (Age::Restless, "LZ4_RAW"), (Age::Old, "ZSTD")];
    for (age, compression) in of_age {
        let bytes = Bytes::from(encode("f", &schema, age, std::slice::from_ref(&batch)).unwrap());
        sizes.push(bytes.len());
        let file = SerializedFileReader::new(bytes.clone()).unwrap();
        let metadata = file.metadata();
        let groups = if matches!(age, Age::New | Age::Young) { 7 } else { 2 };
        assert_eq!(metadata.num_row_groups(), groups, "row groups are bounded");
        for column in metadata.row_group(0).columns() {
            assert!(format!("{:?}", column.compression()).starts_with(compression));
            assert!(column.statistics().is_some(), "{}", column.column_path());
            assert!(column.offset_index_offset().is_some(), "{} has no page index", column.column_path());
        }
        let ids: Vec<_> =
            metadata.file_metadata().schema().get_fields().iter().map(|field| field.get_basic_info().id()).collect();
        assert_eq!(ids, [1_073_741_823, 2_147_483_646, 2_147_483_645, 0, 1]);
        let reader = ParquetRecordBatchReaderBuilder::try_new(bytes).unwrap().with_batch_size(1 << 20).build().unwrap();
        let read: Vec<_> = reader.map(Result::unwrap).collect();
        let read = arrow::compute::concat_batches(&read[0].schema(), &read).unwrap();
        assert_eq!(read.columns(), batch.columns());
    }
    assert!(sizes.is_sorted_by(|a, b| a > b), "{sizes:?}");
}

#[test]
fn a_sink_that_is_full_is_told_as_such() {
    struct FullSink;
    impl Write for FullSink {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let schema = schema();
    let write = || {
        let mut writer = DataFileWriter::new("t/bucket-0/f", FullSink, &schema, Age::Young, &[])?;
        writer.write(&batch(&schema, 10))?;
        writer.finish().map(drop)
    };
    let error = write().unwrap_err();
    assert_eq!(error.kind(), crate::ErrorKind::Full, "{error}");
    assert!(error.to_string().contains("t/bucket-0/f"));
}

#[test]
fn rows_of_another_schema_are_refused() {
    let schema = schema();
    let wrong = batch(&schema, 1).project(&[0, 1]).unwrap();
    assert_eq!(encode("f", &schema, Age::Old, &[wrong]).unwrap_err().kind(), crate::ErrorKind::Invalid);
}
