"""Faults of the launchers of row softmax: factors, strides, grids, and checks left out."""

from __future__ import annotations

from mutant import Edit, plant
from row_mutants import MASKED, ONLINE, SINGLE

_FACTOR = "sign, scale = math.copysign(1.0, factor), abs(factor)"

LAUNCHER = (
    plant(
        "a negative scale of rows loses its sign",
        MASKED,
        "scale -0.5, temperature 2.0",
        "hard lse, hard o",
        Edit(_FACTOR, "sign, scale = 1.0, abs(factor)"),
    ),
    plant(
        "a scale of 0 of rows counts as 1",
        MASKED,
        "scale 0.0, temperature 1.0",
        "hard lse, hard o",
        Edit("sign, scale = 0.0, 1.0", "sign, scale = 1.0, 1.0"),
    ),
    plant(
        "the temperature multiplies",
        MASKED,
        "scale 1.0, temperature 0.1",
        "hard lse, hard o",
        Edit("max(scale / temperature", "max(scale * temperature"),
    ),
    plant(
        "the row stride is taken from the shape",
        SINGLE,
        "rows apart",
        "NaN lse, NaN o",
        Edit("            x_strides[0] // unit,", "            columns // unit,"),
    ),
    plant(
        "columns of x are taken for neighbours",
        SINGLE,
        "columns apart",
        "NaN lse, NaN o",
        Edit("x.stride(-1)", "1"),
    ),
    plant(
        "out is written with the strides of x",
        SINGLE,
        "out in wider rows than x",
        "NaN o, rows around out",
        Edit("            out_strides[0] // unit,", "            x_strides[0] // unit,"),
    ),
    plant(
        "leading dimensions fold whatever the strides of the inner one",
        SINGLE,
        "two leading dimensions, swapped",
        "out of bounds",
        Edit("if sizes and strides[-1] == [step * size for step in steps]:", "if sizes:"),
    ),
    plant(
        "out that was given is not written",
        SINGLE,
        "out of rows as given",
        "given out",
        Edit("    if out is None:", "    if True:"),
    ),
    plant(
        "rows on the second axis of the grid",
        ONLINE,
        "the grid of 70000 rows",
        "grid",
        Edit("_KERNEL[(num_tiles,)](", "_KERNEL[(1, num_tiles)]("),
        Edit("row = tl.program_id(0)", "row = tl.program_id(1)"),
    ),
    plant(
        "rows longer than the bucket are cut",
        SINGLE,
        "rows that are longer than the bucket",
        "refusal",
        Edit("if columns > COLUMNS.value:", "if False:"),
    ),
    plant(
        "out whose rows overlap is taken",
        SINGLE,
        "out whose rows are one and the same",
        "refusal",
        Edit("if any(n > 1 and step == 0", "if False and any(n > 1 and step == 0"),
    ),
    plant(
        "strides are taken for multiples that they are not",
        SINGLE,
        "a few columns",
        "hard lse, NaN o",
        Edit("any(number % vector for number in numbers)", "columns == 0"),
    ),
)
