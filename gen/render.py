"""From a variant to the text of its module: pure, and the same bytes everywhere."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path

import jinja2
import jinja2.ext
import jinja2.meta

from attngen import context
from attngen.variant import Variant

FAMILIES = {"triton": "triton", "sm90": "gluon"}
"""The folder of templates of each backend."""
TEMPLATES = Path(__file__).resolve().parent.parent / "templates"


class _WholeLines(jinja2.ext.Extension):
    """A line that is one macro call stands for the macro's lines, without a newline of its own."""

    def preprocess(self, source: str, name: str | None, filename: str | None = None) -> str:
        return re.sub(r"^(\{\{ \w+\(.*\) \}\})$", r"\1{##}", source, flags=re.MULTILINE)


@cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(_templates()),
        undefined=jinja2.StrictUndefined,
        extensions=[_WholeLines],
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )


def _templates() -> str:
    from importlib.util import find_spec

    spec = find_spec("attngen.templates")
    if spec is None or not spec.submodule_search_locations:
        return str(TEMPLATES)
    return spec.submodule_search_locations[0]


def render(variant: Variant) -> str:
    """The text of the module that a variant names."""
    family = FAMILIES[variant.config.backend]
    template = _environment().get_template(f"{family}/{variant.spec.op}.py.jinja")
    return template.render(context.context(variant))


@cache
def fingerprint(op: str, backend: str) -> str:
    """A digest of the template sources that an operator's kernels of one family render from.

    Raises:
        jinja2.TemplateNotFound: where the family has no template for the operator.
    """
    sources: dict[str, str] = {}
    waiting = [f"{FAMILIES[backend]}/{op}.py.jinja"]
    environment = _environment()
    assert environment.loader is not None
    while waiting:
        name = waiting.pop()
        if name not in sources:
            sources[name] = environment.loader.get_source(environment, name)[0]
            parsed = environment.parse(sources[name])
            waiting += [n for n in jinja2.meta.find_referenced_templates(parsed) if n]
    text = "\0".join(f"{name}\0{source}" for name, source in sorted(sources.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
