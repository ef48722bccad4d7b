#!/usr/bin/env python3
"""usage: read.py WAREHOUSE TABLE SNAPSHOTS [COLUMN=VALUE ...]

Reads snapshots 1 to SNAPSHOTS of a table with pypaimon and prints each as one line of JSON: its columns and its rows, every
value as text. With COLUMN=VALUE, one more line: the newest snapshot's rows that meet all of them.
"""
import datetime
import decimal
import json
import struct
import sys

import pyarrow as pa
from pypaimon import CatalogFactory


def text(kind, value):
    if value is None:
        return None
    if pa.types.is_boolean(kind):
        return 'true' if value else 'false'
    if pa.types.is_float32(kind):
        return struct.pack('>f', value).hex()
    if pa.types.is_float64(kind):
        return struct.pack('>d', value).hex()
    if pa.types.is_decimal(kind):
        sign, digits, exponent = value.as_tuple()
        assert exponent == -kind.scale, value
        return '-' * (sign and any(digits)) + str(int(''.join(map(str, digits))))
    if isinstance(value, bytes):
        return value.hex()
    if pa.types.is_date(kind):
        return str((value - datetime.date(1970, 1, 1)).days)
    return str(value)


def lines(table):
    columns = []
    for name in table.schema.names:
        column = table[name]
        if pa.types.is_timestamp(column.type):
            assert column.type.unit == 'us', column.type
            column = column.cast(pa.int64())
        columns.append([text(column.type, value) for value in column.to_pylist()])
    return {'columns': table.schema.names, 'rows': list(map(list, zip(*columns)))}


warehouse, name, snapshots, *filters = sys.argv[1:]
table = CatalogFactory.create({'warehouse': warehouse}).get_table(name)


def read(table, predicate=None):
    builder = table.new_read_builder()
    if predicate:
        builder = builder.with_filter(predicate(builder.new_predicate_builder()))
    return builder.new_read().to_arrow(builder.new_scan().plan().splits())


for snapshot in range(1, int(snapshots) + 1):
    print(json.dumps(lines(read(table.copy({'scan.snapshot-id': str(snapshot)})))))
if filters:
    def value(text):
        return decimal.Decimal(text) if text.lstrip('-').isdigit() else text
    pairs = [pair.split('=', 1) for pair in filters]
    print(json.dumps(lines(read(table, lambda b: b.and_predicates([b.equal(c, value(v)) for c, v in pairs])))))
