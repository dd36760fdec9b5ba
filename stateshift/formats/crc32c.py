"""CRC32C (Castagnoli), plain and as RocksDB masks it."""

from __future__ import annotations

import google_crc32c


def crc32c(data: bytes, value: int = 0) -> int:
    """Return the CRC32C of `data`, continued from `value`; never negative."""
    return int(google_crc32c.extend(value, bytes(data)))


def masked_crc32c(data: bytes, value: int = 0) -> int:
    """Return RocksDB's checksum: rotated and offset, for sums of sums (crc32c.h)."""
    value = crc32c(data, value)
    return ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF
