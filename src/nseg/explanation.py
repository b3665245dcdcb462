"""What ``nseg`` returns: PyG's ``Explanation``, that shows itself in a notebook."""

from __future__ import annotations

from torch_geometric.explain import Explanation as PyGExplanation


class Explanation(PyGExplanation):  # type: ignore[misc]
    """PyG's ``Explanation``; a notebook draws it."""

    def _repr_html_(self) -> str:
        from nseg.plot.notebook import html

        return html(self)
