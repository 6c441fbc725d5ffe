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
        SLG_INDEX_FULL
        SLG_TXN_STATE
        SLG_TXN_NOT_STARTED
        SLG_ENCODE_OFFSET, SLG_ENCODE_TIMESTAMP, SLG_ENCODE_DELTA, SLG_ENCODE_SIZE
        SLG_ENCODE_HEADER_KEY, SLG_ARROW_TYPE, SLG_ARROW_LAYOUT

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
    void slg_start_writeback(int fd, int64_t position, int64_t size) noexcept
    slg_status slg_set_size(const char *path, int64_t size, slg_error *error) noexcept

    enum:
        SLG_SEEN_MISSING
        SLG_SEEN_UNKNOWN

    ctypedef struct slg_seen:
        int64_t size
        int64_t content

    void slg_look(const char *directory, const char *names, size_t count, size_t read_count,
                  size_t each, uint8_t *room, slg_seen *seen) noexcept


cdef extern from "seglog/index.h" nogil:
    enum:
        SLG_TXN_ENTRY_SIZE
        SLG_INDEX_COPY_MAX

    ctypedef enum slg_index_kind:
        SLG_INDEX_KIND_OFFSET
        SLG_INDEX_KIND_TIME
        SLG_INDEX_KIND_TXN

    ctypedef struct slg_index_entry:
        int64_t key
        int64_t value

    ctypedef struct slg_index_file:
        const uint8_t *data
        size_t entries
        size_t size
        int64_t file_size
        int fd

    slg_status slg_index_file_open(slg_index_file *file, slg_index_kind kind, const char *path,
                                   slg_error *error) noexcept
    slg_status slg_index_file_copy(slg_index_file *file, slg_index_kind kind, const uint8_t *data,
                                   size_t size, slg_error *error) noexcept
    slg_status slg_index_file_entry(const slg_index_file *file, slg_index_kind kind, size_t n,
                                    int64_t base_offset, slg_index_entry *entry,
                                    slg_error *error) noexcept
    slg_status slg_index_file_lookup(const slg_index_file *file, slg_index_kind kind,
                                     int64_t base_offset, int64_t target, int64_t *slot,
                                     slg_error *error) noexcept
    slg_status slg_index_file_upper_bound(const slg_index_file *file, int64_t position,
                                          int64_t *slot, slg_error *error) noexcept
    slg_status slg_index_file_read(const slg_index_file *file, uint8_t *into,
                                   slg_error *error) noexcept
    bint slg_index_file_shrank(const slg_index_file *file) noexcept
    void slg_index_file_close(slg_index_file *file) noexcept


cdef extern from "seglog/scan.h" nogil:
    ctypedef enum slg_file_class:
        SLG_FILE_LOG
        SLG_FILE_INDEX
        SLG_FILE_TIME_INDEX
        SLG_FILE_TXN_INDEX
        SLG_FILE_SNAPSHOT
        SLG_FILE_DELETED
        SLG_FILE_CLEANED
        SLG_FILE_SWAP
        SLG_FILE_LEADER_EPOCHS
        SLG_FILE_PARTITION_METADATA
        SLG_FILE_RAFT_CHECKPOINT
        SLG_FILE_QUORUM_STATE
        SLG_FILE_TEXT_TEMPORARY
        SLG_FILE_OTHER_NUMBER
        SLG_FILE_NOT_A_NUMBER
        SLG_FILE_FOREIGN
        SLG_FILE_DIRECTORY
        SLG_FILE_LINK
        SLG_FILE_SPECIAL

    enum:
        SLG_HAS_LOG
        SLG_HAS_INDEX
        SLG_HAS_TIME_INDEX
        SLG_HAS_TXN_INDEX
        SLG_HAS_SNAPSHOT
        SLG_PROBLEMS_PER_SEGMENT

    ctypedef enum slg_check_level:
        SLG_CHECK_KAFKA
        SLG_CHECK_FULL

    ctypedef struct slg_numbered:
        int64_t number
        uint32_t has
        uint32_t unused

    ctypedef struct slg_listing:
        slg_numbered *numbered
        size_t numbered_count
        size_t numbered_capacity
        char *names
        size_t names_size
        size_t names_capacity
        uint8_t *classes
        size_t other_count
        size_t other_capacity

    ctypedef struct slg_segment_columns:
        int64_t *log_size
        int64_t *index_size
        int64_t *time_index_size
        int64_t *txn_index_size
        int64_t *mtime_ms
        int32_t *status

    ctypedef struct slg_problem:
        int64_t row
        int64_t position
        int64_t expected
        int64_t found
        int32_t status
        int32_t sys_errno
        int32_t file
        int32_t unused

    slg_file_class slg_classify_name(const char *name, int64_t *number) noexcept
    slg_status slg_list_partition(const char *path, slg_listing *listing,
                                  slg_error *error) noexcept
    void slg_listing_free(slg_listing *listing) noexcept
    slg_status slg_check_segments(const char *path, const int64_t *numbers, const uint8_t *has,
                                  size_t count, int64_t end_offset, slg_check_level level,
                                  const slg_segment_columns *out, slg_problem *problems,
                                  size_t *problem_count, slg_error *error) noexcept


