"""A caller's graph, checked and traced once, from which instances are cut."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch_geometric.explain.config import ModelConfig, ModelMode, ModelTaskLevel

from nseg.errors import InputError, ModelError
from nseg.instances import Inputs, Instances, Neighbours, Role, around, spread, whole
from nseg.scm import Scm, accepts, call, close, predicted_class, probability, trace


def checked_inputs(model: nn.Module, x: Any, edge_index: Any, kwargs: Mapping[str, Any], level: ModelTaskLevel) -> Inputs:
    """The model's arguments, or a sentence on what is wrong with them."""
    if isinstance(x, dict) or isinstance(edge_index, dict):
        raise InputError(
            "x and edge_index must be tensors (got dictionaries). Heterogeneous graphs are not supported; "
            "use HeteroData.to_homogeneous() with a homogeneous model."
        )
    if not isinstance(x, Tensor):
        raise InputError(f"x must be a tensor [nodes, features] (got {type(x).__name__}).")
    if not isinstance(edge_index, Tensor) or edge_index.layout is not torch.strided:
        raise InputError(
            f"edge_index must be an integer tensor [2, E] (got {type(edge_index).__name__}, sparse). "
            "Turn a sparse matrix into one with torch_geometric.utils.to_edge_index."
        )
    if edge_index.dim() != 2 or edge_index.size(0) != 2 or edge_index.dtype is not torch.long:
        raise InputError(
            f"edge_index must be a torch.long tensor [2, E] (got {edge_index.dtype} of shape {tuple(edge_index.shape)})."
        )
    if x.dim() == 0 or x.size(0) == 0:
        raise InputError(f"x must have at least one node (got shape {tuple(x.shape)}).")
    if edge_index.numel() and not 0 <= int(edge_index.min()) <= int(edge_index.max()) < x.size(0):
        raise InputError(
            f"edge_index must hold node numbers from 0 to {x.size(0) - 1}, as x has {x.size(0)} rows "
            f"(got {int(edge_index.min())} to {int(edge_index.max())})."
        )
    _check_devices(model, x, edge_index)
    for name, value in [("x", x), *kwargs.items()]:
        if isinstance(value, Tensor) and value.is_floating_point() and not bool(torch.isfinite(value).all()):
            raise InputError(f"{name} must be finite (got NaN or infinity). Clean it, e.g. with torch.nan_to_num.")
    kwargs = dict(kwargs)
    if level is ModelTaskLevel.graph and kwargs.get("batch") is None and accepts(model, "batch"):
        kwargs["batch"] = torch.zeros(x.size(0), dtype=torch.long, device=x.device)
    return Inputs(x.detach(), edge_index, kwargs)


def _check_devices(model: nn.Module, x: Tensor, edge_index: Tensor) -> None:
    parameter = next((p for p in model.parameters() if p.is_floating_point()), None)
    devices = {"x": x.device, "edge_index": edge_index.device}
    if parameter is not None:
        devices["the model"] = parameter.device
    if len(set(devices.values())) > 1:
        found = ", ".join(f"{name} on {device}" for name, device in devices.items())
        raise InputError(f"Model and data must be on one device (got {found}). Move them with .to(device).")
    if parameter is not None and x.is_floating_point() and x.dtype is not parameter.dtype:
        raise InputError(
            f"x must have the model's dtype {parameter.dtype} (got {x.dtype}). Use x.to({parameter.dtype}) or model.to(...)."
        )


def checked_index(index: Any, number: int) -> Tensor:
    """Row numbers from an int, a list, a range or a tensor (also boolean); None means all ``number`` rows."""
    if index is None:
        return torch.arange(number)
    row = torch.as_tensor(list(index) if isinstance(index, range) else index)
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


T = TypeVar("T")

CANNOT_BE_CUT = (IndexError, RuntimeError, ValueError)
"""What a model may raise that takes no other graph than its own, e.g. because it has a parameter per node."""


