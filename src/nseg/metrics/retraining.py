"""Measures that train the network on changed graphs, so that these are nothing unusual to it: F-Fidelity and GInX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy, deepcopy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.explain import Explainer, Explanation

from nseg.errors import InputError
from nseg.explanation import copy_explanation
from nseg.metrics.budget import elements, highest
from nseg.metrics.fidelity import Evaluator

TrainStep = Callable[[nn.Module, list[Data]], None]
"""Changes a network by one epoch of training on some graphs."""

Trainer = Callable[[list[Data]], nn.Module]
"""A network trained from scratch on graphs, which takes x, edge_index and batch and returns class scores."""


def f_fidelity(
    explainer: Explainer,
    data: Data | Sequence[Data],
    explanations: Sequence[Explanation],
    train_step: TrainStep | None = None,
    share: float = 0.1,
    epochs: int = 20,
    seed: int = 0,
    **options: Any,
) -> dict[str, float]:
    r"""Robust fidelity on a copy of the network that was fine-tuned on graphs without a random share of their edges.

    Fidelity asks a network about graphs unlike those that it was trained on. After fine-tuning on randomly thinned ones
    they are no longer unusual, so a change of the class speaks about the explanation. The caller's network is not changed.

    Reference: Zheng et al., *F-Fidelity: A Robust Framework for Faithfulness Evaluation of Explainable AI*, ICLR 2025.
    Deviation: the shares of edges that go are those of robust fidelity, without the paper's limit by the thinned share.

    Args:
        explainer, data, explanations: as for :class:`nseg.metrics.Evaluator`.
        train_step: one epoch on thinned graphs; None: one step of Adam (0.001) on the cross-entropy to what the network
            itself predicts on whole graphs.
        share: share of the edges that is left out, at random, in each epoch.
        epochs: number of epochs.
        seed: of the edges that are left out.
        **options: of :meth:`nseg.metrics.Evaluator.robust_fidelity`.
    """
    if not 0 <= share < 1 or epochs < 0:
        raise InputError(f"share must be at least 0 and below 1, epochs at least 0 (got {share} and {epochs}).")
    graphs = [data] if isinstance(data, Data) else list(data)
    tuned = tuned_on_thinned(explainer.model, graphs, train_step, share, epochs, seed)
    return fidelity_on(tuned, explainer, data, explanations, **options)


def tuned_on_thinned(
    model: nn.Module, graphs: Sequence[Data], train_step: TrainStep | None, share: float, epochs: int, seed: int
) -> nn.Module:
    """A copy of the network, fine-tuned on graphs without a random share of their edges."""
    tuned = deepcopy(model)
    step = train_step or own_predictions(tuned, graphs)
    rng = torch.Generator().manual_seed(seed)
    tuned.train()
    for _ in range(epochs):
        step(tuned, [_without_random_pairs(graph, share, rng) for graph in graphs])
    return tuned.eval()


def fidelity_on(
    tuned: nn.Module, explainer: Explainer, data: Data | Sequence[Data], explanations: Sequence[Explanation], **options: Any
) -> dict[str, float]:
    """Robust fidelity of explanations on another network than the one that was explained."""
    other, found = copy(explainer), [copy_explanation(one) for one in explanations]
    other.model = tuned
    for one in found:
        one.prediction = None  # of the network before
    return Evaluator(other, data, found).robust_fidelity(**options)


def own_predictions(tuned: nn.Module, graphs: Sequence[Data], lr: float = 0.001) -> TrainStep:
    """A step of Adam towards the classes that a network predicts on whole graphs before the first step."""
    tuned.eval()
    with torch.no_grad():
        classes = torch.cat([tuned(graph.x, graph.edge_index).argmax(-1) for graph in graphs])
    optimiser = torch.optim.Adam(tuned.parameters(), lr)

    def step(network: nn.Module, thinned: list[Data]) -> None:
        optimiser.zero_grad()
        output = torch.cat([network(graph.x, graph.edge_index) for graph in thinned])
        torch.autograd.backward(F.cross_entropy(output, classes))
        optimiser.step()

    return step


def _without_random_pairs(graph: Data, share: float, rng: torch.Generator) -> Data:
    """A copy without a random share of the edges, both directions together."""
    low, high = graph.edge_index.min(0).values, graph.edge_index.max(0).values
    pair = torch.unique(low * int(graph.num_nodes) + high, return_inverse=True)[1]
    number = int(pair.max()) + 1 if pair.numel() else 0
    kept = (torch.rand(number, generator=rng) >= share).to(pair.device)[pair]
    return graph.edge_subgraph(kept)


def retraining_drop(
    graphs: Sequence[Data],
    explanations: Sequence[Explanation],
    train: Trainer,
    held_out: Tensor,
    shares: Sequence[float] = (0.1, 0.3, 0.5),
) -> Tensor:
    """Accuracy that is lost if the network is trained anew on graphs without the highest share of each ranking, [T].

    If what was left out carried the class, no network can learn it any more; if the rest carries it too, accuracy stays.
    Higher is better for small shares. The first training, on whole graphs, is what others are compared with.

    Reference: Amara, El-Assady and Ying, *GInX-Eval: Towards In-Distribution Evaluation of Graph Neural Network
    Explanations*, NeurIPS 2023 workshop XAI in Action. Deviation: networks are trained anew; the paper fine-tunes the given
    one.

    Args:
        graphs: labelled graphs, with ``y``.
        explanations: one of each, of edges.
        train: makes a network from training graphs.
        held_out: whether each graph is kept from training, to measure accuracy, [G].
        shares: shares of the elements within reach that are left out.
    """
    if len(graphs) != len(explanations) or held_out.shape != (len(graphs),) or not bool(held_out.any()):
        raise InputError(
            "retraining_drop needs an explanation for each graph and some graphs held out (got "
            f"{len(graphs)} graphs, {len(explanations)} explanations, {int(held_out.sum())} held out)."
        )
    pairs = list(zip(graphs, explanations, strict=True))

    def accuracy(share: float) -> float:
        less = [without_highest(graph, one, share) for graph, one in pairs]
        network = train([graph for graph, out in zip(less, held_out.tolist(), strict=True) if not out]).eval()
        batch = Batch.from_data_list([graph for graph, out in zip(less, held_out.tolist(), strict=True) if out])
        with torch.no_grad():
            right = network(batch.x, batch.edge_index, batch=batch.batch).argmax(-1) == batch.y
        return float(right.float().mean())

    whole = accuracy(0.0)
    return torch.tensor([whole - accuracy(share) for share in shares])


def without_highest(graph: Data, one: Explanation, share: float) -> Data:
    """The graph without the highest share of an explanation's elements."""
    element = elements(one)
    number = round(share * (int(element.max()) + 1 if element.numel() else 0))
    gone = one.edge_id[highest(one, element, number, hard_first=False)]
    kept = torch.ones(int(graph.num_edges), dtype=torch.bool, device=gone.device).index_fill(0, gone, False)
    return graph.edge_subgraph(kept)
