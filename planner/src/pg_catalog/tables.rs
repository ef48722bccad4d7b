//! Which tables `pg_catalog` has, and what they say.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::common::Result;
use datafusion_pg_catalog::pg_catalog::PG_CATALOG_TABLES;

use super::StaticTables;
use super::functions::index_definition;
use super::relations::{Key, Namespace, OWNER_OID, Relation, Relations};
use super::rows::{Fill, table};
use crate::context::SessionVars;
use crate::table::MirrorCatalog;

/// The database's object id.
pub(crate) const DATABASE_OID: i32 = 16_383;
const HEAP: i32 = 2;
const BTREE: i32 = 403;

/// `pg_catalog` of one statement.
#[derive(Debug)]
pub(crate) struct PgCatalog {
    catalog: Arc<MirrorCatalog>,
    vars: Arc<SessionVars>,
}

impl PgCatalog {
    pub(crate) fn new(catalog: &Arc<MirrorCatalog>, vars: &Arc<SessionVars>) -> Self {
        Self { catalog: Arc::clone(catalog), vars: Arc::clone(vars) }
    }
}

#[async_trait]
impl SchemaProvider for PgCatalog {
    fn table_names(&self) -> Vec<String> {
        let mut names: Vec<String> = PG_CATALOG_TABLES.iter().map(|name| (*name).to_owned()).collect();
        names.extend(OWN_TABLES.iter().map(|(name, _, _)| (*name).to_owned()));
        names.extend(EMPTY_TABLES.iter().map(|(name, _)| (*name).to_owned()));
        names.sort();
        names.dedup();
        names
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        if let Some((_, _, build)) = OWN_TABLES.iter().find(|(own, _, _)| *own == name) {
            let known =
                Known { relations: self.catalog.relations(), database: self.catalog.database(), vars: &self.vars };
            return Ok(Some(table(build(&known)?)?));
        }
        if let Some((_, columns)) = EMPTY_TABLES.iter().find(|(empty, _)| *empty == name) {
            return Ok(Some(table(RecordBatch::new_empty(empty_schema(columns)))?));
        }
        self.catalog.statics().table(name)
    }

    fn table_exist(&self, name: &str) -> bool {
        PG_CATALOG_TABLES.contains(&name)
            || OWN_TABLES.iter().any(|(own, _, _)| *own == name)
            || EMPTY_TABLES.iter().any(|(empty, _)| *empty == name)
    }
}

/// (fixed object id, name, columns) of the tables of `pg_catalog`.
pub(super) fn described(statics: &StaticTables) -> Vec<(Option<i32>, &'static str, SchemaRef)> {
    let nothing = Relations::default();
    let vars = SessionVars::default();
    let known = Known { relations: &nothing, database: "", vars: &vars };
    let mut all = Vec::new();
    for (name, oid, build) in OWN_TABLES {
        if let Ok(batch) = build(&known) {
            all.push((*oid, *name, batch.schema()));
        }
    }
    for (name, columns) in EMPTY_TABLES {
        all.push((None, *name, empty_schema(columns)));
    }
    for name in PG_CATALOG_TABLES {
        let known =
            OWN_TABLES.iter().any(|(own, _, _)| own == name) || EMPTY_TABLES.iter().any(|(empty, _)| empty == name);
        if let (false, Ok(Some(table))) = (known, statics.table(name)) {
            let oid = STATIC_OIDS.iter().find(|(fixed, _)| fixed == name).map(|(_, oid)| *oid);
            all.push((oid, *name, table.schema()));
        }
    }
    all
}

/// What the tables are made from.
struct Known<'a> {
    relations: &'a Relations,
    database: &'a str,
    vars: &'a SessionVars,
}

