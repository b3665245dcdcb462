"""The race: every method as published, with NSEG's own hardening, and cut to NSEG's size; one row for each.

    NSEG_DATA=... python benchmarks/race.py
    NSEG_DATA=... python benchmarks/race.py --methods nseg --method my_method.py:MyMethod --datasets tree-cycles

Rows are written to ``benchmarks/results/race.csv`` one by one, the agreement of each pair of methods to ``agreement.csv``
beside it, and ``docs/results/leaderboard.md`` is made from both. A
second run makes only what is missing, or was made at another commit, from other instances or with another seed.
Several processes may race at once, each with other ``--datasets`` or ``--networks`` and ``--rows-only``; then
``--page-only`` makes the page of what all of them wrote.

- *as published*: the paper's settings for the method and dataset if there are any, and the method's own cut.
- *hardened*: the method's ranking, then the search that makes NSEG's hard explanations (the best prefix, moves, restarts,
  all subsets of small instances) with NSEG's default settings, once under masks and once under deletion.
- *equal size*: the top of the same ranking, as many elements as NSEG keeps of the same instance under that intervention.

NSEG as published is the paper's; hardened, it is the default of this package, which sets the size and has no third form.
Every explanation is judged both under masks and under deletion. Time is processor time on one thread, of training too.
About 30 instances of each dataset are explained (``--every``), and every eighth of them by the methods in ``COSTLY``.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import importlib.util
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

import torch
from agreement import keep_edges, pairs_of_methods
from csv_table import write_table
from leaderboard import FORMS, JUDGED, write_leaderboard
from torch import nn
from torch_geometric.data import Data, HeteroData

from nseg import NSEG, Explainer, NsegError, NsegWarning, Settings, datasets, explain_many, models
from nseg.baselines import CATALOGUE, find
from nseg.datasets.names import NAMES
from nseg.errors import InputError, MissingError, ModelError, UnsupportedError
from nseg.explain.algorithm import BatchedAlgorithm
from nseg.explanation import Explanation
from nseg.metrics import Evaluator, stability
from nseg.metrics.budget import elements, highest, necessity_of
from nseg.metrics.retraining import fidelity_on, tuned_on_thinned
from nseg.search.settings import BaseSettings
from nseg.storage.commit import code_commit
from nseg.storage.locks import lock_file

ROOT = Path(__file__).parents[1]
PUBLISHED, HARDENED, EQUAL = FORMS
EFFORT = {name: getattr(Settings(), name) for name in ("extract", "rounds", "kicks", "exact", "tolerance", "undirected")}
"""How NSEG makes its hard explanations; the same for all."""

EVERY = {"ba-shapes": 13, "tree-cycles": 13, "tree-grid": 23, "ba-2motif": 33, "mutagenicity": 8, "msrc-21": 8}
"""Of each dataset, every n-th instance is explained: about 30, and all places in a motif, as no n divides its size."""

COSTLY = {"subgraphx": 8, "captum": 8, "graphmask": 8}
"""Methods that take seconds for an instance explain every n-th of these."""

TOO_SLOW = {("captum", "ba-shapes"), ("captum", "msrc-21")}
"""Methods that are left out of a dataset: 25 passes for each of up to 2,000 edges take up to a minute for an instance."""

BUDGET = 5
"""Elements that may be deleted where necessity under a budget is judged."""

SHARES = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Shares of the edges that are left out where the area below charact by size is measured."""

Row = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """A network and the predictions to explain.

    Args:
        dataset, network: their names.
        model: the network.
        data: the graph, or the graphs.
        config: the ``model_config`` of PyG's ``Explainer``.
        index: numbers of the nodes or graphs to explain.
    """

    dataset: str
    network: str
    model: nn.Module
    data: Data | list[Data] | HeteroData
    config: dict[str, str]
    index: list[int]

    @classmethod
    def load(cls, dataset: str, network: str, every: int | None = None) -> Task:
        """A dataset of the paper with every n-th instance, and its shipped network."""
        bench, every = datasets.load(dataset), every or EVERY[dataset]
        data = bench.graphs[0] if bench.level == "node" else bench.graphs
        index = bench.instances[::every].tolist()
        return cls(dataset, network, models.pretrained(dataset, network), data, bench.model_config, index)

    def thinned(self, every: int) -> Task:
        """The same with every n-th of its instances."""
        other = replace(self, index=self.index[::every])
        other.__dict__["tuned"] = self.tuned
        return other

    @cached_property
    def tuned(self) -> nn.Module:
        """The network, fine-tuned on the explained graphs without a random tenth of their edges (F-Fidelity)."""
        graphs = [self.data[n] for n in self.index] if isinstance(self.data, list) else [self.data]
        return tuned_on_thinned(self.model, graphs, None, 0.1, 20, 0)

    def explainer(self, algorithm: BatchedAlgorithm) -> Explainer:
        return Explainer(self.model, algorithm, explanation_type="model", edge_mask_type="object", model_config=self.config)


