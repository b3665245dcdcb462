"""PGExplainer: a network that predicts edge weights from node embeddings, trained once for all instances."""

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
from nseg.search.settings import BaseSettings, flag_field, integer_field, number_field


@dataclass(frozen=True, kw_only=True)
class PGExplainerSettings(BaseSettings):
    """Settings of PGExplainer, besides those of :class:`nseg.search.settings.BaseSettings`.

    Args:
        epochs: number of passes over the training instances.
        lr: learning rate of Adam.
        batch: instances per step of Adam; None: all of them, one step per epoch, as in the authors' code.
        share: price of keeping all edges of an instance; a part of them costs its share.
        size: price of one kept edge, on top of that.
        entropy: price of the mean entropy of the mask.
        warm: temperature of the samples in the first epoch.
        cool: temperature at the end of training.
        start: initial logit of every edge, before its own part, which is near 0.
        hidden: width of the hidden layer.
        standardise: give the network embeddings of mean 0 and deviation 1 over the training edges.
        growing: prices grow from 0 to their value during training, instead of being paid in full at once.
    """

    epochs: int = integer_field(100)
    lr: float = number_field(0.01)
    batch: int | None = integer_field(None, 1)
    share: float = number_field(0.5)
    size: float = number_field(0.0)
    entropy: float = number_field(0.0)
    warm: float = number_field(1.0, 1e-3)
    cool: float = number_field(1.0, 1e-3)
    start: float = number_field(3.0, -20, 20)
    hidden: int = integer_field(64, 1)
    standardise: bool = flag_field(True)
    growing: bool = flag_field(True)


FILE_KIND = "nseg.baselines.PGExplainer"
AUTHORS: dict[str, Any] = {
    **{"epochs": 30, "lr": 0.003, "share": 0.0, "size": 0.01, "entropy": 1.0, "warm": 5.0, "cool": 2.0, "start": 0.0},
    **{"standardise": False, "growing": False},
}
"""The authors' training, with the NSEG paper's price of an edge for node datasets (0.05 for graphs)."""

PAPER: dict[str, dict[str, Any]] = {
    "ba-shapes": AUTHORS,
    "tree-cycles": {},
    "tree-grid": {},
    "ba-2motif": {},
    "mutagenicity": {},
    "msrc-21": {},
}
"""Settings by dataset; the defaults wherever the authors' training ends with empty masks, or nearly so."""


# --- the equations -----------------------------------------------------------------------------------------------------


def temperature(warm: float, cool: float, progress: float) -> float:
    r"""Annealed temperature, :math:`\tau_t = \tau_0 (\tau_T / \tau_0)^{t / T}`, after a share t / T of the training.

    >>> [temperature(4.0, 1.0, t) for t in (0.0, 0.5, 1.0)]
    [4.0, 2.0, 1.0]
    """
    return float(warm * (cool / warm) ** progress)


def concrete_logits(logits: Tensor, u: Tensor, tau: float) -> Tensor:
    r"""Logits of a sampled mask, :math:`(\log u - \log(1 - u) + \omega) / \tau`, with u uniform (Luo et al., Eq. 4).

    >>> concrete_logits(torch.tensor([2.0]), torch.tensor([0.5]), 4.0)
    tensor([0.5000])
    """
    return (torch.logit(u, eps=torch.finfo(u.dtype).eps) + logits) / tau


