//! Clauses of an `ALTER TABLE` applied to a captured table's definition, beside the changes of its mirror's schema.

use tidegate_storage::paimon::{ColumnPosition, DataType, NewField, SchemaChange};

use super::order::one_by_one;
use super::parse::{Clause, ColumnDef, ColumnPlace, DefaultValue};
use crate::mysql::Flavor;
use crate::mysql::types::{LobSize, MysqlColumn, MysqlTable, MysqlType, TextCharset};

/// What an `ALTER TABLE` makes of a captured table.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Applied {
    pub(crate) table: MysqlTable,
    /// Changes of the mirror's schema, in order; empty when its columns stay as they are.
    pub(crate) changes: Vec<SchemaChange>,
    /// Why stored values may differ from what the mirror holds: the server computed or rewrote them and logged no rows.
    pub(crate) rewrites: Option<String>,
}

/// Applies the clauses as the server does, as one step. The error says why the definition cannot be followed.
pub(crate) fn apply(table: &MysqlTable, clauses: &[Clause], flavor: Flavor) -> Result<Applied, String> {
    let mut next = Applied { table: table.clone(), changes: Vec::new(), rewrites: None };
    for clause in &one_by_one(table, clauses) {
        next.clause(clause, flavor)?;
    }
    Ok(next)
}

impl Applied {
    fn clause(&mut self, clause: &Clause, flavor: Flavor) -> Result<(), String> {
        match clause {
            Clause::AddColumn { column, place, if_not_exists } => self.add(column, place, *if_not_exists, flavor),
            Clause::DropColumn { name, if_exists } => self.drop(name, *if_exists),
            Clause::RenameColumn { from, to } => {
                let at = self.find(from)?;
                self.rename(at, to);
                Ok(())
            }
            Clause::ChangeColumn { from, column, place, if_exists } => {
                self.change(from, column, place.as_ref(), *if_exists, flavor)
            }
            Clause::RenameTable(to) => Err(format!("the table was renamed to {}.{}", to.database, to.table)),
            Clause::PrimaryKey => Err("its primary key was changed".to_owned()),
            Clause::ConvertCharset => {
                for column in &mut self.table.columns {
                    forget_charset(&mut column.column_type);
                }
                self.rewritten("text was converted to another character set");
                Ok(())
            }
            Clause::PartitionRows => {
                self.rewritten("rows were moved or deleted without being logged");
                Ok(())
            }
            Clause::ExchangedWith(_) | Clause::Harmless => Ok(()),
        }
    }

    fn find(&self, name: &str) -> Result<usize, String> {
        self.table
            .column_index(name)
            .ok_or_else(|| format!("it names the column {name}, which the table does not have"))
    }

    fn rewritten(&mut self, why: impl Into<String>) {
        self.rewrites.get_or_insert_with(|| why.into());
    }

    fn is_key(&self, name: &str) -> bool {
        self.table.primary_key.iter().any(|k| k.eq_ignore_ascii_case(name))
    }

    fn add(&mut self, def: &ColumnDef, place: &ColumnPlace, if_not_exists: bool, flavor: Flavor) -> Result<(), String> {
        if self.table.column_index(&def.name).is_some() {
            return if if_not_exists {
                Ok(())
            } else {
                Err(format!("it adds the column {}, which the table has", def.name))
            };
        }
        if def.primary_key {
            return Err("its primary key was changed".to_owned());
        }
        let column = column_of(def, None, flavor);
        let data_type = column.column_type.data_type()?;
        if def.generated {
            self.rewritten(format!("the server computed the new column {}", def.name));
        } else if def.auto_increment {
            self.rewritten(format!("the server numbered the new column {}", def.name));
        } else {
            match &def.default {
                // An older server gives a TIMESTAMP without a default the present time.
                DefaultValue::Absent if !def.not_null && !matches!(column.column_type, MysqlType::Timestamp { .. }) => {
                }
                DefaultValue::Null => {}
                // The server gives every stored row the default (or the type's zero) without logging a row.
                _ => self.rewritten(format!("stored rows got a value in the new column {}", def.name)),
            }
        }
        let at = self.insert_at(place)?;
        let position = self.position(at);
        self.table.columns.insert(at, column);
        let field = NewField {
            name: def.name.clone(),
            data_type,
            nullable: true,
            description: def.comment.clone().filter(|c| !c.is_empty()),
        };
        // Where stored rows got a value the table is read again, so that its files hold it: other engines do not know
        // of a value that stands in the schema only.
        self.changes.push(SchemaChange::AddColumn { field, position, initial_default: None });
        Ok(())
    }

    fn insert_at(&self, place: &ColumnPlace) -> Result<usize, String> {
        Ok(match place {
            ColumnPlace::Last => self.table.columns.len(),
            ColumnPlace::First => 0,
            ColumnPlace::After(name) => self.find(name)? + 1,
        })
    }

