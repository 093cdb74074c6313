"""Every mutant, and how one is run."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import address_mutants
import decode_mutants
import decode_probes  # noqa: F401  (enters its probes in PROBES)
import decode_state_mutants
import launcher_mutants
import layout_refusals
import mask_mutants
import merge_list_mutants
import merge_mutants
import merge_place_mutants
import numpy as np
import page_mutants
import precision_mutants
import refusals  # noqa: F401  (enters the wrong calls in PROBES)
import row_launcher_mutants
import row_mutants
import score_mutants
import sequence_mutants
import softmax_mutants
import target_mutants
import topk_mutants
import torch
import window_mutants
from far_probes import FAR_PROBES
from layout_probes import FAR_LAYOUTS
from merge_probes import MERGE_FAR_PROBES
from mutant import Mutant, clean_text
from probes import look_up
from row_probes import FAR_ROWS
from triton.runtime.errors import InterpreterError

from attngen import interpret
from attngen.bounds import OutOfBounds
from attngen.compile import load_text
from attngen.variant import parse

BY_PART: dict[str, tuple[Mutant, ...]] = {
    "The recurrence": softmax_mutants.RECURRENCE,
    "Units": softmax_mutants.UNITS,
    "Precision": precision_mutants.PRECISION,
    "The sink": softmax_mutants.SINK,
    "Ends of the keys": mask_mutants.ENDS,
    "The diagonal": mask_mutants.DIAGONAL,
    "Windows": window_mutants.WINDOWS,
    "Softcap, ALiBi, bias, mask": score_mutants.SCORES,
    "Heads and tiles": address_mutants.HEADS,
    "Strides": address_mutants.STRIDES,
    "Padding columns and stores": address_mutants.COLUMNS,
    "Offsets of more than 32 bits": address_mutants.WIDTH,
    "Splits of the keys": decode_mutants.SPLITS,
    "Rows of a group": decode_mutants.GROUPS,
    "The merge of splits": decode_state_mutants.STATES,
    "Pages of a decode step": decode_mutants.PAGES,
    "The launcher": launcher_mutants.CALLS,
    "Arguments": launcher_mutants.CHECKS,
    "Packed sequences": sequence_mutants.SEQUENCES,
    "Paged caches": page_mutants.PAGES,
    "Lengths and block tables": layout_refusals.CHECKS,
    "Merging: empty states": merge_mutants.EMPTY,
    "Merging: weights and units": merge_mutants.WEIGHTS,
    "Merging: places": merge_place_mutants.PLACES,
    "Merging: context and outputs": merge_mutants.OUTPUTS,
    "Merging many states": merge_list_mutants.LISTS,
    "Merging lists of states": merge_list_mutants.LISTS_BY_TOKEN,
    "Merging: arguments": merge_list_mutants.MERGE_CHECKS,
    "Row softmax": row_mutants.ROWS,
    "Row softmax: the launcher": row_launcher_mutants.LAUNCHER,
    "Softmax with top-k": topk_mutants.TOPK,
    "What only compiling shows": target_mutants.COMPILED,
}
MUTANTS = {mutant.name: mutant for part in BY_PART.values() for mutant in part}
assert len(MUTANTS) == sum(map(len, BY_PART.values())), "two mutants have the same name"

COMPILED_PROBE = "compiled for sm_80"


def clean_pairs() -> list[tuple[str, str]]:
    """The pairs of kernel and probe that the mutants use; the kernel itself passes them all."""
    return sorted({(mutant.kernel, mutant.probe) for mutant in MUTANTS.values()})


def failed(kernel: str, text: str, probe: str) -> set[str]:
    """The checks that a kernel's text fails on a probe, in the interpreter."""
    interpret.repair()
    with tempfile.TemporaryDirectory() as folder:
        module = load_text(kernel, text, folder)
        far = FAR_PROBES | FAR_LAYOUTS | MERGE_FAR_PROBES | FAR_ROWS
        allocation = nullcontext() if probe in far else _nan_filled()
        # What a wrong kernel does to numbers is no news.
        with allocation, np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return look_up(probe)(module, parse(kernel))
            except InterpreterError as error:
                outside = isinstance(error.__cause__, OutOfBounds)
                return {"out of bounds" if outside else "does not run"}


@contextmanager
def _nan_filled() -> Iterator[None]:
    """What is allocated meanwhile is filled with NaN, so that what is never written shows."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


def texts(probe: str) -> dict[str, tuple[str, str]]:
    """Kernel and text of every mutant, and every clean kernel, that meets this probe."""
    chosen = {
        mutant.name: (mutant.kernel, mutant.text())
        for mutant in MUTANTS.values()
        if mutant.probe == probe
    }
    clean = {f"{name}: {met}": (name, clean_text(name)) for name, met in clean_pairs()}
    return chosen | {key: pair for key, pair in clean.items() if key.endswith(f": {probe}")}
