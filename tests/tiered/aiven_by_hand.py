"""Aiven's layout of a segment, written and read from its description and nothing else.

The plug-in itself cannot be had from a registry. This writer and this reader share no code with the
package, and not with each other: zstd is pyarrow's, everything else is the standard library and
`cryptography`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

INDEXES = ("offset", "timestamp", "producerSnapshot", "leaderEpoch", "transaction")
FILES = dict(zip(INDEXES, (".index", ".timeindex", ".snapshot", ".leader_epoch_checkpoint",
                           ".txnindex"), strict=True))


def key_pair() -> tuple[rsa.RSAPrivateKey, bytes]:
    """A key, and its PEM."""
    key = rsa.generate_private_key(65537, 2048)
    return key, key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                                  serialization.NoEncryption())


def wrapped(key: rsa.RSAPrivateKey, data_key: bytes) -> bytes:
    """RSA-OAEP (RFC 8017, 7.1.1) with SHA3-512, in integers."""
    public = key.public_key().public_numbers()
    size, digest = (public.n.bit_length() + 7) // 8, hashlib.sha3_512().digest()
    block = digest + bytes(size - len(data_key) - 2 * len(digest) - 2) + b"\1" + data_key
    seed = os.urandom(len(digest))
    masked = _xor(block, _mask(seed, len(block)))
    padded = b"\0" + _xor(seed, _mask(masked, len(seed))) + masked
    return pow(int.from_bytes(padded, "big"), public.e, public.n).to_bytes(size, "big")


def unwrapped(key: rsa.RSAPrivateKey, text: bytes) -> bytes:
    """The same backwards (7.1.2)."""
    numbers = key.private_numbers()
    size = (numbers.public_numbers.n.bit_length() + 7) // 8
    padded = pow(int.from_bytes(text, "big"), numbers.d, numbers.public_numbers.n).to_bytes(
        size, "big")
    seed, block = padded[1:65], padded[65:]
    seed = _xor(seed, _mask(block, 64))
    block = _xor(block, _mask(seed, len(block)))
    assert padded[0] == 0
    assert block[:64] == hashlib.sha3_512().digest()
    return block[64:].lstrip(b"\0")[1:]


def _mask(seed: bytes, size: int) -> bytes:
    blocks = (hashlib.sha3_512(seed + n.to_bytes(4, "big")).digest() for n in range(size // 64 + 1))
    return b"".join(blocks)[:size]


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


def packed_sizes(sizes: list[int]) -> bytes:
    """The sizes of chunks before compression."""
    out = struct.pack(">i", len(sizes))
    if len(sizes) == 1:
        return out + struct.pack(">i", sizes[0])
    if sizes:
        base = min(sizes[:-1])
        width = max(1, (max(size - base for size in sizes[:-1]).bit_length() + 7) // 8)
        out += struct.pack(">iB", base, width)
        for size in sizes[:-1]:
            out += (size - base).to_bytes(width, "big")
        out += struct.pack(">i", sizes[-1])
    return out


def write_segment(root: Path, local: Path, *, chunk_size: int, compress: bool = False,
                  key: tuple[str, rsa.RSAPrivateKey] | None = None, prefix: str = "",
                  metadata: bool = True, end_offset: int | None = None) -> Path:
    """Writes the three objects of a segment that LocalTieredStorage holds as `local` (its log).
    Returns the path of the manifest."""
    directory = local.parent.name
    topic_partition, topic_id = directory[:-23], directory[-22:]
    topic, _, partition = topic_partition.rpartition("-")
    start, segment_id = local.stem[:20], local.stem[21:]
    target = root / f"{prefix}{topic}-{topic_id}" / partition / local.stem
    target.parent.mkdir(parents=True, exist_ok=True)
    data_key, aad = os.urandom(32), os.urandom(32)

    def seal(data: bytes) -> bytes:
        if key is None:
            return data
        iv = os.urandom(12)
        return iv + AESGCM(data_key).encrypt(iv, data, aad)

    log = local.read_bytes()
    chunks = [log[at:at + chunk_size] for at in range(0, len(log), chunk_size)] or [b""]
    stored = []
    for chunk in chunks:
        if compress:
            chunk = pa.compress(chunk, codec="zstd", asbytes=True)
        stored.append(seal(chunk) if log else b"")
    target.with_name(target.name + ".log").write_bytes(b"".join(stored))
    sizes = [len(one) for one in stored]
    index: dict[str, Any] = {"originalChunkSize": chunk_size if log else 0,
                             "originalFileSize": len(log)}
    if compress:
        index |= {"type": "variable", "transformedChunks": base64.b64encode(
            pa.compress(packed_sizes(sizes), codec="zstd", asbytes=True)).decode()}
    else:
        index |= {"type": "fixed", "transformedChunkSize": sizes[0],
                  "finalTransformedChunkSize": sizes[-1]}
    parts: dict[str, Any] = {}
    joined = b""
    for name in INDEXES:
        file = local.with_suffix(FILES[name])
        if name == "transaction" and not file.exists():
            parts[name] = None
            continue
        content = file.read_bytes()
        content = seal(content) if content else b""
        parts[name] = {"position": len(joined), "size": len(content)}
        joined += content
    target.with_name(target.name + ".indexes").write_bytes(joined)
    manifest: dict[str, Any] = {"version": "1", "chunkIndex": index, "segmentIndexes": parts,
                                "compression": compress}
    if key is not None:
        sealed_key = base64.b64encode(wrapped(key[1], data_key)).decode()
        manifest["encryption"] = {"dataKey": f"{key[0]}:{sealed_key}",
                                  "aad": base64.b64encode(aad).decode()}
    if metadata:
        lines = local.with_suffix(".leader_epoch_checkpoint").read_text().split("\n")[2:]
        entries = [tuple(map(int, line.split())) for line in lines if line]
        epochs = {}
        for row, (epoch, first) in enumerate(entries):
            if row + 1 == len(entries) or entries[row + 1][1] > int(start):
                epochs[str(epoch)] = max(first, int(start))
        manifest["remoteLogSegmentMetadata"] = {
            "remoteLogSegmentId": {
                "topicIdPartition": {"topicId": topic_id, "topicPartition": {
                    "topic": topic, "partition": int(partition)}}, "id": segment_id},
            "startOffset": int(start), "endOffset": end_offset, "maxTimestampMs": 1,
            "brokerId": 1, "eventTimestampMs": 1, "segmentLeaderEpochs": epochs}
    path = target.with_name(target.name + ".rsm-manifest")
    path.write_text(json.dumps(manifest))
    return path


def read_segment(manifest_path: Path, keys: dict[str, rsa.RSAPrivateKey]
                 ) -> tuple[bytes, dict[str, bytes | None], dict[str, Any]]:
    """The log, the indexes and the manifest of a segment."""
    manifest = json.loads(manifest_path.read_text())
    known = {"version", "chunkIndex", "segmentIndexes", "compression", "encryption",
             "remoteLogSegmentMetadata"}
    assert set(manifest) <= known, "the plug-in's reader refuses unknown fields"
    stem = manifest_path.name.removesuffix(".rsm-manifest")
    cipher = aad = None
    if "encryption" in manifest:
        name, sealed_key = manifest["encryption"]["dataKey"].split(":", 1)
        aad = base64.b64decode(manifest["encryption"]["aad"])
        cipher = AESGCM(unwrapped(keys[name], base64.b64decode(sealed_key)))

    def unseal(data: bytes) -> bytes:
        return data if cipher is None else cipher.decrypt(data[:12], data[12:], aad)

    index = manifest["chunkIndex"]
    count = max(1, -(-index["originalFileSize"] // (index["originalChunkSize"] or 1)))
    if index["type"] == "fixed":
        sizes = [index["transformedChunkSize"]] * (count - 1) + [index["finalTransformedChunkSize"]]
    else:
        sizes = _unpacked(base64.b64decode(index["transformedChunks"]))
    assert len(sizes) == count
    stored = manifest_path.with_name(f"{stem}.log").read_bytes()
    assert len(stored) == sum(sizes)
    log, at = b"", 0
    for number, size in enumerate(sizes):
        part = unseal(stored[at:at + size]) if stored else b""
        at += size
        length = min(index["originalChunkSize"],
                     index["originalFileSize"] - number * index["originalChunkSize"])
        if manifest["compression"]:
            assert content_size(part) == length, "the plug-in sizes its buffer by this"
            part = pa.decompress(part, decompressed_size=length, codec="zstd", asbytes=True)
        assert len(part) == length
        log += part
    joined = manifest_path.with_name(f"{stem}.indexes").read_bytes()
    indexes: dict[str, bytes | None] = {}
    for name in INDEXES:
        place = manifest["segmentIndexes"][name]
        part = b"" if place is None else joined[place["position"]:place["position"] + place["size"]]
        indexes[name] = None if place is None else unseal(part) if part else b""
    return log, indexes, manifest


def content_size(frame: bytes) -> int | None:
    """Frame_Content_Size of a zstd frame (RFC 8878, 3.1.1.1)."""
    assert frame[:4] == b"\x28\xb5\x2f\xfd"
    flag, single, dictionary = frame[4] >> 6, frame[4] >> 5 & 1, frame[4] & 3
    at = 5 + (0 if single else 1) + (0, 1, 2, 4)[dictionary]
    width = (1 if single else 0, 2, 4, 8)[flag]
    return int.from_bytes(frame[at:at + width], "little") + (256 if width == 2 else 0) \
        if width else None


def _unpacked(frame: bytes) -> list[int]:
    size = content_size(frame)
    assert size is not None, "the plug-in sizes its buffer by this"
    data = pa.decompress(frame, decompressed_size=size, codec="zstd", asbytes=True)
    count, = struct.unpack_from(">i", data)
    if count < 2:
        return list(struct.unpack(f">{count}i", data[4:]))
    base, width = struct.unpack_from(">iB", data, 4)
    middle = [base + int.from_bytes(data[9 + width * n:9 + width * (n + 1)], "big")
              for n in range(count - 1)]
    last, = struct.unpack(">i", data[9 + width * (count - 1):])
    return [*middle, last]
