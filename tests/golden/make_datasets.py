"""Writes the folders of tests/golden/datasets with Hugging Face `datasets` and pyarrow (pip install datasets).

    python3 tests/golden/make_datasets.py
"""
import os
import shutil

import datasets
import pyarrow as pa

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "datasets")

TEXT = ["first document", "", "größer — 第三", "a" * 300]
IDS = [[1, 2, 3], [], [65535], list(range(100))]


def write(name, table, **more):
    folder = os.path.join(HERE, name)
    shutil.rmtree(folder, ignore_errors=True)
    datasets.Dataset(table).save_to_disk(folder, **more)


def main():
    other = [{"a": [1.5, None], "b": i} for i in range(4)]
    write("text", pa.table({"meta": other, "text": TEXT, "score": pa.array([1, None, 3, 4], pa.int8())}))
    write("large_text", pa.table({"text": pa.array(TEXT, pa.large_string())}), num_shards=2)
    write("ids", pa.table({"text": TEXT, "input_ids": pa.array(IDS, pa.list_(pa.int32()))}))
    write("wide_ids", pa.table({"input_ids": pa.array(IDS, pa.large_list(pa.int64()))}))
    write("small_ids", pa.table({"input_ids": pa.array(IDS, pa.list_(pa.uint16()))}))
    # What TRL and Axolotl save: padded rows whose labels, or masks, say what is trained.
    ids, attention = [[7, 7, 5, 6], [1, 2, 3, 0], [8, 9]], [[0, 0, 1, 1], [1, 1, 1, 0], [1, 1]]
    write("labels", pa.table({"input_ids": ids, "attention_mask": attention,
                              "labels": [[-100, -100, -100, 6], [-100, 2, 3, -100], [8, 9]]}))
    write("masks", pa.table({"input_ids": pa.array(ids, pa.list_(pa.int32())),
                             "completion_mask": pa.array([[0, 0, 0, 1], [0, 1, 1, 0], [1, 1]], pa.list_(pa.int8())),
                             "attention_mask": pa.array(attention, pa.list_(pa.int8()))}))
    # The columns that are skipped: one of every kind whose buffers are counted.
    kinds = pa.table({
        "null": pa.nulls(4),
        "bool": [True, None, False, True],
        "binary": pa.array([b"a", None, b"", b"c"], pa.binary()),
        "fixed": pa.array([[1, 2], None, [3, 4], [5, 6]], pa.list_(pa.int16(), 2)),
        "bytes4": pa.array([b"abcd"] * 4, pa.binary(4)),
        "day": pa.array([1, 2, 3, None], pa.date32()),
        "time": pa.array([1, 2, 3, None], pa.timestamp("us")),
        "map": pa.array([[("k", 1)], [], None, [("x", 2)]], pa.map_(pa.string(), pa.int32())),
        "decimal": pa.array([1, 2, None, 4], pa.decimal128(9, 2)),
        "text": TEXT,
    })
    folder = os.path.join(HERE, "kinds")
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    for name, opener in (("stream", pa.ipc.new_stream), ("file", pa.ipc.new_file)):
        with pa.OSFile(os.path.join(folder, name + ".arrow"), "wb") as sink, opener(sink, kinds.schema) as writer:
            writer.write_table(kinds, max_chunksize=3)
    coded = pa.table({"tag": pa.array(["a", "b", "a", "a"]).dictionary_encode(), "text": TEXT})
    with pa.OSFile(os.path.join(folder, "dictionary.arrow"), "wb") as sink, pa.ipc.new_stream(sink, coded.schema) as writer:
        writer.write_table(coded)
    # What is refused.
    squeezed = pa.ipc.IpcWriteOptions(compression="lz4")
    refused = {
        "compressed": (pa.table({"text": TEXT}), squeezed),
        "null_rows": (pa.table({"text": ["a", None]}), None),
        "no_column": (pa.table({"words": TEXT}), None),
        "wrong_type": (pa.table({"text": [1, 2]}), None),
        "other_labels": (pa.table({"input_ids": [[1, 2]], "labels": [[-100, 3]]}), None),
        "short_labels": (pa.table({"input_ids": [[1, 2]], "labels": [[2]]}), None),
        "holes": (pa.table({"input_ids": [[1, 2, 3]], "attention_mask": [[1, 0, 1]]}), None),
        "class_labels": (pa.table({"input_ids": [[1, 2, 3]], "labels": [1]}), None),
        "negative": (pa.table({"input_ids": pa.array([[1, -1]], pa.list_(pa.int64()))}), None),
    }
    for name, (table, options) in refused.items():
        with pa.OSFile(os.path.join(folder, name + ".arrow"), "wb") as sink:
            with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
                writer.write_table(table)


if __name__ == "__main__":
    main()