# --- methods -----------------------------------------------------------------------------------------------------------


def own_method(spec: str) -> tuple[str, type[BatchedAlgorithm]]:
    """The name and class of ``path.py:Class`` or ``module:Class``; code is imported, nothing is unpickled."""
    where, _, name = spec.rpartition(":")
    if not where or not name:
        raise InputError(f"--method must be path.py:Class or module:Class (got {spec!r}).")
    if where.endswith(".py"):
        found = importlib.util.spec_from_file_location(Path(where).stem, where)
        if found is None or found.loader is None or not Path(where).is_file():
            raise InputError(f"--method must name a file that exists (got {where!r}). Check the path.")
        module = importlib.util.module_from_spec(found)
        sys.modules[module.__name__] = module  # dataclasses look their module up
        found.loader.exec_module(module)
    else:
        module = importlib.import_module(where)
    method = getattr(module, name, None)
    if not (isinstance(method, type) and issubclass(method, BatchedAlgorithm)):
        raise InputError(
            f"--method must name a subclass of BatchedAlgorithm (got {spec!r}). See docs/results/leaderboard.md."
        )
    return name, method


def as_published(method: type[BatchedAlgorithm], dataset: str, **settings: Any) -> BatchedAlgorithm:
    """A method with the paper's settings for a dataset, if it has any."""
    paper: Callable[..., BatchedAlgorithm] | None = getattr(method, "paper", None)
    return method(**settings) if paper is None else paper(dataset, **settings)


def hardened(method: type[BatchedAlgorithm], **settings: Any) -> BatchedAlgorithm:
    """A method whose ranking is made hard as NSEG's is: with the same effort, by the PNS, whatever its own goal."""
    made = method(**{**EFFORT, **settings})
    own = type(made.settings)
    by_pns: Any = type(own.__name__, (own,), {"goal": BaseSettings.goal})
    made.settings = by_pns(**{one.name: getattr(made.settings, one.name) for one in fields(own)})
    return made


def settings_of(algorithm: BatchedAlgorithm) -> str:
    """The settings that differ from the method's defaults, as text."""
    usual = {one.name: one.default for one in fields(algorithm.settings)}
    given = {name: getattr(algorithm.settings, name) for name in usual if name not in ("seed", "intervention")}
    return ", ".join(f"{name}={value}" for name, value in given.items() if value != usual[name]) or "defaults"


@dataclass(frozen=True)
class Run:
    """What a method answered.

    Args:
        explainer: who answered.
        found: the explanations.
        seconds: processor seconds.
        ranking: of these, training and scoring, without what makes a hard explanation of the scores.
    """

    explainer: Explainer
    found: list[Explanation]
    seconds: float
    ranking: float

    @classmethod
    def of(cls, task: Task, algorithm: BatchedAlgorithm, connect: Callable[..., Explainer] | None = None) -> Run:
        """Train the method if it has to be, and explain all instances; ``connect`` makes another explainer than usual."""
        explainer, scoring, solve = (connect or task.explainer)(algorithm), 0.0, algorithm.solve

        def timed(*given: Any) -> Any:
            nonlocal scoring
            began = time.process_time()
            result = solve(*given)
            scoring += time.process_time() - began
            return result

        algorithm.__dict__["solve"] = timed
        began = time.process_time()
        if hasattr(algorithm, "fit"):
            algorithm.fit(explainer, task.data, task.index, progress=False)
        training = time.process_time() - began
        found = explain_many(explainer, task.data, task.index, progress=False)
        return cls(explainer, found, time.process_time() - began, training + scoring)


