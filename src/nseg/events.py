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
from typing import Any, ClassVar, NamedTuple

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


# --- what the arguments of events must be ----------------------------------------------------------------------------------


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def _is_positive(value: Any) -> bool:
    return value is None or (_is_number(value) and value > 0)


def _is_position(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 0


class Rule(NamedTuple):
    """What an argument of an event must be, for its check and the error."""

    must: str
    holds: Callable[[Any], bool]
    remedy: str = ""


SCALE = Rule(
    "a positive number, the standard deviation of the noise of the prediction",
    _is_positive,
    " Try the root mean square of the model's test error, or None to take it from the data.",
)
DISTANCE = Rule("a positive number", _is_positive, " Try 0.5, in the unit of the target.")
THRESHOLD = Rule("a finite number", _is_number, " Give it in the unit of the target.")
COLUMN = Rule("the number of a column, counted from 0", lambda value: value is None or _is_position(value))
CLASS = Rule("the number of a class, counted from 0", _is_position)
LABEL = Rule("the number of a label, counted from 0", _is_position)
FUNCTION = Rule("a function of the model's output rows", lambda value: value is None or callable(value))


# --- events ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Event(ABC):
    """An event of one row of a model's output."""

    modes: ClassVar[tuple[str, ...]]
    """Kinds of models that have such events."""

    rules: ClassVar[dict[str, Rule]] = {}
    """What the arguments must be."""

    def __post_init__(self) -> None:
        for name, rule in self.rules.items():
            value = getattr(self, name)
            if not rule.holds(value):
                raise SettingsError(f"{name} must be {rule.must} (got {value!r}).{rule.remedy}")

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
    rules: ClassVar = {"scale": SCALE, "output": COLUMN}
    scale: float | None = None
    output: int | None = None

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

    rules: ClassVar = {**ValueEvent.rules, "distance": DISTANCE}
    distance: float | None = None

    def statement(self, target: float, class_name: ClassNamer = plain_class_name) -> str:
        return f"the prediction stays within {self.distance:g} of {target:.4g}{self.noise}"

    def title(self, target: float, class_name: ClassNamer = plain_class_name) -> str:
        return f"{target:.3g} ± {self.distance:g}"

    @property
    def sides(self) -> tuple[str, str]:
        return f"further than {self.distance:g} away", f"within {self.distance:g} of the prediction"


@dataclass(frozen=True, repr=False)
class ThresholdEvent(ValueEvent):
    """The prediction is on one side of a threshold."""

    rules: ClassVar = {**ValueEvent.rules, "threshold": THRESHOLD}
    side: ClassVar[str]
    other_side: ClassVar[str]
    threshold: float

    def statement(self, target: float, class_name: ClassNamer = plain_class_name) -> str:
        return f"the prediction is {self.side} {self.threshold:g}{self.noise}"

    def title(self, target: float, class_name: ClassNamer = plain_class_name) -> str:
        return f"{target:.3g}, {self.side} {self.threshold:g}"

    @property
    def sides(self) -> tuple[str, str]:
        return f"{self.threshold:g} or {self.other_side}", f"{self.side} {self.threshold:g}"


@dataclass(frozen=True, repr=False)
class Above(ThresholdEvent):
    """The prediction is above a threshold.

    Args:
        threshold: in the unit of the target.
        scale, output: as in :class:`ValueEvent`.

    >>> Above(-2).statement(1.25)
    'the prediction is above -2'
    """

    side, other_side = "above", "below"


@dataclass(frozen=True, repr=False)
class Below(ThresholdEvent):
    """The prediction is below a threshold; arguments as of :class:`Above`."""

    side, other_side = "below", "above"


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
    rules: ClassVar = {"than": CLASS}
    than: int

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
    rules: ClassVar = {"label": CLASS}
    label: int

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
    rules: ClassVar = {"number": LABEL}
    number: int

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
    rules: ClassVar = {"probability": FUNCTION, "holds": FUNCTION}
    probability: Callable[[Any], Any] | None
    holds: Callable[[Any], Any] | None = None
    name: str = "the custom event happens"

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


FORMS = "within:0.5, above:2, below:-1, rather:2, not:2 or label:3"
"""How events are written as text."""


def parse_event(text: str) -> Event:
    """The event that a text names, as on the command line: its kind, a number, and perhaps options.

    >>> parse_event("above:2"), parse_event("within:0.5,scale=0.2,output=1"), parse_event("within")
    (Above(threshold=2), Within(distance=0.5, scale=0.2, output=1), Within())
    """
    name, _, rest = text.strip().partition(":")
    kind = EVENTS.get(name.strip().capitalize())
    parts = [part.strip() for part in rest.split(",") if part.strip()]
    named = [part for part in parts if "=" in part]
    try:
        if kind is None or len(parts) - len(named) > 1:
            raise ValueError
        options = {name.strip(): _read_number(value) for name, _, value in (part.partition("=") for part in named)}
        return kind(*(_read_number(part) for part in parts if "=" not in part), **options)
    except (ValueError, TypeError) as error:
        if isinstance(error, SettingsError):
            raise
        raise SettingsError(
            f"outcome must look like {FORMS} (got {text!r}). Options follow a comma: above:2,scale=0.5,output=1."
        ) from None


def _read_number(text: str) -> float:
    return int(text) if text.strip().lstrip("+-").isdigit() else float(text)
