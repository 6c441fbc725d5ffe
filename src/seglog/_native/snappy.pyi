from typing import Final

from typing_extensions import Buffer

BLOCK_MAX: Final[int]

def compress_block(data: Buffer) -> bytes: ...
