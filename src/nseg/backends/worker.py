"""One function call in a worker, with its result or exception as bytes."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

from nseg.backends.serialize import serialize
from nseg.errors import BackendError


def call_and_serialize(function: Callable[[Any], Any], item: Any) -> bytes:
    """Call the function; the bytes hold whether it succeeded, and its result or exception."""
    try:
        return serialize((True, function(item)))
    except Exception as error:
        return serialize_error(error)


def serialize_error(error: Exception) -> bytes:
    """The exception as bytes; a ``BackendError`` with its message if it cannot be pickled and loaded."""
    try:
        content = serialize((False, error))
        pickle.loads(content)  # some exceptions can be pickled, but not created again from their arguments
        return content
    except Exception:
        message = f"A call in a worker failed ({type(error).__name__}: {error}). Try backend='local' to see the traceback."
        return serialize((False, BackendError(message)))


def deserialize_result(content: bytes) -> Any:
    """The result of a call; raises the exception if the call raised one."""
    succeeded, value = pickle.loads(content)
    if not succeeded:
        raise value
    return value
