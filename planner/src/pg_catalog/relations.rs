//! The tables of the database, numbered and described as PostgreSQL would.
//!
//! Object ids are made from names, so that they are the same in every session, at every checkpoint and after a restart.

use std::collections::{BTreeMap, HashMap, HashSet};

use datafusion::catalog::TableProvider;
use datafusion::logical_expr::TableType;
use futures::FutureExt;

use super::tables;
use super::types::PgType;
use crate::table::{INFORMATION_SCHEMA, MirrorCatalog, PG_CATALOG, PUBLIC, SYS};

/// Object ids below this belong to PostgreSQL's own objects.
const FIRST_USER_OID: u32 = 16_384;
/// PostgreSQL's fixed ids.
const PG_CATALOG_OID: i32 = 11;
const PUBLIC_OID: i32 = 2200;
const INFORMATION_SCHEMA_OID: i32 = 13_000;

/// The one role: whoever connects owns everything.
pub(crate) const OWNER_OID: i32 = 10;

#[derive(Debug, Clone)]
pub(crate) struct Namespace {
    pub(crate) oid: i32,
    pub(crate) name: String,
}

#[derive(Debug, Clone)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) pg_type: PgType,
    pub(crate) not_null: bool,
    pub(crate) comment: Option<String>,
}

/// A primary key, with the ids of its index and its constraint.
#[derive(Debug, Clone)]
pub(crate) struct Key {
    pub(crate) index_oid: i32,
    pub(crate) constraint_oid: i32,
    /// `<table>_pkey`, as PostgreSQL would name it.
    pub(crate) name: String,
    /// Column numbers from 1, in key order.
    pub(crate) columns: Vec<i16>,
}

#[derive(Debug, Clone)]
pub(crate) struct Relation {
    pub(crate) oid: i32,
    pub(crate) schema: String,
    pub(crate) namespace: i32,
    pub(crate) name: String,
    /// `r` a table, `v` a view.
    pub(crate) kind: &'static str,
    pub(crate) columns: Vec<Column>,
    pub(crate) key: Option<Key>,
    pub(crate) comment: Option<String>,
    pub(crate) rows: f32,
    pub(crate) bytes: i64,
    /// Whether it is a mirrored table: found by its bare name in `psql`'s lists.
    pub(crate) mirrored: bool,
}

/// Everything that `pg_class` and its kin say.
#[derive(Debug, Default)]
pub(crate) struct Relations {
    pub(crate) namespaces: Vec<Namespace>,
    pub(crate) relations: Vec<Relation>,
    by_oid: HashMap<i32, usize>,
    by_index: HashMap<i32, usize>,
    by_constraint: HashMap<i32, usize>,
    by_name: BTreeMap<(String, String), usize>,
}

impl Relations {
    pub(crate) fn of(catalog: &MirrorCatalog) -> Self {
        let mut numbers = Numbers::default();
        let mut all = Self::default();
        for (oid, name) in
            [(PG_CATALOG_OID, PG_CATALOG), (PUBLIC_OID, PUBLIC), (INFORMATION_SCHEMA_OID, INFORMATION_SCHEMA)]
        {
            all.namespaces.push(Namespace { oid, name: name.to_owned() });
        }
        for (schema, table, entry) in catalog.entries() {
            let Some(mirror) = &entry.table else { continue };
            let version = mirror.version();
            let namespace = all.namespace(schema, &mut numbers);
            let columns = version
                .schema
                .fields
                .iter()
                .map(|field| Column {
                    name: field.name.clone(),
                    pg_type: PgType::of_column(&field.data_type),
                    not_null: !field.nullable,
                    comment: field.description.clone().filter(|text| !text.is_empty()),
                })
                .collect();
            let key = version.schema.key_indices();
            let key = (!key.is_empty()).then(|| Key {
                index_oid: numbers.take(&["index", schema, table]),
                constraint_oid: numbers.take(&["constraint", schema, table]),
                name: format!("{table}_pkey"),
                columns: key.iter().filter_map(|column| i16::try_from(column + 1).ok()).collect(),
            });
            all.relations.push(Relation {
                oid: numbers.take(&["table", schema, table]),
                schema: schema.to_owned(),
                namespace,
                name: table.to_owned(),
                kind: "r",
                columns,
                key,
                comment: version.schema.comment.clone().filter(|text| !text.is_empty()),
                rows: version.row_count() as f32,
                bytes: version.files.iter().map(|file| file.meta.file_size).sum(),
                mirrored: true,
            });
        }
        if let Some(sys) = catalog.sys() {
            let namespace = all.namespace(SYS, &mut numbers);
            for name in sys.table_names() {
                // System views are made in memory: they are there at once, or not worth waiting for.
                let Some(Ok(Some(table))) = sys.table(&name).now_or_never() else { continue };
                let oid = numbers.take(&["table", SYS, &name]);
                all.relations.push(view(oid, SYS, namespace, &name, table.as_ref()));
            }
        }
        for (oid, name, schema) in tables::described(catalog.statics()) {
            let oid = oid.unwrap_or_else(|| numbers.take(&["table", PG_CATALOG, name]));
            all.relations.push(Relation {
                oid,
                schema: PG_CATALOG.to_owned(),
                namespace: PG_CATALOG_OID,
                name: name.to_owned(),
                kind: "r",
                columns: columns_of(&schema),
                key: None,
                comment: None,
                rows: 0.0,
                bytes: 0,
                mirrored: false,
            });
        }
        all.index();
        all
    }

    fn namespace(&mut self, name: &str, numbers: &mut Numbers) -> i32 {
        if let Some(found) = self.namespaces.iter().find(|namespace| namespace.name == name) {
            return found.oid;
        }
        let oid = numbers.take(&["schema", name]);
        self.namespaces.push(Namespace { oid, name: name.to_owned() });
        oid
    }

