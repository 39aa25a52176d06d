# cython: language_level=3, boundscheck=False, wraparound=False
"""Values of Connect as JSON and as Avro, compiled; see ``json`` for the twin in Python, and ``avro`` for its own.

Encoders keep nothing that changes, so they may be used from several threads.
"""

from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_AsStringAndSize, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_CheckExact, PyDict_GetItemWithError
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from ..types.compiled cimport Decoder
from ..types.wire cimport EPOCH_TICKS, ticks_at

cdef extern from "Python.h":
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
        cdef uint64_t left
        cdef char digits[20]
        cdef int at = 20
        if value is None:
            return add_null(out)
        if type(value) is not int:
            return out.add_bytes(str(value).encode())
        number = PyLong_AsLongLongAndOverflow(value, &overflow)
        if overflow:
            return out.add_bytes(str(value).encode())
        left = <uint64_t> number if number >= 0 else <uint64_t> 0 - <uint64_t> number
        while True:
            at -= 1
            digits[at] = <char> (48 + left % 10)
            left //= 10
            if left == 0:
                break
        if number < 0:
            out.add("-", 1)
        return out.add(digits + at, 20 - at)


cdef class JsonBoolean(Encoder):
    cdef int put(self, Out out, object value) except -1:
        if value is None:
            return add_null(out)
        return out.add("true", 4) if value else out.add("false", 5)


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


cdef class JsonOther(Encoder):
    """Values that *text* makes JSON of."""

    cdef object text

    def __init__(self, text):
        self.text = text

    cdef int put(self, Out out, object value) except -1:
        return out.add_bytes((<str> self.text(value)).encode())


cdef class JsonArray(Encoder):
    cdef Encoder items

    def __init__(self, Encoder items not None):
        self.items = items

    cdef int put(self, Out out, object value) except -1:
        cdef bint is_first = True
        if value is None:
            return add_null(out)
        out.add("[", 1)
        for one in value:
            if not is_first:
                out.add(",", 1)
            is_first = False
            self.items.put(out, one)
        return out.add("]", 1)


cdef class JsonStruct(Encoder):
    """*fields*: name, what precedes the value (such as ``,"qty":``), and encoder of each."""

    cdef list fields

    def __init__(self, list fields not None):
        self.fields = fields

    cdef int put(self, Out out, object value) except -1:
        cdef tuple field
        if value is None:
            return add_null(out)
        out.add("{", 1)
        for field in self.fields:
            out.add_bytes(<bytes> field[1])
            (<Encoder> field[2]).put(out, item(value, field[0]))
        return out.add("}", 1)


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


# ---------------------------------------------------------------- rows


cdef struct Where:  # a column is in a row of the log; negative: nowhere
    Py_ssize_t value
    Py_ssize_t deleted
    Py_ssize_t elements
    bint in_key
    bint in_partition_key


cdef class Columns:
    """Columns of rows, and what makes their values; see its twin ``rows.ColumnsInPython``."""

    cdef Where* wheres
    cdef Py_ssize_t count
    cdef Py_ssize_t width  # which rows must have at least
    cdef list names
    cdef list decoders

    def __cinit__(self, columns):
        cdef Py_ssize_t i
        self.count = len(columns)
        self.wheres = <Where*> PyMem_Malloc(max(self.count, 1) * sizeof(Where))
        if self.wheres == NULL:
            raise MemoryError
        self.names = [c.name for c in columns]
        self.decoders = [c.decode for c in columns]
        for i in range(self.count):
            column = columns[i]
            self.wheres[i].value = column.index
            self.wheres[i].deleted = column.log.deleted
            self.wheres[i].elements = column.log.elements
            self.wheres[i].in_key = column.place != ""
            self.wheres[i].in_partition_key = column.place == "pk"
            self.width = max(self.width, column.index + 1, column.log.deleted + 1, column.log.elements + 1)

    def __dealloc__(self):
        PyMem_Free(self.wheres)

    cdef inline int check(self, tuple cells) except -1:
        if PyTuple_GET_SIZE(cells) < self.width:
            raise IndexError("a row has fewer cells than its layout")
        return 0

    cdef inline object value(self, Py_ssize_t i, object raw):
        decode = self.decoders[i]
        if isinstance(decode, Decoder):
            if type(raw) is not bytes:
                raise TypeError("a cell is bytes or None")
            return (<Decoder> decode).read(PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw))
        return decode(raw)

    cdef inline bint touched(self, Py_ssize_t i, tuple delta):
        cdef Where* where = &self.wheres[i]
        if <object> PyTuple_GET_ITEM(delta, where.value) is not None or self.marked(i, delta):
            return True
        return where.elements >= 0 and <object> PyTuple_GET_ITEM(delta, where.elements) is not None

    cdef inline bint marked(self, Py_ssize_t i, tuple delta):
        cdef Py_ssize_t at = self.wheres[i].deleted
        cdef object mark
        if at < 0:
            return False
        mark = <object> PyTuple_GET_ITEM(delta, at)
        return type(mark) is bytes and PyBytes_GET_SIZE(mark) == 1 and PyBytes_AS_STRING(mark)[0] == 1

    def row(self, tuple cells not None):
        cdef Py_ssize_t i
        cdef dict found = {}
        self.check(cells)
        for i in range(self.count):
            raw = <object> PyTuple_GET_ITEM(cells, self.wheres[i].value)
            found[self.names[i]] = None if raw is None else self.value(i, raw)
        return found

    def updated(self, tuple image not None, tuple delta not None):
        cdef Py_ssize_t i
        cdef dict found = {}
        self.check(image)
        self.check(delta)
        for i in range(self.count):
            raw = <object> PyTuple_GET_ITEM(image, self.wheres[i].value)
            if raw is None or not (self.wheres[i].deleted < 0 or self.touched(i, delta)):
                found[self.names[i]] = None
            else:
                found[self.names[i]] = self.value(i, raw)
        return found

    def joined(self, tuple preimage not None, tuple postimage not None, tuple delta not None):
        cdef Py_ssize_t i
        cdef dict found = {}
        self.check(preimage)
        self.check(postimage)
        self.check(delta)
        for i in range(self.count):
            raw = <object> PyTuple_GET_ITEM(preimage if self.touched(i, delta) else postimage, self.wheres[i].value)
            found[self.names[i]] = None if raw is None else self.value(i, raw)
        return found

    def cells(self, tuple row not None, tuple delta not None, bint of_row):
        cdef Py_ssize_t i
        cdef dict found = {}
        self.check(row)
        self.check(delta)
        for i in range(self.count):
            raw = <object> PyTuple_GET_ITEM(row, self.wheres[i].value)
            value = None
            if self.wheres[i].in_key:
                if raw is not None and (of_row or self.wheres[i].in_partition_key):
                    value = self.value(i, raw)
                found[self.names[i]] = value
                continue
            if raw is not None:
                value = self.value(i, raw)
            found[self.names[i]] = {"value": value} if value is not None or self.marked(i, delta) else None
        return found


def us_of(bytes time not None):
    """Return the microseconds since the epoch of a timeuuid."""
    if PyBytes_GET_SIZE(time) != 16:
        raise ValueError("a time is not a timeuuid")
    cdef int64_t ticks = <int64_t> ticks_at(PyBytes_AS_STRING(time)) - EPOCH_TICKS
    # Rounded down, as in Python.
    return ticks // 10 if ticks >= 0 else -((9 - ticks) // 10)
