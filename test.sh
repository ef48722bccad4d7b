#!/usr/bin/env bash
# Runs the tests and installs what they need.
#
#   ./test.sh           the fast tier: formatting, lints, licences, unit tests, end-to-end tests on MariaDB and MySQL
#   ./test.sh --all     the long ones too: fifty kills, long loads, ten minutes of simulation, planted faults
#   ./test.sh NAME      only the tests whose names contain NAME, without the checks
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

all= filter=()
for argument in "$@"; do
  case "$argument" in
    --all) all=yes ;;
    -h | --help)
      sed -n '2,6s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
      exit 0
      ;;
    *) filter+=("$argument") ;;
  esac
done

# A target directory that all checkouts share: DataFusion is compiled once.
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/tidegate/target}"
export CARGO_TERM_COLOR="${CARGO_TERM_COLOR:-auto}"

step() { printf '\n== %s (%s s)\n' "$1" "$SECONDS"; }

step "what the tests need"
bash tests/servers/install.sh

if [ "${#filter[@]}" -eq 0 ]; then
  step "formatting"
  cargo fmt --all --check
  step "lints"
  cargo clippy --locked --workspace --all-targets -- -D warnings
  step "licences and sources of the dependencies"
  python3 tests/licences.py
  step "faults that can be planted"
  python3 tests/simulation/planted.py --check
fi

step "build"
cargo build --locked --workspace --all-targets
# The binary under test stays what it is, whatever another checkout builds meanwhile.
binaries="$(mktemp -d)"
trap 'rm -rf "$binaries"' EXIT
cp "$CARGO_TARGET_DIR/debug/tidegate" "$binaries/tidegate"
export TIDEGATE_BINARY="$binaries/tidegate"

if [ "${#filter[@]}" -eq 0 ]; then
  step "a hundred worlds, whose digest is the same on every machine"
  worlds="$(RUST_LOG=off "$CARGO_TARGET_DIR/debug/simulate" --seed 1 --seeds 100)" || { echo "$worlds"; exit 1; }
  echo "$worlds"
  if [ "${worlds##*digest }" != "$(cat tests/simulation/worlds.digest)" ]; then
    echo "These are not the worlds of tests/simulation/worlds.digest. Most changes of cdc/ and storage/ alter what happens in"
    echo "them, and then the new digest belongs there. Without such a change they depend on something but their seeds."
    exit 1
  fi
fi

options=()
if [ -n "$all" ]; then
  options+=(--include-ignored)
  export TIDEGATE_TEST_KILLS="${TIDEGATE_TEST_KILLS:-50}"
fi

step "tests"
cargo test --locked --workspace "${filter[@]}" -- "${options[@]}"

if [ -n "$all" ] && [ "${#filter[@]}" -eq 0 ]; then
  step "ten minutes of other worlds"
  RUST_LOG=off "$CARGO_TARGET_DIR/debug/simulate" --seed "$(date +%s)000000" --seconds "${TIDEGATE_TEST_WORLDS:-600}"
  step "planted faults"
  python3 tests/simulation/planted.py
fi
step "done"
