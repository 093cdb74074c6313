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
