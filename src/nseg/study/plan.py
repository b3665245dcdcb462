"""What a study is: plain data, read from TOML, that unfolds into trials."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any

from nseg import baselines, datasets, models
from nseg.baselines.catalogue import check_name as check_method
from nseg.errors import InputError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SHIPPED = files("nseg.study") / "studies"
MEASURES = ("fidelity", "accuracy", "thresholds")
FIGURES = ("thresholds", "setting", "split", "cost")
KINDS = ("soft", "hard", "cut")
SCORES = ("fid_plus", "fid_minus", "charact", "sparsity", "pns")
COLUMNS = (*(f"{kind}.{score}" for kind in KINDS for score in SCORES), "recall_at_k", "roc_auc", "kept", "seconds")


@dataclass(frozen=True)
class Method:
    """One row of a study.

    Args:
        name: in the catalogue of methods.
        label: how tables call it; its name if empty.
        masks: ``e`` (edges), ``f`` (nodes) or ``ef`` (both).
        preset: ``"paper"`` for the paper's settings of each dataset, ``"default"`` for the method's own.
        paper: its row in the paper's tables, if there is one.
        settings: of the method; they go before the preset's.
        grid: settings with the values to try, each combination a row.
        seeds: its own seeds, where the study's are too many.
    """

    name: str
    label: str = ""
    masks: str = "e"
    preset: str = "default"
    paper: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    grid: dict[str, list[Any]] = field(default_factory=dict)
    seeds: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_method(self.name)
        _one_of(f"masks of {self.name}", self.masks, ("e", "f", "ef"))
        _one_of(f"preset of {self.name}", self.preset, ("default", "paper"))


@dataclass(frozen=True)
class Trial:
    """One method on the instances of one dataset and network, with one seed."""

    dataset: str
    architecture: str
    network: str
    method: str
    label: str
    masks: str
    preset: str
    settings: dict[str, Any]
    seed: int
    every: int

    def __str__(self) -> str:
        return f"{self.dataset}/{self.architecture}: {self.label}, seed {self.seed}"


@dataclass(frozen=True)
class Study:
    """Datasets x architectures x methods x seeds, what to measure, and what to show.

    Args:
        name: of the study; a run folder can hold several.
        title: what it shows.
        datasets, architectures: what is explained.
        methods: what explains it.
        seeds: of methods that draw random numbers; others run once, with the first.
        networks: ``"ours"``, or ``"authors"`` for the paper's own three GCNs where they are.
        every: explain every n-th of the paper's instances; one number, or one per dataset (1 if not named).
        measures: of ``fidelity``, ``accuracy``, ``thresholds``.
        columns: of the tables.
        grid: settings that all methods try.
        figure: how it is drawn, if it is.
    """

    name: str
    title: str
    datasets: tuple[str, ...]
    methods: tuple[Method, ...]
    architectures: tuple[str, ...] = ("gcn",)
    seeds: tuple[int, ...] = (0,)
    networks: str = "ours"
    every: int | dict[str, int] = 1
    measures: tuple[str, ...] = ("fidelity", "accuracy")
    columns: tuple[str, ...] = ("soft.fid_plus", "soft.fid_minus", "soft.charact", "soft.sparsity", "seconds")
    grid: dict[str, list[Any]] = field(default_factory=dict)
    figure: str = ""

    def __post_init__(self) -> None:
        _several("datasets", self.datasets, datasets.NAMES)
        _several("architectures", self.architectures, models.ARCHITECTURES)
        _several("measures", self.measures, MEASURES)
        _several("columns", self.columns, COLUMNS)
        _one_of("networks", self.networks, ("ours", "authors"))
        if self.figure:
            _one_of("figure", self.figure, FIGURES)
        if not self.methods or not self.seeds:
            raise InputError(f"A study needs methods and seeds (got {len(self.methods)} and {len(self.seeds)}).")
        if any("charact" in column for column in self.columns) and not any("sparsity" in c for c in self.columns):
            raise InputError("columns with charact must hold a sparsity too: charact alone rewards the whole graph.")
        labels = [label for method in self.methods for label, _ in self.variants(method)]
        if len(set(labels)) < len(labels):
            raise InputError(f"Every method of a study must have its own label (got {labels}). Set label=... for some.")
        steps = self.every.values() if isinstance(self.every, dict) else [self.every]
        if any(isinstance(n, bool) or not isinstance(n, int) or n < 1 for n in steps):
            raise InputError(f"every must be a whole number of at least 1, or one per dataset (got {self.every}).")

    def variants(self, method: Method) -> Iterator[tuple[str, dict[str, Any]]]:
        """The labels and settings of a method, one per combination in the grid."""
        grid = {**self.grid, **method.grid}
        for values in product(*grid.values()):
            point = dict(zip(grid, values, strict=True))
            label = method.label or method.name
            if point:
                label += f" ({', '.join(f'{k}={short(v)}' for k, v in point.items())})"
            yield label, {**method.settings, **point}

    def trials(self) -> list[Trial]:
        """All trials; those that cost little come first within a dataset."""
        found = []
        for dataset, architecture, method in product(self.datasets, self.architectures, self.methods):
            seeds = method.seeds or self.seeds
            for label, settings in self.variants(method):
                for seed in seeds if baselines.CATALOGUE[method.name].seeded else seeds[:1]:
                    found.append(
                        Trial(
                            dataset,
                            architecture,
                            self.network(dataset, architecture),
                            method.name,
                            label,
                            method.masks,
                            method.preset,
                            settings,
                            seed,
                            self.step(dataset),
                        )
                    )
        return found

    def network(self, dataset: str, architecture: str) -> str:
        """Whose weights are explained."""
        return "authors" if self.networks == "authors" and architecture == "gcn" and dataset in AUTHORS else "ours"

    def step(self, dataset: str) -> int:
        """Which of the instances: every n-th."""
        return self.every.get(dataset, 1) if isinstance(self.every, dict) else self.every


AUTHORS = ("ba-shapes", "tree-cycles", "tree-grid")
"""Datasets of which the paper's own graph and GCN are public."""


