//! A table's schema: its fields, keys and options, and how one version follows from another.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType as Arrow, Field as ArrowField, Schema, SchemaRef};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::data_type::DataType;
use super::{initial_default, json_digest};
use crate::error::{Error, Result};

/// Name of the column with a row's sequence number in data files.
pub const SEQUENCE_NUMBER: &str = "_SEQUENCE_NUMBER";
/// Name of the column with a row's kind in data files: 0 is an insert.
pub const VALUE_KIND: &str = "_VALUE_KIND";
/// What the names of key columns in data files begin with.
pub const KEY_PREFIX: &str = "_KEY_";
/// Key of a field's id in the metadata of Arrow fields, as Parquet writers and readers look for it.
pub const FIELD_ID: &str = "PARQUET:field_id";

/// The table option that says where a changelog comes from.
pub const CHANGELOG_PRODUCER: &str = "changelog-producer";
/// Its value for a changelog of what is written, as it is written.
pub const CHANGELOG_INPUT: &str = "input";

/// What the names of options begin with that hold a column's [`Field::initial_default`]; the column's id follows. The
/// text is kept among the options because Paimon's own programs keep options that they do not know, and fields of
/// theirs only. It is not a field's `defaultValue`: that is for rows that are written without a value.
const INITIAL_DEFAULT_PREFIX: &str = "tidegate.initial-default.";

/// Ids of the columns that data files have and tables have not (`SpecialFields` in Paimon).
const KEY_FIELD_ID_START: i32 = 1_073_741_823;
const SEQUENCE_NUMBER_ID: i32 = 2_147_483_646;
const VALUE_KIND_ID: i32 = 2_147_483_645;

/// A column of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// Identity of the column for as long as the table lives; never used again after the column is dropped.
    pub id: i32,
    /// Current name.
    pub name: String,
    /// Type of the values.
    pub data_type: DataType,
    /// Whether values may be NULL.
    pub nullable: bool,
    /// Comment.
    pub description: Option<String>,
    /// The value in rows that were written before the column was added, as exact text of the column's type; they have
    /// NULL where there is none. It stays the same for as long as the column lives, whatever its default becomes.
    pub initial_default: Option<String>,
}

impl Field {
    /// The value in rows of files that do not have the column, as an array of length 1; `None` for NULL.
    ///
    /// Errors: [`Error::Invalid`] if [`Self::initial_default`] is not a value of the type, which no schema allows.
    pub fn initial_value(&self) -> Result<Option<ArrayRef>> {
        let Some(text) = &self.initial_default else { return Ok(None) };
        let value = initial_default::value(&self.data_type, text);
        value
            .map(Some)
            .map_err(|error| Error::invalid(format!("the initial default of column {:?}: {error}", self.name)))
    }

    fn arrow(&self) -> ArrowField {
        arrow_field(&self.name, self.data_type.arrow(), self.nullable, self.id)
    }
}

/// One version of a table's schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableSchema {
    /// Number of this version, from 0; the name of its file is `schema-<id>`.
    pub id: u64,
    /// Columns in order.
    pub fields: Vec<Field>,
    /// Largest field id ever given in this table.
    pub highest_field_id: i32,
    /// Names of the primary key's columns, in key order.
    pub primary_keys: Vec<String>,
    /// Everything a reader or writer must know about how the table is stored.
    pub options: BTreeMap<String, String>,
    /// Comment.
    pub comment: Option<String>,
    /// When this version was made.
    pub time_millis: i64,
}

/// A column to be added: a [`Field`] without an id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewField {
    /// Name.
    pub name: String,
    /// Type of the values.
    pub data_type: DataType,
    /// Whether values may be NULL.
    pub nullable: bool,
    /// Comment.
    pub description: Option<String>,
}

/// Where a column goes among the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ColumnPosition {
    /// Before all others.
    First,
    /// Right behind the named column.
    After(String),
    /// Behind all others.
    Last,
}

