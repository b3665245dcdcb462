"""The trained network as a structural causal model, Y = f(E, X).

:class:`Scm` answers one question: what would the probability of the explained class be in these worlds? It is the only
file that touches the model, and gives it back as it was.

Two things make it fast, both exact, and both tested on masked worlds of the whole graph before they are used:

- the worlds of all instances are one disjoint union, so that one forward pass serves all of them;
- message passing number c of C can only matter where the receiver is within C - 1 - c hops of an explained output, so
  the other messages are not computed; and what a layer derives from the graph alone (a degree normalisation) is read
  off once, so that it is not derived again in every step, nor anything carried along for its sake.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch_geometric.explain.config import ModelConfig, ModelMode, ModelReturnType, ModelTaskLevel
from torch_geometric.nn import MessagePassing

from nseg.errors import ModelError
from nseg.instances import MULTIPLICITY, Inputs, Instances, Tile, numbered_edges, repeat_rows

# --- borrowing -------------------------------------------------------------------------------------------------------


@contextmanager
def borrowed(model: nn.Module) -> Iterator[None]:
    """Use a model in evaluation mode without gradients, and give it back as it was, whatever happens.

    Training flags, ``requires_grad``, buffers, layer caches, masks of another explainer and the global random state are
    restored; gradients are never touched.
    """
    modules, parameters = list(model.modules()), list(model.parameters())
    training = [m.training for m in modules]
    requires_grad = [p.requires_grad for p in parameters]
    buffers = [(m, k, b, None if b is None else b.detach().clone()) for m in modules for k, b in m._buffers.items()]
    caches = [(m, name, value) for m in modules for name, value in vars(m).items() if name.startswith("_cached")]
    caches += [(m, "cached", True) for m in modules if getattr(m, "cached", None) is True]
    masked = [m for m in modules if isinstance(m, MessagePassing) and m.explain is True]
    cuda = sorted({p.device.index or 0 for p in parameters if p.is_cuda})
    with torch.random.fork_rng(devices=cuda), without_denormals():
        try:
            model.eval()
            for parameter in parameters:
                parameter.requires_grad_(False)
            for module, name, _ in caches:
                setattr(module, name, None if name.startswith("_") else False)
            for layer in masked:
                layer.explain = None
            yield
        finally:
            for module, flag in zip(modules, training, strict=True):
                module.training = flag
            for parameter, flag in zip(parameters, requires_grad, strict=True):
                parameter.requires_grad_(flag)
            for module, name, buffer, content in buffers:
                module._buffers[name] = buffer
                if buffer is not None and content is not None and not torch.equal(buffer, content):
                    buffer.copy_(content)
            for module, name, value in caches:
                setattr(module, name, value)
            for layer in masked:
                layer.explain = True


@contextmanager
def without_denormals() -> Iterator[None]:
    """Take numbers below about 1e-38 for 0, which a processor otherwise reckons with many times more slowly.

    Weight decay leaves many such weights in trained models.
    """
    was = bool(torch.tensor(1e-38) / 1e3 == 0)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(was)


def uncompiled(model: nn.Module) -> nn.Module:
    """The module behind ``torch.compile``, whose hooks can be used."""
    inner = getattr(model, "_orig_mod", model)
    return inner if isinstance(inner, nn.Module) else model


def layers(model: nn.Module) -> dict[str, MessagePassing]:
    """The model's message passing layers by name."""
    return {name or type(m).__name__: m for name, m in model.named_modules() if isinstance(m, MessagePassing)}


@contextmanager
def hooked(model: nn.Module, on_propagate: Callable[..., Any], on_message: Callable[..., Any] | None) -> Iterator[None]:
    """Let ``on_propagate`` see and change what each layer passes on, and ``on_message`` the messages."""
    with ExitStack() as stack:
        for layer in layers(model).values():
            stack.callback(layer.register_propagate_forward_pre_hook(on_propagate).remove)
            if on_message is not None:
                stack.callback(layer.register_message_forward_hook(on_message).remove)
        yield


def embeddings(model: nn.Module, inputs: Inputs, config: ModelConfig) -> Tensor:
    """What the last message passing layer says of each node, [N, D]."""
    said: list[Any] = []
    with torch.no_grad(), ExitStack() as stack:
        for layer in layers(model).values():
            stack.callback(layer.register_forward_hook(lambda module, args, output: said.append(output)).remove)
        call(model, inputs, config)
    last = said[-1] if said else None
    last = last[0] if isinstance(last, tuple) else last  # a layer may also return its attention
    if not isinstance(last, Tensor) or last.dim() == 0 or last.size(0) != inputs.num_nodes:
        raise ModelError(
            f"The model's last message passing layer must return a tensor with one row per node, {inputs.num_nodes} here "
            f"(got {'no such layer' if last is None else tuple(getattr(last, 'shape', ())) or type(last).__name__}), "
            "because an embedding of every node is needed. Use an explainer that needs none, e.g. NSEG."
        )
    return last.detach().flatten(1) if last.dim() > 1 else last.detach().unsqueeze(1)