class Source:
    """One graph (or batch of graphs) as the caller gave it, with what the model says of it.

    Args:
        model: the model, borrowed.
        config: what it returns.
        inputs: the whole graph.
    """

    def __init__(self, model: nn.Module, config: ModelConfig, inputs: Inputs) -> None:
        self.model, self.config, self.inputs = model, config, inputs
        self.output, self.passings = trace(model, inputs, config)
        self.outputs = self._output_role()
        self.hops = len(self.passings)
        self.receivers = tuple(sorted({p.receiver for p in self.passings})) or (1,)

    @cached_property
    def neighbours(self) -> Neighbours:
        """The graph's incoming edges."""
        return Neighbours(self.inputs, self.receivers)

    def members(self, row: Tensor) -> float:
        """Mean number of nodes and edges of the graphs that the given rows may need."""
        owner = torch.arange(row.numel(), device=row.device)
        instances = around(self.inputs, self.outputs, row, owner, owner, self.neighbours, self.hops + 1)
        return float(instances.sizes.double().mean())

    def _output_role(self) -> Role:
        rows, inputs, level = self.output.size(0), self.inputs, self.config.task_level
        if level is ModelTaskLevel.graph:
            expected, role = inputs.num_graphs, Role.GRAPH
        elif level is ModelTaskLevel.node:
            expected, role = inputs.num_nodes, Role.NODE
        elif inputs.pairs is not None:
            expected, role = inputs.pairs.size(1), Role.PAIR
        else:
            expected, role = inputs.num_edges, Role.EDGE
        if rows != expected:
            raise ModelError(
                f"A model of task level '{level.value}' must return {expected} rows here, {role.value} (got {rows}). "
                "Check task_level in model_config"
                + (" and that the pairs are given as edge_label_index." if level is ModelTaskLevel.edge else ".")
            )
        return role

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

    # --- instances -----------------------------------------------------------------------------------------------------

    def scms(self, row: Tensor, owner: Tensor, target: Tensor) -> Iterator[tuple[Tensor, Scm]]:
        """Causal models that together hold all instances, with the numbers of those that each holds.

        Each gives the whole graph's probability where nothing is masked.
        """
        if self.outputs is Role.GRAPH:
            yield torch.zeros(1, dtype=torch.long, device=row.device), self._whole_scm(row, target)
            return
        expected = self._mean(probability(self.output[row], target, self.config), owner)

        def attempt(instances: Instances, which: Tensor, hops: int) -> tuple[Tensor, Callable[[Tensor], Scm]]:
            scm = Scm(self.model, self.config, instances.core(hops, self.receivers), self.passings, hops)
            try:
                return scm.settle(expected[which]), scm.select
            except CANNOT_BE_CUT:
                return torch.zeros_like(which, dtype=torch.bool), scm.select

        yield from self._ladder(row, owner, target, attempt, self._whole_scm)

    def standalone(self, row: Tensor, target: Tensor, least: Tensor) -> Iterator[tuple[Tensor, tuple[Instances, Tensor]]]:
        """Graphs on which the model alone gives the whole graph's output, one instance per row.

        Args:
            row, target: explained rows and their class.
            least: hops that the graph of each must hold.

        Yields:
            numbers of instances, the instances, and the model's output on them.
        """

        def attempt(
            instances: Instances, which: Tensor, hops: int
        ) -> tuple[Tensor, Callable[[Tensor], tuple[Instances, Tensor]]]:
            try:
                with torch.no_grad():
                    output = call(self.model, instances.tile(1).inputs, self.config)
            except CANNOT_BE_CUT:
                return torch.zeros_like(which, dtype=torch.bool), lambda _: (instances, self.output)
            good = close(output[instances.row], self.output[row[which]]) & (least[which] <= hops)
            return good, lambda kept: (instances.select(kept), output[spread(instances.ptr[self.outputs], kept)[0]])

        def last(row: Tensor, target: Tensor) -> tuple[Instances, Tensor]:
            return whole([self.inputs], self.outputs, [row], [target]), self.output

        yield from self._ladder(row, torch.arange(row.numel(), device=row.device), target, attempt, last)

    def _ladder(
        self,
        row: Tensor,
        owner: Tensor,
        target: Tensor,
        attempt: Callable[[Instances, Tensor, int], tuple[Tensor, Callable[[Tensor], T]]],
        last: Callable[[Tensor, Tensor], T],
    ) -> Iterator[tuple[Tensor, T]]:
        """Cut graphs as small as will do: as many hops as the model takes, then one more, then the whole graph.

        Args:
            row, owner, target: explained rows, their instance, their class.
            attempt: says for which of the given instances the cut is good, and makes what is yielded of those.
            last: makes the same of a whole graph.
        """
        pending = torch.unique(owner)
        for hops in (self.hops, self.hops + 1):
            if not pending.numel():
                return
            mine = torch.isin(owner, pending)
            place = torch.searchsorted(pending, owner[mine])
            instances = around(self.inputs, self.outputs, row[mine], place, target[mine], self.neighbours, hops)
            good, made = attempt(instances, pending, hops)
            if bool(good.any()):
                yield pending[good], made(good.nonzero().flatten())
            pending = pending[~good]
        for number in pending.tolist():
            mine = owner == number
            yield pending.new_tensor([number]), last(row[mine], target[mine])

    def _whole_scm(self, row: Tensor, target: Tensor) -> Scm:
        instances = whole([self.inputs], self.outputs, [row], [target]).explained_graphs()
        return settled(self.model, self.config, instances, self.output[row])

    def _mean(self, value: Tensor, owner: Tensor) -> Tensor:
        count = owner.bincount()
        return value.new_zeros(count.numel()).index_add(0, owner, value) / count


def together(model: nn.Module, config: ModelConfig, instances: Instances, output: Tensor) -> bool:
    """Whether whole graphs may share a forward pass: the model gives each what it gives it alone.

    Args:
        output: what the model says of the explained rows of the first instance when it sees that alone.
    """
    tile = instances.tile(2)
    x = tile.inputs.x.clone()
    other = x[instances.num_nodes :].flip(0)  # a second world with other features must not be noticed in the first
    x[instances.num_nodes :] = 0.3 - 1.7 * other if x.is_floating_point() else other
    with torch.no_grad():
        try:
            first = call(model, replace(tile.inputs, x=x), config)[tile.rows[0]]
        except CANNOT_BE_CUT:
            return False
    return bool(close(first[: len(output)], output).all())


def settled(model: nn.Module, config: ModelConfig, instances: Instances, output: Tensor) -> Scm:
    """The causal model of whole graphs, run in the fastest way that is exact.

    Args:
        output: what the model says of each explained row when it sees its instance alone.
    """
    first = int(instances.row_ptr[1])
    scm = Scm(model, config, instances, joint=together(model, config, instances, output[:first]))
    if scm.batches or len(instances) == 1:
        p = probability(output, instances.target, config)
        count = instances.row_ptr.diff()
        scm.settle(p.new_zeros(len(instances)).index_add(0, instances.row_owner, p) / count)
    return scm
