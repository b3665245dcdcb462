"""The command line: parse, one call, print."""

from __future__ import annotations

import importlib.util
import json
import math
import sys
import time
import webbrowser
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import torch
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.storage import GlobalStorage
from torch_geometric.explain import Explanation

from nseg import (
    NSEG,
    Explainer,
    InputError,
    LargeGraph,
    NsegError,
    __version__,
    backends,
    baselines,
    datasets,
    explain_many,
    metrics,
    models,
    reports,
    store,
    study,
)
from nseg.explainer import BatchedAlgorithm
from nseg.models.weights import write_weights
from nseg.presets import PAPER
from nseg.source import arguments
from nseg.study import summary, tables
from nseg.work import SHARD

app = typer.Typer(
    help="Necessary and sufficient explanations for graph neural networks.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

READING = (
    "How to read it: keep only the edges of an explanation and the model gives the class with probability 'p factual'; take "
    "just them away and it gives it with 'p complement'. PNS, at least the difference of the two, is high when these edges "
    "are both necessary (PN) and sufficient (PS) for the prediction."
)


COLUMNS = (
    "Fid+: share whose class changes without the explanation (higher is better). Fid-: share whose class changes with it "
    "alone (lower). charact: both in one (higher), to be read beside the sparsity, the share of the edges within reach "
    "(nodes, if only they are masked) that is left out. PNS, PN, PS: lower bounds; where the model is sure of the class "
    "whatever is kept, PS is a ratio of two numbers near 0 and says little."
)
TRUTH = " Recall@K and ROC-AUC: against ground truth, for soft masks."


FEW = 5
"""So many explanations are printed one by one."""

MOST_SHOWN = 12  # edges, or nodes, of one


def console(width: int = 110) -> Console:
    """Standard output, at a fixed width where it is not a terminal."""
    return Console(width=None if sys.stdout.isatty() else width)


def version(asked: bool) -> None:
    """Print the version and stop."""
    if asked:
        typer.echo(f"nseg {__version__}")
        raise typer.Exit


@app.callback()
def main(
    _: Annotated[bool, typer.Option("--version", callback=version, is_eager=True, help="Show the version.")] = False,
    threads: Annotated[int, typer.Option(min=1, help="Threads of torch; small graphs are fastest with one.")] = 1,
) -> None:
    """Necessary and sufficient explanations for graph neural networks."""
    torch.set_num_threads(threads)


# --- demo ----------------------------------------------------------------------------------------------------------------


@app.command()
def demo(
    instances: Annotated[int, typer.Option(min=1, max=400, help="How many predictions to explain.")] = 10,
    seed: Annotated[int, typer.Option(help="Seed of the explanation.")] = 0,
    report: Annotated[Path, typer.Option(help="Where to write the page that shows them.")] = Path("nseg-demo.html"),
) -> None:
    """Explain predictions of the pre-trained GCN on BA-Shapes, where the right answer is known: a house."""
    reports.writable(report)
    data, model = datasets.load("ba-shapes"), models.pretrained("ba-shapes", "gcn")
    explain = explainer(model, data.model_config, "e", NSEG(undirected=True, seed=seed))
    nodes = data.instances[:: len(data.instances) // instances][:instances]
    began = time.perf_counter()
    found = explain_many(explain, data.graphs[0], nodes)
    seconds = time.perf_counter() - began
    out = console()
    right = models.manifest()["ba-shapes/gcn"]["accuracy"]["test"]
    out.print(
        f"A three-layer GCN, right on {right:.0%} of its test nodes; {len(found)} predictions explained in {seconds:.1f} s."
    )
    out.print(predictions(data, found))
    out.print(READING)
    hits = float(metrics.accuracy(data, found).recall_at_k.mean())
    out.print(
        f"The model was trained to find houses. The six best edges of a prediction hold {hits:.0%} of its own house: the "
        "model does not need the whole house, and an explanation says what the model needs."
    )
    reports.report({"NSEG": found}, report, data=data, explainer=explain, title="Why is a node part of a house?")
    out.print(f"To see the explanations, open this page in a browser: {report}", soft_wrap=True)


def predictions(data: datasets.Benchmark, found: list[Explanation]) -> Table:
    """One line per explanation."""
    table = Table("instance", "class", "p factual", "p complement", "PNS", "PN", "PS", "edges kept", title="Why this class?")
    for one in found:
        kept, reach = ties(one, one.hard_edge_mask), ties(one, one.reached)
        numbers = (one.p_factual, one.p_complement, one.pns, one.pn, one.ps)
        label = data.class_names[int(one.target if one.get("index") is None else one.target[one.index])]
        table.add_row(str(one.output_id), label, *(f"{n:.3f}" for n in numbers), f"{kept} of {reach}")
    return table


def ties(found: Explanation, mask: Tensor) -> int:
    """How many pairs of nodes the marked edges join, whichever way they run."""
    return int(torch.unique(found.edge_index[:, mask].sort(0).values, dim=1).size(1))


# --- explain -------------------------------------------------------------------------------------------------------------


def explainer(model: nn.Module, config: dict[str, str], masks: str, algorithm: BatchedAlgorithm) -> Explainer:
    """An explainer of a model's own predictions."""
    if masks not in ("e", "f", "ef"):
        raise InputError(f"masks must be e (edges), f (nodes) or ef (both) (got {masks!r}).")
    return Explainer(
        model,
        algorithm,
        explanation_type="model",
        edge_mask_type="object" if "e" in masks else None,
        node_mask_type="object" if "f" in masks else None,
        model_config=config,
    )


def algorithm_of(method: str, dataset: str | None, masks: str, objective: str | None, **settings: Any) -> BatchedAlgorithm:
    """A method by name, with the paper's settings for a dataset if one is given."""
    if method == "nseg":
        joint = {} if dataset is None else {"masks": masks}  # the paper's settings differ between e and ef
        return baselines.make(method, dataset, objective=objective or "pns", **joint, **settings)
    if objective is not None:
        raise InputError(f"--objective belongs to nseg (got it with {method}). Leave it out.")
    if dataset is not None and not hasattr(baselines.find(method), "paper"):
        raise InputError(f"The paper has no settings for {method} (got --paper). Leave it out.")
    return baselines.make(method, dataset, **settings)


class Subject(NamedTuple):
    """What is explained: a network on graphs, which of its outputs, and where all that is from."""

    net: nn.Module
    config: dict[str, str]
    graphs: Any
    chosen: list[int]
    source: dict[str, str]
    bench: datasets.Benchmark | None = None


def of_the_paper(dataset: str, arch: str) -> Subject:
    """A dataset of the paper and its pre-trained network."""
    bench, net = datasets.load(dataset), models.pretrained(dataset, arch)
    source = {"dataset": dataset, "architecture": arch, "weights": models.manifest()[f"{dataset}/{arch}"]["sha256"]}
    graphs = bench.graphs if bench.level == "graph" else bench.graphs[0]
    return Subject(net, bench.model_config, graphs, bench.instances.tolist(), source, bench)


def of_the_user(model: str, weights: Path | None, data: Path | None, level: str) -> Subject:
    """A user's model and graphs."""
    assert data is not None
    net, graphs = own_model(model, weights), own_data(data)
    config = {"mode": "multiclass_classification", "task_level": level, "return_type": "raw"}
    source = {"model": model, "weights": str(weights), "data": str(data), "level": level}
    return Subject(net, config, graphs, list(range(rows(graphs, level))), source)


BackendName = Annotated[
    str | None, typer.Option(help=f"Where to work: {', '.join(backends.NAMES)}; local if none, processes with --workers.")
]
Workers = Annotated[
    int | None, typer.Option(min=1, help="How many workers the back end has; as many as there are cores if none.")
]
Address = Annotated[str | None, typer.Option(help="Address of a Ray cluster, such as head:6379; implies --backend ray.")]


def crew_of(backend: str | None, workers: int | None, address: str | None) -> backends.Backend:
    """The back end that the options name."""
    usual = "local" if workers is None or workers == 1 else "processes"
    return backends.make(backend or ("ray" if address else usual), workers, address)


@app.command()
def explain(
    dataset: Annotated[str | None, typer.Argument(help=f"One of {', '.join(datasets.NAMES)}; none with --model.")] = None,
    arch: Annotated[str, typer.Option(help="gcn or gin: which pre-trained network to explain.")] = "gcn",
    method: Annotated[str, typer.Option(help="How to explain; 'nseg list' shows all methods.")] = "nseg",
    objective: Annotated[
        str | None, typer.Option(help="For nseg: pns, pn (necessity only) or ps (sufficiency only); pns if none.")
    ] = None,
    masks: Annotated[
        str, typer.Option(help="What is kept or left out: e (edges), f (nodes with their features) or ef (both jointly).")
    ] = "e",
    index: Annotated[
        str | None,
        typer.Option(
            help="What to explain: 7, 3,5,9 or 300:700. If none: the paper's instances of a dataset, all of your own."
        ),
    ] = None,
    paper: Annotated[bool, typer.Option(help="Use the paper's settings for the dataset instead of the default.")] = False,
    undirected: Annotated[bool, typer.Option(help="Give both directions of an edge one weight.")] = False,
    seed: Annotated[int, typer.Option(help="Equal seeds give equal masks.")] = 0,
    model: Annotated[
        str | None, typer.Option(help="Your own model instead: FILE.py:FUNCTION that returns it; it must give class scores.")
    ] = None,
    weights: Annotated[Path | None, typer.Option(help="Its weights: safetensors, or a saved state dictionary.")] = None,
    data: Annotated[
        Path | None, typer.Option(help="Your own graph, or graphs, written by torch.save; or a folder of LargeGraph.")
    ] = None,
    level: Annotated[str, typer.Option(help="node or graph: what your model classifies.")] = "node",
    out: Annotated[
        Path | None, typer.Option(help="Folder to store explanations in as they are found; resumes what was stopped there.")
    ] = None,
    strict: Annotated[bool, typer.Option(help="Stop at the first prediction that cannot be explained.")] = False,
    backend: BackendName = None,
    workers: Workers = None,
    address: Address = None,
    shard: Annotated[int, typer.Option(min=1, help="Predictions that are explained and stored together, at most.")] = SHARD,
    measure: Annotated[bool, typer.Option(help="Measure explanations; takes all of them into memory.")] = True,
    report: Annotated[Path | None, typer.Option(help="An HTML file that shows the explanations in a browser.")] = None,
    quiet: Annotated[bool, typer.Option(help="No progress bar.")] = False,
) -> None:
    """Explain predictions, store them, and print how good the explanations are."""
    refuse(dataset, model, weights, data, level, paper)
    if out is not None:
        store.prepared(out)
    if report is not None:
        reports.writable(report)
        if data is not None and data.is_dir():
            raise InputError("A report draws explanations of graphs in memory (got a large graph). Leave --report out.")
    settings: dict[str, Any] = {"seed": seed, **({"undirected": True} if undirected else {})}
    algorithm = algorithm_of(method, dataset if paper else None, masks, objective, **settings)
    what = of_the_paper(dataset, arch) if dataset is not None else of_the_user(str(model), weights, data, level)
    bench, graphs = what.bench, what.graphs
    chosen = what.chosen if index is None else numbers(index)
    explain_ = explainer(what.net, what.config, masks, algorithm)
    progress = False if quiet else None
    began, before = time.perf_counter(), stored(out)
    if hasattr(algorithm, "fit"):  # a method that learns does so on what it explains
        algorithm.fit(explain_, graphs, chosen, progress=progress)
    with crew_of(backend, workers, address) as crew, resumable(out is not None):
        found: Sequence[Explanation] = explain_many(
            explain_, graphs, chosen, progress=progress, out=out, strict=strict, backend=crew, shard=shard
        )
    seconds, new = time.perf_counter() - began, len(found) - before
    took = f" in {seconds:.1f} s ({seconds / new:.4f} s each)" if new else ""
    there = f", {before} were stored already" if before else ""
    console().print(f"{new} explained{took}{there}, masks {masks}, {algorithm}.")
    large = isinstance(graphs, LargeGraph)
    good = explained(explain_, graphs, found) if (measure or report) and not large else []
    measured = measures(explain_, graphs, bench, good) if measure and good else {}
    for one in good if len(good) <= FEW else ():
        console().print(in_short(one), soft_wrap=True)
    if measured:
        console().print(scores_table(measured))
    if out is not None:
        facts = {
            **what.source,
            "method": method,
            "masks": masks,
            "settings": algorithm.settings.as_plain_data(),
            "instances": len(found),
            "metrics": measured,
            "nseg": __version__,
        }
        store.write_json(out / "summary.json", facts)
        console().print(f"Stored in {out}: explanations/*.parquet, manifest.json, summary.json.")
    if report is not None and good:
        facts = {name: value for name, value in what.source.items() if value != "None"}
        title = f"Why these predictions? {dataset or model}"
        reports.report({method: good}, report, data=bench or graphs, explainer=explain_, title=title, facts=facts)
        console().print(f"To see the explanations, open this page in a browser: {report}", soft_wrap=True)


@contextmanager
def resumable(kept: bool) -> Iterator[None]:
    """Ctrl-C ends with a word on what to do."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo("Stopped." + (" What is done is stored; the same command does the rest." if kept else ""), err=True)
        raise typer.Exit(130) from None


def stored(out: Path | None) -> int:
    """How many explanations a folder holds already."""
    there = out is not None and (out / "manifest.json").is_file()
    return len(store.Explanations(out)) if there and out is not None else 0


def in_short(one: Explanation) -> str:
    """What an explanation keeps, in words."""
    parts = [f"Output {one.output_id}: p {one.p_factual:.3f} with the explanation alone, {one.p_complement:.3f} without it."]
    if one.get("hard_edge_mask") is not None:
        ends = one.node_id[one.edge_index[:, one.hard_edge_mask]].T.tolist()
        shown = ", ".join(f"{a} to {b}" for a, b in ends[:MOST_SHOWN]) + (", ..." if len(ends) > MOST_SHOWN else "")
        parts.append(f"{len(ends)} of {int(one.reached.sum())} edges are kept: {shown or 'none'}.")
    if one.get("hard_node_mask") is not None and one.hard_node_mask.size(0) == one.node_id.numel():
        nodes = one.node_id[one.hard_node_mask.any(1)].tolist()
        shown = ", ".join(map(str, nodes[:MOST_SHOWN])) + (", ..." if len(nodes) > MOST_SHOWN else "")
        parts.append(f"{len(nodes)} of {one.node_id.numel()} nodes are kept: {shown or 'none'}.")
    return " ".join(parts)


def refuse(dataset: str | None, model: str | None, weights: Path | None, data: Path | None, level: str, paper: bool) -> None:
    """Raise unless it is clear what to explain."""
    if (dataset is None) == (model is None):
        both = "neither" if dataset is None else "both"
        raise InputError(f"Say what to explain: a dataset, or your own with --model and --data (got {both}).")
    if dataset is not None and (weights or data):
        raise InputError("--weights and --data belong to --model (got them with a dataset). Leave the dataset out.")
    if model is not None and data is None:
        raise InputError("--model needs --data, a file or folder with your graph (got none).")
    if model is not None and paper:
        raise InputError("--paper needs a dataset of the paper (got --model). Leave it out.")
    if level not in ("node", "graph"):
        raise InputError(f"level must be node or graph (got {level!r}).")


def explained(explain_: Explainer, graphs: Any, found: Sequence[Explanation]) -> list[Explanation]:
    """Explanations with their graphs, after a word on what could not be explained."""
    names = arguments(explain_.model, graphs if isinstance(graphs, Data) else graphs[0])
    reasons = [one for one in found if one.get("reason") is not None]
    if reasons:
        console().print(f"{len(reasons)} could not be explained; output {reasons[0].output_id}: {reasons[0].reason}")
    good = (one for one in found if one.get("reason") is None)
    return [one if "x" in one else store.attach(one, graphs, names) for one in good]


def measures(
    explain_: Explainer, graphs: Any, bench: datasets.Benchmark | None, found: list[Explanation]
) -> dict[str, dict[str, float]]:
    """Fidelity of soft and hard masks, and accuracy where ground truth is known, with trivial explanations beside them."""
    rows = {}
    for name, some in (("explanation", found), *((k, metrics.trivial(found, k)) for k in ("all", "none", "random"))):
        judge = metrics.Judge(explain_, graphs, some)
        for masks in ("soft", "hard"):
            result = judge.fidelity(masks)
            row = {k: getattr(result, k) for k in ("fid_plus", "fid_minus", "charact", "sparsity", "pns", "pn", "ps")}
            if bench is not None and masks == "soft":
                accuracy = metrics.accuracy(bench, some, "node" if some[0].get("edge_mask") is None else "edge")
                row |= {k: metrics.summarise(getattr(accuracy, k))["mean"] for k in ("recall_at_k", "roc_auc")}
            rows[f"{name}, {masks}"] = row
    return rows


def scores_table(measured: dict[str, dict[str, float]]) -> Table:
    """Metrics of explanations, a line per kind of mask."""
    columns = ("fid_plus", "fid_minus", "charact", "sparsity", "pns", "pn", "ps", "recall_at_k", "roc_auc")
    heads = ("Fid+", "Fid-", "charact", "sparsity", "PNS", "PN", "PS", "Recall@K", "ROC-AUC")
    known = [c for c in columns if any(not math.isnan(row.get(c, math.nan)) for row in measured.values())]
    shown = [head for head, c in zip(heads, columns, strict=True) if c in known]
    caption = COLUMNS + (TRUTH if "recall_at_k" in known else "")
    table = Table("masks", *shown, title="Messages and features are weighed, nothing is removed", caption=caption)
    for name, row in measured.items():
        values = (row.get(c, float("nan")) for c in known)
        table.add_row(name, *("" if math.isnan(v) else f"{v:.3f}" for v in values))
    return table


def rows(graphs: Any, level: str) -> int:
    """How many outputs a model has for a user's data."""
    return int(graphs.num_nodes) if isinstance(graphs, Data | LargeGraph) and level == "node" else len(graphs)


def numbers(text: str, what: str = "index") -> list[int]:
    """Numbers from ``7``, ``3,5,9`` or ``300:700``.

    >>> numbers("3,5:8")
    [3, 5, 6, 7]
    """
    found: list[int] = []
    try:
        for part in text.split(","):
            first, colon, last = part.partition(":")
            found += range(int(first), int(last)) if colon else [int(first)]
    except ValueError:
        raise InputError(f"{what} must look like 7, 3,5,9 or 300:700 (got {text!r}).") from None
    if not found:
        raise InputError(f"{what} must name at least one number (got {text!r}). 300:700 is 300 to 699.")
    return found


def own_model(place: str, weights: Path | None) -> nn.Module:
    """A user's model from ``FILE.py:FUNCTION``, with weights if given."""
    path, _, name = place.rpartition(":")
    if not path or not Path(path).is_file():
        raise InputError(f"--model must be FILE.py:FUNCTION with a file that exists (got {place!r}).")
    spec = importlib.util.spec_from_file_location("nseg_users_model", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise InputError(
            f"{path} must be a Python file that runs (got {type(error).__name__}: {error}). Mend it."
        ) from error
    build: Callable[[], nn.Module] | None = getattr(module, name, None)
    if not callable(build):
        raise InputError(f"{path} must define {name}() that returns the model (it does not).")
    try:
        model = build()
    except Exception as error:
        raise InputError(f"{name}() must return a model without arguments (got {type(error).__name__}: {error}).") from error
    if not isinstance(model, nn.Module):
        raise InputError(f"{name}() must return a torch.nn.Module (got {type(model).__name__}).")
    if weights is not None:
        try:
            model.load_state_dict(models.read_weights(weights))
        except RuntimeError as error:
            said = " ".join(str(error).split())
            raise InputError(f"{weights.name} must hold the weights of what {name}() returns (got: {said}).") from error
    return model.eval()


def own_data(path: Path) -> Any:
    """A user's graph or graphs, read without running any code in the file; a folder is a large graph."""
    if path.is_dir():
        return LargeGraph(path)
    if not path.is_file():
        raise InputError(f"--data must be a file (got {path}, which is none). Write it with torch.save(data, path).")
    known = torch.serialization.get_safe_globals()  # those that PyG has registered must stay when we are done
    new = [kind for kind in (Data, DataEdgeAttr, DataTensorAttr, GlobalStorage) if kind not in known]
    try:
        with torch.serialization.safe_globals(new):
            loaded = torch.load(path, weights_only=True)
    except Exception as error:
        raise InputError(
            f"{path.name} must hold a PyG Data object or a list of them (got something else: {type(error).__name__}). "
            "Write it with torch.save(data, path)."
        ) from error
    good = isinstance(loaded, Data) or (isinstance(loaded, list) and all(isinstance(one, Data) for one in loaded))
    if not good:
        raise InputError(f"{path.name} must hold a PyG Data object or a list of them (got {type(loaded).__name__}).")
    return loaded


# --- studies -------------------------------------------------------------------------------------------------------------


@app.command()
def bench(
    name: Annotated[
        str, typer.Argument(metavar="STUDY", help="A study that ships ('nseg list' shows them) or a TOML file.")
    ],
    out: Annotated[
        Path | None, typer.Option(help="Run folder; runs/STUDY if none. Started again, it does what is missing.")
    ] = None,
    backend: BackendName = None,
    workers: Workers = None,
    address: Address = None,
    every: Annotated[int | None, typer.Option(min=1, help="Explain every n-th of the paper's instances instead.")] = None,
    seeds: Annotated[str | None, typer.Option(help="Seeds instead of the study's, such as 0:5 or 0,3.")] = None,
    networks: Annotated[str | None, typer.Option(help="ours or authors: whose networks to explain instead.")] = None,
    retry: Annotated[bool, typer.Option(help="Run failed trials again.")] = False,
    quiet: Annotated[bool, typer.Option(help="Print nothing but errors.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON record per line.")] = False,
) -> None:
    """Run a study; exit code 1 says that trials failed."""
    plan = study.find(name)
    changes: dict[str, Any] = {
        "every": every,
        "networks": networks,
        "seeds": None if seeds is None else tuple(numbers(seeds, "seeds")),
    }
    plan = replace(plan, **{k: v for k, v in changes.items() if v is not None})
    folder = out or Path("runs") / plan.name
    crew_ = crew_of(backend, workers, address)
    run_, trials = study.start(plan, folder, " ".join(["nseg", *sys.argv[1:]]))
    left = [key for key in trials if not run_.done(key, plan.measures, retry)]
    show = not quiet and not as_json
    if show:
        console().print(f"{plan.title}: {len(trials)} trials, {len(trials) - len(left)} already done, run folder {folder}.")
    with crew_ as crew, resumable(True), bench_progress(run_, left, show) as (advance, say):
        for record in study.run(run_, plan, trials, crew, retry):
            advance()
            if as_json:
                typer.echo(json.dumps({k: v for k, v in record.items() if k != "curves"}))
            elif show:
                say(one_line(record, plan.columns))
    failed = [record for record in run_.records(trials) if record["status"] == "failed"]
    if show:
        console().print(f"{len(trials) - len(failed)} of {len(trials)} trials done. Show them: nseg report {folder}")
    if failed:
        typer.echo(f"nseg: {len(failed)} trials failed; the first:\n{failed[0]['traceback']}", err=True)
        raise typer.Exit(1)


@contextmanager
def bench_progress(
    run_: study.Run, left: list[str], show: bool
) -> Iterator[tuple[Callable[[], None], Callable[[str], None]]]:
    """A bar with what runs now, and lines above it."""

    class Now(ProgressColumn):
        def render(self, task: Any) -> Text:
            return Text("; ".join(run_.running(left)))

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("left"), TimeRemainingColumn(), Now())
    where = Console(stderr=True, width=None if sys.stderr.isatty() else 110)
    with Progress(*columns, console=where, disable=not show, transient=True, refresh_per_second=1) as bar:
        task = bar.add_task("trials", total=len(left))
        yield lambda: bar.advance(task), lambda text: where.print(text, highlight=False, markup=False)


def one_line(record: dict[str, Any], columns: Sequence[str]) -> str:
    """A record in short."""
    trial, means = study.Trial(**record["trial"]), record.get("means") or {}
    if record["status"] != "done":
        last = record.get("reason") or record["traceback"].strip().splitlines()[-1]
        return f"{trial}: {record['status']}: {last}"
    shown = (f"{summary.head(c)} {means[c]:.4g}" for c in columns if means.get(c) is not None)
    return f"{trial}: {', '.join(shown)}"


@app.command()
def report(
    run: Annotated[Path, typer.Argument(help="A run folder of 'nseg bench'.")],
    name: Annotated[str | None, typer.Option("--study", help="Which study of it; all if none.")] = None,
    form: Annotated[str, typer.Option("--format", help="What to print: table, markdown, csv, latex or none.")] = "table",
    out: Annotated[Path | None, typer.Option(help="Folder for tables, figures and manifest; RUN/report if none.")] = None,
    html: Annotated[bool, typer.Option(help="Write interactive pages, one per dataset and network.")] = True,
    dataset: Annotated[str | None, typer.Option(help="Only the page of this dataset.")] = None,
    methods: Annotated[
        str | None,
        typer.Option(help="Labels to show side by side on the pages, with ; between them; the first three if none."),
    ] = None,
    open_: Annotated[bool, typer.Option("--open", help="Open the first page in a browser.")] = False,
) -> None:
    """Show the results of a study beside the paper's, and write tables, figures and interactive pages."""
    found = study.Run(run)
    if not found.studies():
        raise InputError(f"RUN must be a run folder of nseg bench (got {run}, which is none). Make one: nseg bench smoke.")
    printed = {"markdown": tables.markdown, "latex": tables.latex}
    if form not in ("table", "csv", "none", *printed):
        raise InputError(f"--format must be table, markdown, csv, latex or none (got {form!r}).")
    pages: list[Path] = []
    known = {trial.dataset for one in found.studies() for trial in found.study(one)[1].values()}
    if dataset is not None and dataset not in known:
        raise InputError(f"--dataset must be one of the run's: {', '.join(sorted(known))} (got {dataset!r}).")
    for one in [name] if name else found.studies():
        lines = summary.summary(found, one)
        if form == "table":
            for table in tables.tables(lines):
                console(150).print(tables.terminal(table))
            console().print(tables.NOTES)
        elif form != "none":
            typer.echo(tables.as_csv(lines) if form == "csv" else printed[form](tables.tables(lines)))
        files = study.write_report(found, one, out or run / "report")
        if html:
            labels = [label.strip() for label in methods.split(";")] if methods else []
            pages += study.write_pages(found, one, out or run / "report", labels, dataset)
            files += [path.name for path in pages]
        typer.echo(f"Wrote {', '.join(files)} to {out or run / 'report'}.", err=True)
    if open_ and pages:
        webbrowser.open(pages[0].resolve().as_uri())


# --- train and list ------------------------------------------------------------------------------------------------------


@app.command()
def train(
    dataset: Annotated[str, typer.Argument(help=f"One of {', '.join(datasets.NAMES)}.")],
    arch: Annotated[str, typer.Option(help="gcn or gin.")] = "gcn",
    seed: Annotated[int, typer.Option(help="Seed of split, start and order.")] = 0,
    epochs: Annotated[int | None, typer.Option(min=1, help="At most this many; the paper's number if none.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for model.safetensors and manifest.json.")] = None,
) -> None:
    """Train a network with the paper's hyper-parameters."""
    bench = datasets.load(dataset)
    if out is not None:
        store.prepared(out)
    how = models.recipe(dataset, seed=seed, **({} if epochs is None else {"epochs": epochs}))
    done = models.train(bench, arch, how)
    accuracy = ", ".join(f"{part} {value:.3f}" for part, value in done.accuracy.items())
    console().print(f"{arch} on {dataset}: {done.epochs} epochs, best at {done.best_epoch}; accuracy {accuracy}.")
    if out is not None:
        digest: list[str] = []
        store.replace_file(out / "model.safetensors", lambda path: digest.append(write_weights(done.model, path)))
        store.write_json(
            out / "manifest.json", {"dataset": dataset, "architecture": arch, "sha256": digest[0], **done.record()}
        )
        console().print(f"Stored in {out}: model.safetensors, manifest.json.")


@app.command(name="list")
def list_() -> None:
    """Show datasets, models with their accuracy, studies, methods and their settings, and metrics."""
    table = Table("dataset", "explains", "GCN test accuracy", "GIN test accuracy", title="Datasets and pre-trained models")
    entries = models.manifest()
    levels = {"node": "nodes", "graph": "graphs"}
    for name in datasets.NAMES:
        accuracy = [f"{entries[f'{name}/{a}']['accuracy']['test']:.3f}" for a in models.ARCHITECTURES]
        table.add_row(name, levels[entries[f"{name}/gcn"]["level"]], *accuracy)
    out = console()
    out.print(table)
    studies = Table("study", "what it shows", title="Studies (nseg bench)")
    for one in study.names():
        studies.add_row(one, study.find(one).title)
    out.print(studies)
    methods = Table("method", "idea", title="Methods")
    for name, entry in baselines.CATALOGUE.items():
        methods.add_row(name, entry.idea)
    out.print(methods)
    out.print(papers_settings())
    rows = Table("metric", "unit", "better", "what it is", title="Metrics")
    for name in metrics.__all__:
        function = getattr(metrics, name)
        if hasattr(function, "unit"):
            rows.add_row(name, function.unit, function.better, str(function.__doc__).split("\n")[0].split(", :math:")[0])
    out.print(rows)


def papers_settings() -> Table:
    """How the paper set NSEG."""
    table = Table("method", "settings that differ from the default", title="The paper's settings")
    plain = vars(NSEG().settings)
    for (dataset, masks), settings in PAPER.items():
        changed = (f"{k}={v:g}" if isinstance(v, float) else f"{k}={v}" for k, v in settings.items() if v != plain[k])
        table.add_row(f"nseg, paper, {dataset} ({masks})", ", ".join(changed))
    return table


def run() -> None:
    """Entry point: an error that we raise on purpose is a sentence, not a traceback."""
    try:
        app()
    except NsegError as error:
        typer.echo(f"nseg: {error}", err=True)
        raise SystemExit(2) from None
