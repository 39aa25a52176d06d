# cython: language_level=3, boundscheck=False, wraparound=False
"""Values of cells, compiled; see ``natives``, ``containers``, ``cells``, and ``arrow`` for the twins in Python.

A cell is never read beyond its size: each size within a cell is held against what is left of it. Nothing here keeps
state that changes, so all of it may be used from several threads.
"""

from cython cimport cdivision
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.datetime cimport datetime_new, import_datetime
from cpython.float cimport PyFloat_FromDouble
from cpython.long cimport PyLong_FromLong, PyLong_FromLongLong
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_New
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from cpython.unicode cimport PyUnicode_DecodeASCII, PyUnicode_DecodeUTF8
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int8_t, int16_t, int32_t, int64_t
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from .wire cimport int_at, put_uuid, uint_at, ulong_at, ushort_at

from collections.abc import Sequence
from datetime import timezone
from struct import calcsize
from uuid import UUID, SafeUUID

from .._integers import format_int
from .containers import _frozen
from .moments import FarTime

cdef extern from "Python.h":
    int PyObject_GenericSetAttr(object, object, object) except -1
    object PyType_GenericAlloc(type, Py_ssize_t)

cdef extern from *:
    """
    typedef unsigned __int128 rscylla_uint128;
    """
    ctypedef unsigned long long uint128_t "rscylla_uint128"  # Cython knows its size from the compiler

cdef extern from *:
    """
    #ifndef SUM_OF_SOURCES
    #define SUM_OF_SOURCES 0
    #endif
    """
    const unsigned int BUILT_FROM "SUM_OF_SOURCES"

SUM_OF_SOURCES = BUILT_FROM  # see ``rscylla._decoder``

import_datetime()

cdef object _UTC = timezone.utc
cdef object _FAR_TIME = FarTime
cdef type _UUID = UUID
cdef object _UNKNOWN = SafeUUID.unknown


# ---------------------------------------------------------------- cells


cdef class Cells:
    """The undecoded cells of one column, where they lie. A ``Sequence[bytes | None]``.

    Subclasses keep what the cells point into. They are immutable once they are made, and need no lock.
    """

    def __dealloc__(self):
        PyMem_Free(self.cells)

    cdef int reserve(self, Py_ssize_t count) except -1:
        """Make room for so many cells, all of which the caller has to set. Called once."""
        self.cells = <Cell*> PyMem_Malloc(max(count, 1) * sizeof(Cell))
        if self.cells == NULL:
            raise MemoryError
        self.count = count
        return 0

    def __len__(self):
        return self.count

    def __getitem__(self, Py_ssize_t i):
        if i < 0:
            i += self.count
        if i < 0 or i >= self.count:
            raise IndexError("no such cell")
        return None if self.cells == NULL else as_bytes(self.cells[i])

    def __iter__(self):
        cdef Py_ssize_t i
        for i in range(self.count):
            yield None if self.cells == NULL else as_bytes(self.cells[i])


Sequence.register(Cells)


cdef class CellList(Cells):
    """Cells that are ``bytes`` already."""

    cdef tuple kept

    def __cinit__(self, cells):
        cdef Py_ssize_t i, size
        cdef object cell
        self.kept = tuple(cells)
        self.reserve(len(self.kept))
        for i in range(self.count):
            cell = self.kept[i]
            if cell is None:
                self.cells[i].data = NULL
                self.cells[i].size = -1
                continue
            if type(cell) is not bytes:
                raise TypeError(f"a cell is bytes or None, and not {type(cell).__name__}")
            size = PyBytes_GET_SIZE(cell)
            if size > INT32_MAX:
                raise ValueError("a cell is longer than the protocol allows")
            self.cells[i].data = PyBytes_AS_STRING(cell)
            self.cells[i].size = <int32_t> size


cdef inline object as_bytes(Cell cell):
    return None if cell.size < 0 else PyBytes_FromStringAndSize(cell.data, cell.size)


cdef inline float float_at(const char* p) noexcept nogil:
    cdef uint32_t bits = uint_at(p)
    cdef float value
    memcpy(&value, &bits, 4)
    return value


cdef inline double double_at(const char* p) noexcept nogil:
    cdef uint64_t bits = ulong_at(p)
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
    size = int_at(at[0])
    at[0] += 4
    if size < 0:
        return True
    if end - at[0] < size:
        return False
    cell.data = at[0]
    cell.size = size
    at[0] += size
    return True


