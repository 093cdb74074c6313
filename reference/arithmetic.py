"""What a kernel's arithmetic is assumed to do: the units and counts of the error budget."""

from __future__ import annotations

import math
from dataclasses import dataclass

from attngen.reference.arguments import check_block
from attngen.reference.rounding import Format, format_of

# One float32 operation, rounded to nearest: half a unit in the last place.
FP32 = 2.0**-24
# One addition inside a tensor-core product: the addends are aligned to the largest and cut off, and
# the sum is cut off again; each cut loses up to one unit in the last place, 2**-23.
TENSOR_CORE = 2.0**-22
# ex2.approx.f32: 2 units in the last place.
EXP2 = 2.0**-22
# lg2.approx.f32: 2**-22, absolute between 1/2 and 2 and relative elsewhere.
LOG2 = 2.0**-22
# A float32 division by a reciprocal or div.full.f32: 2 units in the last place.
DIVISION = 2.0**-22
# tanh made of one exp2, sums and a division, near 1 absolutely.
TANH = 2.0**-21
# Results of exp2 below the smallest normal float32 are flushed to 0.
FLUSHED = 2.0**-126


@dataclass(frozen=True)
class Arithmetic:
    """The roundings of one kernel over `seqlen_kv` keys.

    Attributes:
        operand: Format of q, k, v and of P as it enters the second product.
        out: Format of o.
        head_dim: Terms of a score.
        seqlen_kv: Keys.
        block_n: Keys a block.
        num_splits: Parts that the keys are cut into; 1 means no merge afterwards.
        statistical: Whether roundings cancel as independent ones do, instead of adding up.
    """

    operand: Format
    out: Format
    head_dim: int
    seqlen_kv: int
    block_n: int
    num_splits: int
    statistical: bool = False

    def count(self, roundings: int) -> float:
        """What so many roundings amount to: their number, or its square root."""
        return math.sqrt(roundings) if self.statistical else roundings

    @property
    def product_unit(self) -> float:
        """Error of one addition inside a product, relative to the largest partial sum."""
        return FP32 if self.operand.name == "fp32" else TENSOR_CORE

    @property
    def merges(self) -> int:
        """Partial states that are merged after the last block; 0 without splits."""
        return self.num_splits if self.num_splits > 1 else 0

    @property
    def blocks(self) -> int:
        """Blocks of keys; every split may leave a part of one."""
        return math.ceil(self.seqlen_kv / self.block_n) + self.merges

    @property
    def p_unit(self) -> float:
        """Relative rounding of P to the operand type: none for float32."""
        return 0.0 if self.operand.name == "fp32" else self.operand.unit_roundoff

    @property
    def p_tiny(self) -> float:
        """Absolute error of a P too small to be a normal number of the operand type."""
        return max(self.operand.smallest_subnormal / 2, FLUSHED)

    @property
    def score_error(self) -> float:
        """Error of a dot product, relative to the largest of its partial sums."""
        return self.count(self.head_dim) * self.product_unit

    @property
    def acc_error(self) -> float:
        """Error of acc, relative to the largest of its partial sums.

        One addition for each key of a block inside a product; then, for each block, the addition of
        the block and a rescale.
        """
        inside, outside = self.block_n + self.blocks, self.blocks + 2 * self.merges
        return self.count(inside) * self.product_unit + self.count(outside) * FP32

    @property
    def l_error(self) -> float:
        """Relative error of l, summed in the same order outside of any product."""
        return self.count(self.block_n + 2 * (self.blocks + self.merges)) * FP32

    @property
    def exp2_error(self) -> float:
        """Relative error of a weight from exp2: its own, and one for each rescale after it."""
        return self.count(1 + self.blocks) * EXP2


def arithmetic(
    operand_dtype: str,
    out_dtype: str | None,
    head_dim: int,
    seqlen_kv: int,
    block_n: int,
    num_splits: int,
    statistical: bool = False,
) -> Arithmetic:
    """Check the budget's own arguments; `out_dtype` defaults to `operand_dtype`.

    Raises:
        TypeError: `block_n` or `num_splits` is not an integer.
        ValueError: A dtype is unknown, or `block_n` or `num_splits` is below 1.
    """
    return Arithmetic(
        operand=format_of(operand_dtype, "operand_dtype"),
        out=format_of(operand_dtype if out_dtype is None else out_dtype, "out_dtype"),
        head_dim=head_dim,
        seqlen_kv=seqlen_kv,
        block_n=check_block("block_n", block_n),
        num_splits=check_block("num_splits", num_splits),
        statistical=statistical,
    )
