"""What a run depends on, as hashes: two runs with equal fingerprints give equal explanations.

What has no content that could be hashed is named under :data:`UNKNOWN`. Such a run can be stored, but not resumed, because
nobody knows whether it is the same.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

import numpy as np
import pyarrow as pa
import torch
import torch_geometric
from torch import nn
from torch_geometric.data import Data, Dataset, HeteroData
from torch_geometric.explain import Explainer

from nseg.names import ARGUMENTS
from nseg.storage.callables import is_library, qualified_name
from nseg.storage.hashing import Plain, UnhashableError, digest, module_attributes, plain_data
from nseg.version import __version__

UNKNOWN = "unknown"
"""Key of a fingerprint that lists what could not be hashed, with the reason."""


def of_model(model: nn.Module) -> dict[str, Any]:
    """Class, code, structure, attributes and weights of a model.

    Attributes that are no plain values (functions, tensors, objects) are listed one by one, so that a difference is named.
    """
    layers = dict(model.named_modules())
    names = {id(layer): f"layer {name!r}" for name, layer in layers.items()}
    plain: dict[str, dict[str, Any]] = {}
    found, unknown = dict[str, str](), dict[str, str]()
    for prefix, layer in layers.items():
        own = module_attributes(layer)
        plain[prefix] = {name: value for name, value in own.items() if isinstance(value, Plain | np.generic)}
        for name in own.keys() - plain[prefix].keys() - layer._buffers.keys():
            path = f"{prefix}.{name}" if prefix else name
            _digest_into(found, unknown, path, own[name], names)
    fingerprint = {"class": qualified_name(type(model))}
    classes = {type(layer) for layer in layers.values()}
    written = [one for one in classes if not is_library(one)]
    _digest_into(fingerprint, unknown, "code", {qualified_name(one): one for one in written}, names)
    _digest_into(fingerprint, unknown, "structure", [re.sub(r" at 0x[0-9a-fA-F]+", "", str(model)), plain], names)
    _digest_into(fingerprint, unknown, "weights", {**dict(model.named_buffers()), **model.state_dict()}, names)
    return fingerprint | ({"attributes": found} if found else {}) | ({UNKNOWN: unknown} if unknown else {})


def _digest_into(
    found: dict[str, str], unknown: dict[str, str], name: str, value: Any, names: Mapping[int, str] | None = None
) -> None:
    """Hash a value under its name, or write down why it cannot be hashed."""
    try:
        found[name] = digest(value, names)
    except UnhashableError as error:
        unknown[name] = str(error)


def of_explainer(explainer: Explainer) -> dict[str, Any]:
    """What is explained, by which algorithm, and what the algorithm has learned."""
    state = dict(explainer.algorithm.state_dict())
    types = {name: getattr(explainer, name) for name in ("explanation_type", "edge_mask_type", "node_mask_type")}
    types |= {name: getattr(explainer.model_config, name) for name in ("task_level", "mode", "return_type")}
    threshold = explainer.threshold_config
    return {
        "algorithm": type(explainer.algorithm).__qualname__,
        **({"learned": digest(state)} if state else {}),
        **{name: one and one.value for name, one in types.items()},
        "threshold": threshold and [threshold.type.value, plain_data(threshold.value)],
    }


def of_settings(algorithm: Any) -> dict[str, Any]:
    """The settings of an algorithm."""
    own = getattr(algorithm, "settings", None)
    if own is not None:
        found = {one.name: getattr(own, one.name) for one in fields(own)}
    else:  # PyG's algorithms keep settings as attributes, beside working state, which is None, a tensor or a module
        given = {k: v for k, v in vars(algorithm).items() if not k.startswith("_") and k != "training"}
        found = {k: v for k, v in given.items() if v is not None and _is_setting(v)}
    plain, unknown = dict[str, Any](), dict[str, str]()
    for name, value in found.items():
        try:
            plain[name] = plain_data(value)
        except UnhashableError as error:
            unknown[name] = str(error)
    return plain | ({UNKNOWN: unknown} if unknown else {})


def _is_setting(value: Any) -> bool:
    kinds = (bool, int, float, str, Mapping, Enum, tuple, list, np.ndarray, np.generic)
    return isinstance(value, kinds) or (not isinstance(value, nn.Module) and (callable(value) or is_dataclass(value)))


def of_data(data: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Size and content of one graph or several, with further model arguments."""
    graphs = [data[n] for n in range(len(data))] if isinstance(data, Sequence | Dataset) else [data]
    content, unknown = dict[str, str](), dict[str, str]()
    _digest_into(content, unknown, "content", [[_without_names(one) for one in graphs], dict(arguments)])
    return {
        "graphs": len(graphs),
        "nodes": sum(int(one.num_nodes) for one in graphs),
        "edges": sum(int(one.num_edges) for one in graphs),
        **content,
        **({UNKNOWN: unknown} if unknown else {}),
    }


def _without_names(graph: Any) -> Any:
    """A graph without the names of its elements, on which no result depends."""
    if isinstance(graph, HeteroData):
        stores = {"": graph._global_store, **dict(graph.node_items()), **dict(graph.edge_items())}
        content = {str(k): {n: v for n, v in one.to_dict().items() if n not in ARGUMENTS} for k, one in stores.items()}
        return [list(map(str, stores)), content]  # results depend on the order of types too
    if not isinstance(graph, Data) or not any(name in graph for name in ARGUMENTS):
        return graph
    return {key: value for key, value in graph.to_dict().items() if key not in ARGUMENTS}


def versions() -> dict[str, str]:
    """Versions of what the bytes of a result depend on; functions are hashed by their code, which depends on Python."""
    return {
        "nseg": __version__,
        "python": ".".join(platform.python_version_tuple()[:2]),
        "torch": torch.__version__,
        "torch_geometric": torch_geometric.__version__,
        "pyarrow": pa.__version__,
    }
