# cython: language_level=3
"""What compiled rooms share: numbers, times, and uuids as the protocol has them. All is inlined where it is used."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef extern from *:
    """
    #define EPOCH_TICKS INT64_C(0x01B21DD213814000)
    static const char HEX[] =
        "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f"
        "303132333435363738393a3b3c3d3e3f404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f"
        "606162636465666768696a6b6c6d6e6f707172737475767778797a7b7c7d7e7f808182838485868788898a8b8c8d8e8f"
        "909192939495969798999a9b9c9d9e9fa0a1a2a3a4a5a6a7a8a9aaabacadaeafb0b1b2b3b4b5b6b7b8b9babbbcbdbebf"
        "c0c1c2c3c4c5c6c7c8c9cacbcccdcecfd0d1d2d3d4d5d6d7d8d9dadbdcdddedfe0e1e2e3e4e5e6e7e8e9eaebecedeeef"
        "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff";
    """
    const int64_t EPOCH_TICKS  # of a timeuuid, from 1582-10-15 to 1970-01-01
    const char* HEX  # two digits of each byte


cdef inline uint16_t ushort_at(const char* p) noexcept nogil:
    cdef const uint8_t* u = <const uint8_t*> p
    return <uint16_t> ((u[0] << 8) | u[1])


cdef inline uint32_t uint_at(const char* p) noexcept nogil:
    cdef const uint8_t* u = <const uint8_t*> p
    return (<uint32_t> u[0] << 24) | (<uint32_t> u[1] << 16) | (<uint32_t> u[2] << 8) | u[3]


cdef inline int32_t int_at(const char* p) noexcept nogil:
    return <int32_t> uint_at(p)


cdef inline uint64_t ulong_at(const char* p) noexcept nogil:
    return (<uint64_t> uint_at(p) << 32) | uint_at(p + 4)


cdef inline uint64_t ticks_at(const char* p) noexcept nogil:
    """Return the ticks of a timeuuid; see ``_timeuuid.ticks_of``."""
    cdef uint64_t head = ulong_at(p)
    return ((head & 0x0FFF) << 48) | (((head >> 16) & 0xFFFF) << 32) | (head >> 32)


cdef inline char* put_hex(char* out, const char* data, Py_ssize_t size) noexcept nogil:
    """Write two digits a byte, and return where they end."""
    cdef Py_ssize_t i
    for i in range(size):
        memcpy(out + 2 * i, HEX + 2 * <uint8_t> data[i], 2)
    return out + 2 * size


cdef inline char* put_uuid(char* out, const char* data) noexcept nogil:
    """Write the text of a uuid, 36 characters, and return where it ends."""
    out = put_hex(out, data, 4)
    out[0] = c"-"
    out = put_hex(out + 1, data + 4, 2)
    out[0] = c"-"
    out = put_hex(out + 1, data + 6, 2)
    out[0] = c"-"
    out = put_hex(out + 1, data + 8, 2)
    out[0] = c"-"
    return put_hex(out + 1, data + 10, 6)
