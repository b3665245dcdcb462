"""Compiled passes over worlds whose edges and nodes have real weights, with gradients with respect to these."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nseg.graphs.batch import InstanceBatch
from nseg.graphs.inputs import Role
from nseg.model import kernel
from nseg.model.compiled_batch import CompiledBatch
from nseg.model.kernel_steps import MESSAGES, Code, NotCompilableError
from nseg.model.programs import close
from nseg.model.subset_worlds import EDGES, NODES, OUTSIDE

CODES = {Code.PRODUCT, Code.LINEAR, Code.SUM, Code.TIMES, Code.POOL, Code.JOIN, Code.FEATURES}
"""Operations that slopes.c knows."""

Run = Callable[[Mapping[str, Tensor]], Tensor | None]
"""Returns the output for the explained rows in weighed worlds, if it can."""

WIDEST = 64
"""Columns of the widest value of a pass. Of wider ones torch computes the gradients as fast or faster."""

LAST_ACTIVATION = 5
"""Number of the last activation that slopes.c knows: those whose slope follows from what they give."""


class WeighedBatch:
    """Runs a compiled pass in weighed worlds of some instances of a batch; torch can differentiate the output.

    Args:
        batch: the compiled pass.
        weighed, masked: whether edges, and features, have weights.
        deletes: whether edges of weight 0 are deleted.

    Raises:
        NotCompilableError: the kernel does not know the gradient of the pass, or is slower than torch.
    """

    def __init__(self, batch: CompiledBatch, weighed: bool, masked: bool, deletes: bool) -> None:
        self.batch, self._deletes = batch, deletes
        steps, given = batch.compiled.steps, batch.kernel_pass.operations
        used = {step.code for step in steps}
        known = used <= CODES and all(step.target.level > MESSAGES for step in steps)
        narrow = all(step.target.width <= WIDEST for step in steps if step.code is not Code.FEATURES)
        rising = all(given[n].activation <= LAST_ACTIVATION and given[n].slope >= 0 for n in range(len(steps)))
        # weights that the output does not depend on have no gradient, which only torch can say
        depends = (Code.PRODUCT in used or not weighed) and (Code.FEATURES in used or not masked)
        if not (known and narrow and rising and depends):
            raise NotCompilableError
        self._operations = (kernel.Operation * len(steps))(*given[: len(steps)])
        places = list(dict.fromkeys(step.target.number for step in steps))  # not shared: the way back needs all values
        for operation, step in zip(self._operations, steps, strict=True):
            values = (step.target, step.source, step.other)
            numbers = [-1 if value is None else places.index(value.number) for value in values]
            operation.target, operation.source, operation.other = numbers
        self._pass = kernel.Pass.from_buffer_copy(batch.kernel_pass)
        self._pass.operations = self._operations

    def run(self, weights: Mapping[str, Tensor], which: Tensor, instances: InstanceBatch) -> Tensor | None:
        """The model's output for the explained rows, [K, R, ...]; None if the weights are of another type than the pass.

        Args:
            weights: weights of the parts in K worlds of some instances of the batch, which may be given several times.
            which: their numbers in the batch, [b].
            instances: these instances.
        """
        asked = self._question(weights, which, instances)
        if asked is None:
            return None
        question, where, edge, node = asked
        shape = question.worlds, question.rows, self.batch.compiled.result.width
        output: Tensor = _WeighedRun.apply(self, question, where, shape, edge, node)  # type: ignore[no-untyped-call]
        return self.batch.finish(output)

    def log_odds(self, weights: Mapping[str, Tensor], which: Tensor, instances: InstanceBatch) -> Tensor | None:
        """Log-odds of the class of each explained row, [K, R], likewise, if the output is raw scores and R is B.

        Their gradient is computed together with them, by one pass there and one back.
        """
        target, classes = instances.target, self.batch.compiled.result.width
        alone = self.batch.compiled.tail is None and len(target) == len(instances) and target.dtype == torch.long
        asked = self._question(weights, which, instances) if alone and classes > 1 else None
        if asked is None:
            return None
        question, where, edge, node = asked
        where["target"] = target.contiguous()
        question.target = where["target"].data_ptr()
        found: Tensor = _WeighedOdds.apply(self, question, instances, edge, node)  # type: ignore[no-untyped-call]
        return found

    def _question(
        self, weights: Mapping[str, Tensor], which: Tensor, instances: InstanceBatch
    ) -> tuple[kernel.Weighed, dict[str, Tensor], Tensor | None, Tensor | None] | None:
        """What the kernel is asked, what that points to, and the weights of edges and nodes; None likewise."""
        edge, node = weights.get(EDGES), weights.get(NODES)
        given = [one for one in (edge, node) if one is not None]
        if any(one.dtype != self.batch.dtype for one in given):
            return None
        outside = torch.ones(len(given[0]), dtype=self.batch.dtype)
        if self._deletes and edge is not None:
            edge, outside = edge.clamp(0, 1), weights.get(OUTSIDE, outside).to(self.batch.dtype)
        where = {
            "instance": which.contiguous(),
            "outside": outside.contiguous(),
            "edge_first": instances.ptr[Role.EDGE],
            "node_first": instances.ptr[Role.NODE],
            "row_first": instances.row_ptr * self.batch.rows_each,
        }
        rows = len(instances.row) * self.batch.rows_each
        question = kernel.Weighed(
            number=len(which),
            worlds=len(outside),
            edges=instances.num_edges,
            nodes=instances.num_nodes,
            rows=rows,
            factors=1 if node is None else node.size(2),
            **{name: value.data_ptr() for name, value in where.items()},
        )
        return question, where, edge, node

    def ask(self, question: kernel.Weighed, **tensors: Tensor | None) -> None:
        """Ask the kernel, which reads and writes some tensors."""
        for name, tensor in tensors.items():
            setattr(question, name, None if tensor is None else tensor.data_ptr())
        if self.batch.library.run_weighed(ctypes.byref(self._pass), ctypes.byref(question)):
            raise MemoryError


def same_slopes(one: Run, other: Run, weights: Mapping[str, Tensor]) -> bool:
    """Whether two ways to run weighed worlds give the same output and the same gradients."""
    found, expected = (_output_and_slopes(run, weights) for run in (one, other))
    return len(found) == len(expected) and all(map(close, found, expected))


def _output_and_slopes(run: Run, weights: Mapping[str, Tensor]) -> list[Tensor]:
    """The output in weighed worlds, and the gradients of a weighed sum of it; nothing if there is no output."""
    with torch.enable_grad():
        free = {name: one.detach().requires_grad_(name != OUTSIDE) for name, one in weights.items()}
        output = run(free)
        if output is None:
            return []
        share = torch.linspace(-1, 2, output.numel(), dtype=output.dtype).view_as(output)
        of = [one for one in free.values() if one.requires_grad]
        slopes = torch.autograd.grad((output * share).sum(), of, allow_unused=True, materialize_grads=True)
    return [output.detach(), *slopes]


class _WeighedRun(torch.autograd.Function):
    """The kernel's output; on the way back each pass is run once more, in the cache, instead of being stored."""

    @staticmethod
    def forward(
        ctx: Any,
        batch: WeighedBatch,
        question: kernel.Weighed,
        where: dict[str, Tensor],  # kept, because the question points to it
        shape: tuple[int, int, int],
        edge: Tensor | None,
        node: Tensor | None,
    ) -> Tensor:
        edge, node = (None if one is None else one.contiguous() for one in (edge, node))
        ctx.batch, ctx.question, ctx.where = batch, question, where
        ctx.save_for_backward(edge, node)
        output = torch.empty(shape, dtype=batch.batch.dtype)
        batch.ask(question, edge=edge, node=node, output=output)
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        edge, node = ctx.saved_tensors
        given = {"edge": edge, "node": node, "output": slopes[0].contiguous()}
        found = [None if one is None else torch.zeros_like(one) for one in (edge, node)]
        question = kernel.Weighed.from_buffer_copy(ctx.question)
        question.back = 1
        ctx.batch.ask(question, **given, edge_slope=found[0], node_slope=found[1])
        return None, None, None, None, *found


class _WeighedOdds(torch.autograd.Function):
    """Log-odds that the kernel computes with their gradient, as each depends on the weights of its own world alone."""

    @staticmethod
    def forward(
        ctx: Any,
        batch: WeighedBatch,
        question: kernel.Weighed,
        instances: InstanceBatch,
        edge: Tensor | None,
        node: Tensor | None,
    ) -> Tensor:
        edge, node = (None if one is None else one.contiguous() for one in (edge, node))
        slopes = [None if one is None else torch.zeros_like(one) for one in (edge, node)]
        odds = torch.empty(question.worlds, question.rows, dtype=batch.batch.dtype)
        question.back = 1
        batch.ask(question, edge=edge, node=node, output=odds, edge_slope=slopes[0], node_slope=slopes[1])
        ctx.instances = instances
        ctx.save_for_backward(*slopes)
        return odds

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *given: Tensor) -> tuple[Tensor | None, ...]:
        (edge, node), (odds,) = ctx.saved_tensors, given  # one of each instance
        edge = None if edge is None else edge * odds.index_select(1, ctx.instances.edge_owner)
        node = None if node is None else node * odds.index_select(1, ctx.instances.node_owner).unsqueeze(2)
        return None, None, None, edge, node
