//! `information_schema`: the standard's catalogs, as PostgreSQL fills them.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::common::Result;

use super::relations::{Column, Key, Namespace, Relation, Relations};
use super::rows::{Fill, table};
use super::types::{self, PgType};
use crate::table::{MirrorCatalog, PG_CATALOG};

/// `information_schema` of one statement.
#[derive(Debug)]
pub(crate) struct InformationSchema {
    catalog: Arc<MirrorCatalog>,
}

impl InformationSchema {
    pub(crate) fn new(catalog: &Arc<MirrorCatalog>) -> Self {
        Self { catalog: Arc::clone(catalog) }
    }
}

struct Known<'a> {
    database: &'a str,
    relations: &'a Relations,
}

type Build = fn(&Known<'_>) -> Result<RecordBatch>;

const TABLES: &[(&str, Build)] = &[
    ("schemata", schemata),
    ("tables", tables),
    ("columns", columns),
    ("views", views),
    ("table_constraints", table_constraints),
    ("key_column_usage", key_column_usage),
    ("constraint_column_usage", constraint_column_usage),
    ("referential_constraints", referential_constraints),
    ("check_constraints", check_constraints),
    ("routines", routines),
    ("parameters", parameters),
    ("sequences", sequences),
    ("triggers", triggers),
    ("table_privileges", table_privileges),
    ("role_table_grants", table_privileges),
    ("information_schema_catalog_name", catalog_name),
];

#[async_trait]
impl SchemaProvider for InformationSchema {
    fn table_names(&self) -> Vec<String> {
        TABLES.iter().map(|(name, _)| (*name).to_owned()).collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let Some((_, build)) = TABLES.iter().find(|(known, _)| *known == name) else { return Ok(None) };
        let known = Known { database: self.catalog.database(), relations: self.catalog.relations() };
        Ok(Some(table(build(&known)?)?))
    }

    fn table_exist(&self, name: &str) -> bool {
        TABLES.iter().any(|(known, _)| *known == name)
    }
}

fn schemata(known: &Known<'_>) -> Result<RecordBatch> {
    Fill::new(&known.relations.namespaces)
        .text("catalog_name", |_| known.database)
        .text("schema_name", |n: &Namespace| &n.name)
        .text("schema_owner", |_| "tidegate")
        .text_or_null("default_character_set_catalog", none)
        .text_or_null("default_character_set_schema", none)
        .text_or_null("default_character_set_name", none)
        .text_or_null("sql_path", none)
        .batch()
}

fn none<R>(_: &R) -> Option<&'static str> {
    None
}

fn is_view(relation: &Relation) -> bool {
    relation.kind == "v"
}

fn tables(known: &Known<'_>) -> Result<RecordBatch> {
    Fill::new(&known.relations.relations)
        .text("table_catalog", |_| known.database)
        .text("table_schema", |r: &Relation| &r.schema)
        .text("table_name", |r| &r.name)
        .text("table_type", |r| if is_view(r) { "VIEW" } else { "BASE TABLE" })
        .text_or_null("self_referencing_column_name", none)
        .text_or_null("reference_generation", none)
        .text_or_null("user_defined_type_catalog", none)
        .text_or_null("user_defined_type_schema", none)
        .text_or_null("user_defined_type_name", none)
        .text("is_insertable_into", |_| "NO")
        .text("is_typed", |_| "NO")
        .text_or_null("commit_action", none)
        .batch()
}

fn views(known: &Known<'_>) -> Result<RecordBatch> {
    let rows: Vec<&Relation> = known.relations.relations.iter().filter(|relation| is_view(relation)).collect();
    Fill::new(&rows)
        .text("table_catalog", |_| known.database)
        .text("table_schema", |r: &&Relation| &r.schema)
        .text("table_name", |r| &r.name)
        .text_or_null("view_definition", none)
        .text("check_option", |_| "NONE")
        .text("is_updatable", |_| "NO")
        .text("is_insertable_into", |_| "NO")
        .text("is_trigger_updatable", |_| "NO")
        .text("is_trigger_deletable", |_| "NO")
        .text("is_trigger_insertable_into", |_| "NO")
        .batch()
}

