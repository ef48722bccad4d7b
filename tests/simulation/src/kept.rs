//! Those who need old snapshots and are not of this program: tags and consumers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use object_store::path::Path;
use tidegate_storage::store::StoreRef;
use tidegate_storage::table::TableVersion;

use crate::note;
use crate::run::Run;
use crate::store::Direct;

/// A tag or a consumer.
pub(crate) struct Kept {
    table: Path,
    /// The tag or the consumer's file.
    object: Path,
    snapshot: u64,
    is_tag: bool,
    until: Duration,
}

impl Run {
    /// Tags the newest snapshot of a table, or begins to consume the table from there on.
    pub(crate) fn keep(&mut self) {
        if self.is_damaged {
            return;
        }
        let newest = self.newest_snapshots();
        let Some((table, snapshot)) = newest.into_iter().nth(self.world.below(4) as usize) else { return };
        self.names += 1;
        let (number, now) = (self.names, self.world.now_ms());
        let is_tag = self.world.chance(0.5);
        let (object, bytes) = if is_tag {
            let Some(json) = self.disk.content(&snapshot_file(&table, snapshot)) else { return };
            (table.clone().join("tag").join(format!("tag-{number}")), json)
        } else {
            let json = format!("{{\"nextSnapshot\": {snapshot}}}");
            (table.clone().join("consumer").join(format!("consumer-{number}")), Bytes::from(json))
        };
        note!(self.world, "{object} keeps snapshot {snapshot}");
        self.disk.write(&object, Some(bytes), now);
        let until = self.world.now() + self.world.between(Duration::from_millis(100), Duration::from_secs(10));
        self.kept.push(Kept { table, object, snapshot, is_tag, until });
    }

    /// Tables with the number of their newest snapshot.
    fn newest_snapshots(&self) -> BTreeMap<Path, u64> {
        let mut newest = BTreeMap::new();
        for path in self.disk.paths() {
            let parts: Vec<String> = path.parts().map(|part| part.as_ref().to_owned()).collect();
            let [table @ .., folder, name] = parts.as_slice() else { continue };
            let number = name.strip_prefix("snapshot-").and_then(|number| number.parse::<u64>().ok());
            if let (true, Some(number)) = (folder == "snapshot", number) {
                let last = newest.entry(Path::from(table.join("/"))).or_default();
                *last = number.max(*last);
            }
        }
        newest
    }

    /// Looks at what is not needed any more: it was there until now.
    pub(crate) fn look_at_kept(&mut self) {
        let now = self.world.now();
        let over: Vec<Kept> = self.kept.extract_if(.., |kept| kept.until <= now).collect();
        for kept in over {
            self.look_at_one(&kept);
            self.disk.write(&kept.object, None, 0);
        }
    }

    /// Looks at everything that is still needed.
    pub(crate) fn look_at_all_kept(&mut self) {
        for kept in std::mem::take(&mut self.kept) {
            self.look_at_one(&kept);
        }
    }

    fn look_at_one(&self, kept: &Kept) {
        if kept.is_tag {
            self.is_whole(kept, &kept.object);
            return;
        }
        let last = self.newest_snapshots().get(&kept.table).copied().unwrap_or_default();
        for id in kept.snapshot..=last {
            self.is_whole(kept, &snapshot_file(&kept.table, id));
        }
    }

    fn is_whole(&self, kept: &Kept, snapshot: &Path) {
        let Some(json) = self.disk.content(snapshot) else {
            self.world.violate(format!("{snapshot} is gone, and {} needs it", kept.object));
            return;
        };
        let store: StoreRef = Arc::new(Direct(self.disk.clone()));
        let json = String::from_utf8_lossy(&json).into_owned();
        let loaded = TableVersion::load(&store, &kept.table, &json).now_or_never().expect("the store answers at once");
        match loaded {
            Ok(version) => {
                if let Some(file) = version.files.iter().find(|file| !self.disk.contains(&file.path)) {
                    self.world.violate(format!("{} is gone, and {} needs it", file.path, kept.object));
                }
            }
            Err(error) => self.world.violate(format!("{snapshot} cannot be read for {}: {error}", kept.object)),
        }
    }
}

fn snapshot_file(table: &Path, number: u64) -> Path {
    table.clone().join("snapshot").join(format!("snapshot-{number}"))
}
