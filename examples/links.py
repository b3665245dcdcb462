"""Why are these two suggested as friends? A link predictor on a made-up network, explained friendship by friendship.

Run it: python examples/links.py [FOLDER]. It needs no data, takes a few seconds, and writes links.html into the folder.

People belong to circles and mostly know people of their own circle; a few friendships cross. A network that sees nothing but
who knows whom learns to say whether two people know each other. A friendship that it never saw is then suggested, and NSEG
says which known friendships are behind the suggestion.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import SAGEConv
from torch_geometric.utils import to_dense_adj, to_undirected

from nseg import NSEG, Explainer, explain_many, report

CIRCLES, EACH, SHOWN = ("chess", "choir", "football", "theatre"), 12, 30
PEOPLE = [f"{circle} {n + 1}" for circle in CIRCLES for n in range(EACH)]


def friendships(seed: int = 0) -> tuple[Data, Tensor]:
    """The known friendships as a graph, and those that are kept from the network, [2, H]."""
    rng = torch.Generator().manual_seed(seed)
    circle = torch.arange(len(PEOPLE)) // EACH
    one, other = torch.combinations(torch.arange(len(PEOPLE))).T
    chance = torch.where(circle[one] == circle[other], 0.55, 0.05)
    pairs = torch.stack([one, other])[:, torch.rand(len(one), generator=rng) < chance]
    hidden = torch.rand(pairs.size(1), generator=rng) < 0.2
    return Data(x=torch.eye(len(PEOPLE)), edge_index=to_undirected(pairs[:, ~hidden]), circle=circle), pairs[:, hidden]


class Matchmaker(nn.Module):
    """Tell me who you know and I say who you are; people who are alike know each other."""

    def __init__(self) -> None:
        super().__init__()
        self.friends = SAGEConv(len(PEOPLE), 16, aggr="sum", root_weight=False)
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor, edge_index: Tensor, edge_label_index: Tensor) -> Tensor:
        """Score of each pair, [P]; above 0 they are thought to know each other."""
        one, other = self.friends(x, edge_index)[edge_label_index]
        scores: Tensor = (one * other).sum(-1) + self.bias
        return scores


def trained(data: Data) -> Matchmaker:
    """A network that tells known pairs from others."""
    torch.manual_seed(0)
    model = Matchmaker()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02, weight_decay=3e-3)
    pairs = torch.combinations(torch.arange(data.num_nodes)).T
    known = to_dense_adj(data.edge_index)[0][pairs[0], pairs[1]]
    for _ in range(100):
        scores = model(data.x, data.edge_index, pairs)
        optimiser.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(scores, known, pos_weight=torch.tensor(3.0)).backward()
        optimiser.step()
    return model.eval()


def main(folder: Path) -> None:
    """Train, explain suggestions, print and write a report."""
    folder.mkdir(parents=True, exist_ok=True)
    data, hidden = friendships()
    model = trained(data)
    with torch.no_grad():
        likely = model(data.x, data.edge_index, hidden) > 0
    data.edge_label_index = hidden[:, likely][:, :SHOWN]
    print(
        f"{data.num_nodes} people, {data.num_edges // 2} known friendships. Of {hidden.size(1)} friendships that it never "
        f"saw, the network suggests {int(likely.sum())}."
    )

    explainer = Explainer(
        model,
        NSEG(),
        explanation_type="model",
        edge_mask_type="object",
        model_config={"mode": "binary_classification", "task_level": "edge", "return_type": "raw"},
    )
    found = explain_many(explainer, data)

    inside = data.circle[data.edge_index[0]] == data.circle[data.edge_index[1]]
    for one in found[:3]:
        pair = data.edge_label_index[:, one.output_id].tolist()
        friend, person = data.edge_index[:, one.edge_id[one.hard_edge_mask]]
        print(f"\n{PEOPLE[pair[0]]} and {PEOPLE[pair[1]]} are suggested because")
        for who in pair:
            print(f"  {PEOPLE[who]} knows {', '.join(PEOPLE[n] for n in friend[person == who].tolist())}")
        print(f"  With these friendships alone p = {one.p_factual:.2f}, without them {one.p_complement:.2f}.")

    kept = torch.cat([one.edge_id[one.hard_edge_mask] for one in found])
    within = torch.cat([one.edge_id[one.reached] for one in found])
    print(
        f"\nOver {len(found)} suggestions, explanations keep {len(kept) / len(within):.0%} of the friendships within reach; "
        f"{inside[kept].float().mean():.0%} of what they keep is inside a circle, of all within reach "
        f"{inside[within].float().mean():.0%}."
    )
    classes = ("do not know each other", "know each other")
    page = report(found, folder / "links.html", data=data, explainer=explainer, names=PEOPLE, class_names=classes)
    print(f"Look at them: {page}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/examples"))
