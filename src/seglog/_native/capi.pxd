"""csrc declared once for every extension. One block per header, each owned by its stem.

Every function is `noexcept nogil`: C reports by status, and `status.check` is the only border.
"""

from libc.stddef cimport size_t
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef extern from "seglog/status.h" nogil:
    ctypedef enum slg_status:
        SLG_OK
        SLG_END
        SLG_TORN_TAIL
        SLG_ZERO_TAIL
        SLG_FULL
        SLG_MORE
        SLG_CODEC
        SLG_BATCH_LENGTH
        SLG_BATCH_SIZE
        SLG_BATCH_CRC
        SLG_BATCH_MAGIC
        SLG_BATCH_CODEC
        SLG_BATCH_RECORD_COUNT
        SLG_BATCH_LAST_OFFSET
        SLG_BATCH_OFFSET_ORDER
        SLG_BATCH_OFFSET_RANGE
        SLG_BATCH_ATTRIBUTES
        SLG_RECORD_VARINT
        SLG_RECORD_LENGTH
        SLG_RECORD_SIZE
        SLG_RECORD_FIELD
        SLG_RECORD_HEADERS
        SLG_RECORD_COUNT
        SLG_RECORD_TIMESTAMP
        SLG_LEGACY_SIZE
        SLG_LEGACY_NULL_WRAPPER
        SLG_LEGACY_EMPTY_WRAPPER
        SLG_LEGACY_NESTED
        SLG_LEGACY_OFFSET
        SLG_LEGACY_CODEC
        SLG_CODEC_DATA
        SLG_CODEC_TOO_LARGE
        SLG_INDEX_SIZE
        SLG_INDEX_OFFSET_ORDER
        SLG_INDEX_POSITION_ORDER
        SLG_INDEX_TIME_ORDER
        SLG_INDEX_OFFSET_RANGE
        SLG_INDEX_POSITION_RANGE
        SLG_INDEX_PADDED
        SLG_INDEX_UNWRITTEN
        SLG_INDEX_NOT_A_BATCH
        SLG_TXN_SIZE
        SLG_TXN_VERSION
        SLG_TXN_OFFSET
        SLG_IO
        SLG_FILE_MISSING
        SLG_FILE_KIND
        SLG_FILE_TOO_LARGE
        SLG_FILE_SHRANK
        SLG_NO_MEMORY
        SLG_LIMIT

    ctypedef struct slg_error:
        slg_status status
        int32_t sys_errno
        int64_t position
        int64_t expected
        int64_t found

    const char *slg_status_name(slg_status status) noexcept
    slg_status slg_fail(slg_error *error, slg_status status, int64_t position, int64_t expected,
                        int64_t found) noexcept
    slg_status slg_fail_errno(slg_error *error, slg_status status, int64_t position,
                              int sys_errno) noexcept


cdef extern from "seglog/crc32c.h" nogil:
    ctypedef enum slg_crc32c_kernel:
        SLG_CRC32C_PORTABLE
        SLG_CRC32C_SSE42
        SLG_CRC32C_AVX512
        SLG_CRC32C_ARMV8
        SLG_CRC32C_KERNELS

    const char *slg_crc32c_name(slg_crc32c_kernel kernel) noexcept
    bint slg_crc32c_available(slg_crc32c_kernel kernel) noexcept
    slg_crc32c_kernel slg_crc32c_best() noexcept
    uint32_t slg_crc32c(slg_crc32c_kernel kernel, uint32_t crc, const void *data,
                        size_t size) noexcept
    uint32_t slg_crc32(uint32_t crc, const void *data, size_t size) noexcept


cdef extern from "seglog/file.h" nogil:
    ctypedef enum slg_advice:
        SLG_ADVICE_NORMAL
        SLG_ADVICE_RANDOM
        SLG_ADVICE_SEQUENTIAL

    slg_status slg_open_read(int dir_fd, const char *path, bint follow_links, int *fd,
                             int64_t *size, slg_error *error) noexcept
    slg_status slg_file_size(int fd, int64_t *size, slg_error *error) noexcept
    slg_status slg_pread(int fd, void *into, size_t size, int64_t position, size_t *got,
                         slg_error *error) noexcept
    slg_status slg_pread_exact(int fd, void *into, size_t size, int64_t position,
                               slg_error *error) noexcept
    slg_status slg_pwrite(int fd, const void *data, size_t size, int64_t position,
                          slg_error *error) noexcept
    slg_status slg_preallocate(int fd, int64_t size, slg_error *error) noexcept
    slg_status slg_trim(int fd, int64_t size, slg_error *error) noexcept
    slg_status slg_sync(int fd, bint metadata, slg_error *error) noexcept
    slg_status slg_map(int fd, size_t size, slg_advice advice, const uint8_t **data,
                       slg_error *error) noexcept
    void slg_unmap(const uint8_t *data, size_t size) noexcept
