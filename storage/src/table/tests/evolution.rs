//! A table under random changes of its schema, with files of many generations live at once, against a model of it.
//!
//! The model keeps each row as it was written, and says by itself what a value is in a wider type.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::Arc;

use arrow::array::types::{
    ArrowPrimitiveType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type,
    Int64Type, TimestampMicrosecondType,
};
use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, BooleanArray, PrimitiveArray, RecordBatch, StringArray};
use futures::TryStreamExt;
use object_store::path::Path;
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand::{Rng, SeedableRng};

use super::{context, new_field, small_options};
use crate::checkpoint::publish;
use crate::paimon::{ColumnPosition, DataType, Field, FileSource, SchemaChange, TableSchema};
use crate::table::layout::Layout;
use crate::table::names::Names;
use crate::table::{RowKind, TableOptions, TableVersion, TableWriter, WriterContext, read};

/// A value as it was written.
#[derive(Debug, Clone, PartialEq)]
enum Value {
    Bool(bool),
    Int(i64),
    Single(f32),
    Real(f64),
    /// Digits, and how many of them stand behind the point.
    Decimal(i128, i8),
    Text(String),
    Bytes(Vec<u8>),
    Day(i32),
    Micros(i64),
}

const DAY_MICROS: i64 = 86_400_000_000;

impl Value {
    fn random(data_type: &DataType, random: &mut StdRng) -> Self {
        let bytes = |random: &mut StdRng, length: usize| (0..length).map(|_| random.random()).collect();
        let mut text = |most: u32| {
            let length = random.random_range(0..=most.min(12)) as usize;
            (0..length).map(|_| *['a', 'Z', '\'', ' ', 'é', '\\', '"'].choose(random).unwrap()).collect()
        };
        match data_type {
            DataType::Char(n) | DataType::Varchar(n) => Self::Text(text(*n)),
            DataType::String => Self::Text(text(12)),
            DataType::Boolean => Self::Bool(random.random()),
            DataType::TinyInt => Self::Int(random.random::<i8>().into()),
            DataType::SmallInt => Self::Int(random.random::<i16>().into()),
            DataType::Int => Self::Int(random.random::<i32>().into()),
            DataType::BigInt => Self::Int(random.random()),
            DataType::Float => Self::Single(random.random_range(-1000..1000) as f32 / 7.0),
            DataType::Double => Self::Real(f64::from(random.random_range(-1000..1000)) / 7.0),
            DataType::Decimal { precision, scale } => {
                let most = 10_i128.pow(u32::from(*precision));
                Self::Decimal(random.random_range(1 - most..most), *scale)
            }
            DataType::Binary(n) => Self::Bytes(bytes(random, *n as usize)),
            DataType::Varbinary(n) => {
                let length = random.random_range(0..=*n as usize);
                Self::Bytes(bytes(random, length))
            }
            DataType::Bytes => Self::Bytes(bytes(random, 5)),
            DataType::Date => Self::Day(random.random_range(-700_000..2_900_000)),
            DataType::Timestamp(_) | DataType::TimestampLtz(_) => {
                Self::Micros(random.random_range(-700_000..2_900_000) * DAY_MICROS + random.random_range(0..DAY_MICROS))
            }
        }
    }

    /// The value read as `to`: of the written type, or one that it may widen to.
    fn read_as(self, to: &DataType) -> Self {
        match (self, to) {
            (Self::Int(value), DataType::Decimal { scale, .. }) => {
                Self::Decimal(i128::from(value) * 10_i128.pow(u32::from(scale.unsigned_abs())), *scale)
            }
            (Self::Int(value), DataType::Float) => Self::Single(value as f32),
            (Self::Int(value), DataType::Double) => Self::Real(value as f64),
            (Self::Single(value), DataType::Double) => Self::Real(value.into()),
            (Self::Decimal(digits, from), DataType::Decimal { scale, .. }) => {
                Self::Decimal(digits * 10_i128.pow(u32::from((scale - from).unsigned_abs())), *scale)
            }
            (Self::Day(day), DataType::Timestamp(_)) => Self::Micros(i64::from(day) * DAY_MICROS),
            (value, _) => value,
        }
    }