def edge_inputs(instances: InstanceBatch, z: Tensor) -> Tensor:
    """The network's input for each edge, [E, D']: embeddings of its end nodes and of the explained nodes.

    If an instance has several explained rows, the mean over its rows.

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
class TrainingBatch:
    """Some training instances that fit into memory together.

    Args:
        causal, parts: the instances and the parts of their masks.
        edges: the network's input for each edge, [E, D'].
        noise: random numbers of the edges.
    """

    causal: CausalModel
    parts: MaskParts
    edges: Tensor
    noise: PartNoise

    @property
    def number(self) -> int:
        """Number of instances."""
        return len(self.causal.instances)

    def loss(self, network: nn.Module, settings: PGExplainerSettings, epoch: int) -> Tensor:
        r"""Loss of each instance for one sampled mask, [B] (Luo et al., Eq. 8, with their regularisers)."""
        logits = mean_of_directions(self.parts.edges, network(self.edges))
        tau = temperature(settings.warm, settings.cool, epoch / settings.epochs)
        gate = concrete_logits(logits, self.noise.draw(epoch), tau)
        mask = Masks({EDGES: gate.sigmoid()})
        z = self.causal.log_odds(self.parts.to_weights(mask.map(lambda m: m.unsqueeze(0))))[0]
        owner = self.parts.edges.owner
        mean_entropy = size(entropy(gate), owner, self.number) / owner.bincount(minlength=self.number).clamp_min(1)
        kept = self.parts.size(mask)  # edges; an element may be both directions of one
        price = settings.size * kept + settings.share * kept / self.parts.edges.scale(whole_graph=False)
        grown = epoch / settings.epochs if settings.growing else 1.0
        return -F.logsigmoid(z) + grown * (price + settings.entropy * mean_entropy)


class EdgeNetwork(nn.Module):
    """Two layers from the input of an edge, shifted and scaled, to its logit, [E, D'] to [E].

    Weights are initialised as by Glorot, uniformly, from the seed; the global random state is not changed.

    Args:
        width, hidden: number of inputs and of hidden units.
        seed: of the weights.
        start: initial bias of the logits.
    """

    mean: Tensor
    deviation: Tensor

    def __init__(self, width: int, hidden: int, seed: int, start: float = 0.0) -> None:
        super().__init__()
        rng = torch.Generator().manual_seed(seed % (1 << 63))
        with torch.random.fork_rng(devices=[]):
            self.first, self.last = nn.Linear(width, hidden), nn.Linear(hidden, 1)
        for layer in (self.first, self.last):
            nn.init.xavier_uniform_(layer.weight, generator=rng)
            nn.init.zeros_(layer.bias)
        nn.init.constant_(self.last.bias, start)
        self.register_buffer("mean", torch.zeros(width, device="cpu"))
        self.register_buffer("deviation", torch.ones(width, device="cpu"))

    def standardise(self, some: Sequence[Tensor]) -> None:
        """Shift and scale inputs so that these, [E, D'] each, have mean 0 and deviation 1; constant ones are not scaled."""
        count = sum(len(edges) for edges in some)
        mean = torch.stack([edges.double().sum(0) for edges in some]).sum(0) / count
        deviation = (torch.stack([(edges - mean).square().sum(0) for edges in some]).sum(0) / count).sqrt()
        self.mean.copy_(mean)
        self.deviation.copy_(torch.where(deviation > 1e-3 * deviation.max(), deviation, 1.0))

    def forward(self, edges: Tensor) -> Tensor:
        logits: Tensor = self.last(self.first((edges - self.mean) / self.deviation).relu())
        return logits.squeeze(1)


# --- the explainer -----------------------------------------------------------------------------------------------------


class PGExplainer(BatchedAlgorithm):
    r"""One small network, trained over many instances, that predicts edge weights from embeddings.

    .. math::
        \omega_{ij} = \mathrm{MLP}([z_i, z_j, z_v]), \qquad
        \min_{\mathrm{MLP}} \sum_{\text{instances}} \mathbb{E}_u \bigl[-\log p(\hat y \mid \hat m) +
        \alpha\, \overline{\hat m} + \beta\, \overline{H}(\hat m)\bigr], \qquad
        \hat m = \sigma\bigl((\log u - \log(1 - u) + \omega) / \tau_t\bigr)

    with the temperature annealed from ``warm`` to ``cool``. The embeddings z are the output of the model's last message
    passing layer on the whole graph; v is the explained node, both ends of an explained link, or absent for graphs. The
    weight of an edge is :math:`\sigma(\omega_{ij})`, between 0 and 1; with ``undirected``, :math:`\omega` is averaged
    over both directions.

    Call :meth:`fit` once; any instance of that model is then explained without further training::

        explainer = Explainer(model, PGExplainer(seed=0), explanation_type="model", edge_mask_type="object", ...)
        explainer.algorithm.fit(explainer, data, index=range(300, 700))
        explanation = explainer(data.x, data.edge_index, index=10)

    Args:
        **settings: any field of :class:`PGExplainerSettings`; a misspelt one is a ``TypeError``.

    Reference: Luo et al., *Parameterized Explainer for Graph Neural Network*, NeurIPS 2020. Cost: ``epochs`` forward and
    backward passes over all training instances, then one pass of the network per instance. Instances and embeddings of the
    training set are kept in memory, activations only of as many instances as fit the budget.

    Deviations. The authors pay for each edge; with many edges an empty mask is then cheaper than any that keeps the
    prediction, and masks end empty. Here the share of edges is paid, which costs at most ``share`` (``size`` is the
    authors' price), and prices grow during training (``growing``): paid at once, more masks of BA2Motif end empty.
    Embeddings are standardised (``standardise``): rankings are better on trees and molecules. Masks start near 1 instead
    of 1/2, because of some networks half a mask is worse than none. The entropy is averaged over the edges of an instance
    (in the authors' code over all pairs of nodes, which makes it negligible) and left out by default. Training uses the
    edges whose messages reach the output; the others change nothing but the price. The gradient is that of the mean over a
    step's instances, and not clipped. With ``undirected`` one number is drawn for both directions of an edge; the authors
    draw two and average the masks.

    Only sufficiency is learnt: if the model predicts the class without any edge, the empty mask is a minimum.

    >>> PGExplainer(epochs=10)
    PGExplainer(epochs=10)
    """

    Settings = PGExplainerSettings

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.network: EdgeNetwork | None = None

    @classmethod
    def paper(cls, dataset: str, **changes: Any) -> PGExplainer:
        """As the NSEG paper uses it on a dataset, e.g. ``PGExplainer.paper("tree-grid")``: whole edges, cut at 0.5.

        The paper's prices of an edge are used on BA-Shapes only (:data:`AUTHORS`); on the others masks would end empty.

        Args:
            dataset: ba-shapes, tree-cycles, tree-grid, ba-2motif (not in the paper), mutagenicity or msrc-21.
            **changes: settings to change, such as ``seed=3``.
        """
        if dataset not in PAPER:
            raise SettingsError(f"The paper has no settings of PGExplainer for {dataset!r}. Known: {', '.join(PAPER)}.")
        defaults = {"undirected": True, "extract": "threshold", "threshold": 0.5}
        return cls(**{**PAPER[dataset], **defaults, **changes})

    def supports(self) -> bool:
        """Whether model and masks are supported: classification at any level, edge masks only."""
        if self.explainer_config.node_mask_type is not None or self.explainer_config.edge_mask_type is None:
            raise UnsupportedError(
                "PGExplainer scores edges only (got another mask type). Use edge_mask_type='object', node_mask_type=None."
            )
        return super().supports()

    def worlds(self, parts: MaskParts) -> int:
        return 2  # one sampled world, and about as much memory for the network over the edges

    # --- training --------------------------------------------------------------------------------------------------------

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
        """Train the network from scratch over many instances.

        Args:
            explainer: the ``Explainer`` that holds this algorithm.
            data, index, target, budget, progress, **kwargs: as in :func:`nseg.explain_many`.

        Returns:
            mean loss over the instances in each epoch, [epochs].
        """
        if explainer.algorithm is not self:
            raise InputError(
                "fit needs the Explainer that holds this PGExplainer (got another). Use explainer.algorithm.fit."
            )
        with open_causal_models(explainer, data, index, target=target, budget=budget, **kwargs) as models:
            steps = self._training_batches(models)
            edges, settings = steps[0][0].edges, self.settings
            network = EdgeNetwork(edges.size(1), settings.hidden, settings.seed, settings.start).to(edges)
            if settings.standardise:
                network.standardise([batch.edges for step in steps for batch in step])
            with progress_bar(progress, "fitting") as bar:
                advance = bar(self.settings.epochs * sum(batch.number for step in steps for batch in step))
                trace = _train(network, steps, self.settings, advance)
        self.network = network.requires_grad_(False)
        return trace

    def _training_batches(self, models: Iterable[tuple[Tensor, CausalModel]]) -> list[list[TrainingBatch]]:
        """The instances of each step of Adam, in one or more batches as the memory budget allows."""
        steps: dict[int, list[TrainingBatch]] = {}
        for numbers, causal in models:
            z = causal.embeddings()
            step = torch.zeros_like(numbers) if self.settings.batch is None else numbers // self.settings.batch
            for number in torch.unique(step).tolist():
                which = (step == number).nonzero().flatten().to(z.device)
                some = causal.select(which)
                parts = self.parts(some.instances)
                edges = edge_inputs(some.instances, z[torch.isin(causal.instances.node_owner, which)])
                noise = PartNoise.of(parts.edges, self.settings.seed, causal.dtype)
                steps.setdefault(number, []).append(TrainingBatch(some, parts, edges, noise))
        return [steps[number] for number in sorted(steps)]

    # --- explaining ------------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def solve(self, causal: CausalModel, parts: MaskParts, tick: Tick) -> SearchResult:
        if self.network is None:
            raise InputError(
                "PGExplainer must be fitted before it explains. Call explainer.algorithm.fit(explainer, data) first."
            )
        edges, weight = edge_inputs(causal.instances, causal.embeddings()), self.network.first.weight
        if edges.size(1) != weight.size(1):
            raise InputError(
                f"PGExplainer must be fitted on the model that it explains: its network expects {weight.size(1)} numbers "
                f"per edge (got {edges.size(1)} from this model). Call fit for this model."
            )
        logits = self.network.to(edges.device)(edges.to(weight.dtype))
        tick()
        return SearchResult(Masks({EDGES: mean_of_directions(parts.edges, logits).sigmoid().to(causal.dtype)}))

    # --- storage ---------------------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write network and settings as safetensors."""
        if self.network is None:
            raise InputError("PGExplainer must be fitted before it is saved. Call fit first.")
        metadata = {
            "kind": FILE_KIND,
            "settings": json.dumps(self.settings.as_plain_data()),
            "width": str(self.network.first.in_features),
        }
        save_file({name: value.contiguous() for name, value in self.network.state_dict().items()}, path, metadata=metadata)

    @classmethod
    def load(cls, path: str | Path) -> PGExplainer:
        """Read a PGExplainer that :meth:`save` wrote."""
        if not Path(path).is_file():
            raise InputError(f"A saved PGExplainer must be a file (got {path}, which is not a file). Check the path.")
        try:
            with safe_open(path, framework="pt") as file:
                metadata, names = file.metadata() or {}, list(file.keys())
                state = {name: file.get_tensor(name) for name in names}
            if metadata.get("kind") != FILE_KIND:
                raise ValueError("weights of something else")
            loaded = cls(**json.loads(metadata["settings"]))
            network = EdgeNetwork(int(metadata["width"]), loaded.settings.hidden, loaded.settings.seed)
            network = network.to(state["first.weight"].dtype)
            network.load_state_dict(state)
        except (SafetensorError, OSError, KeyError, ValueError, TypeError, RuntimeError) as error:
            raise InputError(
                f"{Path(path).name} must be a file that PGExplainer.save wrote (got something else: {error}). "
                "Fit and save again."
            ) from error
        loaded.network = network.requires_grad_(False)
        return loaded


def _train(network: nn.Module, steps: list[list[TrainingBatch]], settings: PGExplainerSettings, advance: Any) -> Tensor:
    """Train the network; mean loss of each epoch, [epochs]. All batches of a step share one step of Adam."""
    optimiser = torch.optim.Adam(network.parameters(), lr=settings.lr)
    instances = sum(batch.number for step in steps for batch in step)
    trace = []
    for epoch in range(settings.epochs):
        total = 0.0
        for step in steps:
            optimiser.zero_grad()
            number = sum(batch.number for batch in step)
            for batch in step:
                loss = batch.loss(network, settings, epoch).sum()
                torch.autograd.backward(loss / number)
                total += float(loss.detach())
                advance(batch.number)
            optimiser.step()
        trace.append(total / instances)
    return torch.tensor(trace)
