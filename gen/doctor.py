"""What this machine can do with attngen, and what is missing, as lines to read."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec

from attngen import store

PACKAGES = {
    "jinja2": "rendering",
    "click": "the command line",
    "numpy": "the reference",
    "torch": "calling kernels",
    "triton": "compiling kernels and interpreting them",
    "matplotlib": "plots",
}


def lines() -> Iterator[str]:
    """One line a fact; a missing package or GPU comes with what it would be good for."""
    yield f"attngen {_version('attngen')}, Python {platform.python_version()}"
    for package, purpose in PACKAGES.items():
        version = _version(package)
        yield f"{package}: {version}" if version else f"{package}: missing; needed for {purpose}"
    yield _gpu()
    for folder in store.search_path():
        yield f"kernels: {len(store.names(folder))} in {folder}"


def _version(package: str) -> str | None:
    if not _is_there(package):
        return None
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "of unknown version"


def _is_there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:
        return False


def _gpu() -> str:
    if not _is_there("torch"):
        return "GPU: unknown without torch"
    import torch

    if not torch.cuda.is_available():
        return "GPU: none; `attngen verify --interpret` and `attngen compile` work without"
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    capability = f"{properties.major}.{properties.minor}"
    return f"GPU: {properties.name}, compute capability {capability}"
