#!/usr/bin/env bash
# Runs a MariaDB or MySQL server in a folder of its own, in the foreground and under this process's id.
#
#   run.sh mariadb|mysql FOLDER PORT [server option ...]
#
# The first start in a folder copies an initialised data directory, which is made once and kept in the cache folder. The settings are those a
# server needs to be captured; options that follow override them. It listens on 127.0.0.1 alone. Users: `tester` (password `tester`, all rights) and
# `cdc` (password `cdc-secret`, the rights that capture needs).
set -euo pipefail

here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
cache="${TIDEGATE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tidegate}"
kind="$1" folder="$2" port="$3"
shift 3
user=()
if [ "$(id -u)" -eq 0 ]; then
  user=(--user=root)
fi
case "$kind" in
  mariadb)
    version="$(mariadbd --version | tr -cs 'A-Za-z0-9.\n' '-')"
    ;;
  mysql)
    home="$(bash "$here/mysql.sh")"
    version="$("$home/mysqld" --no-defaults --version | sed 's/.*Ver //' | tr -cs 'A-Za-z0-9.\n' '-')"
    ;;
  *)
    echo "unknown kind of server: $kind" >&2
    exit 2
    ;;
esac
# The last part is the version of this script's own choices.
template="$cache/templates/$kind-${version%-}-1"

users="
CREATE USER 'tester'@'%' IDENTIFIED BY 'tester';
GRANT ALL PRIVILEGES ON *.* TO 'tester'@'%' WITH GRANT OPTION;
CREATE USER 'cdc'@'%' IDENTIFIED BY 'cdc-secret';
GRANT SELECT, RELOAD, SHOW DATABASES, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO 'cdc'@'%';
"

make_template() {
  local partial="$template.partial"
  rm -rf "$partial" "$template.tmp"
  mkdir -p "$template.tmp"
  case "$kind" in
    mariadb)
      mariadb-install-db --no-defaults --datadir="$partial" --auth-root-authentication-method=normal --skip-test-db \
        --tmpdir="$template.tmp" --innodb-log-file-size=32M "${user[@]}" >"$template.log" 2>&1
      printf 'FLUSH PRIVILEGES;\n%s' "$users" |
        mariadbd --no-defaults --bootstrap --datadir="$partial" --tmpdir="$template.tmp" --innodb-log-file-size=32M "${user[@]}" >>"$template.log" 2>&1
      ;;
    mysql)
      printf '%s' "$users" >"$template.sql"
      "$home/mysqld" --no-defaults --basedir="$home/root/usr" --datadir="$partial" --initialize-insecure --init-file="$template.sql" \
        --tmpdir="$template.tmp" --innodb-redo-log-capacity=64M --log-error="$template.log" "${user[@]}" >&2
      # Each copy is a server of its own, with its own identity.
      rm -f "$partial/auto.cnf"
      ;;
  esac
  rm -rf "$template.tmp"
  mv "$partial" "$template"
}

if [ ! -e "$folder/data" ]; then
  mkdir -p "$folder" "$cache/templates"
  if [ ! -e "$template" ]; then
    exec 9>"$template.lock"
    flock 9
    [ -e "$template" ] || make_template
    exec 9>&-
  fi
  rm -rf "$folder/data.partial"
  cp -a --reflink=auto "$template" "$folder/data.partial"
  mv "$folder/data.partial" "$folder/data"
fi
# A starting MariaDB deletes the temporary tables that it finds, so each server needs a place of its own for them.
mkdir -p "$folder/tmp"

common=(
  --no-defaults
  --datadir="$folder/data" --tmpdir="$folder/tmp" --socket="$folder/socket" --pid-file="$folder/pid" --log-error="$folder/server.log"
  --bind-address=127.0.0.1 --port="$port" --server-id=1 --log-bin=binlog
  --binlog-format=ROW --binlog-row-image=FULL --binlog-row-metadata=FULL
  # Throw-away servers: speed before durability of the machine.
  --sync-binlog=0 --innodb-flush-log-at-trx-commit=2 --innodb-doublewrite=OFF --innodb-buffer-pool-size=256M
  "${user[@]}"
)
case "$kind" in
  mariadb)
    exec mariadbd "${common[@]}" --gtid-strict-mode=ON --innodb-log-file-size=32M "$@"
    ;;
  mysql)
    exec "$home/mysqld" "${common[@]}" --basedir="$home/root/usr" --gtid-mode=ON --enforce-gtid-consistency=ON --mysqlx=OFF --secure-file-priv= \
      --innodb-redo-log-capacity=64M "$@"
    ;;
esac
