"""Build hooks of the site: render equations as MathML, and convert docstrings to Markdown."""

from __future__ import annotations

import html
import re
from typing import Any

import griffe
from latex2mathml.converter import convert

# --- equations -----------------------------------------------------------------------------------------------------------

EQUATION = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)


def on_page_content(content: str, **_: Any) -> str:
    """Page content with equations as MathML, which browsers render without scripts."""
    return EQUATION.sub(lambda match: to_mathml(html.unescape(match[2]), match[1] == "div"), content)


def to_mathml(latex: str, block: bool) -> str:
    """A LaTeX equation as MathML."""
    latex = latex.strip().replace(r"\mathbb{1}", "\N{MATHEMATICAL DOUBLE-STRUCK DIGIT ONE}")
    converted: str = convert(latex, display="block" if block else "inline")
    if "\\" in html.unescape(converted):
        raise ValueError(
            f"Equations must use commands that latex2mathml supports (got {latex!r}). Replace the unconverted command."
        )
    return f'<div class="equation">{converted}</div>' if block else converted


# --- docstrings ----------------------------------------------------------------------------------------------------------

ROLE = re.compile(r":(\w+):`~?([^`]+)`", re.DOTALL)
MATH_BLOCK = re.compile(r"^( *)\.\. math::([^\n]*(?:\n(?:\1 +[^\n]*|(?=\n)))*)", re.MULTILINE)
DOCTEST = re.compile(r"^( *)>>> [^\n]*(?:\n\1(?! *$)[^\n]+)*", re.MULTILINE)
RETURNS = re.compile(r"^(Returns|Yields):\n((?: +[^\n]*\n?)+)", re.MULTILINE)
LITERAL = re.compile(r"^::\n\n((?: {4}[^\n]*\n?|\n)+)", re.MULTILINE)


class Docstrings(griffe.Extension):
    """Convert docstrings with Sphinx roles and plain doctests to Markdown."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Convert the docstring of one object."""
        if obj.docstring is not None:
            obj.docstring.value = to_markdown(obj.docstring.value, obj)

    def on_attribute_instance(self, *, attr: griffe.Attribute, **_: Any) -> None:
        """Show the default value of a setting instead of the call that validates it."""
        value = attr.value
        if isinstance(value, griffe.ExprCall) and str(value.function) in (
            "number_field",
            "integer_field",
            "choice_field",
            "flag_field",
        ):
            attr.value = value.arguments[0]


def to_markdown(text: str, obj: griffe.Object) -> str:
    """A docstring as Markdown."""
    text = LITERAL.sub(lambda match: f"```text\n{match[1].rstrip()}\n```\n", text)
    text = MATH_BLOCK.sub(lambda match: f"{match[1]}\\[\n{match[1]}{' '.join(match[2].split())}\n{match[1]}\\]\n", text)
    text = RETURNS.sub(
        lambda match: f"**{match[1]}:** {' '.join(match[2].split())}\n", text
    )  # ours do not start with a type, which the parser would expect
    text = DOCTEST.sub(lambda match: f"{match[1]}```pycon\n{match[0]}\n{match[1]}```", text)
    return ROLE.sub(lambda match: convert_role(match[1], " ".join(match[2].split()), obj), text)


def convert_role(kind: str, text: str, obj: griffe.Object) -> str:
    r"""A Sphinx role as an equation, or as a link if the site documents the name."""
    if kind == "math":
        return rf"\({text}\)"
    return f'<autoref optional identifier="{qualified_name(text, obj)}"><code>{text}</code></autoref>'


def qualified_name(name: str, obj: griffe.Object) -> str:
    """Qualified name of what a docstring calls by a short name."""
    scope: griffe.Object | griffe.Alias | None = obj
    first, _, rest = name.partition(".")
    while scope is not None:
        if first in scope.members:
            return ".".join(filter(None, [scope.path, first, rest]))
        scope = scope.parent
    return name