cdef extern from "seglog/window.h" nogil:
    ctypedef slg_status (*slg_source_read)(void *context, uint8_t *into, size_t least, size_t most,
                                           int64_t position, size_t *got,
                                           slg_error *error) noexcept nogil

    ctypedef struct slg_source:
        int fd
        slg_source_read read
        void *context

    slg_source slg_source_of(int fd) noexcept

    ctypedef struct slg_window:
        int64_t position
        size_t size

    void slg_window_init(slg_window *window, slg_source source, int64_t end,
                         size_t target) noexcept
    void slg_window_free(slg_window *window) noexcept


cdef extern from "seglog/format.h" nogil:
    enum:
        SLG_ATTRIBUTE_CODEC
        SLG_ATTRIBUTE_LOG_APPEND_TIME
        SLG_ATTRIBUTE_TRANSACTIONAL
        SLG_ATTRIBUTE_CONTROL
        SLG_ATTRIBUTE_DELETE_HORIZON
        SLG_CODEC_SNAPPY, SLG_CODEC_LZ4, SLG_CODEC_ZSTD


cdef extern from "seglog/batch.h" nogil:
    ctypedef struct slg_batch:
        int64_t base_offset
        int64_t last_offset
        int64_t base_timestamp
        int64_t max_timestamp
        int64_t producer_id
        int64_t position
        int32_t size
        int32_t partition_leader_epoch
        int32_t base_sequence
        int32_t record_count
        uint32_t crc
        int16_t attributes
        int16_t producer_epoch
        int8_t magic

    enum:
        SLG_SCAN_CRC
        SLG_SCAN_STRICT

    ctypedef struct slg_batch_scan:
        unsigned checks
        slg_crc32c_kernel kernel
        int64_t position
        int64_t end
        slg_batch *batches
        int64_t batches_left
        int64_t batch_count
        int64_t record_count
        int64_t first_offset
        int64_t last_offset
        int64_t max_timestamp
        int64_t offset_of_max_timestamp
        int64_t next_position
        int64_t until

    void slg_batch_scan_init(slg_batch_scan *scan) noexcept
    slg_status slg_batch_scan_memory(slg_batch_scan *scan, const uint8_t *data, size_t size,
                                     slg_error *error) noexcept
    slg_status slg_batch_scan_file(slg_batch_scan *, slg_window *, slg_error *) noexcept
    slg_status slg_batch_find(slg_window *, int64_t start, int64_t until, slg_crc32c_kernel,
                              int64_t *found, slg_error *) noexcept
    slg_status slg_batch_resync(slg_window *, int64_t start, int64_t until, slg_crc32c_kernel,
                                int64_t *budget, int64_t *found, slg_error *) noexcept


cdef extern from "seglog/framing.h" nogil:
    enum:
        SLG_LZ4_BLOCK_BYTES

    ctypedef enum slg_frame:
        SLG_FRAME_BLOCK, SLG_FRAME_END

    ctypedef struct slg_block:
        const uint8_t *data
        size_t size
        bint is_stored

    slg_frame slg_lz4_next(const uint8_t *payload, size_t size, size_t *position,
                           slg_block *block) noexcept
    slg_frame slg_xerial_next(const uint8_t *payload, size_t size, size_t *position,
                              slg_block *block) noexcept


cdef extern from "seglog/utf8.h" nogil:
    size_t slg_utf8_bound(size_t size) noexcept
    size_t slg_utf8_replace(const uint8_t *data, size_t size, uint8_t *into) noexcept


cdef extern from "seglog/walk.h" nogil:
    ctypedef struct slg_walk:
        slg_window *window
        int64_t position
        int64_t end
        slg_batch batch
        bint valid
        const uint8_t *payload
        size_t payload_size

    ctypedef struct slg_walk_record:
        int64_t offset
        int64_t timestamp
        const uint8_t *key
        const uint8_t *value
        const uint8_t *headers
        size_t headers_size
        int32_t key_size
        int32_t value_size
        int32_t sequence
        int32_t header_count
        uint32_t crc
        bint valid

    ctypedef struct slg_walk_header:
        const uint8_t *key
        const uint8_t *value
        int32_t key_size
        int32_t value_size

    void slg_walk_init(slg_walk *walk, slg_window *window, int64_t position,
                       int64_t end) noexcept
    slg_status slg_walk_next(slg_walk *walk, slg_error *error) noexcept
    slg_status slg_walk_load(slg_walk *walk, slg_error *error) noexcept
    slg_status slg_walk_enter(slg_walk *walk, slg_error *error) noexcept
    slg_status slg_walk_payload(slg_walk *walk, const uint8_t *data, size_t size,
                                slg_error *error) noexcept
    slg_status slg_walk_record_next(slg_walk *walk, slg_walk_record *record,
                                    slg_error *error) noexcept
    bint slg_walk_header_next(slg_cursor *headers, slg_walk_header *header) noexcept


cdef extern from "seglog/wire.h" nogil:
    ctypedef struct slg_cursor:
        pass

    slg_cursor slg_cursor_of(const uint8_t *data, size_t size) noexcept
