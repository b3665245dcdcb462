"""What a worker does, wherever it runs."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

from nseg.backends.parcel import dumps
from nseg.errors import BackendError


def outcome(function: Callable[[Any], Any], item: Any) -> bytes:
    """Whether a call went well, and its result or what it raised, as bytes that can be sent."""
    try:
        return dumps((True, function(item)))
    except Exception as error:
        return failure(error)


def failure(error: Exception) -> bytes:
    """What was raised, as bytes that can be sent; in words if it cannot be sent as it is."""
    try:
        sent = dumps((False, error))
        pickle.loads(sent)
        return sent
    except Exception:
        return dumps((False, BackendError(f"A worker failed ({type(error).__name__}: {error}). Try backend='local'.")))


def result(sent: bytes) -> Any:
    """The result of a call; raises what the call raised."""
    good, value = pickle.loads(sent)
    if not good:
        raise value
    return value
