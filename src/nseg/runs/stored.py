"""What a run folder holds, read on demand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, overload

import torch
from torch_geometric.data import Data, Dataset
from torch_geometric.explain import Explainer
from torch_geometric.explain.config import ModelTaskLevel

from nseg.errors import InputError, StoreError
from nseg.explanation import Explanation, copy_explanation
from nseg.graphs.checks import argument_names, matrix_as_edges
from nseg.graphs.inputs import EDGE_VALUE
from nseg.hetero_explanation import HeteroExplanation
from nseg.names import Names, from_run, resolve_names, to_run
from nseg.runs.arguments import GraphArguments
from nseg.runs.attach_types import attach_by_type
from nseg.runs.exports import Exportable
from nseg.runs.folder import read_if_intact, read_manifest, read_names, stored_shards
from nseg.runs.layout import INTERLEAVED, ShardLayout
from nseg.runs.parquet import count_failed, decode, read_file
from nseg.storage import files


class Explanations(Exportable):
    """The explanations in a folder, in the order of the targets, read on demand, without their graphs.

    :func:`attach` adds the graph to an explanation. Of an unfinished run there are those stored so far, in the order of
    their shards. A target that could not be explained has a ``reason`` and no masks.

    Args:
        folder: written by ``explain_many(..., out=folder)`` or :func:`nseg.runs.parquet.write`.
    """

    def __init__(self, folder: str | Path) -> None:
        if not isinstance(folder, str | Path) or not Path(folder).is_dir():
            raise InputError(f"The run folder must exist (got {folder}, which is not a folder). Check the path.")
        self.folder = Path(folder)
        self.manifest = read_manifest(self.folder)
        self._cache: dict[int, list[Explanation]] = {}

    @cached_property
    def _files(self) -> list[tuple[Path, int]]:
        """The files, and the number of explanations in each."""
        single = self.folder / "explanations.parquet"
        if single.is_file():
            return [(single, len(read_file(single)))]
        found, layout = stored_shards(self.folder), self._layout
        if any(number >= layout.shards for number in found):
            raise StoreError(f"{self.folder}: found more shards than the manifest lists. Delete those with higher numbers.")
        return [(found[n], len(layout.targets(n))) for n in sorted(found)]

    @cached_property
    def _layout(self) -> ShardLayout:
        try:
            found = ShardLayout(int(self.manifest["targets"]["number"]), int(self.manifest["shard"]))
            if min(found.total, found.size) > 0:
                return found
        except (KeyError, TypeError, ValueError, OverflowError):
            pass
        raise InputError(f"{self.folder} must hold explanations (it does not). Write them with explain_many.")

    @property
    def complete(self) -> bool:
        """Whether every target has an explanation; damaged files are only noticed when they are read."""
        targets = self.manifest.get("targets", {})
        return bool(len(self) == targets.get("number", len(self)))

    def count_kept(self, retry: bool = True) -> int:
        """Number of explanations that a resumed run does not make again.

        Args:
            retry: whether it explains shards again that hold targets which could not be explained.
        """
        contents = ((count, read_if_intact(path)) for path, count in self._files if path.parent != self.folder)
        return sum(count for count, content in contents if content is not None and not (retry and count_failed(content)))

    def __len__(self) -> int:
        return self._number

    @cached_property
    def _number(self) -> int:
        return sum(count for _, count in self._files)

    @overload
    def __getitem__(self, index: int) -> Explanation: ...
    @overload
    def __getitem__(self, index: slice) -> list[Explanation]: ...
    def __getitem__(self, index: int | slice) -> Explanation | list[Explanation]:
        if isinstance(index, slice):
            return [self[n] for n in range(*index.indices(len(self)))]
        number = index + len(self) if index < 0 else index
        if not 0 <= number < len(self):
            raise IndexError(f"There are {len(self)} explanations (got index {index}).")
        file, position = self._position(number)
        found: Explanation = copy_explanation(self._content(file)[position])
        names = self._names(int(found.output_id))
        if names:
            found.names = names
        return found

    def renamed(self, **names: Any) -> Explanations:
        """The same explanations with other names, which replace those of the folder.

        Args:
            **names: ``node_names``, ``class_names``, ..., as :func:`nseg.explain_many` takes them, for one graph.
        """
        other = Explanations(self.folder)
        stored, given = read_names(self.folder), to_run(resolve_names(None, **names), [0]).get("all", {})
        graphs = {n: {k: v for k, v in own.items() if k not in given} for n, own in stored.get("graphs", {}).items()}
        other._stored_names = {"all": {**stored.get("all", {}), **given}, "graphs": graphs}
        return other

    @cached_property
    def _stored_names(self) -> dict[str, Any]:
        return read_names(self.folder)

    @cached_property
    def _shared_names(self) -> Names:
        return from_run(self._stored_names, -1)

    def _names(self, output: int) -> Names:
        """The names of the graph of an output; explanations of one graph share them."""
        own = str(output) in self._stored_names.get("graphs", {})
        return from_run(self._stored_names, output) if own else self._shared_names

    def _position(self, number: int) -> tuple[int, int]:
        """The file that holds an explanation, and its position there."""
        if len(self._files) > 1 and len(self._files) == self._layout.shards:
            return self._layout.position(number)
        file = 0
        while number >= self._files[file][1]:
            number -= self._files[file][1]
            file += 1
        return file, number

    def _content(self, file: int) -> list[Explanation]:
        if file not in self._cache:
            path, count = self._files[file]
            content = read_if_intact(path) if path.parent != self.folder else files.read_bytes(path)
            if content is None:
                raise StoreError(f"{path} is damaged: its checksum differs. Start the run again, which replaces it.")
            found = decode(content, str(path))
            if len(found) != count:
                raise StoreError(
                    f"{path} must hold {count} explanations (got {len(found)}). Delete it and start the run again."
                )
            # interleaved targets are read from several shards in turn, so these stay in memory
            self._cache = {n: self._cache[n] for n in list(self._cache)[1 - INTERLEAVED :]} | {file: found}
        return self._cache[file]

    def _with_graphs(self, data: Any) -> Iterable[Explanation]:
        return self if data is None else (one if one.get("reason") else attach(one, data) for one in self)

    def __repr__(self) -> str:
        return f"Explanations({str(self.folder)!r}, {len(self)} stored)"


def read(folder: str | Path) -> Explanations:
    """The explanations in a folder, in the order of the targets, read on demand, without their graphs.

    Args:
        folder: written by ``explain_many(..., out=folder)``, by ``nseg explain --out`` or by
            :func:`nseg.runs.parquet.write`.
    """
    return Explanations(folder)


def attach(
    one: Any,
    data: Any,
    names: Sequence[str] | None = None,
    *,
    explainer: Explainer | None = None,
    **kwargs: Any,
) -> Any:
    """A stored explanation together with its graph: what :func:`nseg.explain_many` would have returned.

    Args:
        one: from :func:`nseg.read`.
        data: the graph, or the graphs, that were explained.
        names: the model's arguments besides ``x`` and ``edge_index``; by default those that were stored, or, for files of
            earlier versions, those that the explainer's model takes from the graph.
        explainer: the explainer that made the explanation, for files of earlier versions.
        **kwargs: model arguments that are no attributes of the graph, as they were given to ``explain_many``; for instance
            ``edge_label_index``, the pairs of nodes that a link model scores.
    """
    number, single = int(one.output_id), not isinstance(data, Sequence | Dataset)
    if one.get("reason") is not None:
        raise InputError(f"Output {number} has no explanation to attach a graph to (it has a reason: {one.reason}).")
    if not single and number >= len(data):
        raise InputError(f"data must be what was explained (got one without output {number}).")
    graph = data if single else data[number]
    if isinstance(one, HeteroExplanation):
        return attach_by_type(one, graph, kwargs)
    if one.node_id.numel() and int(one.node_id.max()) >= graph.num_nodes:
        raise InputError(f"data must be what was explained (got {graph.num_nodes} nodes, too few for output {number}).")
    found: Explanation = copy_explanation(one)
    graph, form = matrix_as_edges(graph)
    if not hasattr(graph, "induced"):  # a large graph is on the CPU, like what is stored
        found = found.to(graph.edge_index.device)
    if explainer is not None:
        found._model_config = explainer.model_config
    chosen = _argument_names(found, graph, names, explainer, kwargs)
    arguments = GraphArguments(found, graph, kwargs)
    found.x, found.edge_index = arguments.small.x, arguments.small.edge_index
    if form is not None:  # the explanation keeps the matrix as adj_t, and its edges
        values = graph.get(EDGE_VALUE)
        given = None if values is None else values[found.edge_id]
        found.edge_index = form.matrix(found.edge_index, given, (found.node_id.numel(), found.node_id.numel()))
    for name, value in arguments.cut(chosen).items():
        found[name] = value
    found._model_args = chosen
    if single and one.get("index") is None:
        _add_index(found, number, arguments)
    return found


def _argument_names(
    found: Explanation, graph: Any, names: Sequence[str] | None, explainer: Explainer | None, kwargs: Mapping[str, Any]
) -> list[str]:
    stored = getattr(found, "_stored_args", None)
    if names is not None or stored is not None:
        return list(names if names is not None else stored or ())
    attributes = argument_names(explainer.model, graph) if explainer is not None and isinstance(graph, Data) else []
    return list(dict.fromkeys([*attributes, *kwargs]))


def _add_index(found: Explanation, number: int, arguments: GraphArguments) -> None:
    """Index and classes of an explanation in a file of an earlier version, which holds the explained class only."""
    if arguments.pairs is not None:
        found.index = found.node_id.new_zeros(1)
        return
    edges = getattr(found, "_model_config", None) is not None and found._model_config.task_level is ModelTaskLevel.edge
    ids = found.edge_id if edges else found.node_id
    output = ids.new_tensor([number])
    found.index = torch.searchsorted(ids, output).clamp(max=max(ids.numel() - 1, 0))
    if not torch.equal(ids[found.index], output):
        raise InputError(
            f"data must be what was explained (got one graph, whose node {number} is not in the explanation). For links, "
            "pass the explainer and edge_label_index."
        )
    found.target = torch.full_like(ids, -1).index_copy(0, found.index, found.target)
