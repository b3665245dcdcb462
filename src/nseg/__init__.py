"""Necessary and sufficient explanations for graph neural networks.

>>> from torch_geometric.explain import Explainer
>>> from nseg import NSEG, explain_many

The front door: every public name, each imported on first use, so that ``import nseg`` does not import torch. Other modules
of the package import from where a name is defined, never from here.
"""

from typing import TYPE_CHECKING

from nseg.version import __version__

if TYPE_CHECKING:
    from nseg import backends, baselines, datasets, metrics, models, plot, reports, study
    from nseg.certify import Certificate, certify
    from nseg.complement import Bernoulli
    from nseg.errors import (
        BackendError,
        BudgetError,
        InputError,
        ModelError,
        NsegError,
        NsegWarning,
        SettingsError,
        StoreError,
        UnsupportedError,
    )
    from nseg.explainer import NSEG, Explainer
    from nseg.large import LargeGraph
    from nseg.many import explain_many
    from nseg.reports import report
    from nseg.search import Settings
    from nseg.shards import read
    from nseg.store import Explanations
else:  # hidden from type checkers, which would otherwise accept any name
    from nseg.lazy import lazy_names

    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "nseg.certify": ["Certificate", "certify"],
            "nseg.complement": ["Bernoulli"],
            "nseg.errors": [
                "BackendError",
                "BudgetError",
                "InputError",
                "ModelError",
                "NsegError",
                "NsegWarning",
                "SettingsError",
                "StoreError",
                "UnsupportedError",
            ],
            "nseg.explainer": ["NSEG", "Explainer"],
            "nseg.large": ["LargeGraph"],
            "nseg.many": ["explain_many"],
            "nseg.reports": ["report"],
            "nseg.search": ["Settings"],
            "nseg.shards": ["read"],
            "nseg.store": ["Explanations"],
        },
        subpackages=["backends", "baselines", "datasets", "metrics", "models", "plot", "reports", "study"],
    )

__all__ = [
    "NSEG",
    "BackendError",
    "Bernoulli",
    "BudgetError",
    "Certificate",
    "Explainer",
    "Explanations",
    "InputError",
    "LargeGraph",
    "ModelError",
    "NsegError",
    "NsegWarning",
    "Settings",
    "SettingsError",
    "StoreError",
    "UnsupportedError",
    "__version__",
    "backends",
    "baselines",
    "certify",
    "datasets",
    "explain_many",
    "metrics",
    "models",
    "plot",
    "read",
    "report",
    "reports",
    "study",
]
