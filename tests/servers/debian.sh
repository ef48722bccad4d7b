#!/usr/bin/env bash
# Installs what Debian itself carries: the MariaDB server, the psql client, Python's environments and Java. Starts no service.
set -euo pipefail

missing=()
[ -x /usr/sbin/mariadbd ] || missing+=(mariadb-server)
command -v psql >/dev/null || missing+=(postgresql-client)
python3 -c 'import venv, ensurepip' 2>/dev/null || missing+=(python3-venv)
command -v cc >/dev/null || missing+=(gcc libc6-dev)
command -v javac >/dev/null || missing+=(default-jdk-headless)
command -v mvn >/dev/null || missing+=(maven)
[ "${#missing[@]}" -eq 0 ] && exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  as_root=(sudo)
fi
export DEBIAN_FRONTEND=noninteractive
# A package that brings a service must not start it: the servers under test have folders and ports of their own.
policy=/usr/sbin/policy-rc.d
made_policy=
if [ ! -e "$policy" ]; then
  printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
  "${as_root[@]}" chmod +x "$policy"
  made_policy=yes
fi
remove_policy() { [ -z "$made_policy" ] || "${as_root[@]}" rm -f "$policy"; }
trap remove_policy EXIT
if ! "${as_root[@]}" apt-get -q -y --no-install-recommends install "${missing[@]}"; then
  "${as_root[@]}" apt-get -q update
  "${as_root[@]}" apt-get -q -y --no-install-recommends install "${missing[@]}"
fi
