# cython: language_level=3, boundscheck=False, wraparound=False, nonecheck=True
"""The compiled decoder of log pages: the rows of a window, and their events.

Its twins in Python are ``rows.LogRows`` and ``events.ChangeEvent``, which say what everything means. A row stays in the
bytes of its page until its event is made. An event has a copy of the bytes of its row, so that it does not keep a page
in memory, and decodes them when it is asked.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Calloc, PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from cpython cimport array
from libc.stdint cimport INT32_MAX, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport qsort
from libc.string cimport memcmp, memcpy, memset

from rscylla.types.compiled cimport Cell, Cells, Decoder
from rscylla.types.wire cimport EPOCH_TICKS, int_at, put_hex, put_uuid, ticks_at, uint_at, ulong_at

from array import array as new_array

from rscylla.errors import MalformedData

cdef extern from "Python.h":
    object PyUnicode_New(Py_ssize_t size, Py_UCS4 maxchar)
    void* PyUnicode_DATA(object text)
    void PyObject_GC_UnTrack(void* op)
    ctypedef struct PyTypeObject:
        object tp_new(PyTypeObject*, object, void*)


cdef extern from *:
    """
    #ifndef SUM_OF_SOURCES
    #define SUM_OF_SOURCES 0
    #endif
    """
    const unsigned int BUILT_FROM "SUM_OF_SOURCES"

SUM_OF_SOURCES = BUILT_FROM  # see ``rscylla._decoder``


cdef inline void put_ulong(char* p, uint64_t value) noexcept nogil:
    cdef int i
    for i in range(8):
        p[i] = <char> (value >> (56 - 8 * i))


cdef inline void put_uint(char* p, uint32_t value) noexcept nogil:
    cdef int i
    for i in range(4):
        p[i] = <char> (value >> (24 - 8 * i))


cdef inline Cell cell_at(const char* row, Py_ssize_t column) noexcept nogil:
    """Return a cell of a row that has been checked."""
    cdef Cell cell
    cdef int32_t size
    while True:
        size = int_at(row)
        if column == 0:
            cell.data = row + 4
            cell.size = size
            return cell
        row += 4 if size < 0 else 4 + size
        column -= 1


cdef inline object bytes_of(Cell cell):
    return None if cell.size < 0 else PyBytes_FromStringAndSize(cell.data, cell.size)


cdef tuple cells_of(const char* row, Py_ssize_t columns):
    """Return the cells of a row that has been checked."""
    cdef tuple cells = PyTuple_New(columns)
    cdef Py_ssize_t i
    cdef int32_t size
    cdef object cell
    for i in range(columns):
        size = int_at(row)
        row += 4
        if size < 0:
            cell = None
        else:
            cell = PyBytes_FromStringAndSize(row, size)
            row += size
        Py_INCREF(cell)
        PyTuple_SET_ITEM(cells, i, cell)
    return cells


cdef inline Py_ssize_t row_size(const char* row, const char* end, Py_ssize_t columns) noexcept nogil:
    """Return the bytes of a row; -1 if it does not end before *end*."""
    cdef const char* at = row
    cdef Py_ssize_t i
    cdef int32_t size
    for i in range(columns):
        if end - at < 4:
            return -1
        size = int_at(at)
        at += 4
        if size > 0:
            if end - at < size:
                return -1
            at += size
    return at - row


cdef int32_t count_of(bytes body, Py_ssize_t offset, Py_ssize_t columns) except -1:
    """Return the number of rows of a page. Raises ``ValueError`` if it cannot hold so many."""
    cdef Py_ssize_t left = PyBytes_GET_SIZE(body) - offset - 4
    cdef int32_t count
    if offset < 0 or left < 0:
        raise ValueError(_CUT_SHORT)
    count = int_at(PyBytes_AS_STRING(body) + offset)
    if count < 0 or (columns and left // (4 * columns) < count):
        raise ValueError(_CUT_SHORT)
    return count


_CUT_SHORT = "the page ends within a row"
_BAD_ROW = (
    "a row ends too early, lacks its time, stream id or sequence number, or has an operation or TTL of a wrong size"
)


def split_rows(bytes body not None, Py_ssize_t offset, Py_ssize_t columns):
    """Return the rows of a page as tuples of undecoded cells, None for null.

    Raises:
        ValueError: the page ends within a row.
    """
    cdef int32_t count = count_of(body, offset, columns)
    cdef const char* at = PyBytes_AS_STRING(body) + offset + 4
    cdef const char* end = PyBytes_AS_STRING(body) + PyBytes_GET_SIZE(body)
    cdef Py_ssize_t i, size
    cdef list rows = []
    for i in range(count):
        size = row_size(at, end, columns)
        if size < 0:
            raise ValueError(_CUT_SHORT)
        rows.append(cells_of(at, columns))
        at += size
    return rows


# ---------------------------------------------------------------- tokens


cdef inline uint64_t rotated(uint64_t value, int by) noexcept nogil:
    return value << by | value >> (64 - by)


cdef inline uint64_t mixed(uint64_t value) noexcept nogil:
    value = (value ^ value >> 33) * <uint64_t> 0xFF51AFD7ED558CCDULL
    value = (value ^ value >> 33) * <uint64_t> 0xC4CEB9FE1A85EC53ULL
    return value ^ value >> 33


cdef inline uint64_t whole_at(const char* p) noexcept nogil:
    """Return eight bytes, the lowest first."""
    cdef uint64_t value = 0
    cdef int i
    for i in range(8):
        value |= <uint64_t> <uint8_t> p[i] << (8 * i)
    return value


cdef inline uint64_t rest_at(const char* p, Py_ssize_t size) noexcept nogil:
    """Return the last bytes of a key, up to eight, the lowest first; the database takes each with its sign."""
    cdef uint64_t value = 0
    cdef Py_ssize_t i
    for i in range(size):
        value ^= <uint64_t> <int64_t> <signed char> p[i] << (8 * i)
    return value


cdef int64_t token_at(const char* key, Py_ssize_t size) noexcept nogil:
    """Return the token of a serialized partition key: MurmurHash3 x64 128, as the database has it."""
    cdef uint64_t c1 = <uint64_t> 0x87C37B91114253D5ULL, c2 = <uint64_t> 0x4CF5AD432745937FULL
    cdef uint64_t h1 = 0, h2 = 0, token
    cdef const char* rest = key + (size & ~<Py_ssize_t> 15)
    cdef Py_ssize_t left = size & 15
    while key < rest:
        h1 = (rotated(h1 ^ rotated(whole_at(key) * c1, 31) * c2, 27) + h2) * 5 + 0x52DCE729
        h2 = (rotated(h2 ^ rotated(whole_at(key + 8) * c2, 33) * c1, 31) + h1) * 5 + 0x38495AB5
        key += 16
    if left > 8:
        h2 ^= rotated(rest_at(rest + 8, left - 8) * c2, 33) * c1
    if left:
        h1 ^= rotated(rest_at(rest, min(left, 8)) * c1, 31) * c2
    h1 ^= <uint64_t> size
    h2 ^= <uint64_t> size
    h1 += h2
    h2 += h1
    token = mixed(h1) + mixed(h2)
    # No key has the least token.
    return <int64_t> (token if token != <uint64_t> 1 << 63 else token - 1)


def token_of_key(bytes key not None):
    """Return the token of a serialized partition key; see ``driver.hash_of_key``."""
    return token_at(PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key))


cdef inline uint32_t slice_at(int64_t token, uint32_t count) noexcept nogil:
    """Return the slice, of *count*, that a token is in; see ``_slices.slice_at``."""
    cdef uint64_t at = <uint64_t> token ^ <uint64_t> 1 << 63, high = (at >> 32) * count
    at = <uint64_t> <uint32_t> at * count
    return <uint32_t> (high + (at >> 32) >> 32)


# ---------------------------------------------------------------- layouts

cdef enum:
    PREIMAGE = 0
    UPDATE = 1
    INSERT = 2
    PARTITION_DELETE = 4
    RANGE_START_INCLUSIVE = 5
    RANGE_START_EXCLUSIVE = 6
    RANGE_END_INCLUSIVE = 7
    RANGE_END_EXCLUSIVE = 8
    POSTIMAGE = 9
    SERVICE_PARTITION_DELETE = 0xFC
    NO_OPERATION = -1  # the cell is null, or no operation

OPERATIONS = {  # for a test: they are those of ``Operation``
    "PREIMAGE": PREIMAGE,
    "UPDATE": UPDATE,
    "INSERT": INSERT,
    "PARTITION_DELETE": PARTITION_DELETE,
    "RANGE_START_INCLUSIVE": RANGE_START_INCLUSIVE,
    "RANGE_START_EXCLUSIVE": RANGE_START_EXCLUSIVE,
    "RANGE_END_INCLUSIVE": RANGE_END_INCLUSIVE,
    "RANGE_END_EXCLUSIVE": RANGE_END_EXCLUSIVE,
    "POSTIMAGE": POSTIMAGE,
    "SERVICE_PARTITION_DELETE": SERVICE_PARTITION_DELETE,
}

cdef enum Role:
    NONE, TIME, STREAM_ID, SEQ, OPERATION, TTL, END_OF_BATCH


cdef inline bint is_range(int16_t operation) noexcept nogil:
    return RANGE_START_INCLUSIVE <= operation <= RANGE_END_EXCLUSIVE


cdef inline bint is_image(int16_t operation) noexcept nogil:
    return operation == PREIMAGE or operation == POSTIMAGE


# A column outside the key: where a row has it and its marks (-1: nowhere), and of which kind it is.
cdef struct Value:
    Py_ssize_t index, deleted, elements
    bint is_whole, is_udt, is_static


cdef inline bint is_marked(const Value* value, const Cell* cells) noexcept nogil:
    return value.deleted >= 0 and cells[value.deleted].size == 1 and cells[value.deleted].data[0] == 1


@cython.final
cdef class Plan:
    """What the decoder needs of a layout."""

    cdef readonly object layout
    cdef Py_ssize_t columns, keys, partition_keys, values
    cdef Py_ssize_t stream_id, time, operation
    cdef uint8_t* roles
    cdef Py_ssize_t* key_index
    cdef Value* value
    cdef tuple key_names, key_decoders
    cdef tuple value_columns, value_names, value_decoders

    def __cinit__(self, layout):
        cdef Py_ssize_t i
        self.layout = layout
        self.columns = len(layout.columns)
        self.keys = len(layout.keys)
        self.partition_keys = len(layout.table.partition_key)
        self.stream_id = layout.stream_id
        self.operation = layout.operation
        self.time = layout.time
        self.values = len(layout.values)
        self.roles = <uint8_t*> PyMem_Malloc(self.columns)
        self.key_index = <Py_ssize_t*> PyMem_Malloc(max(1, self.keys) * sizeof(Py_ssize_t))
        self.value = <Value*> PyMem_Malloc(max(1, self.values) * sizeof(Value))
        if self.roles == NULL or self.key_index == NULL or self.value == NULL:
            raise MemoryError
        memset(self.roles, NONE, self.columns)
        self.roles[<Py_ssize_t> layout.time] = TIME
        self.roles[<Py_ssize_t> layout.stream_id] = STREAM_ID
        self.roles[<Py_ssize_t> layout.seq] = SEQ
        self.roles[<Py_ssize_t> layout.operation] = OPERATION
        self.roles[<Py_ssize_t> layout.ttl] = TTL
        self.roles[<Py_ssize_t> layout.end_of_batch] = END_OF_BATCH
        self.key_names = tuple(column.name for column in layout.keys)
        self.key_decoders = tuple(column.decode for column in layout.keys)
        for i in range(self.keys):
            self.key_index[i] = layout.keys[i].index
        self.value_columns = layout.values
        self.value_names = tuple(column.name for column in layout.values)
        self.value_decoders = tuple(column.decode for column in layout.values)
        for i, column in enumerate(layout.values):
            self.value[i].index = column.index
            self.value[i].deleted = column.deleted
            self.value[i].elements = column.elements
            self.value[i].is_whole = column.kind == "value"
            self.value[i].is_udt = column.kind == "udt"
            self.value[i].is_static = column.static

    def __dealloc__(self):
        PyMem_Free(self.value)
        PyMem_Free(self.roles)
        PyMem_Free(self.key_index)

    # Immutable, and shared by the copies of a change.

    def __deepcopy__(self, memo):
        return self

    cdef bint may_have_images(self, int16_t operation) noexcept nogil:
        """Whether a delta row can have images; see ``changes.parts_of``."""
        if operation == PARTITION_DELETE or operation == SERVICE_PARTITION_DELETE:
            return self.keys == self.partition_keys
        return not is_range(operation)

    cdef bytes raw_key(self, const char* row):
        """Return the key of a row as bytes that are equal for equal keys."""
        cdef Py_ssize_t i, size = 0
        cdef Cell cell
        cdef bytes key
        cdef char* at
        for i in range(self.keys):
            cell = cell_at(row, self.key_index[i])
            size += 4 + (cell.size if cell.size > 0 else 0)
        key = PyBytes_FromStringAndSize(NULL, size)
        at = PyBytes_AS_STRING(key)
        for i in range(self.keys):
            cell = cell_at(row, self.key_index[i])
            put_uint(at, <uint32_t> (cell.size if cell.size >= 0 else -1))
            at += 4
            if cell.size > 0:
                memcpy(at, cell.data, cell.size)
                at += cell.size
        return key

    cdef bytes routing_key(self, const char* row):
        """Return the bytes of the partition key that the database hashes; see ``slices.routing_key``."""
        cdef Py_ssize_t i, size
        cdef Cell cell
        cdef bytes key
        cdef char* at
        if self.partition_keys == 1:
            cell = cell_at(row, self.key_index[0])
            return PyBytes_FromStringAndSize(cell.data, max(0, cell.size))
        size = 0
        for i in range(self.partition_keys):
            size += 3 + max(0, cell_at(row, self.key_index[i]).size)
        key = PyBytes_FromStringAndSize(NULL, size)
        at = PyBytes_AS_STRING(key)
        for i in range(self.partition_keys):
            cell = cell_at(row, self.key_index[i])
            size = max(0, cell.size)
            at[0] = <char> (size >> 8)
            at[1] = <char> (size & 0xFF)
            memcpy(at + 2, cell.data, size)
            at[2 + size] = 0
            at += 3 + size
        return key

    cdef dict key_of(self, const char* row, bint of_partition):
        """Return the typed key of a row; parts that are null are absent."""
        cdef dict key = {}
        cdef Py_ssize_t i
        cdef Cell cell
        for i in range(self.partition_keys if of_partition else self.keys):
            cell = cell_at(row, self.key_index[i])
            if cell.size >= 0:
                key[self.key_names[i]] = decoded(self.key_decoders[i], cell)
        return key


    cdef dict known_after(self, bytes row):
        """Return the known part of the base row after an insert or update; see ``Change.after``."""
        cdef Cell few[FEW]
        cdef Cell* cells = all_cells(few, row, self.columns)
        cdef Value* value
        cdef Py_ssize_t i
        cdef dict known = {}
        try:
            for i in range(self.values):
                value = &self.value[i]
                if cells[value.index].size >= 0:
                    if value.is_whole:
                        known[self.value_names[i]] = decoded(self.value_decoders[i], cells[value.index])
                        continue
                elif is_marked(value, cells):
                    if value.is_whole:
                        known[self.value_names[i]] = None
                        continue
                elif value.is_whole or value.elements < 0 or cells[value.elements].size < 0:
                    continue
                found = column_change(self.value_columns[i], cells_of(PyBytes_AS_STRING(row), self.columns))
                if found is not None and found.known:
                    known[self.value_names[i]] = found.value
        finally:
            if cells != few:
                PyMem_Free(cells)
        return known

    cdef dict image(self, bytes row, bint is_whole):
        """Return an image by column; see ``Change._image``."""
        cdef Cell few[FEW]
        cdef Cell* cells = all_cells(few, row, self.columns)
        cdef Value* value
        cdef Py_ssize_t i
        cdef bint is_static = self.keys > self.partition_keys
        cdef dict image = {}
        try:
            for i in range(self.partition_keys, self.keys):
                if cells[self.key_index[i]].size >= 0:
                    is_static = False
            for i in range(self.values):
                value = &self.value[i]
                if cells[value.index].size >= 0:
                    found = decoded(self.value_decoders[i], cells[value.index])
                    if found is not None and not (value.is_udt and all_none(found)):
                        image[self.value_names[i]] = found
                        continue
                if value.is_static == is_static and (is_whole or is_marked(value, cells)):
                    image[self.value_names[i]] = None
        finally:
            if cells != few:
                PyMem_Free(cells)
        return image


cdef enum:
    FEW = 64


cdef Cell* all_cells(Cell* few, bytes row, Py_ssize_t columns) except NULL:
    """Return the cells of a row that has been checked: in *few* if there are no more, otherwise in memory to free."""
    cdef const char* at = PyBytes_AS_STRING(row)
    cdef Cell* cells = few
    cdef Py_ssize_t i
    if columns > FEW:
        cells = <Cell*> PyMem_Malloc(columns * sizeof(Cell))
        if cells == NULL:
            raise MemoryError
    for i in range(columns):
        cells[i].size = int_at(at)
        cells[i].data = at + 4
        at += 4
        if cells[i].size > 0:
            at += cells[i].size
    return cells


cdef inline object decoded(object decoder, Cell cell):
    if isinstance(decoder, Decoder):
        return (<Decoder> decoder).read(cell.data, cell.size)
    return decoder(PyBytes_FromStringAndSize(cell.data, cell.size))


cdef bint all_none(dict fields):
    for field in fields.values():
        if field is not None:
            return False
    return True


# ---------------------------------------------------------------- rows


cdef struct Row:
    uint64_t ticks
    uint64_t low  # the low half of the time, with flipped signs
    uint32_t page
    uint32_t start  # in the bytes of the page
    uint32_t size
    uint32_t seq
    uint32_t run  # rows of the same run are of the same stream; those of two runs may be, too
    int16_t operation
    uint8_t end_of_batch  # 0: null, 1: true, 2: anything else


cdef struct Entry:
    uint64_t ticks
    uint32_t row


cdef struct Tie:
    uint64_t low
    char stream_id[16]
    uint32_t seq
    uint32_t row


cdef int compare_ties(const void* one, const void* other) noexcept nogil:
    cdef const Tie* a = <const Tie*> one
    cdef const Tie* b = <const Tie*> other
    cdef int found
    if a.low != b.low:
        return -1 if a.low < b.low else 1
    found = memcmp(a.stream_id, b.stream_id, 16)
    if found:
        return found
    if a.seq != b.seq:
        return -1 if a.seq < b.seq else 1
    return -1 if a.row < b.row else 1


cdef uint64_t FLIP_SIGNS = 0x8080808080808080

cdef uint32_t NULL_CELL = 0x80000000  # in a place: no page has so many bytes
cdef Cell NULL_AT  # the cell of a null
NULL_AT.data = NULL
NULL_AT.size = -1

cdef enum:
    DIGIT = 11
    BUCKETS = 1 << DIGIT


# What the last row had in a column: the size of the cell, and how many bytes it took with its size. Most rows have cells
# of the same sizes. A processor that guesses so reads ahead; otherwise, each cell waits for the size of the one before.
cdef struct Guess:
    int32_t size
    Py_ssize_t step


cdef Guess* new_guesses(Py_ssize_t columns) except NULL:
    """Return guesses for so many columns, in memory to free."""
    cdef Guess* guesses = <Guess*> PyMem_Malloc(max(1, columns) * sizeof(Guess))
    cdef Py_ssize_t i
    if guesses == NULL:
        raise MemoryError
    for i in range(columns):
        guesses[i].size = -1
        guesses[i].step = 4
    return guesses


cdef inline Py_ssize_t step_over(Guess* guess, int32_t size) noexcept nogil:
    """Return how many bytes a cell of *size* takes, and guess the same for the next row."""
    if size != guess.size:
        guess.size = size
        guess.step = 4 if size < 0 else 4 + <Py_ssize_t> size
    return guess.step


cdef bint read_row(
    Plan plan, const char* at, const char* end, Guess* guesses, Row* row, const char** stream_id
) noexcept nogil:
    """Fill *row* from the bytes at *at*; return whether they are a row of a log that ends before *end*."""
    cdef const char* start = at
    cdef const char* cell
    cdef Py_ssize_t i, step
    cdef int32_t size
    cdef uint8_t role
    row.operation = NO_OPERATION
    row.end_of_batch = 0
    for i in range(plan.columns):
        if end - at < 4:
            return False
        size = int_at(at)
        step = step_over(&guesses[i], size)
        if end - at < step:
            return False
        role = plan.roles[i]
        if role != NONE:
            cell = at + 4
            if role == TIME:
                if size != 16:
                    return False
                row.ticks = ticks_at(cell)
                row.low = ulong_at(cell + 8) ^ FLIP_SIGNS
            elif role == STREAM_ID:
                if size != 16:
                    return False
                stream_id[0] = cell
            elif role == SEQ:
                if size != 4:
                    return False
                row.seq = uint_at(cell)
            elif role == OPERATION:
                if size == 1:
                    row.operation = <uint8_t> cell[0]
                elif size >= 0:
                    return False
            elif role == TTL:
                if size >= 0 and size != 8:
                    return False
            elif size >= 0:
                row.end_of_batch = 1 if size == 1 and cell[0] == 1 else 2
        at += step
    row.size = <uint32_t> (at - start)
    return True


@cython.final
cdef class LogRows:
    """The undecoded rows of a window, all of one layout; see ``rows.LogRows``."""

    cdef readonly Plan plan
    cdef list pages, bodies
    cdef const char** starts  # of the bytes of the pages
    cdef Row* rows
    cdef uint32_t* order  # the rows that are kept, as they are sorted
    cdef uint32_t* places  # of the cells in their pages, by column, and of the ends; once a column was asked for
    cdef uint32_t* full  # how many cells of each column are not null; behind the places
    cdef Py_ssize_t kept, filled, room
    cdef uint32_t runs  # of rows of one stream, in the order in which they came

    def __dealloc__(self):
        PyMem_Free(self.starts)
        PyMem_Free(self.rows)
        PyMem_Free(self.order)
        PyMem_Free(self.places)

    def __cinit__(self):
        self.pages = []
        self.bodies = []

    def __len__(self):
        return self.kept

    is_mixed = False

    @property
    def layouts(self):
        return [self.plan.layout] if self.plan is not None else []

    def layout_at(self, index):
        return self.plan.layout

    @property
    def cells(self):
        return [self.cells_at(i) for i in range(self.kept)]

    @property
    def positions(self):
        return [self.position_at(i) for i in range(self.kept)]

    cdef inline const char* row_at(self, uint32_t row) noexcept nogil:
        return self.starts[self.rows[row].page] + self.rows[row].start

    cdef inline bytes data_of(self, uint32_t row):
        return PyBytes_FromStringAndSize(self.row_at(row), self.rows[row].size)

    cdef tuple cells_at(self, Py_ssize_t index):
        return cells_of(self.row_at(self.order[index]), self.plan.columns)

    cdef bytes position_at(self, Py_ssize_t index):
        cdef Row* row = &self.rows[self.order[index]]
        return position_of(row.ticks, row.low, cell_at(self.row_at(self.order[index]), self.plan.stream_id).data, row.seq)

    def add(self, page, layout):
        """Add the rows of *page*, and return the rows: others, in Python, if the page has another layout.

        Raises:
            MalformedData: the page ends within a row, or has a row without a time, stream id or sequence number.
        """
        try:
            return self._add(page, layout)
        except ValueError as e:
            raise MalformedData.of_page(layout.table.full_name, str(e), is_log=True) from e

    cdef object _add(self, page, layout):
        cdef bytes body = page.body
        cdef Py_ssize_t offset = page.offset
        cdef int32_t count = count_of(body, offset, len(layout.columns))
        if not count:
            return self
        if self.plan is None or not self.kept:
            self.plan = layout.plan
            self.filled = 0  # rows that were taken out may have another layout
            self.pages.clear()
        elif self.plan.layout is not layout:
            return self._in_python(page, layout)
        self._reserve(count)
        self._read(body, offset + 4, count)
        self.pages.append(page)
        return self

    cdef int _reserve(self, Py_ssize_t more) except -1:
        cdef Py_ssize_t room = max(self.filled, self.kept) + more  # a row may have been taken twice
        cdef void* moved
        PyMem_Free(self.places)
        self.places = NULL
        if room <= self.room:
            return 0
        if room > INT32_MAX:
            raise MemoryError
        room = max(room, 2 * self.room)
        moved = PyMem_Realloc(self.rows, room * sizeof(Row))
        if moved == NULL:
            raise MemoryError
        self.rows = <Row*> moved
        moved = PyMem_Realloc(self.order, room * sizeof(uint32_t))
        if moved == NULL:
            raise MemoryError
        self.order = <uint32_t*> moved
        self.room = room
        return 0

    cdef int _read(self, bytes body, Py_ssize_t offset, Py_ssize_t count) except -1:
        cdef const char* start = PyBytes_AS_STRING(body)
        cdef const char* end = start + PyBytes_GET_SIZE(body)
        cdef const char* at = start + offset
        cdef uint32_t page = <uint32_t> len(self.bodies)
        cdef Plan plan = self.plan
        cdef Py_ssize_t i
        cdef Row* row
        cdef const char** moved
        cdef const char* stream_id = NULL
        cdef const char* last = NULL
        cdef uint32_t run = self.runs
        cdef bint good = True
        cdef Guess* guesses = new_guesses(plan.columns)
        with nogil:
            for i in range(count):
                row = &self.rows[self.filled + i]
                if not read_row(plan, at, end, guesses, row, &stream_id):
                    good = False
                    break
                if last == NULL or memcmp(last, stream_id, 16) != 0:
                    run += 1
                last = stream_id
                row.run = run
                row.page = page
                row.start = <uint32_t> (at - start)
                self.order[self.kept + i] = <uint32_t> (self.filled + i)
                at += row.size
        PyMem_Free(guesses)
        if not good:
            raise ValueError(_BAD_ROW)
        moved = <const char**> PyMem_Realloc(self.starts, (page + 1) * sizeof(char*))
        if moved == NULL:
            raise MemoryError
        self.starts = moved
        self.starts[page] = start
        self.bodies.append(body)
        self.runs = run
        self.filled += count
        self.kept += count
        return 0

    def _in_python(self, page, layout):
        from .rows import LogRows as InPython

        cdef Py_ssize_t i
        rows = InPython()
        for known in self.pages:
            rows.add(known, self.plan.layout)
        taken = [self.order[i] for i in range(self.kept)]
        if taken != list(range(self.filled)):
            rows.take(taken)
        return rows.add(page, layout)

    cdef int _find_places(self) except -1:
        """Note where each cell is, column by column: to walk the rows again for each column would take longer."""
        cdef Py_ssize_t row, column, columns, filled
        cdef uint32_t* places
        cdef uint32_t* full
        cdef uint32_t place
        cdef const char* start
        cdef int32_t size
        if self.places != NULL or not self.filled:
            return 0
        columns = self.plan.columns
        filled = self.filled
        places = <uint32_t*> PyMem_Malloc((filled + 1) * (columns + 1) * sizeof(uint32_t))
        if places == NULL:
            raise MemoryError
        full = places + filled * (columns + 1)
        with nogil:
            memset(full, 0, columns * sizeof(uint32_t))
            for row in range(filled):
                start = self.starts[self.rows[row].page]
                place = self.rows[row].start
                for column in range(columns):
                    size = int_at(start + place)
                    if size < 0:
                        places[column * filled + row] = place | NULL_CELL
                        place += 4
                    else:
                        places[column * filled + row] = place
                        full[column] += 1
                        place += 4 + <uint32_t> size
                places[columns * filled + row] = place
        if self.places == NULL:  # only now, because another thread may ask for a column of the window meanwhile
            self.places, self.full = places, full
        else:
            PyMem_Free(places)
        return 0

    cdef inline Cell _cell(self, uint32_t row, const uint32_t* places) noexcept nogil:
        """Return a cell of the column that has its *places*, without a look at its page."""
        cdef Cell cell
        cdef uint32_t place = places[row]
        if place & NULL_CELL:
            return NULL_AT
        cell.data = self.starts[self.rows[row].page] + place + 4
        cell.size = <int32_t> ((places[self.filled + row] & ~NULL_CELL) - place - 4)
        return cell

    def sort(self):
        """Sort the rows by their positions."""
        if self.kept > 1 and not self._is_sorted():
            self._sort()

    cdef bint _is_sorted(self) noexcept nogil:
        cdef Py_ssize_t i
        for i in range(1, self.kept):
            if self._compare(self.order[i - 1], self.order[i]) > 0:
                return False
        return True

    cdef int _compare(self, uint32_t one, uint32_t other) noexcept nogil:
        cdef Row* a = &self.rows[one]
        cdef Row* b = &self.rows[other]
        cdef int found
        if a.ticks != b.ticks:
            return -1 if a.ticks < b.ticks else 1
        if a.low != b.low:
            return -1 if a.low < b.low else 1
        if a.run != b.run:
            found = memcmp(self._stream_id(one), self._stream_id(other), 16)
            if found:
                return found
        return 0 if a.seq == b.seq else -1 if a.seq < b.seq else 1

    cdef inline const char* _stream_id(self, uint32_t row) noexcept nogil:
        return cell_at(self.row_at(row), self.plan.stream_id).data

    cdef int _sort(self) except -1:
        """Sort by the ticks, digit by digit, then the rows of equal ticks by the rest."""
        cdef Py_ssize_t n = self.kept, i, start
        cdef Entry* entries = <Entry*> PyMem_Malloc(2 * n * sizeof(Entry))
        cdef Entry* source = entries
        cdef Entry* target = entries + n
        cdef Entry* swap
        cdef uint64_t least = <uint64_t> -1, most = 0, ticks
        cdef Py_ssize_t counts[BUCKETS]
        cdef Py_ssize_t before, here
        cdef int shift = 0
        if entries == NULL:
            raise MemoryError
        try:
            with nogil:
                for i in range(n):
                    ticks = self.rows[self.order[i]].ticks
                    least = min(least, ticks)
                    most = max(most, ticks)
                for i in range(n):
                    source[i].row = self.order[i]
                    source[i].ticks = self.rows[self.order[i]].ticks - least
                while shift < 64 and (most - least) >> shift:
                    memset(counts, 0, sizeof(counts))
                    for i in range(n):
                        counts[(source[i].ticks >> shift) & (BUCKETS - 1)] += 1
                    before = 0
                    for i in range(BUCKETS):
                        here = counts[i]
                        counts[i] = before
                        before += here
                    for i in range(n):
                        here = (source[i].ticks >> shift) & (BUCKETS - 1)
                        target[counts[here]] = source[i]
                        counts[here] += 1
                    swap = source
                    source = target
                    target = swap
                    shift += DIGIT
            for i in range(n):
                self.order[i] = source[i].row
            start = 0
            for i in range(1, n + 1):
                if i == n or source[i].ticks != source[start].ticks:
                    if i - start > 1:
                        self._sort_ties(start, i)
                    start = i
        finally:
            PyMem_Free(entries)
        return 0

    cdef int _sort_ties(self, Py_ssize_t start, Py_ssize_t end) except -1:
        cdef Py_ssize_t n = end - start, i
        cdef Tie* ties
        cdef Row* row
        for i in range(start + 1, end):
            if self._compare(self.order[i - 1], self.order[i]) > 0:
                break
        else:
            return 0
        ties = <Tie*> PyMem_Malloc(n * sizeof(Tie))
        if ties == NULL:
            raise MemoryError
        for i in range(n):
            row = &self.rows[self.order[start + i]]
            ties[i].low = row.low
            memcpy(ties[i].stream_id, self._stream_id(self.order[start + i]), 16)
            ties[i].seq = row.seq
            ties[i].row = self.order[start + i]
        qsort(ties, n, sizeof(Tie), compare_ties)
        for i in range(n):
            self.order[start + i] = ties[i].row
        PyMem_Free(ties)
        return 0

    def take(self, indexes):
        """Keep only the rows at *indexes*, in that order."""
        cdef list chosen = list(indexes)
        cdef Py_ssize_t n = len(chosen), i, index
        cdef uint32_t* order = <uint32_t*> PyMem_Malloc(max(n, self.room) * sizeof(uint32_t))
        if order == NULL:
            raise MemoryError
        try:
            for i in range(n):
                index = chosen[i]
                if not 0 <= index < self.kept:
                    raise IndexError(index)
                order[i] = self.order[index]
        except BaseException:
            PyMem_Free(order)
            raise
        PyMem_Free(self.order)
        self.order = order
        self.kept = n

    def owners(self, token, uint32_t count, dict shared not None, dict only not None):
        """Return the slice of each row; see ``rows.LogRows``."""
        cdef array.array found = array.clone(new_array("i"), self.kept, False)
        cdef array.array owners = array.clone(found, self.filled, False)  # as the rows came: those of a stream together
        cdef bint is_known = token is token_of_key
        cdef uint8_t* reads = <uint8_t*> PyMem_Calloc(max(1, count), 1)  # whether a slice is one of the readers
        cdef int owner = -1, first = -1, reader
        cdef uint32_t run = 0
        cdef Py_ssize_t i
        cdef tuple readers = ()
        if reads == NULL:
            raise MemoryError
        try:
            for i in range(self.filled):
                if not i or self.rows[i].run != run:
                    run = self.rows[i].run
                    stream = PyBytes_FromStringAndSize(self._stream_id(<uint32_t> i), 16)
                    owner = only.get(stream, -1)
                    if owner < 0 and shared[stream] is not readers:
                        for reader in readers:
                            reads[reader] = False
                        readers = shared[stream]
                        for reader in readers:
                            reads[reader] = True
                        first = readers[0]
                if owner >= 0:
                    owners.data.as_ints[i] = owner
                    continue
                reader = self._slice_of(<uint32_t> i, count, token, is_known)
                owners.data.as_ints[i] = reader if reads[reader] else first
        finally:
            PyMem_Free(reads)
        for i in range(self.kept):
            found.data.as_ints[i] = owners.data.as_ints[self.order[i]]
        return found

    cdef inline int _slice_of(self, uint32_t row, uint32_t count, token, bint is_known) except -1:
        """Return the slice of a key: hashed here if *is_known*, otherwise by *token*."""
        cdef Cell key
        if not is_known:
            return slice_at(token(self.plan.routing_key(self.row_at(row))), count)
        if self.plan.partition_keys == 1:
            key = cell_at(self.row_at(row), self.plan.key_index[0])
            return slice_at(token_at(key.data, max(0, key.size)), count)
        whole = self.plan.routing_key(self.row_at(row))
        return slice_at(token_at(PyBytes_AS_STRING(whole), PyBytes_GET_SIZE(whole)), count)

    def divided(self, owners, indexes):
        """Return the rows of each of the slices *indexes* that has some; see ``rows.LogRows``."""
        cdef const int[::1] of = owners
        cdef dict found = {}, numbers = {}
        cdef list parts = []
        cdef Py_ssize_t i, rows
        cdef int owner
        cdef LogRows part
        cdef Py_ssize_t* counts
        cdef Py_ssize_t slices = 0
        if len(of) != self.kept:
            raise ValueError("an owner for each row")
        for index in indexes:
            slices = max(slices, index + 1)
        counts = <Py_ssize_t*> PyMem_Calloc(max(1, slices), sizeof(Py_ssize_t))
        if counts == NULL:
            raise MemoryError
        try:
            for i in range(self.kept):
                if 0 <= of[i] < slices:
                    counts[of[i]] += 1
            parts = [None] * slices
            for index in indexes:
                rows = counts[<Py_ssize_t> index]
                if rows:
                    found[index] = parts[index] = self._empty(rows)
        finally:
            PyMem_Free(counts)
        for i in range(self.kept):
            owner = of[i]
            if 0 <= owner < slices and parts[owner] is not None:
                part = <LogRows> parts[owner]
                part.rows[part.kept] = self.rows[self.order[i]]
                part.order[part.kept] = <uint32_t> part.kept
                part.kept += 1
                part.filled = part.kept
        return found

    cdef LogRows _empty(self, Py_ssize_t room):
        """Return rows over the same pages, with room for some."""
        cdef LogRows part = LogRows()
        cdef Py_ssize_t i, pages = len(self.bodies)
        part.plan = self.plan
        part.bodies = self.bodies.copy()
        part.starts = <const char**> PyMem_Malloc(max(1, pages) * sizeof(char*))
        if part.starts == NULL:
            raise MemoryError
        for i in range(pages):
            part.starts[i] = self.starts[i]
        part._reserve(room)
        return part

    def by_layout(self):
        """Return an iterator of the rows in parts of one layout each: themselves."""
        return iter((self,))

    def column(self, Py_ssize_t index, rows=None):
        """Return the cells of a column, undecoded, of all rows or of the given ones, of which -1 has none."""
        if self.plan is not None and not 0 <= index < self.plan.columns:
            raise IndexError(index)
        self._find_places()
        return Column.of(self, index, rows)

    def changes(self, *, bint joined=True):
        """Return the changes by the numbers of their rows; see ``rows.LogRows``."""
        cdef array.array delta = new_array("i"), record = new_array("i")
        cdef array.array before, after, range_end
        cdef Py_ssize_t at = 0, end, count = 0
        cdef int16_t operation
        cdef list others = [], parts
        cdef int number
        array.resize(delta, self.kept)
        array.resize(record, self.kept)
        while at < self.kept:
            end = self._record_end(at)
            operation = self.rows[self.order[at]].operation
            parts = None
            if joined and (end - at > 1 or is_image(operation) or is_range(operation)):
                parts = self._parts(at, end)
            if parts is None:
                for number in range(at, end):
                    delta.data.as_ints[count] = number
                    record.data.as_ints[count] = at
                    count += 1
            else:
                for part in parts:
                    delta.data.as_ints[count] = at + part[0]
                    record.data.as_ints[count] = at
                    if part[1] >= 0 or part[2] >= 0 or part[3] >= 0:
                        others.append((count, [at + n if n >= 0 else -1 for n in part]))
                    count += 1
            at = end
        array.resize(delta, count)
        array.resize(record, count)
        before = array.clone(delta, count, False)
        for at in range(count):
            before.data.as_ints[at] = -1
        after, range_end = array.copy(before), array.copy(before)
        for at, part in others:
            before.data.as_ints[at], after.data.as_ints[at], range_end.data.as_ints[at] = part[1], part[2], part[3]
        from .grouping import ChangeRows

        return ChangeRows(delta, before, after, range_end, record)

    def events(self, context, *, bint joined, bytes after=b""):
        """Return the events of the rows, which are sorted; see ``events.changes_of``.

        Args:
            joined: one event a change; otherwise, one a row.
            after: a position; events at or before it are left out.
        """
        return Events(self, context, joined, after)

    cdef inline bint _same_record(self, uint32_t one, uint32_t other) noexcept nogil:
        cdef Row* a = &self.rows[one]
        cdef Row* b = &self.rows[other]
        return (
            a.ticks == b.ticks
            and a.low == b.low
            and (a.run == b.run or memcmp(self._stream_id(one), self._stream_id(other), 16) == 0)
        )

    cdef Py_ssize_t _record_end(self, Py_ssize_t start) noexcept nogil:
        """Return where the record that begins at *start* ends."""
        cdef Py_ssize_t end = start + 1
        while end < self.kept and self._same_record(self.order[start], self.order[end]):
            end += 1
        return end

    cdef list _parts(self, Py_ssize_t start, Py_ssize_t end):
        """Return the parts of the changes of a record, as ``changes.parts_of`` does; None: each row is a change."""
        cdef Py_ssize_t i, n = end - start, skip = -1
        cdef int16_t operation, following
        cdef dict before = {}, after = {}, of_kind
        cdef set used = set()
        cdef list parts = [], keys = []
        cdef object key
        cdef bint alone = True
        for i in range(n):
            operation = self.rows[self.order[start + i]].operation
            if is_image(operation) or is_range(operation):
                alone = False
                break
        if alone:
            return None
        for i in range(n):
            operation = self.rows[self.order[start + i]].operation
            key = None
            if is_image(operation) or self.plan.may_have_images(operation):
                key = self.plan.raw_key(self.row_at(self.order[start + i]))
                if operation == PREIMAGE:
                    before[key] = i
                elif operation == POSTIMAGE:
                    after[key] = i
                else:
                    used.add(key)
            keys.append(key)
        for i in range(n):
            if i == skip:
                continue
            operation = self.rows[self.order[start + i]].operation
            key = keys[i]
            if is_image(operation):
                of_kind = before if operation == PREIMAGE else after
                if key not in used and of_kind[key] == i:
                    parts.append((i, -1, -1, -1))
            elif key is not None:
                parts.append((i, before.get(key, -1), after.get(key, -1), -1))
            else:
                if operation <= RANGE_START_EXCLUSIVE and operation >= RANGE_START_INCLUSIVE and i + 1 < n:
                    following = self.rows[self.order[start + i + 1]].operation
                    if following == RANGE_END_INCLUSIVE or following == RANGE_END_EXCLUSIVE:
                        skip = i + 1
                        parts.append((i, -1, -1, skip))
                        continue
                parts.append((i, -1, -1, -1))
        return parts


@cython.final
cdef class Column(Cells):
    """Cells of a column of a window, where they lie in its pages."""

    cdef LogRows rows  # keeps the pages

    @staticmethod
    cdef Column of(LogRows rows, Py_ssize_t index, numbers):
        cdef Column column = Column.__new__(Column)
        cdef const int[::1] chosen
        cdef const uint32_t* places
        cdef Py_ssize_t i, count
        if numbers is None:
            count = rows.kept
        else:
            chosen = numbers if isinstance(numbers, array.array) and numbers.typecode == "i" else new_array("i", numbers)
            count = len(chosen)
            for i in range(count):
                if not -1 <= chosen[i] < rows.kept:
                    raise IndexError(chosen[i])
        if not rows.filled or not rows.full[index]:
            column.count = count
            return column
        column.rows = rows
        column.reserve(count)
        with nogil:
            places = rows.places + index * rows.filled
            if numbers is None:
                for i in range(count):
                    column.cells[i] = rows._cell(rows.order[i], places)
            else:
                for i in range(count):
                    column.cells[i] = NULL_AT if chosen[i] < 0 else rows._cell(rows.order[chosen[i]], places)
        return column


cdef bytes position_of(uint64_t ticks, uint64_t low, const char* stream_id, uint32_t seq):
    cdef bytes position = PyBytes_FromStringAndSize(NULL, 36)
    cdef char* at = PyBytes_AS_STRING(position)
    put_ulong(at, ticks)
    put_ulong(at + 8, low)
    memcpy(at + 16, stream_id, 16)
    put_uint(at + 32, seq)
    return position


# ---------------------------------------------------------------- events


@cython.final
cdef class Frame:
    """What the events of a window share."""

    cdef object context
    cdef Plan plan
    cdef int64_t second
    cdef bytes prefix

    cdef bytes id_prefix(self, int64_t us):
        """Return the part of an id that the events of a second share. Keeps the last one."""
        cdef int64_t second = us // 1_000_000
        if self.prefix is None or second != self.second:
            self.prefix = (<str> self.context.id_prefix(us)).encode("ascii")
            self.second = second
        return self.prefix


@cython.final
cdef class Record:
    """The rows of a record with several rows, which its events share."""

    cdef Plan plan
    cdef list rows, parts
    cdef object _batch

    cdef bytes row_or_none(self, Py_ssize_t number):
        return None if number < 0 else <bytes> self.rows[number]

    cdef batch(self):
        if self._batch is None:
            cells = [cells_of(PyBytes_AS_STRING(<bytes> row), self.plan.columns) for row in self.rows]
            self._batch = changes().Record(self.plan.layout, cells, self.parts)
        return self._batch


cdef object _changes = None
cdef object _column_change = None
cdef object _events = None
cdef object _timeuuid = None


cdef changes():
    """Return the module of changes, which imports this one."""
    global _changes
    if _changes is None:
        from . import changes as module

        _changes = module
    return _changes


cdef events_module():
    """Return the module of the twin in Python, which imports this one."""
    global _events
    if _events is None:
        from . import events as module

        _events = module
    return _events


cdef column_change(column, tuple cells):
    global _column_change
    if _column_change is None:
        from .columns import column_change as function

        _column_change = function
    return _column_change(column, cells)


cdef timeuuid():
    global _timeuuid
    if _timeuuid is None:
        from rscylla import _timeuuid as module

        _timeuuid = module
    return _timeuuid


cdef inline char* put_text(char* out, const char* text, Py_ssize_t size) noexcept nogil:
    memcpy(out, text, size)
    return out + size


cdef const char* STREAM_TIME = b'","stream_time":"'
cdef const char* STREAM_SEQ = b'","stream_seq":'
cdef const char* VERSION = b',"v":2}'

cdef enum:
    STREAM_TIME_SIZE = 17
    STREAM_SEQ_SIZE = 15
    VERSION_SIZE = 7


cdef class ChangeParts:
    """What a change is made of, and those of its parts that are read most; see ``changes.PartsInPython``."""

    cdef Plan plan
    cdef bytes row, preimage, postimage, range_end
    cdef object batch_  # a Record, of here or of ``changes``; None: the row is a record of its own
    cdef object cells
    cdef readonly Py_ssize_t batch_index
    """Position of this change in its record, from 0."""

    def __init__(self, layout, cells, preimage=None, postimage=None, range_end=None, batch=None, batch_index=0):
        self.plan = layout.plan
        self.cells = cells
        if cells is None:
            raise TypeError("a change has a row")
        self.row = bytes_of_cells(cells, self.plan)
        self.preimage = bytes_of_cells(preimage, self.plan)
        self.postimage = bytes_of_cells(postimage, self.plan)
        self.range_end = bytes_of_cells(range_end, self.plan)
        self.batch_ = batch
        self.batch_index = batch_index

    def __setattr__(self, name, value):
        raise AttributeError(f"cannot set {name!r}: a change is immutable")

    @property
    def _layout(self):
        return self.plan.layout

    @property
    def _cells(self):
        if self.cells is None:
            self.cells = cells_or_none(self.row, self.plan)
        return self.cells

    @property
    def _preimage(self):
        return cells_or_none(self.preimage, self.plan)

    @property
    def _postimage(self):
        return cells_or_none(self.postimage, self.plan)

    @property
    def _range_end(self):
        return cells_or_none(self.range_end, self.plan)

    @property
    def _batch(self):
        return (<Record> self.batch_).batch() if isinstance(self.batch_, Record) else self.batch_

    cdef int16_t operation(self) noexcept:
        cdef Cell cell = cell_at(PyBytes_AS_STRING(self.row), self.plan.operation)
        return <uint8_t> cell.data[0] if cell.size == 1 else NO_OPERATION

    @property
    def key(self):
        try:
            return self.plan.key_of(PyBytes_AS_STRING(self.row), is_range(self.operation()))
        except ValueError as e:
            raise self.malformed() from e

    @property
    def before(self):
        cdef bytes image = self.row if self.operation() == PREIMAGE else self.preimage
        try:
            return None if image is None else self.plan.image(image, False)
        except ValueError as e:
            raise self.malformed() from e

    @property
    def after(self):
        cdef int16_t operation = self.operation()
        cdef bytes image = self.row if operation == POSTIMAGE else self.postimage
        try:
            if image is not None:
                return self.plan.image(image, True)
            return self.plan.known_after(self.row) if operation == UPDATE or operation == INSERT else None
        except ValueError as e:
            raise self.malformed() from e

    cdef object malformed(self):
        """Return the error of a cell that could not be decoded."""
        return self.plan.layout.malformed([self._cells, self._preimage, self._postimage, self._range_end])


cdef bytes bytes_of_cells(cells, Plan plan):
    """Return the row of *cells*, which all later reads trust to have the columns of *plan*; None for None."""
    cdef bytes cell
    cdef list parts = []
    if cells is None:
        return None
    if len(cells) != plan.columns:
        raise ValueError(f"a row has {len(cells)} cells, and its layout {plan.columns} columns")
    for cell in cells:
        parts.append(b"\xff\xff\xff\xff" if cell is None else len(cell).to_bytes(4, "big") + cell)
    return b"".join(parts)


cdef cells_or_none(bytes row, Plan plan):
    return None if row is None else cells_of(PyBytes_AS_STRING(row), plan.columns)


cdef change_of(Plan plan, bytes row, Record record, Py_ssize_t index):
    """Return the ``Change`` of an event."""
    cdef type cls = changes().Change
    cdef ChangeParts change = <ChangeParts> (<PyTypeObject*> cls).tp_new(<PyTypeObject*> cls, (), NULL)
    change.plan = plan
    change.row = row
    if record is not None:
        change.batch_ = record
        change.batch_index = index
        if record.parts is not None:
            part = record.parts[index]
            change.preimage = record.row_or_none(part[1])
            change.postimage = record.row_or_none(part[2])
            change.range_end = record.row_or_none(part[3])
    return change


@cython.final
@cython.freelist(64)
cdef class ChangeEvent:
    """An event of a CDC log; see ``events.ChangeEvent``, whose properties it has."""

    cdef Frame _frame
    cdef bytes _row
    cdef Record _record  # None: the row is a record of its own
    cdef Py_ssize_t _index
    cdef uint64_t _ticks, _low
    cdef uint32_t _seq
    cdef int16_t _operation
    cdef bint _late
    cdef object _change, _foreign_id

    def __init__(self):
        raise TypeError("events of a log are made by the stream that reads it")

    cdef inline const char* data(self) noexcept:
        return PyBytes_AS_STRING(self._row)

    cdef inline Cell cell(self, Py_ssize_t column) noexcept:
        return cell_at(self.data(), column)

    cdef inline int64_t us(self) noexcept:
        return (<int64_t> self._ticks - EPOCH_TICKS) // 10

    @property
    def id(self):
        cdef bytes prefix = self._frame.id_prefix(self.us())
        cdef Plan plan = self._frame.plan
        cdef Cell stream_id = self.cell(plan.stream_id)
        cdef char digits[10]
        cdef char time[16]
        cdef int count = 0
        cdef uint32_t left = self._seq
        cdef Py_ssize_t size
        cdef char* out
        while True:
            digits[count] = <char> (48 + left % 10)
            count += 1
            left //= 10
            if not left:
                break
        size = PyBytes_GET_SIZE(prefix) + 32 + STREAM_TIME_SIZE + 36 + STREAM_SEQ_SIZE + count + VERSION_SIZE
        text = PyUnicode_New(size, 127)
        out = <char*> PyUnicode_DATA(text)
        memcpy(time, self.cell(plan.time).data, 16)
        out = put_text(out, PyBytes_AS_STRING(prefix), PyBytes_GET_SIZE(prefix))
        out = put_hex(out, stream_id.data, 16)
        out = put_text(out, STREAM_TIME, STREAM_TIME_SIZE)
        out = put_uuid(out, time)
        out = put_text(out, STREAM_SEQ, STREAM_SEQ_SIZE)
        while count:
            count -= 1
            out[0] = digits[count]
            out += 1
        put_text(out, VERSION, VERSION_SIZE)
        return text

    @property
    def position(self):
        return position_of(self._ticks, self._low, self.cell(self._frame.plan.stream_id).data, self._seq)

    @property
    def order_key(self):
        return self._frame.context.generation, self.position

    @property
    def operation(self):
        return changes().operation_of(bytes_of(self.cell(self._frame.plan.operation)))

    @property
    def type(self):
        if self._frame.context.event_type is not None:
            return self._frame.context.type_of(self)
        return self.operation

    @property
    def timestamp_us(self):
        return self.us()

    @property
    def timestamp(self):
        return timeuuid().datetime_of(self.us())

    @property
    def key(self):
        try:
            return self._frame.plan.key_of(self.data(), is_range(self._operation))
        except ValueError as e:
            raise self._frame.plan.layout.malformed([self._cells]) from e

    @property
    def foreign_id(self):
        if self._foreign_id is None:
            self._foreign_id = events_module().dumps_key(self.key)
        return self._foreign_id

    @property
    def change(self):
        if self._change is None:
            self._change = change_of(self._frame.plan, self._row, self._record, self._index)
        return self._change

    @property
    def trace(self):
        return b""

    @property
    def late(self):
        return self._late

    def as_late(self):
        cdef ChangeEvent event = ChangeEvent.__new__(ChangeEvent)
        event._frame, event._row, event._record, event._index = self._frame, self._row, self._record, self._index
        event._ticks, event._low, event._seq, event._operation = self._ticks, self._low, self._seq, self._operation
        event._late = True
        return event

    @property
    def layout(self):
        return self._frame.plan.layout

    @property
    def table(self):
        table = self._frame.plan.layout.table
        return table.keyspace, table.name

    def raw_rows(self):
        if self._record is None:
            return self._cells, None, None, None
        return self._record.batch().raw_rows(self._index)

    @property
    def _cells(self):
        return cells_of(self.data(), self._frame.plan.columns)

    def packed(self):
        """Return the row, its preimage, its postimage, and the index in its record.

        Rows are as the log sent them: each cell after its size in four bytes. None: there is no such image.
        """
        if self._record is None or self._record.parts is None:
            return self._row, None, None, self._index
        part = self._record.parts[self._index]
        return self._row, self._record.row_or_none(part[1]), self._record.row_or_none(part[2]), self._index

    # The rest is the same as of the twin, and of no use to a loop that has to be fast.

    cdef _in_python(self):
        record = None if self._record is None else self._record.batch()
        made = events_module().ChangeEvent(
            self._frame.context, self.position, self._cells, self._frame.plan.layout, record, self._index
        )
        return made.as_late() if self._late else made

    @property
    def metadata(self):
        return self._in_python().metadata

    @property
    def row(self):
        return self._in_python().row

    def raw_key(self):
        return self._in_python().raw_key()

    def raw_partition_key(self):
        return self._in_python().raw_partition_key()

    def __repr__(self):
        return f"<{'_Late' if self._late else ''}ChangeEvent {self.id}>"

    # Events are immutable, and hold decoders, which cannot be pickled.

    def __copy__(self):
        return self

    def __deepcopy__(self, memo):
        return self

    def __reduce__(self):
        raise TypeError("an event of a log cannot be pickled; pickle its id and what you need of it")


@cython.final
cdef class Events:
    """Makes the events of a window, one at a time; see ``events.Events``."""

    cdef LogRows rows
    cdef Frame frame
    cdef object counters
    cdef bint joined
    cdef bytes after  # None once an event was after it
    cdef Py_ssize_t at
    cdef Record record
    cdef Py_ssize_t start, part, parts  # of the record
    cdef uint32_t made  # the row of the last event that was made
    cdef bint has_returned
    cdef bint may_be_in_cycle  # an event refers to nothing of the user's but the function for its type

    def __cinit__(self, LogRows rows, context, bint joined, bytes after):
        self.rows = rows
        self.counters = context.counters
        self.may_be_in_cycle = context.event_type is not None
        self.joined = joined
        if after and len(after) != 36:
            raise ValueError("not a position")
        self.after = after or None
        self.frame = Frame.__new__(Frame)
        self.frame.context = context
        self.frame.plan = rows.plan

    def __iter__(self):
        return self

    def __next__(self):
        cdef ChangeEvent event
        while True:
            event = self._next()
            if event is None:
                raise StopIteration
            if self.after is not None:
                if not self._is_after(self.made):
                    continue
                self.after = None
            self.has_returned = True
            return event

    @property
    def position(self):
        cdef Row* row
        if not self.has_returned:
            return b""
        row = &self.rows.rows[self.made]
        return position_of(row.ticks, row.low, self.rows._stream_id(self.made), row.seq)

    cdef bint _is_after(self, uint32_t number) noexcept:
        cdef const char* after = PyBytes_AS_STRING(self.after)
        cdef Row* row = &self.rows.rows[number]
        cdef uint64_t ticks = ulong_at(after), low = ulong_at(after + 8)
        cdef int found
        if row.ticks != ticks or row.low != low:
            return row.ticks > ticks or (row.ticks == ticks and row.low > low)
        found = memcmp(self.rows._stream_id(number), after + 16, 16)
        return found > 0 or (found == 0 and row.seq > uint_at(after + 32))

    # Nothing is left behind before what comes next is made: that may fail, and is then made again.

    cdef ChangeEvent _next(self):
        cdef LogRows rows = self.rows
        cdef Py_ssize_t at = self.at
        cdef Row* row
        cdef ChangeEvent event
        if self.record is not None:
            if self.part < self.parts:
                return self._of_record()
            self.record = None
        if at >= rows.kept:
            return None
        row = &rows.rows[rows.order[at]]
        if at + 1 >= rows.kept or not rows._same_record(rows.order[at], rows.order[at + 1]):
            if not (self.joined and (is_image(row.operation) or is_range(row.operation))):
                event = self._event(rows.order[at], rows.data_of(rows.order[at]), None, 0)
                if not row.end_of_batch or row.seq:
                    self.counters.incomplete_records += 1
                self.at = at + 1
                return event
        self._begin_record(at)
        return self._of_record() if self.parts else self._next()

    cdef int _begin_record(self, Py_ssize_t start) except -1:
        cdef LogRows rows = self.rows
        cdef Py_ssize_t end = rows._record_end(start), i
        cdef Record record = Record.__new__(Record)
        cdef Row* last = &rows.rows[rows.order[end - 1]]
        record.plan = rows.plan
        record.rows = [rows.data_of(rows.order[i]) for i in range(start, end)]
        record.parts = rows._parts(start, end) if self.joined else None
        if last.end_of_batch != 1 or last.seq != end - start - 1:
            self.counters.incomplete_records += 1
        self.record = record
        self.start = start
        self.part = 0
        self.parts = end - start if record.parts is None else len(record.parts)
        self.at = end
        return 0

    cdef ChangeEvent _of_record(self):
        cdef Record record = self.record
        cdef Py_ssize_t index = self.part
        cdef Py_ssize_t delta = index if record.parts is None else record.parts[index][0]
        cdef ChangeEvent event
        event = self._event(self.rows.order[self.start + delta], <bytes> record.rows[delta], record, index)
        self.part += 1
        return event

    cdef inline ChangeEvent _event(self, uint32_t number, bytes data, Record record, Py_ssize_t index):
        cdef Row* row = &self.rows.rows[number]
        cdef ChangeEvent event = ChangeEvent.__new__(ChangeEvent)
        if not self.may_be_in_cycle:
            PyObject_GC_UnTrack(<void*> event)
        self.made = number
        event._frame = self.frame
        event._row = data
        event._record = record
        event._index = index
        event._ticks = row.ticks
        event._low = row.low
        event._seq = row.seq
        event._operation = row.operation
        return event
