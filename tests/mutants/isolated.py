"""Run what may end its process, each in a child of its own; print the failed checks as JSON.

A wrong address may end the child, raise anything, or read other numbers: all one check.
"""

from __future__ import annotations

import json
import os
import resource
import traceback

os.environ["TRITON_INTERPRET"] = "1"

from isolated_probes import ISOLATED
from roster import failed, texts

from attngen import interpret

CRASH_OR_WRONG = ["crash or wrong"]


def in_child(kernel: str, text: str, probe: str) -> list[str]:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        try:
            found = json.dumps(CRASH_OR_WRONG if failed(kernel, text, probe) else [])
        except BaseException:
            traceback.print_exc()
            found = json.dumps(CRASH_OR_WRONG)
        os.write(writer, found.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        words = pipe.read()
    _, status = os.waitpid(child, 0)
    return CRASH_OR_WRONG if os.WIFSIGNALED(status) else list(json.loads(words))


if __name__ == "__main__":
    interpret.repair()
    print(json.dumps({name: in_child(*text) for name, text in texts(ISOLATED).items()}))