cdef inline bint next_vint(const char** at, const char* end, uint64_t* value) noexcept nogil:
    """Take the unsigned vint that begins at *at*; return whether it ends before *end*.

    Leading ones of the first byte count the bytes that follow.
    """
    cdef uint8_t lead
    cdef int more = 0
    cdef int i
    value[0] = 0
    if end - at[0] < 1:
        return False
    lead = <uint8_t> at[0][0]
    while more < 8 and lead & (0x80 >> more):
        more += 1
    if end - at[0] <= more:
        return False
    value[0] = lead & (0xFF >> (more + 1)) if more < 8 else 0
    for i in range(1, more + 1):
        value[0] = (value[0] << 8) | <uint8_t> at[0][i]
    at[0] += more + 1
    return True


cdef inline bint next_short(const char** at, const char* end, Cell* cell) noexcept nogil:
    """Take the cell that begins at *at* with its size as a vint; return whether it ends before *end*."""
    cdef uint64_t size
    cell.data = NULL
    cell.size = -1
    if not next_vint(at, end, &size) or size > <uint64_t> (end - at[0]):
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


cdef int fail_elements() except -1 with gil:
    raise ValueError("a vector has another number of elements than its type")


cdef int fail_count() except -1 with gil:
    raise ValueError("a collection holds another number of elements than it says")


cdef struct Walk:  # over the cells of a collection
    const char* at
    const char* end
    int64_t said  # elements, as the collection says
    int64_t taken  # cells
    Cell cell  # the last that was taken


cdef inline int start(Walk* walk, const char* data, Py_ssize_t size) except -1 nogil:
    """Begin a walk. Empty bytes are an empty collection."""
    if 0 < size < 4:
        fail_within()
    walk.said = int_at(data) if size else 0
    walk.taken = 0
    walk.cell.data = NULL
    walk.cell.size = -1
    walk.at = data + 4 if size else data
    walk.end = data + size
    return 0


cdef inline int take(Walk* walk) except -1 nogil:
    if walk.at == walk.end:
        fail_count()
    if not next_sized(&walk.at, walk.end, &walk.cell):
        fail_within()
    walk.taken += 1
    return 0


cdef inline int finish(Walk* walk, int parts) except -1 nogil:
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

    def __init__(self, str packed):
        self.code = ord(packed[1])
        self.width = calcsize(packed)

    cdef object read(self, const char* data, Py_ssize_t size):
        if size == 0:
            return None
        if size != self.width:
            fail_width(self.width)
        if self.code == c"i":
            return PyLong_FromLong(int_at(data))
        if self.code == c"q":
            return PyLong_FromLongLong(<int64_t> ulong_at(data))
        if self.code == c"d":
            return PyFloat_FromDouble(double_at(data))
        if self.code == c"f":
            return PyFloat_FromDouble(float_at(data))
        if self.code == c"h":
            return PyLong_FromLong(<int16_t> ushort_at(data))
        return PyLong_FromLong(<int8_t> data[0])


cdef class Timestamp(Decoder):
    """Reads milliseconds: a datetime in the years 1 to 9999, and otherwise a ``FarTime``."""

    @cdivision(True)
    cdef object read(self, const char* data, Py_ssize_t size):
        cdef int64_t ms, day, rest, era, of_era, year_of_era, of_year, part
        if size == 0:
            return None
        if size != 8:
            fail_width(8)
        ms = <int64_t> ulong_at(data)
        if ms < -62_135_596_800_000 or ms > 253_402_300_799_999:
            return _FAR_TIME(ms)
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
        cdef uint128_t number
        if size == 0:
            return None
        if size != 16:
            fail_width(16)
        # As UUID.__init__ sets its slots, but without its checks of seven possible arguments.
        made = PyType_GenericAlloc(_UUID, 0)
        number = ulong_at(data)
        number = number << 64
        number = number | ulong_at(data + 8)
        PyObject_GenericSetAttr(made, "int", number)
        PyObject_GenericSetAttr(made, "is_safe", _UNKNOWN)
        return made


