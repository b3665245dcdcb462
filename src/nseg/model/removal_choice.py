"""Which remover is fast and exact for a model: verified on a few outputs, against deleting edges from the whole graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from nseg.graphs.baseline import nodes_vanish
from nseg.graphs.batch import InstanceBatch
from nseg.model.outcomes import Outcome
from nseg.model.removal import OneAtATime, Remover, SmallerGraphs
from nseg.model.rescaling import rescaled_messages
from nseg.model.runner import WorldRunner
from nseg.model.slow_runs import raise_own_fault, raised

SHARES = (1.0, 0.9, 0.5, 0.1)
"""Shares of the edges that are kept in the worlds that removers are verified in."""

OUTSIDE = (1.0, 0.0, 1.0, 0.0)
"""Whether the edges outside the instances are kept there."""


@dataclass(frozen=True)
class Surroundings:
    """What lies around a batch of instances.

    Args:
        edge_index: the whole graph that they were cut from; None if they were not.
        wide: returns the same instances, one hop wider; None if they were not cut.
        whole: returns one instance on the whole graph, by its number.
    """

    edge_index: Tensor | None
    wide: Callable[[], InstanceBatch] | None
    whole: Callable[[int], InstanceBatch]


Kind = Callable[[nn.Module, Outcome, WorldRunner, Surroundings, bool], Remover | None]
"""Makes a kind of remover for the instances of a runner; None where it cannot work."""


def rescaled(_: nn.Module, __: Outcome, runner: WorldRunner, around: Surroundings, tied: bool) -> Remover | None:
    """Messages, weighed by what becomes of their coefficients; nodes cannot be deleted like that."""
    return None if nodes_vanish(runner.instances.baseline) else rescaled_messages(runner, around.edge_index, tied)


def smaller(model: nn.Module, outcome: Outcome, runner: WorldRunner, around: Surroundings, tied: bool) -> Remover:
    """Smaller graphs, made of the instances alone."""
    return SmallerGraphs(model, outcome, runner.instances, None, tied)


def smaller_of_wide(
    model: nn.Module, outcome: Outcome, runner: WorldRunner, around: Surroundings, tied: bool
) -> Remover | None:
    """Smaller graphs, made of the instances and the edges around them."""
    return None if around.wide is None else SmallerGraphs(model, outcome, runner.instances, around.wide(), tied)


def one_at_a_time(
    model: nn.Module, outcome: Outcome, runner: WorldRunner, around: Surroundings, tied: bool, why: str = ""
) -> Remover:
    """The whole graph for every world of every instance."""
    numbers = torch.arange(len(runner.instances), device=runner.instances.x.device)
    return OneAtATime(model, outcome, runner.instances, tied, around.whole, numbers, why)


KINDS: tuple[Kind, ...] = (rescaled, smaller, smaller_of_wide)
"""Kinds of removers to try, fastest first."""


@torch.no_grad()
def choose_kind(model: nn.Module, outcome: Outcome, runner: WorldRunner, around: Surroundings) -> Kind:
    """The fastest kind of remover that is exact for a few instances in random worlds.

    Args:
        model, outcome: the network, borrowed, and how its output is read.
        runner: the runner of the few instances.
        around: what lies around them.
    """
    weights = random_deletions(runner.instances)
    expected = one_at_a_time(model, outcome, runner, around, False).run(weights, len(SHARES))
    why = "with edges deleted, its output on a subgraph, or on several together, is not that on the whole graph"
    for kind in KINDS:
        try:
            remover = kind(model, outcome, runner, around, False)
            if remover is not None and bool(outcome.agree(remover.run(weights, len(SHARES)), expected).all()):
                return kind
        except Exception as error:  # a model may raise anything on graphs that it does not expect together
            raise_own_fault(error)
            why = raised(error, "with edges deleted from a subgraph, or from several together")
    return partial(one_at_a_time, why=why)


def random_deletions(instances: InstanceBatch) -> Mapping[str, Tensor]:
    """Random worlds to verify removers in."""

    def kept() -> Iterator[Tensor]:
        rng = torch.Generator().manual_seed(0)
        for share in SHARES:
            yield (torch.rand(instances.num_edges, generator=rng) < share).float()

    device = instances.x.device
    found = {"edges": torch.stack(list(kept())).to(device), "outside": torch.tensor(OUTSIDE, device=device)}
    if nodes_vanish(instances.baseline):
        share = torch.tensor(SHARES).view(-1, 1, 1)
        rng = torch.Generator().manual_seed(1)
        found["outside nodes"] = found["outside"]
        found["nodes"] = (torch.rand(len(SHARES), instances.num_nodes, 1, generator=rng) < share).to(
            device, instances.x.dtype
        )
    return found


def remover_of_graphs(model: nn.Module, outcome: Outcome) -> Callable[[bool, WorldRunner], Remover]:
    """Makes the fastest remover that is exact for a few of the graphs."""

    def make(tied: bool, runner: WorldRunner) -> Remover:
        few = torch.arange(min(3, len(runner.instances)), device=runner.instances.x.device)

        def around(instances: InstanceBatch) -> Surroundings:
            return Surroundings(None, None, lambda number: instances.select(few.new_tensor([number])))

        some = runner.instances.select(few)
        kind = choose_kind(model, outcome, runner.select(few, some), around(some))
        found = kind(model, outcome, runner, around(runner.instances), tied)
        assert found is not None
        return found

    return make
