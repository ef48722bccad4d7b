#!/usr/bin/env bash
# Installs all that the tests need beside Rust. Safe to run again: what is there is left as it is.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
bash "$here/debian.sh"
bash "$here/mysql.sh" >/dev/null
bash "$here/pypaimon.sh" >/dev/null
bash "$here/moto.sh" >/dev/null
bash "$here/java.sh" >/dev/null
bash "$here/rclone.sh" >/dev/null
