"""What a kernel computes, in general: frozen specs, their rules, and their part of a name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar

from attngen.errors import InvalidSpec

DTYPES = ("fp16", "bf16", "fp32")


@dataclass(frozen=True)
class Feature:
    """A switch of a spec: its name is the spec's field, the token in a name and the option."""

    name: str
    help: str


@dataclass(frozen=True)
class Rule:
    """One statement of validity: `broken` is true where it does not hold, `message` says why."""

    name: str
    broken: Callable[[Any], bool]
    message: Callable[[Any], str]


@dataclass(frozen=True, kw_only=True)
class Spec:
    """Data that say what one kernel computes; each operator has a class of its own.

    A class gives `op`, the operator's name; `features`, its switches in the order of a name;
    `sizes`, the letter before each size in a name; and `rules`, which all hold in every instance.

    Attributes:
        dtype: "fp16", "bf16" or "fp32", of the tensors; sums are float32 in all of them.

    Raises:
        InvalidSpec: naming every rule that is broken, what was got and what is allowed.
    """

    op: ClassVar[str]
    features: ClassVar[tuple[Feature, ...]] = ()
    sizes: ClassVar[dict[str, str]] = {}
    rules: ClassVar[tuple[Rule, ...]] = ()

    dtype: str

    def __post_init__(self) -> None:
        """Hold the rules."""
        broken = [f"{rule.name}: {rule.message(self)}" for rule in self.rules if rule.broken(self)]
        if broken:
            raise InvalidSpec("; ".join(broken))

    @property
    def switched_on(self) -> tuple[str, ...]:
        """The names of the features that are on, in the order of the name grammar."""
        return tuple(f.name for f in self.features if getattr(self, f.name))

    @property
    def named_sizes(self) -> dict[str, int]:
        """The sizes that a name and a command spell out: all but those left at their default."""
        return {name: getattr(self, name) for name in self.sizes}

    @property
    def name(self) -> str:
        """The part of a kernel's name that says what is computed; all its tiles begin with it."""
        sizes = [f"{self.sizes[size]}{value}" for size, value in self.named_sizes.items()]
        return "_".join((self.op, *sizes, self.dtype, *self.switched_on))

    @property
    def options(self) -> tuple[str, ...]:
        """The command-line options that give exactly this spec."""
        words: list[str] = []
        for size, value in self.named_sizes.items():
            words += [option(size), str(value)]
        words += ["--dtype", self.dtype]
        if hasattr(self, "causal") and not self.causal:
            words.append("--no-causal")
        return (*words, *(option(feature) for feature in self.switched_on))

    @classmethod
    def needed_sizes(cls) -> tuple[str, ...]:
        """The sizes that every name spells out."""
        return tuple(f.name for f in fields(cls) if f.name in cls.sizes and f.default is MISSING)


def option(name: str) -> str:
    """A field as a command-line option."""
    return f"--{name.replace('_', '-')}"


def one_of(name: str, allowed: tuple[Any, ...]) -> Rule:
    """The rule that a field is one of some values (and of their type: 1 is not True)."""
    words = ", ".join(map(str, allowed))
    return Rule(
        name,
        lambda spec: (
            not any(
                type(getattr(spec, name)) is type(value) and getattr(spec, name) == value
                for value in allowed
            )
        ),
        lambda spec: f"got {getattr(spec, name)!r}, allowed are {words}",
    )


def rules_of(features: tuple[Feature, ...]) -> tuple[Rule, ...]:
    """The rules that every spec with these features has: its dtype, and its switches."""
    switches = (one_of(feature.name, (True, False)) for feature in features)
    return (one_of("dtype", DTYPES), *switches)
