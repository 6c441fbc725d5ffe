/*
 * The table of statuses: SLG_STATUS(name, code). The enum of status.h, the names of status.c and
 * Status in `_native/status.pyx` come from it. One code per cause, never reused; codes below 16 are
 * outcomes, and none is above SLG_STATUS_MAX. Included several times, with SLG_STATUS defined.
 */
SLG_STATUS(OK, 0)

/* Outcomes of a scan. None is an error. */
SLG_STATUS(END, 1) /* clean end: the position is the end of the file */
/* an incomplete batch at the end (fewer bytes than its header or length say) */
SLG_STATUS(TORN_TAIL, 2)
/* only zero bytes from here to the end (preallocation, delayed allocation) */
SLG_STATUS(ZERO_TAIL, 3)
SLG_STATUS(FULL, 4) /* the output is full: empty it and call again */
/* the window ends inside a batch that the file holds whole: provide more bytes */
SLG_STATUS(MORE, 5)
SLG_STATUS(CODEC, 6) /* a compressed payload: the caller decompresses it and calls again */

/* Batch framing and checks (Kafka: CorruptRecordException). expected/found as commented. */
SLG_STATUS(BATCH_LENGTH, 16) /* length field below the minimum: expected = 14, found = length */
/* whole size below the header of its magic: expected = minimum, found = size */
SLG_STATUS(BATCH_SIZE, 17)
SLG_STATUS(BATCH_CRC, 18) /* expected = stored CRC, found = computed CRC */
SLG_STATUS(BATCH_MAGIC, 19) /* magic that this reader does not know: expected = 2, found = magic */
SLG_STATUS(BATCH_CODEC, 20) /* codec bits 5..7: expected = 4, found = codec */
/* negative record count, or more records than the bytes can hold */
SLG_STATUS(BATCH_RECORD_COUNT, 21)
/* last offset delta negative, or the offset overflows: found = delta */
SLG_STATUS(BATCH_LAST_OFFSET, 22)
/* base offset not above the last offset before: expected = minimum, found = base */
SLG_STATUS(BATCH_OFFSET_ORDER, 23)
/* last offset - segment base outside 0..2^31-1: expected = segment base, found = offset */
SLG_STATUS(BATCH_OFFSET_RANGE, 24)
/* control batch that is compressed, or bits that Kafka never writes */
SLG_STATUS(BATCH_ATTRIBUTES, 25)

/* Records inside a batch (Kafka: InvalidRecordException). position = the batch in the file. */
SLG_STATUS(RECORD_VARINT, 48) /* a varint that does not end, or is too wide */
/* record length beyond the payload: expected = bytes left, found = length */
SLG_STATUS(RECORD_LENGTH, 49)
/* fields do not end where the length says: expected = length, found = read */
SLG_STATUS(RECORD_SIZE, 50)
SLG_STATUS(RECORD_FIELD, 51) /* key, value or header length beyond the record */
SLG_STATUS(RECORD_HEADERS, 52) /* header count negative or more than the record can hold */
SLG_STATUS(RECORD_COUNT, 53) /* bytes left after, or missing before, the last record */
/* beyond int64 in microseconds: expected = the largest ms value, found = the timestamp in ms */
SLG_STATUS(RECORD_TIMESTAMP, 54)

/* Messages of magic 0 and 1 (Kafka: InvalidRecordException, CorruptRecordException). */
SLG_STATUS(LEGACY_SIZE, 80) /* inner or outer message below its minimum */
SLG_STATUS(LEGACY_NULL_WRAPPER, 81) /* compressed wrapper without a value */
SLG_STATUS(LEGACY_EMPTY_WRAPPER, 82) /* compressed wrapper without a message */
SLG_STATUS(LEGACY_NESTED, 83) /* compressed message inside a wrapper */
SLG_STATUS(LEGACY_OFFSET, 84) /* wrapper offset below the last inner offset and not zero */
SLG_STATUS(LEGACY_CODEC, 85) /* zstd in magic 0 or 1 */

/* Decompression. */
SLG_STATUS(CODEC_DATA, 100) /* the codec rejected the bytes */
SLG_STATUS(CODEC_TOO_LARGE, 101) /* more than the cap: expected = cap */

/* Index files (Kafka: CorruptIndexException). position = byte in the index file. */
/* size is no multiple of the entry: expected = entry size, found = file size */
SLG_STATUS(INDEX_SIZE, 112)
SLG_STATUS(INDEX_OFFSET_ORDER, 113) /* relative offset not above the one before */
SLG_STATUS(INDEX_POSITION_ORDER, 114) /* position not above the one before */
SLG_STATUS(INDEX_TIME_ORDER, 115) /* timestamp not above the one before */
SLG_STATUS(INDEX_OFFSET_RANGE, 116) /* offset below the base or beyond the segment's last */
SLG_STATUS(INDEX_POSITION_RANGE, 117) /* position beyond the log file */
SLG_STATUS(INDEX_PADDED, 118) /* entries followed by zeros: preallocated and never trimmed */
SLG_STATUS(INDEX_UNWRITTEN, 119) /* only zeros: created and never written */
SLG_STATUS(INDEX_NOT_A_BATCH, 120) /* entry does not point to the start of the batch it names */
SLG_STATUS(TXN_SIZE, 121) /* transaction index: size is no multiple of 34 */
SLG_STATUS(TXN_VERSION, 122) /* transaction index: version other than 0 */
SLG_STATUS(TXN_OFFSET, 123) /* transaction index: last offset below the base, or not increasing */

/* Files and directories. expected/found as commented; sys_errno for SLG_IO. */
SLG_STATUS(IO, 144) /* a system call failed: sys_errno */
SLG_STATUS(FILE_MISSING, 145) /* vanished between the listing and the open */
SLG_STATUS(FILE_KIND, 146) /* a link, directory, device or fifo where a file is expected */
SLG_STATUS(FILE_TOO_LARGE, 147) /* log file above 2^31 - 1: found = size */
SLG_STATUS(FILE_SHRANK, 148) /* fewer bytes than its size: expected, found */

SLG_STATUS(NO_MEMORY, 160)
SLG_STATUS(LIMIT, 161) /* the caller's limit was reached: expected = limit, found = wanted */
SLG_STATUS(INDEX_FULL, 162) /* an index that is rebuilt has no room: expected = entries that fit */

/* Folding a log into producer state (Kafka: InvalidTxnStateException and related ones). */
SLG_STATUS(TXN_STATE, 176) /* a batch without the transactional bit inside a transaction */
/* a marker for a transaction that is not open: found = first offset */
SLG_STATUS(TXN_NOT_STARTED, 177)

/* Records and columns to be written (Kafka: IllegalArgumentException). */
SLG_STATUS(ENCODE_OFFSET, 192) /* not above the last one: expected = the last, found = offset */
SLG_STATUS(ENCODE_TIMESTAMP, 193) /* negative and not -1: found = timestamp */
SLG_STATUS(ENCODE_DELTA, 194) /* 2^31 or more above the base: expected = base, found = offset */
/* a batch above 2^31 - 1 bytes: expected = that limit, found = its size */
SLG_STATUS(ENCODE_SIZE, 195)
SLG_STATUS(ENCODE_HEADER_KEY, 196) /* a header without a key */
SLG_STATUS(ARROW_TYPE, 200) /* a type that the column does not accept */
SLG_STATUS(ARROW_LAYOUT, 201) /* offsets out of order, or fewer values than declared */
