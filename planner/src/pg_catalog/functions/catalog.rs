//! Functions about tables, columns, types and rights.

use datafusion::common::{Result, ScalarValue, exec_err};

use super::{Call, Definition, Returns, function, text, text_or_null};
use crate::pg_catalog::relations::{Key, Relation, Relations};
use crate::pg_catalog::tables::DATABASE_OID;
use crate::pg_catalog::types;
use crate::table::{PG_CATALOG, quoted};

pub(super) const FUNCTIONS: &[Definition] = &[
    function("pg_get_userbyid", Returns::Text, |call| text(&call.scope()?.vars.user)),
    function("pg_table_is_visible", Returns::Bool, |call| {
        let scope = call.scope()?;
        let relations = scope.catalog.relations();
        let oid = call.oid(0)?;
        let relation = relations.by_oid(oid).or_else(|| relations.by_index(oid));
        Ok(ScalarValue::Boolean(relation.map(|relation| is_visible(relation, &scope.vars.search_path))))
    }),
    // There are no such objects beside PostgreSQL's own, which are always visible.
    function("pg_type_is_visible", Returns::Bool, |_| Ok(true.into())).also(&[
        "pg_function_is_visible",
        "pg_operator_is_visible",
        "pg_opclass_is_visible",
        "pg_opfamily_is_visible",
        "pg_collation_is_visible",
        "pg_conversion_is_visible",
        "pg_statistics_obj_is_visible",
        "pg_ts_config_is_visible",
        "pg_ts_dict_is_visible",
        "pg_ts_parser_is_visible",
        "pg_ts_template_is_visible",
    ]),
    function("has_table_privilege", Returns::Bool, |call| {
        let right = call.text(call.args.len().saturating_sub(1))?.to_ascii_lowercase();
        // Mirrored tables are read-only.
        Ok(right.split(',').any(|right| right.trim().starts_with("select")).into())
    })
    .also(&["has_any_column_privilege", "has_column_privilege"]),
    function("has_schema_privilege", Returns::Bool, |call| {
        let right = call.text(call.args.len().saturating_sub(1))?.to_ascii_lowercase();
        Ok(right.split(',').any(|right| right.trim().starts_with("usage")).into())
    }),
    function("has_database_privilege", Returns::Bool, |_| Ok(true.into())).also(&[
        "has_function_privilege",
        "has_language_privilege",
        "has_sequence_privilege",
        "has_server_privilege",
        "has_tablespace_privilege",
        "has_type_privilege",
        "has_foreign_data_wrapper_privilege",
        "has_parameter_privilege",
        "pg_has_role",
    ]),
    function("format_type", Returns::Text, |call| {
        if call.args.first().is_none_or(ScalarValue::is_null) {
            return Ok(ScalarValue::Utf8(None));
        }
        let modifier = match call.args.get(1) {
            Some(value) if !value.is_null() => Some(call.oid(1)?),
            _ => None,
        };
        text(types::format_type(call.oid(0)?, modifier))
    })
    .lenient(),
    function("pg_get_indexdef", Returns::Text, |call| {
        let relations = call.scope()?.catalog.relations();
        let Some((relation, key)) = relations.by_index(call.oid(0)?).and_then(|r| Some((r, r.key.as_ref()?))) else {
            return Ok(ScalarValue::Utf8(None));
        };
        match call.args.get(1).map(|_| call.int(1)).transpose()? {
            None | Some(0) => text(index_definition(relation, key)),
            Some(number) => {
                let column = usize::try_from(number - 1).ok().and_then(|at| key.columns.get(at));
                text(column.map(|column| quoted(column_name(relation, *column))).unwrap_or_default())
            }
        }
    }),
    function("pg_get_constraintdef", Returns::Text, |call| {
        let relations = call.scope()?.catalog.relations();
        let key = relations.by_constraint(call.oid(0)?).and_then(|r| Some((r, r.key.as_ref()?)));
        text_or_null(key.map(|(relation, key)| format!("PRIMARY KEY ({})", key_columns(relation, key))))
    }),
    function("obj_description", Returns::Text, |call| {
        let relation = call.scope()?.catalog.relations().by_oid(call.oid(0)?);
        let of_class = call.args.get(1).is_none_or(|class| matches!(super::shown(class).as_str(), "pg_class" | "1259"));
        text_or_null(relation.filter(|_| of_class).and_then(|relation| relation.comment.clone()))
    }),
    function("col_description", Returns::Text, |call| {
        let relation = call.scope()?.catalog.relations().by_oid(call.oid(0)?);
        let at = usize::try_from(call.int(1)? - 1).ok();
        text_or_null(relation.and_then(|relation| relation.columns.get(at?)?.comment.clone()))
    }),
    function("pg_relation_size", Returns::Int8, relation_size).also(&["pg_table_size", "pg_total_relation_size"]),
    function("pg_indexes_size", Returns::Int8, |_| Ok(0i64.into())).also(&["pg_tablespace_size"]),
    function("pg_database_size", Returns::Int8, |call| {
        let relations = &call.scope()?.catalog.relations().relations;
        Ok(relations.iter().map(|relation| relation.bytes).sum::<i64>().into())
    }),
    function("pg_size_pretty", Returns::Text, |call| text(size_pretty(call.int(0)?))),
    function("pg_relation_is_publishable", Returns::Bool, |_| Ok(false.into())).also(&[
        "pg_is_other_temp_schema",
        "pg_relation_is_updatable",
        "row_security_active",
    ]),
    // Definitions of objects that this server does not have.
    function("pg_get_viewdef", Returns::Text, nothing).lenient().also(&[
        "shobj_description",
        "pg_get_ruledef",
        "pg_get_triggerdef",
        "pg_get_functiondef",
        "pg_get_function_result",
        "pg_get_function_arguments",
        "pg_get_function_identity_arguments",
        "pg_get_function_arg_default",
        "pg_get_function_sqlbody",
        "pg_get_serial_sequence",
        "pg_get_partkeydef",
        "pg_get_partition_constraintdef",
        "pg_get_statisticsobjdef",
        "pg_get_statisticsobjdef_columns",
        "pg_get_publication_tables",
        "pg_tablespace_location",
        "pg_relation_filepath",
    ]),
    function("pg_get_expr", Returns::Text, |call| text_or_null(call.args.first().map(super::shown)))
        .also(&["pg_get_constraint_expr"]),
    function("to_regclass", Returns::Oid, |call| {
        let scope = call.scope()?;
        let found = scope.catalog.relations().find(&call.text(0)?, &scope.vars.search_path);
        Ok(ScalarValue::Int32(found.map(|relation| relation.oid)))
    }),
    function("to_regtype", Returns::Oid, |call| Ok(ScalarValue::Int32(types::type_oid(&call.text(0)?)))),
    function("to_regnamespace", Returns::Oid, |call| {
        Ok(ScalarValue::Int32(call.scope()?.catalog.relations().namespace_oid(&call.text(0)?)))
    }),
    // What casts to `regclass` and its kin become: a number stays one, a name is looked up.
    function("regclass_in", Returns::Oid, |call| {
        let scope = call.scope()?;
        let name = call.text(0)?;
        if let Ok(oid) = name.trim().parse() {
            return Ok(ScalarValue::Int32(Some(oid)));
        }
        match scope.catalog.relations().find(&name, &scope.vars.search_path) {
            Some(relation) => Ok(ScalarValue::Int32(Some(relation.oid))),
            None => exec_err!("relation \"{name}\" does not exist"),
        }
    }),
    function("regtype_in", Returns::Oid, |call| {
        let name = call.text(0)?;
        match name.trim().parse().ok().or_else(|| types::type_oid(&name)) {
            Some(oid) => Ok(ScalarValue::Int32(Some(oid))),
            None => exec_err!("type \"{name}\" does not exist"),
        }
    }),
    function("regnamespace_in", Returns::Oid, |call| {
        let name = call.text(0)?;
        let relations = call.scope()?.catalog.relations();
        match name.trim().parse().ok().or_else(|| relations.namespace_oid(name.trim_matches('"'))) {
            Some(oid) => Ok(ScalarValue::Int32(Some(oid))),
            None => exec_err!("schema \"{name}\" does not exist"),
        }
    }),
    function("regrole_in", Returns::Oid, |call| {
        let name = call.text(0)?;
        Ok(ScalarValue::Int32(Some(name.trim().parse().unwrap_or(crate::pg_catalog::relations::OWNER_OID))))
    }),
    // And how an object id of those types is shown.
    function("regclass_out", Returns::Text, |call| {
        let scope = call.scope()?;
        let oid = call.oid(0)?;
        text(regclass_name(scope.catalog.relations(), oid, &scope.vars.search_path))
    }),
    function("regtype_out", Returns::Text, |call| text(types::format_type(call.oid(0)?, None))),
    function("regnamespace_out", Returns::Text, |call| {
        let oid = call.oid(0)?;
        let name = call.scope()?.catalog.relations().namespace_name(oid).map(quoted);
        text(name.unwrap_or_else(|| oid.to_string()))
    }),
    function("regrole_out", Returns::Text, |call| text(quoted(&call.scope()?.vars.user))),
    function("pg_stat_get_live_tuples", Returns::Int8, |call| {
        let relation = call.scope()?.catalog.relations().by_oid(call.oid(0)?);
        Ok(ScalarValue::Int64(Some(relation.map_or(0, |relation| relation.rows as i64))))
    }),
    function("pg_stat_get_numscans", Returns::Int8, |_| Ok(0i64.into())).also(&[
        "pg_stat_get_dead_tuples",
        "pg_stat_get_tuples_inserted",
        "pg_stat_get_tuples_updated",
        "pg_stat_get_tuples_deleted",
    ]),
    function("pg_my_temp_schema", Returns::Oid, |_| Ok(0i32.into())),
    function("pg_encoding_to_char", Returns::Text, |call| text(if call.int(0)? == 6 { "UTF8" } else { "" })),
    function("pg_char_to_encoding", Returns::Int4, |call| {
        let utf8 = matches!(call.text(0)?.to_ascii_lowercase().as_str(), "utf8" | "utf-8" | "unicode");
        Ok(if utf8 { 6i32 } else { -1 }.into())
    }),
    function("getdatabaseencoding", Returns::Text, |_| text("UTF8")).also(&["pg_client_encoding"]),
];