cdef class UuidText(Decoder):
    cdef object read(self, const char* data, Py_ssize_t size):
        cdef char text[36]
        if size == 0:
            return None
        if size != 16:
            fail_width(16)
        put_uuid(text, data)
        return PyUnicode_DecodeASCII(text, 36, NULL)


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
        self.parts = tuple(parts)
        for part in self.parts:
            if not isinstance(part, Decoder):
                raise TypeError(f"a field is read by a Decoder, and not by {type(part).__name__}")

    cdef object read(self, const char* data, Py_ssize_t size):
        cdef const char* at = data
        cdef const char* end = data + size
        cdef Py_ssize_t i = 0
        cdef Py_ssize_t count = len(self.parts)
        cdef Cell cell
        cdef object value
        cdef tuple found = PyTuple_New(count)
        while at < end:
            if not next_sized(&at, end, &cell):
                fail_within()
            if i < count:
                value = value_of(<Decoder> self.parts[i], cell)
                Py_INCREF(value)
                PyTuple_SET_ITEM(found, i, value)
                i += 1
        for i in range(i, count):
            Py_INCREF(None)
            PyTuple_SET_ITEM(found, i, None)
        return found


cdef class Udt(Fields):
    cdef tuple names

    def __init__(self, parts, names):
        super().__init__(parts)
        self.names = tuple(names)

    cdef object read(self, const char* data, Py_ssize_t size):
        return dict(zip(self.names, <tuple> Fields.read(self, data, size)))


cdef dict _NATIVES = {
    "ascii": Ascii, "blob": Blob, "boolean": Boolean, "text": Text, "timestamp": Timestamp, "uuid": Uuid,
}

uuid_text = UuidText()


def native_decoder(leaf):
    """Return the decoder of a row of the registry: of the form that it names, or else one that calls its own."""
    if leaf.compiled == "number":
        return Number(leaf.packed)
    return _NATIVES[leaf.compiled]() if leaf.compiled else Foreign(leaf.decode)


def container_decoder(row, type_, list parts not None):
    """Return the decoder of *type_*, of a container of the registry, whose parameters have the decoders *parts*.

    That of a vector is in Python: ``struct`` unpacks its numbers as fast.
    """
    cdef str form = row.name
    if form == "list" or form == "set" and not type_.args[0].is_hashable:
        return List(parts[0])
    if form == "log list":
        return List(parts[1], 2)
    if form == "set":
        return Set(parts[0])
    if form == "map":
        return Map(parts[0], parts[1], type_.args[0].is_hashable)
    if form == "udt":
        return Udt(parts, type_.fields)
    if form == "tuple":
        return Fields(parts)
    return Foreign(row.decode(type_, parts))


# ---------------------------------------------------------------- columns as Arrow

# Source: the Arrow C data interface, arrow.apache.org/docs/format/CDataInterface.html. The schema is pyarrow's own.

cdef struct ArrowArray:
    int64_t length
    int64_t null_count
    int64_t offset
    int64_t n_buffers
    int64_t n_children
    const void** buffers
    ArrowArray** children
    ArrowArray* dictionary
    void (*release)(ArrowArray*) noexcept nogil
    void* private_data


cdef enum Form:
    BINARY
    BOOLEAN
    DATE
    DURATION
    LIST
    LOG_LIST
    MAP
    NUMBER
    SHOWN
    DECIMAL
    STRUCT
    TEXT
    TIMESTAMP
    UUID_TEXT
    VECTOR


cdef enum Beyond:
    AS_NULL
    AS_ERROR
    AS_BOUND


cdef struct Conversion:  # how cells of one type become an Arrow array
    Form form
    Py_ssize_t width  # of a number, or of an element of a vector; 0 if its size precedes each element
    Py_ssize_t elements  # of a vector
    Beyond beyond
    bint loose
    int count
    Conversion* children
    void* shown  # the Decoder of values that are shown as text, or of 16 bytes of a decimal


cdef dict _FORMS = {
    "binary": BINARY,
    "boolean": BOOLEAN,
    "date": DATE,
    "duration": DURATION,
    "list": LIST,
    "log list": LOG_LIST,
    "map": MAP,
    "number": NUMBER,
    "shown": SHOWN,
    "decimal": DECIMAL,
    "struct": STRUCT,
    "text": TEXT,
    "timestamp": TIMESTAMP,
    "uuid": UUID_TEXT,
    "vector": VECTOR,
}
cdef dict _BEYOND = {"null": AS_NULL, "raise": AS_ERROR, "bound": AS_BOUND}

