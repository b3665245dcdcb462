"""The trained network as a structural causal model, Y = f(E, X).

:class:`CausalModel` answers one question: how probable would the explained class be in these worlds?
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor, nn

from nseg.errors import ModelError
from nseg.graphs.batch import InstanceBatch
from nseg.graphs.inputs import MASKED_ATTRIBUTES
from nseg.model.extremes import Extremes
from nseg.model.hooks import message_passing_layers, node_embeddings, record_layer_outputs
from nseg.model.outcomes import Outcome
from nseg.model.removal import Remover, SmallerGraphs
from nseg.model.rescaling import RescaledMessages
from nseg.model.runner import WorldRunner
from nseg.model.strategy import PLAIN, RunStrategy
from nseg.model.subset_worlds import EDGES, NODES, SubsetWorlds
from nseg.model.tracing import PropagateCall, require_edge_identity

Weights = Mapping[str, Tensor]
"""Weights of K worlds by part: ``"edges"``, the weight of each edge's messages, [K, E]; ``"nodes"``, the factor of each
node's features, [K, N, 1] or [K, N, F]; ``"attributes"``, that of each edge's attributes, [K, E, 1] or [K, E, D]. A part
that is absent is left as it is. Where edges are deleted, ``"outside"`` says whether the edges outside the instances stay,
[K]; they do if it is absent. Where nodes are deleted, ``"outside nodes"`` says the same of nodes."""

MakeRemover = Callable[[bool, WorldRunner], Remover]
"""Makes what deletes edges: from whether reverses outside the instances are tied, and the runner that weighs messages."""

NOTHING: Weights = {}
"""One world in which nothing is changed."""


@dataclass(frozen=True)
class Activation:
    """The output of a message passing layer in one call.

    Args:
        value: the output, [N, H].
        gradient: of the sum of all class scores with respect to it, [N, H].
        exact: nodes whose output equals that on the whole graph, [N]; others cannot matter and were not computed.
    """

    value: Tensor
    gradient: Tensor
    exact: Tensor


class CausalModel:
    """Y = f(E, X) for B instances.

    Args:
        model: the trained network, borrowed (:func:`nseg.model.borrow.borrow`).
        outcome: how its output is read.
        instances: B instances; one if the strategy is not batched.
        strategy: how worlds are run.
        whole_calls: message passing steps on the whole graph that the instances were cut from, if they were.
        embeddings: returns the embeddings of that graph's nodes, by the caller's number; None where each instance is a
            graph of its own.

    Attributes:
        make_remover: how worlds without edges are run; on smaller graphs made of the instances alone unless set.
        each_row: whether answers are given for each explained row instead of each instance: [K, R] for [K, B].
        extremes: the lowest and highest probabilities that a search has met.
    """

    members_at_once = 1 << 16
    """Nodes and edges of all worlds in one forward pass without gradients; larger passes are not faster."""

    def __init__(
        self,
        model: nn.Module,
        outcome: Outcome,
        instances: InstanceBatch,
        strategy: RunStrategy = PLAIN,
        whole_calls: Sequence[PropagateCall] = (),
        embeddings: Callable[[], Tensor] | None = None,
    ) -> None:
        self.model, self.outcome, self.instances, self.strategy = model, outcome, instances, strategy
        self._runner = WorldRunner(model, outcome, instances, strategy, whole_calls)
        self._embeddings = embeddings
        self.make_remover: MakeRemover = self._smaller_graphs
        self.each_row = False
        self.extremes = Extremes.unknown(len(instances), instances.x.device)
        self._removers: dict[bool, Remover] = {}
        self._tied: bool | None = None  # the key of the remover that runs the worlds, if edges are deleted

    def select(self, which: Tensor) -> CausalModel:
        """The causal model of the instances ``which``."""
        instances = self.instances.select(which)
        other = self._of(instances, self._runner.select(which, instances))
        other.extremes = self.extremes.select(which)
        other.make_remover = lambda tied, _: self._remover_of(tied).select(which, instances, other._runner)
        return other

    def repeat(self, times: int) -> CausalModel:
        """The causal model of all instances, ``times`` times in one batch."""
        if times == 1:
            return self
        instances = self.instances.repeat(times)
        other = self._of(instances, self._runner.repeat(times, instances))
        other.extremes = self.extremes.repeat(times)
        other.make_remover = lambda tied, _: self._remover_of(tied).repeat(times, instances, other._runner)
        return other

    def removing(self, tied: bool = False) -> CausalModel:
        """The causal model in which edges of weight 0 are deleted: layers see the smaller graph. Weights must be 0 or 1.

        Args:
            tied: whether an edge outside an instance is deleted with its reverse, if that is an edge of the instance.
        """
        other = copy(self)
        other._tied = tied
        return other

    def guiding(self, removal: bool, tied: bool = False) -> CausalModel:
        """The causal model whose gradients guide a search; with removal its own where it has any, else those of masks."""
        return self.removing(tied) if removal and self._remover_of(tied).differentiable else self

    def deletion_weighs(self, tied: bool = False) -> bool:
        """Whether a deleted edge is no more than messages of weight 0, so that gradients say what deletion does."""
        return self._remover_of(tied).only_weighs

    def _remover_of(self, tied: bool) -> Remover:
        if tied not in self._removers:
            self._removers[tied] = self.make_remover(tied, self._runner)
        return self._removers[tied]

    @property
    def slow_notes(self) -> list[str]:
        """Why worlds without edges were run slowly so far, and what that cost; empty if they were not."""
        return [note for remover in self._removers.values() if (note := remover.slow_note) is not None]

    @property
    def _remover(self) -> Remover | None:
        return None if self._tied is None else self._remover_of(self._tied)

    def _smaller_graphs(self, tied: bool, _: WorldRunner) -> Remover:
        boundary = None if self.strategy.planned else self.strategy.hops
        return SmallerGraphs(self.model, self.outcome, self.instances, batched=self.strategy.batched, boundary=boundary)

    def _of(self, instances: InstanceBatch, runner: WorldRunner) -> CausalModel:
        other = copy(self)  # not a new one, which would make a runner of its own
        other.instances, other._runner, other._removers = instances, runner, {}
        return other

    def expect_many_passes(self) -> None:
        """Prepare for many passes, here and of instances selected from these; else this is done after some."""
        self._runner.expect_many_passes()

    @property
    def dtype(self) -> torch.dtype:
        """Floating point type of the features, else of the model."""
        tensors = chain([self.instances.x], self.model.parameters())
        return next((t.dtype for t in tensors if t.is_floating_point()), torch.get_default_dtype())

    @property
    def receivers(self) -> tuple[int, ...]:
        """Rows of ``edge_index`` that messages go to."""
        layers = message_passing_layers(self.model).values()
        return tuple(sorted({int(m.flow == "source_to_target") for m in layers})) or (1,)

    # --- questions -------------------------------------------------------------------------------------------------------

    def do(self, weights: Weights | SubsetWorlds = NOTHING) -> Tensor:
        """Probability of each instance's class in K worlds, [K, B]."""
        return self._probability(self.output(weights))

    def do_and_agree(self, weights: Weights | SubsetWorlds = NOTHING) -> tuple[Tensor, Tensor]:
        """The result of :meth:`do`, and the share of each instance's rows that have their class, [K, B] each."""
        return self.answer(weights, odds=False)[:2]

    def answer(self, weights: Weights | SubsetWorlds, odds: bool) -> tuple[Tensor, Tensor, Tensor | None]:
        """The results of :meth:`do_and_agree`, and if asked for that of :meth:`log_odds`, from one pass, [K, B] each."""
        p, holds, z = self.outcome.read(self.output(weights), self.instances.target, odds)
        p, holds = self.mean_over_rows(_require_finite(p)), self.mean_over_rows(holds)
        return p, holds, None if z is None or not odds else self._mean_log_odds(z)

    def log_odds(self, weights: Weights | SubsetWorlds = NOTHING) -> Tensor:
        """Log-odds of each instance's class in K worlds, [K, B]; :meth:`do` is their sigmoid."""
        z = None
        if self.outcome.reads_raw_classes and not isinstance(weights, SubsetWorlds):
            z = self._run_weighed(weights, odds=True)
        if z is None:
            z = self.outcome.log_odds(self.output(weights), self.instances.target)
        return self._mean_log_odds(z)

    def _mean_log_odds(self, z: Tensor) -> Tensor:
        """Log-odds of the mean probability of each instance's rows, [K, R] to [K, B]."""
        _require_finite(z)
        if z.size(1) == len(self.instances):
            return z
        return torch.logit(self.mean_over_rows(z.sigmoid()), torch.finfo(z.dtype).eps)

    def score(self, weights: Weights = NOTHING) -> Tensor:
        """Score of each instance's class in K worlds, [K, B]; what gradients are usually taken of."""
        return self.mean_over_rows(_require_finite(self.outcome.score(self.output(weights), self.instances.target)))

    def output(self, weights: Weights | SubsetWorlds = NOTHING) -> Tensor:
        """The model's output for the explained rows in K worlds, [K, R, C], or [K, R] for a binary model."""
        if isinstance(weights, SubsetWorlds):
            found = self._run_compiled(weights)
            if found is not None:
                return found
            weights = weights.weights(self.dtype)
        worlds = next((len(w) for w in weights.values()), 1)
        size = self._worlds_at_once(worlds)
        parts = []
        for start in range(0, worlds, size):
            some = weights if size == worlds else {name: _rows(w, start, size) for name, w in weights.items()}
            parts.append(self._run(some, size))
        return parts[0] if len(parts) == 1 else torch.cat(parts)[:worlds]

    def _run_compiled(self, worlds: SubsetWorlds) -> Tensor | None:
        """The output in worlds of subsets by a compiled pass; None if there is none."""
        remover = self._remover
        if torch.is_grad_enabled() or not (remover is None or isinstance(remover, RescaledMessages)):
            return None
        return self._runner.run_compiled(worlds, remover if EDGES in worlds.parts else None)

    def _run_weighed(self, weights: Weights, odds: bool = False) -> Tensor | None:
        """The output, or the log-odds, in weighed worlds by a compiled pass that has gradients; None if there is none."""
        remover = self._remover
        wanted = [name for name, weight in weights.items() if weight.requires_grad]
        if not (torch.is_grad_enabled() and wanted and set(wanted) <= {EDGES, NODES}):
            return None
        if not (remover is None or isinstance(remover, RescaledMessages)):
            return None
        return self._runner.run_weighed(weights, remover if EDGES in weights else None, odds)

    def _run(self, weights: Weights, worlds: int) -> Tensor:
        found = self._run_weighed(weights)
        if found is not None:
            return found
        remover = self._remover
        if remover is not None:
            return remover.run(weights, worlds)
        return self._runner.run(weights.get("edges"), weights.get("nodes"), worlds, attribute=weights.get("attributes"))

    def mean_over_rows(self, value: Tensor) -> Tensor:
        """Mean over each instance's rows, [K, R] to [K, B]."""
        instances = self.instances
        if self.each_row or value.size(1) == len(instances):
            return value
        total = value.new_zeros(len(value), len(instances)).index_add(1, instances.row_owner, value)
        return total / instances.row_ptr.diff()

    def _probability(self, output: Tensor) -> Tensor:
        return self.mean_over_rows(_require_finite(self.outcome.probability(output, self.instances.target)))

    def _worlds_at_once(self, worlds: int) -> int:
        """One if worlds cannot share a pass; all if a gradient is needed; else as many as are fast and fit into memory."""
        remover = self._remover
        if not (self.strategy.batched and (remover is None or remover.batched)):
            return 1
        if torch.is_grad_enabled():
            return worlds
        sizes = self.instances.sizes if remover is None else remover.sizes
        most = max(1, self.members_at_once // max(int(sizes.sum()), 1))
        return math.ceil(worlds / math.ceil(worlds / most))

    # --- inside the network ----------------------------------------------------------------------------------------------

    def embeddings(self) -> Tensor:
        """Embedding of each node where nothing is masked, [N, D]: the output of the last message passing layer.

        Taken from the whole graph, because on a subgraph only those of the explained nodes would be right.
        """
        if self._embeddings is not None:
            return self._embeddings()[self.instances.node_id]
        return node_embeddings(self.model, self.instances.repeat_worlds(1).inputs, self.outcome)

    def activations(self) -> list[Activation]:
        """Output of each message passing layer where nothing is masked, with the gradient of the class score."""
        plan = self._runner.plan(1, share=False)
        with torch.enable_grad(), record_layer_outputs(self.model) as recorded:
            rows = self._runner.forward(plan.batch.inputs, plan.calls, None)[plan.batch.rows]
            score = _require_finite(self.outcome.score(rows, self.instances.target))
            total = self.mean_over_rows(score).sum()
        found = [(value, step) for value, step in recorded if value.dim() and len(value) == self.instances.num_nodes]
        values = [value for value, _ in found]
        gradients: Sequence[Tensor] = [torch.zeros_like(value) for value in values]
        if total.requires_grad and values:
            gradients = torch.autograd.grad(total, values, allow_unused=True, materialize_grads=True)
        shape = self.instances.num_nodes, -1

        def after(step: int) -> int:
            """Steps that follow on a recorded output; one of an exempt layer counts as part of a chain."""
            call = plan.calls[step - 1] if 0 < step <= len(plan.calls) else None
            return max(len(plan.calls) - step, 0) if call is None else call.after

        return [
            Activation(value.detach().reshape(shape), gradient.reshape(shape), self.instances.hops <= after(step))
            for (value, step), gradient in zip(found, gradients, strict=True)
        ]

    # --- checks ----------------------------------------------------------------------------------------------------------

    @property
    def calls(self) -> Sequence[PropagateCall]:
        """Message passing steps of all instances where nothing is masked."""
        return self._runner.one_world[1]

    def require_edge_identity(self) -> None:
        """Raise if a layer's edges only look like edges of the graph (:func:`nseg.model.tracing.require_edge_identity`)."""
        batch, calls = self._runner.one_world
        require_edge_identity(self.model, batch.inputs, self.outcome, calls, self.instances.node_owner)

    def require_dependence(self, edges: bool, nodes: bool) -> None:
        """Raise unless the output depends on what is to be masked."""
        instances = self.instances
        if edges and not message_passing_layers(self.model):
            raise ModelError(
                f"The model must pass messages over edges by torch_geometric.nn.MessagePassing layers "
                f"(found none in {type(self.model).__name__}). Explain features only: edge_mask_type=None."
            )
        if nodes and (not instances.x.is_floating_point() or instances.x.dim() != 2):
            raise ModelError(
                "A node mask scales features, so x must be floating point, [nodes, features] "
                f"(got {instances.x.dtype} of shape {tuple(instances.x.shape)}). Explain edges only (node_mask_type=None), "
                "with an explainer that does not change features."
            )
        ones = {"edges": torch.ones(1, instances.num_edges), "nodes": torch.ones(1, instances.num_nodes, 1)}
        ones["attributes"] = torch.ones(1, instances.num_edges, 1)
        masked = (("edges", edges), ("nodes", nodes), ("attributes", MASKED_ATTRIBUTES in instances.args))
        asked = [name for name, on in masked if on]
        weights = {name: ones[name].to(instances.x.device, self.dtype).requires_grad_() for name in asked}
        with torch.enable_grad():
            p = self.do(weights).sum()
        for name, weight in weights.items():
            if not weight.numel():
                continue
            found = _gradient(p, weight) if p.requires_grad else None
            if found is None:
                what, remedy = {
                    "edges": ("edges", "edge_mask_type=None"),
                    "nodes": ("features", "node_mask_type=None"),
                    "attributes": ("edge attributes", "edge_attributes=None"),
                }[name]
                if self._changes_without(name, weight):
                    raise ModelError(
                        f"The model's output must have a gradient with respect to the {what} that are to be masked (it does "
                        "not, although it depends on them). Remove torch.no_grad(), detach() and NumPy from forward()."
                    )
                raise ModelError(
                    f"The model's output must depend on the {what} that are to be masked (it does not, for the explained "
                    f"rows). Set {remedy}, or check what the model does with them."
                )

    @torch.no_grad()
    def _changes_without(self, name: str, ones: Tensor) -> bool:
        """Whether the output changes if all edges (or features) are masked."""
        with_it, without = (self.output({name: weight}) for weight in (ones, torch.zeros_like(ones)))
        return not torch.equal(with_it, without)


def _gradient(p: Tensor, weight: Tensor) -> Tensor | None:
    """The gradient that the search climbs, if there is one."""
    try:
        found: Tensor | None = torch.autograd.grad(p, weight, allow_unused=True, retain_graph=True)[0]
    except RuntimeError as error:  # e.g. of torch.utils.checkpoint
        raise ModelError(
            f"The model must give gradients (got {type(error).__name__}: {error}). Switch off what recomputes or frees "
            "values on the way back, e.g. checkpointing, to explain it."
        ) from error
    return found


def _rows(weight: Tensor, start: int, size: int) -> Tensor:
    """Rows of the weights of some worlds; the last block is padded, so that all blocks share one plan."""
    block = weight[start : start + size]
    missing = size - len(block)
    return torch.cat([block, block[-1:].expand(missing, *block.shape[1:])]) if missing else block


def _require_finite(value: Tensor) -> Tensor:
    # a sum is faster than to look at each, and is finite only if all are; a large sum may be infinite though none is
    if not math.isfinite(value.detach().sum()) and not bool(torch.isfinite(value).all()):
        raise ModelError(
            "The model's output must stay finite when messages or features are scaled down (got NaN or infinity, e.g. from "
            "a division by a sum that becomes 0). Guard the division, e.g. with clamp(min=1e-12)."
        )
    return value
