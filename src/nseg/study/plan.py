"""What a study is: plain data, read from TOML, that expands into trials."""

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

SHIPPED_STUDIES = files("nseg.study") / "studies"
MEASURES = ("fidelity", "accuracy", "thresholds", "forms")
FIGURE_KINDS = ("thresholds", "setting", "split", "cost")
MASK_KINDS = ("soft", "hard", "cut", "removed", "cut_removed")
SCORES = ("fid_plus", "fid_minus", "charact", "sparsity", "pns")
OTHER_SCORES = ("recall_at_k", "roc_auc", "kept", "removed.holds")
COLUMNS = (*(f"{kind}.{score}" for kind in MASK_KINDS for score in SCORES), *OTHER_SCORES, "seconds")
AS_IN_THE_PAPER: dict[str, Any] = {"intervention": "mask", "undirected": False, "tolerance": 0.05}
"""Settings of NSEG in studies that do not say otherwise."""


@dataclass(frozen=True)
class Method:
    """A method of a study, with its settings.

    Args:
        name: name in the catalogue of methods.
        label: name in tables; ``name`` if empty.
        masks: ``e`` (edges), ``f`` (nodes) or ``ef`` (both).
        preset: ``"paper"`` for the paper's settings on each dataset, ``"default"`` for the method's defaults.
        paper: name of its row in the paper's tables, if it has one.
        settings: settings of the method; they override the preset.
        grid: lists of values for settings; each combination is a variant with its own label.
        seeds: seeds of this method; the seeds of the study if empty.
        every: explain only every n-th of the study's instances; the label should say so.
    """

    name: str
    label: str = ""
    masks: str = "e"
    preset: str = "default"
    paper: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    grid: dict[str, list[Any]] = field(default_factory=dict)
    seeds: tuple[int, ...] = ()
    every: int = 1

    def __post_init__(self) -> None:
        check_method(self.name)
        _check_stride(self.every)
        _check_choice(f"masks of {self.name}", self.masks, ("e", "f", "ef"))
        _check_choice(f"preset of {self.name}", self.preset, ("default", "paper"))


@dataclass(frozen=True)
class Trial:
    """One variant of a method on the instances of one dataset and network, with one seed."""

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
        name: name of the study; a run folder can hold several studies.
        title: one line that says what the study shows.
        datasets, architectures: names of the datasets and networks to explain.
        methods: the methods to compare.
        seeds: seeds of methods that use random numbers; the others run once, with the first seed.
        networks: ``"ours"`` for the weights that ship with the package; ``"authors"`` for the paper's own three GCNs, and
            the shipped weights elsewhere.
        every: explain every n-th of the paper's instances; one number, or a number per dataset (1 if missing).
        measures: what to compute: ``fidelity``, ``accuracy``, ``thresholds``; ``forms``, of edges also each method with
            NSEG's hardening and at NSEG's size, for its first seed and about 50 instances.
        columns: columns of the tables.
        grid: grid of settings for all methods.
        figure: kind of figure to draw; none if empty.
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
        _check_choices("datasets", self.datasets, datasets.NAMES)
        _check_choices("architectures", self.architectures, models.ARCHITECTURES)
        _check_choices("measures", self.measures, MEASURES)
        _check_choices("columns", self.columns, COLUMNS)
        _check_choice("networks", self.networks, ("ours", "authors"))
        if self.figure:
            _check_choice("figure", self.figure, FIGURE_KINDS)
        if not self.methods or not self.seeds:
            raise InputError(f"A study needs methods and seeds (got {len(self.methods)} and {len(self.seeds)}). Add some.")
        if any("charact" in column for column in self.columns) and not any("sparsity" in c for c in self.columns):
            raise InputError(
                "columns with charact must also have a sparsity (got none): charact alone rewards keeping the whole graph. "
                "Add soft.sparsity, hard.sparsity or cut.sparsity."
            )
        labels = [label for method in self.methods for label, _ in self.variants(method)]
        if len(set(labels)) < len(labels):
            raise InputError(
                f"Every method of a study must have its own label (got {labels}). Set label for the repeated ones."
            )
        strides = self.every.values() if isinstance(self.every, dict) else [self.every]
        for number in strides:
            _check_stride(number)

    def variants(self, method: Method) -> Iterator[tuple[str, dict[str, Any]]]:
        """Label and settings of each variant of a method: one per combination of the grid."""
        grid = {**self.grid, **method.grid}
        for values in product(*grid.values()):
            point = dict(zip(grid, values, strict=True))
            label = method.label or method.name
            if point:
                label += f" ({', '.join(f'{k}={format_setting(v)}' for k, v in point.items())})"
            yield label, {**method.settings, **point}

    def trials(self) -> list[Trial]:
        """All trials, in the order of datasets, architectures, methods and seeds."""
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
                            self.stride(dataset) * method.every,
                        )
                    )
        return found

    def measures_of(self, trials: dict[str, Trial]) -> dict[str, tuple[str, ...]]:
        """What to compute for each of some trials, by key: forms for the first seed only."""
        first: dict[tuple[str, str, str], int] = {}
        for trial in trials.values():
            first.setdefault((trial.dataset, trial.architecture, trial.label), trial.seed)
        others = tuple(name for name in self.measures if name != "forms")
        return {
            key: self.measures if first[trial.dataset, trial.architecture, trial.label] == trial.seed else others
            for key, trial in trials.items()
        }

    def network(self, dataset: str, architecture: str) -> str:
        """Whose weights are explained: ``"ours"`` or ``"authors"``."""
        return "authors" if self.networks == "authors" and architecture == "gcn" and dataset in AUTHORS_DATASETS else "ours"

    def stride(self, dataset: str) -> int:
        """The n of "every n-th instance" for a dataset."""
        return self.every.get(dataset, 1) if isinstance(self.every, dict) else self.every