    /// The value as a column's default.
    fn as_default(&self, data_type: &DataType) -> String {
        match self {
            Self::Bool(value) => value.to_string(),
            Self::Int(value) => value.to_string(),
            Self::Single(value) => value.to_string(),
            Self::Real(value) => value.to_string(),
            Self::Decimal(digits, scale) => {
                let (sign, scale) = (if *digits < 0 { "-" } else { "" }, usize::from(scale.unsigned_abs()));
                let digits = format!("{:0>width$}", digits.abs(), width = scale + 1);
                let (whole, fraction) = digits.split_at(digits.len() - scale);
                if scale == 0 { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") }
            }
            Self::Text(text) => text.clone(),
            Self::Bytes(bytes) => bytes.iter().fold(String::new(), |mut text, byte| {
                write!(text, "{byte:02x}").unwrap();
                text
            }),
            Self::Day(day) => date(*day),
            Self::Micros(micros) => {
                let (day, rest) = (micros.div_euclid(DAY_MICROS), micros.rem_euclid(DAY_MICROS));
                let (seconds, fraction) = (rest / 1_000_000, rest % 1_000_000);
                let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
                let zone = if matches!(data_type, DataType::TimestampLtz(_)) { "Z" } else { "" };
                format!("{} {hours:02}:{minutes:02}:{seconds:02}.{fraction:06}{zone}", date(day as i32))
            }
        }
    }
}

/// Counts days from year to year and month to month.
fn date(mut day: i32) -> String {
    let leap = |year: i32| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = |year| if leap(year) { 366 } else { 365 };
    let mut year = 1970;
    while day < 0 {
        year -= 1;
        day += days(year);
    }
    while day >= days(year) {
        day -= days(year);
        year += 1;
    }
    let mut months = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    months[1] += i32::from(leap(year));
    let mut month = 0;
    while day >= months[month] {
        day -= months[month];
        month += 1;
    }
    format!("{year:04}-{:02}-{:02}", month + 1, day + 1)
}

fn primitives<T: ArrowPrimitiveType>(
    values: &[Option<Value>],
    native: impl Fn(&Value) -> Option<T::Native>,
) -> PrimitiveArray<T> {
    values.iter().map(|value| value.as_ref().map(|value| native(value).unwrap())).collect()
}

fn array(data_type: &DataType, values: &[Option<Value>]) -> ArrayRef {
    use Value as V;
    macro_rules! of {
        ($arrow:ty, $variant:ident) => {
            primitives::<$arrow>(values, |value| match value {
                V::$variant(value, ..) => (*value).try_into().ok(),
                _ => None,
            })
        };
    }
    match data_type {
        DataType::Boolean => Arc::new(BooleanArray::from_iter(values.iter().map(|value| match value {
            Some(V::Bool(value)) => Some(*value),
            _ => None,
        }))),
        DataType::TinyInt => Arc::new(of!(Int8Type, Int)),
        DataType::SmallInt => Arc::new(of!(Int16Type, Int)),
        DataType::Int => Arc::new(of!(Int32Type, Int)),
        DataType::BigInt => Arc::new(of!(Int64Type, Int)),
        DataType::Float => Arc::new(of!(Float32Type, Single)),
        DataType::Double => Arc::new(of!(Float64Type, Real)),
        DataType::Decimal { precision, scale } => {
            Arc::new(of!(Decimal128Type, Decimal).with_precision_and_scale(*precision, *scale).unwrap())
        }
        DataType::Char(_) | DataType::Varchar(_) | DataType::String => {
            Arc::new(StringArray::from_iter(values.iter().map(|value| match value {
                Some(V::Text(text)) => Some(text.clone()),
                _ => None,
            })))
        }
        DataType::Binary(_) | DataType::Varbinary(_) | DataType::Bytes => {
            Arc::new(BinaryArray::from_iter(values.iter().map(|value| match value {
                Some(V::Bytes(bytes)) => Some(bytes.clone()),
                _ => None,
            })))
        }
        DataType::Date => Arc::new(of!(Date32Type, Day)),
        DataType::Timestamp(_) => Arc::new(of!(TimestampMicrosecondType, Micros)),
        DataType::TimestampLtz(_) => Arc::new(of!(TimestampMicrosecondType, Micros).with_timezone("UTC")),
    }
}

fn value_at(data_type: &DataType, column: &ArrayRef, row: usize) -> Option<Value> {
    assert_eq!(column.data_type(), &data_type.arrow());
    Some(match data_type {
        _ if column.is_null(row) => return None,
        DataType::Boolean => Value::Bool(column.as_boolean().value(row)),
        DataType::TinyInt => Value::Int(column.as_primitive::<Int8Type>().value(row).into()),
        DataType::SmallInt => Value::Int(column.as_primitive::<Int16Type>().value(row).into()),
        DataType::Int => Value::Int(column.as_primitive::<Int32Type>().value(row).into()),
        DataType::BigInt => Value::Int(column.as_primitive::<Int64Type>().value(row)),
        DataType::Float => Value::Single(column.as_primitive::<Float32Type>().value(row)),
        DataType::Double => Value::Real(column.as_primitive::<Float64Type>().value(row)),
        DataType::Decimal { scale, .. } => Value::Decimal(column.as_primitive::<Decimal128Type>().value(row), *scale),
        DataType::Char(_) | DataType::Varchar(_) | DataType::String => {
            Value::Text(column.as_string::<i32>().value(row).to_owned())
        }
        DataType::Binary(_) | DataType::Varbinary(_) | DataType::Bytes => {
            Value::Bytes(column.as_binary::<i32>().value(row).to_vec())
        }
        DataType::Date => Value::Day(column.as_primitive::<Date32Type>().value(row)),
        DataType::Timestamp(_) | DataType::TimestampLtz(_) => {
            Value::Micros(column.as_primitive::<TimestampMicrosecondType>().value(row))
        }
    })
}

/// Types from which values can be read as the next one.
const LADDERS: &[&[&str]] = &[
    &["TINYINT", "SMALLINT", "INT", "BIGINT", "DECIMAL(19, 0)", "DECIMAL(25, 3)"],
    &["SMALLINT", "FLOAT", "DOUBLE"],
    &["TINYINT", "DOUBLE"],
    &["FLOAT", "DOUBLE"],
    &["INT", "DECIMAL(12, 2)", "DECIMAL(38, 10)"],
    &["DECIMAL(6, 2)", "DECIMAL(9, 2)", "DECIMAL(18, 4)", "DECIMAL(30, 4)"],
    &["CHAR(4)", "VARCHAR(4)", "VARCHAR(9)", "STRING"],
    &["BINARY(3)", "VARBINARY(3)", "VARBINARY(8)", "BYTES"],
    &["DATE", "TIMESTAMP(6)"],
    &["TIMESTAMP(6)"],
    &["TIMESTAMP(6) WITH LOCAL TIME ZONE"],
    &["BOOLEAN"],
];

/// Few, so that names come back; and some that are easily taken for one another, or for something else.
const NAMES: &[&str] = &["a", "A", "a.b", "b", "größe", "x y", "id2", "_SEQUENCE"];

/// A row as it was written, by field id. A field that is missing did not exist.
type Row = BTreeMap<i32, Option<Value>>;
type Rows = BTreeMap<i64, Row>;

#[derive(Default, Debug)]
struct Seen {
    /// Rows read from files of a schema before the one before, and values that were defaults or widened in them.
    old_rows: usize,
    defaults: usize,
    widened: usize,
    /// Commits with files of four or more schemas.
    generations: usize,
    /// Files written by merges.
    merged: usize,
    /// Columns that have the name of one that is gone.
    names_again: usize,
}

struct Trial {
    ctx: WriterContext,
    path: Path,
    options: TableOptions,
    writer: TableWriter,
    model: Rows,
    /// The values that were given to rows when the columns were added.
    defaults: BTreeMap<i32, Value>,
    committed: Option<(String, Rows)>,
    commits: u64,
    gone: BTreeSet<String>,
    seen: Seen,
    random: StdRng,
}

impl Trial {
    async fn new(seed: u64) -> Self {
        let (ctx, path, options) = (context(), Path::from("shop/items"), small_options(2));
        let fields = vec![new_field("a", DataType::Int, true), new_field("id", DataType::BigInt, false)];
        let schema = TableSchema::new(fields, vec!["id".to_owned()], BTreeMap::new(), None, 0).unwrap();
        let writer = TableWriter::create(ctx.clone(), path.clone(), schema, options.clone()).await.unwrap();
        Self {
            ctx,
            path,
            options,
            writer,
            model: Rows::new(),
            defaults: BTreeMap::new(),
            committed: None,
            commits: 0,
            gone: BTreeSet::new(),
            seen: Seen::default(),
            random: StdRng::seed_from_u64(seed),
        }
    }

