"""Everything people read about an explanation: counts, numbers, names and sentences, one rule for each.

- ``numbers``: probabilities and bounds as text.
- ``counts``: how many edges, nodes and features are kept, and of how many.
- ``subject``: what is explained, by name; its class and probability.
- ``elements``: what is kept, one by one, with names, weights and values.
- ``verdicts``: whether an explanation is necessary and sufficient.
- ``sentences``: all of it in plain sentences.

Import from here. The report's page has the rules of ``numbers`` and ``counts`` in ``reports/web/src/words.ts``; a table of
examples, which both test, keeps them equal. May import model, graphs, names, events, errors, ``explanation`` and
``hetero_explanation``.
"""

from nseg.wording.counts import (
    DEFAULT_THRESHOLD,
    PartSize,
    edge_unit,
    element_values,
    hard_mask,
    is_undirected,
    kept_parts,
    mask_cells,
    node_mask_type,
    reached_edges,
    reached_nodes,
    share_words,
    size_words,
)
from nseg.wording.elements import Element, elements, kept_texts
from nseg.wording.numbers import DECIMALS, bound_text, plural, probability_text, upper_bound_text
from nseg.wording.sentences import FEW, MANY, explanation_sentences, sentence
from nseg.wording.subject import explained_class, names_of, predicted_probability, subject_name
from nseg.wording.verdicts import VERDICTS, Findings, ModelAnswer, Verdict, deletion_text, findings_of, verdict

__all__ = [
    "DECIMALS",
    "DEFAULT_THRESHOLD",
    "FEW",
    "MANY",
    "VERDICTS",
    "Element",
    "Findings",
    "ModelAnswer",
    "PartSize",
    "Verdict",
    "bound_text",
    "deletion_text",
    "edge_unit",
    "element_values",
    "elements",
    "explained_class",
    "explanation_sentences",
    "findings_of",
    "hard_mask",
    "is_undirected",
    "kept_parts",
    "kept_texts",
    "mask_cells",
    "names_of",
    "node_mask_type",
    "plural",
    "predicted_probability",
    "probability_text",
    "reached_edges",
    "reached_nodes",
    "sentence",
    "share_words",
    "size_words",
    "subject_name",
    "upper_bound_text",
    "verdict",
]