cdef extern from *:
    """
    #define MOST_MS INT64_C(9223372036854775)
    """
    const int64_t MOST_MS  # of a timestamp of Arrow, either way from 1970


cdef class ArrowBuilder:
    """Makes Arrow arrays of the cells of columns of one type, as what ``arrow.builder_for`` returns does.

    Args:
        form: a key of ``rscylla.types.arrow.FORMS``.
        width: of a number, or of an element of a vector; 0 if its size precedes each element.
        elements: of a vector, how many there are.
        parts: the same for the types within the type, as far as they become Arrow.
        decoder: of values that are shown as text; of a decimal, it returns the 16 bytes that Arrow has.
    """

    cdef Conversion how
    cdef tuple parts
    cdef Decoder decoder

    def __cinit__(
        self,
        str form not None,
        Py_ssize_t width,
        Py_ssize_t elements,
        parts,
        str beyond not None,
        bint loose,
        decoder,
    ):
        cdef Py_ssize_t i
        self.parts = tuple(parts)
        self.decoder = decoder if decoder is None or isinstance(decoder, Decoder) else Foreign(decoder)
        self.how.form = _FORMS[form]
        self.how.width = width
        self.how.elements = elements
        self.how.beyond = _BEYOND[beyond]
        self.how.loose = loose
        self.how.shown = <void*> self.decoder
        self.how.count = 0
        self.how.children = <Conversion*> PyMem_Malloc(max(len(self.parts), 1) * sizeof(Conversion))
        if self.how.children == NULL:
            raise MemoryError
        for i in range(len(self.parts)):
            self.how.children[i] = (<ArrowBuilder?> self.parts[i]).how
        self.how.count = <int> len(self.parts)
        if self.how.count < {LIST: 1, LOG_LIST: 1, MAP: 2, VECTOR: 1}.get(self.how.form, 0):
            raise ValueError(f"{form} lacks the types of its parts")

    def __dealloc__(self):
        PyMem_Free(self.how.children)

    def build(self, cells, target):
        """Return a column of the Arrow type *target*, to be given to ``pyarrow.array``; None if all cells are null."""
        cdef Cells column = cells if isinstance(cells, Cells) else CellList(cells)
        cdef Py_ssize_t i = 0
        cdef Scratch scratch
        cdef ArrowColumn made = ArrowColumn.__new__(ArrowColumn)
        made.target = target
        scratch.last = NULL
        if column.cells == NULL:
            return None
        with nogil:
            while i < column.count and column.cells[i].size < 0:
                i += 1
            if i < column.count:
                try:
                    fill(&self.how, column.cells, column.count, &made.array, &scratch)
                finally:
                    give_back(&scratch)
        return None if i == column.count else made


cdef class ArrowColumn:
    """An Arrow array that was made here, until pyarrow takes it."""

    cdef ArrowArray array
    cdef object target

    def __dealloc__(self):
        if self.array.release != NULL:
            self.array.release(&self.array)

    def __arrow_c_array__(self, requested_schema=None):
        cdef ArrowArray* moved
        if self.array.release == NULL:
            raise ValueError("the column was taken already")
        schema = self.target.__arrow_c_schema__()
        moved = <ArrowArray*> malloc(sizeof(ArrowArray))
        if moved == NULL:
            raise MemoryError
        moved[0] = self.array
        self.array.release = NULL
        return schema, PyCapsule_New(moved, "arrow_array", &drop_capsule)


cdef void drop_capsule(object capsule) noexcept:
    cdef ArrowArray* array = <ArrowArray*> PyCapsule_GetPointer(capsule, "arrow_array")
    if array.release != NULL:  # pyarrow has not taken it
        array.release(array)
    free(array)


# Memory: what a column needs only while it is made is scratch; the rest belongs to its arrays, which release it.


cdef struct Scratch:
    void** last  # each block begins with the address of the one before


cdef void* borrow(Scratch* scratch, size_t size) except NULL nogil:
    """Return memory that ``give_back`` frees."""
    cdef void** block = <void**> malloc(size + sizeof(Cell))
    if block == NULL:
        fail_memory()
    block[0] = scratch.last
    scratch.last = block
    return <char*> block + sizeof(Cell)


cdef void give_back(Scratch* scratch) noexcept nogil:
    cdef void** block
    while scratch.last != NULL:
        block = scratch.last
        scratch.last = <void**> block[0]
        free(block)


