"""``nseg explain``: explain predictions of a pre-trained network or of your own model."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nseg.baselines.catalogue import check_name as check_method
from nseg.cli.console import console, interruptible, say
from nseg.cli.name_files import ClassNames, FeatureNames, NodeNames, read_names
from nseg.cli.options import (
    MASKS,
    Address,
    Architecture,
    BackendName,
    Workers,
    choose_backend,
    parse_numbers,
    set_threads,
)
from nseg.datasets.names import ALL
from nseg.datasets.names import check_name as check_dataset
from nseg.errors import InputError
from nseg.events import parse_event
from nseg.models.catalogue import choose_architecture
from nseg.search.settings import INTERVENTIONS, MOST_ALTERNATIVES
from nseg.version import __version__

if TYPE_CHECKING:
    from torch_geometric.explain import Explanation

    from nseg.cli.subject import Subject
    from nseg.explain.change import Counterfactual
    from nseg.explain.explainer import Explainer

FEW = 20  # up to this many explanations are printed in words; more are summed up

Dataset = Annotated[str | None, typer.Argument(help=f"One of {', '.join(ALL)}. Leave out with --model.")]
Method = Annotated[str, typer.Option(help="Explanation method; 'nseg list' shows all.")]
Objective = Annotated[
    str | None, typer.Option(help="For nseg: pns, pn (necessity only) or ps (sufficiency only). Default: pns.")
]
Masks = Annotated[
    str,
    typer.Option(help="What is masked: e (edges), f (nodes with their features), x (features of nodes), or ef, ex (both)."),
]
Index = Annotated[
    str | None,
    typer.Option(help="Predictions to explain: 7, 3,5,9 or 300:700. Default: the paper's of a dataset, all of your own."),
]
Paper = Annotated[bool, typer.Option(help="Use the paper's settings for the dataset instead of the defaults.")]
Intervention = Annotated[
    str | None,
    typer.Option(
        help="What taking edges away means: remove (delete them), mask (weigh their messages by 0) or both (the worse). "
        "Default: remove for nseg, mask for other methods and with --paper."
    ),
]
Undirected = Annotated[
    bool | None,
    typer.Option(
        "--undirected/--directed",
        help="Whether both directions of an edge count as one. Default: of nseg at graph level, where every edge has its "
        "reverse; not otherwise.",
    ),
]
Outcome = Annotated[
    str | None,
    typer.Option(
        help="What is explained instead of the predicted class: rather:2 (than class 2), not:2, label:3 (of several); of a "
        "predicted number within:0.5 (of what it is), above:2, below:-1. Options follow a comma: above:2,scale=0.5."
    ),
]
Alternatives = Annotated[
    int, typer.Option(min=0, max=MOST_ALTERNATIVES, help="Other explanations that are about as good, to look for.")
]
Seed = Annotated[int, typer.Option(help="Equal seeds give equal masks.")]
Model = Annotated[
    str | None,
    typer.Option(
        help="Your own model: FILE.py:FUNCTION, which returns it. It must return class scores, or what --outcome asks."
    ),
]
Weights = Annotated[Path | None, typer.Option(help="Weights of your model: safetensors, or a saved state dictionary.")]
Graphs = Annotated[
    Path | None, typer.Option(help="Your own graph or list of graphs, written by torch.save; or a LargeGraph folder.")
]
Level = Annotated[str, typer.Option(help="What your model classifies: node or graph.")]
Folder = Annotated[
    Path | None, typer.Option(help="Folder to store explanations in. A run that was stopped there continues.")
]
Strict = Annotated[bool, typer.Option(help="Stop at the first prediction that cannot be explained.")]
Retry = Annotated[bool, typer.Option(help="In a run that continues, explain again what could not be explained.")]
Seconds = Annotated[
    float | None,
    typer.Option(help="Time for all explanations; then the best found so far is returned. Not with --out."),
]
Shard = Annotated[
    int | None,
    typer.Option(
        min=1, help="Largest number of predictions explained together; 256, or 1,024 if not stored.", show_default=False
    ),
]
Measure = Annotated[bool, typer.Option(help="Also print metrics; loads all explanations into memory.")]
Changes = Annotated[
    bool, typer.Option(help="Also find the smallest change (edges to remove) after which the model says something else.")
]
Page = Annotated[Path | None, typer.Option(help="HTML file to write, which shows the explanations in a browser.")]
Quiet = Annotated[bool, typer.Option(help="Show no progress bar.")]


def explain(
    context: typer.Context,
    dataset: Dataset = None,
    arch: Architecture = None,
    method: Method = "nseg",
    objective: Objective = None,
    masks: Masks = "e",
    index: Index = None,
    paper: Paper = False,
    intervention: Intervention = None,
    outcome: Outcome = None,
    undirected: Undirected = None,
    alternatives: Alternatives = 0,
    seed: Seed = 0,
    model: Model = None,
    weights: Weights = None,
    data: Graphs = None,
    level: Level = "node",
    out: Folder = None,
    strict: Strict = False,
    retry: Retry = True,
    seconds: Seconds = None,
    backend: BackendName = None,
    workers: Workers = None,
    address: Address = None,
    shard: Shard = None,
    names: NodeNames = None,
    class_names: ClassNames = None,
    feature_names: FeatureNames = None,
    measure: Measure = False,
    changes: Changes = False,
    report: Page = None,
    quiet: Quiet = False,
) -> None:
    """Explain predictions and print the explanations; store them, measure them or write a page on request."""
    check_subject(dataset, model, weights, data, level, paper)
    check_names(dataset, arch, method, objective, masks, intervention)
    event = None if outcome is None else parse_event(outcome)
    numbers, given = None if index is None else parse_numbers(index), read_names(names, class_names, feature_names)
    backend = choose_backend(backend, workers, address)
    set_threads(context)
    from nseg.cli import subject as subjects

    prepare_outputs(out, report, data)
    settings = {"seed": seed, "undirected": undirected, "intervention": intervention, "outcome": event}
    settings |= {"alternatives": alternatives} if alternatives else {}
    algorithm = subjects.make_algorithm(method, dataset if paper else None, masks, objective, **settings)
    subject = subjects.load_subject(dataset, arch, model, weights, data, level, event)
    explainer = subjects.make_explainer(subject.model, subject.config, masks, algorithm)
    began, stored = time.perf_counter(), count_stored(out, retry)
    run = {"out": out, "strict": strict, "retry": retry, "shard": shard, "seconds": seconds, **subject.names, **given}
    outputs = subject.outputs if numbers is None else numbers
    found = explain_outputs(explainer, subject.graphs, outputs, (backend, workers, address), quiet, run)
    say(f"{describe_work(len(found) - stored, stored, time.perf_counter() - began)}, masks {masks}, {algorithm}.")
    explained, measured = show_results(explainer, subject, found, measure, report is not None)
    smallest = find_changes(explainer, subject, found, subject.names | given) if changes else []
    facts = {"method": method, "masks": masks, "settings": algorithm.settings.as_plain_data()}
    write_summary(out, {**subject.origin, **facts, "instances": len(found), "metrics": measured})
    if report is not None and explained:
        write_page(report, subject, explainer, {method: explained}, f"Why these predictions? {dataset or model}", smallest)


def explain_outputs(
    explainer: Explainer,
    graphs: Any,
    outputs: Sequence[int],
    backend: tuple[str, int | None, str | None],
    quiet: bool,
    run: dict[str, Any],
) -> Sequence[Explanation]:
    """Return the explanations of some predictions, made on a backend.

    Args:
        explainer, graphs, outputs: what is explained.
        backend: name, number of workers and address.
        quiet: show no progress bar.
        run: further arguments of :func:`nseg.explain_many`.
    """
    from nseg import backends
    from nseg.explain.many import explain_many

    progress = False if quiet else None
    if hasattr(explainer.algorithm, "fit"):  # such a method is trained on what it explains
        explainer.algorithm.fit(explainer, graphs, outputs, progress=progress)
    with backends.make(*backend) as pool, interruptible(resumable=run["out"] is not None):
        found: Sequence[Explanation] = explain_many(explainer, graphs, outputs, progress=progress, backend=pool, **run)
    return found


def check_subject(
    dataset: str | None, model: str | None, weights: Path | None, data: Path | None, level: str, paper: bool
) -> None:
    """Raise unless the options name either a dataset, or a model with its data."""
    if (dataset is None) == (model is None):
        both = "neither" if dataset is None else "both"
        raise InputError(f"Name what to explain: a dataset, or your own model with --model and --data (got {both}).")
    if dataset is not None and (weights or data):
        raise InputError("--weights and --data belong to --model (got them with a dataset). Leave the dataset out.")
    if model is not None and data is None:
        raise InputError("--model needs --data, a file or folder with your graph (got none).")
    if model is not None and paper:
        raise InputError("--paper needs a dataset of the paper (got --model). Leave it out.")
    if level not in ("node", "graph"):
        raise InputError(f"--level must be node or graph (got {level!r}).")


def check_names(
    dataset: str | None, arch: str | None, method: str, objective: str | None, masks: str, intervention: str | None = None
) -> None:
    """Raise if a name is unknown; torch is not imported yet, so that a typo is answered at once."""
    if dataset is not None:
        check_dataset(dataset)
        choose_architecture(arch, dataset)
    check_method(method)
    if objective is not None and method != "nseg":
        raise InputError(f"--objective belongs to nseg (got it with {method}). Leave it out.")
    if masks not in MASKS:
        raise InputError(f"--masks must be e (edges), f (nodes), x (features of nodes), ef or ex (got {masks!r}).")
    if intervention is not None and intervention not in INTERVENTIONS:
        raise InputError(f"--intervention must be {', '.join(INTERVENTIONS)} (got {intervention!r}).")


def prepare_outputs(out: Path | None, report: Path | None, data: Path | None) -> None:
    """Raise before the work if its results could not be written."""
    from nseg import reports
    from nseg.storage.files import prepare_folder

    if out is not None:
        prepare_folder(out)
    if report is not None:
        reports.writable(report)
        if data is not None and data.is_dir():
            raise InputError("--report needs graphs in memory (got a large graph). Leave --report out.")


def count_stored(out: Path | None, retry: bool) -> int:
    """Return how many explanations a folder holds already, without those that are explained again."""
    if out is None or not (out / "manifest.json").is_file():
        return 0
    from nseg.runs.stored import Explanations

    return Explanations(out).count_kept(retry)


def describe_work(new: int, stored: int, seconds: float) -> str:
    """Return how many predictions were explained, and how fast.

    >>> describe_work(10, 2, 0.5)
    '10 explained in 0.5 s (0.0500 s each), 2 were stored already'
    """
    duration = f" in {seconds:.1f} s ({seconds / new:.4f} s each)" if new else ""
    return f"{new} explained{duration}" + (f", {stored} were stored already" if stored else "")


def show_results(
    explainer: Explainer, subject: Subject, found: Sequence[Explanation], measure: bool, graphs_needed: bool
) -> tuple[list[Explanation], dict[str, dict[str, float]]]:
    """Print the explanations in words if they are few, else a summary, and metrics if asked for.

    Returns:
        the explanations with their graphs, and their metrics. Both are empty if they are not needed, or if the graph is too
        large for memory.
    """
    from nseg.cli import results
    from nseg.graphs.large import LargeGraph

    for text in (subject.untrained, *results.describe(found, FEW), results.molecule_hint(subject.graphs)):
        if text:
            say(text)
    if isinstance(subject.graphs, LargeGraph) or not (measure or graphs_needed):
        return [], {}
    explained = results.with_graphs(explainer, subject.graphs, found)
    measured = results.measure(explainer, subject.graphs, subject.benchmark, explained) if measure and explained else {}
    if measured:
        console().print(results.scores_table(measured, results.judged_by(explained)))
    return explained, measured


def find_changes(
    explainer: Explainer, subject: Subject, found: Sequence[Explanation], names: dict[str, Any]
) -> list[Counterfactual]:
    """Find the smallest change of each explained prediction, and print it if they are few."""
    from nseg.explain.counterfactuals import counterfactual

    good = [int(one.output_id) for one in found if one.get("reason") is None]
    with interruptible(resumable=False):
        changes = counterfactual(explainer, subject.graphs, good, **names) if good else []
    for one in changes if len(found) <= FEW else ():
        say(f"{one.subject()}: {one.words()}")
    return changes


def write_summary(out: Path | None, facts: dict[str, Any]) -> None:
    """Write ``summary.json`` beside the stored explanations, if they are stored."""
    from nseg.storage.files import write_json

    if out is None:
        return
    write_json(out / "summary.json", {**facts, "nseg": __version__})
    say(f"Stored in {out}: explanations/*.parquet, manifest.json, summary.json. For a table: nseg export {out} --csv")


def write_page(
    path: Path,
    subject: Subject,
    explainer: Explainer,
    explained: dict[str, list[Explanation]],
    title: str,
    changes: Sequence[Counterfactual] = (),
) -> None:
    """Write the HTML page that shows the explanations."""
    from nseg.reports import report

    facts = {name: value for name, value in subject.origin.items() if value != "None"}
    data = subject.benchmark or subject.graphs
    report(explained, path, data=data, explainer=explainer, title=title, facts=facts, counterfactuals=changes)
    console().print(f"To see the explanations, open this page in a browser: {path}", soft_wrap=True)
