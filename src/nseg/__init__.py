"""Necessary and sufficient explanations for graph neural networks.

>>> from torch_geometric.explain import Explainer
>>> from nseg import NSEG, explain_many
"""

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

__version__ = "0.1.0"
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
    "certify",
    "explain_many",
    "read",
    "report",
]
