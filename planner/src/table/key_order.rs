//! Rows in the order of the key, without sorting them.
//!
//! Every run of a table is sorted by the key. For most queries files are dealt out to the processors by size, which loses
//! that order. Where a plan sorts by the key, they are read run by run instead: the optimizer is told so, and merges the runs
//! in place of sorting all rows. With that it takes no memory for the rows, and the first ones are there at once.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use datafusion::arrow::compute::SortOptions;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Result, ScalarValue};
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{FileGroup, FileScanConfig, FileScanConfigBuilder};
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{LexOrdering, Partitioning, PhysicalSortExpr};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::ensure_requirements::EnsureRequirements;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::execution_plan::replace_children_if_necessary;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::union::UnionExec;

use super::checked::CheckedSource;

/// With more runs than this, rows are sorted: each run that is merged holds a batch of rows, and a file open.
const MOST_RUNS: usize = 64;

/// The run that a file of a scan belongs to. Its files do not overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RunOf {
    pub(crate) bucket: u32,
    pub(crate) level: i32,
}

/// Replaces sorts by the key. It belongs behind the rule that puts sorts into a plan, and runs that one again where it
/// has changed something.
#[derive(Debug)]
pub(crate) struct KeyOrder;

impl KeyOrder {
    /// `rules` with this one at its place.
    pub(crate) fn among(
        mut rules: Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>>,
    ) -> Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> {
        let sorts = EnsureRequirements::new();
        if let Some(place) = rules.iter().position(|rule| rule.name() == sorts.name()) {
            rules.insert(place + 1, Arc::new(Self));
        }
        rules
    }
}

impl PhysicalOptimizerRule for KeyOrder {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        let mut found = false;
        let ordered = Arc::clone(&plan).transform_down(|node| {
            let input = match node.downcast_ref::<SortExec>().and_then(Wanted::of) {
                Some((wanted, input)) => by_runs(input, &wanted)?,
                None => None,
            };
            let Some(input) = input else { return Ok(Transformed::no(node)) };
            found = true;
            Ok(Transformed::yes(replace_children_if_necessary(node, vec![input])?))
        })?;
        if found { EnsureRequirements::new().optimize(ordered.data, config) } else { Ok(plan) }
    }

    fn name(&self) -> &str {
        "KeyOrder"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The columns that a plan is sorted by, all of them ascending, and where NULLs would go.
struct Wanted {
    columns: Vec<String>,
    options: SortOptions,
}

impl Wanted {
    fn of(sort: &SortExec) -> Option<(Self, &Arc<dyn ExecutionPlan>)> {
        let columns = sort.expr().iter().map(|by| {
            let column = by.expr.downcast_ref::<Column>()?;
            (!by.options.descending).then(|| column.name().to_owned())
        });
        let columns = columns.collect::<Option<Vec<_>>>()?;
        Some((Self { columns, options: sort.expr().first().options }, sort.input()))
    }

    /// The same columns below a projection; none if one of them is not a column there.
    fn below(&self, projection: &ProjectionExec) -> Option<Self> {
        let below = |name: &String| {
            let by = projection.expr().iter().find(|by| by.alias == *name)?;
            Some(by.expr.downcast_ref::<Column>()?.name().to_owned())
        };
        let columns = self.columns.iter().map(below).collect::<Option<_>>()?;
        Some(Self { columns, options: self.options })
    }
}

/// `plan` with its tables read run by run; none if it is not one that can give rows in the order of their key.
fn by_runs(plan: &Arc<dyn ExecutionPlan>, wanted: &Wanted) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(scan) = plan.downcast_ref::<DataSourceExec>() {
        let Some((config, source)) = scan.downcast_to_file_source::<CheckedSource>() else { return Ok(None) };
        let config = runs_of(config, source, wanted);
        return Ok(config.map(|config| DataSourceExec::from_data_source(config) as Arc<dyn ExecutionPlan>));
    }
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        let Some(wanted) = wanted.below(projection) else { return Ok(None) };
        return with_inputs(plan, &wanted);
    }
    if let Some(dealt) = plan.downcast_ref::<RepartitionExec>() {
        // Runs are read side by side as they are.
        return match dealt.partitioning() {
            Partitioning::RoundRobinBatch(_) => by_runs(dealt.input(), wanted),
            _ => Ok(None),
        };
    }
    if plan.downcast_ref::<FilterExec>().is_some() || plan.downcast_ref::<UnionExec>().is_some() {
        return with_inputs(plan, wanted);
    }
    Ok(None)
}

fn with_inputs(plan: &Arc<dyn ExecutionPlan>, wanted: &Wanted) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let mut inputs = Vec::new();
    for input in plan.children() {
        let Some(input) = by_runs(input, wanted)? else { return Ok(None) };
        inputs.push(input);
    }
    replace_children_if_necessary(Arc::clone(plan), inputs).map(Some)
}

/// A scan of the same files, each run of them by itself and in the order of its keys.
fn runs_of(config: &FileScanConfig, source: &CheckedSource, wanted: &Wanted) -> Option<FileScanConfig> {
    let schema = config.file_schema();
    let key: Vec<Column> = source.key().iter().map(|at| Column::new(schema.field(*at).name(), *at)).collect();
    let is_key = wanted.columns.iter().zip(&key).all(|(wanted, key)| wanted == key.name());
    if !is_key || wanted.columns.len() > key.len() {
        return None;
    }
    let first = *source.key().first()?;
    let mut runs: BTreeMap<RunOf, Vec<(ScalarValue, PartitionedFile)>> = BTreeMap::new();
    let mut seen = HashSet::new();
    for file in config.file_groups.iter().flat_map(FileGroup::iter) {
        // A large file may have been cut into ranges for several processors by now.
        if !seen.insert(&file.object_meta.location) {
            continue;
        }
        let run = *file.extensions.get::<RunOf>()?;
        let smallest = file.statistics.as_ref()?.column_statistics.get(first)?.min_value.get_value()?.clone();
        runs.entry(run).or_default().push((smallest, PartitionedFile { range: None, ..file.clone() }));
    }
    // Whether files follow each other is told by statistics, which know the key's first column. By more columns only single
    // files are known to be sorted.
    let files_apart = wanted.columns.len() > 1;
    let mut groups = Vec::with_capacity(runs.len());
    for mut files in runs.into_values() {
        files.sort_by(|(a, _), (b, _)| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
        let files = files.into_iter().map(|(_, file)| file);
        if files_apart {
            groups.extend(files.map(|file| FileGroup::new(vec![file])));
        } else {
            groups.push(FileGroup::new(files.collect()));
        }
    }
    if groups.len() > MOST_RUNS {
        return None;
    }
    let by = |column: &Column| PhysicalSortExpr::new(Arc::new(column.clone()), wanted.options);
    let orders = [LexOrdering::new(key.iter().map(by)), LexOrdering::new(key.iter().take(1).map(by))];
    let scan = FileScanConfigBuilder::from(config.clone())
        .with_file_groups(groups)
        .with_output_ordering(orders.into_iter().flatten().collect());
    Some(scan.build())
}
