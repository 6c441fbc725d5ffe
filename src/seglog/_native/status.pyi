from enum import IntEnum
from os import PathLike

from seglog.errors import SeglogError

class Status(IntEnum):
    OK = 0
    END = 1
    TORN_TAIL = 2
    ZERO_TAIL = 3
    FULL = 4
    MORE = 5
    CODEC = 6
    BATCH_LENGTH = 16
    BATCH_SIZE = 17
    BATCH_CRC = 18
    BATCH_MAGIC = 19
    BATCH_CODEC = 20
    BATCH_RECORD_COUNT = 21
    BATCH_LAST_OFFSET = 22
    BATCH_OFFSET_ORDER = 23
    BATCH_OFFSET_RANGE = 24
    BATCH_ATTRIBUTES = 25
    RECORD_VARINT = 48
    RECORD_LENGTH = 49
    RECORD_SIZE = 50
    RECORD_FIELD = 51
    RECORD_HEADERS = 52
    RECORD_COUNT = 53
    RECORD_TIMESTAMP = 54
    LEGACY_SIZE = 80
    LEGACY_NULL_WRAPPER = 81
    LEGACY_EMPTY_WRAPPER = 82
    LEGACY_NESTED = 83
    LEGACY_OFFSET = 84
    LEGACY_CODEC = 85
    CODEC_DATA = 100
    CODEC_TOO_LARGE = 101
    INDEX_SIZE = 112
    INDEX_OFFSET_ORDER = 113
    INDEX_POSITION_ORDER = 114
    INDEX_TIME_ORDER = 115
    INDEX_OFFSET_RANGE = 116
    INDEX_POSITION_RANGE = 117
    INDEX_PADDED = 118
    INDEX_UNWRITTEN = 119
    INDEX_NOT_A_BATCH = 120
    TXN_SIZE = 121
    TXN_VERSION = 122
    TXN_OFFSET = 123
    IO = 144
    FILE_MISSING = 145
    FILE_KIND = 146
    FILE_TOO_LARGE = 147
    FILE_SHRANK = 148
    NO_MEMORY = 160
    LIMIT = 161
    INDEX_FULL = 162
    TXN_STATE = 176
    TXN_NOT_STARTED = 177
    ENCODE_OFFSET = 192
    ENCODE_TIMESTAMP = 193
    ENCODE_DELTA = 194
    ENCODE_SIZE = 195
    ENCODE_HEADER_KEY = 196
    ARROW_TYPE = 200
    ARROW_LAYOUT = 201
    @property
    def code(self) -> str: ...
    @property
    def is_error(self) -> bool: ...

def status_error(status: int, *,
                 file: str | bytes | PathLike[str] | PathLike[bytes] | int | None = None,
                 position: int = 0, expected: int = 0, found: int = 0, sys_errno: int = 0
                 ) -> SeglogError | MemoryError: ...
