"""PGExplainer: a network that reads an edge's weight off the embeddings of its ends, trained once for all instances."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.explain import Explainer

from nseg.baselines.scores import mean_of_directions
from nseg.errors import InputError, SettingsError, UnsupportedError
from nseg.explain.algorithm import BatchedAlgorithm
from nseg.explain.jobs import BUDGET
from nseg.explain.many import open_causal_models
from nseg.explain.progress import progress_bar
from nseg.graphs.batch import InstanceBatch
from nseg.model.causal import CausalModel
from nseg.search.descent import Tick
from nseg.search.formulas import entropy, size
from nseg.search.harden import SearchResult
from nseg.search.noise import PartNoise
from nseg.search.parts import EDGES, MaskParts, Masks
from nseg.search.settings import BaseSettings, integer_field, number_field


@dataclass(frozen=True, kw_only=True)
class PGExplainerSettings(BaseSettings):
    """All that determines a PGExplainer besides model and data; see also :class:`nseg.search.settings.BaseSettings`.

    Args:
        epochs: how often each instance is seen in training.
        lr: step size of Adam.
        batch: instances per step of Adam; None takes all of them, one step per epoch, as the authors' code does.
        size: price of one kept edge.
        entropy: price of the mask's mean entropy.
        warm: temperature of the first epoch's samples.
        cool: temperature that it falls to.
        hidden: width of the network.
    """

    epochs: int = integer_field(30)
    lr: float = number_field(0.003)
    batch: int | None = integer_field(None, 1)
    size: float = number_field(0.05)
    entropy: float = number_field(1.0)
    warm: float = number_field(5.0, 1e-3)
    cool: float = number_field(2.0, 1e-3)
    hidden: int = integer_field(64, 1)


SIZES = {"ba-shapes": 0.01, "tree-cycles": 0.01, "tree-grid": 0.01, "ba-2motif": 0.05, "mutagenicity": 0.05, "msrc-21": 0.05}
"""Price of one edge by dataset: the NSEG paper's, appendix "Baselines", which leaves BA2Motif out: as other graphs here."""


# --- the equations -----------------------------------------------------------------------------------------------------


def temperature(warm: float, cool: float, progress: float) -> float:
    r"""Annealed temperature, :math:`\tau_t = \tau_0 (\tau_T / \tau_0)^{t / T}`, at a share t / T of the training.

    >>> [temperature(4.0, 1.0, t) for t in (0.0, 0.5, 1.0)]
    [4.0, 2.0, 1.0]
    """
    return float(warm * (cool / warm) ** progress)


def concrete(logits: Tensor, u: Tensor, tau: float) -> Tensor:
    r"""Logits of a sampled mask, :math:`(\log u - \log(1 - u) + \omega) / \tau`, with u uniform (Luo et al., Eq. 4).

    >>> concrete(torch.tensor([2.0]), torch.tensor([0.5]), 4.0)
    tensor([0.5000])
    """
    return (torch.logit(u, eps=torch.finfo(u.dtype).eps) + logits) / tau


def descriptions(instances: InstanceBatch, z: Tensor) -> Tensor:
    """What the network sees of each edge, [E, D']: the embeddings of its ends, and of the nodes that are explained.

    Where an instance has several rows, the means of theirs.

    Args:
        instances: B instances.
        z: embedding of each node, [N, D].
    """
    columns = list(z[instances.edge_index])
    for nodes in () if (explained := instances.explained_nodes) is None else explained:
        total = z.new_zeros(len(instances), z.size(1)).index_add(0, instances.row_owner, z[nodes])
        columns.append((total / instances.row_ptr.diff().unsqueeze(1))[instances.edge_owner])
    return torch.cat(columns, 1)


@dataclass(frozen=True)
class Lesson:
    """Some instances to learn from.

    Args:
        causal, parts: the instances and their elements.
        edges: what the network sees of each edge, [E, D'].
        noise: their random numbers.
    """

    causal: CausalModel
    parts: MaskParts
    edges: Tensor
    noise: PartNoise

    def loss(self, network: nn.Module, settings: PGExplainerSettings, epoch: int) -> Tensor:
        r"""The loss of each instance under one sampled mask, [B] (Luo et al., Eq. 8 and their regularisers)."""
        logits = mean_of_directions(self.parts.edges, network(self.edges))
        tau = temperature(settings.warm, settings.cool, epoch / settings.epochs)
        gate = concrete(logits, self.noise.draw(epoch), tau)
        mask = Masks({EDGES: gate.sigmoid()})
        z = self.causal.log_odds(self.parts.to_weights(mask.map(lambda m: m.unsqueeze(0))))[0]
        owner, number = self.parts.edges.owner, len(self.causal.instances)
        mean_entropy = size(entropy(gate), owner, number) / owner.bincount(minlength=number).clamp_min(1)
        return -F.logsigmoid(z) + settings.size * self.parts.size(mask) + settings.entropy * mean_entropy


