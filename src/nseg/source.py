"""A caller's graph, checked and traced once, from which instances are cut."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.explain.config import ModelConfig, ModelMode, ModelTaskLevel

from nseg.errors import InputError, ModelError, NsegError
from nseg.instances import Inputs, Instances, Neighbours, Role, around, packable, spread, whole
from nseg.scm import (
    PLAIN,
    Passing,
    Scm,
    Way,
    accepts,
    call,
    close,
    counted,
    embeddings,
    predicted_class,
    require_probabilities,
    trace,
)


def checked_inputs(model: nn.Module, x: Any, edge_index: Any, kwargs: Mapping[str, Any], level: ModelTaskLevel) -> Inputs:
    """The model's arguments, or a sentence on what is wrong with them."""
    if isinstance(x, dict) or isinstance(edge_index, dict):
        raise InputError(
            "x and edge_index must be tensors (got dictionaries). Heterogeneous graphs are not supported; "
            "use HeteroData.to_homogeneous() with a homogeneous model."
        )
    if not isinstance(x, Tensor) or x.layout is not torch.strided:
        kind = "a sparse tensor" if isinstance(x, Tensor) else type(x).__name__
        raise InputError(f"x must be a dense tensor [nodes, features] (got {kind}). Use to_dense() on a sparse one.")
    if not isinstance(edge_index, Tensor) or edge_index.layout is not torch.strided:
        kind = f"a sparse {type(edge_index).__name__}" if isinstance(edge_index, Tensor) else type(edge_index).__name__
        raise InputError(
            f"edge_index must be an integer tensor [2, E] (got {kind}). "
            "Turn a sparse matrix into one with torch_geometric.utils.to_edge_index."
        )
    if edge_index.dim() != 2 or edge_index.size(0) != 2 or edge_index.dtype is not torch.long:
        raise InputError(
            f"edge_index must be a torch.long tensor [2, E] (got {edge_index.dtype} of shape {tuple(edge_index.shape)})."
        )
    if x.dim() == 0 or x.size(0) == 0:
        raise InputError(f"x must have at least one node (got shape {tuple(x.shape)}).")
    kwargs = {name: _own(value) for name, value in kwargs.items()}
    _check_nodes("edge_index", edge_index, x.size(0))
    _check_devices(model, {"x": x, "edge_index": edge_index, **kwargs})
    _check_values({"x": x, **kwargs}, edge_index.size(1))
    pairs_name = checked_pairs(kwargs, x.size(0))[0] if level is ModelTaskLevel.edge else None
    if level is ModelTaskLevel.graph and kwargs.get("batch") is None and accepts(model, "batch"):
        kwargs["batch"] = torch.zeros(x.size(0), dtype=torch.long, device=x.device)
    return Inputs(_own(x).detach(), _own(edge_index).as_subclass(Tensor), kwargs, pairs_name)


def arguments(model: nn.Module, data: Data) -> list[str]:
    """Names of the attributes of a graph that the model takes besides ``x`` and ``edge_index``."""
    return [k for k in data.to_dict() if k not in ("x", "edge_index", "y") and accepts(model, k)]


def checked_pairs(kwargs: Mapping[str, Any], nodes: int) -> tuple[str | None, Tensor | None]:
    """The argument that holds the pairs of nodes that a link model scores, and the pairs."""
    given = kwargs.get("edge_label_index")
    if given is not None and not _is_pair_index("edge_label_index", given):
        kind = f"shape {tuple(given.shape)}" if isinstance(given, Tensor) else type(given).__name__
        raise InputError(
            f"edge_label_index must be a tensor of node numbers, [2, pairs] (got {kind}). Try torch.tensor([[a], [b]])."
        )
    name = next((name for name, value in kwargs.items() if _is_pair_index(name, value)), None)
    if name is None:
        return None, None
    if not kwargs[name].numel():
        raise InputError(f"{name} must hold at least one pair of nodes (got none).")
    _check_nodes(name, kwargs[name], nodes)
    return name, kwargs[name]


def _own(value: Any) -> Any:
    """A tensor that autograd may keep, also where the caller's was made in inference mode."""
    return value.clone() if isinstance(value, Tensor) and value.is_inference() else value


def _is_pair_index(name: str, value: Any) -> bool:
    pairs = isinstance(value, Tensor) and value.dim() == 2 and value.size(0) == 2 and not value.is_floating_point()
    return "index" in name and pairs


