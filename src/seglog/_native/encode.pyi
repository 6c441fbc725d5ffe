from collections.abc import Iterable
from typing import Final, final

from typing_extensions import Buffer

BATCH_OVERHEAD: Final[int]

_Headers = Iterable[tuple[str | Buffer, Buffer | None]]

@final
class BatchEncoder:
    def __init__(self, base_offset: int = 0, *, delete_horizon: int | None = None) -> None: ...
    def append(
        self, offset: int, timestamp: int, key: Buffer | None, value: Buffer | None,
        headers: _Headers = (), max_size: int = 9223372036854775807,
    ) -> int: ...
    def size_of(
        self, offset: int, timestamp: int, key: Buffer | None, value: Buffer | None,
        headers: _Headers = (),
    ) -> int: ...
    def records(self) -> bytes: ...
    def seal(
        self,
        *,
        attributes: int = 0,
        max_timestamp: int | None = None,
        last_offset: int | None = None,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        partition_leader_epoch: int = -1,
        payload: Buffer | None = None,
    ) -> bytes: ...
    @property
    def base_offset(self) -> int: ...
    @property
    def last_offset(self) -> int | None: ...
    @property
    def base_timestamp(self) -> int | None: ...
    @property
    def max_timestamp(self) -> int: ...
    @property
    def offset_of_max_timestamp(self) -> int: ...
    @property
    def record_count(self) -> int: ...
    @property
    def records_size(self) -> int: ...
