from typing import Final

from typing_extensions import Buffer

KERNEL: Final[str]
KERNELS: Final[tuple[str, ...]]

def crc32c(data: Buffer, value: int = 0) -> int: ...
def crc32c_with(kernel: str, data: Buffer, value: int = 0) -> int: ...
def crc32(data: Buffer, value: int = 0) -> int: ...
