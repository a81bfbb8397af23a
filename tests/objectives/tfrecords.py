"""NAS-Bench-101's official format, written here from its description, bit by bit."""

import json
import struct
from base64 import b64encode


def checksum(data: bytes) -> int:
    """CRC-32C by polynomial division, a bit at a time; then rotated by 15 and shifted."""
    crc = 0xFFFFFFFF
    for byte in data:
        for bit in range(8):
            out = (crc ^ (byte >> bit)) & 1
            crc = (crc >> 1) ^ (0x82F63B78 if out else 0)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17) & 0xFFFFFFFF) + 0xA282EAD8) % 2**32


def framed(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return b"".join([length, struct.pack("<I", checksum(length)), data, struct.pack("<I", checksum(data))])


def varint(value: int) -> bytes:
    digits = []
    while value >= 128:
        digits.append(value % 128 + 128)
        value //= 128
    return bytes([*digits, value])


def double(number: int, value: float) -> bytes:
    return varint(8 * number + 1) + struct.pack("<d", value)


def text(number: int, value: bytes) -> bytes:
    return varint(8 * number + 2) + varint(len(value)) + value


def evaluation(epoch: float, seconds: float, train: float, valid: float, test: float) -> bytes:
    numbers = enumerate((epoch, seconds, train, valid, test), 1)
    return b"".join(double(number, value) for number, value in numbers) + text(6, b"/some/model.ckpt-1")


def metrics(evaluations: list[bytes], parameters: int) -> bytes:
    return b"".join(text(1, one) for one in evaluations) + varint(16) + varint(parameters) + double(3, 1234.5)


def record(name: str, epochs: int, digits: str, ops: str, message: bytes) -> bytes:
    return json.dumps([name, epochs, digits, ops, b64encode(message).decode()]).encode()