@contextmanager
def observed(model: nn.Module) -> Iterator[list[tuple[Tensor, int]]]:
    """Write down what each layer puts out, and how many message passing steps there were until then."""
    seen: list[tuple[Tensor, int]] = []
    steps = 0

    def on_propagate(layer: MessagePassing, args: tuple[Any, ...]) -> None:
        nonlocal steps
        steps += 1

    def on_output(layer: MessagePassing, args: Any, output: Any) -> Tensor | None:
        if not isinstance(output, Tensor):
            return None
        here = output.clone() if output.requires_grad else output.detach().clone().requires_grad_()
        seen.append((here, steps))
        return here.clone()  # what is written down must stay, also where the model goes on in place

    with hooked(model, on_propagate, None), ExitStack() as stack:
        for layer in layers(model).values():
            stack.callback(layer.register_forward_hook(on_output).remove)
        yield seen


@contextmanager
def counted() -> Iterator[Callable[[], int]]:
    """Count the bytes that autograd keeps for a backward pass; what is yielded tells how many so far."""
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        mine = min(
            storage.nbytes(), tensor.nbytes
        )  # a slice keeps no more than itself, a broadcast tensor no more than is there
        kept[storage.data_ptr()] = max(kept.get(storage.data_ptr(), 0), mine)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield lambda: sum(kept.values())


class _GuidedReLU(torch.autograd.Function):
    """A ReLU that lets only positive gradients back."""

    @staticmethod
    def forward(ctx: Any, value: Tensor) -> Tensor:
        kept = value.clamp_min(0)
        ctx.save_for_backward(kept)
        return kept

    @staticmethod
    def backward(ctx: Any, *gradient: Tensor) -> Tensor:
        (kept,) = ctx.saved_tensors
        return torch.where(kept > 0, gradient[0].clamp_min(0), 0)


class Guided(TorchFunctionMode):
    """While it is on, every ReLU lets only positive gradients back, however it is spelt: as a module, function or method."""

    IN_PLACE = (torch.relu_, Tensor.relu_)
    RELUS = (torch.relu, Tensor.relu, nn.functional.relu, *IN_PLACE)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func not in self.RELUS:
            return func(*args, **kwargs)
        value = args[0] if args else kwargs["input"]
        kept = _GuidedReLU.apply(value)  # type: ignore[no-untyped-call]
        in_place = func in self.IN_PLACE or (args[1] if len(args) > 1 else kwargs.get("inplace", False))
        return value.copy_(kept) if in_place else kept


# --- probabilities ---------------------------------------------------------------------------------------------------


def probability(output: Tensor, target: Tensor, config: ModelConfig) -> Tensor:
    r"""Probability of the target class, :math:`f_\theta^{\hat y}`.

    Args:
        output: rows of the model's output, [..., R, C], or [..., R] for a binary model.
        target: class of each row, [R].
        config: what the model returns.

    >>> config = ModelConfig(mode="binary_classification", task_level="graph", return_type="probs")
    >>> probability(torch.tensor([0.9, 0.2]), torch.tensor([1, 0]), config)
    tensor([0.9000, 0.8000])
    """
    if config.mode is ModelMode.binary_classification:
        sign = 2.0 * target.to(output.dtype) - 1.0
        if config.return_type is ModelReturnType.raw:
            return torch.sigmoid(sign * output)
        return torch.where(target == 1, output, 1 - output)
    if config.return_type is ModelReturnType.raw:
        output = output.softmax(-1)
    elif config.return_type is ModelReturnType.log_probs:
        output = output.exp()
    return output.gather(-1, target.expand(output.shape[:-1]).unsqueeze(-1)).squeeze(-1)


def log_odds(output: Tensor, target: Tensor, config: ModelConfig) -> Tensor:
    r"""Log-odds of the target class, :math:`\log f_\theta^{\hat y} - \log(1 - f_\theta^{\hat y})`.

    If the model returns raw scores or logarithms, their gradient lives also where the probability rounds to 0 or 1.

    Args:
        output, target, config: as in :func:`probability`.

    >>> config = ModelConfig(mode="multiclass_classification", task_level="graph", return_type="raw")
    >>> log_odds(torch.tensor([[90.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 1]), config)
    tensor([90.,  1.])
    """
    if config.mode is ModelMode.binary_classification and config.return_type is ModelReturnType.raw:
        return (2.0 * target.to(output.dtype) - 1.0) * output
    if config.mode is ModelMode.binary_classification or config.return_type is ModelReturnType.probs:
        return torch.logit(probability(output, target, config), eps=torch.finfo(output.dtype).eps)
    place = target.expand(output.shape[:-1]).unsqueeze(-1)
    others = output.scatter(-1, place, -torch.inf).logsumexp(-1)
    return (output.gather(-1, place).squeeze(-1) - others).clamp(-1e4, 1e4)  # an only class has no rival


