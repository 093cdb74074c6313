"""The errors that attngen raises: each says what it got, what is allowed and what mends it."""


class InvalidSpec(ValueError):
    """What was asked for is outside what the templates can do; no build command would help."""


class NotGenerated(LookupError):
    """The kernel asked for is valid but not built; the message has the command that builds it."""


class StaleKernel(RuntimeError):
    """A generated file is not what the templates render, or has no right to be there."""


class NoGPU(RuntimeError):
    """The work needs a GPU and there is none; the message says what can be done instead."""


class CannotCompile(RuntimeError):
    """A target's compiler refused a kernel; the message is the compiler's."""


class GpuLost(RuntimeError):
    """A kernel has left the GPU unusable for this process."""

    def __init__(self, name: str, reason: str) -> None:
        """Say which kernel, and what the driver says."""
        super().__init__(
            f"the GPU is lost to this process after {name}, which is left out from now on;"
            f" run the command again: {reason}"
        )
        self.name, self.reason = name, reason