    fn apply(&mut self) {
        let schema = Arc::clone(self.writer.schema());
        let key = schema.key_indices()[0];
        let count = self.random.random_range(1..30);
        let mut columns: Vec<Vec<Option<Value>>> = vec![Vec::new(); schema.fields.len()];
        let mut kinds = Vec::new();
        for _ in 0..count {
            let id = self.random.random_range(0..200);
            for (index, (field, column)) in schema.fields.iter().zip(&mut columns).enumerate() {
                let value = self.random.random_bool(0.8).then(|| Value::random(&field.data_type, &mut self.random));
                column.push(if index == key { Some(Value::Int(id)) } else { value });
            }
            if self.random.random_bool(0.15) {
                kinds.push(RowKind::Delete);
                self.model.remove(&id);
            } else {
                kinds.push(RowKind::Upsert);
                let row =
                    schema.fields.iter().zip(&columns).map(|(f, column)| (f.id, column[column.len() - 1].clone()));
                self.model.insert(id, row.collect());
            }
        }
        let arrays = schema.fields.iter().zip(&columns).map(|(field, values)| array(&field.data_type, values));
        let batch = RecordBatch::try_new(schema.arrow_schema(), arrays.collect()).unwrap();
        self.writer.apply(batch, kinds).unwrap();
    }

