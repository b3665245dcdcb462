"""``nseg counterfactual``: the smallest change of a graph after which the model says something else."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from nseg.cli.console import interruptible, say
from nseg.cli.explain import Dataset, Graphs, Level, Model, Undirected, Weights, check_subject
from nseg.cli.name_files import ClassNames, FeatureNames, NodeNames, read_names
from nseg.cli.options import Architecture, parse_numbers, set_threads
from nseg.datasets.names import check_name as check_dataset
from nseg.models.catalogue import choose_architecture


def counterfactual(
    context: typer.Context,
    index: Annotated[str, typer.Option(help="Predictions to change: 7, 3,5,9 or 300:310.")],
    dataset: Dataset = None,
    arch: Architecture = None,
    to: Annotated[str | None, typer.Option(help="Class that the model should say, by number or name.")] = None,
    most: Annotated[int, typer.Option(min=1, help="Largest number of removed edges.")] = 50,
    undirected: Undirected = None,
    model: Model = None,
    weights: Weights = None,
    data: Graphs = None,
    level: Level = "node",
    names: NodeNames = None,
    class_names: ClassNames = None,
    feature_names: FeatureNames = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
) -> None:
    """Find the fewest edges without which the model says something else; edges are really removed."""
    check_subject(dataset, model, weights, data, level, paper=False)
    if dataset is not None:
        check_dataset(dataset)
        choose_architecture(arch, dataset)
    numbers, given = parse_numbers(index), read_names(names, class_names, feature_names)
    set_threads(context)
    from nseg.cli import subject as subjects
    from nseg.explain.counterfactuals import counterfactual as find
    from nseg.explain.nseg import NSEG

    subject = subjects.load_subject(dataset, arch, model, weights, data, level)
    explainer = subjects.make_explainer(subject.model, subject.config, "e", NSEG(undirected=undirected))
    wanted = int(to) if to is not None and to.isdigit() else to
    with interruptible(resumable=False):
        for found in find(explainer, subject.graphs, numbers, to=wanted, most=most, **subject.names | given):
            if as_json:
                typer.echo(json.dumps(found.as_plain_data()))
            else:
                say(f"{found.subject()}: {found.words()}")