fn nothing(_: &Call<'_>) -> Result<ScalarValue> {
    Ok(ScalarValue::Utf8(None))
}

/// Whether the table can be named without its schema. Mirrored tables count as visible in any schema: `psql` lists only visible tables,
/// and a database without the tables that it is for would be a riddle.
fn is_visible(relation: &Relation, search_path: &[String]) -> bool {
    relation.mirrored || relation.schema == PG_CATALOG || search_path.contains(&relation.schema)
}

fn column_name(relation: &Relation, number: i16) -> &str {
    usize::try_from(number - 1).ok().and_then(|at| relation.columns.get(at)).map_or("", |column| column.name.as_str())
}

fn key_columns(relation: &Relation, key: &Key) -> String {
    key.columns.iter().map(|number| quoted(column_name(relation, *number))).collect::<Vec<_>>().join(", ")
}

/// The statement that would make the index of a primary key.
pub(in crate::pg_catalog) fn index_definition(relation: &Relation, key: &Key) -> String {
    format!(
        "CREATE UNIQUE INDEX {} ON {}.{} USING btree ({})",
        quoted(&key.name),
        quoted(&relation.schema),
        quoted(&relation.name),
        key_columns(relation, key)
    )
}

fn regclass_name(relations: &Relations, oid: i32, search_path: &[String]) -> String {
    let (relation, name) = match relations.by_oid(oid) {
        Some(relation) => (relation, relation.name.as_str()),
        None => match relations.by_index(oid).and_then(|relation| Some((relation, relation.key.as_ref()?))) {
            Some((relation, key)) => (relation, key.name.as_str()),
            None => return oid.to_string(),
        },
    };
    if relation.schema == PG_CATALOG || search_path.contains(&relation.schema) {
        quoted(name)
    } else {
        format!("{}.{}", quoted(&relation.schema), quoted(name))
    }
}

