#!/usr/bin/env python3
"""Writes tests/golden/rows.parquet with pyarrow: row groups, a dictionary, nulls, nested columns, two codecs.

  build/hf-venv/bin/python tests/golden/make_parquet.py
"""
import pathlib

import pyarrow as pa
import pyarrow.parquet as pq

N = 700  # more than the reader's batches and row groups
rows = pa.table({
    "title": pa.array([f"title {i % 5}" for i in range(N)]).dictionary_encode(),
    "body": pa.array([None if i % 100 == 99 else f"body \u00e9 {i}" for i in range(N)]),
    "score": pa.array([i / 8 for i in range(N)], pa.float32()),
    "year": pa.array([2000 + i for i in range(N)], pa.int32()),
    "meta": pa.array([{"id": i, "tags": [f"t{i}", "x"]} for i in range(N)]),
})
pq.write_table(rows, pathlib.Path(__file__).with_name("rows.parquet"), row_group_size=300,
               compression={"title": "snappy", "body": "zstd", "score": "gzip", "year": "none"})
