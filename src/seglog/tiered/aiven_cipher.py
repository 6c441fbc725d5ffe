"""Aiven's encryption: AES-256-GCM chunks with a data key that an RSA key wraps.

`cryptography` provides AES-GCM, but no RSA-OAEP with SHA-3, which PyCryptodome has (`pip install
'seglog[aiven]'`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from Crypto.Cipher import PKCS1_OAEP
from Crypto.Hash import SHA3_512
from Crypto.PublicKey import RSA
from Crypto.Signature.pss import MGF1
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

__all__ = ["OVERHEAD", "CipherError", "DataKey", "KeyRing"]

_IV_BYTES: Final = 12
_TAG_BYTES: Final = 16
#: Bytes that encryption adds to a chunk.
OVERHEAD: Final = _IV_BYTES + _TAG_BYTES
_KEY_BYTES: Final = 32


class CipherError(ValueError):
    """A wrong key, or bytes that were not encrypted with it. The message contains no key."""


class DataKey:
    """The key and the additional data of one segment."""

    def __init__(self, key: bytes, aad: bytes) -> None:
        self._cipher, self.aad = AESGCM(key), aad

    def decrypt(self, data: memoryview) -> bytes:
        """The bytes of a chunk or index: IV, ciphertext and tag. Raises CipherError."""
        if len(data) < OVERHEAD:
            raise CipherError(f"{len(data)} bytes cannot hold an IV and a tag")
        try:
            return bytes(self._cipher.decrypt(bytes(data[:_IV_BYTES]), data[_IV_BYTES:],
                                              self.aad))
        except InvalidTag:
            raise CipherError("the authentication tag is wrong: other bytes than were written, or "
                              "another key") from None

    def encrypt(self, data: bytes) -> bytes:
        """IV, ciphertext and tag, with a new random IV."""
        iv = os.urandom(_IV_BYTES)
        return iv + bytes(self._cipher.encrypt(iv, data, self.aad))


class KeyRing:
    """RSA keys by id. A private key unwraps; a public one wraps only."""

    def __init__(self, keys: Mapping[str, str | bytes]) -> None:
        self._keys = {name: _loaded(name, _pem(value)) for name, value in keys.items()}

    def unwrap(self, key_id: str, wrapped: bytes) -> bytes:
        """Unwraps a data key. Raises CipherError for a missing key, or one that did not wrap it."""
        key = self._keys.get(key_id)
        if key is None or not key.has_private():
            known = ", ".join(sorted(self._keys)) or "none"
            raise CipherError(f"it is encrypted with the key {key_id!r}, whose private half was "
                              f"not given (keys given: {known})")
        try:
            data_key = bytes(_oaep(key).decrypt(wrapped))
        except ValueError:
            raise CipherError(f"the key {key_id!r} does not unwrap the data key: another pair of "
                              "keys has that id") from None
        if len(data_key) != _KEY_BYTES:
            raise CipherError(f"the data key has {len(data_key)} bytes, not {_KEY_BYTES}")
        return data_key

    def wrap(self, key_id: str, data_key: bytes) -> bytes:
        """Wraps a data key. Raises CipherError for a missing key."""
        key = self._keys.get(key_id)
        if key is None:
            raise CipherError(f"the key {key_id!r} was not given")
        return bytes(_oaep(key).encrypt(data_key))


def _oaep(key: RSA.RsaKey) -> PKCS1_OAEP.PKCS1OAEP_Cipher:
    """RSA-OAEP with SHA3-512 for the hash and the mask (RFC 8017), and no label."""
    return PKCS1_OAEP.new(key, hashAlgo=SHA3_512, mgfunc=lambda seed, size: bytes(
        MGF1(seed, size, SHA3_512)))


def _pem(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    if b"-----BEGIN" in data:
        return data
    with open(data, "rb") as stream:
        return stream.read()


@lru_cache(maxsize=64)
def _loaded(name: str, pem: bytes) -> RSA.RsaKey:
    try:
        return RSA.import_key(pem)
    except (ValueError, IndexError, TypeError):
        raise CipherError(f"the key {name!r} is not a PEM of an RSA key, public (X.509) or private "
                          "(PKCS#8) without a password") from None
