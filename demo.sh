#!/usr/bin/env bash
# Shows Tidegate at its main job: a shop's database of a million rows, mirrored and queried while the shop goes on selling.
#
#   ./demo.sh          installs MariaDB and psql where they are missing, starts a MariaDB of its own, fills it, keeps writing to it,
#                      builds and starts Tidegate, mirrors the shop, and shows queries beside MariaDB's own answers
#   ./demo.sh stop     ends all that it started
#
# Everything lives in one folder (TIDEGATE_DEMO, else ~/.cache/tidegate/demo), the ports are TIDEGATE_DEMO_PORT (6875) and
# TIDEGATE_DEMO_MARIADB_PORT (3307). Nothing else on the machine is touched.
set -euo pipefail
root="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
demo="${TIDEGATE_DEMO:-${XDG_CACHE_HOME:-$HOME/.cache}/tidegate/demo}"
port="${TIDEGATE_DEMO_PORT:-6875}"
mariadb_port="${TIDEGATE_DEMO_MARIADB_PORT:-3307}"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/tidegate/target}"

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
maria() { mariadb --no-defaults -h 127.0.0.1 -P "$mariadb_port" -u tester -ptester -N -B "$@"; }
gate() { psql -X -q -h 127.0.0.1 -p "$port" -U tidegate -d tidegate -v ON_ERROR_STOP=1 "$@"; }

# Ends a process that this demo started, recognised by its number and by its command line.
end_process() {
  local file="$demo/$1.pid" pid
  [ -e "$file" ] || return 0
  pid="$(cat "$file")"
  if [ -r "/proc/$pid/cmdline" ] && tr '\0' ' ' <"/proc/$pid/cmdline" | grep -q -F -e "$demo" -e "demo.sh"; then
    kill "$pid" 2>/dev/null || true
    for _ in $(seq 100); do
      [ -e "/proc/$pid" ] || break
      sleep 0.1
    done
    kill -9 "$pid" 2>/dev/null || true
  fi
  rm -f "$file"
}

stop_all() {
  end_process writer
  end_process tidegate
  end_process mariadb
}

# The shop's customers: a short burst of statements again and again, until the database is gone.
write_for_ever() {
  while true; do
    if [ -e "$demo/pause" ]; then
      touch "$demo/paused"
      sleep 0.05
      continue
    fi
    maria -e "CALL shop.sell_for_a_moment()" 2>/dev/null || exit 0
  done
}

pause_writer() {
  rm -f "$demo/paused"
  touch "$demo/pause"
  until [ -e "$demo/paused" ]; do sleep 0.02; done
}

await() {
  local what="$1" log="$2"
  shift 2
  for _ in $(seq 600); do
    "$@" >/dev/null 2>&1 && return 0
    sleep 0.1
  done
  echo "$what does not answer; its log is $log" >&2
  exit 1
}

case "${1:-start}" in
  stop)
    stop_all
    echo "stopped; the data is in $demo"
    exit 0
    ;;
  write)
    write_for_ever
    ;;
  start) ;;
  *)
    sed -n '2,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
    exit 2
    ;;
esac

command -v cargo >/dev/null || {
  echo "Rust is needed: install rustup, then run this again" >&2
  exit 1
}
say "Installing what is missing (MariaDB, psql)"
bash "$root/tests/servers/debian.sh"

stop_all
rm -rf "$demo"
mkdir -p "$demo"
for busy in "$port" "$mariadb_port"; do
  if (exec 3<>"/dev/tcp/127.0.0.1/$busy") 2>/dev/null; then
    echo "port $busy is taken: set TIDEGATE_DEMO_PORT or TIDEGATE_DEMO_MARIADB_PORT" >&2
    exit 1
  fi
done

say "Building Tidegate (the first time takes a while: it compiles DataFusion)"
(cd "$root" && cargo build --locked -p tidegate)
cp "$CARGO_TARGET_DIR/debug/tidegate" "$demo/tidegate"

say "Starting a MariaDB of its own on port $mariadb_port"
setsid nohup bash "$root/tests/servers/run.sh" mariadb "$demo/mariadb" "$mariadb_port" >"$demo/mariadb.log" 2>&1 </dev/null &
echo $! >"$demo/mariadb.pid"
await MariaDB "$demo/mariadb.log" maria -e "SELECT 1"

say "Filling the shop: 1,000 products, 99,000 customers, 900,000 orders"
maria <<'SQL'
CREATE DATABASE shop CHARACTER SET utf8mb4;
USE shop;
CREATE TABLE products (id INT PRIMARY KEY, name VARCHAR(60) NOT NULL, price DECIMAL(8,2) NOT NULL, stock INT NOT NULL);
CREATE TABLE customers (id INT AUTO_INCREMENT PRIMARY KEY, name VARCHAR(60) NOT NULL, city VARCHAR(30) NOT NULL, since DATE NOT NULL);
CREATE TABLE orders (
  id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, customer_id INT NOT NULL, product_id INT NOT NULL, quantity INT NOT NULL,
  amount DECIMAL(10,2) NOT NULL, status ENUM('new', 'paid', 'shipped', 'returned') NOT NULL, created_at TIMESTAMP(3) NOT NULL
);
INSERT INTO products SELECT seq, CONCAT('product ', seq), 1 + (seq * 37 % 20000) / 100, 1000000 FROM seq_1_to_1000;
INSERT INTO customers SELECT seq, CONCAT('customer ', seq), ELT(1 + seq % 7, 'Oslo', 'Porto', 'Lyon', 'Graz', 'Gdańsk', 'Malmö', 'Cork'),
  '2015-01-01' + INTERVAL seq % 3600 DAY FROM seq_1_to_99000;
