#!/usr/bin/env python3
"""pypaimon at the service of tests: takes one request a line, as JSON, and answers each with a line of JSON, so that one
interpreter serves many. The answer to a request that fails is {"error": ...}.

{"table": folder, "snapshot": number, "tag": name, "filter": [[column, operator, value], ...]} asks for the rows of a table, at its
newest snapshot if neither snapshot nor tag is said, and for those that meet all of the filter if there is one. Values are text that
says every bit: numbers in decimal, floating-point numbers and bytes in hex, decimals without their point, dates in days and
timestamps in microseconds since 1970.
"""
import datetime
import decimal
import json
import struct
import sys
import traceback

import pyarrow as pa
from pypaimon.table.file_store_table import FileStoreTable

# Precise enough for every decimal there is.
decimal.getcontext().prec = 80
EPOCH = datetime.datetime(1970, 1, 1)


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
    return str(value)


def value(field, text):
    """The Python value that pypaimon wants of a column in a filter."""
    kind = str(field.type).split(' NOT NULL')[0]
    name = kind.split('(')[0].split(' ')[0]
    if name == 'BOOLEAN':
        return text == 'true'
    if name in ('TINYINT', 'SMALLINT', 'INT', 'BIGINT'):
        return int(text)
    if name == 'FLOAT':
        return struct.unpack('>f', bytes.fromhex(text))[0]
    if name == 'DOUBLE':
        return struct.unpack('>d', bytes.fromhex(text))[0]
    if name == 'DECIMAL':
        return decimal.Decimal(text).scaleb(-int(kind.rstrip(')').split(',')[1]))
    if name in ('BINARY', 'VARBINARY', 'BYTES'):
        return bytes.fromhex(text)
    if name == 'DATE':
        return (EPOCH + datetime.timedelta(days=int(text))).date()
    if name == 'TIMESTAMP':
        at = EPOCH + datetime.timedelta(microseconds=int(text))
        return at.replace(tzinfo=datetime.timezone.utc) if 'LOCAL' in kind else at
    return text


OPERATORS = {'=': 'equal', '>=': 'greater_or_equal', '<': 'less_than'}


def read(request):
    table = FileStoreTable.from_path(request['table'])
    if 'snapshot' in request:
        table = table.copy({'scan.snapshot-id': str(request['snapshot'])})
    if 'tag' in request:
        table = table.copy({'scan.tag-name': request['tag']})
    builder = table.new_read_builder()
    if 'filter' in request:
        fields = {field.name: field for field in table.fields}
        filters = builder.new_predicate_builder()
        parts = [getattr(filters, OPERATORS[op])(name, value(fields[name], text)) for name, op, text in request['filter']]
        builder = builder.with_filter(filters.and_predicates(parts))
    rows = builder.new_read().to_arrow(builder.new_scan().plan().splits())
    names = [field.name for field in table.fields]
    assert rows is None or rows.schema.names == names, rows.schema.names
    columns = []
    for name in names if rows is not None else []:
        column = rows[name]
        if pa.types.is_timestamp(column.type):
            assert column.type.unit == 'us', column.type
            column = column.cast(pa.int64())
        if pa.types.is_date(column.type):
            column = column.cast(pa.int32())
        columns.append([text(column.type, value) for value in column.to_pylist()])
    return {'columns': names, 'rows': list(map(list, zip(*columns)))}


# Whatever a library prints must not be taken for an answer.
answers, sys.stdout = sys.stdout, sys.stderr
for line in sys.stdin:
    try:
        answer = read(json.loads(line))
    except Exception:
        answer = {'error': traceback.format_exc()}
    print(json.dumps(answer), file=answers, flush=True)
