"""What decoding costs, in memory: CPU ns per cell and per row of a log of 12 columns, compiled, pure, and the driver's.

Each reader takes its turn in each round; a ratio is the median of the ratios to the compiled reader within the rounds.
The driver's is its compiled parser of pages. Arrow columns are made of cells where they lie, or of ``bytes``.
"""

from __future__ import annotations

import argparse
import random
import struct
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
from cassandra import cqltypes
from cassandra.bytesio import BytesIOReader
from cassandra.deserializers import make_deserializers
from cassandra.obj_parser import ListParser
from cassandra.parsing import ParseDesc

from rscylla.types import Type, arrow, parse_type, registry
from rscylla.types import compiled as fast

Cells = list[bytes | None]

COLUMNS = {
    "cdc$stream_id": "blob",
    "cdc$time": "timeuuid",
    "cdc$batch_seq_no": "int",
    "cdc$deleted_elements_s": "set<text>",
    "cdc$deleted_v": "boolean",
    "cdc$end_of_batch": "boolean",
    "cdc$operation": "tinyint",
    "cdc$ttl": "bigint",
    "ck": "int",
    "pk": "int",
    "s": "set<text>",
    "v": "text",
}

ALSO = [
    "timestamp",
    "double",
    "date",
    "uuid",
    "decimal",
    "duration",
    "list<int>",
    "map<text, int>",
    "vector<float, 100>",
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=11)
    args = parser.parse_args()
    dice = random.Random(1)
    rows = [log_row(dice, i) for i in range(args.rows)]
    types = [parse_type(text) for text in COLUMNS.values()]
    print(f"{'':26}{'as Python values':>34}{'as Arrow':>40}")
    print(f"{'ns a cell':26}{'compiled':>10}{'pure/':>8}{'driver/':>9}{'compiled':>14}{'of bytes':>10}{'pure/':>8}")
    for name, type_ in zip(COLUMNS, types, strict=True):
        column = [row[list(COLUMNS).index(name)] for row in rows]
        report(f"{name} {type_}", [type_], [[cell] for cell in column], args.rounds)
    for text in ALSO:
        type_ = parse_type(text)
        report(text, [type_], [[value(dice, type_)] for _ in range(args.rows)], args.rounds)
    print()
    report("ns a row of 12 columns", types, rows, args.rounds)


def report(title: str, types: list[Type], rows: list[Cells], rounds: int) -> None:
    """Print one line: ns a row, and the ratios to the compiled reader."""
    parts = [b"".join(map(sized, row)) for row in rows]
    body = struct.pack(">i", len(parts)) + b"".join(parts)
    columns = list(zip(*rows, strict=True))
    cells = [fast.CellList(column) for column in columns]
    # A page is the bytes of a list of its rows, and a row those of a tuple of its columns.
    if len(types) == 1:
        read_type, page = Type("list", tuple(types)), [body]
    else:
        read_type, page = Type("tuple", tuple(types)), parts
    compiled_read, pure_read = (
        registry._decoder(read_type, fast.native_decoder, fast.container_decoder),
        registry._made(read_type, "decode"),
    )
    with chosen(fast.ArrowBuilder):
        compiled_build = [arrow.builder_for(t) for t in types]
    with chosen(None):
        pure_build = [arrow.builder_for(t) for t in types]
    driver = driver_reader(types)
    readers: dict[str, Callable[[], Any]] = {
        "compiled": lambda: [compiled_read(part) for part in page],
        "pure": lambda: [pure_read(part) for part in page],
        "driver": lambda: driver(body),
        "arrow": lambda: built(compiled_build, cells),
        "arrow of bytes": lambda: built(compiled_build, columns),
        "arrow pure": lambda: built(pure_build, columns),
    }
    spent: dict[str, list[float]] = {name: [] for name in readers}
    turns = list(readers.items())
    for _ in range(rounds):
        for name, read in turns:
            begin = time.process_time()
            read()
            spent[name].append((time.process_time() - begin) / len(rows) * 1e9)
        turns = turns[1:] + turns[:1]  # what comes after another finds other memory in the caches

    def ratio(of: str, to: str) -> float:
        return median(a / b for a, b in zip(spent[of], spent[to], strict=True))

    print(
        f"{title:26}{median(spent['compiled']):10.0f}{ratio('pure', 'compiled'):8.1f}{ratio('driver', 'compiled'):9.1f}"
        f"{median(spent['arrow']):14.0f}{median(spent['arrow of bytes']):10.0f}{ratio('arrow pure', 'arrow'):8.1f}"
    )