    /// Several changes in one step.
    async fn evolve(&mut self) {
        let mut schema = self.writer.schema().as_ref().clone();
        let before = schema.clone();
        let mut changes = Vec::new();
        for _ in 0..self.random.random_range(1..6) {
            let Some(change) = self.change(&schema) else { continue };
            let next = schema.evolve(std::slice::from_ref(&change), 1).unwrap_or_else(|e| panic!("{change:?}: {e}"));
            if let SchemaChange::DropColumn { name } = &change {
                self.gone.insert(name.clone());
            }
            schema = next;
            changes.push(change);
        }
        let schema = before.evolve(&changes, 1).unwrap();
        self.writer.evolve(schema).await.unwrap();
    }

    fn change(&mut self, schema: &TableSchema) -> Option<SchemaChange> {
        let random = &mut self.random;
        let field = schema.fields.choose(random)?;
        let is_key = schema.primary_keys.contains(&field.name);
        let free: Vec<&str> = NAMES.iter().copied().filter(|name| schema.field(name).is_none()).collect();
        let position = match random.random_range(0..3) {
            0 => ColumnPosition::First,
            1 => ColumnPosition::Last,
            _ => ColumnPosition::After(field.name.clone()),
        };
        match random.random_range(0..10) {
            0..=3 => {
                let name = *free.choose(random)?;
                let ladder = LADDERS.choose(random)?;
                let data_type: DataType = ladder[random.random_range(0..ladder.len().div_ceil(2))].parse().unwrap();
                let default = random.random_bool(0.7).then(|| Value::random(&data_type, random));
                let initial_default = default.as_ref().map(|value| value.as_default(&data_type));
                if let Some(value) = default {
                    // Steps are tried before they are made, so ids come again only for the same change.
                    self.defaults.insert(schema.highest_field_id + 1, value);
                } else {
                    self.defaults.remove(&(schema.highest_field_id + 1));
                }
                self.seen.names_again += usize::from(self.gone.contains(name));
                Some(SchemaChange::AddColumn { field: new_field(name, data_type, true), position, initial_default })
            }
            4 if !is_key => Some(SchemaChange::DropColumn { name: field.name.clone() }),
            5 => Some(SchemaChange::RenameColumn { from: field.name.clone(), to: (*free.choose(random)?).to_owned() }),
            6 => {
                let other = schema.fields.choose(random)?;
                let position = match position {
                    ColumnPosition::After(_) if other.name != field.name => ColumnPosition::After(other.name.clone()),
                    ColumnPosition::After(_) => ColumnPosition::Last,
                    position => position,
                };
                Some(SchemaChange::Move { name: field.name.clone(), position })
            }
            _ if !is_key => {
                let text = field.data_type.to_string();
                let mut ladders = LADDERS.to_vec();
                ladders.shuffle(random);
                let wider = ladders.iter().find_map(|ladder| {
                    let at = ladder.iter().position(|step| *step == text)?;
                    ladder[at + 1..].choose(random).copied()
                })?;
                let (name, data_type) = (field.name.clone(), wider.parse().unwrap());
                Some(SchemaChange::ChangeType { name, data_type, nullable: true })
            }
            _ => None,
        }
    }