def names() -> list[str]:
    """The studies that ship."""
    return sorted(Path(str(one)).stem for one in SHIPPED.iterdir() if str(one).endswith(".toml"))


def find(name: str) -> Study:
    """A study that ships, by name, or one in a user's TOML file."""
    if name in names():
        return read((SHIPPED / f"{name}.toml").read_text(), name)
    if Path(name).is_file():
        return read(_text(Path(name)), Path(name).stem)
    raise InputError(f"A study is one of {', '.join(names())}, or a TOML file (got {name!r}, which is neither).")


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} must be a text file that can be read (got: {error}).") from error


def read(text: str, name: str) -> Study:
    """A study from TOML.

    Args:
        text: the TOML.
        name: used if it names none.

    >>> read('title = "two"\\ndatasets = ["ba-shapes"]\\nmethods = [{name = "all"}, {name = "none"}]', "two").seeds
    (0,)
    """
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"A study must be TOML (got a mistake in it: {error}).") from error
    methods = table.pop("methods", [])
    if not isinstance(methods, list) or not all(isinstance(one, dict) for one in methods):
        raise InputError("methods must be a list of tables, [[methods]] (got something else).")
    made = tuple(_made(Method, {"name": None, **one}, f"method {one.get('name')}") for one in methods)
    study: Study = _made(Study, {"name": name, "title": name, "datasets": (), **table, "methods": made}, "study")
    return study


def restored(plain: dict[str, Any]) -> Study:
    """A study from the plain data that ``dataclasses.asdict`` gives, also after JSON."""
    methods = tuple(Method(**{**one, "seeds": tuple(one["seeds"])}) for one in plain["methods"])
    lists: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in plain.items()}
    return Study(**{**lists, "methods": methods})


def _made(kind: Any, table: dict[str, Any], what: str) -> Any:
    """A dataclass from a table; a name that it does not have, or a value of another type, is said."""
    known = kind.__dataclass_fields__
    unknown = [key for key in table if key not in known]
    if unknown:
        raise InputError(f"A {what} has {', '.join(known)} (got also {', '.join(unknown)}). Check the spelling.")
    for key, value in table.items():
        _check_type(what, key, value, str(known[key].type))
    return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in table.items()})


def _check_type(what: str, key: str, value: Any, declared: str) -> None:
    good = {
        "str": lambda v: isinstance(v, str),
        "tuple[str, ...]": lambda v: isinstance(v, list | tuple) and all(isinstance(i, str) for i in v),
        "tuple[int, ...]": lambda v: isinstance(v, list) and all(isinstance(i, int) and not isinstance(i, bool) for i in v),
        "dict[str, Any]": lambda v: isinstance(v, dict),
        "dict[str, list[Any]]": lambda v: isinstance(v, dict) and all(isinstance(i, list) and i for i in v.values()),
    }
    if declared in good and not good[declared](value):
        raise InputError(f"{key} of a {what} must be {_WORDS[declared]} (got {value!r}).")


_WORDS = {
    "str": "text",
    "tuple[str, ...]": "a list of names",
    "tuple[int, ...]": "a list of whole numbers",
    "dict[str, Any]": "a table",
    "dict[str, list[Any]]": "a table of lists that are not empty",
}


def _one_of(what: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise InputError(f"{what} must be one of {', '.join(known)} (got {value!r}).")


def _several(what: str, values: tuple[str, ...], known: tuple[str, ...]) -> None:
    if not values or len(set(values)) < len(values):
        raise InputError(f"{what} must be a list without repetition (got {list(values)}).")
    for value in values:
        _one_of(what, value, known)


def short(value: Any) -> str:
    """A setting as text.

    >>> short([1 / 3, 0.5]), short(True)
    ('0.333333/0.5', 'True')
    """
    if isinstance(value, list | tuple):
        return "/".join(short(one) for one in value)
    return f"{value:g}" if isinstance(value, float) else str(value)
