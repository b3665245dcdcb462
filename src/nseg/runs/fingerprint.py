"""What a run depends on, as hashes: two runs with equal fingerprints give equal explanations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import torch
import torch_geometric
from torch import nn
from torch_geometric.data import Dataset
from torch_geometric.explain import Explainer

from nseg.storage.hashing import Plain, digest, plain_data
from nseg.version import __version__


def of_model(model: nn.Module) -> dict[str, str]:
    """Class, structure and weights of a model."""
    layers = {
        name: {
            key: value
            for key, value in vars(layer).items()
            if not key.startswith("_") and key != "training" and isinstance(value, Plain)
        }
        for name, layer in model.named_modules()
    }
    return {
        "class": f"{type(model).__module__}.{type(model).__qualname__}",
        "structure": digest([str(model), layers]),
        "weights": digest(dict(model.state_dict())),
    }


def of_explainer(explainer: Explainer) -> dict[str, Any]:
    """What is explained, by which algorithm, and what the algorithm has learned."""
    state = dict(explainer.algorithm.state_dict())
    types = {name: getattr(explainer, name) for name in ("explanation_type", "edge_mask_type", "node_mask_type")}
    types |= {name: getattr(explainer.model_config, name) for name in ("task_level", "mode", "return_type")}
    return {
        "algorithm": type(explainer.algorithm).__qualname__,
        **({"learned": digest(state)} if state else {}),
        **{name: one and one.value for name, one in types.items()},
        "threshold": repr(explainer.threshold_config),
    }


def of_settings(algorithm: Any) -> dict[str, Any]:
    """The settings of an algorithm."""
    own = getattr(algorithm, "settings", None)
    if own is not None:
        return {name: plain_data(value) for name, value in vars(own).items()}
    found = {k: v for k, v in vars(algorithm).items() if not k.startswith("_") and k != "training"}
    # PyG's algorithms keep settings as attributes, beside working state, which is None or a tensor
    return {k: plain_data(v) for k, v in found.items() if v is not None and isinstance(v, Plain | Mapping)}


def of_data(data: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Size and content of one graph or several, with further model arguments."""
    graphs = [data[n] for n in range(len(data))] if isinstance(data, Sequence | Dataset) else [data]
    return {
        "graphs": len(graphs),
        "nodes": sum(int(one.num_nodes) for one in graphs),
        "edges": sum(int(one.num_edges) for one in graphs),
        "content": digest([graphs, dict(arguments)]),
    }


def versions() -> dict[str, str]:
    """Versions of the libraries that the bytes of a result depend on."""
    return {
        "nseg": __version__,
        "torch": torch.__version__,
        "torch_geometric": torch_geometric.__version__,
        "pyarrow": pa.__version__,
    }
