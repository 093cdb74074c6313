"""Shape buckets: sizes rounded up to powers of two, so that one measurement speaks for many shapes.

A bucket is the exponents of a shape's sizes, in the operator's order: lengths 513 to 1024 are 10,
and a size of 0 counts as 1. Between buckets the distance is the sum of the differences of
exponents: the number of doublings from one shape to the other.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

Bucket = tuple[int, ...]


def bucket(*sizes: int) -> Bucket:
    """The bucket of a shape's sizes."""
    return tuple((max(size, 1) - 1).bit_length() for size in sizes)


def words(sizes: Mapping[str, int]) -> str:
    """The bucket of named sizes in words, such as "seqlen_q=1024 seqlen_kv=1024 heads=32"."""
    exponents = bucket(*sizes.values())
    return " ".join(f"{name}={1 << e}" for name, e in zip(sizes, exponents, strict=True))


def of_words(text: str) -> Bucket:
    """The bucket that `words` describes; empty where it is no such description."""
    if not re.fullmatch(r"\w+=[1-9][0-9]*( \w+=[1-9][0-9]*)*", text):
        return ()
    return bucket(*(int(word.split("=")[1]) for word in text.split()))


def nearest(wanted: Bucket, known: Iterable[Bucket]) -> Bucket | None:
    """The known bucket at the least distance, the smallest of equally near; None without any."""
    alike = [other for other in known if len(other) == len(wanted)]
    return min(
        alike,
        key=lambda other: (sum(abs(a - b) for a, b in zip(wanted, other, strict=True)), other),
        default=None,
    )