def score(output: Tensor, target: Tensor, config: ModelConfig) -> Tensor:
    r"""Score of the target class as the model gives it: a raw output, a log-probability or a probability.

    For a binary raw output :math:`z` it is :math:`z` or :math:`-z`, so that a higher score always speaks for the class.

    Args:
        output, target, config: as in :func:`probability`.

    >>> config = ModelConfig(mode="binary_classification", task_level="graph", return_type="raw")
    >>> score(torch.tensor([3.0, 3.0]), torch.tensor([1, 0]), config)
    tensor([ 3., -3.])
    """
    if config.mode is ModelMode.binary_classification:
        return (log_odds if config.return_type is ModelReturnType.raw else probability)(output, target, config)
    return output.gather(-1, target.expand(output.shape[:-1]).unsqueeze(-1)).squeeze(-1)


def require_probabilities(output: Tensor, config: ModelConfig) -> None:
    """Raise unless an output is what the configuration says it is: scores of several classes, or their probabilities."""
    several = config.mode is not ModelMode.binary_classification
    if several and output.size(1) < 2:
        raise ModelError(
            f"A multiclass model must have at least two classes (got shape {tuple(output.shape)}). Use "
            "mode='binary_classification' if its one column is a score of yes."
        )
    if config.return_type is ModelReturnType.raw:
        return
    p = output.exp() if config.return_type is ModelReturnType.log_probs else output
    slack = torch.finfo(p.dtype).eps ** 0.5
    outside = bool((p < -slack).any() or (p > 1 + slack).any())
    if outside or (several and bool(((p.sum(-1) - 1).abs() > slack).any())):
        raise ModelError(
            f"A model with return_type='{config.return_type.value}' must return probabilities that sum to 1 (got "
            f"{float(p.min()):.3g} to {float(p.max()):.3g}). Is it return_type='raw'?"
        )


def accepts(model: nn.Module, name: str) -> bool:
    """Whether the model's forward takes an argument of that name."""
    return name in inspect.signature(model.forward).parameters


def predicted_class(output: Tensor, config: ModelConfig) -> Tensor:
    """The class that the model gives each row, [..., R]."""
    if config.mode is ModelMode.binary_classification:
        return (output > (0.0 if config.return_type is ModelReturnType.raw else 0.5)).long()
    return output.argmax(-1)


def call(model: nn.Module, inputs: Inputs, config: ModelConfig) -> Tensor:
    """The model's output as [rows, classes], or [rows] for a binary model."""
    output = model(inputs.x, inputs.edge_index, **inputs.kwargs)
    if not isinstance(output, Tensor):
        raise ModelError(f"The model must return one tensor (got {type(output).__name__}). Wrap it so that it does.")
    if not output.is_floating_point():
        raise ModelError(
            f"The model must return scores or probabilities (got {output.dtype}). Leave argmax and the like out."
        )
    if config.mode is ModelMode.binary_classification:
        if output.dim() > 1 and output.numel() != output.size(0):
            raise ModelError(
                "A binary model must return one value per row (got shape "
                f"{tuple(output.shape)}). Use mode='multiclass_classification' if its columns are classes."
            )
        return output.reshape(-1)
    if output.dim() == 1 and config.task_level is ModelTaskLevel.graph:  # one graph, classes only
        output = output.unsqueeze(0)
    if output.dim() != 2:
        raise ModelError(
            f"A multiclass model must return [rows, classes] (got shape {tuple(output.shape)}). Use "
            "mode='binary_classification' if it gives one value per row."
        )
    return output


# --- what the layers do with the edges -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Passing:
    """One call of ``propagate``: which edges a layer passed messages over.

    Args:
        layer: name of the layer.
        edge: position of each message's edge in the model's ``edge_index``, -1 for the layer's own self-loops, [M].
        edge_index: the layer's edges, [2, M].
        receiver: the row of ``edge_index`` that messages go to.
        per_edge: names of the arguments that have one entry per message.
        constant: those of them that carry no gradient although features and parameters do, so that the layer seems to have
            derived them from the graph alone.
        weighted: whether masks apply (PyG lets a user exempt a layer by ``explain = False``).
    """

    layer: str
    edge: Tensor
    edge_index: Tensor
    receiver: int
    per_edge: tuple[str, ...]
    constant: dict[str, Tensor]
    weighted: bool