@contextmanager
def chosen(builder: Any) -> Iterator[None]:
    """Have ``builder_for`` take the compiled builder, or its twins in Python (None)."""
    kept, arrow._compiled_builder = arrow._compiled_builder, builder
    try:
        yield
    finally:
        arrow._compiled_builder = kept


def built(builders: Sequence[Callable[[Any], Any]], columns: Sequence[Any]) -> Any:
    return pa.RecordBatch.from_arrays(
        [build(column) for build, column in zip(builders, columns, strict=True)],
        [str(i) for i in range(len(builders))],
    )


def driver_reader(types: list[Type]) -> Callable[[bytes], Any]:
    """Return the driver's own compiled parser of a page."""
    theirs = [cqltypes.lookup_casstype(driver_name(t)) for t in types]
    names = [f"c{i}" for i in range(len(types))]
    parse = ParseDesc(names, theirs, None, [None] * len(types), make_deserializers(theirs), 4)
    return lambda body: ListParser().parse_rows(BytesIOReader(body), parse)


def driver_name(type_: Type) -> str:
    names = {"text": "UTF8Type", "blob": "BytesType", "int": "Int32Type", "tinyint": "ByteType", "bigint": "LongType"}
    names |= {"uuid": "UUIDType", "timeuuid": "TimeUUIDType", "timestamp": "DateType", "date": "SimpleDateType"}
    names |= {"list": "ListType", "set": "SetType", "map": "MapType", "vector": "VectorType"}
    name = names.get(type_.kind, type_.kind.capitalize() + "Type")
    args = [driver_name(t) for t in type_.args] + ([str(type_.size)] if type_.size else [])
    return f"{name}({', '.join(args)})" if args else name


def sized(cell: bytes | None) -> bytes:
    return struct.pack(">i", -1) if cell is None else struct.pack(">i", len(cell)) + cell


def texts(*words: bytes) -> bytes:
    return struct.pack(">i", len(words)) + b"".join(map(sized, words))


def log_row(dice: random.Random, i: int) -> Cells:
    return [
        dice.randbytes(16),
        uuid.UUID(int=(dice.getrandbits(128) & ~(0xF << 76)) | 1 << 76).bytes,
        bytes(4),
        texts(b"gone") if dice.random() < 0.1 else None,
        b"\x01" if dice.random() < 0.02 else None,
        b"\x01" if dice.random() < 0.5 else None,
        b"\x01",
        struct.pack(">q", 86_400) if dice.random() < 0.05 else None,
        struct.pack(">i", i),
        struct.pack(">i", i // 50),
        texts(b"first", b"second") if dice.random() < 0.5 else None,
        f"order {dice.random():.14f}"[:20].encode(),
    ]


def value(dice: random.Random, type_: Type) -> bytes:
    match type_.kind:
        case "timestamp":
            return struct.pack(">q", 1_700_000_000_000 + dice.getrandbits(30))
        case "double":
            return struct.pack(">d", dice.random())
        case "date":
            return struct.pack(">I", 2**31 + dice.randint(0, 20_000))
        case "uuid":
            return dice.randbytes(16)
        case "decimal":
            return struct.pack(">i", 2) + dice.randbytes(4)
        case "duration":
            return b"\x02\x04\xf0" + dice.randbytes(4)
        case "list":
            return texts(*(struct.pack(">i", dice.getrandbits(20)) for _ in range(5)))
        case "map":
            pairs = [c for key in (b"a", b"b", b"c") for c in (key, struct.pack(">i", dice.getrandbits(20)))]
            return struct.pack(">i", 3) + b"".join(map(sized, pairs))
    return np.array([dice.random() for _ in range(type_.size)], ">f4").tobytes()


if __name__ == "__main__":
    main()