def _check_nodes(name: str, ends: Tensor, nodes: int) -> None:
    if ends.device.type != "meta" and ends.numel() and not 0 <= int(ends.min()) <= int(ends.max()) < nodes:
        raise InputError(
            f"{name} must hold node numbers from 0 to {nodes - 1}, as x has {nodes} rows "
            f"(got {int(ends.min())} to {int(ends.max())})."
        )


def _check_devices(model: nn.Module, given: Mapping[str, Any]) -> None:
    parameter = next((p for p in model.parameters() if p.is_floating_point()), None)
    tensors = {name: value for name, value in given.items() if isinstance(value, Tensor)}
    devices = {name: value.device for name, value in tensors.items()}
    if parameter is not None:
        devices["the model"] = parameter.device
    if len(set(devices.values())) > 1:
        found = ", ".join(f"{name} on {device}" for name, device in devices.items())
        raise InputError(f"Model and data must be on one device (got {found}). Move them with .to(device).")
    for name, value in tensors.items():
        if parameter is not None and value.is_floating_point() and value.dtype is not parameter.dtype:
            raise InputError(
                f"{name} must have the model's dtype {parameter.dtype} (got {value.dtype}). "
                f"Use {name}.to({parameter.dtype}) or model.to(...)."
            )


def _check_values(given: Mapping[str, Any], edges: int) -> None:
    for name, value in given.items():
        if not isinstance(value, Tensor) or value.layout is not torch.strided:
            continue
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            raise InputError(f"{name} must be finite (got NaN or infinity). Clean it, e.g. with torch.nan_to_num.")
        if name in ("edge_weight", "edge_attr", "edge_type") and value.shape[:1] != (edges,):
            raise InputError(f"{name} must have one entry per edge, {edges} (got shape {tuple(value.shape)}).")
        whole = value.dtype is torch.long and value.shape == given["x"].shape[:1] and bool((value >= 0).all())
        if name == "batch" and not whole:
            raise InputError(
                f"batch must say the graph of each node, whole numbers from 0, torch.long of shape ({len(given['x'])},) "
                f"(got {value.dtype} of shape {tuple(value.shape)}). Leave it out if there is one graph."
            )


def checked_index(index: Any, number: int) -> Tensor:
    """Row numbers from an int, a list, a range or a tensor (also boolean); None means all ``number`` rows."""
    if index is None:
        return torch.arange(number)
    try:
        row = torch.as_tensor(list(index) if isinstance(index, Iterable) and not isinstance(index, Tensor | str) else index)
    except (TypeError, ValueError, RuntimeError):
        raise InputError(
            f"index must be a number, a sequence of numbers or a tensor (got {index!r}). Use range(a, b) for a slice."
        ) from None
    if row.dtype is torch.bool:
        if row.shape != (number,):
            raise InputError(f"A boolean index must have {number} entries, one per output (got {tuple(row.shape)}).")
        row = row.nonzero()
    row = row.flatten()
    if row.numel() == 0:
        raise InputError("index must name at least one output (got an empty index). Use None for all outputs.")
    if row.is_floating_point() or row.is_complex():
        raise InputError(f"index must hold whole numbers (got {row.dtype}).")
    if int(row.min()) < 0 or int(row.max()) >= number:
        raise InputError(
            f"index must be between 0 and {number - 1}, as there are {number} outputs "
            f"(got {int(row.min())} to {int(row.max())})."
        )
    return row.long()


def checked_classes(output: Tensor, target: Tensor | None, config: ModelConfig) -> Tensor:
    """Class of each row of the output: the given one, or the predicted one where none is given."""
    if not bool(torch.isfinite(output).all()):
        raise ModelError(
            "The model's output must be finite (got NaN or infinity for an explained row). Such a prediction has no "
            "probability to explain; check weights and input."
        )
    if target is None:
        return predicted_class(output, config)
    classes = 2 if config.mode is ModelMode.binary_classification else output.size(1)
    if target.is_floating_point() or target.numel() != output.size(0):
        raise InputError(
            f"target must hold a whole class number for each of {output.size(0)} outputs "
            f"(got {target.dtype} of shape {tuple(target.shape)})."
        )
    if int(target.min()) < 0 or int(target.max()) >= classes:
        raise InputError(f"target must be a class from 0 to {classes - 1} (got {int(target.min())} to {int(target.max())}).")
    return target.long()


