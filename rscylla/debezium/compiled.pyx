# cython: language_level=3, boundscheck=False, wraparound=False
"""Rows of a log as JSON and as Avro, compiled; see ``direct``. Values of Connect as Avro; see ``formats.avro``.

Encoders keep nothing that changes, so they may be used from several threads.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_AsStringAndSize, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_CheckExact, PyDict_GetItemWithError
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from libc.stdint cimport int8_t, int16_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from ..types.compiled cimport Ascii, Cell, Decoder, Number, Text
from ..types.wire cimport EPOCH_TICKS, int_at, ticks_at, ulong_at, ushort_at

cdef extern from "Python.h":
    ctypedef struct PyTypeObject:
        object (*tp_new)(type, tuple, void*)
    long long PyLong_AsLongLongAndOverflow(object, int*) except? -1
    const char* PyUnicode_AsUTF8AndSize(object, Py_ssize_t*) except NULL

cdef extern from *:
    """
    #ifndef SUM_OF_SOURCES
    #define SUM_OF_SOURCES 0
    #endif
    """
    const unsigned int BUILT_FROM "SUM_OF_SOURCES"

SUM_OF_SOURCES = BUILT_FROM  # see ``rscylla._decoder``


cdef class Out:
    """Bytes that grow."""

    cdef char* data
    cdef Py_ssize_t size
    cdef Py_ssize_t room

    def __cinit__(self):
        self.room = 1024
        self.data = <char*> PyMem_Malloc(self.room)
        if self.data == NULL:
            raise MemoryError

    def __dealloc__(self):
        PyMem_Free(self.data)

    cdef inline int reserve(self, Py_ssize_t more) except -1:
        """Make room for *more* bytes after those that are there."""
        return self.grow(more) if self.room - self.size < more else 0

    cdef int grow(self, Py_ssize_t more) except -1:
        cdef Py_ssize_t room = max(2 * self.room, self.size + more)
        cdef char* data = <char*> PyMem_Realloc(self.data, room)
        if data == NULL:
            raise MemoryError
        self.data = data
        self.room = room
        return 0

    cdef inline int add(self, const char* data, Py_ssize_t size) except -1:
        self.reserve(size)
        memcpy(self.data + self.size, data, size)
        self.size += size
        return 0

    cdef inline int add_bytes(self, bytes some) except -1:
        return self.add(PyBytes_AS_STRING(some), PyBytes_GET_SIZE(some))


cdef class Encoder:
    """Adds values of one schema to bytes. A value may be None where the form has it."""

    cdef int put(self, Out out, object value) except -1:
        raise NotImplementedError

    cdef int put_long(self, Out out, int64_t number) except -1:
        """Add a number."""
        return self.put(out, number)

    cdef bint put_raw(self, Out out, object decoder, const char* data, Py_ssize_t size) except -1:
        """Add the value of the bytes of a cell, if that needs no object; return whether it was added."""
        return False


cdef inline bint integer_at(object decoder, const char* data, Py_ssize_t size, int64_t* number) noexcept:
    """Return whether *decoder* reads an integer from the bytes, and set *number* to it."""
    cdef char code
    if type(decoder) is not Number or size != (<Number> decoder).width:
        return False
    code = (<Number> decoder).code
    if code == c"i":
        number[0] = int_at(data)
    elif code == c"q":
        number[0] = <int64_t> ulong_at(data)
    elif code == c"h":
        number[0] = <int16_t> ushort_at(data)
    elif code == c"b":
        number[0] = <int8_t> data[0]
    else:
        return False
    return True


cdef inline bint is_text(object decoder) noexcept:
    return type(decoder) is Text or type(decoder) is Ascii


cdef class Payload:
    """Makes bytes of values: *head*, the value, and *tail*."""

    cdef bytes head
    cdef Encoder encoder
    cdef bytes tail

    def __init__(self, bytes head not None, Encoder encoder not None, bytes tail not None):
        self.head = head
        self.encoder = encoder
        self.tail = tail

    def __call__(self, value):
        cdef Out out = Out()
        out.add_bytes(self.head)
        self.encoder.put(out, value)
        out.add_bytes(self.tail)
        return PyBytes_FromStringAndSize(out.data, out.size)


cdef inline object item(object value, object name):
    """Return a field of a struct."""
    if PyDict_CheckExact(value):
        found = PyDict_GetItemWithError(value, name)
        if found != NULL:
            return <object> found
    return value[name]


# ---------------------------------------------------------------- JSON


cdef inline int add_null(Out out) except -1:
    return out.add("null", 4)


cdef class JsonInteger(Encoder):
    cdef int put(self, Out out, object value) except -1:
        cdef int overflow = 0
        cdef long long number
        if value is None:
            return add_null(out)
        if type(value) is not int:
            return out.add_bytes(str(value).encode())
        number = PyLong_AsLongLongAndOverflow(value, &overflow)
        if overflow:
            return out.add_bytes(str(value).encode())
        return self.put_long(out, number)

    cdef int put_long(self, Out out, int64_t number) except -1:
        cdef uint64_t left = <uint64_t> number if number >= 0 else <uint64_t> 0 - <uint64_t> number
        cdef char digits[20]
        cdef int at = 20
        while True:
            at -= 1
            digits[at] = <char> (48 + left % 10)
            left //= 10
            if left == 0:
                break
        if number < 0:
            out.add("-", 1)
        return out.add(digits + at, 20 - at)

    cdef bint put_raw(self, Out out, object decoder, const char* data, Py_ssize_t size) except -1:
        cdef int64_t number = 0
        if not integer_at(decoder, data, size, &number):
            return False
        self.put_long(out, number)
        return True


cdef class JsonText(Encoder):
    """Text. *escaped* makes JSON of what has characters that are escaped."""

    cdef object escaped

    def __init__(self, escaped):
        self.escaped = escaped

    cdef int put(self, Out out, object value) except -1:
        cdef Py_ssize_t size = 0
        cdef Py_ssize_t i
        cdef const char* data
        cdef uint8_t c
        if value is None:
            return add_null(out)
        data = PyUnicode_AsUTF8AndSize(value, &size)
        for i in range(size):
            c = <uint8_t> data[i]
            if c < 0x20 or c == 0x22 or c == 0x5C or c >= 0xF0:
                return out.add_bytes((<str> self.escaped(value)).encode())
        out.reserve(size + 2)
        out.data[out.size] = 0x22
        memcpy(out.data + out.size + 1, data, size)
        out.data[out.size + size + 1] = 0x22
        out.size += size + 2
        return 0

    cdef bint put_raw(self, Out out, object decoder, const char* data, Py_ssize_t size) except -1:
        cdef Py_ssize_t i
        cdef uint8_t c
        cdef bint is_plain = True
        if not is_text(decoder):
            return False
        for i in range(size):  # without a way out, so that the compiler takes many at once
            c = <uint8_t> data[i]
            is_plain &= (c >= 0x20) & (c < 0x80) & (c != 0x22) & (c != 0x5C)
        if not is_plain:
            return False
        out.reserve(size + 2)
        out.data[out.size] = 0x22
        memcpy(out.data + out.size + 1, data, size)
        out.data[out.size + size + 1] = 0x22
        out.size += size + 2
        return True


cdef class JsonOther(Encoder):
    """Values that *text* makes JSON of."""

    cdef object text

    def __init__(self, text):
        self.text = text

    cdef int put(self, Out out, object value) except -1:
        return out.add_bytes((<str> self.text(value)).encode())


# ---------------------------------------------------------------- Avro


cdef inline int add_long(Out out, int64_t number) except -1:
    """Add a number: zigzag, seven bits a byte, the lowest first."""
    cdef uint64_t left = (<uint64_t> number << 1) ^ (<uint64_t> 0 - (<uint64_t> number >> 63))
    out.reserve(10)
    while left >= 0x80:
        out.data[out.size] = <char> (left & 0x7F | 0x80)
        out.size += 1
        left >>= 7
    out.data[out.size] = <char> left
    out.size += 1
    return 0


cdef class AvroInteger(Encoder):
    cdef int put(self, Out out, object value) except -1:
        return add_long(out, value)

    cdef int put_long(self, Out out, int64_t number) except -1:
        return add_long(out, number)

    cdef bint put_raw(self, Out out, object decoder, const char* data, Py_ssize_t size) except -1:
        cdef int64_t number = 0
        if not integer_at(decoder, data, size, &number):
            return False
        add_long(out, number)
        return True


cdef class AvroFloat(Encoder):
    cdef int put(self, Out out, object value) except -1:
        cdef double wide = value
        cdef float number = <float> wide
        cdef uint32_t bits
        cdef int i
        memcpy(&bits, &number, 4)
        out.reserve(4)
        for i in range(4):
            out.data[out.size + i] = <char> (bits >> 8 * i & 0xFF)
        out.size += 4
        return 0


cdef class AvroDouble(Encoder):
    cdef int put(self, Out out, object value) except -1:
        cdef double number = value
        cdef uint64_t bits
        cdef int i
        memcpy(&bits, &number, 8)
        out.reserve(8)
        for i in range(8):
            out.data[out.size + i] = <char> (bits >> 8 * i & 0xFF)
        out.size += 8
        return 0


cdef class AvroBoolean(Encoder):
    cdef int put(self, Out out, object value) except -1:
        return out.add("\x01" if value else "\x00", 1)


cdef class AvroText(Encoder):
    cdef int put(self, Out out, object value) except -1:
        cdef Py_ssize_t size = 0
        cdef const char* data = PyUnicode_AsUTF8AndSize(value, &size)
        add_long(out, size)
        return out.add(data, size)

    cdef bint put_raw(self, Out out, object decoder, const char* data, Py_ssize_t size) except -1:
        cdef Py_ssize_t i
        cdef uint8_t all_bits = 0
        if not is_text(decoder):
            return False
        for i in range(size):
            all_bits |= <uint8_t> data[i]
        if all_bits >= 0x80:  # may be no UTF-8
            return False
        add_long(out, size)
        out.add(data, size)
        return True


cdef class AvroBytes(Encoder):
    cdef int put(self, Out out, object value) except -1:
        cdef Py_ssize_t size = 0
        cdef char* data
        PyBytes_AsStringAndSize(value, &data, &size)
        add_long(out, size)
        return out.add(data, size)


cdef class AvroArray(Encoder):
    cdef Encoder items

    def __init__(self, Encoder items not None):
        self.items = items

    cdef int put(self, Out out, object value) except -1:
        cdef Py_ssize_t count = len(value)
        if count:
            add_long(out, count)
            for one in value:
                self.items.put(out, one)
        return add_long(out, 0)


cdef class AvroStruct(Encoder):
    """*fields*: name and encoder of each."""

    cdef list fields

    def __init__(self, list fields not None):
        self.fields = fields

    cdef int put(self, Out out, object value) except -1:
        cdef tuple field
        for field in self.fields:
            (<Encoder> field[1]).put(out, item(value, field[0]))
        return 0


cdef class AvroOptional(Encoder):
    """A union of null and *other*. *null_first*: null is the first of the two."""

    cdef Encoder other
    cdef bint null_first

    def __init__(self, Encoder other not None, bint null_first):
        self.other = other
        self.null_first = null_first

    cdef int put(self, Out out, object value) except -1:
        add_long(out, (value is not None) == self.null_first)
        return 0 if value is None else self.other.put(out, value)

    cdef int put_long(self, Out out, int64_t number) except -1:
        add_long(out, self.null_first)
        return self.other.put_long(out, number)

    cdef bint put_raw(self, Out out, object decoder, const char* data, Py_ssize_t size) except -1:
        cdef Py_ssize_t before = out.size
        add_long(out, self.null_first)
        if self.other.put_raw(out, decoder, data, size):
            return True
        out.size = before
        return False


cdef dict _AVRO = {
    **dict.fromkeys(("int8", "int16", "int32", "int64"), AvroInteger),
    "float32": AvroFloat, "float64": AvroDouble, "boolean": AvroBoolean, "string": AvroText, "bytes": AvroBytes,
}


def avro_encoder(schema):
    """Return the encoder of values of *schema*."""
    cdef Encoder made
    if schema.type == "struct":
        made = AvroStruct([(f.name, avro_encoder(f.schema)) for f in schema.fields])
    elif schema.items is not None:
        made = AvroArray(avro_encoder(schema.items))
    else:
        made = _AVRO[schema.type]()
    return AvroOptional(made, schema.default is None) if schema.optional else made


def avro_payload(schema, bytes head=b""):
    """Return the function that makes bytes of values of *schema*, after *head*."""
    return Payload(head, avro_encoder(schema), b"")


# ---------------------------------------------------------------- rows


cdef struct Where:  # a column is in a row of the log; negative: nowhere
    Py_ssize_t value
    Py_ssize_t deleted
    Py_ssize_t elements
    bint in_key


cdef inline int64_t us_at(const char* time) noexcept nogil:
    cdef int64_t ticks = <int64_t> ticks_at(time) - EPOCH_TICKS
    # Rounded down, as in Python.
    return ticks // 10 if ticks >= 0 else -((9 - ticks) // 10)


# ---------------------------------------------------------------- from cells to bytes


cdef struct Literal:
    const char* data
    Py_ssize_t size


cdef inline Literal literal_of(bytes text):
    """Return the place of *text*, which the caller keeps."""
    cdef Literal found
    found.data = PyBytes_AS_STRING(text)
    found.size = PyBytes_GET_SIZE(text)
    return found


cdef inline int add_literal(Out out, Literal* literal) except -1:
    return out.add(literal.data, literal.size)


cdef enum How:  # which cells a row has; see the methods of ``rows.Columns``
    AS_IT_IS
    UPDATED
    JOINED
    IN_CELLS


cdef class RowBytes:
    """Adds rows of cells to bytes, as the encoder of their struct adds those of values, without making the values.

    *parts*: what stands for null, what opens the struct, what precedes each field, and what closes it. *encoders*: of
    the values of the columns. *wrapped*: for columns whose values are in structs of their own, what stands for null,
    what opens such a struct, and what closes it; None for the others.
    """

    cdef Where* wheres
    cdef Py_ssize_t count
    cdef list decoders, kept, encoders
    cdef Literal null, opened, closed
    cdef Literal* leads  # four for each column: its lead; null, opened, closed of the struct of its own

    def __cinit__(self, columns, parts, encoders, wrapped):
        cdef Py_ssize_t i
        self.count = len(columns)
        self.wheres = <Where*> PyMem_Malloc(max(self.count, 1) * sizeof(Where))
        if self.wheres == NULL:
            raise MemoryError
        self.decoders = [c.decode for c in columns]
        for i in range(self.count):
            column = columns[i]
            self.wheres[i].value = column.index
            self.wheres[i].deleted = column.log.deleted
            self.wheres[i].elements = column.log.elements
            self.wheres[i].in_key = column.place != ""
        null, opened, leads, closed = parts
        self.encoders = list(encoders)
        self.kept = [null, opened, closed]
        self.null, self.opened, self.closed = literal_of(null), literal_of(opened), literal_of(closed)
        self.leads = <Literal*> PyMem_Malloc(max(self.count, 1) * 4 * sizeof(Literal))
        if self.leads == NULL:
            raise MemoryError
        if not len(leads) == len(self.encoders) == len(wrapped) == self.count:
            raise ValueError("a struct has other fields than its row")
        for i in range(self.count):
            own = wrapped[i] or (b"", b"", b"")
            self.kept += [leads[i], *own]
            self.leads[4 * i] = literal_of(leads[i])
            self.leads[4 * i + 1] = literal_of(own[0])
            self.leads[4 * i + 2] = literal_of(own[1])
            self.leads[4 * i + 3] = literal_of(own[2])

    def __dealloc__(self):
        PyMem_Free(self.wheres)
        PyMem_Free(self.leads)

    cdef inline bint has_mark(self, Py_ssize_t i, const Cell* delta) noexcept:
        cdef Py_ssize_t at = self.wheres[i].deleted
        return at >= 0 and delta[at].size == 1 and delta[at].data[0] == 1

    cdef inline bint is_touched(self, Py_ssize_t i, const Cell* delta) noexcept:
        cdef Where* where = &self.wheres[i]
        if delta[where.value].size >= 0 or self.has_mark(i, delta):
            return True
        return where.elements >= 0 and delta[where.elements].size >= 0

    cdef bint touches(self, const Cell* delta) noexcept:
        """Whether a delta touches a column outside of the key."""
        cdef Py_ssize_t i
        for i in range(self.count):
            if not self.wheres[i].in_key and self.is_touched(i, delta):
                return True
        return False

    cdef inline object decoded(self, Py_ssize_t i, const Cell* cell):
        decode = self.decoders[i]
        if isinstance(decode, Decoder):
            return (<Decoder> decode).read(cell.data, cell.size)
        return decode(PyBytes_FromStringAndSize(cell.data, cell.size))

    cdef int put_row(self, Out out, How how, const Cell* image, const Cell* other, const Cell* delta) except -1:
        """Add a row; *image*, *other*, and *delta* are cells of one layout."""
        cdef Py_ssize_t i, before
        cdef Where* where
        cdef Literal* lead
        cdef const Cell* cell
        cdef Encoder encoder
        cdef bint is_null
        add_literal(out, &self.opened)
        for i in range(self.count):
            where = &self.wheres[i]
            lead = &self.leads[4 * i]
            encoder = <Encoder> self.encoders[i]
            add_literal(out, lead)
            cell = &image[where.value]
            if how == JOINED and not self.is_touched(i, delta):
                cell = &other[where.value]
            is_null = cell.size < 0
            if how == UPDATED and where.deleted >= 0 and not self.is_touched(i, delta):
                is_null = True
            if how != IN_CELLS or where.in_key:
                if is_null:
                    encoder.put(out, None)
                elif not encoder.put_raw(out, self.decoders[i], cell.data, cell.size):
                    encoder.put(out, self.decoded(i, cell))
                continue
            before = out.size
            add_literal(out, lead + 2)
            if is_null or not encoder.put_raw(out, self.decoders[i], cell.data, cell.size):
                value = None if is_null else self.decoded(i, cell)
                if value is None and not self.has_mark(i, delta):
                    out.size = before
                    add_literal(out, lead + 1)
                    continue
                encoder.put(out, value)
            add_literal(out, lead + 3)
        return add_literal(out, &self.closed)


cdef enum Slot:  # what is between the literals of an envelope; see ``direct.Slot``
    SOURCE_MS
    SOURCE_US
    SOURCE_NS
    BEFORE
    AFTER
    KEY
    CODE
    NOW_MS
    NOW_US
    NOW_NS


cdef enum Images:  # what an image of the advanced format has
    NOTHING
    FULL
    ONLY_UPDATED


cdef class ChangeBytes:
    """Makes the bytes of records of changes of one layout, from rows as the log sent them; see ``direct``.

    For one thread at a time.
    """

    cdef str topic
    cdef Py_ssize_t width, operation, time
    cdef dict codes
    cdef int64_t doubted_us
    cdef bint is_legacy, has_preimages, has_tombstones
    cdef Images before, after
    cdef RowBytes key, values
    cdef tuple key_ends
    cdef list leads, slots, targets
    cdef bytes tail
    cdef Cell* cells  # of the row and its two images
    cdef Out out

    def __cinit__(self, Py_ssize_t width, *_, **__):
        self.width = width
        self.cells = <Cell*> PyMem_Malloc(max(width, 1) * 3 * sizeof(Cell))
        if self.cells == NULL:
            raise MemoryError
        self.out = Out()

    def __init__(
        self, width, Py_ssize_t operation, Py_ssize_t time, str topic not None, dict codes not None, tuple images,
        bint is_legacy, int64_t doubted_us, bint has_preimages, bint has_tombstones, key, segments, bytes tail not None,
    ):
        self.operation, self.time, self.topic, self.codes = operation, time, topic, codes
        self.is_legacy, self.doubted_us = is_legacy, doubted_us
        self.has_preimages, self.has_tombstones = has_preimages, has_tombstones
        self.before, self.after = [{"none": NOTHING, "full": FULL, "only-updated": ONLY_UPDATED}[i] for i in images]
        self.key, self.key_ends = (None, (b"", b"")) if key is None else (key[0], key[1:])
        self.leads = [lead for lead, *_ in segments]
        self.slots = [slot for _, slot, _ in segments]
        self.targets = [target for *_, target in segments]
        self.values = self.targets[self.slots.index(AFTER)]
        self.tail = tail

    def __dealloc__(self):
        PyMem_Free(self.cells)

    cdef Cell* taken(self, bytes row, int number) except? NULL:
        """Return the cells of a row; NULL for none."""
        cdef Cell* cells = self.cells + number * self.width
        cdef const char* at
        cdef const char* end
        cdef Py_ssize_t i
        if row is None:
            return NULL
        at = PyBytes_AS_STRING(row)
        end = at + PyBytes_GET_SIZE(row)
        for i in range(self.width):
            if end - at < 4:
                raise ValueError("a row ends within a cell")
            cells[i].size = int_at(at)
            cells[i].data = at + 4
            at += 4
            if cells[i].size > 0:
                if end - at < cells[i].size:
                    raise ValueError("a row ends within a cell")
                at += cells[i].size
        return cells

    cdef object made(self, tuple packed, int64_t now_us, type message):
        """Return the records of a change; None if it is left to the code in Python."""
        cdef Cell* row = self.taken(packed[0], 0)
        cdef Cell* preimage = self.taken(packed[1], 1)
        cdef Cell* postimage = self.taken(packed[2], 2)
        cdef Cell* operation = &row[self.operation]
        cdef Py_ssize_t i
        cdef Slot slot
        cdef int64_t us, ms
        cdef bint is_update, is_delete, has_clock = False
        cdef How how_before = AS_IT_IS, how_after = AS_IT_IS
        cdef Cell* before = NULL
        cdef Cell* after = NULL
        cdef Out out = self.out
        if operation.size < 0 or row[self.time].size != 16:
            return None
        code = self.codes.get(PyBytes_FromStringAndSize(operation.data, operation.size))
        if code is None:
            return None
        is_update, is_delete = code == "u", code == "d"
        if self.is_legacy:
            if not self.has_preimages:
                preimage = NULL
            elif preimage != NULL and packed[3]:
                return None  # whether it is the first change of its row in the record takes a look at the others
            how_before = how_after = IN_CELLS
            before = row if is_delete and preimage == NULL else preimage
            after = NULL if is_delete else row
            has_clock = is_delete or before == NULL
        else:
            if self.after != NOTHING:
                after = postimage
                how_after = UPDATED if is_update and self.after == ONLY_UPDATED else AS_IT_IS
            else:
                postimage = NULL
            if self.before != NOTHING:
                before = preimage
                if is_update:
                    how_before = UPDATED if self.before == ONLY_UPDATED else AS_IT_IS if postimage == NULL else JOINED
        us = us_at(row[self.time].data)
        if (is_update or us <= self.doubted_us) and (how_before != AS_IT_IS or how_after != AS_IT_IS) \
                and not is_delete and not self.values.touches(row):
            return None  # the log may have had only keys then
        ms = us // 1000  # rounded down, too
        key = None
        if self.key is not None:
            out.size = 0
            out.add_bytes(<bytes> self.key_ends[0])
            self.key.put_row(out, AS_IT_IS, row, NULL, row)
            out.add_bytes(<bytes> self.key_ends[1])
            key = PyBytes_FromStringAndSize(out.data, out.size)
        out.size = 0
        for i in range(len(self.slots)):
            out.add_bytes(<bytes> self.leads[i])
            slot = <Slot> <int> self.slots[i]
            target = self.targets[i]
            if slot == BEFORE:
                self.put_image(out, <RowBytes> target, how_before, before, postimage, row)
            elif slot == AFTER:
                self.put_image(out, <RowBytes> target, how_after, after, NULL, row)
            elif slot == KEY:
                (<RowBytes> target).put_row(out, AS_IT_IS, row, NULL, row)
            elif slot == CODE:
                (<Encoder> target).put(out, code)
            elif slot == SOURCE_MS:
                (<Encoder> target).put_long(out, ms)
            elif slot == SOURCE_US:
                (<Encoder> target).put_long(out, us)
            elif slot == SOURCE_NS:
                (<Encoder> target).put_long(out, ms * 1_000_000)
            elif slot == NOW_MS:
                (<Encoder> target).put_long(out, now_us // 1000)
            elif not has_clock:
                (<Encoder> target).put(out, None)
            else:
                (<Encoder> target).put_long(out, now_us if slot == NOW_US else now_us * 1000)
        out.add_bytes(self.tail)
        made = [message_of(message, self.topic, key, PyBytes_FromStringAndSize(out.data, out.size))]
        if is_delete and self.has_tombstones:
            made.append(message_of(message, self.topic, key, None))
        if out.room > 1 << 20:
            self.out = Out()  # a large row is an exception
        return made

    cdef int put_image(
        self, Out out, RowBytes target, How how, const Cell* image, const Cell* other, const Cell* delta
    ) except -1:
        return add_literal(out, &target.null) if image == NULL else target.put_row(out, how, image, other, delta)


cdef inline object message_of(type message, str topic, object key, object value):
    """Return a ``Message`` without headers, for any partition; its own constructor takes several times as long."""
    return (<PyTypeObject*> tuple).tp_new(message, ((topic, key, value, (), None),), NULL)


cdef class Direct:
    """Makes the messages of events of which it knows the layout.

    *event*: the class of events; *message*: that of messages, a tuple.
    """

    cdef type event, message
    cdef dict known

    def __init__(self, type event not None, type message not None):
        self.event, self.message = event, message
        self.known = {}  # by the identity of layouts, which are kept

    def __call__(self, event, int64_t now_us):
        """Return the messages of *event*; None if they are left to the code in Python."""
        if type(event) is not self.event:
            return None
        known = self.known.get(id(event.layout))
        if known is None or known[1] is None:
            return None
        try:
            return (<ChangeBytes?> known[1]).made(event.packed(), now_us, self.message)
        except (ValueError, OverflowError, TypeError):
            return None  # the code in Python says which column it is

    def learn(self, event, make):
        """Know the layout of *event* from now on, by what *make* returns for it: ``ChangeBytes``, or None."""
        if type(event) is not self.event or id(event.layout) in self.known:
            return
        if len(self.known) >= 256:
            self.known.clear()
        layout = event.layout
        self.known[id(layout)] = (layout, make(layout))
