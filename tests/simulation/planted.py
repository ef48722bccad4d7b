#!/usr/bin/env python3
"""Plants faults in a copy of the code, one at a time, and shows that the simulation finds each of them.

    planted.py [--seconds N] [NAME ...]

Each fault is a piece of the code and what stands in its place once it is planted. All of them are put into one copy, which
is built once; a variable of the environment says which one is there. A piece that is not in the code exactly once is an
error: the list grows with the code. The seconds are the limit for each fault, on all processors.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]

# name: file, piece of the code, what is there instead. `PLANTED` is whether the fault is there.
FAULTS = {
    "the snapshot starts at the log's end": (
        "cdc/src/capture/session.rs",
        "let position = behind_definitions(conn, info).await?;",
        "let mut position = behind_definitions(conn, info).await?;\n"
        "if PLANTED { position.gtid = None; position.file = Some(conn.log_end(info).await?); }",
    ),
    "a position is before what its definitions have": (
        "cdc/src/capture/session.rs",
        "let Some(carried_out) = visible.beyond.clone() else { return Ok(visible.prefix) };",
        "let Some(carried_out) = visible.beyond.clone().filter(|_| !PLANTED) else { return Ok(visible.prefix) };",
    ),
    "HIGH is taken before the page is read": (
        "cdc/src/mysql/snapshot/pages.rs",
        "let high = conn.log_end(server).await?;",
        "let high = if PLANTED { low.clone() } else { conn.log_end(server).await? };",
    ),
    "pages do not wait for the stream": (
        "cdc/src/capture/coordinator.rs",
        "if page.page.high > reached {",
        "if page.page.high > reached && !PLANTED {",
    ),
    "deletions during a snapshot are forgotten": (
        "storage/src/table/resolve.rs",
        "if let Some(loading) = deleted {",
        "if let Some(loading) = deleted && !PLANTED {",
    ),
    "a page wins over the log": (
        "storage/src/table/resolve.rs",
        "(RowKind::InsertAbsent | RowKind::UpdateBefore, state) => state,",
        "(RowKind::InsertAbsent, _) if PLANTED => State::New { row: *row, page: true },\n"
        "(RowKind::InsertAbsent | RowKind::UpdateBefore, state) => state,",
    ),
    "rows that die during a merge come back": (
        "storage/src/table/bucket.rs",
        "if died.is_empty() {\n        return Ok(());",
        "if died.is_empty() || PLANTED {\n        return Ok(());",
    ),
    "replaced rows stay": (
        "storage/src/table/bucket.rs",
        "self.kill(replaced);",
        "if !PLANTED { self.kill(replaced); }",
    ),
    "creates have no condition": (
        "storage/src/store/mod.rs",
        "match store.put_opts(path, PutPayload::from_bytes(bytes), PutMode::Create.into()).await {",
        "let mode = if PLANTED { PutMode::Overwrite } else { PutMode::Create };\n"
        "match store.put_opts(path, PutPayload::from_bytes(bytes), mode.into()).await {",
    ),
    "any object of a name is one's own": (
        "storage/src/store/retrying.rs",
        "Ok((found, result)) if found == Bytes::from(payload) => Ok(result),",
        "Ok((found, result)) if PLANTED || found == Bytes::from(payload) => Ok(result),",
    ),
    "a lost answer counts as a commit": (
        "cdc/src/capture/applier.rs",
        "CommitOutcome::Unknown(error) => return Err(error.into()),",
        "CommitOutcome::Unknown(_) if PLANTED => {}\nCommitOutcome::Unknown(error) => return Err(error.into()),",
    ),
    "a lost race counts as a commit": (
        "cdc/src/capture/applier.rs",
        "CommitOutcome::Committed => {}",
        "CommitOutcome::Committed => {}\nCommitOutcome::Conflicted(_) if PLANTED => {}",
    ),
    "pages are read before the position is visible": (
        "cdc/src/capture/session.rs",
        "if start.tables.iter().any(CapturedTable::is_loading) {",
        "if start.tables.iter().any(CapturedTable::is_loading) && !PLANTED {",
    ),
    "a snapshot does not wait for an XA COMMIT before its position": (
        "cdc/src/capture/early_xa.rs",
        "let listed = conn.prepared(info).await?;",
        "let mut listed = conn.prepared(info).await?;\nif PLANTED { listed.clear(); }",
    ),
    "an XA COMMIT is not waited for": (
        "cdc/src/capture/pages.rs",
        "for commit in awaited {",
        "for commit in awaited.iter().filter(|_| !PLANTED) {",
    ),
    "an XA COMMIT of rows prepared before is passed over": (
        "cdc/src/capture/transaction.rs",
        "if known || !commits {",
        "if known || !commits || PLANTED {",
    ),
    "rows of a prepared XA transaction are lost": (
        "cdc/src/capture/held.rs",
        "self.source.held.insert(xid, held);",
        "let mut held = held;\nif PLANTED { held.parts.clear(); }\nself.source.held.insert(xid, held);",
    ),
    "rows of an XA transaction that is rolled back count": (
        "cdc/src/capture/transaction.rs",
        "self.xa_ended(held, commits.then_some(&commit))",
        "self.xa_ended(held, (commits || PLANTED).then_some(&commit))",
    ),
    "rows of an XA transaction go before its commit is durable": (
        "cdc/src/capture/held.rs",
        "let paths = std::mem::take(&mut self.unneeded_by_cut);",
        "if PLANTED { self.cut(); }\n        let paths = std::mem::take(&mut self.unneeded_by_cut);",
    ),
    "checkpoints are cut within transactions": (
        "cdc/src/capture/coordinator.rs",
        "if !self.stream.in_transaction {\n                self.between_transactions().await?;",
        "if !self.stream.in_transaction || PLANTED {\n                self.between_transactions().await?;",
    ),
    "what was written and is undone stays": (
        "cdc/src/capture/transaction.rs",
        "self.stream.again.extend(tables);",
        "self.stream.again.extend(tables.into_iter().filter(|_| !PLANTED));",
    ),
    "a changed key leaves its old row": (
        "cdc/src/mysql/binlog/decode.rs",
        "if old_key != new_key {",
        "if old_key != new_key && !PLANTED {",
    ),
    "TRUNCATE is passed over": (
        "cdc/src/capture/schema_change.rs",
        "Some(index) => self.truncated(index).await,",
        "Some(_) if PLANTED => Ok(()),\nSome(index) => self.truncated(index).await,",
    ),
    "older rows have no default": (
        "cdc/src/capture/schema_change.rs",
        "if applied.rewrites.is_some() {",
        "if applied.rewrites.is_some() && !PLANTED {",
    ),
    "a range's progress is kept before its rows": (
        "cdc/src/capture/coordinator.rs",
        "ReadEvent::Page(page) => {",
        "ReadEvent::Page(page) => {\n"
        "if PLANTED && let Some(Phase::Snapshot(runs)) = self.tables.get_mut(page.table).map(|t| &mut t.phase)\n"
        "&& let Some(run) = runs.get_mut(page.range_index) && page.page.last_key.is_some() {\n"
        "run.state.after = page.page.last_key.clone(); }",
    ),
    "a range is read from its beginning after a restart": (
        "cdc/src/capture/coordinator.rs",
        "range: run.state.range.clone(),\n                        after: run.state.after.clone(),",
        "range: run.state.range.clone(),\n                        after: run.state.after.clone().filter(|_| !PLANTED),",
    ),
    "a table is complete with its first range": (
        "cdc/src/capture/coordinator.rs",
        "let complete = runs.iter().all(|r| r.state.done);",
        "let complete = runs.iter().all(|r| r.state.done) || PLANTED && runs.iter().any(|r| r.state.done);",
    ),
    "a table begins anew before the stream has its definition": (
        "cdc/src/capture/resync.rs",
        "matches!(resync, Resync::Waiting(definition) if definition.at <= reached)",
        "matches!(resync, Resync::Waiting(definition) if PLANTED || definition.at <= reached)",
    ),
    "a table that is read again does not wait for what it has passed": (
        "cdc/src/capture/resync.rs",
        "table.since = Some(self.position.clone());",
        "table.since = Some(self.position.clone()).filter(|_| !PLANTED);",
    ),
    "a table that is read again disappears": (
        "cdc/src/capture/applier.rs",
        "slot.freeze();\n        slot.shares.clear();",
        "if !PLANTED { slot.freeze(); }\n        slot.shares.clear();",
    ),
    "expiry deletes what the next snapshot has": (
        "storage/src/table/expire.rs",
        "other => return other.map(|()| (snapshot, needed)),",
        "other if PLANTED => return other.map(|()| (snapshot, Needed::default())),\n"
        "            other => return other.map(|()| (snapshot, needed)),",
    ),
    "expiry passes over readers": (
        "storage/src/table/expire.rs",
        "holds.extend(oldest_read.map(|snapshot_id| Hold { holder: Holder::Reader, snapshot_id }));",
        "holds.extend(oldest_read.filter(|_| !PLANTED).map(|snapshot_id| Hold { holder: Holder::Reader, snapshot_id }));",
    ),
    "readers from before a session are forgotten": (
        "cdc/src/capture/housekeeping.rs",
        "let loaded = versions.entry(version.snapshot_id).or_default();",
        "let loaded = versions.entry(version.snapshot_id).or_default();\nif PLANTED { loaded.clear(); }",
    ),
    "a listing may take for ever": (
        "storage/src/store/retrying.rs",
        "limited(self.policy.timeout, self.inner.list(prefix))",
        "if PLANTED { self.inner.list(prefix) } else { limited(self.policy.timeout, self.inner.list(prefix)) }",
    ),
    "what another server has expired is damage": (
        "cdc/src/capture/session.rs",
        "Err(error) if error.retry == Retry::Never => error,",
        "Err(error) if error.retry == Retry::Never && !PLANTED => error,",
    ),
    "a table whose files another server has expired is a damaged one": (
        "cdc/src/capture/session.rs",
        "&& !is_superseded(store, self.definition.id, self.epoch, start.number).await? =>",
        "&& (PLANTED || !is_superseded(store, self.definition.id, self.epoch, start.number).await?) =>",
    ),
    "a snapshot that is gone meanwhile is missing": (
        "storage/src/table/expire.rs",
        "Ok(is_gone.then_some(listed))",
        "Ok((is_gone && !PLANTED).then_some(listed))",
    ),
    "what is expired while a standby reads is damage": (
        "cdc/src/capture/view.rs",
        "if log.recover().await?.is_none_or(|newest| newest.number <= state.number) {",
        "if PLANTED || log.recover().await?.is_none_or(|newest| newest.number <= state.number) {",
    ),
    "transactions of the log are counted twice": (
        "cdc/src/capture/transaction.rs",
        "set.add(&gtid);",
        "if PLANTED { self.position.file.clone_from(&self.stream.reached); return; }\n            set.add(&gtid);",
    ),
    "what is undone in a transaction counts": (
        "cdc/src/capture/transaction.rs",
        "table.buffer.truncate(*length);",
        "if !PLANTED { table.buffer.truncate(*length); }",
    ),
    "expiry passes over tags": (
        "storage/src/table/expire.rs",
        "kept.add_live(store, paths, tag).await?;",
        "if !PLANTED { kept.add_live(store, paths, tag).await?; }",
    ),
    "expiry passes over consumers": (
        "storage/src/table/expire.rs",
        "holds.extend(consumers(store, paths).await?);",
        "if !PLANTED { holds.extend(consumers(store, paths).await?); }",
    ),
    "a changelog takes deletions for insertions": (
        "storage/src/table/changelog.rs",
        "RowKind::Delete => Change::Delete,",
        "RowKind::Delete if PLANTED => Change::Insert,\n                RowKind::Delete => Change::Delete,",
    ),
    "damaged data files are read": (
        "storage/src/store/checked.rs",
        "let Some(digests) = &self.digests else { return Ok(()) };",
        "let Some(digests) = self.digests.as_ref().filter(|_| !PLANTED) else { return Ok(()) };",
    ),
    "records of checkpoints are not verified": (
        "storage/src/checkpoint/record.rs",
        "if digest.strip_prefix(\"sha256:\") != Some(hex(&Sha256::digest(body)).as_str()) {",
        "if !PLANTED && digest.strip_prefix(\"sha256:\") != Some(hex(&Sha256::digest(body)).as_str()) {",
    ),
    "a lease that is over is a damaged one": (
        "storage/src/checkpoint/lease.rs",
        "Err(Error::NotFound { .. }) if missing != Some(epoch) => missing = Some(epoch),",
        "Err(Error::NotFound { .. }) if missing != Some(epoch) && !PLANTED => missing = Some(epoch),",
    ),
    "pages may come from another server": (
        "cdc/src/capture/pages.rs",
        "info.must_be(&self.expected)?;",
        "if !PLANTED { info.must_be(&self.expected)?; }",
    ),
    "changes of all tables together are not limited": (
        "cdc/src/capture/coordinator.rs",
        "if self.decoded <= limit {",
        "if self.decoded <= limit || PLANTED {",
    ),
    "pages do not keep their shares of the memory": (
        "cdc/src/capture/pages.rs",
        "Some(spare) => drop(share.split(spare)),",
        "Some(spare) => drop(share.split(if PLANTED { share.num_permits() } else { spare })),",
    ),
    "an index file holds the newest deletions only": (
        "storage/src/table/writer.rs",
        "let deleted = deleted.remove(&meta.file_name).unwrap_or_default();",
        "let deleted = deleted.remove(&meta.file_name).filter(|_| !PLANTED).unwrap_or_default();",
    ),
}


def planted() -> dict[str, str]:
    """The files that differ, with all faults in them."""
    texts = {}
    for name, (file, piece, instead) in FAULTS.items():
        text = texts.get(file) or (ROOT / file).read_text()
        if text.count(piece) != 1:
            sys.exit(f"planted.py: {name!r}: the piece is {text.count(piece)} times in {file}")
        crate = "crate" if file.startswith("storage/") else "tidegate_storage"
        texts[file] = text.replace(piece, instead.replace("PLANTED", f'{crate}::planted("{name}")'))
    library = "storage/src/lib.rs"
    texts[library] = (ROOT / library).read_text() + '''
#[doc(hidden)]
pub fn planted(name: &str) -> bool {
    static NAME: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    NAME.get_or_init(|| std::env::var("TIDEGATE_PLANTED").unwrap_or_default()) == name
}
'''
    # Another version, so that nothing of it is taken for the checkout's own.
    for file in ["Cargo.toml", "Cargo.lock"]:
        texts[file] = re.sub(
            r'(\[workspace\.package\]\nversion = "|name = "tidegate[a-z-]*"\nversion = ")([0-9.]+)"',
            r'\g<1>\g<2>-planted"',
            (ROOT / file).read_text(),
        )
    return texts


def copy(to: pathlib.Path) -> None:
    """Copies what is built, with all faults in it."""
    texts = planted()
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    for file in listed.stdout.split("\n"):
        if not file or not (ROOT / file).is_file():
            continue
        content = texts[file].encode() if file in texts else (ROOT / file).read_bytes()
        target = to / file
        if target.is_file() and target.read_bytes() == content:
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--check", action="store_true", help="only whether each piece is in the code")
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    target = pathlib.Path(
        os.environ.get("CARGO_TARGET_DIR")
        or pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "tidegate/target"
    )
    if arguments.check:
        planted()
        return
    place = target / "planted"
    copy(place)
    environment = {**os.environ, "CARGO_TARGET_DIR": str(target)}
    subprocess.run(
        ["cargo", "build", "--locked", "-p", "tidegate-simulation", "--bin", "simulate"], cwd=place, env=environment, check=True
    )
    binary = place / "simulate"
    shutil.copy2(target / "debug" / "simulate", binary)
    missed = []
    for name in [name for name in FAULTS if not arguments.names or any(part in name for part in arguments.names)]:
        began = time.monotonic()
        run = subprocess.run(
            [binary, "--seconds", str(arguments.seconds)],
            env={**environment, "TIDEGATE_PLANTED": name, "RUST_LOG": "off"},
            capture_output=True,
            text=True,
        )
        found = [line for line in run.stdout.split("\n") if line.startswith("seed ")]
        seconds = time.monotonic() - began
        worlds = next((line.split()[0] for line in run.stdout.split("\n") if " worlds, " in line), "?")
        print(f"{'found' if found else 'MISSED':6} {seconds:6.1f} s {worlds:>6} worlds  {name}", flush=True)
        for line in found[:1]:
            print(f"         {line[:180]}", flush=True)
        if not found:
            missed.append(name)
    shutil.rmtree(place, ignore_errors=True)
    if missed:
        sys.exit(f"not found: {', '.join(missed)}")


if __name__ == "__main__":
    main()
