"""Necessary and sufficient explanations for graph neural networks.

>>> from torch_geometric.explain import Explainer
>>> from nseg import NSEG, explain_many
"""

from nseg.certify import Certificate, certify
from nseg.complement import Bernoulli
from nseg.errors import BudgetError, InputError, ModelError, NsegError, SettingsError, UnsupportedError
from nseg.explainer import NSEG, Explainer
from nseg.many import explain_many
from nseg.reports import report
from nseg.search import Settings

__version__ = "0.1.0"
__all__ = [
    "NSEG",
    "Bernoulli",
    "BudgetError",
    "Certificate",
    "Explainer",
    "InputError",
    "ModelError",
    "NsegError",
    "Settings",
    "SettingsError",
    "UnsupportedError",
    "certify",
    "explain_many",
    "report",
]