    /// What a reader must see, in the order of the columns.
    fn expected(&self, schema: &TableSchema) -> BTreeMap<i64, Vec<Option<Value>>> {
        let seen = |row: &Row, field: &Field| {
            let value = row.get(&field.id).cloned().unwrap_or_else(|| self.defaults.get(&field.id).cloned());
            value.map(|value| value.read_as(&field.data_type))
        };
        let rows = self.model.iter();
        rows.map(|(id, row)| (*id, schema.fields.iter().map(|field| seen(row, field)).collect())).collect()
    }

    async fn check(&mut self, version: &TableVersion) {
        let schema = &version.schema;
        let names = Arc::new(Names::new(&crate::random::SystemRandom));
        let layout = Layout::new(
            self.ctx.clone(),
            self.path.clone(),
            names,
            self.options.clone(),
            Arc::clone(schema),
            Arc::clone(&version.schemas),
        );
        let layout = layout.unwrap();
        let mut all = BTreeMap::new();
        let mut generations = BTreeSet::new();
        for file in &version.files {
            let written = &version.schemas[&(file.meta.schema_id as u64)];
            generations.insert(written.id);
            self.seen.merged += usize::from(file.meta.file_source == Some(FileSource::Compact));
            let batches: Vec<RecordBatch> =
                read::rows(&layout, &file.path, &file.meta).await.unwrap().try_collect().await.unwrap();
            let mut position = 0;
            for batch in &batches {
                assert_eq!(batch.schema(), schema.arrow_schema());
                for row in 0..batch.num_rows() {
                    position += 1;
                    if file.deleted.as_ref().is_some_and(|deleted| deleted.contains(position - 1)) {
                        continue;
                    }
                    let fields = schema.fields.iter().zip(batch.columns());
                    let values: Vec<_> = fields.map(|(f, column)| value_at(&f.data_type, column, row)).collect();
                    let Some(Value::Int(id)) = values[schema.key_indices()[0]] else { panic!("a key is NULL") };
                    assert!(all.insert(id, values).is_none(), "key {id} is live twice");
                    self.seen.old_rows += usize::from(written.id + 1 < schema.id);
                    for field in &schema.fields {
                        match written.fields.iter().find(|old| old.id == field.id) {
                            Some(old) => self.seen.widened += usize::from(old.data_type != field.data_type),
                            None => self.seen.defaults += usize::from(field.initial_default.is_some()),
                        }
                    }
                }
            }
        }
        self.seen.generations += usize::from(generations.len() >= 4);
        assert_eq!(all, self.expected(schema));
    }

    async fn commit(&mut self) {
        self.commits += 1;
        let prepared = self.writer.prepare(self.commits, BTreeMap::new()).await.unwrap();
        self.check(&prepared.version).await;
        let loaded = TableVersion::load(&self.ctx.store, &self.path, &prepared.snapshot.json).await.unwrap();
        assert_eq!(loaded.schema, prepared.version.schema);
        self.check(&loaded).await;
        self.writer.committed(true);
        publish(&self.ctx.store, &self.path, &prepared.snapshot).await.unwrap().require().unwrap();
        self.committed = Some((prepared.snapshot.json, self.model.clone()));
    }

