#!/usr/bin/env bash
# Makes a Python environment that holds nothing but a package which brings a program along, below the cache folder, and prints the program's path:
#   program.sh PACKAGE VERSION PROGRAM
set -euo pipefail

package=$1 version=$2 program=$3
cache="${TIDEGATE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tidegate}"
target="$cache/programs/$package"
stamp="$target/complete-$version"
if [ ! -e "$stamp" ]; then
  mkdir -p "$cache/programs"
  exec 9>"$target.lock"
  flock 9
  if [ ! -e "$stamp" ]; then
    rm -rf "$target"
    python3 -m venv "$target" >&2
    "$target/bin/pip" install --quiet --disable-pip-version-check "$package==$version" >&2
    test -x "$target/bin/$program"
    touch "$stamp"
  fi
fi
echo "$target/bin/$program"