def trace(model: nn.Module, inputs: Inputs, config: ModelConfig) -> tuple[Tensor, list[Passing]]:
    """Run the model once and write down every message passing step."""
    names = {id(layer): name for name, layer in layers(model).items()}
    passings: list[Passing] = []
    answered: set[int] = set()
    ran: set[int] = set()

    def on_propagate(layer: MessagePassing, args: tuple[Any, ...]) -> None:
        edge_index, _, kwargs = args
        name = names[id(layer)]
        answered.add(id(layer))
        edge = match_edges(edge_index, inputs, kwargs, name)
        per_edge = tuple(k for k, v in kwargs.items() if _is_per_edge(layer, k, v, edge.numel()))
        passings.append(
            Passing(
                layer=name,
                edge=edge,
                edge_index=edge_index,
                receiver=1 if layer.flow == "source_to_target" else 0,
                per_edge=per_edge,
                constant={k: kwargs[k].detach() for k in per_edge if not kwargs[k].requires_grad},
                weighted=layer.explain is not False,
            )
        )

    parameters = list(model.parameters())
    x = inputs.x.detach().clone()
    with ExitStack() as stack:
        stack.enter_context(torch.enable_grad())
        stack.enter_context(hooked(model, on_propagate, None))
        for layer in layers(model).values():
            stack.callback(layer.register_forward_hook(lambda module, *_: ran.add(id(module))).remove)
        try:
            for tensor in [x, *parameters]:
                if tensor.is_floating_point():
                    tensor.requires_grad_(True)
            output = call(model, replace(inputs, x=x), config)
        finally:
            for parameter in parameters:
                parameter.requires_grad_(False)
    for layer in layers(model).values():
        if id(layer) in ran - answered and not type(layer).propagate.__module__.endswith("_propagate"):
            raise ModelError(
                f"Layer '{names[id(layer)]}' ({type(layer).__name__}) has its own propagate(), which edge masks do not "
                "reach. Let it call MessagePassing.propagate, or explain features only (edge_mask_type=None)."
            )
    return output.detach(), passings


def _is_per_edge(layer: MessagePassing, name: str, value: Any, messages: int) -> bool:
    """Whether an argument of ``propagate`` has one entry per message (and is not lifted from the nodes)."""
    if not isinstance(value, Tensor) or value.dim() == 0 or value.size(0) != messages:
        return False
    used = {p for f in (layer.message, layer.aggregate, layer.update) for p in inspect.signature(f).parameters}
    return not {f"{name}_i", f"{name}_j"} & used


def match_edges(edge_index: Any, inputs: Inputs, kwargs: dict[str, Any], layer: str) -> Tensor:
    """Position in ``inputs.edge_index`` of each edge that a layer uses, -1 for self-loops of its own making."""
    if not isinstance(edge_index, Tensor) or edge_index.layout is not torch.strided or edge_index.is_floating_point():
        raise ModelError(
            f"Layer '{layer}' passes messages over a sparse matrix, which edge masks do not reach. Give the model "
            "edge_index as an integer tensor [2, E] (torch_geometric.utils.to_edge_index turns a sparse matrix into one)."
        )
    ours, device = inputs.edge_index, edge_index.device
    if edge_index.shape == ours.shape and (torch.equal(edge_index, ours) or torch.equal(edge_index, ours.flip(0))):
        return torch.arange(ours.size(1), device=device)  # as they are, or all turned round
    size = inputs.num_nodes
    x = kwargs.get("x")
    changed = isinstance(x, Tensor) and x.dim() > 1 and size not in x.shape
    proper = edge_index[0] != edge_index[1]
    theirs, own = numbered_edges(edge_index[:, proper], size), numbered_edges(ours, size)
    own_sorted, order = own.sort()
    place = torch.searchsorted(own_sorted, theirs).clamp(max=max(own.numel() - 1, 0))
    if changed or (theirs.numel() and (not own.numel() or not torch.equal(own_sorted[place], theirs))):
        raise ModelError(
            f"Layer '{layer}' passes messages over edges that are not in edge_index, or over other nodes (pooling, "
            "rewiring), so a mask over edge_index does not say which messages to weigh. Explain the part of the model "
            "before that layer, or features only (edge_mask_type=None)."
        )
    repeated = own_sorted % MULTIPLICITY > 0
    if bool(repeated.any()) and theirs.numel() != int((ours[0] != ours[1]).sum()):
        raise ModelError(
            f"Layer '{layer}' uses some of several parallel edges, and which ones cannot be told apart. Merge parallel "
            "edges with torch_geometric.utils.coalesce."
        )
    edge = torch.full((edge_index.size(1),), -1, dtype=torch.long, device=device)
    edge[proper] = order[place]
    return edge