type Build = fn(&Known<'_>) -> Result<RecordBatch>;

/// (name, PostgreSQL's object id of the table, what fills it).
const OWN_TABLES: &[(&str, Option<i32>, Build)] = &[
    ("pg_namespace", Some(2615), pg_namespace),
    ("pg_class", Some(1259), pg_class),
    ("pg_attribute", Some(1249), pg_attribute),
    ("pg_index", Some(2610), pg_index),
    ("pg_constraint", Some(2606), pg_constraint),
    ("pg_description", Some(2609), pg_description),
    ("pg_database", Some(1262), pg_database),
    ("pg_authid", Some(1260), pg_roles),
    ("pg_roles", None, pg_roles),
    ("pg_user", None, pg_user),
    ("pg_shadow", None, pg_user),
    ("pg_tables", None, pg_tables),
    ("pg_views", None, pg_views),
    ("pg_indexes", None, pg_indexes),
    ("pg_settings", None, pg_settings),
    ("pg_stat_user_tables", None, pg_stat_user_tables),
    ("pg_stat_all_tables", None, pg_stat_user_tables),
    ("pg_timezone_names", None, pg_timezone_names),
];

const STATIC_OIDS: &[(&str, i32)] = &[
    ("pg_type", 1247),
    ("pg_proc", 1255),
    ("pg_tablespace", 1213),
    ("pg_attrdef", 2604),
    ("pg_am", 2601),
    ("pg_operator", 2617),
    ("pg_trigger", 2620),
    ("pg_rewrite", 2618),
    ("pg_extension", 3079),
    ("pg_language", 2612),
    ("pg_collation", 3456),
    ("pg_enum", 3501),
    ("pg_policy", 3256),
    ("pg_cast", 2605),
];

/// Tables that have no rows here. A name alone is text; `:o` an object id, `:i` an integer, `:b` a boolean, `:O` object
/// ids, `:S` smallints, `:T` texts, `:l` a bigint, `:t` a time.
const EMPTY_TABLES: &[(&str, &str)] = &[
    ("pg_policy", "oid:o polname polrelid:o polcmd polpermissive:b polroles:O polqual polwithcheck"),
    (
        "pg_statistic_ext",
        "oid:o stxrelid:o stxname stxnamespace:o stxowner:o stxstattarget:i stxkeys:S stxkind:T stxexprs",
    ),
    ("pg_publication_rel", "oid:o prpubid:o prrelid:o prqual prattrs:S"),
    ("pg_publication_namespace", "oid:o pnpubid:o pnnspid:o"),
    (
        "pg_publication",
        "oid:o pubname pubowner:o puballtables:b pubinsert:b pubupdate:b pubdelete:b pubtruncate:b pubviaroot:b",
    ),
    ("pg_auth_members", "oid:o roleid:o member:o grantor:o admin_option:b inherit_option:b set_option:b"),
    ("pg_inherits", "inhrelid:o inhparent:o inhseqno:i inhdetachpending:b"),
    ("pg_event_trigger", "oid:o evtname evtevent evtowner:o evtfoid:o evtenabled evttags:T"),
    ("pg_attrdef", "oid:o adrelid:o adnum:s adbin"),
    (
        "pg_trigger",
        "oid:o tgrelid:o tgparentid:o tgname tgfoid:o tgtype:i tgenabled tgisinternal:b tgconstrrelid:o tgconstrindid:o \
         tgconstraint:o tgdeferrable:b tginitdeferred:b tgnargs:i tgattr:S tgargs tgqual tgoldtable tgnewtable",
    ),
    ("pg_rewrite", "oid:o rulename ev_class:o ev_type ev_enabled is_instead:b ev_qual ev_action"),
    ("pg_db_role_setting", "setdatabase:o setrole:o setconfig:T"),
    ("pg_default_acl", "oid:o defaclrole:o defaclnamespace:o defaclobjtype defaclacl:T"),
    ("pg_extension", "oid:o extname extowner:o extnamespace:o extrelocatable:b extversion extconfig:O extcondition:T"),
    ("pg_foreign_table", "ftrelid:o ftserver:o ftoptions:T"),
    ("pg_foreign_server", "oid:o srvname srvowner:o srvfdw:o srvtype srvversion srvacl:T srvoptions:T"),
    ("pg_foreign_data_wrapper", "oid:o fdwname fdwowner:o fdwhandler:o fdwvalidator:o fdwacl:T fdwoptions:T"),
    ("pg_user_mapping", "oid:o umuser:o umserver:o umoptions:T"),
    ("pg_user_mappings", "umid:o srvid:o srvname umuser:o usename umoptions:T"),
    (
        "pg_subscription",
        "oid:o subdbid:o subskiplsn subname subowner:o subenabled:b subbinary:b substream subtwophasestate \
         subdisableonerr:b subconninfo subslotname subsynccommit subpublications:T suborigin",
    ),
    (
        "pg_partitioned_table",
        "partrelid:o partstrat partnatts:s partdefid:o partattrs:S partclass:O partcollation:O partexprs",
    ),
    ("pg_sequence", "seqrelid:o seqtypid:o seqstart:l seqincrement:l seqmax:l seqmin:l seqcache:l seqcycle:b"),
    (
        "pg_sequences",
        "schemaname sequencename sequenceowner data_type start_value:l min_value:l max_value:l increment_by:l cycle:b \
         cache_size:l last_value:l",
    ),
    ("pg_depend", "classid:o objid:o objsubid:i refclassid:o refobjid:o refobjsubid:i deptype"),
    ("pg_shdepend", "dbid:o classid:o objid:o objsubid:i refclassid:o refobjid:o deptype"),
    ("pg_enum", "oid:o enumtypid:o enumsortorder:f enumlabel"),
    ("pg_seclabel", "objoid:o classoid:o objsubid:i provider label"),
    ("pg_seclabels", "objoid:o classoid:o objsubid:i objtype objnamespace:o objname provider label"),
    ("pg_shseclabel", "objoid:o classoid:o provider label"),
    ("pg_parameter_acl", "oid:o parname paracl:T"),
    ("pg_transform", "oid:o trftype:o trflang:o trffromsql:o trftosql:o"),
    ("pg_ts_config_map", "mapcfg:o maptokentype:i mapseqno:i mapdict:o"),
    ("pg_largeobject_metadata", "oid:o lomowner:o lomacl:T"),
    ("pg_group", "groname grosysid:o grolist:O"),
    ("pg_matviews", "schemaname matviewname matviewowner tablespace hasindexes:b ispopulated:b definition"),
    ("pg_rules", "schemaname tablename rulename definition"),
    ("pg_policies", "schemaname tablename policyname permissive roles:T cmd qual with_check"),
    ("pg_publication_tables", "pubname schemaname tablename attnames:T rowfilter"),
    ("pg_available_extensions", "name default_version installed_version comment"),
    ("pg_prepared_xacts", "transaction:i gid prepared:t owner database"),
    ("pg_cursors", "name statement is_holdable:b is_binary:b is_scrollable:b creation_time:t"),
    (
        "pg_prepared_statements",
        "name statement prepare_time:t parameter_types:O result_types:O from_sql:b generic_plans:l custom_plans:l",
    ),
    (
        "pg_locks",
        "locktype database:o relation:o page:i tuple:i virtualxid transactionid:i classid:o objid:o objsubid:i \
         virtualtransaction pid:i mode granted:b fastpath:b waitstart:t",
    ),
    (
        "pg_stat_activity",
        "datid:o datname pid:i leader_pid:i usesysid:o usename application_name client_addr client_hostname client_port:i \
         backend_start:t xact_start:t query_start:t state_change:t wait_event_type wait_event state backend_xid:i \
         backend_xmin:i query_id:l query backend_type",
    ),
    (
        "pg_stat_database",
        "datid:o datname numbackends:i xact_commit:l xact_rollback:l blks_read:l blks_hit:l tup_returned:l tup_fetched:l \
         tup_inserted:l tup_updated:l tup_deleted:l conflicts:l temp_files:l temp_bytes:l deadlocks:l stats_reset:t",
    ),
    (
        "pg_stat_replication",
        "pid:i usesysid:o usename application_name client_addr client_hostname client_port:i backend_start:t backend_xmin:i \
         state sent_lsn write_lsn flush_lsn replay_lsn sync_priority:i sync_state reply_time:t",
    ),
    (
        "pg_replication_slots",
        "slot_name plugin slot_type datoid:o database temporary:b active:b active_pid:i xmin:i catalog_xmin:i restart_lsn \
         confirmed_flush_lsn wal_status safe_wal_size:l two_phase:b conflicting:b",
    ),
    ("pg_stats", "schemaname tablename attname inherited:b null_frac:f avg_width:i n_distinct:f"),
    (
        "pg_statio_user_tables",
        "relid:o schemaname relname heap_blks_read:l heap_blks_hit:l idx_blks_read:l idx_blks_hit:l",
    ),
    (
        "pg_stat_user_indexes",
        "relid:o indexrelid:o schemaname relname indexrelname idx_scan:l idx_tup_read:l idx_tup_fetch:l",
    ),
];

/// Whether a table of `pg_catalog` never has rows here.
pub(super) fn is_empty_table(name: &str) -> bool {
    EMPTY_TABLES.iter().any(|(empty, _)| *empty == name)
}

fn empty_schema(columns: &str) -> SchemaRef {
    let list = |item| DataType::List(Arc::new(Field::new_list_field(item, true)));
    let fields: Vec<Field> = columns
        .split_ascii_whitespace()
        .map(|column| {
            let (name, kind) = column.split_once(':').unwrap_or((column, ""));
            let data_type = match kind {
                "o" => return super::rows::oid_field(name),
                "i" => DataType::Int32,
                "s" => DataType::Int16,
                "l" => DataType::Int64,
                "f" => DataType::Float32,
                "b" => DataType::Boolean,
                "O" => list(DataType::Int32),
                "S" => list(DataType::Int16),
                "T" => list(DataType::Utf8),
                "t" => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
                _ => DataType::Utf8,
            };
            Field::new(name, data_type, true)
        })
        .collect();
    Arc::new(Schema::new(fields))
}

fn pg_namespace(known: &Known<'_>) -> Result<RecordBatch> {
    Fill::new(&known.relations.namespaces)
        .oid("oid", |n: &Namespace| n.oid)
        .text("nspname", |n| &n.name)
        .oid("nspowner", |_| OWNER_OID)
        .no_texts("nspacl")
        .batch()
}

/// A row of `pg_class`: a table, or the index of its key.
struct Class<'a> {
    relation: &'a Relation,
    index: Option<&'a Key>,
}

