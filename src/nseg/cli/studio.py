"""``nseg studio``: a live page on which you change a graph and ask the model."""

from __future__ import annotations

from typing import Annotated

import typer

from nseg.cli.console import console
from nseg.cli.explain import Dataset, Graphs, Level, Masks, Model, Weights, check_names, check_subject
from nseg.cli.options import Architecture, set_threads


def studio(
    context: typer.Context,
    dataset: Dataset = None,
    arch: Architecture = None,
    masks: Masks = "e",
    model: Model = None,
    weights: Weights = None,
    data: Graphs = None,
    level: Level = "node",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on this machine. Default: any free one.")] = 0,
    browser: Annotated[bool, typer.Option(help="Open the page in a browser.")] = True,
    patience: Annotated[float, typer.Option(min=1, help="Seconds that a question may take.")] = 60.0,
) -> None:
    """Change a graph by clicking, see at once what the model says, and ask why."""
    check_subject(dataset, model, weights, data, level, paper=False)
    check_names(dataset, arch, "nseg", None, masks)
    set_threads(context)
    import webbrowser

    from nseg.cli.subject import load_subject, make_algorithm, make_explainer
    from nseg.live.launch import make_studio

    subject = load_subject(dataset, arch, model, weights, data, level)
    explainer = make_explainer(subject.model, subject.config, masks, make_algorithm("nseg", None, masks, None))
    running = make_studio(explainer, subject.benchmark or subject.graphs, port=port, patience=patience)
    console().print(f"The studio is at {running.address} (Ctrl-C stops it).", soft_wrap=True, highlight=False)
    if browser and not webbrowser.open(running.address):
        console().print("No browser was found. Open the address by hand.")
    running.run()