AUTHORS_DATASETS = ("ba-shapes", "tree-cycles", "tree-grid")
"""Datasets for which the authors published their graph and GCN."""


def names() -> list[str]:
    """Names of the studies that ship with the package."""
    return sorted(Path(str(one)).stem for one in SHIPPED_STUDIES.iterdir() if str(one).endswith(".toml"))


def find(name: str) -> Study:
    """A shipped study by its name, or a study in a TOML file by its path."""
    if name in names():
        return read((SHIPPED_STUDIES / f"{name}.toml").read_text(), name)
    if Path(name).is_file():
        return read(_read_text(Path(name)), Path(name).stem)
    raise InputError(f"A study must be one of {', '.join(names())}, or a TOML file (got {name!r}). Check the path.")


def _read_text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} must be a readable text file (got {error}). Check the file.") from error


def read(text: str, name: str) -> Study:
    """The study that a TOML text describes.

    Args:
        text: the TOML text.
        name: name of the study, if the text does not give one.

    >>> read('title = "two"\\ndatasets = ["ba-shapes"]\\nmethods = [{name = "all"}, {name = "none"}]', "two").seeds
    (0,)
    """
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"A study must be TOML (got a syntax error: {error}). Correct the file.") from error
    methods = table.pop("methods", [])
    if not isinstance(methods, list) or not all(isinstance(one, dict) for one in methods):
        raise InputError(f"methods must be a list of tables (got {methods!r}). Write each as [[methods]].")
    parsed = tuple(_from_table(Method, {"name": None, **one}, f"method {one.get('name')}") for one in methods)
    study: Study = _from_table(Study, {"name": name, "title": name, "datasets": (), **table, "methods": parsed}, "study")
    return study


def study_from_plain_data(plain: dict[str, Any]) -> Study:
    """The study whose ``dataclasses.asdict``, possibly after a round trip through JSON, is given."""
    methods = tuple(Method(**{**one, "seeds": tuple(one["seeds"])}) for one in plain["methods"])
    lists: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in plain.items()}
    return Study(**{**lists, "methods": methods})


def _from_table(dataclass_: Any, table: dict[str, Any], what: str) -> Any:
    """A ``Method`` or ``Study`` from a TOML table; raises if a key is unknown or a value has the wrong type."""
    known = dataclass_.__dataclass_fields__
    unknown = [key for key in table if key not in known]
    if unknown:
        raise InputError(f"The keys of a {what} are {', '.join(known)} (got also {', '.join(unknown)}). Check the spelling.")
    for key, value in table.items():
        _check_type(what, key, value, str(known[key].type))
    return dataclass_(**{k: tuple(v) if isinstance(v, list) else v for k, v in table.items()})


def _check_type(what: str, key: str, value: Any, declared: str) -> None:
    is_valid = {
        "str": lambda v: isinstance(v, str),
        "tuple[str, ...]": lambda v: isinstance(v, list | tuple) and all(isinstance(i, str) for i in v),
        "tuple[int, ...]": lambda v: isinstance(v, list) and all(isinstance(i, int) and not isinstance(i, bool) for i in v),
        "dict[str, Any]": lambda v: isinstance(v, dict),
        "dict[str, list[Any]]": lambda v: isinstance(v, dict) and all(isinstance(i, list) and i for i in v.values()),
    }
    if declared in is_valid and not is_valid[declared](value):
        raise InputError(f"{key} of a {what} must be {_TYPE_NAMES[declared]} (got {value!r}). Correct it.")


_TYPE_NAMES = {
    "str": "text",
    "tuple[str, ...]": "a list of names",
    "tuple[int, ...]": "a list of integers",
    "dict[str, Any]": "a table",
    "dict[str, list[Any]]": "a table of non-empty lists",
}


def _check_choice(what: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise InputError(f"{what} must be one of {', '.join(known)} (got {value!r}). Check the spelling.")


def _check_choices(what: str, values: tuple[str, ...], known: tuple[str, ...]) -> None:
    if not values or len(set(values)) < len(values):
        raise InputError(f"{what} must be a list of different names (got {list(values)}). Name each once.")
    for value in values:
        _check_choice(what, value, known)


def _check_stride(number: Any) -> None:
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise InputError(
            f"every must be a positive integer, in a study also a table with one per dataset (got {number!r}). "
            "Use 1 for all instances."
        )


def format_setting(value: Any) -> str:
    """The value of a setting as short text.

    >>> format_setting([1 / 3, 0.5]), format_setting(True)
    ('0.333333/0.5', 'True')
    """
    if isinstance(value, list | tuple):
        return "/".join(format_setting(one) for one in value)
    return f"{value:g}" if isinstance(value, float) else str(value)