    fn index(&mut self) {
        for (position, relation) in self.relations.iter().enumerate() {
            self.by_oid.insert(relation.oid, position);
            self.by_name.insert((relation.schema.clone(), relation.name.clone()), position);
            if let Some(key) = &relation.key {
                self.by_index.insert(key.index_oid, position);
                self.by_constraint.insert(key.constraint_oid, position);
            }
        }
    }

    pub(crate) fn by_oid(&self, oid: i32) -> Option<&Relation> {
        self.by_oid.get(&oid).and_then(|position| self.relations.get(*position))
    }

    /// The table whose primary key's index has this id.
    pub(crate) fn by_index(&self, oid: i32) -> Option<&Relation> {
        self.by_index.get(&oid).and_then(|position| self.relations.get(*position))
    }

    /// The table whose primary key's constraint has this id.
    pub(crate) fn by_constraint(&self, oid: i32) -> Option<&Relation> {
        self.by_constraint.get(&oid).and_then(|position| self.relations.get(*position))
    }

    pub(crate) fn by_name(&self, schema: &str, name: &str) -> Option<&Relation> {
        self.by_name.get(&(schema.to_owned(), name.to_owned())).and_then(|position| self.relations.get(*position))
    }

    /// Finds a table by a name as written in SQL, qualified or along the search path; else the mirrored table of that name, if there
    /// is just one.
    pub(crate) fn find(&self, name: &str, search_path: &[String]) -> Option<&Relation> {
        let parts = name_parts(name);
        match parts.as_slice() {
            [name] => {
                let path = std::iter::once(PG_CATALOG).chain(search_path.iter().map(String::as_str));
                for schema in path {
                    if let Some(found) = self.by_name(schema, name) {
                        return Some(found);
                    }
                }
                let mut named = self.relations.iter().filter(|relation| relation.mirrored && relation.name == *name);
                named.next().filter(|_| named.next().is_none())
            }
            [.., schema, name] => self.by_name(schema, name),
            [] => None,
        }
    }

    pub(crate) fn namespace_name(&self, oid: i32) -> Option<&str> {
        self.namespaces.iter().find(|namespace| namespace.oid == oid).map(|namespace| namespace.name.as_str())
    }

    pub(crate) fn namespace_oid(&self, name: &str) -> Option<i32> {
        self.namespaces.iter().find(|namespace| namespace.name == name).map(|namespace| namespace.oid)
    }
}

fn view(oid: i32, schema: &str, namespace: i32, name: &str, table: &dyn TableProvider) -> Relation {
    Relation {
        oid,
        schema: schema.to_owned(),
        namespace,
        name: name.to_owned(),
        kind: if table.table_type() == TableType::Base { "r" } else { "v" },
        columns: columns_of(&table.schema()),
        key: None,
        comment: None,
        rows: -1.0,
        bytes: 0,
        mirrored: false,
    }
}

fn columns_of(schema: &datafusion::arrow::datatypes::Schema) -> Vec<Column> {
    schema
        .fields()
        .iter()
        .map(|field| Column {
            name: field.name().clone(),
            pg_type: match field.metadata().get("pg.oid_alias") {
                Some(_) => PgType { oid: super::types::OID, modifier: -1 },
                None => PgType::of_arrow(field.data_type()),
            },
            not_null: !field.is_nullable(),
            comment: field.metadata().get("comment").cloned(),
        })
        .collect()
}

/// Splits a name as written in SQL (`shop."Order Lines"`) into its parts; unquoted letters are folded to lower case.
pub(crate) fn name_parts(name: &str) -> Vec<String> {
    let mut parts = Vec::new();
    let mut part = String::new();
    let mut quoted = false;
    let mut chars = name.trim().chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                part.push('"');
            }
            '"' => quoted = !quoted,
            '.' if !quoted => parts.push(std::mem::take(&mut part)),
            c if quoted => part.push(c),
            c => part.extend(c.to_lowercase()),
        }
    }
    parts.push(part);
    parts
}

/// Gives out object ids by name.
#[derive(Default)]
struct Numbers(HashSet<u32>);

impl Numbers {
    /// An id of its own for the object of this name: FNV-1a over the name, the next free one if two names meet.
    fn take(&mut self, name: &[&str]) -> i32 {
        let mut hash = 0x811c_9dc5_u32;
        for part in name {
            for byte in part.bytes().chain([0]) {
                hash = (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
            }
        }
        // Clients read object ids as signed too.
        let room = i32::MAX as u32 - FIRST_USER_OID;
        let mut oid = FIRST_USER_OID + hash % room;
        while !self.0.insert(oid) {
            oid = FIRST_USER_OID + (oid + 1 - FIRST_USER_OID) % room;
        }
        oid as i32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_stable_and_distinct() {
        let mut numbers = Numbers::default();
        let orders = numbers.take(&["table", "shop", "orders"]);
        assert_eq!(Numbers::default().take(&["table", "shop", "orders"]), orders);
        assert_ne!(numbers.take(&["table", "shop", "orders"]), orders);
        // The parts are kept apart.
        assert_ne!(Numbers::default().take(&["table", "shoporders"]), orders);
        assert!(orders >= FIRST_USER_OID as i32);
    }

    #[test]
    fn names_are_split_as_sql_splits_them() {
        assert_eq!(name_parts("Shop.Orders"), ["shop", "orders"]);
        assert_eq!(name_parts(r#""Shop"."a.b""c""#), ["Shop", "a.b\"c"]);
        assert_eq!(name_parts("orders"), ["orders"]);
    }
}
