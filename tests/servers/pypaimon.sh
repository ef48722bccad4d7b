#!/usr/bin/env bash
# Makes a Python environment with pypaimon, the independent reader of the tables, below the cache folder and prints its interpreter's path.
set -euo pipefail

cache="${TIDEGATE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tidegate}"
version=2.1.0
target="$cache/venv"
stamp="$target/complete-$version"
if [ ! -e "$stamp" ]; then
  mkdir -p "$cache"
  exec 9>"$cache/venv.lock"
  flock 9
  if [ ! -e "$stamp" ]; then
    rm -rf "$target"
    python3 -m venv "$target" >&2
    "$target/bin/pip" install --quiet --disable-pip-version-check "pypaimon==$version" >&2
    "$target/bin/python" -c 'import pypaimon' >&2
    touch "$stamp"
  fi
fi
echo "$target/bin/python"
