"""Files of records in TensorFlow's format, and messages in that of Protocol Buffers, without either package.

A record is its length (8 bytes), the length's checksum (4), the data, and the data's checksum (4), all little
endian; checksums are CRC-32C, rotated and shifted. A message is a sequence of fields: a varint of number and
wire type, then a varint, 8 bytes, 4 bytes, or a length and as many bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from nas_lightning.benchmarks.formats.crc32c import crc32c, crc32c_of_each
from nas_lightning.errors import InputError

_HEADER, _FOOTER = struct.Struct("<QI"), struct.Struct("<I")
_BATCH = 4096  # records whose checksums are computed together
_LONGEST = 1 << 16  # bytes; the official ones have some 500


def mask_checksum(crc: int) -> int:
    """The form in which the files store a checksum."""
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def read_records(path: Path) -> Iterator[bytes]:
    """The records' data in turn; raises at the first that is cut off or damaged, with its number."""
    with path.open("rb") as file:
        framed = _read_frames(file, path)
        first, failure = 1, None
        while failure is None:
            batch: list[tuple[bytes, int]] = []
            try:
                for record in islice(framed, _BATCH):
                    batch.append(record)
            except InputError as error:  # after what was read before it
                failure = error
            if not batch and failure is None:
                return
            checksums = crc32c_of_each([data for data, _ in batch])
            for number, ((data, stored), checksum) in enumerate(zip(batch, checksums, strict=True), first):
                if mask_checksum(checksum) != stored:
                    raise InputError("expected data with its checksum: damaged", where=_at(path, number))
                yield data
            first += len(batch)
        raise failure


def _read_frames(file: BinaryIO, path: Path) -> Iterator[tuple[bytes, int]]:
    """Data and stored checksum of each record."""
    number = 0
    while header := file.read(_HEADER.size):
        number += 1
        if len(header) < _HEADER.size:
            raise InputError("expected a whole record: cut off", where=_at(path, number))
        length, stored = _HEADER.unpack(header)
        if mask_checksum(crc32c(header[:8])) != stored or length > _LONGEST:
            raise InputError("expected a length with its checksum: damaged", where=_at(path, number))
        data, footer = file.read(length), file.read(_FOOTER.size)
        if len(data) < length or len(footer) < _FOOTER.size:
            raise InputError("expected a whole record: cut off", where=_at(path, number))
        yield data, _FOOTER.unpack(footer)[0]


def _at(path: Path, number: int) -> str:
    return f"{path}, record {number}"


def read_fields(message: bytes) -> Iterator[tuple[int, int | float | bytes]]:
    """Number and value of each field: varints as int, 8 and 4 bytes as float, the rest as bytes.

    >>> list(read_fields(bytes([0x10, 0x96, 0x01])))
    [(2, 150)]
    """
    position = 0
    while position < len(message):
        tag, position = _varint(message, position)
        kind = tag & 7
        if kind == 0:
            value, position = _varint(message, position)
            yield tag >> 3, value
            continue
        size = {1: 8, 5: 4}.get(kind)
        if kind == 2:
            size, position = _varint(message, position)
        if size is None or position + size > len(message):
            raise InputError("expected a protocol buffer's message: damaged")
        part, position = message[position : position + size], position + size
        yield tag >> 3, part if kind == 2 else struct.unpack("<d" if kind == 1 else "<f", part)[0]


def _varint(message: bytes, position: int) -> tuple[int, int]:
    """The number that starts at a position, and where it ends."""
    value = 0
    for index, byte in enumerate(message[position : position + 10]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, position + index + 1
    raise InputError("expected a protocol buffer's message: damaged")