INSERT INTO orders SELECT seq, 1 + seq * 7919 % 99000, 1 + seq * 104729 % 1000, 1 + seq % 5, (1 + seq % 5) * (1 + (seq * 37 % 20000) / 100),
  ELT(1 + seq % 10, 'new', 'paid', 'paid', 'shipped', 'shipped', 'shipped', 'shipped', 'shipped', 'shipped', 'returned'),
  '2024-01-01' + INTERVAL seq * 60 SECOND FROM seq_1_to_900000;
DELIMITER $$
CREATE PROCEDURE sell_for_a_moment()
BEGIN
  DECLARE n INT DEFAULT 0;
  WHILE n < 40 DO
    START TRANSACTION;
    SET @product = 1 + FLOOR(RAND() * 1000), @quantity = 1 + FLOOR(RAND() * 5);
    INSERT INTO orders (customer_id, product_id, quantity, amount, status, created_at)
      SELECT 1 + FLOOR(RAND() * 99000), id, @quantity, @quantity * price, 'new', NOW(3) FROM products WHERE id = @product;
    UPDATE products SET stock = stock - @quantity WHERE id = @product;
    COMMIT;
    UPDATE orders SET status = 'paid' WHERE id = LAST_INSERT_ID() - 50 AND status = 'new';
    UPDATE orders SET status = 'shipped' WHERE id = LAST_INSERT_ID() - 200 AND status = 'paid';
    IF n % 10 = 0 THEN
      DELETE FROM orders WHERE id = 1 + FLOOR(RAND() * 900000) AND status = 'returned';
    END IF;
    DO SLEEP(0.01);
    SET n = n + 1;
  END WHILE;
END $$
SQL
maria -e "SELECT 1 FROM shop.orders LIMIT 1" >/dev/null

say "The shop opens: something keeps writing to it from now on"
setsid nohup bash "$root/demo.sh" write >/dev/null 2>&1 </dev/null &
echo $! >"$demo/writer.pid"

say "Starting Tidegate on port $port"
setsid nohup "$demo/tidegate" serve --store "$demo/store" --listen "127.0.0.1:$port" >"$demo/tidegate.log" 2>&1 </dev/null &
echo $! >"$demo/tidegate.pid"
await Tidegate "$demo/tidegate.log" gate -c "SELECT 1"

source="CREATE SOURCE shop WITH (
  connector = 'mysql-cdc', hostname = '127.0.0.1', port = $mariadb_port, username = 'cdc', password = SECRET shop_password,
  tables = 'shop.*'
)"
say "Declaring the source through psql"
echo "$source;"
gate -c "CREATE SECRET shop_password AS 'cdc-secret'" -c "$source"
started="$(date +%s.%N)"
gate -c "WAIT FOR SOURCE shop SNAPSHOT TIMEOUT '10 minutes'"
awk -v from="$started" -v to="$(date +%s.%N)" 'BEGIN { printf "The snapshot is complete after %.1f s.\n", to - from }'

say "From one second to the next: Tidegate's answer, and MariaDB's own a moment later"
question="SELECT count(*), sum(amount), sum(CASE WHEN status = 'new' THEN 1 ELSE 0 END) FROM shop.orders"
echo "$question"
printf '%10s   %-36s %-36s\n' time "Tidegate" "MariaDB"
for _ in $(seq 8); do
  printf '%10s   %-36s %-36s\n' "$(date +%H:%M:%S)" "$(gate -A -t -F ' ' -c "$question")" "$(maria -e "$question" | tr '\t' ' ')"
  sleep 1
done

say "The writer holds its breath for a moment: both must say the same"
pause_writer
gate -c "WAIT FOR SOURCE shop CURRENT TIMEOUT '1 minute'"
same=yes
compare() {
  local ours theirs
  ours="$(gate -A -t -F ' ' -c "$1")"
  theirs="$(maria -e "$1" | tr '\t' ' ')"
  echo "$1"
  if [ "$ours" = "$theirs" ]; then
    printf '%s\n  = the same in MariaDB\n' "$ours" | sed 's/^/  /'
  else
    printf 'Tidegate:\n%s\nMariaDB:\n%s\n' "$ours" "$theirs"
    same=no
  fi
}
compare "$question"
compare "SELECT c.city, count(*), sum(o.amount) FROM shop.orders o JOIN shop.customers c ON c.id = o.customer_id GROUP BY c.city ORDER BY 3 DESC LIMIT 3"
compare "SELECT sum(stock), min(stock) FROM shop.products"
rm -f "$demo/pause"

say "It goes on running"
cat <<END
  connect     psql -h 127.0.0.1 -p $port -U tidegate -d tidegate
  try         SELECT status, count(*), sum(amount) FROM shop.orders GROUP BY status;
              SHOW JOBS;    SELECT * FROM sys.checkpoints ORDER BY checkpoint DESC LIMIT 5;
  MariaDB     mariadb -h 127.0.0.1 -P $mariadb_port -u tester -ptester shop
  stop        ./demo.sh stop
END
[ "$same" = yes ]
