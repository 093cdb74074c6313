"""Add a mask to a copy of attngen, build a kernel with it, and verify the kernel.

The mask is that of strided attention (Child et al., arXiv 1904.10509, section 4.2): a query sees
every key_stride-th key, counted from its own position. EDITS is all that it takes:

    python docs/examples/strided_mask.py
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KERNELS = (
    "attention_fwd_d32_fp16_strided_m32_n32_w4_s2",
    "attention_fwd_d32_bf16_causal_window_strided_m32_n32_w4_s2",
)


@dataclass(frozen=True)
class Edit:
    """Text that goes into a file.

    Attributes:
        path: The file.
        before: What it goes in front of, where that first stands in the file.
        added: The text.
    """

    path: str
    before: str
    added: str

    def apply(self, tree: Path) -> None:
        """Edit the file in a copy of the tree.

        Raises:
            ValueError: where the place is not there.
        """
        text = (tree / self.path).read_text()
        if self.before not in text:
            raise ValueError(f"{self.path}: {self.before!r} is not there any more")
        (tree / self.path).write_text(text.replace(self.before, self.added + self.before, 1))


SPEC = "gen/spec_attention.py"
ARGUMENTS = "reference/arguments.py"
CALL = "templates/shared/attention_call.jinja"
CONTEXT = "gen/context_triton.py"
CASES = "gen/cases_attention.py"

MASK = (
    # What it is called, on the command line and in names.
    Edit(
        SPEC,
        '    Feature("sinks"',
        '    Feature("strided", "a query sees every key_stride-th key, its own among them"),\n',
    ),
    Edit(SPEC, "    sinks: bool", "    strided: bool = False\n"),
    # What it means.
    Edit(
        "reference/masks.py",
        "    if head.mask is not None:",
        "    if head.key_stride is not None:\n"
        "        seen &= (position - j) % head.key_stride == 0\n",
    ),
    # What a kernel does.
    Edit(
        "templates/triton/partials/scores.jinja",
        "{% if spec.mask %}\n{{ score_tile",
        "{% if spec.strided %}\n"
        "        on_stride = (position[:, None] - offs_n[None, :]) % key_stride == 0\n"
        '        s = tl.where(on_stride, s, float("-inf"))\n'
        "{% endif %}\n",
    ),
    # It asks for the queries' positions, and cuts every block of keys.
    Edit(CONTEXT, "spec.causal or spec.window or spec.alibi", "spec.strided or "),
    Edit(CONTEXT, "spec.alibi or spec.bias or spec.mask", "spec.strided or "),
    # What it is tested with, beside the offsets that every mask by position is tested with.
    Edit(
        CASES, '    "softcap": (', '    "strided": ("key_stride", lambda rng, variant, shape: 3),\n'
    ),
    Edit(CASES, "spec.causal or spec.window or spec.alibi", "spec.strided or "),
)
ARGUMENT = (
    # The reference takes key_stride, checks it and hands it to each head.
    Edit(
        "reference/attention.py",
        ") -> State:",
        "    key_stride: int | None = None,\n",
    ),
    Edit("reference/attention.py", "        bias=bias,", "        key_stride=key_stride,\n"),
    Edit(ARGUMENTS, "\n\ndef real_array", "    key_stride: int | None\n"),
    Edit(ARGUMENTS, ") -> Problem:", "    key_stride: int | None = None,\n"),
    Edit(
        ARGUMENTS,
        "        mask=check_mask(",
        "        key_stride="
        'None if key_stride is None else check_block("key_stride", key_stride),\n',
    ),
    Edit("reference/problem.py", "    sink: float", "    key_stride: int | None\n"),
    Edit(
        "reference/problem.py",
        "\n    @property\n    def o_shape",
        "    key_stride: int | None\n",
    ),
    Edit(
        "reference/problem.py",
        "            sink=float",
        "            key_stride=self.key_stride,\n",
    ),
    # The launcher takes it, describes it, checks it and hands it to the kernel.
    Edit(
        CALL,
        "{% if spec.window %}\n    window_size",
        "{% if spec.strided %}\n    key_stride: int,\n{% endif %}\n",
    ),
    Edit(
        CALL,
        "{% if spec.window %}\n        window_size",
        "{% if spec.strided %}\n"
        "        key_stride: 1 or more; a query sees each key_stride-th key, its own among them.\n"
        "{% endif %}\n",
    ),
    Edit(
        "templates/triton/partials/option_checks.jinja",
        "{% if spec.window %}\n    if (",
        "{% if spec.strided %}\n"
        "    if key_stride < 1:\n"
        '        raise ValueError(f"key_stride: got {key_stride}, allowed is 1 and up")\n'
        "{% endif %}\n",
    ),
    Edit(
        CONTEXT,
        "    if spec.window:\n        sizes",
        '    if spec.strided:\n        sizes.append("key_stride")\n',
    ),
)
EDITS = (*MASK, *ARGUMENT)


def copy_with_mask(folder: Path) -> Path:
    """A copy of the sources with the mask in it, laid out as the package attngen.

    Returns:
        The folder to put on PYTHONPATH.
    """
    for name in ("gen", "reference", "templates"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for edit in EDITS:
        edit.apply(folder)
    package = folder / "package"
    shutil.copytree(folder / "gen", package / "attngen")
    for name in ("reference", "templates"):
        shutil.copytree(folder / name, package / "attngen" / name)
    (package / "attngen/generated").mkdir()
    (package / "attngen/generated/__init__.py").touch()
    return package


def main() -> int:
    """Build and verify KERNELS; the exit code of the command that failed, else 0."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = {**os.environ, "PYTHONPATH": str(copy_with_mask(folder))}
        kernels = ["--out", str(folder / "kernels")]
        for words in (["build"], ["verify", "--interpret-without-gpu"]):
            command = [sys.executable, "-m", "attngen.cli", *words, *KERNELS, *kernels]
            if code := subprocess.run(command, env=environment, cwd=folder).returncode:
                return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