fn classes(relations: &Relations) -> Vec<Class<'_>> {
    let mut all: Vec<Class<'_>> = relations.relations.iter().map(|relation| Class { relation, index: None }).collect();
    all.extend(keys(relations).into_iter().map(|(relation, key)| Class { relation, index: Some(key) }));
    all
}

fn keys(relations: &Relations) -> Vec<(&Relation, &Key)> {
    relations.relations.iter().filter_map(|relation| Some((relation, relation.key.as_ref()?))).collect()
}

fn pg_class(known: &Known<'_>) -> Result<RecordBatch> {
    let rows = classes(known.relations);
    Fill::new(&rows)
        .oid("oid", |c: &Class<'_>| c.index.map_or(c.relation.oid, |key| key.index_oid))
        .text("relname", |c| c.index.map_or(c.relation.name.as_str(), |key| key.name.as_str()))
        .oid("relnamespace", |c| c.relation.namespace)
        .oid("reltype", |_| 0)
        .oid("reloftype", |_| 0)
        .oid("relowner", |_| OWNER_OID)
        .oid("relam", |c| match (c.index, c.relation.kind) {
            (Some(_), _) => BTREE,
            (None, "r") => HEAP,
            _ => 0,
        })
        .oid("relfilenode", |_| 0)
        .oid("reltablespace", |_| 0)
        .int4("relpages", |c| i32::try_from(c.relation.bytes / 8192).unwrap_or(i32::MAX))
        .float4("reltuples", |c| c.relation.rows)
        .int4("relallvisible", |_| 0)
        .oid("reltoastrelid", |_| 0)
        .bool("relhasindex", |c| c.index.is_none() && c.relation.key.is_some())
        .bool("relisshared", |_| false)
        .text("relpersistence", |_| "p")
        .text("relkind", |c| if c.index.is_some() { "i" } else { c.relation.kind })
        .int2("relnatts", |c| {
            let columns = c.index.map_or(c.relation.columns.len(), |key| key.columns.len());
            i16::try_from(columns).unwrap_or(i16::MAX)
        })
        .int2("relchecks", |_| 0)
        .bool("relhasrules", |_| false)
        .bool("relhastriggers", |_| false)
        .bool("relhassubclass", |_| false)
        .bool("relrowsecurity", |_| false)
        .bool("relforcerowsecurity", |_| false)
        .bool("relispopulated", |_| true)
        .text("relreplident", |c| if c.index.is_some() { "n" } else { "d" })
        .bool("relispartition", |_| false)
        .oid("relrewrite", |_| 0)
        .int4("relfrozenxid", |_| 0)
        .int4("relminmxid", |_| 0)
        .no_texts("relacl")
        .no_texts("reloptions")
        .text_or_null("relpartbound", |_| None::<&str>)
        .oid("tableoid", |_| 1259)
        .batch()
}

fn pg_attribute(known: &Known<'_>) -> Result<RecordBatch> {
    struct Attribute<'a> {
        table: i32,
        number: i16,
        column: &'a super::relations::Column,
        not_null: bool,
    }
    let mut rows = Vec::new();
    for relation in &known.relations.relations {
        for (number, column) in (1..).zip(&relation.columns) {
            rows.push(Attribute { table: relation.oid, number, column, not_null: column.not_null });
        }
        if let Some(key) = &relation.key {
            for (number, column) in (1..).zip(&key.columns) {
                if let Some(column) = usize::try_from(column - 1).ok().and_then(|column| relation.columns.get(column)) {
                    rows.push(Attribute { table: key.index_oid, number, column, not_null: false });
                }
            }
        }
    }
    Fill::new(&rows)
        .oid("attrelid", |a: &Attribute<'_>| a.table)
        .text("attname", |a| &a.column.name)
        .oid("atttypid", |a| a.column.pg_type.oid)
        .int4("attstattarget", |_| -1)
        .int2("attlen", |a| a.column.pg_type.length())
        .int2("attnum", |a| a.number)
        .int4("attndims", |_| 0)
        .int4("attcacheoff", |_| -1)
        .int4("atttypmod", |a| a.column.pg_type.modifier)
        .bool("attbyval", |a| (1..=8).contains(&a.column.pg_type.length()))
        .text("attalign", |a| match a.column.pg_type.length() {
            1 => "c",
            2 => "s",
            8 => "d",
            _ => "i",
        })
        .text("attstorage", |a| if a.column.pg_type.length() < 0 { "x" } else { "p" })
        .text("attcompression", |_| "")
        .bool("attnotnull", |a| a.not_null)
        .bool("atthasdef", |_| false)
        .bool("atthasmissing", |_| false)
        .text("attidentity", |_| "")
        .text("attgenerated", |_| "")
        .bool("attisdropped", |_| false)
        .bool("attislocal", |_| true)
        .int2("attinhcount", |_| 0)
        .oid("attcollation", |a| a.column.pg_type.collation())
        .no_texts("attacl")
        .no_texts("attoptions")
        .no_texts("attfdwoptions")
        .text_or_null("attmissingval", |_| None::<&str>)
        .batch()
}

fn pg_index(known: &Known<'_>) -> Result<RecordBatch> {
    type Row<'a> = (&'a Relation, &'a Key);
    let rows = keys(known.relations);
    let width = |row: &Row<'_>| row.1.columns.len();
    Fill::new(&rows)
        .oid("indexrelid", |(_, key): &Row<'_>| key.index_oid)
        .oid("indrelid", |(relation, _)| relation.oid)
        .int2("indnatts", |row| i16::try_from(width(row)).unwrap_or(i16::MAX))
        .int2("indnkeyatts", |row| i16::try_from(width(row)).unwrap_or(i16::MAX))
        .bool("indisunique", |_| true)
        .bool("indnullsnotdistinct", |_| false)
        .bool("indisprimary", |_| true)
        .bool("indisexclusion", |_| false)
        .bool("indimmediate", |_| true)
        .bool("indisclustered", |_| false)
        .bool("indisvalid", |_| true)
        .bool("indcheckxmin", |_| false)
        .bool("indisready", |_| true)
        .bool("indislive", |_| true)
        .bool("indisreplident", |_| false)
        .int2s("indkey", |(_, key)| Some(key.columns.clone()))
        .oids("indcollation", |row| Some(vec![0; width(row)]))
        .oids("indclass", |row| Some(vec![1978; width(row)]))
        .int2s("indoption", |row| Some(vec![0; width(row)]))
        .text_or_null("indexprs", |_| None::<&str>)
        .text_or_null("indpred", |_| None::<&str>)
        .batch()
}

fn pg_constraint(known: &Known<'_>) -> Result<RecordBatch> {
    type Row<'a> = (&'a Relation, &'a Key);
    let rows = keys(known.relations);
    Fill::new(&rows)
        .oid("oid", |(_, key): &Row<'_>| key.constraint_oid)
        .text("conname", |(_, key)| &key.name)
        .oid("connamespace", |(relation, _)| relation.namespace)
        .text("contype", |_| "p")
        .bool("condeferrable", |_| false)
        .bool("condeferred", |_| false)
        .bool("convalidated", |_| true)
        .oid("conrelid", |(relation, _)| relation.oid)
        .oid("contypid", |_| 0)
        .oid("conindid", |(_, key)| key.index_oid)
        .oid("conparentid", |_| 0)
        .oid("confrelid", |_| 0)
        .text("confupdtype", |_| " ")
        .text("confdeltype", |_| " ")
        .text("confmatchtype", |_| " ")
        .bool("conislocal", |_| true)
        .int2("coninhcount", |_| 0)
        .bool("connoinherit", |_| true)
        .int2s("conkey", |(_, key)| Some(key.columns.clone()))
        .int2s("confkey", |_| None)
        .oids("conpfeqop", |_| None)
        .oids("conppeqop", |_| None)
        .oids("conffeqop", |_| None)
        .int2s("confdelsetcols", |_| None)
        .oids("conexclop", |_| None)
        .text_or_null("conbin", |_| None::<&str>)
        .oid("tableoid", |_| 2606)
        .batch()
}

fn pg_description(known: &Known<'_>) -> Result<RecordBatch> {
    type Row<'a> = (i32, i32, &'a str);
    let mut rows: Vec<Row<'_>> = Vec::new();
    for relation in &known.relations.relations {
        rows.extend(relation.comment.as_deref().map(|comment| (relation.oid, 0, comment)));
        for (number, column) in (1..).zip(&relation.columns) {
            rows.extend(column.comment.as_deref().map(|comment| (relation.oid, number, comment)));
        }
    }
    Fill::new(&rows)
        .oid("objoid", |row: &Row<'_>| row.0)
        .oid("classoid", |_| 1259)
        .int4("objsubid", |row| row.1)
        .text("description", |row| row.2)
        .batch()
}

fn pg_database(known: &Known<'_>) -> Result<RecordBatch> {
    Fill::new(&[known.database])
        .oid("oid", |_| DATABASE_OID)
        .text("datname", |name: &&str| *name)
        .oid("datdba", |_| OWNER_OID)
        .int4("encoding", |_| 6)
        .text("datlocprovider", |_| "c")
        .bool("datistemplate", |_| false)
        .bool("datallowconn", |_| true)
        .bool("dathasloginevt", |_| false)
        .int4("datconnlimit", |_| -1)
        .int4("datfrozenxid", |_| 0)
        .int4("datminmxid", |_| 0)
        .oid("dattablespace", |_| 1663)
        .text("datcollate", |_| "C.UTF-8")
        .text("datctype", |_| "C.UTF-8")
        .text_or_null("daticulocale", |_| None::<&str>)
        .text_or_null("datlocale", |_| None::<&str>)
        .text_or_null("daticurules", |_| None::<&str>)
        .text_or_null("datcollversion", |_| None::<&str>)
        .no_texts("datacl")
        .oid("datlastsysoid", |_| 0)
        .batch()
}

fn pg_roles(known: &Known<'_>) -> Result<RecordBatch> {
    Fill::new(&[&known.vars.user])
        .text("rolname", |name: &&String| name.as_str())
        .bool("rolsuper", |_| true)
        .bool("rolinherit", |_| true)
        .bool("rolcreaterole", |_| true)
        .bool("rolcreatedb", |_| true)
        .bool("rolcanlogin", |_| true)
        .bool("rolreplication", |_| false)
        .int4("rolconnlimit", |_| -1)
        .text_or_null("rolpassword", |_| None::<&str>)
        .timestamptz("rolvaliduntil", |_| None)
        .bool("rolbypassrls", |_| true)
        .no_texts("rolconfig")
        .oid("oid", |_| OWNER_OID)
        .batch()
}

fn pg_user(known: &Known<'_>) -> Result<RecordBatch> {
    Fill::new(&[&known.vars.user])
        .text("usename", |name: &&String| name.as_str())
        .oid("usesysid", |_| OWNER_OID)
        .bool("usecreatedb", |_| true)
        .bool("usesuper", |_| true)
        .bool("userepl", |_| false)
        .bool("usebypassrls", |_| true)
        .text_or_null("passwd", |_| None::<&str>)
        .timestamptz("valuntil", |_| None)
        .no_texts("useconfig")
        .batch()
}

fn pg_tables(known: &Known<'_>) -> Result<RecordBatch> {
    let rows: Vec<&Relation> = known.relations.relations.iter().filter(|relation| relation.kind == "r").collect();
    Fill::new(&rows)
        .text("schemaname", |r: &&Relation| &r.schema)
        .text("tablename", |r| &r.name)
        .text("tableowner", |_| &known.vars.user)
        .text_or_null("tablespace", |_| None::<&str>)
        .bool("hasindexes", |r| r.key.is_some())
        .bool("hasrules", |_| false)
        .bool("hastriggers", |_| false)
        .bool("rowsecurity", |_| false)
        .batch()
}

fn pg_views(known: &Known<'_>) -> Result<RecordBatch> {
    let rows: Vec<&Relation> = known.relations.relations.iter().filter(|relation| relation.kind == "v").collect();
    Fill::new(&rows)
        .text("schemaname", |r: &&Relation| &r.schema)
        .text("viewname", |r| &r.name)
        .text("viewowner", |_| &known.vars.user)
        .text_or_null("definition", |_| None::<&str>)
        .batch()
}

fn pg_indexes(known: &Known<'_>) -> Result<RecordBatch> {
    type Row<'a> = (&'a Relation, &'a Key);
    let rows = keys(known.relations);
    Fill::new(&rows)
        .text("schemaname", |(relation, _): &Row<'_>| &relation.schema)
        .text("tablename", |(relation, _)| &relation.name)
        .text("indexname", |(_, key)| &key.name)
        .text_or_null("tablespace", |_| None::<&str>)
        .text("indexdef", |(relation, key)| index_definition(relation, key))
        .batch()
}

fn pg_settings(known: &Known<'_>) -> Result<RecordBatch> {
    type Row<'a> = (&'a String, &'a String);
    let rows: Vec<Row<'_>> = known.vars.settings.iter().collect();
    Fill::new(&rows)
        .text("name", |row: &Row<'_>| row.0)
        .text("setting", |row| row.1)
        .text_or_null("unit", |_| None::<&str>)
        .text("category", |_| "Client Connection Defaults")
        .text("short_desc", |_| "")
        .text_or_null("extra_desc", |_| None::<&str>)
        .text("context", |_| "user")
        .text("vartype", |_| "string")
        .text("source", |_| "default")
        .text_or_null("min_val", |_| None::<&str>)
        .text_or_null("max_val", |_| None::<&str>)
        .no_texts("enumvals")
        .text("boot_val", |row| row.1)
        .text("reset_val", |row| row.1)
        .text_or_null("sourcefile", |_| None::<&str>)
        .int4_or_null("sourceline", |_| None)
        .bool("pending_restart", |_| false)
        .batch()
}

fn pg_stat_user_tables(known: &Known<'_>) -> Result<RecordBatch> {
    let rows: Vec<&Relation> = known.relations.relations.iter().filter(|relation| relation.mirrored).collect();
    let bigint = DataType::Int64;
    Fill::new(&rows)
        .oid("relid", |r: &&Relation| r.oid)
        .text("schemaname", |r| &r.schema)
        .text("relname", |r| &r.name)
        .int8("n_live_tup", |r| r.rows as i64)
        .int8("n_dead_tup", |_| 0)
        .null("seq_scan", bigint.clone())
        .null("seq_tup_read", bigint.clone())
        .null("idx_scan", bigint.clone())
        .null("idx_tup_fetch", bigint.clone())
        .null("n_tup_ins", bigint.clone())
        .null("n_tup_upd", bigint.clone())
        .null("n_tup_del", bigint.clone())
        .null("n_tup_hot_upd", bigint)
        .timestamptz("last_vacuum", |_| None)
        .timestamptz("last_autovacuum", |_| None)
        .timestamptz("last_analyze", |_| None)
        .timestamptz("last_autoanalyze", |_| None)
        .batch()
}

fn pg_timezone_names(_known: &Known<'_>) -> Result<RecordBatch> {
    Fill::new(&["UTC"])
        .text("name", |name: &&str| *name)
        .text("abbrev", |name| *name)
        .null("utc_offset", DataType::Interval(datafusion::arrow::datatypes::IntervalUnit::MonthDayNano))
        .bool("is_dst", |_| false)
        .batch()
}
