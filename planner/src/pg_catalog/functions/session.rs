//! Functions about the server and the connection.

use std::time::Duration;

use async_trait::async_trait;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::{DataFusionError, Result, ScalarValue, exec_err, not_impl_err};
use datafusion::logical_expr::async_udf::AsyncScalarUDFImpl;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility};

use super::{Call, Definition, Returns, function, text, text_or_null, texts};
use crate::context::SERVER_VERSION;
use crate::error::{SqlError, sqlstate};
use crate::table::{INFORMATION_SCHEMA, PG_CATALOG, PUBLIC, SYS};

pub(super) const FUNCTIONS: &[Definition] = &[
    function("version", Returns::Text, |_| {
        text(format!(
            "PostgreSQL {SERVER_VERSION} (Tidegate {}) on {}, compiled by rustc, 64-bit",
            env!("CARGO_PKG_VERSION"),
            std::env::consts::ARCH
        ))
    }),
    function("current_database", Returns::Text, |call| text(call.scope()?.catalog.database()))
        .also(&["current_catalog"]),
    function("current_user", Returns::Text, |call| text(&call.scope()?.vars.user)).also(&[
        "session_user",
        "current_role",
        "user",
    ]),
    function("current_schema", Returns::Text, |call| text_or_null(schemas(call)?.into_iter().next())),
    function("current_schemas", Returns::Texts, |call| {
        let mut all = schemas(call)?;
        if call.bool(0) && !all.iter().any(|schema| schema == PG_CATALOG) {
            all.insert(0, PG_CATALOG.to_owned());
        }
        texts(&all)
    }),
    function("current_setting", Returns::Text, |call| {
        let name = call.text(0)?.to_ascii_lowercase();
        match call.scope()?.vars.settings.get(&name) {
            Some(value) => text(value),
            None if call.bool(1) => Ok(ScalarValue::Utf8(None)),
            None => Err(DataFusionError::External(Box::new(SqlError::new(
                sqlstate::UNDEFINED_OBJECT,
                format!("unrecognized configuration parameter \"{name}\""),
            )))),
        }
    }),
    // A statement that changes a setting is run by the session; here only the value comes back.
    function("set_config", Returns::Text, |call| text_or_null(call.args.get(1).map(super::shown))),
    function("pg_backend_pid", Returns::Int4, |call| Ok(call.scope()?.vars.backend_pid.into())),
    function("pg_postmaster_start_time", Returns::Timestamptz, |call| instant(call.scope()?.vars.server_start_ms))
        .also(&["pg_conf_load_time"]),
    function("pg_is_in_recovery", Returns::Bool, |_| Ok(false.into())).also(&[
        "pg_is_wal_replay_paused",
        "pg_cancel_backend",
        "pg_terminate_backend",
        "pg_reload_conf",
    ]),
    function("txid_current", Returns::Int8, |_| Ok(1i64.into()))
        .also(&["pg_current_xact_id", "txid_current_if_assigned"]),
    function("inet_server_addr", Returns::Text, |_| Ok(ScalarValue::Utf8(None))).also(&[
        "inet_client_addr",
        "pg_last_wal_receive_lsn",
        "pg_last_wal_replay_lsn",
    ]),
    function("inet_server_port", Returns::Int4, |_| Ok(ScalarValue::Int32(None))).also(&["inet_client_port"]),
    function("pg_advisory_lock", Returns::Text, |_| text("")).also(&[
        "pg_advisory_lock_shared",
        "pg_advisory_xact_lock",
        "pg_advisory_unlock_all",
        "pg_stat_reset",
        "pg_stat_clear_snapshot",
    ]),
    function("pg_try_advisory_lock", Returns::Bool, |_| Ok(true.into()))
        .also(&["pg_try_advisory_xact_lock", "pg_advisory_unlock"]),
];

/// The schemas of the search path that exist.
fn schemas(call: &Call<'_>) -> Result<Vec<String>> {
    let scope = call.scope()?;
    let known = |name: &str| {
        [PG_CATALOG, INFORMATION_SCHEMA, SYS, PUBLIC].contains(&name)
            || scope.catalog.entries().any(|(schema, _, _)| schema == name)
    };
    Ok(scope.vars.search_path.iter().filter(|name| known(name)).cloned().collect())
}

fn instant(ms: i64) -> Result<ScalarValue> {
    Ok(ScalarValue::TimestampMicrosecond(Some(ms.saturating_mul(1000)), Some("UTC".into())))
}

/// `pg_sleep(seconds)`.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Sleep {
    signature: Signature,
}

impl Sleep {
    pub(super) fn new() -> Self {
        Self { signature: Signature::exact(vec![DataType::Float64], Volatility::Volatile) }
    }
}

impl ScalarUDFImpl for Sleep {
    fn name(&self) -> &str {
        "pg_sleep"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        not_impl_err!("pg_sleep cannot be used here")
    }
}

#[async_trait]
impl AsyncScalarUDFImpl for Sleep {
    async fn invoke_async_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let seconds = match args.args.first() {
            Some(ColumnarValue::Scalar(ScalarValue::Float64(seconds))) => *seconds,
            Some(ColumnarValue::Array(values)) if !values.is_empty() => match ScalarValue::try_from_array(values, 0)? {
                ScalarValue::Float64(seconds) => seconds,
                _ => None,
            },
            _ => None,
        };
        match seconds.map(Duration::try_from_secs_f64) {
            Some(Ok(duration)) => tokio::time::sleep(duration).await,
            Some(Err(_)) if seconds.is_some_and(f64::is_nan) => return exec_err!("pg_sleep needs a number of seconds"),
            Some(Err(_)) | None => {}
        }
        // Returns void, which clients see as an empty text.
        Ok(ColumnarValue::Scalar(ScalarValue::Utf8(Some(String::new()))))
    }
}