def outputs_of(inputs: Inputs, level: ModelTaskLevel) -> tuple[Role, int]:
    """What a row of a model's output stands for, and how many rows there are."""
    if level is ModelTaskLevel.graph:
        return Role.GRAPH, inputs.num_graphs
    if level is ModelTaskLevel.node:
        return Role.NODE, inputs.num_nodes
    if inputs.pairs is not None:
        return Role.PAIR, inputs.pairs.size(1)
    return Role.EDGE, inputs.num_edges


def checked_rows(output: Tensor, inputs: Inputs, level: ModelTaskLevel) -> Role:
    """What a row of the output stands for; raises unless there are as many as there should be."""
    role, expected = outputs_of(inputs, level)
    if output.size(0) != expected:
        raise ModelError(
            f"A model of task level '{level.value}' must return {expected} rows here, {role.value} (got {output.size(0)}). "
            "Check task_level in model_config"
            + (" and that the pairs are given as edge_label_index." if level is ModelTaskLevel.edge else ".")
        )
    return role


CANNOT_BE_CUT = (IndexError, RuntimeError, ValueError, TypeError)
"""What a model may raise that takes no other graph than its own, e.g. because it has a parameter per node."""


class Source:
    """One graph (or batch of graphs) as the caller gave it, what the model says of it, and how its worlds can be run.

    Args:
        model: the model, borrowed.
        config: what it returns.
        inputs: the whole graph.
        edges: whether edges will be masked.
        nodes: whether features will be masked.
    """

    def __init__(self, model: nn.Module, config: ModelConfig, inputs: Inputs, edges: bool, nodes: bool) -> None:
        self.model, self.config, self.inputs = model, config, inputs
        self.edges, self.nodes = edges, nodes
        self.passings: list[Passing] = []
        self.output = prediction(model, inputs, config)
        self.traced = True
        try:
            self.passings = trace(model, inputs, config)[1]
        except ModelError:
            if edges:
                raise
            self.traced = False  # a layer that edge masks do not reach is no matter where edges are not masked
        self.outputs = checked_rows(self.output, inputs, config.task_level)
        self.hops = len(self.passings)
        self.receivers = tuple(sorted({p.receiver for p in self.passings})) or (1,)

    @cached_property
    def neighbours(self) -> Neighbours:
        """The graph's incoming edges."""
        return Neighbours(self.inputs, self.receivers)

    @cached_property
    def embedding(self) -> Tensor:
        """Embedding of each node of the whole graph, [N, D]."""
        return embeddings(self.model, self.inputs, self.config)

    def members(self, row: Tensor) -> float:
        """Mean number of nodes and edges of the graphs that the given rows may need."""
        owner = torch.arange(row.numel(), device=row.device)
        instances = around(self.inputs, self.outputs, row, owner, owner, self.neighbours, self.hops + 1)
        return float(instances.sizes.double().mean())

    def rows(self, index: Any) -> Tensor:
        """Explained rows from an index."""
        return checked_index(index, self.output.size(0)).to(self.inputs.x.device)

    def targets(self, target: Any, row: Tensor) -> Tensor:
        """Class of each explained row: the given one, or what the model predicts where none is given."""
        number = self.output.size(0)
        if target is not None:
            target = torch.as_tensor(target, device=row.device).flatten()
            if target.numel() != number:
                raise InputError(
                    f"target must hold a class for each of the model's {number} rows (got {target.numel()} entries)."
                )
            target = target[row]
        return checked_classes(self.output[row], target, self.config)

    # --- how worlds can be run -------------------------------------------------------------------------------------------

    @cached_property
    def way(self) -> Way:
        with torch.no_grad():
            return self._find_way()

    def _find_way(self) -> Way:
        """The fastest way that gives, in random worlds of a few outputs, what the whole graph gives one world at a time."""
        pilots = self._pilots()
        target = torch.zeros_like(pilots)
        truth = whole([self.inputs], self.outputs, [pilots], [target]).explained_graphs()
        edge, node = random_worlds(truth, self.edges, self.nodes)
        expected = Scm(self.model, self.config, truth).outcome(edge, node)
        for way in self._ways():
            try:
                if way.hops is None:
                    found = Scm(self.model, self.config, truth, way).outcome(edge, node)
                else:
                    found = self._together_and_alone(pilots, way, edge, node)
                if bool(close(found, expected, self.config).all()):
                    return way
            except CANNOT_BE_CUT:
                continue
        return PLAIN

    @torch.no_grad()
    def _together_and_alone(self, pilots: Tensor, way: Way, edge: Tensor | None, node: Tensor | None) -> Tensor:
        """Outputs of the pilots in worlds of the whole graph; NaN for one that is not the same in company and alone."""

        def outcome(row: Tensor) -> Tensor:
            scm = self._cut(row, torch.arange(row.numel(), device=row.device), torch.zeros_like(row), way)
            here = scm.instances
            return scm.outcome(
                None if edge is None else edge[:, here.edge_id], None if node is None else node[:, here.node_id]
            )

        together = outcome(pilots)
        alone = torch.cat([outcome(pilots[n : n + 1]) for n in range(pilots.numel())], 1)
        same = close(alone, together, self.config)
        return together.masked_fill(~same.view(1, -1, *[1] * (together.dim() - 2)), float("nan"))

    def _ways(self) -> Sequence[Way]:
        if not self.traced:
            return (Way(planned=False, constants=False, hollow=False),)
        if self.outputs is Role.GRAPH:
            return WAYS_OF_GRAPHS
        return (
            Way(self.hops),
            Way(self.hops, hollow=False),
            Way(self.hops, hollow=False, constants=False),
            Way(self.hops + 1, hollow=False, constants=False),
            Way(hollow=False, constants=False),
        )

    def _pilots(self) -> Tensor:
        """A few rows: where most arrives, and two more."""
        number = self.output.size(0)
        rows = torch.tensor([0, number // 2, number - 1], device=self.inputs.x.device)
        if self.outputs is Role.NODE:
            degree = self.neighbours.ptr.diff()
            busy = (degree > 0).nonzero().flatten()
            if busy.numel():
                rows = torch.stack([degree.argmax(), busy[busy.numel() // 2], busy[-1]])
        pilots: Tensor = torch.unique(rows)
        return pilots

    # --- instances -------------------------------------------------------------------------------------------------------

    def scms(self, row: Tensor, owner: Tensor, target: Tensor) -> Iterator[tuple[Tensor, Scm]]:
        """Causal models that together hold all instances, with the numbers of those that each holds.

        Each gives the whole graph's output where nothing is masked.
        """
        alone = torch.unique(owner)
        if self.way.hops is not None:
            scm = self._cut(row, owner, target, self.way)
            with torch.no_grad():
                near = close(scm.outcome()[0], self.output[row], self.config)
            bad = torch.unique(owner[~near])
            good = alone[~torch.isin(alone, bad)]
            if good.numel():
                yield good, scm.select(good)
            alone = bad
        for number in alone.tolist():
            mine = owner == number
            instances = whole([self.inputs], self.outputs, [row[mine]], [target[mine]]).explained_graphs()
            way = PLAIN if self.way.hops is not None else self.way
            yield alone.new_tensor([number]), self._scm(instances, way)

    def _scm(self, instances: Instances, way: Way, whole: Sequence[Passing] = ()) -> Scm:
        return Scm(self.model, self.config, instances, way, whole, lambda: self.embedding)

    def _cut(self, row: Tensor, owner: Tensor, target: Tensor, way: Way) -> Scm:
        assert way.hops is not None
        instances = around(self.inputs, self.outputs, row, owner, target, self.neighbours, way.hops)
        return self._scm(instances.core(way.hops, self.receivers), way, self.passings)

    def standalone(self, row: Tensor, target: Tensor, least: Tensor) -> Iterator[tuple[Tensor, tuple[Instances, Tensor]]]:
        """Graphs on which the model alone gives the whole graph's output, one instance per row, as small as will do.

        Args:
            row, target: explained rows and their class.
            least: hops that the graph of each must hold.

        Yields:
            numbers of instances, the instances, and the model's output on them.
        """
        pending = torch.arange(row.numel(), device=row.device)
        for hops in (self.hops, self.hops + 1) if self.traced else ():
            some = pending[least[pending] <= hops]
            if not some.numel():
                continue
            place = torch.arange(some.numel(), device=row.device)
            instances = around(self.inputs, self.outputs, row[some], place, target[some], self.neighbours, hops)
            try:
                with torch.no_grad():
                    output = call(self.model, instances.tile(1).inputs, self.config)
                good = close(output[instances.row], self.output[row[some]], self.config).nonzero().flatten()
            except CANNOT_BE_CUT:
                continue
            if good.numel():
                yield some[good], (instances.select(good), output[spread(instances.ptr[self.outputs], good)[0]])
            pending = pending[~torch.isin(pending, some[good])]
        for number in pending.tolist():
            one = whole([self.inputs], self.outputs, [row[number : number + 1]], [target[number : number + 1]])
            yield pending.new_tensor([number]), (one, self.output)


# --- many graphs ---------------------------------------------------------------------------------------------------------

WAYS_OF_GRAPHS = (Way(), Way(hollow=False, constants=False))


def graph_scms(
    model: nn.Module,
    config: ModelConfig,
    graphs: Sequence[Inputs],
    output: Tensor,
    target: Tensor,
    edges: bool,
    nodes: bool,
) -> Iterator[tuple[Tensor, Scm]]:
    """Causal models that together hold all graphs, one instance each, with the numbers of those that each holds.

    Args:
        graphs: B graphs.
        output: what the model says of each alone, [B, C].
        target: class of each, [B].
        edges, nodes: what will be masked.
    """
    number = torch.arange(len(graphs), device=target.device)

    def packed(some: Tensor, way: Way) -> Scm:
        chosen = [graphs[n] for n in some.tolist()]
        row = [torch.zeros(1, dtype=torch.long, device=target.device)] * len(chosen)
        return Scm(model, config, whole(chosen, Role.GRAPH, row, [target[n : n + 1] for n in some.tolist()]), way)

    def exact(way: Way) -> bool:
        """Whether a few graphs together give, in random worlds, what each gives alone."""
        few = number[:3]
        alone = [packed(few[b : b + 1], PLAIN) for b in range(few.numel())]
        worlds = [random_worlds(one.instances, edges, nodes) for one in alone]
        edge = torch.cat([e for e, _ in worlds if e is not None], 1) if edges else None
        node = torch.cat([n for _, n in worlds if n is not None], 1) if nodes else None
        expected = torch.cat([one.outcome(*w) for one, w in zip(alone, worlds, strict=True)], 1)
        return bool(close(packed(few, way).outcome(edge, node), expected, config).all())

    alone = number
    if packable(graphs):
        for way in WAYS_OF_GRAPHS:
            try:
                with torch.no_grad():
                    if not exact(way):
                        continue
                    scm = packed(number, way)
                    good = close(scm.outcome()[0], output, config)
            except CANNOT_BE_CUT:
                continue
            if bool(good.any()):
                yield number[good], scm.select(number[good])
            alone = number[~good]
            break
    for n in alone.tolist():
        yield number[n : n + 1], packed(number[n : n + 1], PLAIN)


def random_worlds(instances: Instances, edges: bool, nodes: bool) -> tuple[Tensor | None, Tensor | None]:
    """Three worlds with weights of edges [3, E] and nodes [3, N, 1]: almost all kept, almost nothing, and any."""
    rng, device = torch.Generator().manual_seed(0), instances.x.device
    dtype = instances.x.dtype if instances.x.is_floating_point() else torch.get_default_dtype()

    def draw(*shape: int) -> Tensor:
        u = torch.rand(3, *shape, generator=rng, dtype=dtype)
        return torch.stack([1 - 0.1 * u[0], 0.1 * u[1], u[2]]).to(device)

    masked = nodes and instances.x.is_floating_point() and instances.x.dim() == 2
    return draw(instances.num_edges) if edges else None, draw(instances.num_nodes, 1) if masked else None


def bytes_per_member(model: nn.Module, inputs: Inputs, config: ModelConfig) -> float:
    """Bytes that a forward pass keeps for each node and edge, with gradients on."""
    x = inputs.x.detach().clone().requires_grad_() if inputs.x.is_floating_point() else inputs.x
    with torch.enable_grad(), counted() as kept, in_words():
        call(model, replace(inputs, x=x), config)
    return max(kept() / (inputs.num_nodes + inputs.num_edges), 256.0)


@contextmanager
def in_words() -> Iterator[None]:
    """What the model raises here becomes a sentence."""
    try:
        yield
    except NsegError:
        raise
    except Exception as error:
        raise ModelError(
            f"The model must run on what it is given (got {type(error).__name__}: {error}). Check the shapes and types of "
            "x, edge_index and further arguments."
        ) from error


def prediction(model: nn.Module, inputs: Inputs, config: ModelConfig) -> Tensor:
    """What the model says, twice the same."""
    with torch.no_grad(), in_words():
        output, again = call(model, inputs, config), call(model, inputs, config)
    broken = torch.isnan(output) if output.shape == again.shape else None  # reported later, if such a row is explained
    if broken is None or not bool(close(again.masked_fill(broken, 0), output.masked_fill(broken, 0), config).all()):
        raise ModelError(
            "The model must give the same output for the same input in evaluation mode (got two different ones). Take the "
            "randomness out of forward(), e.g. pass training=self.training to dropout."
        )
    require_probabilities(output, config)
    return output