    /// The schema's word for the place `at`, counted before the column is inserted.
    fn position(&self, at: usize) -> ColumnPosition {
        match at.checked_sub(1).and_then(|before| self.table.columns.get(before)) {
            None => ColumnPosition::First,
            Some(_) if at == self.table.columns.len() => ColumnPosition::Last,
            Some(before) => ColumnPosition::After(before.name.clone()),
        }
    }

    fn drop(&mut self, name: &str, if_exists: bool) -> Result<(), String> {
        let at = match self.table.column_index(name) {
            Some(at) => at,
            None if if_exists => return Ok(()),
            None => return Err(format!("it drops the column {name}, which the table does not have")),
        };
        if self.is_key(name) {
            return Err(format!("the key column {name} was dropped"));
        }
        let column = self.table.columns.remove(at);
        self.changes.push(SchemaChange::DropColumn { name: column.name });
        Ok(())
    }

    fn rename(&mut self, at: usize, to: &str) {
        let Some(column) = self.table.columns.get_mut(at) else { return };
        let from = std::mem::replace(&mut column.name, to.to_owned());
        if from == to {
            return;
        }
        for key in &mut self.table.primary_key {
            if *key == from {
                to.clone_into(key);
            }
        }
        self.changes.push(SchemaChange::RenameColumn { from, to: to.to_owned() });
    }

    fn change(
        &mut self,
        from: &str,
        def: &ColumnDef,
        place: Option<&ColumnPlace>,
        if_exists: bool,
        flavor: Flavor,
    ) -> Result<(), String> {
        let at = match self.table.column_index(from) {
            Some(at) => at,
            None if if_exists => return Ok(()),
            None => return Err(format!("it changes the column {from}, which the table does not have")),
        };
        let Some(old) = self.table.columns.get(at).cloned() else { return Ok(()) };
        let key = self.is_key(&old.name);
        let new = column_of(def, Some(&old), flavor);
        let (old_type, new_type) = (old.column_type.data_type()?, new.column_type.data_type()?);
        if def.auto_increment {
            self.rewritten(format!("the server may have numbered the column {}", def.name));
        } else if def.generated || old.generated != new.generated {
            self.rewritten(format!("the server computed the column {}", def.name));
        } else if let Some(why) = rewrites(&old.column_type, &new.column_type) {
            self.rewritten(format!("values of the column {} {why}", def.name));
        } else if old.nullable && !new.nullable {
            // Outside strict mode the server turns NULL into the type's zero.
            self.rewritten(format!("the column {} became NOT NULL", def.name));
        } else if !readable_as(&old_type, &new_type) {
            self.rewritten(format!("values of the column {} take another form", def.name));
        } else if key && old.column_type != new.column_type {
            // The order of the key, a collation's too, is what ranges and their progress rely on.
            self.rewritten(format!("the key column {} changed its type or collation", def.name));
        }
        if def.name != old.name {
            self.rename(at, &def.name);
        }
        if old_type != new_type {
            self.changes.push(SchemaChange::ChangeType { name: def.name.clone(), data_type: new_type, nullable: !key });
        }
        if let Some(column) = self.table.columns.get_mut(at) {
            *column = new;
        }
        if let Some(place) = place {
            let column = self.table.columns.remove(at);
            let to = self.insert_at(place)?;
            let position = self.position(to);
            self.changes.push(SchemaChange::Move { name: column.name.clone(), position });
            self.table.columns.insert(to, column);
        }
        Ok(())
    }
}

fn column_of(def: &ColumnDef, old: Option<&MysqlColumn>, flavor: Flavor) -> MysqlColumn {
    let mut column_type = MysqlType::parse(&def.column_type, def.charset.as_deref(), def.collation.as_deref());
    if flavor == Flavor::MariaDb && column_type == MysqlType::Json {
        let text = TextCharset { charset: "utf8mb4".to_owned(), collation: "utf8mb4_bin".to_owned() };
        column_type = MysqlType::Text { size: LobSize::Long, text };
    }
    // Without a charset of its own the column has the table's; the old column's is the best guess, and the table map
    // of the next row event tells for sure.
    if def.charset.is_none()
        && def.collation.is_none()
        && let Some(charset) = old.and_then(|o| o.column_type.text_charset()).cloned()
    {
        set_charset(&mut column_type, charset);
    }
    MysqlColumn {
        name: def.name.clone(),
        column_type,
        nullable: !def.not_null && !def.primary_key,
        comment: def.comment.clone().unwrap_or_default(),
        default: match &def.default {
            DefaultValue::Constant(text) => Some(text.clone()),
            _ => None,
        },
        generated: def.generated,
        invisible: def.invisible,
    }
}