    async fn reopen(&mut self) {
        let Some((json, model)) = self.committed.clone() else { return };
        self.model = model;
        let (ctx, options) = (self.ctx.clone(), self.options.clone());
        self.writer = TableWriter::open(ctx, self.path.clone(), &json, true, options).await.unwrap();
    }

    async fn run(mut self, steps: usize) -> Seen {
        for _ in 0..steps {
            match self.random.random_range(0..100) {
                0..45 => self.apply(),
                45..65 => self.evolve().await,
                65..92 => self.commit().await,
                92..96 => self.reopen().await,
                _ => self.writer.compact().await.unwrap(),
            }
        }
        self.writer.compact().await.unwrap();
        self.commit().await;
        self.seen
    }
}

#[test]
fn files_of_every_generation_are_read_as_the_newest_schema() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let mut total = Seen::default();
    for seed in 0..24 {
        println!("seed {seed}");
        let seen = runtime.block_on(async { Trial::new(seed).await.run(100).await });
        total.old_rows += seen.old_rows;
        total.defaults += seen.defaults;
        total.widened += seen.widened;
        total.generations += seen.generations;
        total.merged += seen.merged;
        total.names_again += seen.names_again;
    }
    println!("{total:?}");
    assert!(total.old_rows > 1000 && total.defaults > 1000 && total.widened > 1000, "{total:?}");
    assert!(total.generations > 50 && total.merged > 100 && total.names_again > 50, "{total:?}");
}

/// A file that a merge writes holds the default itself, so that every engine reads it there.
#[tokio::test]
async fn a_merge_writes_defaults_out() {
    let mut trial = Trial::new(7).await;
    let schema = trial.writer.schema().as_ref().clone();
    let rows = |schema: &TableSchema, ids: std::ops::Range<i64>, added: Option<&str>| {
        let ids: Vec<_> = ids.map(|id| Some(Value::Int(id))).collect();
        let columns = schema.fields.iter().map(|field| match field.name.as_str() {
            "id" => array(&field.data_type, &ids),
            "added" => array(&field.data_type, &vec![added.map(|text| Value::Text(text.to_owned())); ids.len()]),
            _ => array(&field.data_type, &vec![None; ids.len()]),
        });
        RecordBatch::try_new(schema.arrow_schema(), columns.collect()).unwrap()
    };
    trial.writer.apply(rows(&schema, 0..40, None), vec![RowKind::Upsert; 40]).unwrap();
    trial.writer.flush().await.unwrap();
    let add = SchemaChange::AddColumn {
        field: new_field("added", DataType::Varchar(20), true),
        position: ColumnPosition::First,
        initial_default: Some("it's here".to_owned()),
    };
    let next = schema.evolve(&[add], 1).unwrap();
    trial.writer.evolve(next.clone()).await.unwrap();
    let prepared = trial.writer.prepare(1, BTreeMap::new()).await.unwrap();
    assert!(
        prepared.version.files.iter().all(|file| file.meta.schema_id == 0),
        "nothing is written by the change alone"
    );
    // Enough small runs that all of them are merged.
    for round in 0..12 {
        trial.writer.apply(rows(&next, round..round + 20, Some("new")), vec![RowKind::Upsert; 20]).unwrap();
        trial.writer.flush().await.unwrap();
    }
    trial.writer.compact().await.unwrap();
    let prepared = trial.writer.prepare(2, BTreeMap::new()).await.unwrap();
    let mut found = 0;
    for row in super::read_all(&trial.ctx.store, &prepared.version).await.into_values() {
        // As a reader sees it that knows nothing of defaults.
        let id: i64 = row[&1].as_ref().unwrap().parse().unwrap();
        let expected = if id < 31 { "new" } else { "it's here" };
        assert_eq!(row.get(&2), Some(&Some(expected.to_owned())), "row {id}");
        found += usize::from(id >= 31);
    }
    assert_eq!(found, 9);
}
