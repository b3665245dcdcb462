"""What the site needs besides Markdown: equations as MathML, and our docstrings turned into Markdown."""

from __future__ import annotations

import html
import re
from typing import Any

import griffe
from latex2mathml.converter import convert

# --- equations -----------------------------------------------------------------------------------------------------------

EQUATION = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def on_page_content(content: str, **_: Any) -> str:
    """Equations as MathML, which every browser draws by itself."""
    return EQUATION.sub(lambda found: mathml(html.unescape(found[2]), found[1] == "div"), content)


def mathml(latex: str, block: bool) -> str:
    """An equation as MathML."""
    latex = latex.strip().replace(r"\mathbb{1}", "\N{MATHEMATICAL DOUBLE-STRUCK DIGIT ONE}")
    made: str = convert(latex, display="block" if block else "inline")
    if "\\" in html.unescape(made):
        raise ValueError(f"Equations must use what latex2mathml knows (got {latex!r}, which left a command over).")
    return f'<div class="equation">{made}</div>' if block else made


# --- docstrings ----------------------------------------------------------------------------------------------------------

ROLE = re.compile(r":(\w+):`~?([^`]+)`", re.DOTALL)
MATH_BLOCK = re.compile(r"^( *)\.\. math::([^\n]*(?:\n(?:\1 +[^\n]*|(?=\n)))*)", re.MULTILINE)
DOCTEST = re.compile(r"^( *)>>> [^\n]*(?:\n\1(?! *$)[^\n]+)*", re.MULTILINE)
RETURNS = re.compile(r"^(Returns|Yields):\n((?: +[^\n]*\n?)+)", re.MULTILINE)
LITERAL = re.compile(r"^::\n\n((?: {4}[^\n]*\n?|\n)+)", re.MULTILINE)


class Docstrings(griffe.Extension):
    """Our docstrings have the roles of Sphinx and bare doctests; the site is Markdown."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite one docstring."""
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value, obj)

    def on_attribute_instance(self, *, attr: griffe.Attribute, **_: Any) -> None:
        """Show the default of a setting, not how it is checked."""
        value = attr.value
        if isinstance(value, griffe.ExprCall) and str(value.function) in ("number", "whole", "one_of", "yes_or_no"):
            attr.value = value.arguments[0]


def markdown(text: str, obj: griffe.Object) -> str:
    """A docstring in Markdown."""
    text = LITERAL.sub(lambda found: f"```text\n{found[1].rstrip()}\n```\n", text)
    text = MATH_BLOCK.sub(lambda found: f"{found[1]}\\[\n{found[1]}{' '.join(found[2].split())}\n{found[1]}\\]\n", text)
    text = RETURNS.sub(lambda found: f"**{found[1]}:** {' '.join(found[2].split())}\n", text)  # ours begin with no type
    text = DOCTEST.sub(lambda found: f"{found[1]}```pycon\n{found[0]}\n{found[1]}```", text)
    return ROLE.sub(lambda found: role(found[1], " ".join(found[2].split()), obj), text)


def role(kind: str, text: str, obj: griffe.Object) -> str:
    r"""A role of Sphinx: an equation, or a link where the site has what it names."""
    if kind == "math":
        return rf"\({text}\)"
    return f'<autoref optional identifier="{full_name(text, obj)}"><code>{text}</code></autoref>'


def full_name(name: str, obj: griffe.Object) -> str:
    """The full name of what a docstring calls by a short one."""
    scope: griffe.Object | griffe.Alias | None = obj
    first, _, rest = name.partition(".")
    while scope is not None:
        if first in scope.members:
            return ".".join(filter(None, [scope.path, first, rest]))
        scope = scope.parent
    return name
