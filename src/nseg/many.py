"""Explain many predictions at once: cut, chunk by memory, run here or elsewhere, store, show progress."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, overload

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.explain import Explainer, Explanation

from nseg import shards, store
from nseg.backends import Backend, hired
from nseg.errors import NsegWarning
from nseg.large import LargeGraph
from nseg.scm import Scm
from nseg.work import BUDGET, SHARD, Advance, Shard, Work, in_order, work_on

Bar = Callable[[int], Advance]
"""Given a total, the function that advances a progress bar towards it."""


@overload
def explain_many(
    explainer: Explainer,
    data: Data | Sequence[Data] | LargeGraph,
    index: Any = None,
    *,
    target: Any = None,
    budget: int = BUDGET,
    progress: bool | None = None,
    out: None = None,
    strict: bool | None = None,
    backend: str | Backend = "local",
    workers: int | None = None,
    shard: int = SHARD,
    **kwargs: Any,
) -> list[Explanation]: ...


@overload
def explain_many(
    explainer: Explainer,
    data: Data | Sequence[Data] | LargeGraph,
    index: Any = None,
    *,
    target: Any = None,
    budget: int = BUDGET,
    progress: bool | None = None,
    out: str | Path,
    strict: bool | None = None,
    backend: str | Backend = "local",
    workers: int | None = None,
    shard: int = SHARD,
    **kwargs: Any,
) -> store.Explanations: ...


def explain_many(
    explainer: Explainer,
    data: Data | Sequence[Data] | LargeGraph,
    index: Any = None,
    *,
    target: Any = None,
    budget: int = BUDGET,
    progress: bool | None = None,
    out: str | Path | None = None,
    strict: bool | None = None,
    backend: str | Backend = "local",
    workers: int | None = None,
    shard: int = SHARD,
    **kwargs: Any,
) -> list[Explanation] | store.Explanations:
    """Explain many predictions in one optimisation; each answer equals the one that the instance gets alone.

    Targets are dealt to shards, and shards are explained on one thread each: on a CPU the answers are the same bit for bit
    whatever the back end and however many workers there are.

    Args:
        explainer: a PyG ``Explainer``. Algorithms that can batch do; any other is called once per instance.
        data: one graph (node and link level) or a sequence of graphs (graph level). Model arguments besides ``x`` and
            ``edge_index`` are taken from it by the names in the model's ``forward`` (not for a bare ``**kwargs``). Of a
            :class:`nseg.LargeGraph` the model is shown parts only (node level, and pairs of nodes).
        index: which nodes, links or graphs to explain, one explanation each; all if None.
        target: for ``explanation_type="phenomenon"``, the class of every output; ``data.y`` if None.
        budget: bytes of memory that the search may use at once.
        progress: show a progress bar; by default only on a terminal.
        out: a folder to store explanations in as they are found (:mod:`nseg.store`). Called again after it was stopped, it
            does what is missing; it refuses a folder that belongs to another model, data, settings or targets.
        strict: stop at the first target that cannot be explained, e.g. because the model raises or gives NaN. If false, such
            a target gets an explanation without masks whose ``reason`` says why. By default true unless ``out`` is given.
        backend: ``"local"``, ``"processes"``, ``"ray"``, or an object from :mod:`nseg.backends`.
        workers: of the back end; as many as there are cores by default.
        shard: targets that are explained, sent and stored together at the most.
        **kwargs: further model arguments (node and link level).

    Returns:
        An ``Explanation`` per instance on its computation graph: the smallest graph on which the model alone gives the
        whole graph's output. ``edge_id`` and ``node_id`` point into the caller's graph, ``output_id`` names the output,
        ``reached`` marks the edges over which messages can reach it (the others are there for normalisation only).
        With ``out``, the stored explanations, which are read when they are asked for and have no graphs.
    """
    run = work_on(explainer, data, target, budget, kwargs, out is None if strict is None else strict)
    cut = run.shards(index, shard)
    with progress_bar(progress) as bar, hired(backend, workers) as crew:
        meter = _Meter(bar(sum(len(rows) for _, rows in cut)))
        run.advance = meter.tick
        if out is None:
            with closing(crew.map(run, cut)) as results:
                found = {number: meter.passed(some, len(some)) for number, some in results}
            some = in_order([found[number] for number in range(len(cut))])
            _warn(0, sum(one.get("left_out", 0) > 0 for one in some))
            return some
        with shards.opened(out, run.manifest(cut), len(cut)) as folder:
            _store(crew, run, cut, folder, meter)
    return store.Explanations(out)


def _store(crew: Backend, run: Work, cut: list[Shard], folder: shards.Shards, meter: _Meter) -> None:
    """Explain and store the shards that are missing."""
    missing, failed, thinned = folder.missing(), 0, 0
    meter.passed(None, sum(len(rows) for _, rows in cut) - sum(len(cut[n][1]) for n in missing))
    with closing(crew.map(_Encoded(run), [cut[n] for n in missing])) as results:
        for place, (content, reasons, fewer) in results:
            folder.put(missing[place], content)
            meter.passed(None, len(cut[missing[place]][1]))
            failed, thinned = failed + reasons, thinned + fewer
    _warn(failed, thinned)


def _warn(failed: int, thinned: int) -> None:
    if failed:
        warnings.warn(f"{failed} targets could not be explained; their records say why.", NsegWarning, stacklevel=4)
    if thinned:
        warnings.warn(
            f"{thinned} targets reach nodes with more neighbours than are looked at; left_out on their explanations says "
            "how many edges were left out. Raise LargeGraph(..., neighbours=...) to look at more.",
            NsegWarning,
            stacklevel=4,
        )


@contextmanager
def causal_models(
    explainer: Explainer,
    data: Data | Sequence[Data],
    index: Any = None,
    *,
    target: Any = None,
    budget: int = BUDGET,
    **kwargs: Any,
) -> Iterator[Iterator[tuple[Tensor, Scm]]]:
    """What :func:`explain_many` would explain, for methods that first learn from many instances.

    Yields:
        causal models that together hold all instances, each as large as the budget allows, with the numbers of the
        instances that each holds. The model is borrowed until the end of the ``with`` block.
    """
    run = work_on(explainer, data, target, budget, kwargs)
    rows = run.rows(index)
    with run.ready():
        yield run.scms(rows)


@contextmanager
def progress_bar(progress: bool | None, doing: str = "explaining") -> Iterator[Bar]:
    """A progress bar in instances, by default only on a terminal."""
    terminal = sys.stderr.isatty()
    shown = terminal if progress is None else progress
    columns = (
        TextColumn(doing),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(elapsed_when_finished=False),
    )
    with Progress(*columns, console=Console(stderr=True), disable=not shown, transient=terminal) as bar:

        def start(total: int) -> Advance:
            task = bar.add_task(doing, total=total)
            return lambda amount: bar.advance(task, amount)

        yield start


class _Meter:
    """Progress of a run: little by little within a shard where that can be seen, and whole shards."""

    def __init__(self, advance: Advance) -> None:
        self.advance, self.within = advance, 0.0

    def tick(self, amount: float) -> None:
        self.within += amount
        self.advance(amount)

    def passed(self, result: Any, targets: int) -> Any:
        """A shard's result, now that all its targets are done."""
        self.advance(targets - self.within)
        self.within = 0.0
        return result


class _Encoded:
    """A run whose results are to be stored: Parquet, and how many targets could not be explained, or not as a whole."""

    def __init__(self, run: Work) -> None:
        self.run, self.gpus = run, run.gpus

    def __call__(self, shard: Shard) -> tuple[bytes, int, int]:
        found = self.run(shard)
        failed, thinned = (sum(bool(one.get(name)) for one in found) for name in ("reason", "left_out"))
        return store.encode(found), failed, thinned