fn relation_size(call: &Call<'_>) -> Result<ScalarValue> {
    let scope = call.scope()?;
    let relations = scope.catalog.relations();
    let named = call.text(0)?;
    let relation = match named.trim().parse() {
        Ok(oid) if oid == DATABASE_OID => None,
        Ok(oid) => relations.by_oid(oid),
        Err(_) => match relations.find(&named, &scope.vars.search_path) {
            Some(relation) => Some(relation),
            None => return exec_err!("relation \"{named}\" does not exist"),
        },
    };
    Ok(ScalarValue::Int64(Some(relation.map_or(0, |relation| relation.bytes))))
}

/// PostgreSQL's rounding: the next unit from 10,240 of one on, halves away from zero.
fn size_pretty(bytes: i64) -> String {
    if bytes.unsigned_abs() < 10_240 {
        return format!("{bytes} bytes");
    }
    let mut half_units = bytes / 512;
    for unit in ["kB", "MB", "GB", "TB", "PB"] {
        let rounded = (half_units + half_units.signum()) / 2;
        if rounded.unsigned_abs() < 10_240 || unit == "PB" {
            return format!("{rounded} {unit}");
        }
        half_units /= 1024;
    }
    format!("{bytes} bytes")
}

#[cfg(test)]
mod tests {
    use super::size_pretty;

    #[test]
    fn sizes_are_rounded_as_postgresql_rounds_them() {
        assert_eq!(size_pretty(0), "0 bytes");
        assert_eq!(size_pretty(10_239), "10239 bytes");
        assert_eq!(size_pretty(10_240), "10 kB");
        assert_eq!(size_pretty(10 * 1024 * 1024 - 513), "10239 kB");
        assert_eq!(size_pretty(10 * 1024 * 1024), "10 MB");
        assert_eq!(size_pretty(1_234_567_890), "1177 MB");
    }
}
