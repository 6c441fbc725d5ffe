from collections.abc import Callable, Iterable, Iterator
from typing import final

from seglog._native.encode_sources import ColumnSource

@final
class ColumnEncoder(Iterator[bytes]):
    def __init__(self, sources: Iterable[ColumnSource], *, base_offset: int | None = None,
                 attributes: int = 0, producer_id: int = -1, producer_epoch: int = -1,
                 base_sequence: int = -1, partition_leader_epoch: int = -1, timestamp: int = -1,
                 append_time: int = -1, max_batch_bytes: int = 2147483647,
                 max_records: int = 2147483647, span_bytes: int | None = None,
                 compress: Callable[[memoryview], bytes] | None = None) -> None: ...
    def __iter__(self) -> Iterator[bytes]: ...
    def __next__(self) -> bytes: ...
    def next(self) -> bytes | None: ...
    @property
    def batches(self) -> int: ...
    @property
    def records(self) -> int: ...