fn columns(known: &Known<'_>) -> Result<RecordBatch> {
    struct Row<'a> {
        relation: &'a Relation,
        column: &'a Column,
        number: i32,
    }
    let mut rows = Vec::new();
    for relation in &known.relations.relations {
        rows.extend((1..).zip(&relation.columns).map(|(number, column)| Row { relation, column, number }));
    }
    let pg = |row: &Row<'_>| -> PgType { row.column.pg_type };
    let is_time = |row: &Row<'_>| matches!(pg(row).oid, types::TIMESTAMP | types::TIMESTAMPTZ | types::TIME);
    Fill::new(&rows)
        .text("table_catalog", |_| known.database)
        .text("table_schema", |row: &Row<'_>| &row.relation.schema)
        .text("table_name", |row| &row.relation.name)
        .text("column_name", |row| &row.column.name)
        .int4("ordinal_position", |row| row.number)
        .text_or_null("column_default", none)
        .text("is_nullable", |row| if row.column.not_null { "NO" } else { "YES" })
        .text("data_type", |row| pg(row).standard_name())
        .int4_or_null("character_maximum_length", |row| pg(row).character_length())
        .int4_or_null("character_octet_length", |row| {
            let text = matches!(pg(row).oid, types::TEXT | types::VARCHAR | types::BPCHAR);
            text.then(|| pg(row).character_length().map_or(1 << 30, |length| length.saturating_mul(4)))
        })
        .int4_or_null("numeric_precision", |row| pg(row).numeric_precision())
        .int4_or_null("numeric_precision_radix", |row| match pg(row).oid {
            types::NUMERIC => Some(10),
            types::INT2 | types::INT4 | types::INT8 | types::FLOAT4 | types::FLOAT8 => Some(2),
            _ => None,
        })
        .int4_or_null("numeric_scale", |row| pg(row).numeric_scale())
        .int4_or_null("datetime_precision", |row| match pg(row).oid {
            types::DATE => Some(0),
            _ => is_time(row).then_some(6),
        })
        .text_or_null("interval_type", none)
        .int4_or_null("interval_precision", |_| None)
        .text_or_null("character_set_catalog", none)
        .text_or_null("character_set_schema", none)
        .text_or_null("character_set_name", none)
        .text_or_null("collation_catalog", none)
        .text_or_null("collation_schema", none)
        .text_or_null("collation_name", none)
        .text_or_null("domain_catalog", none)
        .text_or_null("domain_schema", none)
        .text_or_null("domain_name", none)
        .text("udt_catalog", |_| known.database)
        .text("udt_schema", |_| PG_CATALOG)
        .text("udt_name", |row| pg(row).internal_name())
        .text("dtd_identifier", |row| row.number.to_string())
        .text("is_self_referencing", |_| "NO")
        .text("is_identity", |_| "NO")
        .text_or_null("identity_generation", none)
        .text_or_null("identity_start", none)
        .text_or_null("identity_increment", none)
        .text_or_null("identity_maximum", none)
        .text_or_null("identity_minimum", none)
        .text("identity_cycle", |_| "NO")
        .text("is_generated", |_| "NEVER")
        .text_or_null("generation_expression", none)
        .text("is_updatable", |_| "NO")
        .batch()
}

fn keyed<'a>(known: &Known<'a>) -> Vec<(&'a Relation, &'a Key)> {
    known.relations.relations.iter().filter_map(|relation| Some((relation, relation.key.as_ref()?))).collect()
}

fn table_constraints(known: &Known<'_>) -> Result<RecordBatch> {
    type Row<'a> = (&'a Relation, &'a Key);
    let rows = keyed(known);
    Fill::new(&rows)
        .text("constraint_catalog", |_| known.database)
        .text("constraint_schema", |row: &Row<'_>| &row.0.schema)
        .text("constraint_name", |row| &row.1.name)
        .text("table_catalog", |_| known.database)
        .text("table_schema", |row| &row.0.schema)
        .text("table_name", |row| &row.0.name)
        .text("constraint_type", |_| "PRIMARY KEY")
        .text("is_deferrable", |_| "NO")
        .text("initially_deferred", |_| "NO")
        .text("enforced", |_| "YES")
        .text_or_null("nulls_distinct", none)
        .batch()
}

/// (table, key, column's name, its place in the key from 1).
type KeyColumn<'a> = (&'a Relation, &'a Key, &'a str, i32);

