#!/usr/bin/env python3
"""Reads tables with pypaimon, which shares no code with Tidegate.

Standard input: a JSON list of {"path": table folder, "columns": [name, ...]}. Standard output: a JSON list of tables in the same order, each a list of
rows, each value in PostgreSQL's text form or null.
"""

import datetime
import decimal
import json
import sys

from pypaimon.table.file_store_table import FileStoreTable


def text(value):
    if value is None:
        return None
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if isinstance(value, datetime.datetime):
        zone = "+00" if value.tzinfo is not None else ""
        return value.strftime(f"{value.year:04}-%m-%d %H:%M:%S.%f") + zone
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, float):
        return repr(value)
    return str(value)


def read(path, columns):
    table = FileStoreTable.from_path(path)
    builder = table.new_read_builder().with_projection(columns)
    splits = builder.new_scan().plan().splits()
    arrow = builder.new_read().to_arrow(splits)
    if arrow is None or not splits:
        return []
    return [[text(value) for value in row] for row in zip(*(arrow[name].to_pylist() for name in columns))]


json.dump([read(table["path"], table["columns"]) for table in json.load(sys.stdin)], sys.stdout)
