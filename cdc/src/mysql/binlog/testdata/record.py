#!/usr/bin/env python3
"""Records what the tests of the binlog decoder read: a server's binlog of some statements, and what the server itself says about the tables.

    record.py OUT DATADIR CLIENT-ARGUMENT... -- FILE.sql...

Writes OUT.binlog.zst, the log of the statements, and OUT.tables.zst: for each table a line `table NAME`, a line `column NAME TYPE CHARSET
COLLATION KEY` per column and a line `row VALUE...` per row. Fields are separated by tabs; names, types and values are in hexadecimal, `-` is NULL.
"""
import os, subprocess, sys

out, datadir = sys.argv[1:3]
split = sys.argv.index("--")
client, files = sys.argv[3:split], sys.argv[split + 1:]
FLUSH = "FLUSH BINARY LOGS"


def run(sql):
    command = ["mariadb", "--no-defaults", "--batch", "--skip-column-names", "--default-character-set=utf8mb4", *client]
    done = subprocess.run(command, input=sql.encode(), stdout=subprocess.PIPE, check=True)
    return [line.split("\t") for line in done.stdout.decode().splitlines()]


def form(name, column_type):
    kind = column_type.split("(")[0].split(" ")[0]
    c = "`" + name + "`"
    if kind.endswith("int") or kind == "year":
        return f"{c} + 0"
    if kind == "float":
        return f"{c} + 0e0"
    if kind == "bit":
        bits = int(column_type[4:-1])
        return f"{c} + 0" if bits == 1 else f"LPAD(HEX({c} + 0), {(bits + 7) // 8 * 2}, '0')"
    if kind.endswith("binary") or kind.endswith("blob"):
        return f"HEX({c})"
    if kind in ("datetime", "timestamp"):
        return f"CAST({c} AS DATETIME(6))"
    return c


run(FLUSH)
log = run("SHOW BINARY LOGS")[-1][0]
for file in files:
    run(open(file).read())
run(FLUSH)
with open(out + ".binlog", "wb") as f:
    f.write(open(os.path.join(datadir, log), "rb").read())

with open(out + ".tables", "w") as f:
    for (table,) in run("SELECT table_name FROM information_schema.tables WHERE table_schema = 'tg' ORDER BY 1"):
        columns = run(f"""SELECT HEX(column_name), HEX(column_type), IFNULL(character_set_name, '-'), IFNULL(collation_name, '-'),
            IF(column_key = 'PRI', 'key', '-'), column_name, column_type FROM information_schema.columns
            WHERE table_schema = 'tg' AND table_name = '{table}' ORDER BY ordinal_position""")
        f.write(f"table\t{table}\n")
        for column in columns:
            f.write("column\t" + "\t".join(column[:5]) + "\n")
        # The client writes one backslash as two; types are hexadecimal above for that reason.
        values = [form(c[5], c[6].replace("\\\\", "\\")) for c in columns]
        values = ", ".join(f"IFNULL(HEX(CONVERT(CONCAT({v}) USING utf8mb4)), '-')" for v in values)
        for row in run(f"SET time_zone = '+00:00'; SELECT {values} FROM tg.`{table}`"):
            f.write("row\t" + "\t".join(row) + "\n")
for end in (".binlog", ".tables"):
    subprocess.run(["zstd", "-q", "-19", "-f", "--rm", out + end], check=True)
