"""Patterns: what typically makes a model predict a class.

- ``typed_graph``: graphs with labels; ``vocabulary``: labels from features and names; ``predictions``, ``reading``: what
  explanations keep, as such graphs.
- ``forms``: canonical forms; ``matching``: occurrences; ``selection``: counts, and few patterns that explain most.
- ``edits``, ``trials``: patterns taken out of graphs and put into others, and what the model says.
- ``finding``: the door; ``results``, ``collection``, ``text``, ``pictures``: what comes back, and how it is shown.

Import from here: the names in ``__all__``; callers use ``nseg.patterns``.
May import: plot, metrics, datasets, runs, model, graphs, ``wording``, ``explanation`` and errors. The room is called
``pattern`` because ``nseg.patterns`` is a function.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nseg.pattern.collection import Patterns
    from nseg.pattern.finding import patterns
    from nseg.pattern.results import ClassPatterns, Pattern
    from nseg.pattern.settings import PatternSettings
    from nseg.pattern.trials import Trial
else:
    from nseg.lazy import lazy_names

    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "nseg.pattern.finding": ["patterns"],
            "nseg.pattern.collection": ["Patterns"],
            "nseg.pattern.results": ["ClassPatterns", "Pattern"],
            "nseg.pattern.settings": ["PatternSettings"],
            "nseg.pattern.trials": ["Trial"],
        },
    )

__all__ = ["ClassPatterns", "Pattern", "PatternSettings", "Patterns", "Trial", "patterns"]