def cut_like(found: list[Explanation], references: Sequence[Explanation]) -> list[Explanation]:
    """Copies that keep as many elements, the highest by soft mask, as the references do."""
    cut = []
    for one, reference in zip(found, references, strict=True):
        if not torch.equal(one.edge_id, reference.edge_id):
            raise InputError("Explanations of one size must be of the same instances (got others).")
        other = copy(one)
        element = elements(reference)
        kept = len(set(element[reference.hard_edge_mask].tolist()))
        other.hard_edge_mask = highest(one, element, kept, hard_first=False)
        cut.append(other)
    return cut


# --- rows --------------------------------------------------------------------------------------------------------------


def judge(task: Task, explainer: Explainer, found: list[Explanation]) -> Row:
    """Scores of the hard explanations under both interventions, and of their rankings."""
    evaluator, row = Evaluator(explainer, task.data, found), Row()
    row["size"] = round(sum(float(one.hard_edge_mask.sum()) for one in found) / len(found), 3)
    for intervention in JUDGED:
        value = evaluator.fidelity("hard", intervention)
        row["sparsity"] = round(value.sparsity, 4)
        row[f"{intervention}_area"] = round(evaluator.sparsities(SHARES, intervention).area, 4)
        for name in ("pns", "fid_plus", "fid_minus", "charact"):
            row[f"{intervention}_{name}"] = round(getattr(value, name), 4)
    robust, tuned = evaluator.robust_fidelity(), fidelity_on(task.tuned, explainer, task.data, found)
    for kind, scores in (("robust", robust), ("tuned", tuned)):
        row |= {f"{kind}_{name}": round(scores[name], 4) for name in ("fid_plus", "fid_minus", "charact")}
    row["budget_necessity"] = round(float(necessity_of(evaluator, BUDGET).mean()), 4)
    return row


class Race:
    """Runs methods on tasks and writes each row when it is done.

    Args:
        out: the CSV file; rows that it holds and that are still true are not made again.
        seed: as recorded in each row.
    """

    def __init__(self, out: Path, seed: int) -> None:
        self.out, self.seed, self.commit = out, seed, code_commit() or ""
        self.rows, self._made = self.read(), dict[tuple[str, ...], Row]()
        self._sizes: dict[tuple[str, str, str], Run] = {}
        self.folder = out.with_suffix(".kept")

    def read(self) -> dict[tuple[str, ...], Row]:
        """The rows of the file."""
        if not self.out.exists():
            return {}
        with self.out.open(newline="", encoding="utf-8") as file:
            return {self._key(row): dict(row) for row in csv.DictReader(file)}

    @staticmethod
    def _key(row: Row) -> tuple[str, ...]:
        return tuple(str(row[name]) for name in ("dataset", "network", "method", "form", "searched", "seed"))

    def _head(self, task: Task, method: str, form: str, searched: str) -> Row:
        names = {"dataset": task.dataset, "network": task.network, "method": method, "form": form, "searched": searched}
        return names | {"seed": self.seed, "instances": len(task.index), "commit": self.commit}

    def _is_done(self, head: Row) -> bool:
        row = self.rows.get(self._key(head), {})
        return all(str(row.get(name)) == str(head[name]) for name in ("instances", "commit"))

    def _put(self, head: Row, more: Row) -> None:
        row = {name: value for name, value in head.items() if name != "commit"} | more | {"commit": self.commit}
        self._made[self._key(head)] = row
        self.out.parent.mkdir(parents=True, exist_ok=True)
        with self.out.with_suffix(".lock").open("a") as lock:  # another process may write rows of other networks
            lock_file(lock, wait=True)
            self.rows = self.read() | self._made
            write_table(self.out, self.rows.values())
        print(*(row.get(name, "-") for name in PRINTED), row.get("note", ""), flush=True)

    def run(self, task: Task, name: str, method: type[BatchedAlgorithm]) -> None:
        """All forms of a method on a task."""
        task = task.thinned(COSTLY.get(name, 1)) if len(task.index) > COSTLY.get(name, 1) else task
        head = self._head(task, name, PUBLISHED, "mask")
        if self._is_done(head) and self.rows[self._key(head)].get("note"):
            return
        if (name, task.dataset) in TOO_SLOW:
            return self._put(head, {"note": "It takes too long for graphs with hundreds of edges."})
        try:
            if not self._is_done(head):
                run = Run.of(task, as_published(method, task.dataset, seed=self.seed))
                keep_edges(self.folder, head, run.found)
                self._put(head, self._measured(task, run, run.found, run.seconds, "mask"))
            for searched in JUDGED:
                self._hardened(task, name, method, searched)
        except (UnsupportedError, MissingError, ModelError) as error:
            self._put(head, {"note": str(error)})

    def _hardened(self, task: Task, name: str, method: type[BatchedAlgorithm], searched: str) -> None:
        heads = [self._head(task, name, form, searched) for form in (HARDENED, EQUAL) if name != "nseg" or form == HARDENED]
        if all(map(self._is_done, heads)):
            return
        if name == "nseg":
            run = self._size(task, searched)
        else:
            run = Run.of(task, hardened(method, intervention=searched, seed=self.seed))
        keep_edges(self.folder, heads[0], run.found)
        self._put(heads[0], self._measured(task, run, run.found, run.seconds, searched))
        if len(heads) > 1:
            cut = cut_like(run.found, self._size(task, searched).found)
            keep_edges(self.folder, heads[1], cut)
            self._put(heads[1], self._measured(task, run, cut, run.ranking, searched))

    def _size(self, task: Task, searched: str) -> Run:
        """The explanations of NSEG, whose size others are cut to."""
        key = task.dataset, task.network, searched
        if key not in self._sizes:
            self._sizes = {key: Run.of(task, NSEG(intervention=searched, seed=self.seed))} | {
                other: run for other, run in self._sizes.items() if other[:2] == key[:2]
            }
        known = {int(one.output_id): one for one in self._sizes[key].found}
        return replace(self._sizes[key], found=[known[number] for number in task.index])

    def _measured(self, task: Task, run: Run, found: list[Explanation], seconds: float, searched: str) -> Row:
        milliseconds = round(1000 * seconds / len(found), 3)
        return {
            "settings": settings_of(run.explainer.algorithm),
            **judge(task, run.explainer, found),
            "agrees_with_nseg": round(float(stability([found, self._size(task, searched).found]).mean()), 4),
            "cpu_ms": milliseconds,
        }


