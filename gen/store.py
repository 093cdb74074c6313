"""Rendered kernels as files: written whole or not at all, compared, found again by name."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from attngen.errors import InvalidSpec
from attngen.render import render
from attngen.variant import Variant, parse

PATH_VARIABLE = "ATTNGEN_KERNELS"
NOT_KERNELS = ("__init__.py",)


def generated() -> Path:
    """The folder of the kernels that the package ships."""
    spec = find_spec("attngen.generated")
    assert spec is not None and spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0])


def in_checkout() -> bool:
    """Is the package used from its repository, so that generated/ is there to be rewritten?"""
    return (generated().parent / "pyproject.toml").exists()


def search_path() -> list[Path]:
    """The folders where kernels are looked for: those of ATTNGEN_KERNELS, then generated()."""
    listed = os.environ.get(PATH_VARIABLE, "").split(os.pathsep)
    return [*(Path(folder) for folder in listed if folder), generated()]


def names(folder: Path, start: str = "") -> list[str]:
    """The names of the kernels in a folder, sorted; none where there is no folder.

    `start` is what the names begin with; others are not even parsed.
    """
    stems = (path.stem for path in _python_files(folder))
    return sorted(stem for stem in stems if stem.startswith(start) and _is_name(stem))


def write(variant: Variant, folder: Path) -> bool:
    """Render a variant into a folder; False where the same bytes stood there already.

    The text goes to a file of its own first and takes the name in one step: whoever imports
    meanwhile, and whoever builds the same, finds a whole file.

    Raises:
        OSError: where the folder or the file cannot be written; nothing is left behind.
    """
    text = render(variant).encode()
    path = folder / f"{variant.name}.py"
    if path.is_file() and path.read_bytes() == text:
        return False
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f".{variant.name}.{os.getpid()}.partial"
    try:
        partial.write_bytes(text)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return True


@dataclass(frozen=True)
class Difference:
    """One file that is not what the templates render.

    Attributes:
        name: the kernel's name, or the file's where that is no name.
        kind: "changed", "missing" or "orphan".
        diff: the change that mends it, as a unified diff; empty for an orphan.
    """

    name: str
    kind: str
    diff: str


def compare(folder: Path, expected: Iterable[Variant] | None = None) -> Iterator[Difference]:
    """What in a folder differs from a fresh rendering.

    Args:
        folder: where the kernels are.
        expected: the variants that ought to be there; without them each file that has a kernel's
            name is held to its own rendering.
    """
    present = {path.stem: path for path in _python_files(folder)}
    if expected is None:
        expected = [parse(name) for name in names(folder)]
    for variant in expected:
        text = render(variant)
        path = present.pop(variant.name, None)
        if path is None:
            yield Difference(variant.name, "missing", _diff(variant.name, "", text))
            continue
        found = path.read_text(encoding="utf-8", errors="replace")
        if found != text:
            yield Difference(variant.name, "changed", _diff(variant.name, found, text))
    for name in present:
        yield Difference(name, "orphan", "")


def report(differences: list[Difference], folder: Path) -> Iterator[str]:
    """What `compare` found as lines to print, with the command that mends each."""
    for difference in differences:
        path = folder / f"{difference.name}.py"
        if difference.kind == "orphan":
            yield f"orphan: {path} is no kernel of this folder; mend with: rm {path}"
            continue
        where = "" if folder == generated() else f" --out {folder}"
        yield f"{difference.kind}: {path}; mend with: attngen build {difference.name}{where}"
        yield difference.diff
    if not differences:
        yield f"{folder}: every kernel is as rendered"


def difference(a: Variant, b: Variant) -> str:
    """A unified diff from one kernel to another, their names left out of it."""
    lines_a, lines_b = (
        render(variant).replace(variant.name, "NAME").splitlines(keepends=True)
        for variant in (a, b)
    )
    return "".join(difflib.unified_diff(lines_a, lines_b, a.name, b.name))


def _diff(name: str, found: str, rendered: str) -> str:
    lines = difflib.unified_diff(
        found.splitlines(keepends=True),
        rendered.splitlines(keepends=True),
        f"{name}.py",
        f"{name}.py as rendered",
    )
    return "".join(lines)


def _python_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.py") if path.name not in NOT_KERNELS)


def _is_name(name: str) -> bool:
    try:
        parse(name)
    except InvalidSpec:
        return False
    return True