cdef int prepare(ArrowArray* array, int64_t length, int buffers, int children) except -1 nogil:
    """Make *array* one of *length* without nulls. What fails later leaves it such that its release frees all of it."""
    cdef int i
    memset(array, 0, sizeof(ArrowArray))
    array.buffers = <const void**> calloc(buffers, sizeof(void*))
    array.children = <ArrowArray**> calloc(max(children, 1), sizeof(ArrowArray*))
    array.release = &release
    if array.buffers == NULL or array.children == NULL:
        fail_memory()
    array.length = length
    array.n_buffers = buffers
    for i in range(children):
        array.children[i] = <ArrowArray*> calloc(1, sizeof(ArrowArray))
        if array.children[i] == NULL:
            fail_memory()
        array.n_children += 1
    return 0


cdef void release(ArrowArray* array) noexcept nogil:
    cdef int64_t i
    for i in range(array.n_buffers):
        free(<void*> array.buffers[i])
    for i in range(array.n_children):
        if array.children[i].release != NULL:
            array.children[i].release(array.children[i])
        free(array.children[i])
    free(array.buffers)
    free(array.children)
    array.release = NULL


cdef void* room(ArrowArray* array, int which, int64_t size) except NULL nogil:
    """Return a new buffer of *array* for *size* bytes, which are not set; whole words, of which the last is zero."""
    cdef int64_t words = size // 8 + 1
    cdef uint64_t* made = <uint64_t*> malloc(words * 8)
    if made == NULL:
        fail_memory()
    made[words - 1] = 0
    array.buffers[which] = made
    return made


