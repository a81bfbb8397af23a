"""CRC-32C (Castagnoli, RFC 3720 appendix B.4), of many byte strings at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_POLYNOMIAL = 0x82F63B78  # its bits reversed, as the bytes are read


def _table() -> NDArray[np.uint32]:
    """What a byte does to the remainder."""
    values = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        values = np.where(
            values & 1, (values >> np.uint32(1)) ^ np.uint32(_POLYNOMIAL), values >> np.uint32(1)
        )
    return values.astype(np.uint32)


_TABLE = _table()
_LIST = _TABLE.tolist()


def crc32c(data: bytes) -> int:
    """The checksum of a short string.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _LIST[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def crc32c_of_each(strings: Sequence[bytes]) -> list[int]:
    """The checksums of all strings, which advance together, a byte at a time.

    >>> crc32c_of_each([b"123456789", b""]) == [crc32c(b"123456789"), 0]
    True
    """
    lengths = np.array([len(string) for string in strings])
    order = np.argsort(-lengths, kind="stable")  # so that those still unfinished stand in front
    longest = int(lengths.max(initial=0))
    text = np.zeros((longest, len(strings)), dtype=np.uint8)  # (position, string)
    for place, index in enumerate(order):
        text[: lengths[index], place] = np.frombuffer(strings[index], dtype=np.uint8)
    crc = np.full(len(strings), 0xFFFFFFFF, dtype=np.uint32)
    unfinished = len(strings) - np.searchsorted(lengths[order][::-1], np.arange(longest), side="right")
    for position, count in enumerate(unfinished):
        front = crc[:count]
        front[:] = _TABLE[(front ^ text[position, :count]) & 0xFF] ^ (front >> np.uint32(8))
    found = np.empty_like(crc)
    found[order] = crc ^ np.uint32(0xFFFFFFFF)
    return found.tolist()
