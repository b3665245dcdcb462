"""Settings of explainers: flat, frozen, checked when made; a misspelt name is a ``TypeError``.

This module imports no torch, so that the command line can show defaults at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from functools import cached_property
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, TypeVar

from nseg.errors import SettingsError, UnknownNameError
from nseg.events import Event, parse_event
from nseg.graph_types import type_text
from nseg.search.catalogue import SURROGATES

if TYPE_CHECKING:
    from nseg.search.complement import Law

Check = Callable[[Any], str | None]
"""Returns what must hold, or None if it does."""

Baseline = str | tuple[float, ...] | Mapping[str, Any]
"""What masked features become: a name, a row of numbers, or one of them for each type."""

BASELINES = ("zero", "mean", "others", "absent")
"""What masked features become, by name."""

ATTRIBUTE_MASKS = ("attributes", "common_attributes")
"""Masks of edge attributes, by the names that PyG has for masks of features."""

EXTRACTIONS = ("prefix", "threshold", "topk")

INTERVENTIONS = ("mask", "remove", "both")
"""What "taken away" means: messages weighed by 0, edges deleted from the graph, or whichever gives the smaller bound."""

EFFORTS: dict[str, dict[str, Any]] = {
    "fast": {"rounds": 2, "kicks": 0},
    "balanced": {},
    "thorough": {"rounds": 20, "kicks": 16, "starts": (1.0, -1.0, 3.0), "exact": 15, "anneal": 300},
}
"""Settings that differ from the defaults at each level of effort."""

MOST_ELEMENTS = 20
"""Elements of which all subsets can be tried within a few seconds and a gigabyte."""

MOST_ALTERNATIVES = 32
"""Largest number of other explanations that are looked for."""

TOO_MANY_SUBSETS = "because n elements have 2^n subsets"


def number_field(default: float, least: float = 0, most: float = math.inf) -> Any:
    """A setting that is a number between bounds."""

    def check(value: Any) -> str | None:
        good = (
            isinstance(value, Real)
            and not isinstance(value, bool)
            and math.isfinite(value)
            and least <= float(value) <= most
        )
        if good:
            return None
        if math.isfinite(most):
            return f"between {least} and {most}"
        return "a number" if least == -math.inf else f"a number of at least {least}" if least else "a non-negative number"

    return field(default=default, metadata={"check": check, "try": default})


def integer_field(
    default: int | None, least: int | None = 0, optional: bool = False, most: int | None = None, why: str = ""
) -> Any:
    """A setting that is a whole number between bounds, or None if that is its default or allowed.

    Args:
        default, least, most: the default and the bounds; None for no bound.
        optional: whether None is allowed although it is not the default.
        why: reason for the upper bound.
    """

    def check(value: Any) -> str | None:
        whole = isinstance(value, Integral) and not isinstance(value, bool)
        if whole and (least is None or int(value) >= least) and (most is None or int(value) <= most):
            return None
        if value is None and (default is None or optional):
            return None
        if most is not None:
            return f"a whole number from {least} to {most}{why and ', ' + why}"
        return "a whole number" if least is None else f"a whole number of at least {least}"

    return field(default=default, metadata={"check": check, "try": 10 if default is None else default})


def choice_field(default: str, known: Sequence[str]) -> Any:
    """A setting that is one of some names."""

    def check(value: Any) -> str | None:
        return None if value in known else f"one of {', '.join(map(repr, known))}"

    return field(default=default, metadata={"check": check, "try": repr(default)})


def check_event(value: Any) -> str | None:
    """A setting must be an event of the model's output, or None for the usual one."""
    return None if value is None or isinstance(value, Event) else "an event of the model's output"


def check_baseline(value: Any) -> str | None:
    """A setting must be the name of a baseline of features, a row of numbers, or one of them for each type."""
    if isinstance(value, Mapping):
        named = all(isinstance(key, str) or _is_edge_type(key) for key in value)
        if named and value and not any(isinstance(v, Mapping) or check_baseline(v) for v in value.values()):
            return None
    numbers = isinstance(value, tuple | list) and len(value) > 0
    numbers = numbers and all(isinstance(v, Real) and not isinstance(v, bool) and math.isfinite(v) for v in value)
    good = numbers or (isinstance(value, str) and value in BASELINES)
    return (
        None
        if good
        else ("'zero', 'mean', 'others', 'absent' or a row of numbers, one per feature, or a dictionary of these by type")
    )


