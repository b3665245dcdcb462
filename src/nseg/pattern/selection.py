"""Which patterns explain which predictions, and the few that together explain most."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from nseg.pattern.cores import common_cores, one_edge_less, spread
from nseg.pattern.forms import FormCatalogue
from nseg.pattern.matching import first_occurrence
from nseg.pattern.predictions import ExplainedPrediction, all_conditions
from nseg.pattern.settings import PatternSettings
from nseg.pattern.typed_graph import Condition, TypedGraph

Form = frozenset[int]
"""A pattern: numbers of its connected parts. How often a part occurs does not count."""

MAX_PARTS = 3
"""Maximum number of parts of a rule. Patterns with edges have one part: explanations often keep a few stray edges too."""

SEEDS, LARGEST_SEED = 8, 15
"""Number of patterns that are made smaller in search of common cores, and the largest that is."""

CORES = 20
"""Number of common cores that are candidates."""

SAMPLED = 60
"""Predictions on which common cores are valued."""


class PatternIndex:
    """Predictions with the canonical forms of what their explanations keep.

    Args:
        predictions: all explained predictions.
        settings: how occurrences are searched.
    """

    def __init__(self, predictions: Sequence[ExplainedPrediction], settings: PatternSettings) -> None:
        self.predictions, self.settings = predictions, settings
        self.forms = FormCatalogue()
        self.kept = [tuple(self.forms.number(part.graph) for part in one.kept) for one in predictions]
        self._hosts: dict[int, TypedGraph] = {}
        self._contained: dict[tuple[int, int], bool] = {}
        self._found: dict[tuple[int, int], bool] = {}

    @cached_property
    def _conditions(self) -> list[Condition]:
        return all_conditions(self.predictions)

    def host(self, position: int) -> TypedGraph:
        """The graph in which patterns are searched, of the prediction at a position."""
        if position not in self._hosts:
            self._hosts[position] = self.predictions[position].host(self._conditions)
        return self._hosts[position]

    def graphs(self, form: Form) -> list[TypedGraph]:
        """The parts of a pattern."""
        return [self.forms.graphs[number] for number in sorted(form)]

    def size(self, form: Form) -> int:
        """Number of elements of a pattern."""
        return sum(graph.size for graph in self.graphs(form))

    def share(self, form: Form, position: int) -> float:
        """Share of what is kept that a pattern in it is; 0 if it is not in it, or less than the settings ask for."""
        kept = self.kept[position]
        share = min(self.size(form) / self._kept_size(position), 1.0) if kept else 0.0
        inside = share >= self.settings.share and all(any(self._inside(n, part) for part in kept) for n in form)
        return share if inside else 0.0

    def _kept_size(self, position: int) -> int:
        return sum(self.forms.graphs[part].size for part in self.kept[position])

    def _inside(self, number: int, part: int) -> bool:
        """Whether a part of a pattern occurs in a kept part."""
        if (number, part) not in self._contained:
            pattern, graph = self.forms.graphs[number], self.forms.graphs[part]
            found = number == part or first_occurrence(pattern, graph, self.settings.effort)
            self._contained[number, part] = bool(found)
        return self._contained[number, part]

    def occurs(self, form: Form, position: int) -> bool:
        """Whether all parts of a pattern occur in the graph of a prediction, kept or not."""
        return all(self._part_occurs(number, position) for number in form)

    def _part_occurs(self, number: int, position: int) -> bool:
        if (number, position) not in self._found:
            pattern = self.forms.graphs[number]
            found = number in self.kept[position] or first_occurrence(pattern, self.host(position), self.settings.effort)
            self._found[number, position] = bool(found)
        return self._found[number, position]


def candidates(index: PatternIndex, positions: Sequence[int], others: Sequence[int]) -> list[Form]:
    """Patterns that enough explanations consist of, and what they share.

    They consist of their connected parts; of rules, also of all parts together.

    Args:
        index: the predictions.
        positions, others: positions of the predictions of the class, and of other classes.
    """
    counts: Counter[Form] = Counter()
    for position in positions:
        parts = frozenset(index.kept[position])
        counts.update(frozenset({part}) for part in parts)
        rule = not any(index.forms.graphs[part].edges for part in parts)
        if rule and 1 < len(parts) <= MAX_PARTS:
            counts[parts] += 1
    least = max(min(2, len(positions)), index.settings.support * len(positions))
    frequent = [form for form, count in counts.items() if count >= least]
    whole = sorted(frequent, key=lambda form: (-counts[form], index.size(form), sorted(form)))
    shared = cores(index, positions, others, counts)
    shared = [form for form in shared if sum(index.share(form, p) > 0 for p in positions) >= least]
    return list(dict.fromkeys([*whole, *shared]))


def cores(index: PatternIndex, mine: Sequence[int], others: Sequence[int], counts: Mapping[Form, int]) -> list[Form]:
    """Smaller patterns that explanations of a class share: the best that are met when edges are taken out one by one.

    Args:
        index: the predictions.
        mine, others: positions of the predictions of the class, and of other classes.
        counts: how many explanations of the class keep each pattern exactly.
    """
    some, elsewhere = spread(mine, SAMPLED), spread(others, SAMPLED)

    def worth(number: int) -> float:
        form, settings = frozenset({number}), index.settings
        gained = sum(index.share(form, p) for p in some) / len(some)
        if gained <= settings.size_price * index.size(form):  # not worth a search elsewhere
            return 0.0
        found = sum(index.occurs(form, p) for p in elsewhere) / max(len(elsewhere), 1)
        return gained - settings.size_price * index.size(form) - settings.elsewhere_price * found

    def smaller(number: int) -> list[int]:
        return [index.forms.number(graph) for graph in one_edge_less(index.forms.graphs[number])]

    single = [form for form in counts if len(form) == 1 and 1 < index.size(form) <= LARGEST_SEED]
    single.sort(key=lambda form: (-counts[form], index.size(form), sorted(form)))
    found = common_cores([number for form in single[:SEEDS] for number in form], smaller, worth)
    return [frozenset({number}) for number, value in found[:CORES] if value > 0]


@dataclass(frozen=True)
class Choice:
    """A chosen pattern.

    Args:
        item: number of the pattern among the candidates.
        gain: what it adds to the mean share that is covered, minus its price.
    """

    item: int
    gain: float


def choose(
    shares: Sequence[Mapping[int, float]],
    total: int,
    price: Callable[[int], float],
    floor: Callable[[int], float],
    most: int,
) -> list[Choice]:
    """Greedy maximum coverage: always the candidate that adds most to what is covered, minus its price, while it pays.

    Something is covered to the largest share that a chosen candidate covers of it. Without prices, what is covered is at
    least 1 - 1/e of the best that as many candidates can cover (Nemhauser, Wolsey and Fisher 1978).

    Args:
        shares: for each candidate, the share that it covers of what it covers.
        total: number of all that could be covered.
        price: price of a candidate; asked only of candidates that may be chosen.
        floor: a lower bound of the price that costs nothing to compute.
        most: maximum number of candidates.

    >>> shares = [{1: 1.0, 2: 1.0, 3: 1.0}, {3: 1.0, 4: 1.0}, {4: 0.5}]
    >>> [one.item for one in choose(shares, 4, lambda n: 0.1, lambda n: 0.0, 2)]
    [0, 1]
    """
    reached: dict[int, float] = {}
    remaining, chosen = set(range(len(shares))), list[Choice]()
    while remaining and len(chosen) < most:
        added = {n: sum(max(0.0, w - reached.get(k, 0.0)) for k, w in shares[n].items()) / total for n in remaining}
        best = Choice(-1, 0.0)
        for n in sorted(remaining, key=lambda n: (floor(n) - added[n], n)):
            if added[n] - floor(n) <= best.gain:
                break
            gain = added[n] - price(n)
            best = Choice(n, gain) if gain > best.gain else best
        if best.item < 0:
            break
        chosen.append(best)
        remaining.remove(best.item)
        for k, share in shares[best.item].items():
            reached[k] = max(share, reached.get(k, 0.0))
    return chosen


@dataclass(frozen=True)
class ChosenPattern:
    """A pattern of a class, with what it explains.

    Args:
        form: the pattern.
        explained: positions of the predictions of the class that it explains.
        elsewhere: positions of predictions of other classes in which it occurs.
    """

    form: Form
    explained: tuple[int, ...]
    elsewhere: tuple[int, ...]


def choose_patterns(index: PatternIndex, mine: Sequence[int], others: Sequence[int]) -> list[ChosenPattern]:
    """The patterns of a class.

    Args:
        index: all predictions.
        mine, others: positions of the predictions of the class, and of other classes.
    """
    settings, forms = index.settings, candidates(index, mine, others)
    shares = [{p: share for p in mine if (share := index.share(form, p))} for form in forms]
    elsewhere: dict[int, tuple[int, ...]] = {}

    def size_price(n: int) -> float:
        return settings.size_price * index.size(forms[n])

    def price(n: int) -> float:
        if n not in elsewhere:
            elsewhere[n] = tuple(p for p in others if index.occurs(forms[n], p))
        return size_price(n) + settings.elsewhere_price * len(elsewhere[n]) / max(len(others), 1)

    chosen = choose(shares, max(len(mine), 1), price, size_price, settings.most)
    return [ChosenPattern(forms[c.item], tuple(sorted(shares[c.item])), elsewhere[c.item]) for c in chosen]


def by_class(predictions: Sequence[ExplainedPrediction], positions: Sequence[int]) -> Mapping[int, list[int]]:
    """Positions of the predictions of each class, classes in ascending order."""
    found: dict[int, list[int]] = {}
    for position in positions:
        found.setdefault(predictions[position].target_class, []).append(position)
    return dict(sorted(found.items()))