fn key_columns<'a>(known: &Known<'a>) -> Vec<KeyColumn<'a>> {
    let mut rows = Vec::new();
    for (relation, key) in keyed(known) {
        for (place, number) in (1..).zip(&key.columns) {
            if let Some(column) = usize::try_from(number - 1).ok().and_then(|at| relation.columns.get(at)) {
                rows.push((relation, key, column.name.as_str(), place));
            }
        }
    }
    rows
}

fn key_column_usage(known: &Known<'_>) -> Result<RecordBatch> {
    let rows = key_columns(known);
    Fill::new(&rows)
        .text("constraint_catalog", |_| known.database)
        .text("constraint_schema", |row: &KeyColumn<'_>| &row.0.schema)
        .text("constraint_name", |row| &row.1.name)
        .text("table_catalog", |_| known.database)
        .text("table_schema", |row| &row.0.schema)
        .text("table_name", |row| &row.0.name)
        .text("column_name", |row| row.2)
        .int4("ordinal_position", |row| row.3)
        .int4_or_null("position_in_unique_constraint", |_| None)
        .batch()
}

fn constraint_column_usage(known: &Known<'_>) -> Result<RecordBatch> {
    let rows = key_columns(known);
    Fill::new(&rows)
        .text("table_catalog", |_| known.database)
        .text("table_schema", |row: &KeyColumn<'_>| &row.0.schema)
        .text("table_name", |row| &row.0.name)
        .text("column_name", |row| row.2)
        .text("constraint_catalog", |_| known.database)
        .text("constraint_schema", |row| &row.0.schema)
        .text("constraint_name", |row| &row.1.name)
        .batch()
}

/// A table without rows, of text columns.
fn empty(columns: &str) -> Result<RecordBatch> {
    let nothing: [(); 0] = [];
    columns.split_ascii_whitespace().fold(Fill::new(&nothing), |fill, column| fill.text_or_null(column, none)).batch()
}

fn referential_constraints(_: &Known<'_>) -> Result<RecordBatch> {
    empty(
        "constraint_catalog constraint_schema constraint_name unique_constraint_catalog unique_constraint_schema \
         unique_constraint_name match_option update_rule delete_rule",
    )
}

fn check_constraints(_: &Known<'_>) -> Result<RecordBatch> {
    empty("constraint_catalog constraint_schema constraint_name check_clause")
}

fn routines(_: &Known<'_>) -> Result<RecordBatch> {
    empty(
        "specific_catalog specific_schema specific_name routine_catalog routine_schema routine_name routine_type data_type \
         type_udt_catalog type_udt_schema type_udt_name routine_body routine_definition external_language is_deterministic",
    )
}

fn parameters(_: &Known<'_>) -> Result<RecordBatch> {
    empty(
        "specific_catalog specific_schema specific_name ordinal_position parameter_mode parameter_name data_type udt_catalog \
         udt_schema udt_name",
    )
}

fn sequences(_: &Known<'_>) -> Result<RecordBatch> {
    empty("sequence_catalog sequence_schema sequence_name data_type start_value minimum_value maximum_value increment")
}

fn triggers(_: &Known<'_>) -> Result<RecordBatch> {
    empty(
        "trigger_catalog trigger_schema trigger_name event_manipulation event_object_catalog event_object_schema \
         event_object_table action_statement action_orientation action_timing",
    )
}

fn table_privileges(known: &Known<'_>) -> Result<RecordBatch> {
    Fill::new(&known.relations.relations)
        .text("grantor", |_| "tidegate")
        .text("grantee", |_| "PUBLIC")
        .text("table_catalog", |_| known.database)
        .text("table_schema", |r: &Relation| &r.schema)
        .text("table_name", |r| &r.name)
        .text("privilege_type", |_| "SELECT")
        .text("is_grantable", |_| "NO")
        .text("with_hierarchy", |_| "YES")
        .batch()
}

fn catalog_name(known: &Known<'_>) -> Result<RecordBatch> {
    Fill::new(&[known.database]).text("catalog_name", |name: &&str| *name).batch()
}
