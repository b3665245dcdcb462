"""The report in Chromium: whether labels cover each other or nodes, and how fast a page of 5,000 instances answers.

    NSEG_DATA=... python benchmarks/page.py [--instances 50] [--large 5000]

Writes results/page_labels.csv: of each page at 1280 x 720, labels drawn, kept nodes without a label, pairs of labels that
intersect by more than a pixel, labels that lie over another node, drawings in which the table of worlds needs scrolling, and
cut cells. Labels along edges are rotated rectangles. Writes results/page_speed.csv: milliseconds until a page of many
instances is ready, and until a search, a sort, scrolling to the end and opening an instance are drawn.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from csv_table import write_table
from report import many_instances
from torch_geometric.data import HeteroData

from nseg import NSEG, Explainer, explain_many, report
from nseg.datasets import load
from nseg.models import pretrained

HERE = Path(__file__).parent
RESULTS = HERE / "results"

MEASURE = """() => { const cy = document.querySelector('.canvas')._cyreg.cy, labels = [], nodes = [];
    const zoom = cy.zoom(), pan = cy.pan(), at = (x, y) => [x * zoom + pan.x, y * zoom + pan.y];
    const rectangle = (x, y, w, h, angle, owner) => { const c = Math.cos(angle), s = Math.sin(angle);
        return {owner, corners: [[-1, -1], [1, -1], [1, 1], [-1, 1]].map(([a, b]) =>
            [x + (a * w * c - b * h * s) / 2, y + (a * w * s + b * h * c) / 2]), axes: [[c, s], [-s, c]]}; };
    const only = {includeNodes: false, includeEdges: false, includeOverlays: false, includeUnderlays: false};
    let unnamed = 0;
    cy.nodes().filter(n => n.visible()).forEach(n => {
        const p = n.renderedPosition(), w = n.renderedWidth(), h = n.renderedHeight();
        nodes.push(rectangle(p.x, p.y, w, h, 0, n.id()));
        if (!n.style('label')) { unnamed += n.data('label') && n.hasClass('kept') ? 1 : 0; return; }
        const b = n.renderedBoundingBox(only);
        labels.push(rectangle((b.x1 + b.x2) / 2, (b.y1 + b.y2) / 2, b.x2 - b.x1, b.y2 - b.y1, 0, n.id())); });
    cy.edges().filter(e => e.visible() && e.style('label')).forEach(e => {
        const r = e._private.rscratch, s = e._private.rstyle;
        const [x, y] = at(s.labelX, s.labelY + e.numericStyle('text-margin-y'));
        labels.push(rectangle(x, y, r.labelWidth * zoom, r.labelHeight * zoom, r.labelAngle || 0, e.id())); });
    const along = (r, [x, y]) => r.corners.map(c => c[0] * x + c[1] * y);
    const apart = (a, b) => [...a.axes, ...b.axes].some(axis => { const [p, q] = [along(a, axis), along(b, axis)];
        return Math.max(...p) - 1 <= Math.min(...q) || Math.max(...q) - 1 <= Math.min(...p); });
    const pairs = [], covered = [];
    labels.forEach((a, i) => labels.slice(i + 1).forEach(b => { if (!apart(a, b)) pairs.push([a.owner, b.owner]); }));
    labels.forEach(a => nodes.forEach(b => { if (a.owner !== b.owner && !apart(a, b)) covered.push([a.owner, b.owner]); }));
    return {labels: labels.length, unnamed, pairs, covered,
        below: document.querySelector('.worlds').getBoundingClientRect().bottom > innerHeight,
        cut: [...document.querySelectorAll('.list td, .list th, .worlds th')]
            .filter(e => e.scrollWidth > e.clientWidth + 1).length};
}"""

TIMED = """step => new Promise(done => { const began = performance.now();
    const drawn = () => requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - began)));
    const box = document.querySelector('input[type=search]'), list = document.querySelector('.list');
    if (step === 'search') { box.value = 'tx-042'; box.dispatchEvent(new Event('input')); drawn(); }
    if (step === 'clear') { box.value = ''; box.dispatchEvent(new Event('input')); drawn(); }
    if (step === 'sort') { document.querySelectorAll('.list .sort')[3].click(); drawn(); }
    if (step === 'scroll') { let last = -1; const on = () => {
        const rows = list.querySelectorAll('tbody tr'), end = rows[rows.length - 1];
        if (rows.length === last) { drawn(); return; }
        last = rows.length; end.scrollIntoView(); requestAnimationFrame(() => requestAnimationFrame(on)); }; on(); }
    if (step === 'open') { addEventListener('hashchange', drawn, {once: true}); location.hash = '#instance=4321'; }
})"""


def of_dataset(name: str, architecture: str, number: int, folder: Path) -> Path:
    """Page of the first instances of a dataset."""
    data, model = load(name), pretrained(name, architecture)
    explainer = Explainer(
        model, NSEG(), explanation_type="model", edge_mask_type="object", model_config=dict(data.model_config)
    )
    index = data.instances[:: max(1, len(data.instances) // number)][:number]
    graphs = data.graphs if data.level == "graph" else data.graphs[0]
    return report(explain_many(explainer, graphs, index), folder / f"{name}.html", data=data, explainer=explainer)


def of_fraud(number: int, folder: Path) -> Path:
    """Page of the fraud example, with features explained too and names of accounts."""
    spec = importlib.util.spec_from_file_location("fraud", HERE.parent / "examples" / "fraud.py")
    assert spec is not None
    assert spec.loader is not None
    fraud = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fraud)
    data = fraud.make_transfers()
    data.node_names = [f"account-{n:04d}" for n in range(data.num_nodes)]
    data.feature_names = ["new_account", "balance"]
    model = fraud.train_detector(data)
    explainer = Explainer(
        model,
        NSEG(),
        explanation_type="model",
        edge_mask_type="object",
        node_mask_type="attributes",
        model_config={"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"},
    )
    with torch.no_grad():
        flagged = model(data.x, data.edge_index, data.edge_attr).argmax(-1).nonzero().flatten()
    found = explain_many(explainer, data, flagged[:number], class_names=["honest", "mule"])
    return report(found, folder / "fraud.html", data=data, explainer=explainer)


def of_dblp(number: int, folder: Path) -> Path:
    """Page of a heterogeneous graph, whose kept edges are labelled by what they say."""
    data = load("dblp")
    graph: HeteroData = data.graphs[0]
    explainer = Explainer(
        pretrained("dblp", "sage"),
        NSEG(),
        explanation_type="model",
        edge_mask_type="object",
        model_config=dict(data.model_config),
    )
    found = explain_many(explainer, graph, data.instances[:number])
    return report(found, folder / "dblp.html", data=graph, explainer=explainer, class_names=data.class_names)


def measure_labels(page: Any, number: int) -> dict[str, Any]:
    """What is drawn over what, in all instances of an open page."""
    links = page.evaluate("[...document.querySelectorAll('.list tbody a')].map(a => a.getAttribute('href'))")[:number]
    total: dict[str, Any] = dict.fromkeys(
        ("labels", "kept_nodes_without_label", "label_pairs", "labels_over_nodes", "worlds_below", "cut_cells"), 0
    )
    for link in links:
        page.evaluate(f"location.hash = '{link}'")
        page.wait_for_function(f"document.querySelector('.list tr[data-current] a').getAttribute('href') === '{link}'")
        page.wait_for_timeout(60)
        found = page.evaluate(MEASURE)
        sizes = found["labels"], found["unnamed"], len(found["pairs"]), len(found["covered"]), found["below"], found["cut"]
        for name, size in zip(total, sizes, strict=True):
            total[name] += int(size)
    return {"instances": len(links), **total}


def pages(number: int, folder: Path) -> Iterator[tuple[str, Path]]:
    """The pages that are measured."""
    yield "BA-Shapes", of_dataset("ba-shapes", "gcn", number, folder)
    yield "Mutagenicity", of_dataset("mutagenicity", "gin", number, folder)
    yield "fraud example", of_fraud(number, folder)
    yield "DBLP (heterogeneous)", of_dblp(number, folder)


def main() -> None:
    from playwright.sync_api import sync_playwright

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instances", type=int, default=50, help="per page; 0 measures no labels")
    parser.add_argument("--large", type=int, default=5000, help="instances of the large page; 0 makes none")
    parser.add_argument("--folder", type=Path, help="where pages are kept")
    options = parser.parse_args()
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as own:
        folder = options.folder or Path(own)
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        view = browser.new_context(viewport={"width": 1280, "height": 720})
        rows = []
        for name, path in pages(options.instances, folder) if options.instances else ():
            page = view.new_page()
            page.goto(path.as_uri())
            rows.append({"page": name, **measure_labels(page, options.instances)})
            print(rows[-1], flush=True)
        if rows:
            write_table(RESULTS / "page_labels.csv", rows)
        if options.large:
            found, data, explainer = many_instances(options.large)
            path = report(found, folder / "large.html", data=data, explainer=explainer)
            page = view.new_page()
            page.goto(path.as_uri())
            ready = "performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd"
            steps = {"ready": page.evaluate(ready)}
            steps |= {step: page.evaluate(TIMED, step) for step in ("search", "clear", "sort", "scroll", "open")}
            row = {"instances": options.large, "megabytes": round(path.stat().st_size / 1e6, 1)}
            row |= {f"{name}_ms": round(value) for name, value in steps.items()}
            print(row)
            write_table(RESULTS / "page_speed.csv", [row])
        browser.close()


if __name__ == "__main__":
    main()
