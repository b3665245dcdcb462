"""Lists and dictionaries of names, as callers give them: checked, and made text by number."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor

from nseg.errors import InputError

Labels = tuple[str, ...] | Mapping[Any, str]
"""Names by number: of all numbers, or of some. Edges may also be named by (source, target)."""


def as_labels(given: Any, number: int | None, argument: str, what: str, pairs: bool = False) -> Labels:
    """Names by number, checked."""
    if given is None:
        return ()
    if isinstance(given, Mapping):
        found: Labels = _by_number(given, argument, pairs)
    elif isinstance(given, str) or not isinstance(_plain_list(given), Iterable):
        raise InputError(
            f"{argument} must be a list with one name per {what}, or a dictionary by number (got {shorten(given)}). "
            f'Try {argument}=["first", "second"].'
        )
    else:
        found = tuple(_text(name, argument, what) for name in _plain_list(given))
    check_numbers(found, number, argument, what)
    return found


def check_numbers(labels: Labels, number: int | None, argument: str, what: str) -> None:
    """Raise unless there is a name for each of the numbers, or the dictionary's numbers exist."""
    if number is None or not labels:
        return
    if isinstance(labels, Mapping):
        wrong = [key for key in labels if isinstance(key, int) and not 0 <= key < number]
        if wrong:
            raise InputError(
                f"{argument} must name numbers from 0 to {number - 1}, one per {what} (got {wrong[0]}). Leave it out."
            )
    elif len(labels) != number:
        raise InputError(
            f"{argument} must have one name per {what}, {number} in all (got {len(labels)}). "
            "Give all of them in order, or a dictionary by number for some."
        )


def _by_number(given: Mapping[Any, Any], argument: str, pairs: bool) -> dict[Any, str]:
    """A dictionary from numbers, or for edges from (source, target), to names; one from names to numbers is turned round."""
    keys = [_key(key, pairs) for key in given]
    if keys and all(key is None for key in keys) and all(_key(value, pairs) is not None for value in given.values()):
        return {_key(number, pairs): str(name) for name, number in given.items()}
    wrong = [key for key, good in zip(given, keys, strict=True) if good is None]
    if wrong:
        kinds = "edge numbers or pairs (source, target)" if pairs else "whole numbers"
        raise InputError(f"{argument} as a dictionary must go from {kinds} to names (got the key {shorten(wrong[0])}).")
    return {key: _text(name, argument, "entry") for key, name in zip(keys, given.values(), strict=True)}


def _key(value: Any, pairs: bool) -> Any:
    """A number or, if allowed, a pair of numbers; None for anything else. Digits of a JSON key are a number."""
    if isinstance(value, tuple) and pairs and len(value) == 2:
        ends = tuple(_key(end, False) for end in value)
        return None if None in ends else ends
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def as_units(given: Any, features: Labels, width: int | None) -> Labels:
    """Units by column; a dictionary may also name features."""
    if isinstance(given, Mapping) and features:
        numbers = {str(name): number for number, name in _items(features)}
        unknown = [key for key in given if isinstance(key, str) and not key.isdigit() and key not in numbers]
        if unknown:
            raise InputError(
                f"units must name features that exist (got {shorten(unknown[0])}). Known are {shorten(list(numbers))}."
            )
        given = {numbers.get(key, key) if isinstance(key, str) else key: unit for key, unit in given.items()}
    if isinstance(given, Mapping) and not features and any(isinstance(key, str) and not key.isdigit() for key in given):
        raise InputError(
            f"units by the names of features need those names (got {shorten(dict(given))}, and no feature_names). Give "
            "feature_names too, or the units by column."
        )
    return as_labels(given, width, "units", "column of x")


def _text(name: Any, argument: str, what: str) -> str:
    """One name as text; None and NaN mean that there is none."""
    name = name.item() if hasattr(name, "item") else name
    if name is None or (isinstance(name, float) and math.isnan(name)):
        return ""
    if not isinstance(name, str | int | float):
        raise InputError(f"{argument} must be text or numbers, one per {what} (got {shorten(name)}).")
    return str(name)


def _plain_list(given: Any) -> Any:
    """A list from what NumPy, pandas and torch hold."""
    return given.tolist() if hasattr(given, "tolist") else given


def is_nested(given: Any) -> bool:
    """Whether something holds names per graph and not per element."""
    items = list(given.values()) if isinstance(given, Mapping) else _plain_list(given)
    first = next((one for one in items if one is not None), None) if isinstance(items, Iterable) else None
    several = isinstance(first, Mapping | Sequence) and not isinstance(first, str)
    return several or getattr(first, "ndim", 0) > 0


def get_label(labels: Labels, number: Any) -> str:
    """A name; ``""`` if there is none."""
    if isinstance(labels, Mapping):
        return labels.get(number, "")
    return labels[number] if isinstance(number, int) and 0 <= number < len(labels) else ""


def _items(labels: Labels) -> Iterable[tuple[Any, str]]:
    return labels.items() if isinstance(labels, Mapping) else enumerate(labels)


def labels_to_plain(labels: Labels) -> Any:
    """Names as data that JSON can hold; :func:`labels_from_plain` reads them."""
    if isinstance(labels, Mapping):  # as pairs, because keys of JSON are text
        return {"some": [[list(key) if isinstance(key, tuple) else key, name] for key, name in labels.items()]}
    return list(labels)


def labels_from_plain(plain: Any) -> Labels:
    """Names from the data of :func:`labels_to_plain`."""
    if isinstance(plain, Mapping):
        return {tuple(key) if isinstance(key, list) else key: str(name) for key, name in plain["some"]}
    return tuple(map(str, plain))


def shorten(value: Any) -> str:
    """A value for an error, cut after 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def is_by_type(given: Any) -> bool:
    """Whether something is a dictionary by node type or edge type, and not by number or from name to number."""
    if not isinstance(given, Mapping) or not given:
        return False
    named = all((isinstance(key, str) and not key.isdigit()) or (isinstance(key, tuple) and len(key) == 3) for key in given)
    return named and is_nested(given)


def names_by_function(function: Any, graph: Any, name: str) -> Any:
    """What a function says of a graph."""
    try:
        return function(graph)
    except Exception as error:
        raise InputError(f"{name}, a function of the graph, must return names (it raised {error!r}).") from error


def check_pairs(labels: Labels, edges: Any) -> Labels:
    """Names of edges, checked to be of edges [2, E] of the graph where they are given by their ends."""
    pairs = [key for key in labels if isinstance(key, tuple)] if isinstance(labels, Mapping) else []
    if pairs and isinstance(edges, Tensor):
        known = set(map(tuple, edges.T.tolist()))
        wrong = [pair for pair in pairs if pair not in known and pair[::-1] not in known]
        if wrong:
            raise InputError(f"edge_names must name edges of the graph (got {wrong[0]}, which is none). Leave it out.")
    return labels
