"""Kafka's hash, checksum and batch validation for every value of an Arrow array.

Arrays hold binary or text (as UTF-8) and come from any library with `__arrow_c_array__`. The result
is a numpy array with one number a value. Raises IllegalArgumentError for other types, but never for
the content of a value.
"""

from seglog._native.checksums import crc32c_column, valid_batches
from seglog._native.murmur2 import hashes as murmur2_column

__all__ = ["crc32c_column", "murmur2_column", "valid_batches"]
