"""Compile mutants for a GPU, with none at hand; print the failed checks as JSON."""

from __future__ import annotations

import json

from roster import COMPILED_PROBE, texts

from attngen.compile import compile_kernel
from attngen.config import TARGETS
from attngen.errors import CannotCompile
from attngen.variant import parse


def compiled(kernel: str, text: str) -> list[str]:
    try:
        result = compile_kernel(parse(kernel), TARGETS["sm_80"], text)
    except CannotCompile:
        return ["compile"]
    return ["tf32"] if "tf32" in result.asm["ptx"] else []


if __name__ == "__main__":
    print(json.dumps({name: compiled(*text) for name, text in texts(COMPILED_PROBE).items()}))
