//! Filters that ask for certain keys: `id = 7`, `id IN (7, 8)`, `shop = 1 AND number = 7`.

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::Schema;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::{BinaryExpr, Expr, Operator};
use tidegate_storage::paimon::{DataType, TableSchema};

/// More keys than this are not looked up one by one.
const MOST_KEYS: usize = 1000;

/// The keys that rows must have to pass all `filters`: the columns of the key, in the types they are stored in. None if
/// the filters do not say.
///
/// Rows with these keys may still fail other filters, which are applied behind the scan.
pub(crate) fn keys_asked_for(filters: &[Expr], table: &TableSchema, query: &Schema) -> Result<Option<Vec<ArrayRef>>> {
    let key = table.key_indices();
    let mut columns: Vec<&[Expr]> = Vec::with_capacity(key.len());
    let conjuncts: Vec<&Expr> = filters.iter().flat_map(datafusion::logical_expr::utils::split_conjunction).collect();
    for index in &key {
        // Numbers that are equal without having the same bytes are not found by their bytes.
        if matches!(table.fields[*index].data_type, DataType::Float | DataType::Double) {
            return Ok(None);
        }
        let name = query.field(*index).name();
        match conjuncts.iter().find_map(|filter| values_of(filter, name)) {
            Some(values) => columns.push(values),
            None => return Ok(None),
        }
    }
    // Every combination of the values of the columns.
    let count = columns.iter().map(|values| values.len()).product::<usize>();
    if key.is_empty() || count == 0 || count > MOST_KEYS {
        return Ok(None);
    }
    let mut arrays = Vec::with_capacity(key.len());
    let mut repeat = count;
    for (values, index) in columns.iter().zip(&key) {
        repeat /= values.len();
        let seen = query.field(*index).data_type();
        let mut scalars: Vec<ScalarValue> = Vec::with_capacity(values.len());
        for value in *values {
            match value {
                Expr::Literal(value, _) if !value.is_null() && value.data_type() == *seen => {
                    scalars.push(value.clone())
                }
                // Another type: equal to the column's values in a way that only the comparison knows.
                _ => return Ok(None),
            }
        }
        let column = (0..count).map(|row| scalars[row / repeat % scalars.len()].clone());
        let stored = table.fields[*index].data_type.arrow();
        arrays.push(cast(&ScalarValue::iter_to_array(column)?, &stored)?);
    }
    Ok(Some(arrays))
}

/// The literals of `column = literal`, `literal = column` or `column IN (literal, …)`.
fn values_of<'a>(filter: &'a Expr, name: &str) -> Option<&'a [Expr]> {
    let is_column = |expr: &Expr| matches!(expr, Expr::Column(column) if column.name == name);
    match filter {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) if is_column(left) => {
            Some(std::slice::from_ref(right.as_ref()))
        }
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) if is_column(right) => {
            Some(std::slice::from_ref(left.as_ref()))
        }
        Expr::InList(InList { expr, list, negated: false }) if is_column(expr) => Some(list),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use datafusion::arrow::array::AsArray;
    use datafusion::arrow::datatypes::{DataType as ArrowType, Int64Type};
    use datafusion::logical_expr::{col, lit};
    use tidegate_storage::paimon::NewField;

    use super::*;

    fn table(keys: &[(&str, DataType)]) -> TableSchema {
        let field = |name: &str, data_type: DataType, nullable| NewField {
            name: name.to_owned(),
            data_type,
            nullable,
            description: None,
        };
        let mut fields = vec![field("note", DataType::String, true)];
        fields.extend(keys.iter().map(|(name, data_type)| field(name, data_type.clone(), false)));
        let names = keys.iter().map(|(name, _)| (*name).to_owned()).collect();
        TableSchema::new(fields, names, BTreeMap::new(), None, 0).unwrap()
    }

    fn found(table: &TableSchema, filters: &[Expr]) -> Option<Vec<Vec<i64>>> {
        let query = super::super::evolution::query_schema(&table.arrow_schema());
        let columns = keys_asked_for(filters, table, &query).unwrap()?;
        Some(columns.iter().map(|column| column.as_primitive::<Int64Type>().values().to_vec()).collect())
    }

    #[test]
    fn equalities_and_lists_give_keys() {
        let one = table(&[("id", DataType::BigInt)]);
        assert_eq!(found(&one, &[col("id").eq(lit(7_i64))]), Some(vec![vec![7]]));
        assert_eq!(found(&one, &[lit(7_i64).eq(col("id")).and(col("note").eq(lit("x")))]), Some(vec![vec![7]]));
        assert_eq!(found(&one, &[col("id").in_list(vec![lit(1_i64), lit(5_i64)], false)]), Some(vec![vec![1, 5]]));
        let two = table(&[("a", DataType::BigInt), ("b", DataType::BigInt)]);
        let filters = [
            col("b").in_list(vec![lit(1_i64), lit(2_i64)], false),
            col("a").in_list(vec![lit(8_i64), lit(9_i64)], false),
        ];
        assert_eq!(found(&two, &filters), Some(vec![vec![8, 8, 9, 9], vec![1, 2, 1, 2]]));
        assert_eq!(found(&two, &filters[..1]), None);
    }

    #[test]
    fn what_does_not_name_keys_gives_none() {
        let one = table(&[("id", DataType::BigInt)]);
        for filter in [
            col("id").gt(lit(7_i64)),
            col("id").eq(lit(7_i64)).or(col("id").eq(lit(8_i64))),
            col("id").in_list(vec![lit(1_i64)], true),
            col("id").eq(col("note")),
            col("id").eq(lit(ScalarValue::Int64(None))),
            // Not the type of the column.
            col("id").eq(lit(7_i32)),
            col("id").in_list(vec![], false),
            col("id").in_list((0..1001_i64).map(lit).collect(), false),
        ] {
            assert_eq!(found(&one, std::slice::from_ref(&filter)), None, "{filter}");
        }
        let float = table(&[("f", DataType::Double)]);
        let query = super::super::evolution::query_schema(&float.arrow_schema());
        assert!(keys_asked_for(&[col("f").eq(lit(0.0))], &float, &query).unwrap().is_none());
        let text = table(&[("s", DataType::Varchar(9))]);
        let query = super::super::evolution::query_schema(&text.arrow_schema());
        let value = ScalarValue::from("x").cast_to(query.field(1).data_type()).unwrap();
        let columns = keys_asked_for(&[col("s").eq(lit(value))], &text, &query).unwrap().unwrap();
        assert_eq!(columns[0].data_type(), &ArrowType::Utf8);
    }
}
