"""Bins: classes of keys that move as one. A key's bin is the leading bits of its hash.

    hash   1011 0110 …   64 bits
    bins   8             a power of two
    bin    101           = 5; cut in halves it is 1010 and 1011, and with 100 it makes up 10

The leading bits and not the last ones: a hash table inside a bin goes by the last ones, and would
fill only a part of its slots (Megaphone, 4.2). So the bins that a bin is split into lie beside each
other.
"""

from __future__ import annotations

HASH_BITS = 64

# From 2^16 on the routing table costs noticeable latency, at 2^20 more than a second of it
# (Megaphone, figure 13).
BINS_MAX = 1 << 20


def bin_of(hashed: int, bins: int) -> int:
    """Return the bin of a key, by its hash of 64 bits."""
    assert 0 <= hashed < 1 << HASH_BITS, "a hash of 64 bits"
    return hashed >> (HASH_BITS - bits_of(bins))


def bits_of(bins: int) -> int:
    """Return how many leading bits distinguish so many bins."""
    assert is_count(bins), "a power of two"
    return bins.bit_length() - 1


def related(bin: int, bins: int, others: int) -> range:
    """Return the bins, if there were so many others, that have keys of a bin: its parts, or the one
    that it is a part of.
    """
    parts = others // bins
    if parts:
        return range(bin * parts, (bin + 1) * parts)
    whole = bin // (bins // others)
    return range(whole, whole + 1)


def is_count(bins: int) -> bool:
    """Whether there can be so many bins."""
    return 0 < bins <= BINS_MAX and not bins & (bins - 1)


def not_a_count(bins: int) -> str:
    """Return the complaint about a number of bins that there cannot be."""
    if bins > BINS_MAX:
        return (
            f"{bins:,} bins are more than {BINS_MAX:,}: each record would wait for the routing "
            "table"
        )
    near = 1 << max(bins.bit_length() - 1, 0)
    return f"{bins} bins are no power of two" + (
        f": take {near} or {2 * near}" if 0 < bins < BINS_MAX else ""
    )