def _is_edge_type(key: Any) -> bool:
    return isinstance(key, tuple) and len(key) == 3 and all(isinstance(name, str) for name in key)


def _plain_baseline(value: Any) -> Any:
    """A baseline whose rows are tuples and whose types are words."""
    if isinstance(value, Mapping):
        return {type_text(key): _plain_baseline(one) for key, one in value.items()}
    return tuple(value) if isinstance(value, list) else value


def check_attributes(value: Any) -> str | None:
    """A setting must be a kind of mask of edge attributes, or None for none."""
    return None if value in (None, *ATTRIBUTE_MASKS) else "None, " + " or ".join(map(repr, ATTRIBUTE_MASKS))


def flag_field(default: bool | None, optional: bool = False) -> Any:
    """A setting that is true or false, or None if that is allowed."""

    def check(value: Any) -> str | None:
        if isinstance(value, bool) or (optional and value is None):
            return None
        return "True, False or None" if optional else "True or False"

    return field(default=default, metadata={"check": check, "try": default})


Kind = TypeVar("Kind", bound="BaseSettings")


@dataclass(frozen=True, kw_only=True)
class BaseSettings:
    """Settings of every explainer: how the soft mask becomes a hard explanation, and how that is compared.

    Args:
        split: probability of the sub-events 00, 01, 10 of a joint complement (Eq. 11).
        intervention: what a hard explanation's worlds are: ``"mask"``, messages over other edges are weighed by 0;
            ``"remove"``, other edges are deleted, so that degrees, means and attention are those of the smaller graph;
            ``"both"``, the one with the smaller bound. Features are set to 0 in either case.
        undirected: give both directions of an edge one weight. None: where a whole graph is explained in which every edge
            has its reverse with equal attributes, such as a molecule; the explanation's settings say what was done.
        extract: how the hard explanation is made: ``"prefix"``, ``"threshold"`` or ``"topk"``.
        threshold: for ``"threshold"``.
        k: for ``"topk"``, number of edges (and nodes) to keep.
        tolerance: loss of the bound that is acceptable for a valid or smaller explanation, both together. Of equally
            small ones the best is taken, and of equally good ones that with the earliest elements.
        rounds: for ``"prefix"``, maximum number of rounds of moves (drop, add, exchange); 0 makes none.
        kicks: for ``"prefix"``, number of subsets around the best one from which moves start again, for instances whose
            bound is further from 1 than the tolerance; and if not 0, also from all elements and others. They are made two
            at a time, until the bound is within twice the tolerance of what the highest and the lowest probability met
            so far would give together, or the best one was met four times; of more than 32 elements only a third of them.
        anneal: for ``"prefix"``, steps of simulated annealing, and as many from the best subset of each size then known, for
            instances of at most 128 elements whose bound is further from 1 than the tolerance; 0 makes none.
        exact: for ``"prefix"``, try all subsets of instances with at most this many elements, 20 or fewer; where moves are
            stuck, of up to 3 more.
        connected: for ``"prefix"``, only explanations whose edges are connected: with the explained node or link, or of a
            graph in one piece.
        alternatives: for ``"prefix"``, maximum number of other explanations within ``tolerance`` of the best to look for.
        seed: of all random numbers that other settings ask for; equal seeds give equal masks, alone or in any batch.
        outcome: the event that is explained, such as ``nseg.Above(2.0)`` or its text ``"above:2"``; None for the usual
            one: the predicted class, or for a regression that the prediction stays near what it is.
        baseline: what a masked feature becomes: ``"zero"``; ``"mean"``, the mean over the nodes of the data; ``"others"``,
            that of another node of its graph, drawn by ``seed``; or a given row, one number per feature. ``"absent"``:
            whole nodes are deleted with their edges where edges would be. Of a heterogeneous graph means and others are
            those of the type, and ``{type: row or name}`` gives each type its own.
    """

    split: tuple[float, float, float] = (1 / 3, 1 / 3, 1 / 3)
    intervention: str = choice_field("mask", INTERVENTIONS)
    undirected: bool | None = flag_field(False, optional=True)
    extract: str = choice_field("prefix", EXTRACTIONS)
    threshold: float = number_field(0.5, 0, 1)
    k: int | None = integer_field(None)
    tolerance: float = number_field(0.05)
    rounds: int = integer_field(0)
    kicks: int = integer_field(0)
    anneal: int = integer_field(0)
    exact: int = integer_field(0, most=MOST_ELEMENTS, why=TOO_MANY_SUBSETS)
    connected: bool = flag_field(False)
    alternatives: int = integer_field(0, most=MOST_ALTERNATIVES)
    seed: int = integer_field(0, None)
    outcome: Event | None = field(default=None, metadata={"check": check_event, "try": "nseg.Within(0.5)"})
    baseline: Baseline = field(default="zero", metadata={"check": check_baseline, "try": "'mean'"})

    def __post_init__(self) -> None:
        for one in fields(self):
            check: Check = one.metadata.get("check", lambda value: None)
            must = check(getattr(self, one.name))
            if must is not None:
                raise SettingsError(
                    f"{one.name} must be {must} (got {getattr(self, one.name)!r}). Try {one.metadata['try']}."
                )
        split = tuple(self.split) if isinstance(self.split, Iterable) else ()
        if (
            len(split) != 3
            or not all(isinstance(p, Real) and not isinstance(p, bool) and p >= 0 for p in split)
            or not math.isclose(sum(split), 1, abs_tol=1e-6)
        ):
            raise SettingsError(
                f"split must be three non-negative numbers that sum to 1 (got {self.split}). Try (1/3, 1/3, 1/3)."
            )
        object.__setattr__(self, "split", split)
        object.__setattr__(self, "baseline", _plain_baseline(self.baseline))
        if self.extract == "topk" and self.k is None:
            raise SettingsError("k must be a whole number of at least 0 if extract='topk' (got None). Try 10.")

    @classmethod
    def from_names(cls: type[Kind], owner: str, given: Mapping[str, Any]) -> Kind:
        """Settings by name; a name that does not exist is an error that names the closest one.

        Args:
            owner: who has the settings, for the error.
            given: the settings that differ from their defaults.
        """
        known = [one.name for one in fields(cls)]
        for name in given:
            if name not in known:
                near = get_close_matches(name, known, 1)
                hint = f"Did you mean {near[0]}?" if near else f"Known: {', '.join(known)}."
                raise UnknownNameError(f"{owner} must get settings that exist (got {name}). {hint}")
        event = given.get("outcome")
        return cls(**{**given, "outcome": parse_event(event)} if isinstance(event, str) else given)

    @property
    def goal(self) -> tuple[str, str]:
        """Objective that hard explanations are compared by, and the surrogate it is climbed by."""
        return "pns", "log"

    def as_plain_data(self) -> dict[str, Any]:
        """The settings as plain data that JSON can hold."""
        return {name: list(value) if isinstance(value, list) else value for name, value in self._plain_data.items()}

    @cached_property
    def _plain_data(self) -> dict[str, Any]:
        """Made once, because every explanation carries a copy."""
        return {one.name: _plain(getattr(self, one.name)) for one in fields(self)}