class Network(nn.Module):
    """Two layers that turn what is known of an edge into its logit, [E, D'] to [E].

    Drawn uniformly as Glorot has it, and without moving the global random state.
    """

    def __init__(self, width: int, hidden: int, seed: int) -> None:
        super().__init__()
        rng = torch.Generator().manual_seed(seed % (1 << 63))
        with torch.random.fork_rng(devices=[]):
            self.first, self.last = nn.Linear(width, hidden), nn.Linear(hidden, 1)
        for layer in (self.first, self.last):
            nn.init.xavier_uniform_(layer.weight, generator=rng)
            nn.init.zeros_(layer.bias)

    def forward(self, edges: Tensor) -> Tensor:
        logits: Tensor = self.last(self.first(edges).relu())
        return logits.squeeze(1)


# --- the explainer -----------------------------------------------------------------------------------------------------


class PGExplainer(BatchedAlgorithm):
    r"""PGExplainer: one small network, trained once over many instances, tells each edge's weight from embeddings.

    .. math::
        \omega_{ij} = \mathrm{MLP}([z_i, z_j, z_v]), \qquad
        \min_{\mathrm{MLP}} \sum_{\text{instances}} \mathbb{E}_u \bigl[-\log p(\hat y \mid \hat m) +
        \alpha \|\hat m\|_1 + \beta\, \overline{H}(\hat m)\bigr], \qquad
        \hat m = \sigma\bigl((\log u - \log(1 - u) + \omega) / \tau_t\bigr)

    with the temperature annealed from ``warm`` to ``cool``. The embeddings z are the output of the model's last message
    passing layer on the whole graph; v is the explained node, both ends of an explained link, and absent for graphs. The
    weight of an edge is :math:`\sigma(\omega_{ij})`, between 0 and 1; with ``undirected``, :math:`\omega` is averaged
    over both directions.

    Call :meth:`fit` once; then any instance of that model is explained without further training::

        explainer = Explainer(model, PGExplainer(seed=0), explanation_type="model", edge_mask_type="object", ...)
        explainer.algorithm.fit(explainer, data, index=range(300, 700))
        explanation = explainer(data.x, data.edge_index, index=10)

    Args:
        **settings: any field of :class:`PGExplainerSettings`; a misspelt one is a ``TypeError``.

    Reference: Luo et al., *Parameterized Explainer for Graph Neural Network*, NeurIPS 2020. Cost: ``epochs`` forward and
    backward passes over all training instances, then one pass of the network per instance. InstanceBatch and embeddings of
    the training set are held in memory, activations only for as many as fit the budget.

    Deviations. Training is over the edges whose messages reach the output, not over all edges of a subgraph, as the others
    change nothing but the price. The mean entropy is over an instance's edges (in the authors' code over all pairs of nodes,
    which all but removes it). Gradients are of the mean over a step's instances and not clipped. With ``undirected`` one
    number is drawn for both directions of an edge, where the authors draw two and average the masks.

    Mind that only sufficiency is learnt: where the model gives the class without any edge, the empty mask is a minimum.

    >>> PGExplainer(epochs=10)
    PGExplainer(epochs=10)
    """

    Settings = PGExplainerSettings

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.network: Network | None = None

    @classmethod
    def paper(cls, dataset: str, **changes: Any) -> PGExplainer:
        """The NSEG paper's settings for a dataset, e.g. ``PGExplainer.paper("tree-grid")``.

        Args:
            dataset: ba-shapes, tree-cycles, tree-grid, ba-2motif (of which the paper says nothing), mutagenicity or msrc-21.
            **changes: settings to change, such as ``seed=3``.
        """
        if dataset not in SIZES:
            raise SettingsError(f"The paper has no settings for {dataset!r} (got that name). Known: {', '.join(SIZES)}.")
        plain = {"size": SIZES[dataset], "undirected": True, "extract": "threshold", "threshold": 0.5}
        return cls(**{**plain, **changes})

    def supports(self) -> bool:
        """Edge masks of classification models at any level."""
        if self.explainer_config.node_mask_type is not None or self.explainer_config.edge_mask_type is None:
            raise UnsupportedError(
                "PGExplainer weighs edges only (got another mask type). Use edge_mask_type='object', node_mask_type=None."
            )
        return super().supports()

    def worlds(self, parts: MaskParts) -> int:
        return 2  # the sampled one, and as much again for the network over the edges

    # --- learning --------------------------------------------------------------------------------------------------------

    def fit(
        self,
        explainer: Explainer,
        data: Data | Sequence[Data],
        index: Any = None,
        *,
        target: Any = None,
        budget: int = BUDGET,
        progress: bool | None = None,
        **kwargs: Any,
    ) -> Tensor:
        """Train the network, from scratch, over many instances.

        Args:
            explainer: the ``Explainer`` that holds this algorithm.
            data, index, target, budget, progress, **kwargs: as :func:`nseg.explain_many` takes them.

        Returns:
            mean loss over the instances, epoch by epoch, [epochs].
        """
        if explainer.algorithm is not self:
            raise InputError(
                "fit needs the Explainer that holds this PGExplainer (got another). Use explainer.algorithm.fit."
            )
        with open_causal_models(explainer, data, index, target=target, budget=budget, **kwargs) as models:
            steps = self._lessons(models)
            first = steps[0][0]
            network = Network(first.edges.size(1), self.settings.hidden, self.settings.seed).to(first.edges)
            with progress_bar(progress, "fitting") as bar:
                advance = bar(self.settings.epochs * sum(len(one.causal.instances) for step in steps for one in step))
                trace = _train(network, steps, self.settings, advance)
        self.network = network.requires_grad_(False)
        return trace

    def _lessons(self, models: Iterable[tuple[Tensor, CausalModel]]) -> list[list[Lesson]]:
        """The instances of each step of Adam, whatever pieces the memory budget cuts them into."""
        steps: dict[int, list[Lesson]] = {}
        for numbers, causal in models:
            z = causal.embeddings()
            step = torch.zeros_like(numbers) if self.settings.batch is None else numbers // self.settings.batch
            for one in torch.unique(step).tolist():
                mine = (step == one).nonzero().flatten().to(z.device)
                some = causal.select(mine)
                parts = self.parts(some.instances)
                edges = descriptions(some.instances, z[torch.isin(causal.instances.node_owner, mine)])
                noise = PartNoise.of(parts.edges, self.settings.seed, causal.dtype)
                steps.setdefault(one, []).append(Lesson(some, parts, edges, noise))
        return [steps[number] for number in sorted(steps)]

    # --- explaining ------------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def solve(self, causal: CausalModel, parts: MaskParts, tick: Tick) -> SearchResult:
        if self.network is None:
            raise InputError(
                "PGExplainer must learn before it explains. Call explainer.algorithm.fit(explainer, data) first."
            )
        edges, known = descriptions(causal.instances, causal.embeddings()), self.network.first.weight
        if edges.size(1) != known.size(1):
            raise InputError(
                f"PGExplainer must be fitted on the model that it explains: it knows edges by {known.size(1)} "
                f"numbers (got {edges.size(1)} from this model). Call fit for this model."
            )
        logits = self.network.to(edges.device)(edges.to(known.dtype))
        tick()
        return SearchResult(Masks({EDGES: mean_of_directions(parts.edges, logits).sigmoid().to(causal.dtype)}))

    # --- keeping ---------------------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write network and settings as safetensors."""
        if self.network is None:
            raise InputError("PGExplainer must learn before it is saved. Call fit first.")
        note = {
            "kind": KIND,
            "settings": json.dumps(self.settings.as_plain_data()),
            "width": str(self.network.first.in_features),
        }
        save_file({name: value.contiguous() for name, value in self.network.state_dict().items()}, path, metadata=note)

    @classmethod
    def load(cls, path: str | Path) -> PGExplainer:
        """What :meth:`save` wrote."""
        if not Path(path).is_file():
            raise InputError(f"A saved PGExplainer must be a file (got {path}, which is none). Check the path.")
        try:
            with safe_open(path, framework="pt") as file:
                note, names = file.metadata() or {}, list(file.keys())
                state = {name: file.get_tensor(name) for name in names}
            if note.get("kind") != KIND:
                raise ValueError("other weights")
            made = cls(**json.loads(note["settings"]))
            network = Network(int(note["width"]), made.settings.hidden, made.settings.seed).to(state["first.weight"].dtype)
            network.load_state_dict(state)
        except (SafetensorError, OSError, KeyError, ValueError, TypeError, RuntimeError) as error:
            raise InputError(
                f"{Path(path).name} must be what PGExplainer.save wrote (got something else: {error}). Fit and save again."
            ) from error
        made.network = network.requires_grad_(False)
        return made


KIND = "nseg.baselines.PGExplainer"


def _train(network: nn.Module, steps: list[list[Lesson]], settings: PGExplainerSettings, advance: Any) -> Tensor:
    """Mean loss of each epoch, [epochs]; the pieces of a step share one step of Adam."""
    optimiser = torch.optim.Adam(network.parameters(), lr=settings.lr)
    everything = sum(len(one.causal.instances) for step in steps for one in step)
    trace = []
    for epoch in range(settings.epochs):
        total = 0.0
        for step in steps:
            optimiser.zero_grad()
            number = sum(len(one.causal.instances) for one in step)
            for one in step:
                loss = one.loss(network, settings, epoch).sum()
                torch.autograd.backward(loss / number)
                total += float(loss.detach())
                advance(len(one.causal.instances))
            optimiser.step()
        trace.append(total / everything)
    return torch.tensor(trace)
