"""What can be asked of a model: the event of its output that an explanation is of.

By default that is the predicted class, or for a regression that the prediction stays near what it is. Any method takes
another one as ``outcome=``: ``NSEG(outcome=Above(2.0))``. The event is named on every explanation.

This module imports no torch, so that settings can hold events. How a kind of model's output is read is in
:mod:`nseg.model.outcomes`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Any, ClassVar

from nseg.errors import InputError, SettingsError

BINARY, MULTICLASS, REGRESSION = "binary_classification", "multiclass_classification", "regression"
"""Kinds of models, as PyG names them."""

HAPPENS = 1
"""An explained event as one of two classes: it does not happen, it happens."""

ClassNamer = Callable[[int], str]
"""Gives the name of a class by its number."""


def plain_class_name(number: int) -> str:
    """``"class 2"`` for 2."""
    return f"class {number}"


@dataclass(frozen=True)
class Event(ABC):
    """An event of one row of a model's output."""

    modes: ClassVar[tuple[str, ...]]
    """Kinds of models that have such events."""

    @property
    def column(self) -> int | None:
        """The one column of the output that the event is about; None if the whole row is."""
        return None

    @abstractmethod
    def statement(self, target: float, class_name: ClassNamer = plain_class_name) -> str:
        """What the model does if the event happens.

        Args:
            target: the explained class, or the value of a regression.
            class_name: names classes.
        """

    @abstractmethod
    def title(self, target: float, class_name: ClassNamer = plain_class_name) -> str:
        """The event in few words, for titles; arguments as in :meth:`statement`."""

    @property
    @abstractmethod
    def sides(self) -> tuple[str, str]:
        """Short texts for "it does not happen" and "it happens"."""

    def as_plain_data(self) -> dict[str, Any]:
        """The event as plain data that JSON can hold, read by :func:`event_from`."""
        values = {one.name: getattr(self, one.name) for one in sorted(fields(self), key=lambda one: bool(one.kw_only))}
        return {"kind": type(self).__name__, **{name: value for name, value in values.items() if value is not None}}

    def __repr__(self) -> str:
        values = self.as_plain_data()
        kind = values.pop("kind")
        return f"{kind}({', '.join(f'{name}={value!r}' for name, value in values.items())})"


# --- regression ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False, kw_only=True)
class ValueEvent(Event):
    r"""An event of a predicted number, with the noise that makes it probable rather than certain.

    The true value is taken to be the prediction plus logistic noise of standard deviation ``scale``. The verdicts of an
    explanation (keeps, changes) need no noise: they compare the plain prediction.

    Args:
        scale: standard deviation of the noise. None: the root mean square of the model's residuals if the data hold
            targets ``y``, else a quarter of the standard deviation of its predictions.
        output: which column, if the model predicts several numbers per row.
    """

    modes: ClassVar = (REGRESSION,)
    scale: float | None = None
    output: int | None = None

    def __post_init__(self) -> None:
        if self.scale is not None and not (_is_number(self.scale) and self.scale > 0):
            raise SettingsError(
                f"scale must be a positive number, the standard deviation of the noise of the prediction (got "
                f"{self.scale!r}). Try the root mean square of the model's test error, or None to take it from the data."
            )
        if self.output is not None:
            _require_position("output", self.output, "column")

    @property
    def column(self) -> int | None:
        return self.output

    @property
    def noise(self) -> str:
        """The noise in words."""
        return "" if self.scale is None else f" (noise {self.scale:g})"


@dataclass(frozen=True, repr=False)
class Within(ValueEvent):
    """The prediction stays within a distance of what it is.

    Args:
        distance: None: half the standard deviation of the model's predictions.
        scale, output: as in :class:`ValueEvent`.

    >>> Within(0.5, scale=0.2), Within(0.5, scale=0.2).statement(1.25)
    (Within(distance=0.5, scale=0.2), 'the prediction stays within 0.5 of 1.25 (noise 0.2)')
    """

    distance: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.distance is not None and not (_is_number(self.distance) and self.distance > 0):
            raise SettingsError(
                f"distance must be a positive number (got {self.distance!r}). Try 0.5, in the unit of the target."
            )

    def statement(self, target: float, class_name: ClassNamer = plain_class_name) -> str:
        return f"the prediction stays within {self.distance:g} of {target:.4g}{self.noise}"

    def title(self, target: float, class_name: ClassNamer = plain_class_name) -> str:
        return f"{target:.3g} ± {self.distance:g}"

    @property
    def sides(self) -> tuple[str, str]:
        return f"further than {self.distance:g} away", f"within {self.distance:g} of the prediction"


@dataclass(frozen=True, repr=False)
class Above(ValueEvent):
    """The prediction is above a threshold.

    Args:
        threshold: in the unit of the target.
        scale, output: as in :class:`ValueEvent`.

    >>> Above(-2).statement(1.25)
    'the prediction is above -2'
    """

    threshold: float

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_threshold(self.threshold)

    def statement(self, target: float, class_name: ClassNamer = plain_class_name) -> str:
        return f"the prediction is above {self.threshold:g}{self.noise}"

    def title(self, target: float, class_name: ClassNamer = plain_class_name) -> str:
        return f"{target:.3g}, above {self.threshold:g}"

    @property
    def sides(self) -> tuple[str, str]:
        return f"{self.threshold:g} or below", f"above {self.threshold:g}"


