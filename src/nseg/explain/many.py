"""Explain many predictions at once: cut into shards, run here or on workers, store, show progress."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, overload

from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.explain import Explainer, Explanation

from nseg.backends.base import Backend
from nseg.backends.catalogue import open_backend
from nseg.errors import NsegWarning
from nseg.explain.jobs import BUDGET, ExplainJob, Shard, make_job
from nseg.explain.naming import check_names, with_names
from nseg.explain.progress import Progress, ShardProgress, progress_bar
from nseg.explain.time_budget import TimeBudget, describe_unfinished
from nseg.graphs.large import LargeGraph
from nseg.model.causal import CausalModel
from nseg.names import NamedData, resolve_names
from nseg.runs.exports import ExplanationList
from nseg.runs.folder import RunFolder, open_run
from nseg.runs.layout import SHARD, TOGETHER, in_target_order
from nseg.runs.parquet import encode
from nseg.runs.stored import Explanations


@overload
def explain_many(
    explainer: Explainer,
    data: Data | HeteroData | Sequence[Data | HeteroData] | LargeGraph,
    index: Any = None,
    *,
    target: Any = None,
    budget: int = BUDGET,
    progress: Progress = None,
    out: None = None,
    strict: bool | None = None,
    retry: bool = True,
    seconds: float | None = None,
    backend: str | Backend = "local",
    workers: int | None = None,
    shard: int | None = None,
    node_names: Any = None,
    feature_names: Any = None,
    class_names: Any = None,
    edge_names: Any = None,
    units: Any = None,
    **kwargs: Any,
) -> ExplanationList: ...


@overload
def explain_many(
    explainer: Explainer,
    data: Data | HeteroData | Sequence[Data | HeteroData] | LargeGraph,
    index: Any = None,
    *,
    target: Any = None,
    budget: int = BUDGET,
    progress: Progress = None,
    out: str | Path,
    strict: bool | None = None,
    retry: bool = True,
    seconds: float | None = None,
    backend: str | Backend = "local",
    workers: int | None = None,
    shard: int | None = None,
    node_names: Any = None,
    feature_names: Any = None,
    class_names: Any = None,
    edge_names: Any = None,
    units: Any = None,
    **kwargs: Any,
) -> Explanations: ...


def explain_many(
    explainer: Explainer,
    data: Data | HeteroData | Sequence[Data | HeteroData] | LargeGraph,
    index: Any = None,
    *,
    target: Any = None,
    budget: int = BUDGET,
    progress: Progress = None,
    out: str | Path | None = None,
    strict: bool | None = None,
    retry: bool = True,
    seconds: float | None = None,
    backend: str | Backend = "local",
    workers: int | None = None,
    shard: int | None = None,
    node_names: Any = None,
    feature_names: Any = None,
    class_names: Any = None,
    edge_names: Any = None,
    units: Any = None,
    **kwargs: Any,
) -> ExplanationList | Explanations:
    """Explain many predictions in one optimisation; each answer equals the one the instance gets alone.

    On a CPU, with the same ``shard``, the answers are equal bit for bit, whatever the backend and the number of workers.

    Args:
        explainer: a PyG ``Explainer``. Algorithms that can batch do; any other is called once per instance.
        data: one graph (node and link level) or a sequence of graphs (graph level). Model arguments besides ``x`` and
            ``edge_index`` are taken from it by the names in the model's ``forward`` (not for a bare ``**kwargs``). Of a
            :class:`nseg.LargeGraph` the model sees subgraphs only. Of ``HeteroData``, ``HeteroExplanation`` comes back.
        index: nodes, links or graphs to explain, one explanation each; all if None.
        target: for ``explanation_type="phenomenon"``, the class of every output; ``data.y`` if None.
        budget: bytes of memory that the search may use at once.
        progress: show a progress bar, by default only on a terminal; or a function that is told the share done.
        out: run folder (:mod:`nseg.runs`). The same call resumes it; another model, data, settings or targets are refused.
        strict: stop at the first target that cannot be explained, e.g. because the model gives NaN. If false, such a target
            gets an explanation without masks whose ``reason`` says why. By default true unless ``out`` is given.
        retry: when a run is resumed, also explain shards again with targets that could not be explained; never for worse.
        seconds: time for the call, after which searches end with the best found so far; ``stopped`` on the explanations says
            which stage was cut short. Results then depend on the machine. Not with ``out``.
        backend, workers: ``"local"``, ``"processes"``, ``"ray"`` or an object; number of workers, by default one per core.
        shard: most targets explained, sent and stored together; None for 256, or 1,024 if neither sent nor stored.
        node_names, feature_names, class_names, edge_names, units: lists or dictionaries (:mod:`nseg.names`); by default
            attributes of data. They travel on ``explanation.names`` and into the run folder, and change no result.
        **kwargs: further model arguments (node and link level).

    Returns:
        An ``Explanation`` per instance on its computation graph: the smallest graph on which the model alone gives the
        whole graph's output. ``edge_id`` and ``node_id`` point into the caller's graph, ``output_id`` names the output,
        ``reached`` marks the edges over which messages can reach it (the others are there for normalisation only).
        With ``out``, the stored explanations, read on demand, without graphs. Both have ``to_frame``, ``to_csv``, ...
    """
    job = make_job(explainer, data, target, budget, kwargs, out is None if strict is None else strict)
    job.time = TimeBudget.of_call(seconds, explainer.algorithm, out is not None)
    shards = job.shards(index, _most_together(data, backend, out) if shard is None else shard)
    names = resolve_names(job.data, node_names, feature_names, class_names, edge_names, units)
    check_names(job, names, [row for _, rows in shards for row in rows])
    with open_backend(backend, workers, len(shards)) as opened, progress_bar(progress) as bar:
        return _explain(opened, job, shards, ShardProgress(bar(job.targets)), names, out, retry)


def _most_together(data: Any, backend: str | Backend, out: str | Path | None) -> int:
    """Default number of targets in a shard: more where they are neither sent, stored nor cut out of a large graph."""
    return TOGETHER if backend == "local" and out is None and not isinstance(data, LargeGraph) else SHARD


def _explain(
    backend: Backend,
    job: ExplainJob,
    shards: list[Shard],
    meter: ShardProgress,
    names: NamedData,
    out: str | Path | None,
    retry: bool,
) -> ExplanationList | Explanations:
    job.advance = meter.tick
    if job.time is not None:
        job.time = job.time.shared_by(shards, backend)
    if out is None:
        return _explain_in_memory(backend, job, shards, meter, names)
    with open_run(out, job.manifest(shards), len(shards)) as folder:
        folder.write_names(names, in_target_order([rows for _, rows in shards]))
        _explain_missing(backend, job, shards, folder, meter, retry)
    return Explanations(out)


def _explain_in_memory(
    backend: Backend, job: ExplainJob, shards: list[Shard], meter: ShardProgress, names: NamedData
) -> ExplanationList:
    explanations = _explain_all(backend, job, shards, meter)
    unfinished = describe_unfinished(explanations, job.time)
    _warn(0, sum(one.get("left_out", 0) > 0 for one in explanations), [*job.notes, *unfinished, *_where(backend)])
    return ExplanationList(with_names(one, names) for one in explanations)


def _explain_all(backend: Backend, job: ExplainJob, shards: list[Shard], meter: ShardProgress) -> list[Explanation]:
    """Explain all shards; again without shortcuts those with them, if a verified sample shows that these are wrong."""
    found: dict[int, list[Explanation]] = {}
    notes, remaining = list[str](), list(range(len(shards)))
    while remaining:
        plain = set()
        with closing(backend.map(job, [shards[n] for n in remaining])) as results:
            for position, result in results:
                number = remaining[position]
                found[number] = meter.finish(result.explanations, len(result.explanations))
                notes += result.notes
                plain |= {number} if result.plain else set()
        remaining = [number for number in remaining if number not in plain] if plain else []
        job.plain = bool(plain)
    job.notes = notes
    return in_target_order([found[number] for number in range(len(shards))])


def _explain_missing(
    backend: Backend, job: ExplainJob, shards: list[Shard], folder: RunFolder, meter: ShardProgress, retry: bool
) -> None:
    """Explain and store the shards that are missing, and those with targets that could not be explained."""
    failed, thinned, notes = 0, 0, list[str]()
    total, job.plain = sum(len(rows) for _, rows in shards), folder.plain
    missing = folder.missing(retry)
    if folder.retried:
        again = f"{sum(folder.retried.values())} targets could not be explained before and are tried again"
        warnings.warn(f"{again}; retry=False (--no-retry) leaves them.", NsegWarning, stacklevel=4)
    meter.finish(None, total - sum(len(shards[n][1]) for n in missing))
    while missing:
        plain = set()
        with closing(backend.map(_EncodedJob(job), [shards[n] for n in missing])) as results:
            for position, result in results:
                trust = not result.plain
                failed += folder.store(missing[position], result.content, result.failed, trust)
                meter.finish(None, len(shards[missing[position]][1]))
                thinned += result.thinned
                notes += result.notes
                plain |= {missing[position]} if result.plain else set()
        if not plain or folder.plain:
            break
        folder.distrust(plain)  # a verified sample shows that shortcuts are wrong: all other shards again
        job.plain, missing = True, folder.missing()
    _warn(failed, thinned, [*notes, *_where(backend)])


def _where(backend: Backend) -> list[str]:
    """A sentence if a backend with workers used none."""
    note = backend.note()
    return [] if note is None else [note]


def _warn(failed: int, thinned: int, notes: Sequence[str]) -> None:
    for note in dict.fromkeys(notes):
        warnings.warn(note, NsegWarning, stacklevel=5)
    if failed:
        warnings.warn(f"{failed} targets could not be explained; their records say why.", NsegWarning, stacklevel=5)
    if thinned:
        warnings.warn(
            f"{thinned} targets depend on nodes with more neighbours than are followed; left_out on their explanations says "
            "how many edges were left out. Raise LargeGraph(..., neighbours=...) to follow more.",
            NsegWarning,
            stacklevel=5,
        )


class _EncodedResult(NamedTuple):
    """A shard as Parquet, and the number of targets not explained, or not on their whole subgraph."""

    content: bytes
    failed: int
    thinned: int
    notes: tuple[str, ...]
    plain: bool


class _EncodedJob:
    """A job whose results are stored; never explained in the calling process, which outlives a shard that ends its own."""

    def __init__(self, job: ExplainJob) -> None:
        self.job, self.gpus = job, job.gpus

    def __call__(self, shard: Shard) -> _EncodedResult:
        found, notes, plain = self.job(shard)
        failed, thinned = (sum(bool(one.get(name)) for one in found) for name in ("reason", "left_out"))
        return _EncodedResult(encode(found), failed, thinned, notes, plain)


@contextmanager
def open_causal_models(
    explainer: Explainer,
    data: Data | Sequence[Data],
    index: Any = None,
    *,
    target: Any = None,
    budget: int = BUDGET,
    **kwargs: Any,
) -> Iterator[Iterator[tuple[Tensor, CausalModel]]]:
    """Causal models of what :func:`explain_many` would explain, for methods that first learn from many instances.

    Yields:
        causal models that together hold all instances, each as large as the budget allows, with the numbers of their
        instances. The model is borrowed until the end of the ``with`` block.
    """
    job = make_job(explainer, data, target, budget, kwargs)
    rows = job.rows(index)
    with job.ready():
        yield job.causal_models(rows)