cdef int set_null(ArrowArray* array, int64_t i) except -1 nogil:
    """Mark value *i* as null. An array without nulls has no marks."""
    cdef uint8_t* marks = <uint8_t*> array.buffers[0]
    if marks == NULL:
        marks = <uint8_t*> room(array, 0, (array.length + 7) // 8)
        memset(marks, 0xFF, (array.length + 7) // 8)
    marks[i >> 3] &= <uint8_t> ~(1 << (i & 7))
    array.null_count += 1
    return 0


cdef int fail_memory() except -1 with gil:
    raise MemoryError


cdef int fail_offsets() except -1 with gil:
    raise OverflowError("a column has more than the 2 GiB, or two billion elements, that Arrow's lists and texts reach")


cdef int fail_text() except -1 with gil:
    raise ValueError("a text is not UTF-8")


cdef int fail_key() except -1 with gil:
    raise ValueError("a map has a null as a key, which Arrow does not hold")


cdef int fail_timestamp() except -1 with gil:
    raise OverflowError("a timestamp is beyond what Arrow can hold")


cdef int fail_duration() except -1 with gil:
    raise ValueError("a cell does not hold a duration")


# Each of the following fills *array*, which is zeroed, with the *n* values of *cells*.


cdef int fill(const Conversion* how, const Cell* cells, int64_t n, ArrowArray* array, Scratch* scratch) except -1 nogil:
    if how.form == NUMBER:
        return fill_numbers(cells, n, array, how.width)
    if how.form == TEXT or how.form == BINARY:
        return fill_texts(cells, n, array, how.form == TEXT)
    if how.form == BOOLEAN:
        return fill_booleans(cells, n, array)
    if how.form == TIMESTAMP:
        return fill_timestamps(cells, n, array, how.beyond)
    if how.form == DATE:
        return fill_dates(cells, n, array)
    if how.form == UUID_TEXT:
        return fill_uuids(cells, n, array)
    if how.form == DURATION:
        return fill_durations(cells, n, array)
    if how.form == SHOWN:
        return fill_shown(how, cells, n, array)
    if how.form == DECIMAL:
        return fill_decimals(how, cells, n, array)
    if how.form == STRUCT:
        return fill_struct(how, cells, n, array, scratch)
    return fill_lists(how, cells, n, array, scratch)


cdef int fill_numbers(const Cell* cells, int64_t n, ArrowArray* array, Py_ssize_t width) except -1 nogil:
    """Whole numbers and floating-point ones differ in nothing but the order of their bytes from what Arrow has."""
    cdef char* values
    cdef int64_t i
    prepare(array, n, 2, 0)
    values = <char*> room(array, 1, n * width)
    for i in range(n):
        if cells[i].size == width:
            if width == 4:
                (<uint32_t*> values)[i] = uint_at(cells[i].data)
            elif width == 8:
                (<uint64_t*> values)[i] = ulong_at(cells[i].data)
            elif width == 2:
                (<uint16_t*> values)[i] = ushort_at(cells[i].data)
            else:
                values[i] = cells[i].data[0]
            continue
        if cells[i].size > 0:
            fail_width(width)
        memset(values + i * width, 0, width)
        set_null(array, i)
    return 0


cdef int fill_booleans(const Cell* cells, int64_t n, ArrowArray* array) except -1 nogil:
    cdef uint8_t* values
    cdef int64_t i
    prepare(array, n, 2, 0)
    values = <uint8_t*> room(array, 1, (n + 7) // 8)
    memset(values, 0, (n + 7) // 8)
    for i in range(n):
        if cells[i].size > 1:
            fail_width(1)
        if cells[i].size <= 0:
            set_null(array, i)
        elif cells[i].data[0] != 0:
            values[i >> 3] |= <uint8_t> (1 << (i & 7))
    return 0


cdef int fill_timestamps(const Cell* cells, int64_t n, ArrowArray* array, Beyond beyond) except -1 nogil:
    cdef int64_t* values
    cdef int64_t i, ms
    prepare(array, n, 2, 0)
    values = <int64_t*> room(array, 1, n * 8)
    for i in range(n):
        values[i] = 0
        if cells[i].size <= 0:
            set_null(array, i)
            continue
        if cells[i].size != 8:
            fail_width(8)
        ms = <int64_t> ulong_at(cells[i].data)
        if -MOST_MS <= ms <= MOST_MS:
            values[i] = ms * 1000
        elif beyond == AS_BOUND:
            values[i] = INT64_MAX if ms > 0 else INT64_MIN
        elif beyond == AS_NULL:
            set_null(array, i)
        else:
            fail_timestamp()
    return 0


cdef int fill_dates(const Cell* cells, int64_t n, ArrowArray* array) except -1 nogil:
    """The day 1970-01-01 is 2**31 for the database."""
    cdef uint32_t* values
    cdef int64_t i
    prepare(array, n, 2, 0)
    values = <uint32_t*> room(array, 1, n * 4)
    for i in range(n):
        values[i] = 0
        if cells[i].size <= 0:
            set_null(array, i)
        elif cells[i].size == 4:
            values[i] = uint_at(cells[i].data) ^ <uint32_t> 0x80000000
        else:
            fail_width(4)
    return 0


cdef int fill_texts(const Cell* cells, int64_t n, ArrowArray* array, bint is_text) except -1 nogil:
    """Empty text and an empty blob are values."""
    cdef int32_t* offsets
    cdef char* data
    cdef int64_t i, total
    prepare(array, n, 3, 0)
    total = fill_offsets(NULL, cells, n, array)
    offsets = <int32_t*> array.buffers[1]
    data = <char*> room(array, 2, total)
    for i in range(n):
        if cells[i].size > 0:
            memcpy(data + offsets[i], cells[i].data, cells[i].size)
    if is_text and not is_ascii(data, total):
        for i in range(n):
            if not is_utf8(data + offsets[i], data + offsets[i + 1]):
                fail_text()
    return 0


cdef inline int64_t fill_offsets(const Conversion* how, const Cell* cells, int64_t n, ArrowArray* array) except -1 nogil:
    """Set where each value begins: by its bytes (*how* is NULL), or by its elements. Return where the last one ends."""
    cdef int32_t* offsets = <int32_t*> room(array, 1, (n + 1) * 4)
    cdef int64_t i
    cdef int64_t total = 0
    for i in range(n):
        offsets[i] = <int32_t> total
        if cells[i].size < 0:
            set_null(array, i)
            continue
        total += cells[i].size if how == NULL else elements_in(how, cells[i])
        if total > INT32_MAX:
            fail_offsets()
    offsets[n] = <int32_t> total
    return total


cdef bint is_ascii(const char* data, int64_t size) noexcept nogil:
    """Whether no byte has its high bit set."""
    cdef int64_t i
    cdef uint64_t high = 0
    cdef uint64_t word
    for i in range(size // 8):
        memcpy(&word, data + 8 * i, 8)
        high |= word
    for i in range(size // 8 * 8, size):
        high |= <uint8_t> data[i]
    return not high & <uint64_t> 0x8080808080808080


cdef bint is_utf8(const char* data, const char* end) noexcept nogil:
    """Whether the bytes are UTF-8, by table 3-7 of the Unicode standard: shortest forms only, and no surrogates."""
    cdef const uint8_t* at = <const uint8_t*> data
    cdef const uint8_t* stop = <const uint8_t*> end
    cdef uint8_t lead
    cdef uint8_t low, high
    cdef int more
    while at < stop:
        lead = at[0]
        at += 1
        if lead < 0x80:
            continue
        low = 0x80  # bounds of the second byte
        high = 0xBF
        if 0xC2 <= lead <= 0xDF:
            more = 1
        elif 0xE0 <= lead <= 0xEF:
            more = 2
            if lead == 0xE0:
                low = 0xA0
            elif lead == 0xED:
                high = 0x9F
        elif 0xF0 <= lead <= 0xF4:
            more = 3
            if lead == 0xF0:
                low = 0x90
            elif lead == 0xF4:
                high = 0x8F
        else:
            return False
        if stop - at < more or at[0] < low or at[0] > high:
            return False
        at += 1
        while more > 1:
            if at[0] & 0xC0 != 0x80:
                return False
            at += 1
            more -= 1
    return True


cdef int fill_uuids(const Cell* cells, int64_t n, ArrowArray* array) except -1 nogil:
    """Their text: 8, 4, 4, 4, and 12 digits."""
    cdef int32_t* offsets
    cdef char* at
    cdef char* data
    cdef int64_t i
    prepare(array, n, 3, 0)
    if n > INT32_MAX // 36:
        fail_offsets()
    offsets = <int32_t*> room(array, 1, (n + 1) * 4)
    data = <char*> room(array, 2, n * 36)
    at = data
    for i in range(n):
        offsets[i] = <int32_t> (at - data)
        if cells[i].size <= 0:
            set_null(array, i)
            continue
        if cells[i].size != 16:
            fail_width(16)
        at = put_uuid(at, cells[i].data)
    offsets[n] = <int32_t> (at - data)
    return 0


cdef int fill_durations(const Cell* cells, int64_t n, ArrowArray* array) except -1 nogil:
    """Months, days, and nanoseconds: three signed vints."""
    cdef int32_t* months
    cdef int32_t* days
    cdef int64_t* nanoseconds
    cdef int64_t parts[3]
    cdef uint64_t zigzag
    cdef const char* at
    cdef const char* end
    cdef int64_t i
    cdef int j
    prepare(array, n, 1, 3)
    for j in range(3):
        prepare(array.children[j], n, 2, 0)
    months = <int32_t*> room(array.children[0], 1, n * 4)
    days = <int32_t*> room(array.children[1], 1, n * 4)
    nanoseconds = <int64_t*> room(array.children[2], 1, n * 8)
    for i in range(n):
        memset(parts, 0, sizeof(parts))
        if cells[i].size <= 0:
            set_null(array, i)
        else:
            at = cells[i].data
            end = at + cells[i].size
            for j in range(3):
                if not next_vint(&at, end, &zigzag):
                    fail_duration()
                parts[j] = <int64_t> ((zigzag >> 1) ^ (0 - (zigzag & 1)))
            if at != end or parts[0] != <int32_t> parts[0] or parts[1] != <int32_t> parts[1]:
                fail_duration()
        months[i] = <int32_t> parts[0]
        days[i] = <int32_t> parts[1]
        nanoseconds[i] = parts[2]
    return 0


cdef int fill_shown(const Conversion* how, const Cell* cells, int64_t n, ArrowArray* array) except -1 with gil:
    """The text that Python has for a value: these types have no bound, and Python's numbers have none."""
    cdef Decoder decoder = <Decoder> how.shown
    cdef list texts = []
    cdef int64_t i
    cdef CellList column
    for i in range(n):
        value = value_of(decoder, cells[i])
        if value is not None:
            value = (format_int(value) if isinstance(value, int) else str(value)).encode()
        texts.append(value)
    column = CellList(texts)
    return fill_texts(column.cells, n, array, False)


cdef int fill_decimals(const Conversion* how, const Cell* cells, int64_t n, ArrowArray* array) except -1 with gil:
    """Numbers of up to 38 digits. Python reads them: the numbers that they are read from have no bound."""
    cdef Decoder decoder = <Decoder> how.shown
    cdef int64_t i
    cdef char* into
    cdef bytes value
    prepare(array, n, 2, 0)
    into = <char*> room(array, 1, 16 * n)
    for i in range(n):
        value = value_of(decoder, cells[i])
        if value is None:
            memset(into + 16 * i, 0, 16)
            set_null(array, i)
        else:
            memcpy(into + 16 * i, <const char*> value, 16)
    return 0


cdef int fill_struct(const Conversion* how, const Cell* cells, int64_t n, ArrowArray* array, Scratch* scratch) except -1 nogil:
    cdef Cell* fields = <Cell*> borrow(scratch, n * how.count * sizeof(Cell))  # column by column
    cdef Cell field
    cdef const char* at
    cdef const char* end
    cdef int64_t i
    cdef int j
    cdef bint is_null
    prepare(array, n, 1, how.count)
    for i in range(n):
        is_null = cells[i].size < 0 or how.loose
        for j in range(how.count):
            fields[j * n + i].data = NULL
            fields[j * n + i].size = -1
        if cells[i].size > 0:
            at = cells[i].data
            end = at + cells[i].size
            j = 0
            while at < end:
                if not next_sized(&at, end, &field):
                    fail_within()
                if j < how.count:
                    fields[j * n + i] = field
                    is_null = is_null and field.size < 0
                    j += 1
        if is_null:
            set_null(array, i)
    for j in range(how.count):
        fill(&how.children[j], fields + j * n, n, array.children[j], scratch)
    return 0


cdef int fill_lists(const Conversion* how, const Cell* cells, int64_t n, ArrowArray* array, Scratch* scratch) except -1 nogil:
    """Lists, sets, vectors, and maps, whose entries are a struct of key and value."""
    cdef int32_t* offsets
    cdef Cell* keys = NULL
    cdef Cell* items
    cdef int64_t i, total
    prepare(array, n, 2, 1)
    total = fill_offsets(how, cells, n, array)
    offsets = <int32_t*> array.buffers[1]
    items = <Cell*> borrow(scratch, total * sizeof(Cell))
    if how.form == MAP:
        keys = <Cell*> borrow(scratch, total * sizeof(Cell))
    for i in range(n):
        if cells[i].size > 0:
            split(how, cells[i], NULL if keys == NULL else keys + offsets[i], items + offsets[i])
    if keys == NULL:
        return fill(&how.children[0], items, total, array.children[0], scratch)
    prepare(array.children[0], total, 1, 2)
    fill(&how.children[0], keys, total, array.children[0].children[0], scratch)
    if array.children[0].children[0].null_count:
        fail_key()
    return fill(&how.children[1], items, total, array.children[0].children[1], scratch)


cdef int64_t elements_in(const Conversion* how, Cell cell) except -1 nogil:
    """Return how many elements a collection or vector has, which is no more than its bytes can hold."""
    cdef Walk walk
    cdef int64_t count = 0
    if how.form != VECTOR:
        start(&walk, cell.data, cell.size)
        if walk.said < 0 or walk.said * 4 > walk.end - walk.at:
            fail_count()
        return walk.said
    if cell.size == 0:
        return 0
    if how.width:
        if cell.size != how.elements * how.width:
            fail_elements()
        return how.elements
    walk.at = cell.data
    walk.end = cell.data + cell.size
    while walk.at < walk.end:
        if not next_short(&walk.at, walk.end, &walk.cell):
            fail_within()
        count += 1
    if count != how.elements:
        fail_elements()
    return count


cdef int split(const Conversion* how, Cell cell, Cell* keys, Cell* items) except -1 nogil:
    """Set the items of a collection or vector that has bytes, and the keys of a map."""
    cdef Walk walk
    cdef int64_t i = 0
    cdef int parts = 1 if how.form == LIST else 2
    if how.form != VECTOR:
        start(&walk, cell.data, cell.size)
        for i in range(walk.said):
            take(&walk)
            if keys != NULL:
                keys[i] = walk.cell
            if parts == 2:
                take(&walk)
            items[i] = walk.cell
        if walk.at != walk.end:
            fail_count()
        return 0
    walk.at = cell.data
    walk.end = cell.data + cell.size
    while walk.at < walk.end:
        if how.width:
            items[i].data = walk.at
            items[i].size = <int32_t> how.width
            walk.at += how.width
        else:
            next_short(&walk.at, walk.end, &items[i])
        i += 1
    return 0
