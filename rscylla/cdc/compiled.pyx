# cython: language_level=3, boundscheck=False, wraparound=False
"""The compiled decoder of log pages; see ``pages``, ``rows`` and ``records`` for its twins in Python."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.ref cimport Py_INCREF
from cpython.tuple cimport PyTuple_New, PyTuple_SET_ITEM
from libc.stdint cimport int32_t, uint32_t, uint8_t


cdef inline int32_t int_at(const char* p) noexcept nogil:
    cdef const uint8_t* u = <const uint8_t*> p
    return <int32_t> ((<uint32_t> u[0] << 24) | (<uint32_t> u[1] << 16) | (<uint32_t> u[2] << 8) | u[3])


def split_rows(bytes body not None, Py_ssize_t offset, Py_ssize_t columns):
    """Return the rows of a page as tuples of undecoded cells, None for null.

    Raises:
        ValueError: the page ends within a row.
    """
    cdef const char* start = PyBytes_AS_STRING(body)
    cdef const char* end = start + PyBytes_GET_SIZE(body)
    cdef const char* at = start + offset
    cdef int32_t size, count
    cdef Py_ssize_t i, j
    cdef object cell
    cdef tuple row
    cdef list rows = []
    if offset < 0 or end - at < 4:
        raise ValueError("the page ends within a row")
    count = int_at(at)
    at += 4
    for i in range(count):
        row = PyTuple_New(columns)
        for j in range(columns):
            if end - at < 4:
                raise ValueError("the page ends within a row")
            size = int_at(at)
            at += 4
            if size < 0:
                cell = None
            elif end - at < size:
                raise ValueError("the page ends within a row")
            else:
                cell = PyBytes_FromStringAndSize(at, size)
                at += size
            Py_INCREF(cell)
            PyTuple_SET_ITEM(row, j, cell)
        rows.append(row)
    return rows
