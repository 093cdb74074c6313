"""Compile the kernels that are named, for the targets that are named, and print what they take.

A process of its own, since Triton compiles nothing where it was told to interpret. The arguments
are kernel@target, the output is JSON.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from attngen.compile import compile_kernel, compile_variant
from attngen.config import TARGETS
from attngen.errors import CannotCompile
from attngen.variant import parse


def row(word: str) -> dict[str, Any]:
    name, target = word.split("@")
    start = time.perf_counter()
    try:
        kernel = compile_kernel(parse(name), TARGETS[target])
    except CannotCompile as error:
        return {"refused": str(error)}
    seconds = time.perf_counter() - start
    tf32 = "tf32" in kernel.asm.get("ptx", "")
    return compile_variant(parse(name), TARGETS[target]).as_dict() | {
        "tf32": tf32,
        "seconds": seconds,
    }


if __name__ == "__main__":
    print(json.dumps({word: row(word) for word in sys.argv[1:]}))