def _plain(value: Any) -> Any:
    """A setting as JSON can hold it: NumPy's numbers become Python's, functions become their names."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Real):
        return int(value) if isinstance(value, Integral) else float(value)
    if isinstance(value, tuple | list):
        return [_plain(one) for one in value]
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    if hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    text = repr(value)  # of an object with an address, the class is all that is known
    return f"{type(value).__module__}.{type(value).__qualname__}" if " at 0x" in text else text


@dataclass(frozen=True, kw_only=True)
class Settings(BaseSettings):
    """Everything that determines an explanation of NSEG besides model and data, on top of :class:`BaseSettings`.

    Args:
        objective: what is maximised: ``"pns"`` (Eq. 18), ``"pn"`` or ``"ps"`` (appendix C).
        effort: how much time to spend on better explanations: ``"fast"``, ``"balanced"`` or ``"thorough"``. It chooses
            ``rounds``, ``kicks``, ``starts``, ``exact`` and ``anneal``, unless these are given.
        surrogate: how it is climbed: ``"log"``, logarithms, whose gradient survives for confident models; ``"gap"``,
            probabilities as in the paper; ``"ratio"``, the ratios of Prop. 3 (for ``"pn"`` and ``"ps"``).
        steps: maximum number of steps of Adam.
        lr: learning rate of Adam.
        alpha_e: price of one kept edge.
        beta_e: price of the edge mask's mean entropy.
        alpha_f: price of one kept node (or feature).
        beta_f: price of the node mask's mean entropy.
        samples: worlds sampled per sub-event and step.
        noise: half-width of the uniform noise in the complement (Eqs. 13, 14); with 0, and ``spread`` 0, the answer does
            not depend on the seed.
        law: another law of the complement instead of the paper's noise: a function of (mask, uniform numbers).
        starts: initial logits; each is a search of its own in the same batch, and the best result is kept.
        spread: half-width of the random spread around each start, in units of 1 / sqrt(m) for m edges (or nodes); 0 starts
            all elements alike, which makes different seeds agree more often.
        keep: which masks of a search are kept: the ``"best"``, or the ``"last"`` as in the published code.
        patience: steps without progress after which an instance stops; None: never.
        path_points: points on the path from no element to all at which gradients are taken, for a second ranking of more
            than 256 elements, or 128 where graphs are explained by a model that adds messages up (integrated gradients);
            fewer are left out and tried alone one by one. 0 makes none.
        intervention, undirected, tolerance: as in :class:`BaseSettings`, with other defaults: edges are deleted, the graph
            decides about directions, and less of the bound is given up.
        rounds, kicks, exact: as in :class:`BaseSettings`, but on by default.
        edge_attributes: mask the attributes of edges instead of the edges: ``"attributes"``, one element per column of
            ``edge_attr`` of each edge; ``"common_attributes"``, one per column of all edges. The edges themselves stay.
        edge_baseline: what a masked attribute becomes, as ``baseline`` for features, over the edges.
        whole_graph: scale start and mean entropy by the edges and nodes of the whole graph, as the published code does,
            instead of those of the computation graph.
    """

    objective: str = choice_field("pns", tuple(SURROGATES))
    effort: str = choice_field("balanced", tuple(EFFORTS))
    intervention: str = choice_field("remove", INTERVENTIONS)
    undirected: bool | None = flag_field(None, optional=True)
    tolerance: float = number_field(0.03)
    surrogate: str = choice_field("log", ("log", "gap", "ratio"))
    steps: int = integer_field(10)
    lr: float = number_field(0.5)
    alpha_e: float = number_field(0.05)
    beta_e: float = number_field(0.1)
    alpha_f: float = number_field(0.05)
    beta_f: float = number_field(0.1)
    samples: int = integer_field(1, 1)
    noise: float = number_field(0.0)
    law: Law | None = None
    starts: tuple[float, ...] = (1.0,)
    spread: float = number_field(0.0)
    keep: str = choice_field("best", ("best", "last"))
    patience: int | None = integer_field(10, 1, optional=True)
    path_points: int = integer_field(8)
    rounds: int = integer_field(6)
    kicks: int = integer_field(6)
    exact: int = integer_field(12, most=MOST_ELEMENTS, why=TOO_MANY_SUBSETS)
    edge_attributes: str | None = field(default=None, metadata={"check": check_attributes, "try": "'attributes'"})
    edge_baseline: Baseline = field(default="zero", metadata={"check": check_baseline, "try": "'mean'"})
    whole_graph: bool = flag_field(False)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "edge_baseline", _plain_baseline(self.edge_baseline))
        if self.edge_attributes is not None and (self.undirected or self.connected):
            raise SettingsError(
                "undirected and connected are of edges, and edge_attributes masks attributes instead (got both). Leave one "
                "out."
            )
        if self.surrogate not in SURROGATES[self.objective]:
            raise SettingsError(
                f"surrogate must be 'log' or 'gap' for objective {self.objective!r} (got {self.surrogate!r}). Try 'log'."
            )
        starts = tuple(self.starts) if isinstance(self.starts, tuple | list) else ()
        if not starts or not all(isinstance(s, int | float) and abs(s) < 100 for s in starts):
            raise SettingsError(f"starts must be one or more finite logits (got {self.starts!r}). Try (1.0,).")
        object.__setattr__(self, "starts", starts)
        if self.keep == "last" and (len(starts) > 1 or self.patience is not None):
            raise SettingsError(
                f"keep='last' needs one start and patience=None (got starts={starts}, patience={self.patience}), because "
                "the last masks of several starts cannot be compared. Try keep='best'."
            )
        if self.law is not None and not callable(self.law):
            raise SettingsError(f"law must be a function of a mask and uniform numbers (got {self.law!r}). Try None.")

    @property
    def goal(self) -> tuple[str, str]:
        return self.objective, self.surrogate
