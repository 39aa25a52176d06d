# cython: language_level=3, boundscheck=False, wraparound=False
"""Values of cells, compiled; see ``natives``, ``containers``, ``cells``, and ``arrow`` for the twins in Python.

A cell is never read beyond its size: each size within a cell is held against what is left of it. Nothing here keeps
state that changes, so all of it may be used from several threads.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.datetime cimport datetime_new, import_datetime
from cpython.float cimport PyFloat_FromDouble
from cpython.long cimport PyLong_FromLong, PyLong_FromLongLong, PyLong_FromUnsignedLongLong
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.unicode cimport PyUnicode_DecodeASCII, PyUnicode_DecodeUTF8
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from collections.abc import Sequence
from datetime import timezone
from struct import calcsize
from uuid import UUID, SafeUUID

from .containers import _frozen

cdef extern from "Python.h":
    int PyObject_GenericSetAttr(object, object, object) except -1

import_datetime()

cdef object _UTC = timezone.utc
cdef object _UNKNOWN = SafeUUID.unknown


# ---------------------------------------------------------------- cells


cdef class Cells:
    """The undecoded cells of one column, where they lie. A ``Sequence[bytes | None]``.

    Subclasses keep what the cells point into. They are immutable, so ``at`` needs no lock.
    """

    cdef Cell at(self, Py_ssize_t i) noexcept nogil:
        """Return cell *i*, which must be from 0 to ``count - 1``."""
        cdef Cell null
        null.data = NULL
        null.size = -1
        return null

    def __len__(self):
        return self.count

    def __getitem__(self, Py_ssize_t i):
        if i < 0:
            i += self.count
        if i < 0 or i >= self.count:
            raise IndexError("no such cell")
        return as_bytes(self.at(i))

    def __iter__(self):
        cdef Py_ssize_t i
        for i in range(self.count):
            yield as_bytes(self.at(i))


Sequence.register(Cells)


cdef class CellList(Cells):
    """Cells that are ``bytes`` already."""

    cdef tuple kept
    cdef Cell* cells

    def __cinit__(self, cells):
        cdef Py_ssize_t i, size
        cdef object cell
        self.kept = tuple(cells)
        self.count = len(self.kept)
        self.cells = <Cell*> PyMem_Malloc(max(self.count, 1) * sizeof(Cell))
        if self.cells == NULL:
            raise MemoryError
        for i in range(self.count):
            cell = self.kept[i]
            if cell is None:
                self.cells[i].data = NULL
                self.cells[i].size = -1
                continue
            if type(cell) is not bytes:
                raise TypeError(f"a cell is bytes or None, and not {type(cell).__name__}")
            size = PyBytes_GET_SIZE(cell)
            if size > 0x7FFFFFFF:
                raise ValueError("a cell is longer than the protocol allows")
            self.cells[i].data = PyBytes_AS_STRING(cell)
            self.cells[i].size = <int32_t> size

    def __dealloc__(self):
        PyMem_Free(self.cells)

    cdef Cell at(self, Py_ssize_t i) noexcept nogil:
        return self.cells[i]


cdef inline object as_bytes(Cell cell):
    return None if cell.size < 0 else PyBytes_FromStringAndSize(cell.data, cell.size)


cdef inline uint16_t short_at(const char* p) noexcept nogil:
    cdef const uint8_t* u = <const uint8_t*> p
    return <uint16_t> ((u[0] << 8) | u[1])


cdef inline uint32_t int_at(const char* p) noexcept nogil:
    cdef const uint8_t* u = <const uint8_t*> p
    return (<uint32_t> u[0] << 24) | (<uint32_t> u[1] << 16) | (<uint32_t> u[2] << 8) | u[3]


cdef inline uint64_t long_at(const char* p) noexcept nogil:
    return (<uint64_t> int_at(p) << 32) | int_at(p + 4)


cdef inline float float_at(const char* p) noexcept nogil:
    cdef uint32_t bits = int_at(p)
    cdef float value
    memcpy(&value, &bits, 4)
    return value


cdef inline double double_at(const char* p) noexcept nogil:
    cdef uint64_t bits = long_at(p)
    cdef double value
    memcpy(&value, &bits, 8)
    return value


cdef inline bint next_sized(const char** at, const char* end, Cell* cell) noexcept nogil:
    """Take the cell that begins at *at* with its size in 4 bytes; return whether it ends before *end*."""
    cdef int32_t size
    cell.data = NULL
    cell.size = -1
    if end - at[0] < 4:
        return False
    size = <int32_t> int_at(at[0])
    at[0] += 4
    if size < 0:
        return True
    if end - at[0] < size:
        return False
    cell.data = at[0]
    cell.size = size
    at[0] += size
    return True


cdef inline bint next_short(const char** at, const char* end, Cell* cell) noexcept nogil:
    """Take the cell that begins at *at* with its size as an unsigned vint; return whether it ends before *end*.

    Leading ones of the first byte count the bytes that follow.
    """
    cdef uint8_t lead
    cdef int more = 0
    cdef int i
    cdef uint64_t size
    cell.data = NULL
    cell.size = -1
    if end - at[0] < 1:
        return False
    lead = <uint8_t> at[0][0]
    while more < 8 and lead & (0x80 >> more):
        more += 1
    if end - at[0] < more + 1:
        return False
    size = lead & (0xFF >> (more + 1)) if more < 8 else 0
    for i in range(1, more + 1):
        size = (size << 8) | <uint8_t> at[0][i]
    at[0] += more + 1
    if size > <uint64_t> (end - at[0]):
        return False
    cell.data = at[0]
    cell.size = <int32_t> size
    at[0] += size
    return True


# The errors of cells, in the words of the twins in Python; they take the GIL themselves.

cdef int fail_width(Py_ssize_t width) except -1 with gil:
    raise ValueError(f"a cell does not have the {width} bytes of its type")


cdef int fail_within() except -1 with gil:
    raise ValueError("a value is longer than the cell that holds it")


cdef int fail_count() except -1 with gil:
    raise ValueError("a collection holds another number of elements than it says")


cdef struct Walk:  # over the cells of a collection
    const char* at
    const char* end
    int64_t said  # elements, as the collection says
    int64_t taken  # cells
    Cell cell  # the last that was taken


cdef int start(Walk* walk, const char* data, Py_ssize_t size) except -1 nogil:
    """Begin a walk. Empty bytes are an empty collection."""
    if 0 < size < 4:
        fail_within()
    walk.said = <int32_t> int_at(data) if size else 0
    walk.taken = 0
    walk.cell.data = NULL
    walk.cell.size = -1
    walk.at = data + 4 if size else data
    walk.end = data + size
    return 0


cdef int take(Walk* walk) except -1 nogil:
    if walk.at == walk.end:
        fail_count()
    if not next_sized(&walk.at, walk.end, &walk.cell):
        fail_within()
    walk.taken += 1
    return 0


cdef int finish(Walk* walk, int parts) except -1 nogil:
    """End a walk over all elements, each of which has *parts* cells."""
    if walk.taken != walk.said * parts:
        fail_count()
    return 0


# ---------------------------------------------------------------- values as Python objects


cdef class Decoder:
    """Makes the Python value of bytes, as what ``decoder_for`` returns does."""

    cdef object read(self, const char* data, Py_ssize_t size):
        raise NotImplementedError

    def __call__(self, bytes raw not None):
        return self.read(PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw))


cdef inline object value_of(Decoder decoder, Cell cell):
    return None if cell.size < 0 else decoder.read(cell.data, cell.size)


cdef class Foreign(Decoder):
    """Has a decoder in Python do the work."""

    cdef object decode

    def __init__(self, decode):
        self.decode = decode

    cdef object read(self, const char* data, Py_ssize_t size):
        return self.decode(PyBytes_FromStringAndSize(data, size))


cdef class Blob(Decoder):
    cdef object read(self, const char* data, Py_ssize_t size):
        return PyBytes_FromStringAndSize(data, size)


cdef class Text(Decoder):
    cdef object read(self, const char* data, Py_ssize_t size):
        return PyUnicode_DecodeUTF8(data, size, NULL)


cdef class Ascii(Decoder):
    cdef object read(self, const char* data, Py_ssize_t size):
        return PyUnicode_DecodeASCII(data, size, NULL)


cdef class Boolean(Decoder):
    cdef object read(self, const char* data, Py_ssize_t size):
        if size == 0:
            return None
        if size != 1:
            fail_width(1)
        return data[0] != 0


cdef class Number(Decoder):
    """Reads what ``struct`` unpacks."""

    cdef char code
    cdef Py_ssize_t width

    def __init__(self, str packed):
        self.code = ord(packed[1])
        self.width = calcsize(packed)

    cdef object read(self, const char* data, Py_ssize_t size):
        if size == 0:
            return None
        if size != self.width:
            fail_width(self.width)
        if self.code == c"i":
            return PyLong_FromLong(<int32_t> int_at(data))
        if self.code == c"q":
            return PyLong_FromLongLong(<int64_t> long_at(data))
        if self.code == c"d":
            return PyFloat_FromDouble(double_at(data))
        if self.code == c"f":
            return PyFloat_FromDouble(float_at(data))
        if self.code == c"h":
            return PyLong_FromLong(<int16_t> short_at(data))
        return PyLong_FromLong(<int8_t> data[0])


cdef class Timestamp(Decoder):
    """Reads milliseconds: a datetime in the years 1 to 9999, and otherwise the number."""

    cdef object read(self, const char* data, Py_ssize_t size):
        cdef int64_t ms, day, rest, era, of_era, year_of_era, of_year, part
        if size == 0:
            return None
        if size != 8:
            fail_width(8)
        ms = <int64_t> long_at(data)
        if ms < -62_135_596_800_000 or ms > 253_402_300_799_999:
            return PyLong_FromLongLong(ms)
        # Days are counted from 0000-03-01, so that a leap day ends its year of 365 or 366 days, its four years, its
        # century, and its era of 400 years. All of it is positive from year 1 on.
        ms += 62_162_035_200_000
        day = ms // 86_400_000
        rest = ms % 86_400_000
        era = day // 146_097
        of_era = day % 146_097
        year_of_era = (of_era - of_era // 1_460 + of_era // 36_524 - of_era // 146_096) // 365
        of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
        part = (5 * of_year + 2) // 153  # months from March
        return datetime_new(
            <int> (era * 400 + year_of_era + (part >= 10)),
            <int> (part + 3 if part < 10 else part - 9),
            <int> (of_year - (153 * part + 2) // 5 + 1),
            <int> (rest // 3_600_000),
            <int> (rest // 60_000 % 60),
            <int> (rest // 1_000 % 60),
            <int> (rest % 1_000 * 1_000),
            _UTC,
            0,
        )


cdef class Uuid(Decoder):
    cdef object read(self, const char* data, Py_ssize_t size):
        if size == 0:
            return None
        if size != 16:
            fail_width(16)
        # As UUID.__init__ sets its slots, but without its checks of seven possible arguments.
        made = UUID.__new__(UUID)
        number = (PyLong_FromUnsignedLongLong(long_at(data)) << 64) | PyLong_FromUnsignedLongLong(long_at(data + 8))
        PyObject_GenericSetAttr(made, "int", number)
        PyObject_GenericSetAttr(made, "is_safe", _UNKNOWN)
        return made


cdef class List(Decoder):
    """Reads a collection as a list: of the last of the *parts* cells of each element."""

    cdef Decoder element
    cdef int parts

    def __init__(self, Decoder element not None, int parts=1):
        self.element = element
        self.parts = parts

    cdef object read(self, const char* data, Py_ssize_t size):
        cdef Walk walk
        cdef list found = []
        start(&walk, data, size)
        while walk.at < walk.end:
            for _ in range(self.parts):
                take(&walk)
            found.append(value_of(self.element, walk.cell))
        finish(&walk, self.parts)
        return found


cdef class Set(Decoder):
    """Reads a collection as a set; its elements can be hashed."""

    cdef Decoder element

    def __init__(self, Decoder element not None):
        self.element = element

    cdef object read(self, const char* data, Py_ssize_t size):
        cdef Walk walk
        cdef set found = set()
        start(&walk, data, size)
        while walk.at < walk.end:
            take(&walk)
            found.add(value_of(self.element, walk.cell))
        finish(&walk, 1)
        return found


cdef class Map(Decoder):
    cdef Decoder key
    cdef Decoder item
    cdef bint hashable

    def __init__(self, Decoder key not None, Decoder item not None, bint hashable):
        self.key = key
        self.item = item
        self.hashable = hashable

    cdef object read(self, const char* data, Py_ssize_t size):
        cdef Walk walk
        cdef dict found = {}
        start(&walk, data, size)
        while walk.at < walk.end:
            take(&walk)
            key = value_of(self.key, walk.cell)
            take(&walk)
            found[key if self.hashable else _frozen(key)] = value_of(self.item, walk.cell)
        finish(&walk, 2)
        return found


cdef class Fields(Decoder):
    """Reads a tuple; fields at the end that were added after it was written are None."""

    cdef tuple parts

    def __init__(self, parts):
        cdef Decoder part
        self.parts = tuple(parts)
        for part in self.parts:
            pass  # each is a Decoder

    cdef object read(self, const char* data, Py_ssize_t size):
        cdef const char* at = data
        cdef const char* end = data + size
        cdef Py_ssize_t i = 0
        cdef Py_ssize_t count = len(self.parts)
        cdef Cell cell
        cdef list found = [None] * count
        while at < end:
            if not next_sized(&at, end, &cell):
                fail_within()
            if i < count:
                found[i] = value_of(<Decoder> self.parts[i], cell)
            i += 1
        return self.made(found)

    cdef object made(self, list found):
        return tuple(found)


cdef class Udt(Fields):
    cdef tuple names

    def __init__(self, parts, names):
        super().__init__(parts)
        self.names = tuple(names)

    cdef object made(self, list found):
        return dict(zip(self.names, found))


cdef class Vector(Decoder):
    """Reads elements of *width* bytes, or of any number of bytes (0), which precedes each of them."""

    cdef Decoder element
    cdef Py_ssize_t width

    def __init__(self, Decoder element not None, Py_ssize_t width):
        self.element = element
        self.width = width

    cdef object read(self, const char* data, Py_ssize_t size):
        cdef const char* at = data
        cdef const char* end = data + size
        cdef Cell cell
        cdef list found = []
        if self.width and size % self.width:
            fail_within()
        while at < end:
            if self.width:
                found.append(self.element.read(at, self.width))
                at += self.width
                continue
            if not next_short(&at, end, &cell):
                fail_within()
            found.append(self.element.read(cell.data, cell.size))
        return found


def native_decoder(str form not None, str packed not None, decode):
    """Return the decoder of a row of the registry: of the form that it names, or else one that calls *decode*."""
    if form == "number":
        return Number(packed)
    if form == "":
        return Foreign(decode)
    return {"ascii": Ascii, "blob": Blob, "boolean": Boolean, "text": Text, "timestamp": Timestamp, "uuid": Uuid}[form]()


def container_decoder(str form not None, type_, list parts not None, Py_ssize_t width):
    """Return the decoder of *type_*, whose container has the form, and whose parameters have the decoders *parts*.

    Args:
        width: the size of an element of a vector; 0 if its size precedes each element.
    """
    if form == "list" or form == "set" and not type_.args[0].is_hashable:
        return List(parts[0])
    if form == "log list":
        return List(parts[1], 2)
    if form == "set":
        return Set(parts[0])
    if form == "map":
        return Map(parts[0], parts[1], type_.args[0].is_hashable)
    if form == "vector":
        return Vector(parts[0], width)
    if form == "udt":
        return Udt(parts, type_.fields)
    if form == "tuple":
        return Fields(parts)
    raise ValueError(f"no compiled form is called {form!r}")
