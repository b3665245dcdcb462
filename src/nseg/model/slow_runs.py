"""When a fast way of running a model fails: whose fault it is, and the warning that says why and what it costs."""

from __future__ import annotations

from types import TracebackType

import torch
from torch import nn

from nseg.errors import ModelError, NsegError, NsegWarning

SLOW = "Shortcuts are not exact for {model}: {why}. {cost} The answers are the same, only slower."
"""A model is run on the whole graph, or on one graph or world at a time, where a shortcut would do for other models."""

LONGEST_REASON = 160
"""Characters of a model's own error message that are quoted."""

CALLS = (nn.Module._call_impl.__code__, nn.Module._wrapped_call_impl.__code__)
"""The code that calls a module; an error whose traceback has it comes from a model."""


def slow_note(model: nn.Module, why: str, cost: str) -> str:
    """A warning that says why a model is run the slow way, and what that costs.

    Args:
        model: the model, or the adapter of heterogeneous graphs around it.
        why: what is wrong with the fast way, as the end of a sentence.
        cost: a sentence: what is run, and how often.
    """
    return SLOW.format(model=getattr(model, "adapted_name", type(model).__name__), why=why, cost=cost)


def raised(error: Exception, where: str) -> str:
    """An error as the reason of a warning.

    >>> raised(ValueError("one graph, please"), "on several graphs together")
    'it raises ValueError (one graph, please) on several graphs together'
    """
    text = " ".join(str(error).split())
    text = text if len(text) <= LONGEST_REASON else text[:LONGEST_REASON] + "..."
    return f"it raises {type(error).__name__}{f' ({text})' if text else ''} {where}"


def raise_own_fault(error: Exception) -> None:
    """Raise an error again that a slower run of the model would only hide.

    A model may raise anything on a graph that it does not expect, and is then run in a slower way. But that memory is
    exhausted, that an argument is wrong, or that ``nseg`` itself has a mistake is not for a slower run to make up for.
    """
    ours = isinstance(error, NsegError | NsegWarning) and not isinstance(error, ModelError)
    if ours or isinstance(error, MemoryError | torch.OutOfMemoryError):
        raise error
    if is_our_mistake(error):
        raise error


def is_our_mistake(error: Exception) -> bool:
    """Whether an error is one that only wrong code makes, and no module was running."""
    return isinstance(error, ImportError | NameError | AttributeError) and not _is_of_a_module(error.__traceback__)


def _is_of_a_module(traceback: TracebackType | None) -> bool:
    """Whether an error was raised while a module ran."""
    while traceback is not None:
        if traceback.tb_frame.f_code in CALLS:
            return True
        traceback = traceback.tb_next
    return False
