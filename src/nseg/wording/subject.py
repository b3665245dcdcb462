"""What an explanation is of: the output by name, its class, and the model's probability for it."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch_geometric.explain import Explanation

from nseg.events import HAPPENS, Custom
from nseg.explanation import explained_targets, row_numbers, target_nodes, task_level
from nseg.hetero_explanation import flat_view
from nseg.model.outcomes import Outcome, outcome_of
from nseg.names import NO_NAMES, Names


def names_of(one: Explanation) -> Names:
    """The names that an explanation was given; the classes of an event are that it does not happen, and that it does."""
    found, event = one.get("names"), one.get("outcome")
    names = found if isinstance(found, Names) else NO_NAMES
    if event is None or one.get("target") is None:
        return names
    targets, index = explained_targets(one).cpu(), one.get("index")
    row = int(row_numbers(index)[0]) if index is not None and targets.numel() > 1 else 0
    return replace(names, classes=(event.sides[0], event.title(targets[row].item(), names.class_name)))


def subject_name(
    one: Explanation, names: Names | None = None, *, level: str | None = None, molecule: bool | None = None
) -> str:
    """What is explained, such as ``"tx-11"``, ``"node 5"``, ``"molecule 3"`` or ``"the link a - b"``.

    Args:
        one: the explanation.
        names: names of the caller's graph; those that the explanation carries if None.
        level: ``"node"``, ``"edge"`` or ``"graph"``: the kind of output, if the explanation does not know.
        molecule: whether the graph is a molecule; as the names say if None.
    """
    one = flat_view(one)
    names, number = names_of(one) if names is None else names, int(one.get("output_id", 0))
    if one.get("reason") is not None:  # of what kind it is was not found out
        return f"output {number}"
    level = level or task_level(one)
    if level == "node":
        return names.node(number)
    if level == "graph":
        return f"{'molecule' if (names.molecule if molecule is None else molecule) else 'graph'} {number}"
    ends = target_nodes(one, level) if one.get("edge_index") is not None else torch.zeros(0)
    if ends.numel() != 2:
        return f"link {number}"
    first, second = caller_ids(one, "node_id")[ends].tolist()
    return f"the link {names.node_label(first)} - {names.node_label(second)}"


def caller_ids(one: Explanation, name: str, number: int | None = None) -> Tensor:
    """The caller's numbers of the nodes (``"node_id"``) or edges (``"edge_id"``) of an explanation, [number]."""
    found: Tensor | None = one.get(name)
    if found is not None:
        return found.cpu()
    return torch.arange(int(one.num_nodes or 0) if number is None else number)


def explained_class(one: Explanation) -> int | None:
    """The class that is explained, 1 for an event (it happens); None if there is none."""
    index = one.get("index")
    if one.get("target") is None:
        return None
    if one.get("outcome") is not None:
        return HAPPENS
    target = explained_targets(one).cpu()
    return int(target[row_numbers(index)][0] if index is not None and target.numel() > 1 else target[0])


def predicted_probability(one: Explanation) -> float | None:
    """Probability that the model gives the explained class on the whole graph; None if it is not known."""
    known = _output_row(one)
    if known is None:
        return None
    outcome, row, target = known
    return float(outcome.probability(row, target))


def predicted_class(one: Explanation) -> int | None:
    """The class that the model predicts on the whole graph; None if it is not known, or if an event is explained."""
    known = None if one.get("outcome") is not None else _output_row(one)
    return None if known is None else int(known[0].predicted(known[1]))


def number_of_classes(one: Explanation) -> int | None:
    """How many classes the model tells apart, 2 for an event; None if it is not known."""
    if one.get("outcome") is not None:
        return 2
    known = _output_row(one)
    return None if known is None else known[0].num_classes(known[1])


def _output_row(one: Explanation) -> tuple[Outcome, Tensor, Tensor] | None:
    """How to read the model's output, its row for the explained output, and the explained class or value, [1]."""
    prediction, config = one.get("prediction"), getattr(one, "_model_config", None)
    event = one.get("outcome")
    if prediction is None or config is None or one.get("target") is None or isinstance(event, Custom):
        return None  # the function of a custom event may not be there
    outcome, rows, targets = outcome_of(config, event), prediction.detach().cpu(), explained_targets(one).cpu()
    rows = rows if event is not None and event.column is not None and rows.dim() == 1 else outcome.as_rows(rows)
    index = one.get("index")
    if index is not None and len(rows) > 1:
        rows, targets = rows[row_numbers(index)], targets[row_numbers(index)]
    return outcome, rows[:1], targets[:1]