PRINTED = ("dataset", "network", "method", "form", "searched", "remove_pns", "mask_pns", "size", "cpu_ms")


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", nargs="+", default=list(NAMES), choices=NAMES)
    parser.add_argument("--networks", nargs="+", default=["gcn", "gin"], choices=["gcn", "gin"])
    parser.add_argument("--methods", nargs="+", default=list(CATALOGUE), choices=list(CATALOGUE))
    parser.add_argument("--method", action="append", default=[], help="a method of your own: path.py:Class or module:Class")
    parser.add_argument("--every", type=int, help="explain every n-th instance; by default about 30 of each dataset")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results" / "race.csv")
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "results" / "leaderboard.md")
    parts = parser.add_mutually_exclusive_group()
    parts.add_argument("--rows-only", action="store_true", help="race, and leave the page as it is")
    parts.add_argument("--page-only", action="store_true", help="make the page of the rows that there are, and race nobody")
    asked = parser.parse_args(words)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", NsegWarning)
    methods = {name: find(name) for name in asked.methods} | dict(map(own_method, asked.method))
    race = Race(asked.out, asked.seed)
    for dataset, network in () if asked.page_only else product(asked.datasets, asked.networks):
        task = Task.load(dataset, network, asked.every)
        explain_many(task.explainer(NSEG(rounds=1)), task.data, task.index[:1], progress=False)  # warm up
        for name, method in methods.items():
            race.run(task, name, method)
    if not asked.rows_only:
        write_pages(race, asked.page)


def write_pages(race: Race, page: Path) -> None:
    """The agreement of methods and the leaderboard, of the rows of all processes."""
    rows = list(race.read().values())
    agreement = pairs_of_methods(race.folder, rows, race.commit)
    write_table(race.out.with_name("agreement.csv"), agreement)
    write_leaderboard(page, rows, agreement)


if __name__ == "__main__":
    try:
        main()
    except NsegError as error:
        sys.exit(str(error))
