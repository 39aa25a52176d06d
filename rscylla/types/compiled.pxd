# cython: language_level=3
"""What other compiled rooms use of the compiled values: cells where they lie, and their decoders."""

from libc.stdint cimport int32_t


cdef struct Cell:
    const char* data
    int32_t size  # negative: null


cdef class Cells:
    cdef Py_ssize_t count
    cdef Cell* cells  # NULL: all are null
    cdef int reserve(self, Py_ssize_t count) except -1


cdef class Decoder:
    cdef object read(self, const char* data, Py_ssize_t size)


cdef class Text(Decoder):
    pass


cdef class Ascii(Decoder):
    pass


cdef class Number(Decoder):
    cdef char code  # as ``struct`` has it
    cdef Py_ssize_t width