@dataclass(frozen=True, repr=False)
class Below(ValueEvent):
    """The prediction is below a threshold.

    Args:
        threshold: in the unit of the target.
        scale, output: as in :class:`ValueEvent`.
    """

    threshold: float

    def __post_init__(self) -> None:
        super().__post_init__()
        _require_threshold(self.threshold)

    def statement(self, target: float, class_name: ClassNamer = plain_class_name) -> str:
        return f"the prediction is below {self.threshold:g}{self.noise}"

    def title(self, target: float, class_name: ClassNamer = plain_class_name) -> str:
        return f"{target:.3g}, below {self.threshold:g}"

    @property
    def sides(self) -> tuple[str, str]:
        return f"{self.threshold:g} or above", f"below {self.threshold:g}"


# --- classes -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class Rather(Event):
    r"""The explained class rather than another one: of these two, the model gives the first.

    Its probability is :math:`p_{\hat y} / (p_{\hat y} + p_c)`; other classes do not count.

    Args:
        than: the other class, c.

    >>> Rather(than=2).statement(1)
    'the model gives class 1 rather than class 2'
    """

    modes: ClassVar = (MULTICLASS,)
    than: int

    def __post_init__(self) -> None:
        _require_position("than", self.than, "class")

    def statement(self, target: float, class_name: ClassNamer = plain_class_name) -> str:
        return f"the model gives {self.title(target, class_name)}"

    def title(self, target: float, class_name: ClassNamer = plain_class_name) -> str:
        return f"{class_name(int(target))} rather than {class_name(self.than)}"

    @property
    def sides(self) -> tuple[str, str]:
        return f"rather class {self.than}", f"rather than class {self.than}"


@dataclass(frozen=True, repr=False)
class Not(Event):
    """Any class but one: an explanation says why the model does not give that class. The converse of :class:`Rather`.

    Without the explanation, the model would give that class.

    Args:
        label: the class that the model does not give.

    >>> Not(2).statement(0)
    'the model does not give class 2'
    """

    modes: ClassVar = (MULTICLASS,)
    label: int

    def __post_init__(self) -> None:
        _require_position("label", self.label, "class")

    def statement(self, target: float, class_name: ClassNamer = plain_class_name) -> str:
        return f"the model does not give {class_name(self.label)}"

    def title(self, target: float, class_name: ClassNamer = plain_class_name) -> str:
        return f"not {class_name(self.label)}"

    @property
    def sides(self) -> tuple[str, str]:
        return f"class {self.label}", f"not class {self.label}"


@dataclass(frozen=True, repr=False)
class Label(Event):
    """One of several binary labels per row keeps its value: for models with one score or probability per label.

    Args:
        number: which label, a column of the output.

    >>> Label(3).statement(1)
    'the model gives label 3 the value 1'
    """

    modes: ClassVar = (BINARY,)
    number: int

    def __post_init__(self) -> None:
        _require_position("number", self.number, "label")

    @property
    def column(self) -> int:
        return self.number

    def statement(self, target: float, class_name: ClassNamer = plain_class_name) -> str:
        return f"the model gives label {self.number} the value {int(target)}"

    def title(self, target: float, class_name: ClassNamer = plain_class_name) -> str:
        return f"label {self.number} is {int(target)}"

    @property
    def sides(self) -> tuple[str, str]:
        return f"label {self.number} changes", f"label {self.number} stays"


# --- any function ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class Custom(Event):
    """Any event of the output row, by a function that gives its probability.

    Args:
        probability: takes rows of the model's output as it returns them, [..., C], and gives [...] in [0, 1], with a
            gradient.
        holds: takes the same rows and says whether the event happens; by default whether its probability is above 1/2.
        name: what the event is, for people and stored explanations.
    """

    modes: ClassVar = (BINARY, MULTICLASS, REGRESSION)
    probability: Callable[[Any], Any] | None
    holds: Callable[[Any], Any] | None = None
    name: str = "the custom event happens"

    def __post_init__(self) -> None:
        for name in ("probability", "holds"):
            value = getattr(self, name)
            if value is not None and not callable(value):
                raise SettingsError(f"{name} must be a function of the model's output rows (got {value!r}).")

    def statement(self, target: float, class_name: ClassNamer = plain_class_name) -> str:
        return self.name

    def title(self, target: float, class_name: ClassNamer = plain_class_name) -> str:
        return self.name

    @property
    def sides(self) -> tuple[str, str]:
        return f"not: {self.name}", self.name

    def as_plain_data(self) -> dict[str, Any]:
        return {"kind": "Custom", "name": self.name}


# --- reading -------------------------------------------------------------------------------------------------------------

EVENTS: dict[str, type[Event]] = {kind.__name__: kind for kind in (Within, Above, Below, Rather, Not, Label)}
"""Events by the names under which they are stored."""


def event_from(data: dict[str, Any]) -> Event:
    """The event that :meth:`Event.as_plain_data` has described; the functions of a custom one are not stored.

    >>> event_from(Above(2.0, scale=0.5).as_plain_data())
    Above(threshold=2.0, scale=0.5)
    """
    values = dict(data)
    kind = values.pop("kind", None)
    if kind == "Custom":
        return Custom(None, name=str(values["name"]))
    if kind not in EVENTS:
        raise InputError(f"A stored outcome must be one of {', '.join(EVENTS)} or Custom (got {kind!r}).")
    return EVENTS[kind](**values)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def _require_threshold(value: Any) -> None:
    if not _is_number(value):
        raise SettingsError(f"threshold must be a finite number (got {value!r}). Give it in the unit of the target.")


def _require_position(name: str, value: Any, what: str) -> None:
    if not isinstance(value, Integral) or isinstance(value, bool) or value < 0:
        raise SettingsError(f"{name} must be the number of a {what}, counted from 0 (got {value!r}).")