# --- the causal model ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Way:
    """How worlds are run. Whether a way is exact is tested against :data:`PLAIN`, never assumed.

    Args:
        hops: cut the graph this many hops around the explained outputs; None keeps it whole.
        planned: look up beforehand which messages each step passes, and leave out those that cannot reach an output.
        constants: take over what layers derive from the graph alone.
        hollow: show the layers no edges at all, where all they would do with them is known.
        joint: run all worlds of all instances in one forward pass.
    """

    hops: int | None = None
    planned: bool = True
    constants: bool = True
    hollow: bool = True
    joint: bool = True


PLANS = 3
"""Plans for several worlds that are kept besides the latest."""

PLAIN = Way(planned=False, constants=False, hollow=False, joint=False)
"""The whole graph, one world at a time, all messages: slow, and right whatever the model does."""


@dataclass
class _Step:
    """What one call of ``propagate`` does in the worlds: its messages, and where their weights stand."""

    edge_index: Tensor
    weight: Tensor | None
    keep: Tensor | None
    cut: tuple[str, ...]
    constant: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Activation:
    """What a message passing layer put out in one call.

    Args:
        value: its output, [N, H].
        gradient: of the sum of all class scores with respect to it, [N, H].
        right: where the output is that of the whole graph, [N]; elsewhere it cannot matter and was not worked out.
    """

    value: Tensor
    gradient: Tensor
    right: Tensor


