"""Linear operations before the messages that they follow, where that is less work.

What nodes receive is a weighted sum of rows, so a matrix may be applied to the rows before or after it. Before it, rows
differ in fewer worlds, and rows that do not vary are multiplied only once; but messages are as wide as the result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from torch import Tensor, fx

from nseg.model.kernel_steps import Code, Constant, Lookup, Step, Value, padded

WIDER = 2
"""Where a matrix is applied once to rows that do not vary, messages may become this many times as wide."""


def narrow_messages(steps: Sequence[Step]) -> list[Step]:
    """Operations with the same result, in which matrices are applied before messages where these do not become wider."""
    uses = Counter(value.number for step in steps for value in step.used)
    features = {step.target.number: step.shared for step in steps if step.code is Code.FEATURES}
    found, rest, number = list[Step](), list(steps), max(step.target.number for step in steps) + 1
    while rest:
        received = _received(rest, uses)
        after = rest[len(received)] if 0 < len(received) < len(rest) else None
        if after is None or not _can_be_first(received, after, uses):
            found, rest = [*found, rest[0]], rest[1:]
            continue
        found += _applied_first(received, after, number)
        rest, number = rest[len(received) + 1 :], number + 1
    return [_of_features(step, features) for step in found]


def _of_features(step: Step, features: Mapping[int, fx.Node | None]) -> Step:
    """An operation that also knows what a matrix makes of features, for where they are masked as a whole."""
    shared = None if step.source is None else features.get(step.source.number)
    if step.code is not Code.LINEAR or not _is_plain(step) or shared is None:
        return step
    return replace(step, shared=shared, weights=step.row)


def _received(steps: Sequence[Step], uses: Counter[int]) -> list[Step]:
    """The messages that operations begin with, and what is added to them: rows of the same kind as those that are sent."""
    first, second = steps[0], steps[1] if len(steps) > 1 else None
    if first.code is not Code.PRODUCT or not _is_plain(first):
        return []
    if second is None or second.code is not Code.SUM or second.source != first.target:
        return [first]
    alike = second.other == first.source and (second.shared is None) == (first.shared is None)
    return [first, second] if alike and second.is_scalar and _is_plain(second) and uses[first.target.number] == 1 else []


def _is_plain(step: Step) -> bool:
    return step.bias is None and not step.activation[0] and not step.inverse


def _can_be_first(received: Sequence[Step], after: Step, uses: Counter[int]) -> bool:
    """Whether an operation on what nodes receive may be applied to what is sent instead, and is less work there."""
    sent, last = received[0], received[-1].target
    if after.code is not Code.LINEAR or after.source != last or uses[last.number] != 1:
        return False
    before, now = padded(sent.target.width), padded(after.target.width)
    if sent.source is None:  # rows that do not vary
        return now <= WIDER * before
    return sent.source.level == sent.target.level and now <= before


def _applied_first(received: Sequence[Step], linear: Step, number: int) -> list[Step]:
    """The operations in the other order; ``number``: that of the value which is sent."""
    sent, width, found = received[0], linear.target.width, list[Step]()
    source = None if sent.source is None else Value(number, width, sent.source.level)
    weights = linear.row if source is None else None
    if source is not None:
        found.append(Step(Code.LINEAR, source, sent.source, row=linear.row))
    found.append(replace(sent, target=replace(sent.target, width=width), source=source, weights=weights))
    for added in received[1:]:
        row = None if added.row is None else _widened(added.row, width)
        found.append(replace(added, source=found[-1].target, other=source, weights=weights, row=row))
    found[-1] = replace(found[-1], target=linear.target, bias=linear.bias, activation=linear.activation)
    return found


def _widened(row: Constant, width: int) -> Constant:
    """A row that holds one number, for another width."""

    def found(get: Lookup) -> Tensor:
        return row(get)[:1].expand(width)

    return found