/// One step from a schema to the next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SchemaChange {
    /// A new column.
    AddColumn {
        /// The column.
        field: NewField,
        /// Its place.
        position: ColumnPosition,
        /// The value in rows written before, as text of the column's type; NULL without one. See
        /// [`Field::initial_default`].
        initial_default: Option<String>,
    },
    /// The column and its values are gone; its id is never used again.
    DropColumn {
        /// Current name.
        name: String,
    },
    /// The column keeps its id and values.
    RenameColumn {
        /// Current name.
        from: String,
        /// New name.
        to: String,
    },
    /// The column keeps its id; stored values are read as the new type. See [`DataType::widens_to`].
    ChangeType {
        /// Current name.
        name: String,
        /// New type.
        data_type: DataType,
        /// Whether values may be NULL from now on.
        nullable: bool,
    },
    /// The column goes to another place.
    Move {
        /// Current name.
        name: String,
        /// Its new place.
        position: ColumnPosition,
    },
    /// The table's comment.
    SetComment {
        /// The comment.
        comment: Option<String>,
    },
    /// A column's comment.
    SetColumnComment {
        /// Current name.
        name: String,
        /// The comment.
        comment: Option<String>,
    },
}

impl TableSchema {
    /// The first schema of a table: version 0, field ids in order of `fields`.
    pub fn new(
        fields: Vec<NewField>,
        primary_keys: Vec<String>,
        options: BTreeMap<String, String>,
        comment: Option<String>,
        time_millis: i64,
    ) -> Result<Self> {
        let fields: Vec<Field> = (0..).zip(fields).map(|(id, field)| field.with_id(id)).collect();
        let highest_field_id = fields.last().map_or(-1, |field| field.id);
        let schema = Self { id: 0, fields, highest_field_id, primary_keys, options, comment, time_millis };
        schema.validate()?;
        Ok(schema)
    }

