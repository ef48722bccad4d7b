#!/usr/bin/env bash
# Adds moto, a server that speaks S3's protocol and keeps everything in memory, to the Python environment of pypaimon and prints the interpreter's
# path. Only what its S3 needs is installed: its own `server` extra brings the libraries of every other service along.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"

python="$(bash "$here/pypaimon.sh")"
target="$(dirname "$(dirname "$python")")"
version=5.2.5
stamp="$target/complete-moto-$version"
if [ ! -e "$stamp" ]; then
  exec 9>"$target.lock"
  flock 9
  if [ ! -e "$stamp" ]; then
    "$python" -m pip install --quiet --disable-pip-version-check "moto[s3]==$version" "flask==3.1.3" "flask-cors==6.0.5" >&2
    "$python" -c 'import moto.server' >&2
    touch "$stamp"
  fi
fi
echo "$python"
