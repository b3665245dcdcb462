"""Runs on disk: explanations as Parquet, the layout and manifest of a run folder, fingerprints.

- ``parquet``: explanations as Parquet bytes, and back.
- ``layout``: which target is in which shard.
- ``folder``: a run folder, while this process writes it.
- ``exports``: tables, CSV, JSON and networkx graphs, with documented columns.
- ``stored``: :class:`nseg.Explanations`, what a run folder holds, and :func:`~nseg.runs.stored.attach`.
- ``arguments``: the model's arguments on the graph of a stored explanation.
- ``fingerprint``: what a run depends on, as hashes.

Import from here: ``attach``, ``read``, ``write``, ``Explanations``, which are imported on first use.
May import search, wording, model, names, graphs, storage, errors and ``explanation``. Knows nothing of how
explanations are made.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nseg.runs.parquet import write
    from nseg.runs.stored import Explanations, attach, read
else:
    from nseg.lazy import lazy_names

    __getattr__, __dir__ = lazy_names(
        __name__,
        {"nseg.runs.parquet": ["write"], "nseg.runs.stored": ["Explanations", "attach", "read"]},
    )

__all__ = ["Explanations", "attach", "read", "write"]