fn set_charset(column_type: &mut MysqlType, charset: TextCharset) {
    match column_type {
        MysqlType::Char { text, .. }
        | MysqlType::Varchar { text, .. }
        | MysqlType::Text { text, .. }
        | MysqlType::Enum { text, .. }
        | MysqlType::Set { text, .. } => *text = charset,
        _ => {}
    }
}

fn forget_charset(column_type: &mut MysqlType) {
    set_charset(column_type, TextCharset::default());
}

/// Why a change of type may rewrite stored values, or `None` where each value stays what it was.
fn rewrites(old: &MysqlType, new: &MysqlType) -> Option<&'static str> {
    use MysqlType as T;
    if old == new {
        return None;
    }
    if let (Some(a), Some(b)) = (old.text_charset(), new.text_charset())
        && !b.charset.is_empty()
        && !a.charset.is_empty()
        && a.charset != b.charset
    {
        return Some("were converted to another character set");
    }
    let narrowed = Some("may have been narrowed");
    match (old, new) {
        _ if integer(old).is_some() && integer(new).is_some() => {
            let ((width, unsigned), (to_width, to_unsigned)) = (integer(old)?, integer(new)?);
            let keeps = match (unsigned, to_unsigned) {
                (false, true) => false,
                (true, false) => to_width > width,
                _ => to_width >= width,
            };
            if keeps { None } else { narrowed }
        }
        (
            T::Decimal { precision, scale, unsigned },
            T::Decimal { precision: to_precision, scale: to_scale, unsigned: to_unsigned },
        ) => {
            let keeps = scale == to_scale && to_precision >= precision && (*unsigned || !to_unsigned);
            // Beyond 38 digits the mirror holds text instead of a number.
            let same_kind = (*precision <= 38) == (*to_precision <= 38);
            if keeps && same_kind { None } else { narrowed }
        }
        (T::Varchar { length, .. }, T::Varchar { length: to, .. })
        | (T::Varbinary { length }, T::Varbinary { length: to }) => {
            if to >= length {
                None
            } else {
                narrowed
            }
        }
        // CHAR drops trailing blanks when it is read, VARCHAR keeps what it is given: only a longer CHAR is the same.
        (T::Char { length, .. }, T::Char { length: to, .. }) if to >= length => None,
        (T::Text { size, .. }, T::Text { size: to, .. }) | (T::Blob { size }, T::Blob { size: to }) => {
            if to.length_bytes() >= size.length_bytes() { None } else { narrowed }
        }
        (T::Enum { labels, .. }, T::Enum { labels: to, .. }) | (T::Set { labels, .. }, T::Set { labels: to, .. }) => {
            if to.starts_with(labels) {
                None
            } else {
                Some("may belong to labels that moved")
            }
        }
        (T::Time { fsp }, T::Time { .. }) => {
            // The mirror holds TIME as text with its digits.
            let _ = fsp;
            Some("have another number of fractional digits")
        }
        (T::DateTime { fsp }, T::DateTime { fsp: to }) | (T::Timestamp { fsp }, T::Timestamp { fsp: to }) => {
            if to >= fsp { None } else { Some("were rounded") }
        }
        _ => Some("were converted to another type"),
    }
}

/// Width in bytes and whether it is unsigned.
fn integer(t: &MysqlType) -> Option<(u8, bool)> {
    match t {
        MysqlType::TinyInt { unsigned } => Some((1, *unsigned)),
        MysqlType::SmallInt { unsigned } => Some((2, *unsigned)),
        MysqlType::MediumInt { unsigned } => Some((3, *unsigned)),
        MysqlType::Int { unsigned } => Some((4, *unsigned)),
        MysqlType::BigInt { unsigned } => Some((8, *unsigned)),
        _ => None,
    }
}

/// Whether the mirror can read values of the old type as the new one, so that rows written before need no rewrite.
fn readable_as(old: &DataType, new: &DataType) -> bool {
    use DataType as D;
    let rank = |t: &D| match t {
        D::TinyInt => Some(1),
        D::SmallInt => Some(2),
        D::Int => Some(3),
        D::BigInt => Some(4),
        _ => None,
    };
    match (old, new) {
        _ if old == new => true,
        (D::Decimal { precision, scale }, D::Decimal { precision: to_precision, scale: to_scale }) => {
            scale == to_scale && to_precision >= precision
        }
        (D::Char(_) | D::Varchar(_) | D::String, D::Char(_) | D::Varchar(_) | D::String) => true,
        (D::Binary(_) | D::Varbinary(_) | D::Bytes, D::Binary(_) | D::Varbinary(_) | D::Bytes) => true,
        _ => matches!((rank(old), rank(new)), (Some(a), Some(b)) if a <= b),
    }
}
