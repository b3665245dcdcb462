"""A user's own model and graphs."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.storage import BaseStorage, EdgeStorage, GlobalStorage, NodeStorage

from nseg.errors import InputError
from nseg.graphs.large import LargeGraph
from nseg.models.weights import read_weights


def load_model(place: str, weights: Path | None) -> nn.Module:
    """Return the model that ``FILE.py:FUNCTION`` builds, in evaluation mode, with weights if given."""
    path, _, name = place.rpartition(":")
    if not path or not Path(path).is_file():
        raise InputError(f"--model must be FILE.py:FUNCTION with a file that exists (got {place!r}).")
    build: Callable[[], nn.Module] | None = getattr(_run_file(path), name, None)
    if not callable(build):
        raise InputError(f"{path} must define {name}(), which returns the model (it does not).")
    try:
        model = build()
    except Exception as error:
        raise InputError(
            f"{name}() must return a model when called without arguments (got {type(error).__name__}: {error})."
        ) from error
    if not isinstance(model, nn.Module):
        raise InputError(f"{name}() must return a torch.nn.Module (got {type(model).__name__}).")
    if weights is not None:
        try:
            model.load_state_dict(read_weights(weights))
        except RuntimeError as error:
            reason = " ".join(str(error).split())
            raise InputError(f"{weights.name} must hold the weights of the model of {name}() (got: {reason}).") from error
    return model.eval()


def _run_file(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location("nseg_users_model", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InputError(
            f"{path} must be a Python file that runs (got {type(error).__name__}: {error}). Fix the error in it."
        ) from error
    return module


def load_data(path: Path) -> Any:
    """Return the graph or graphs in a file, without running code in it; a folder is a :class:`LargeGraph`."""
    if path.is_dir():
        return LargeGraph(path)
    if not path.is_file():
        raise InputError(f"--data must be a file or folder (got {path}, which does not exist). Try torch.save(data, path).")
    # On exit, safe_globals removes what it was given. Types that PyG has registered before must stay registered.
    known = torch.serialization.get_safe_globals()
    typed = (HeteroData, BaseStorage, NodeStorage, EdgeStorage)  # loaded only to be told from what is no graph at all
    new = [kind for kind in (Data, DataEdgeAttr, DataTensorAttr, GlobalStorage, *typed) if kind not in known]
    try:
        with torch.serialization.safe_globals(new):
            loaded = torch.load(path, weights_only=True)
    except Exception as error:
        raise InputError(
            f"{path.name} must hold a PyG Data object or a list of them (got something else: {type(error).__name__}). "
            "Write it with torch.save(data, path)."
        ) from error
    if isinstance(loaded, HeteroData) or (isinstance(loaded, list) and any(isinstance(one, HeteroData) for one in loaded)):
        raise InputError(
            f"--data takes graphs with one type of nodes and edges ({path.name} holds HeteroData). Explain it in Python: "
            "nseg.explain_many(explainer, data, index)."
        )
    good = isinstance(loaded, Data) or (isinstance(loaded, list) and all(isinstance(one, Data) for one in loaded))
    if not good:
        raise InputError(f"{path.name} must hold a PyG Data object or a list of them (got {type(loaded).__name__}).")
    return loaded


def count_outputs(graphs: Any, level: str) -> int:
    """Return how many predictions a model makes on a user's graphs."""
    return int(graphs.num_nodes) if isinstance(graphs, Data | LargeGraph) and level == "node" else len(graphs)
