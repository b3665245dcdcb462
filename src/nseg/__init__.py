"""Necessary and sufficient explanations for graph neural networks.

>>> from torch_geometric.explain import Explainer
>>> from nseg import NSEG, explain_many

The front door: every public name, each imported on first use, so that ``import nseg`` does not import torch. Other modules
of the package import from where a name is defined, never from here.
"""

from typing import TYPE_CHECKING

from nseg.version import __version__

if TYPE_CHECKING:
    from nseg import backends, baselines, datasets, metrics, models, plot, reports, runs, study
    from nseg.errors import (
        BackendError,
        BudgetError,
        InputError,
        ModelError,
        NsegError,
        NsegWarning,
        SettingsError,
        StoreError,
        UnknownNameError,
        UnsupportedError,
    )
    from nseg.events import Above, Below, Custom, Label, Not, Rather, Within
    from nseg.explain.change import Counterfactual
    from nseg.explain.counterfactuals import counterfactual
    from nseg.explain.explainer import Explainer
    from nseg.explain.many import explain_many
    from nseg.explain.nseg import NSEG
    from nseg.graphs.large import LargeGraph
    from nseg.live.launch import studio
    from nseg.metrics.certificate import Certificate
    from nseg.metrics.certification import certify
    from nseg.pattern.collection import Patterns
    from nseg.pattern.finding import patterns
    from nseg.pattern.settings import PatternSettings
    from nseg.reports import report
    from nseg.runs.exports import ExplanationList
    from nseg.runs.stored import Explanations, read
    from nseg.search.complement import Bernoulli
    from nseg.search.settings import Settings
else:  # hidden from type checkers, which would otherwise accept any name
    import sys
    from importlib import import_module

    from nseg.lazy import lazy_names

    def _draw(explanation):
        return import_module("nseg.plot.notebook").html(explanation)

    def _write(explanation):
        return import_module("nseg.wording").sentence(explanation)

    def __getattr__(name):
        value = _load(name)
        module = sys.modules.get("nseg.explanation")
        if module is not None:  # only the front door knows both what an explanation is and who draws it
            module.Explanation.renderer, module.Explanation.writer = _draw, _write
        return value

    _load, __dir__ = lazy_names(
        __name__,
        {
            "nseg.errors": [
                "BackendError",
                "BudgetError",
                "InputError",
                "ModelError",
                "NsegError",
                "NsegWarning",
                "SettingsError",
                "StoreError",
                "UnknownNameError",
                "UnsupportedError",
            ],
            "nseg.events": ["Above", "Below", "Custom", "Label", "Not", "Rather", "Within"],
            "nseg.explain.change": ["Counterfactual"],
            "nseg.explain.counterfactuals": ["counterfactual"],
            "nseg.explain.explainer": ["Explainer"],
            "nseg.explain.many": ["explain_many"],
            "nseg.explain.nseg": ["NSEG"],
            "nseg.graphs.large": ["LargeGraph"],
            "nseg.live.launch": ["studio"],
            "nseg.metrics.certificate": ["Certificate"],
            "nseg.metrics.certification": ["certify"],
            "nseg.pattern.collection": ["Patterns"],
            "nseg.pattern.finding": ["patterns"],
            "nseg.pattern.settings": ["PatternSettings"],
            "nseg.reports": ["report"],
            "nseg.runs.exports": ["ExplanationList"],
            "nseg.runs.stored": ["Explanations", "read"],
            "nseg.search.complement": ["Bernoulli"],
            "nseg.search.settings": ["Settings"],
        },
        subpackages=["backends", "baselines", "datasets", "metrics", "models", "plot", "reports", "runs", "study"],
    )

__all__ = [
    "NSEG",
    "Above",
    "BackendError",
    "Below",
    "Bernoulli",
    "BudgetError",
    "Certificate",
    "Counterfactual",
    "Custom",
    "Explainer",
    "ExplanationList",
    "Explanations",
    "InputError",
    "Label",
    "LargeGraph",
    "ModelError",
    "Not",
    "NsegError",
    "NsegWarning",
    "PatternSettings",
    "Patterns",
    "Rather",
    "Settings",
    "SettingsError",
    "StoreError",
    "UnknownNameError",
    "UnsupportedError",
    "Within",
    "__version__",
    "backends",
    "baselines",
    "certify",
    "counterfactual",
    "datasets",
    "explain_many",
    "metrics",
    "models",
    "patterns",
    "plot",
    "read",
    "report",
    "reports",
    "runs",
    "studio",
    "study",
]
