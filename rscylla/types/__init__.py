"""CQL types: what they are, and their values as bytes, in Python, in JSON, and in Arrow.

    tree        ``Type``, a CQL type as a tree, and names in CQL text; text: parses it from the text of the schema
    registry    one row per type, and the functions that use the rows; add new types and new uses of values here
    natives     values of types without parts; containers: of types with parts; cells: how these are split
    json        values as JSON; moments: dates and times that Python's calendar lacks
    arrow       columns of values as Arrow; json_arrow: as JSON; they import pyarrow, so nothing else here imports them
    connect     types and values as in Kafka Connect

How a value is represented, everywhere in rscylla:

    null, or a column that was not touched   None; ``Change.columns`` distinguishes the two
    int, bigint, varint, counter, ...        int
    float, double / decimal                  float / decimal.Decimal
    text, ascii, inet                        str
    blob                                     bytes
    boolean, uuid, timeuuid                  bool, uuid.UUID, uuid.UUID
    timestamp                                aware UTC datetime; FarTime, an int of milliseconds, beyond years 1-9999
    date, time, duration                     the driver's Date, Time, Duration, which lose nothing
    list, vector                             list
    set                                      set, or list where elements cannot be hashed (order of the database)
    map                                      dict
    tuple                                    tuple
    user-defined type                        dict by field

A value without bytes, which CQL allows for most types, is ``""`` for text, ``b""`` for blobs, and otherwise None. Empty
is not null: a frozen collection may be empty, and an image may show a non-frozen one as empty where the database, which
does not distinguish the two, returns null. A non-frozen UDT whose fields are all null is null.
"""

from .cells import collection_cells, sized_cells
from .connect import Field, Schema, connect_for, twice
from .json import dumps, dumps_key
from .natives import Decoder, Encoder, TooManyDigits
from .registry import decoder_for, encoder_for, log_list, native, sample_of, with_digits
from .text import Fields, parse_type
from .tree import NO_DIGITS, Digits, Type, quote_name

__all__ = [
    "NO_DIGITS",
    "Decoder",
    "Digits",
    "Encoder",
    "Field",
    "Fields",
    "Schema",
    "TooManyDigits",
    "Type",
    "collection_cells",
    "connect_for",
    "decoder_for",
    "dumps",
    "dumps_key",
    "encoder_for",
    "log_list",
    "native",
    "parse_type",
    "quote_name",
    "sample_of",
    "sized_cells",
    "twice",
    "with_digits",
]