class Scm:
    """Y = f(E, X) for B instances.

    Args:
        model: the trained network, :func:`borrowed`.
        config: what it returns.
        instances: B instances; one if the way is not joint.
        way: how worlds are run.
        whole: message passing steps on the whole graph that the instances were cut from, if they were.
        embedded: gives the embeddings of the nodes of that graph, by the caller's number; None where each instance is a
            graph of its own.
    """

    members_at_once = 1 << 16
    """Nodes and edges of all worlds in one forward pass, where the caller can choose."""

    def __init__(
        self,
        model: nn.Module,
        config: ModelConfig,
        instances: Instances,
        way: Way = PLAIN,
        whole: Sequence[Passing] = (),
        embedded: Callable[[], Tensor] | None = None,
    ) -> None:
        self.model, self.config, self.instances, self.way = model, config, instances, way
        self._whole, self._embedded = whole, embedded
        self._plans: dict[tuple[int, bool], tuple[Tile, list[_Step]]] = {}

    def select(self, which: Tensor) -> Scm:
        """The causal model of the instances ``which``."""
        return self._of(self.instances.select(which))

    def repeated(self, number: int) -> Scm:
        """The causal model of all instances, so often; once if the way is not joint."""
        return self if number == 1 else self._of(self.instances.repeated(number))

    def _of(self, instances: Instances) -> Scm:
        some = Scm(self.model, self.config, instances, self.way, self._whole, self._embedded)
        some.members_at_once = self.members_at_once
        return some

    def embedding(self) -> Tensor:
        """Embedding of each node where nothing is masked, [N, D]: the output of the model's last message passing layer.

        It is read off the whole graph, because on a graph that was cut only the explained nodes' would be right.
        """
        if self._embedded is not None:
            return self._embedded()[self.instances.node_id]
        return embeddings(self.model, self.instances.tile(1).inputs, self.config)

    @property
    def dtype(self) -> torch.dtype:
        """Floating type of features, else of the model."""
        tensors = [self.instances.x, *self.model.parameters()]
        return next((t.dtype for t in tensors if t.is_floating_point()), torch.get_default_dtype())

    def do(self, edge: Tensor | None = None, node: Tensor | None = None) -> Tensor:
        """Probability of each instance's class in K worlds, [K, B].

        Args:
            edge: weight of each edge's messages, [K, E]; None leaves them.
            node: factor of each node's features, [K, N, 1] or [K, N, F]; None leaves them.
        """
        return self._mean(_finite(probability(self.outcome(edge, node), self.instances.target, self.config)))

    def verdict(self, edge: Tensor | None = None, node: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """What :meth:`do` gives, and which share of each instance's rows the model gives their class, each [K, B]."""
        output, target = self.outcome(edge, node), self.instances.target
        p = self._mean(_finite(probability(output, target, self.config)))
        return p, self._mean((predicted_class(output, self.config) == target).to(p.dtype))

    def log_odds(self, edge: Tensor | None = None, node: Tensor | None = None) -> Tensor:
        """Log-odds of each instance's class in K worlds, [K, B]: what :meth:`do` is the sigmoid of."""
        z = _finite(log_odds(self.outcome(edge, node), self.instances.target, self.config))  # [K, R]
        return z if z.size(1) == len(self.instances) else torch.logit(self._mean(z.sigmoid()), torch.finfo(z.dtype).eps)

    def score(self, edge: Tensor | None = None, node: Tensor | None = None) -> Tensor:
        """Score of each instance's class in K worlds, [K, B]: what gradients are usually taken of."""
        return self._mean(_finite(score(self.outcome(edge, node), self.instances.target, self.config)))

    def activations(self) -> list[Activation]:
        """What each message passing layer puts out where nothing is masked, and the gradient of the class score there."""
        tile, steps = self._plan(1, False) if self.way.planned else (self.instances.tile(1), [])
        run = self._run_planned if self.way.planned else self._run_plain
        with torch.enable_grad(), observed(self.model) as seen:
            rows = run(tile.inputs, steps, None)[tile.rows]
            total = self._mean(_finite(score(rows, self.instances.target, self.config))).sum()
        found = [(value, step) for value, step in seen if value.dim() and len(value) == self.instances.num_nodes]
        values, last = [value for value, _ in found], max([len(steps), *(step for _, step in found)])
        gradients: Sequence[Tensor] = [torch.zeros_like(value) for value in values]
        if total.requires_grad and values:
            gradients = torch.autograd.grad(total, values, allow_unused=True, materialize_grads=True)
        wide = self.instances.num_nodes, -1
        return [
            Activation(value.detach().reshape(wide), gradient.reshape(wide), self.instances.hops <= last - step)
            for (value, step), gradient in zip(found, gradients, strict=True)
        ]

    @property
    def receivers(self) -> tuple[int, ...]:
        """The rows of ``edge_index`` that messages go to."""
        return tuple(sorted({int(m.flow == "source_to_target") for m in layers(self.model).values()})) or (1,)

    def _mean(self, value: Tensor) -> Tensor:
        """Mean over each instance's rows, [K, R] to [K, B]."""
        instances = self.instances
        if value.size(1) == len(instances):
            return value
        total = value.new_zeros(len(value), len(instances)).index_add(1, instances.row_owner, value)
        return total / instances.row_ptr.diff()

    def outcome(self, edge: Tensor | None = None, node: Tensor | None = None) -> Tensor:
        """The model's output for the explained rows in K worlds, [K, R, C], or [K, R] for a binary model."""
        worlds = next((len(w) for w in (edge, node) if w is not None), 1)
        size = self._worlds_at_once(worlds)
        parts = []
        for start in range(0, worlds, size):
            # the last block is filled up, so that all blocks share the plan of a forward pass
            some = torch.arange(start, start + size, device=self.instances.x.device).clamp(max=worlds - 1)
            whole = size == worlds
            e, n = (w if w is None or whole else w[some] for w in (edge, node))
            parts.append(self._outcome(e, n, size))
        return parts[0] if len(parts) == 1 else torch.cat(parts)[:worlds]

    def _worlds_at_once(self, worlds: int) -> int:
        """One if worlds cannot share a pass; all if a gradient is needed; else as many as are fast and fit into memory."""
        if not self.way.joint:
            return 1
        if torch.is_grad_enabled():
            return worlds
        most = max(1, self.members_at_once // max(int(self.instances.sizes.sum()), 1))
        return math.ceil(worlds / math.ceil(worlds / most))

    def require_dependence(self, edges: bool, nodes: bool) -> None:
        """Raise unless the output depends on what is to be masked."""
        instances = self.instances
        if edges and not layers(self.model):
            raise ModelError(
                f"The model must pass messages over edges by torch_geometric.nn.MessagePassing layers "
                f"(found none in {type(self.model).__name__}). Explain features only: edge_mask_type=None."
            )
        if nodes and (not instances.x.is_floating_point() or instances.x.dim() != 2):
            raise ModelError(
                "A node mask scales features, so x must be floating, [nodes, features] "
                f"(got {instances.x.dtype} of shape {tuple(instances.x.shape)}). Explain edges only (node_mask_type=None), "
                "by an explainer that leaves features as they are."
            )
        edge = torch.ones(1, instances.num_edges, dtype=self.dtype, device=instances.x.device, requires_grad=True)
        node = torch.ones(1, instances.num_nodes, 1, dtype=self.dtype, device=instances.x.device, requires_grad=True)
        with torch.enable_grad():
            p = self.do(edge if edges else None, node if nodes else None).sum()
        asked = {"edges": edge} if edges and instances.num_edges else {}
        asked |= {"features": node} if nodes else {}
        for name, weight in asked.items():
            found = torch.autograd.grad(p, weight, allow_unused=True, retain_graph=True)[0] if p.requires_grad else None
            if found is None:
                argument = "edge_mask_type" if name == "edges" else "node_mask_type"
                raise ModelError(
                    f"The model's output must depend on the {name} that are to be masked (it does not, for the explained "
                    f"rows). Leave them out with {argument}=None, or check what the model does with them."
                )

    # --- one forward pass ------------------------------------------------------------------------------------------------

    def _outcome(self, edge: Tensor | None, node: Tensor | None, worlds: int) -> Tensor:
        share = node is None and self.way.hops is not None and self.instances.shareable
        tile, steps = self._plan(worlds, share) if self.way.planned else (self.instances.tile(worlds), [])
        inputs = tile.inputs
        if node is not None:
            inputs = replace(inputs, x=(self.instances.x * node).flatten(0, 1))
        weights = None if edge is None else torch.cat([edge.flatten(), edge.new_ones(1)])
        run = self._run_planned if self.way.planned else self._run_plain
        return run(inputs, steps, weights)[tile.rows]

    def _run_planned(self, inputs: Inputs, steps: list[_Step], weights: Tensor | None) -> Tensor:
        """One pass in which every step passes the messages that were planned for it."""
        number, current = 0, steps[0] if steps else None

        def on_propagate(layer: MessagePassing, args: tuple[Any, ...]) -> tuple[Any, ...]:
            nonlocal number, current
            if number >= len(steps):
                raise _branches(len(steps), number + 1)
            current, number = steps[number], number + 1
            _, size, kwargs = args
            cut = {k: kwargs[k][current.keep] for k in current.cut}
            return current.edge_index, size, {**kwargs, **cut, **current.constant}

        def on_message(layer: MessagePassing, _: Any, message: Tensor) -> Tensor | None:
            if weights is None or current is None or current.weight is None:
                return None
            return _weighed(layer, message, weights.index_select(0, current.weight))

        with hooked(self.model, on_propagate, on_message):
            output = call(self.model, inputs, self.config)
        if number < len(steps):
            raise _branches(len(steps), number)
        return output

    def _run_plain(self, inputs: Inputs, steps: list[_Step], weights: Tensor | None) -> Tensor:
        """One pass in which messages are found and weighed as they come."""
        if weights is None:
            return call(self.model, inputs, self.config)
        current = torch.empty(0)
        names = {id(layer): name for name, layer in layers(self.model).items()}

        def on_propagate(layer: MessagePassing, args: tuple[Any, ...]) -> None:
            nonlocal current
            current = match_edges(args[0], inputs, args[2], names[id(layer)])

        def on_message(layer: MessagePassing, _: Any, message: Tensor) -> Tensor | None:
            if layer.explain is False:
                return None
            return _weighed(layer, message, weights[torch.where(current < 0, len(weights) - 1, current)])

        with hooked(self.model, on_propagate, on_message):
            return call(self.model, inputs, self.config)

    # --- what is known beforehand ----------------------------------------------------------------------------------------

    def _plan(self, worlds: int, share: bool) -> tuple[Tile, list[_Step]]:
        """What to call the model with for so many worlds, and what each of its steps then passes on."""
        if (worlds, share) in self._plans:
            return self._plans[worlds, share]
        if worlds > 1 and (one := self._plan(1, share))[1] and one[0].hollow:
            plan = self._repeated(one[1], worlds, share)
        else:
            plan = self._traced(worlds, share)
        recent = [key for key in self._plans if key[0] > 1][-PLANS:]
        self._plans = {key: kept for key, kept in self._plans.items() if key[0] == 1 or key in recent} | {
            (worlds, share): plan
        }
        return plan

    def _traced(self, worlds: int, share: bool) -> tuple[Tile, list[_Step]]:
        """A plan read off a run of the model."""
        tile = self.instances.tile(worlds, leaf=self.way.hops if share else None)
        _, passings = trace(self.model, tile.inputs, self.config)
        steps = [self._step(c, p, tile, worlds, len(passings)) for c, p in enumerate(passings)]
        if self.way.hollow and all(set(p.per_edge) <= set(s.constant) for p, s in zip(passings, steps, strict=True)):
            tile = replace(tile, inputs=self.instances.without_edges(tile.inputs), hollow=True)
        return tile, steps

    def _repeated(self, steps: list[_Step], worlds: int, share: bool) -> tuple[Tile, list[_Step]]:
        """The plan of one world, as often as there are worlds; exact where the model itself is shown no edges."""
        tile = self.instances.tile(worlds, leaf=self.way.hops if share else None)
        edges, world = self.instances.num_edges, torch.arange(worlds, device=tile.rows.device).unsqueeze(1)
        own, shared = tile.own, tile.hops.numel() - worlds * tile.own

        def step(one: _Step) -> _Step:
            far = one.edge_index >= own  # nodes that all worlds share stand behind those that each has for itself
            place = one.edge_index.unsqueeze(1) + torch.where(far.unsqueeze(1), (worlds - 1) * own, world * own)
            weight = one.weight
            if weight is not None:
                weight = torch.where(weight == edges, worlds * edges, weight + world * edges).flatten()
            constant = {name: repeat_rows(value, worlds) for name, value in one.constant.items()}
            return replace(one, edge_index=place.flatten(1), weight=weight, constant=constant)

        assert shared >= 0
        return replace(tile, inputs=self.instances.without_edges(tile.inputs), hollow=True), [step(one) for one in steps]

    def _step(self, number: int, passing: Passing, tile: Tile, worlds: int, total: int) -> _Step:
        reaches = tile.hops[passing.edge_index[passing.receiver]] <= total - 1 - number
        keep = None if bool(reaches.all()) else reaches.nonzero().flatten()
        edge = passing.edge if keep is None else passing.edge[keep]
        edge_index = passing.edge_index if keep is None else passing.edge_index[:, keep]
        if not self.way.constants:
            constant = {}
        elif self.way.hops is not None:
            constant = self._constants(self._whole[number], edge, tile.node_id[edge_index[0]])
        else:
            constant = {k: v if keep is None else v[keep] for k, v in passing.constant.items()}
        own = worlds * self.instances.num_edges  # the weight of a layer's own self-loops is the last, 1
        return _Step(
            edge_index=edge_index,
            weight=torch.where(edge < 0, own, edge) if passing.weighted else None,
            keep=keep,
            cut=() if keep is None else tuple(k for k in passing.per_edge if k not in constant),
            constant=constant,
        )

    def _constants(self, there: Passing, edge: Tensor, sender: Tensor) -> dict[str, Tensor]:
        """What a layer derives from the graph alone, read off the whole graph.

        Args:
            there: the layer's step on the whole graph.
            edge: edge of each message, -1 for the layer's own self-loops, [M].
            sender: the caller's number of each message's sender, [M].
        """
        instances = self.instances
        of_loop = _where(torch.where(there.edge < 0, there.edge_index[0], -1), sender)
        place = of_loop[sender]
        if instances.num_edges:
            edge_id = instances.edge_id[edge % instances.num_edges]
            place = torch.where(edge < 0, place, _where(there.edge, edge_id)[edge_id])
        return {name: value[place] for name, value in there.constant.items()}


def _finite(value: Tensor) -> Tensor:
    if not bool(torch.isfinite(value).all()):
        raise ModelError(
            "The model's output must stay finite when messages or features are scaled down (got NaN or infinity, as a "
            "division by a sum that becomes 0 gives). Guard the division, e.g. with clamp(min=1e-12)."
        )
    return value


def _where(items: Tensor, asked: Tensor) -> Tensor:
    """Position of each number in ``items``, for all up to the largest there or ``asked`` for; -1 if it is not there."""
    size = max((int(some.max()) + 1 for some in (items, asked) if some.numel()), default=0)
    place = torch.full((size,), -1, dtype=torch.long, device=items.device)
    there = (items >= 0).nonzero().flatten()
    place[items[there]] = there
    return place


def _branches(planned: int, got: int) -> ModelError:
    return ModelError(
        f"The model must pass messages equally often in every world (got {got} steps where there were {planned}), but what "
        "it does depends on the values in its input. Take the branch out of forward()."
    )


def _weighed(layer: MessagePassing, message: Tensor, weight: Tensor) -> Tensor:
    """Messages times their weights."""
    axis = layer.node_dim % message.dim()
    return message * weight.view([-1 if d == axis else 1 for d in range(message.dim())])


# --- checks ----------------------------------------------------------------------------------------------------------


def close(a: Tensor, b: Tensor, config: ModelConfig) -> Tensor:
    """Row by row, whether two outputs of the model agree up to rounding, in all worlds if there are several, [R]."""
    if config.mode is ModelMode.binary_classification:
        a, b = a.unsqueeze(-1), b.unsqueeze(-1)
    scale = torch.finfo(a.dtype).eps ** 0.6 * (1 + b.abs().amax(-1, keepdim=True))
    near: Tensor = ((a - b).abs() <= scale).all(-1)  # [..., R]
    return near.all(0) if near.dim() > 1 else near
