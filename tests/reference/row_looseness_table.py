"""How tight the error budget of row softmax is: measured on a simulated kernel, kept in the page.

Run as a script it rewrites the rows in docs/error-budget.md; a test measures again and compares.
"""

from pathlib import Path

import numpy as np

from attngen.reference import log_softmax, logsumexp, safe_softmax, softmax_budget
from attngen.reference.rounding import round_to

PAGE = Path(__file__).parents[2] / "docs" / "error-budget.md"
HEADER = "| input | output | y | looseness of y | of lse |"
ROWS, COLUMNS, LANES, VECTORS = 64, 8192, 1024, 2
CASES = [
    (dtype, out, log)
    for dtype, out in (("fp16", "fp16"), ("bf16", "bf16"), ("bf16", "fp32"), ("fp32", "fp32"))
    for log in (False, True)
]
LOG2_E = np.float32(1.4426950408889634)


def exp2(x, rng):
    """2**x in float32, off by up to 2 units in the last place, as ex2.approx may be."""
    exact = np.exp2(x.astype(np.float64))
    return (exact * (1 + rng.uniform(-(2.0**-22), 2.0**-22, x.shape))).astype(np.float32)


def simulate(x, out_dtype, log, rng):
    """y and lse as `online` computes them: a state a lane, merged at the end."""
    steps = x.astype(np.float32).reshape(len(x), -1, VECTORS, LANES)
    m = np.full((len(x), LANES), np.finfo(np.float32).min, np.float32)
    l = np.zeros_like(m)
    for step in steps.swapaxes(0, 1):
        m_new = np.maximum(m, step.max(axis=1))
        p = exp2((step - m_new[:, None]) * LOG2_E, rng)
        with np.errstate(over="ignore"):  # the lowest number is far from any
            l = l * exp2((m - m_new) * LOG2_E, rng) + p.sum(axis=1, dtype=np.float32)
        m = m_new
    top = m.max(axis=1, keepdims=True)
    l = (l * exp2((m - top) * LOG2_E, rng)).sum(axis=1, keepdims=True, dtype=np.float32)
    below = x.astype(np.float32) - top
    y = below - np.log(l) if log else exp2(below * LOG2_E, rng) * (np.float32(1) / l)
    return round_to(y.astype(np.float64), out_dtype), (top + np.log(l))[:, 0]


def measure(dtype, out_dtype, log):
    """Looseness of y and of lse: 1 / max(|error| / bound), entries unit normal."""
    rng = np.random.default_rng(8192)
    x = round_to(rng.normal(size=(ROWS, COLUMNS)), dtype)
    steps = COLUMNS // (LANES * VECTORS)
    additions = 64 + int(np.log2(LANES * VECTORS)) + steps
    bounds = softmax_budget(
        x, out_dtype=out_dtype, log=log, additions=additions, rescales=steps + 1
    )
    expected = (log_softmax if log else safe_softmax)(x), logsumexp(x)
    found = simulate(x, out_dtype, log, rng)
    errors = (np.abs(a - b) / c for a, b, c in zip(found, expected, bounds, strict=True))
    return tuple(1 / float(error.max()) for error in errors)


def row(dtype, out_dtype, log):
    y, lse = measure(dtype, out_dtype, log)
    return (
        f"| {dtype} | {out_dtype} | {'log-softmax' if log else 'softmax'} | {y:.1f} | {lse:.0f} |"
    )


def rows_of_page():
    """The table's rows as they stand in the page."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    first = lines.index(HEADER) + 2
    return lines[first : first + len(CASES)]


def rewrite():
    """Measure, and put the rows into the page."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    first = lines.index(HEADER) + 2
    lines[first : first + len(CASES)] = [row(*case) for case in CASES]
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    rewrite()