    /// The options of a table of the shape this crate writes: deletion vectors, `levels` levels of sorted runs with
    /// level 0 unused, and no compaction by others.
    pub fn default_options(buckets: u32, levels: u32) -> BTreeMap<String, String> {
        [
            ("bucket", buckets.to_string()),
            ("file.format", "parquet".into()),
            ("file.compression", "zstd".into()),
            ("merge-engine", "deduplicate".into()),
            ("deletion-vectors.enabled", "true".into()),
            ("num-levels", levels.to_string()),
            ("write-only", "true".into()),
            ("manifest.format", "avro".into()),
            ("manifest.compression", "zstd".into()),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
    }

    /// Number of buckets, from the options.
    pub fn buckets(&self) -> Result<u32> {
        let text = self.options.get("bucket").map_or("", String::as_str);
        text.parse().ok().filter(|n| *n > 0).ok_or_else(|| {
            Error::invalid(format!("table option bucket is {text:?}; only a fixed number of buckets is supported"))
        })
    }

    /// Whether every change is written to a changelog too, as it came: the table option [`CHANGELOG_PRODUCER`].
    ///
    /// Errors: if there is to be one of a kind that is made while merging, which only the engine that merges can do.
    pub fn has_changelog(&self) -> Result<bool> {
        match self.options.get(CHANGELOG_PRODUCER).map(String::as_str) {
            None | Some("none") => Ok(false),
            Some(CHANGELOG_INPUT) => Ok(true),
            Some(other) => Err(Error::invalid(format!(
                "table option {CHANGELOG_PRODUCER} is {other:?}, which is not supported; it may be \"none\" or \"input\""
            ))),
        }
    }

    /// The field named `name`.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// Index of the column named `name`.
    pub fn index_of(&self, name: &str) -> Option<usize> {
        self.fields.iter().position(|field| field.name == name)
    }

    /// Indices of the primary key's columns, in key order.
    pub fn key_indices(&self) -> Vec<usize> {
        self.primary_keys.iter().filter_map(|name| self.index_of(name)).collect()
    }

    /// Types of the primary key's columns, in key order.
    pub fn key_types(&self) -> Vec<DataType> {
        self.key_indices().into_iter().map(|i| self.fields[i].data_type.clone()).collect()
    }

    /// The table's columns as an Arrow schema.
    pub fn arrow_schema(&self) -> SchemaRef {
        Arc::new(Schema::new(self.fields.iter().map(Field::arrow).collect::<Vec<_>>()))
    }

    /// The columns of a data file: `_KEY_*`, `_SEQUENCE_NUMBER`, `_VALUE_KIND`, then the table's columns.
    pub fn file_schema(&self) -> SchemaRef {
        let keys = self.key_indices().into_iter().map(|i| {
            let field = &self.fields[i];
            let name = format!("{KEY_PREFIX}{}", field.name);
            arrow_field(&name, field.data_type.arrow(), false, KEY_FIELD_ID_START.saturating_add(field.id))
        });
        let fixed = [
            arrow_field(SEQUENCE_NUMBER, Arrow::Int64, false, SEQUENCE_NUMBER_ID),
            arrow_field(VALUE_KIND, Arrow::Int8, false, VALUE_KIND_ID),
        ];
        Arc::new(Schema::new(keys.chain(fixed).chain(self.fields.iter().map(Field::arrow)).collect::<Vec<_>>()))
    }

    /// The next version: `changes` applied in order. Nothing but the id changes if they amount to nothing.
    ///
    /// Errors: [`Error::Invalid`] for a change that cannot be made without writing the rows anew (a key column's
    /// type, a type the stored values cannot be read as, an added column that may not be NULL) or that names no column.
    pub fn evolve(&self, changes: &[SchemaChange], time_millis: i64) -> Result<Self> {
        let mut next = self.clone();
        for change in changes {
            next.apply(change)?;
        }
        next.id = self.id + 1;
        next.time_millis = time_millis;
        next.validate()?;
        Ok(next)
    }

    fn apply(&mut self, change: &SchemaChange) -> Result<()> {
        match change {
            SchemaChange::AddColumn { field, position, initial_default } => {
                if !field.nullable {
                    return Err(Error::invalid(format!(
                        "column {:?} cannot be added as NOT NULL: rows written before have no value for it",
                        field.name
                    )));
                }
                let id = self.highest_field_id.checked_add(1).filter(|id| *id < KEY_FIELD_ID_START);
                let id = id.ok_or_else(|| Error::invalid("the table has used up its field ids"))?;
                self.highest_field_id = id;
                self.refuse_taken(&field.name)?;
                let mut field = field.clone().with_id(id);
                if let Some(text) = initial_default {
                    let canonical = initial_default::canonical(&field.data_type, text);
                    field.initial_default = Some(canonical.map_err(|error| {
                        Error::invalid(format!("column {:?} cannot be added with this default: {error}", field.name))
                    })?);
                }
                self.insert(field, position)?;
            }
            SchemaChange::DropColumn { name } => {
                self.refuse_key(name, "dropped")?;
                let index = self.require(name)?;
                self.fields.remove(index);
            }
            SchemaChange::RenameColumn { from, to } => {
                let index = self.require(from)?;
                if from != to {
                    self.refuse_taken(to)?;
                }
                self.fields[index].name.clone_from(to);
                for key in &mut self.primary_keys {
                    if key == from {
                        key.clone_from(to);
                    }
                }
            }
            SchemaChange::ChangeType { name, data_type, nullable } => {
                let index = self.require(name)?;
                let field = &self.fields[index];
                if field.data_type != *data_type {
                    self.refuse_key(name, "given another type")?;
                    if !field.data_type.widens_to(data_type) {
                        return Err(Error::invalid(format!(
                            "column {name:?} cannot go from {} to {data_type} without its rows being written anew",
                            field.data_type
                        )));
                    }
                }
                if field.nullable && !nullable {
                    return Err(Error::invalid(format!(
                        "column {name:?} cannot become NOT NULL: rows written before may be NULL in it"
                    )));
                }
                let field = &mut self.fields[index];
                if let Some(text) = &field.initial_default {
                    field.initial_default = Some(initial_default::widened(&field.data_type, data_type, text)?);
                }
                field.data_type = data_type.clone();
                field.nullable = *nullable;
            }
            SchemaChange::Move { name, position } => {
                let index = self.require(name)?;
                let field = self.fields.remove(index);
                self.insert(field, position)?;
            }
            SchemaChange::SetComment { comment } => self.comment.clone_from(comment),
            SchemaChange::SetColumnComment { name, comment } => {
                let index = self.require(name)?;
                self.fields[index].description.clone_from(comment);
            }
        }
        Ok(())
    }

    fn insert(&mut self, field: Field, position: &ColumnPosition) -> Result<()> {
        let index = match position {
            ColumnPosition::First => 0,
            ColumnPosition::After(name) => self.require(name)? + 1,
            ColumnPosition::Last => self.fields.len(),
        };
        self.fields.insert(index, field);
        Ok(())
    }

    fn require(&self, name: &str) -> Result<usize> {
        self.index_of(name).ok_or_else(|| Error::invalid(format!("the table has no column {name:?}")))
    }

    /// Two columns of one name, be it only until the next change, would leave open which of them that is about.
    fn refuse_taken(&self, name: &str) -> Result<()> {
        match self.field(name) {
            Some(_) => Err(Error::invalid(format!("column name {name:?} is not unique"))),
            None => Ok(()),
        }
    }

    fn refuse_key(&self, name: &str, what: &str) -> Result<()> {
        if self.primary_keys.iter().any(|key| key == name) {
            return Err(Error::invalid(format!("column {name:?} is part of the primary key and cannot be {what}")));
        }
        Ok(())
    }

    /// Checks what every reader relies on.
    fn validate(&self) -> Result<()> {
        let (mut names, mut ids) = (BTreeSet::new(), BTreeSet::new());
        for field in &self.fields {
            let name = field.name.as_str();
            if name.is_empty() || !names.insert(name) {
                return Err(Error::invalid(format!("column name {name:?} is empty or not unique")));
            }
            if name.starts_with(KEY_PREFIX) || [SEQUENCE_NUMBER, VALUE_KIND, "_LEVEL", "rowkind"].contains(&name) {
                return Err(Error::invalid(format!("column name {name:?} is reserved by the table format")));
            }
            if !ids.insert(field.id) || !(0..=self.highest_field_id).contains(&field.id) {
                return Err(Error::invalid(format!(
                    "column {name:?} has the field id {}, not unique or above the highest",
                    field.id
                )));
            }
            // Files hold timestamps of up to 3 digits as milliseconds; everything here is in microseconds.
            if let DataType::Timestamp(p) | DataType::TimestampLtz(p) = field.data_type
                && !(4..=6).contains(&p)
            {
                return Err(Error::invalid(format!(
                    "column {name:?} is {}: only 4 to 6 digits are supported",
                    field.data_type
                )));
            }
            field.initial_value()?;
        }
        if self.primary_keys.is_empty() {
            return Err(Error::invalid("a table needs a primary key"));
        }
        let mut keys = BTreeSet::new();
        for key in &self.primary_keys {
            let field =
                self.field(key).ok_or_else(|| Error::invalid(format!("primary key column {key:?} does not exist")))?;
            if field.nullable || !keys.insert(key) {
                return Err(Error::invalid(format!("primary key column {key:?} is nullable or named twice")));
            }
        }
        Ok(())
    }

    /// The bytes of the schema's file.
    pub fn to_json(&self) -> String {
        let fields = self.fields.iter().map(|field| FieldJson {
            id: field.id,
            name: field.name.clone(),
            data_type: Value::String(if field.nullable {
                field.data_type.to_string()
            } else {
                format!("{} NOT NULL", field.data_type)
            }),
            description: field.description.clone(),
        });
        let mut options = self.options.clone();
        for field in &self.fields {
            if let Some(text) = &field.initial_default {
                options.insert(format!("{INITIAL_DEFAULT_PREFIX}{}", field.id), text.clone());
            }
        }
        let json = SchemaJson {
            version: SCHEMA_VERSION,
            id: self.id,
            fields: fields.collect(),
            highest_field_id: self.highest_field_id,
            partition_keys: Vec::new(),
            primary_keys: self.primary_keys.clone(),
            options,
            comment: self.comment.clone(),
            time_millis: self.time_millis,
        };
        serde_json::to_string_pretty(&json).expect("a struct of strings and numbers is always JSON")
    }

    /// The bytes of the schema's file, with a digest of them among the options.
    pub fn to_digested_json(&self) -> String {
        let mut digested = self.clone();
        json_digest::add(&mut digested.options, self.id);
        json_digest::seal(digested.to_json(), self.id)
    }

    /// Reads a schema's file and verifies its digest if it has one. `object` is its path.
    pub fn from_json(object: &str, json: &[u8]) -> Result<Self> {
        let bytes = json;
        let mut json: SchemaJson =
            serde_json::from_slice(bytes).map_err(|e| Error::corrupt(object, format!("not a schema: {e}")))?;
        json_digest::verify(bytes, json.id, &mut json.options).map_err(|what| Error::corrupt(object, what))?;
        if json.version > SCHEMA_VERSION {
            return Err(Error::invalid(format!(
                "object {object} has schema version {}, newer than this program",
                json.version
            )));
        }
        if !json.partition_keys.is_empty() {
            return Err(Error::invalid(format!(
                "object {object} describes a partitioned table, which is not supported"
            )));
        }
        let mut fields = Vec::with_capacity(json.fields.len());
        for field in json.fields {
            // Nested types are objects.
            let Value::String(text) = &field.data_type else {
                return Err(Error::invalid(format!(
                    "object {object}: column {:?}: column type {} is not supported: it is nested",
                    field.name, field.data_type
                )));
            };
            let text = text.trim();
            let (text, nullable) = text.strip_suffix("NOT NULL").map_or((text, true), |text| (text, false));
            let data_type =
                text.parse().map_err(|e| Error::invalid(format!("object {object}: column {:?}: {e}", field.name)))?;
            // Those of columns that another program dropped go with them.
            let initial_default = json.options.get(&format!("{INITIAL_DEFAULT_PREFIX}{}", field.id)).cloned();
            let FieldJson { id, name, description, .. } = field;
            fields.push(Field { id, name, data_type, nullable, description, initial_default });
        }
        json.options.retain(|key, _| !key.starts_with(INITIAL_DEFAULT_PREFIX));
        let schema = Self {
            id: json.id,
            fields,
            highest_field_id: json.highest_field_id,
            primary_keys: json.primary_keys,
            options: json.options,
            comment: json.comment,
            time_millis: json.time_millis,
        };
        schema.validate().map_err(|e| Error::corrupt(object, e.to_string()))?;
        Ok(schema)
    }
}

impl NewField {
    fn with_id(self, id: i32) -> Field {
        let Self { name, data_type, nullable, description } = self;
        Field { id, name, data_type, nullable, description, initial_default: None }
    }
}

fn arrow_field(name: &str, data_type: Arrow, nullable: bool, id: i32) -> ArrowField {
    ArrowField::new(name, data_type, nullable).with_metadata(HashMap::from([(FIELD_ID.to_owned(), id.to_string())]))
}

/// Version of the schema file's layout (`TableSchema.CURRENT_VERSION` in Paimon).
const SCHEMA_VERSION: u32 = 3;

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SchemaJson {
    version: u32,
    id: u64,
    fields: Vec<FieldJson>,
    highest_field_id: i32,
    partition_keys: Vec<String>,
    primary_keys: Vec<String>,
    options: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    comment: Option<String>,
    time_millis: i64,
}

#[derive(Serialize, Deserialize)]
struct FieldJson {
    id: i32,
    name: String,
    #[serde(rename = "type")]
    data_type: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    description: Option<String>,
}

#[cfg(test)]
mod tests;
