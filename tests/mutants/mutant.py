"""What a mutant is: a rendered kernel with one fault planted in it, and what has to find it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from attngen.render import render
from attngen.variant import Variant, parse


def _name(dims: str, features: str = "", dtype: str = "fp16", op: str = "fwd") -> str:
    return f"attention_{op}_{dims}_{dtype}{features}_m16_n16_w1_s1"


FULL = _name("d16")
CAUSAL = _name("d16", "_causal")
FULL_D64 = _name("d64")
PADDED = _name("d24")
WIDE_V = _name("d16_dv32")
BF16 = _name("d16", dtype="bf16")
FP32 = _name("d16", dtype="fp32")
WINDOW = _name("d16", "_causal_window")
TWO_SIDED = _name("d16", "_window")
SOFTCAP = _name("d16", "_causal_softcap")
SOFTCAP_FP32 = _name("d16", "_softcap", dtype="fp32")
ALIBI = _name("d16", "_alibi")
BIAS = _name("d16", "_bias")
MASK = _name("d16", "_mask")
SINKS = _name("d16", "_causal_sinks")
DECODE = _name("d16", op="decode")
DECODE_CAUSAL = _name("d16", "_causal", op="decode")
DECODE_WINDOW = _name("d16", "_causal_window", op="decode")
DECODE_SINKS = _name("d16", "_sinks", op="decode")
DECODE_PAGED = _name("d16", "_paged", op="decode")
VARLEN = _name("d16", op="varlen")
VARLEN_CAUSAL = _name("d16", "_causal", op="varlen")
VARLEN_ALIBI = _name("d16", "_alibi", op="varlen")
VARLEN_SINKS = _name("d16", "_sinks", op="varlen")
PAGED = _name("d16", op="paged")
PAGED_CAUSAL = _name("d16", "_causal", op="paged")
PAGED_WINDOW = _name("d16", "_causal_window", op="paged")


def _merge(op: str, dims: str = "d16", dtype: str = "fp16", features: str = "") -> str:
    return f"{op}_{dims}_{dtype}{features}_m8_w1_s1"


PAIR = _merge("merge_state")
PAIR_PADDED = _merge("merge_state", "d13")
PAIR_FP32 = _merge("merge_state", dtype="fp32")
PAIR_FP8 = _merge("merge_state", features="_out_fp8")
PAIR_BASE2 = _merge("merge_state", features="_base2")
LIST = _merge("merge_states")
LIST_FP32 = _merge("merge_states", dtype="fp32")
LIST_BASE2 = _merge("merge_states", features="_base2")
RAGGED = _merge("merge_states", features="_ragged")


class DoesNotApply(AssertionError):
    """The text that a mutant changes does not stand in the kernel as often as it should."""


@dataclass(frozen=True)
class Edit:
    """Replace `old`, which stands `count` times in the text, by `new`: all of them, or one.

    Attributes:
        old: the text to be replaced.
        new: what takes its place.
        count: how often `old` has to stand there.
        at: which of them is replaced, counted from 0; all where it is None.
    """

    old: str
    new: str
    count: int = 1
    at: int | None = None

    def apply(self, text: str) -> str:
        pieces = text.split(self.old)
        if len(pieces) - 1 != self.count:
            raise DoesNotApply(f"{self.old!r} stands {len(pieces) - 1} times, not {self.count}")
        if self.at is None:
            return self.new.join(pieces)
        head, tail = pieces[: self.at + 1], pieces[self.at + 1 :]
        return self.old.join(head) + self.new + self.old.join(tail)


@dataclass(frozen=True)
class Mutant:
    """One planted fault.

    Attributes:
        name: the fault in words.
        kernel: the name of the variant that it is planted in.
        probe: the input that shows it: a case of `attngen verify`, or one of
            `probes.PROBES`.
        killed_by: the checks that fail on it, exactly.
        edits: what is changed in the rendered text.
    """

    name: str
    kernel: str
    probe: str
    killed_by: frozenset[str]
    edits: tuple[Edit, ...]

    @property
    def variant(self) -> Variant:
        return parse(self.kernel)

    def text(self) -> str:
        """The module with the fault in it."""
        text = clean_text(self.kernel)
        for edit in self.edits:
            text = edit.apply(text)
        assert text != clean_text(self.kernel)
        return text


def plant(name: str, kernel: str, probe: str, killed_by: str, *edits: Edit) -> Mutant:
    """A mutant; `killed_by` lists checks with commas."""
    return Mutant(name, kernel, probe, frozenset(killed_by.split(", ")) - {""}, edits)


@cache
def clean_text(kernel: str) -> str:
    return render(parse(kernel))
