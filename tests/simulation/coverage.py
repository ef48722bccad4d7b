#!/usr/bin/env python3
"""Which lines of capture and storage the simulation runs through, by itself.

    coverage.py [--seconds N] [--seed N] [--lines FILE]

Builds the simulation with counters in `cdc` and `storage`, runs worlds, and prints the lines that were reached in each file.
`--lines` prints, of one file, the lines that were not. Takes llvm-profdata and llvm-cov of a version that reads what the
compiler writes: Debian's llvm-19 for Rust 1.95, unpacked into the cache folder unless there is another in `LLVM_BIN`.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "tidegate"
TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR") or CACHE / "target")
PACKAGES = ["llvm-19", "libllvm19"]


def tools() -> tuple[pathlib.Path, dict[str, str]]:
    """The folder of LLVM's tools, and the environment that they need."""
    if "LLVM_BIN" in os.environ:
        return pathlib.Path(os.environ["LLVM_BIN"]), dict(os.environ)
    place = CACHE / "llvm"
    if not (place / "complete").exists():
        with tempfile.TemporaryDirectory() as packages:
            os.chmod(packages, 0o755)
            subprocess.run(["apt-get", "download", *PACKAGES], cwd=packages, check=True)
            for package in pathlib.Path(packages).glob("*.deb"):
                subprocess.run(["dpkg", "-x", package, place], check=True)
        (place / "complete").touch()
    library = f"{place}/usr/lib/llvm-19/lib:{place}/usr/lib/{os.uname().machine}-linux-gnu"
    return place / "usr/lib/llvm-19/bin", {**os.environ, "LD_LIBRARY_PATH": library}


def build(to: pathlib.Path) -> None:
    """The simulation, with counters. What other builds have left stays as it is."""
    wrapper = to.parent / "rustc"
    wrapper.write_text(
        '#!/bin/sh\nrustc="$1"; shift\n'
        # All crates: what is generic is compiled where it is used.
        'exec "$rustc" "$@" -Cinstrument-coverage\n'
    )
    wrapper.chmod(0o755)
    binary = TARGET / "debug/simulate"
    before = to.parent / "before"
    if binary.exists():
        shutil.copy2(binary, before)
    environment = {**os.environ, "CARGO_TARGET_DIR": str(TARGET), "RUSTC_WORKSPACE_WRAPPER": str(wrapper)}
    command = ["cargo", "build", "--locked", "-p", "tidegate-simulation", "--bin", "simulate"]
    subprocess.run(command, cwd=ROOT, env=environment, check=True)
    shutil.copy2(binary, to)
    if before.exists():
        os.replace(before, binary)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lines", help="a file whose lines are printed that no world has reached")
    arguments = parser.parse_args()
    bin, environment = tools()
    # Always the same folder: another wrapper would be another build.
    place = CACHE / "coverage"
    place.mkdir(parents=True, exist_ok=True)
    simulate, counters, profile = place / "simulate", place / "worlds.profraw", place / "worlds.profdata"
    build(simulate)
    run = [simulate, "--seed", str(arguments.seed), "--seconds", str(arguments.seconds)]
    subprocess.run(run, env={**os.environ, "LLVM_PROFILE_FILE": str(counters), "RUST_LOG": "off"}, check=True)
    subprocess.run([bin / "llvm-profdata", "merge", "-sparse", counters, "-o", profile], env=environment, check=True)
    if arguments.lines:
        show = [bin / "llvm-cov", "show", simulate, f"--instr-profile={profile}", str(ROOT / arguments.lines)]
        shown = subprocess.run(show, env=environment, check=True, capture_output=True, text=True).stdout
        lines = [line.split("|") for line in shown.split("\n")]
        print("\n".join("|".join(line) for line in lines if len(line) > 2 and line[1].strip() == "0"))
        return
    export = [bin / "llvm-cov", "export", "--summary-only", simulate, f"--instr-profile={profile}"]
    exported = subprocess.run(export, env=environment, check=True, capture_output=True, text=True).stdout
    sums: dict[str, list[int]] = {}
    rows = []
    for file in json.loads(exported)["data"][0]["files"]:
        name = file["filename"].removeprefix(f"{ROOT}/")
        if not name.startswith(("cdc/src/", "storage/src/")):
            continue
        lines = file["summary"]["lines"]
        rows.append((name, lines["covered"], lines["count"]))
        for part in [name.split("/")[0], "/".join(name.split("/")[:3]).removesuffix(".rs")]:
            total = sums.setdefault(part, [0, 0])
            total[0] += lines["covered"]
            total[1] += lines["count"]
    if not rows:
        sys.exit("coverage.py: no line of cdc or storage is in the binary")
    for name, covered, count in sorted(rows):
        print(f"{name:52} {covered:6} of {count:6} {100 * covered / max(count, 1):6.1f} %")
    print()
    for name, (covered, count) in sorted(sums.items()):
        print(f"{name:52} {covered:6} of {count:6} {100 * covered / max(count, 1):6.1f} %")


if __name__ == "__main__":
    main()
