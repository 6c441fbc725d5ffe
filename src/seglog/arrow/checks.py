"""Kafka's hash and checksum, and whether bytes are a batch, of every value of an Arrow array.

Arrays are binary or text (as UTF-8) of any library with `__arrow_c_array__`. The result is a numpy
array with a number for each value. Raises IllegalArgumentError for other types, and never for the
bytes themselves.
"""

from seglog._native.checksums import crc32c_column, valid_batches
from seglog._native.murmur2 import hashes as murmur2_column

__all__ = ["crc32c_column", "murmur2_column", "valid_batches"]
