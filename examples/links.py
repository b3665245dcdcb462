"""Why are these two people suggested as friends? Explain a link predictor on a synthetic social network.

Run it with: python examples/links.py [FOLDER]. It needs no data, takes a few seconds, and writes links.html into the folder.

People belong to circles and mostly know people of their own circle; a few friendships connect different circles. The network
sees only who knows whom, and learns to predict whether two people know each other. It then suggests friendships that it
never saw, and NSEG finds the known friendships that lead to each suggestion.
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

CIRCLES, CIRCLE_SIZE, SHOWN = ("chess", "choir", "football", "theatre"), 12, 30
PEOPLE = [f"{circle} {n + 1}" for circle in CIRCLES for n in range(CIRCLE_SIZE)]


def make_friendships(seed: int = 0) -> tuple[Data, Tensor]:
    """Graph of the known friendships, and the friendships hidden from the network, [2, H]."""
    rng = torch.Generator().manual_seed(seed)
    circle = torch.arange(len(PEOPLE)) // CIRCLE_SIZE
    one, other = torch.combinations(torch.arange(len(PEOPLE))).T
    probability = torch.where(circle[one] == circle[other], 0.55, 0.05)
    pairs = torch.stack([one, other])[:, torch.rand(len(one), generator=rng) < probability]
    hidden = torch.rand(pairs.size(1), generator=rng) < 0.2
    return Data(x=torch.eye(len(PEOPLE)), edge_index=to_undirected(pairs[:, ~hidden]), circle=circle), pairs[:, hidden]


class LinkPredictor(nn.Module):
    """Embed people by their friends; people with similar embeddings know each other."""

    def __init__(self) -> None:
        super().__init__()
        self.friends = SAGEConv(len(PEOPLE), 16, aggr="sum", root_weight=False)
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor, edge_index: Tensor, edge_label_index: Tensor) -> Tensor:
        """Score of each pair, [P]; a score above 0 predicts that they know each other."""
        one, other = self.friends(x, edge_index)[edge_label_index]
        scores: Tensor = (one * other).sum(-1) + self.bias
        return scores


def train_link_predictor(data: Data) -> LinkPredictor:
    """Network trained to separate known pairs from the others."""
    torch.manual_seed(0)
    model = LinkPredictor()
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
    """Train a link predictor, explain its suggestions, print the explanations and write a report."""
    folder.mkdir(parents=True, exist_ok=True)
    data, hidden = make_friendships()
    model = train_link_predictor(data)
    with torch.no_grad():
        suggested = model(data.x, data.edge_index, hidden) > 0
    data.edge_label_index = hidden[:, suggested][:, :SHOWN]
    print(
        f"{data.num_nodes} people, {data.num_edges // 2} known friendships. The network suggests {int(suggested.sum())} "
        f"of the {hidden.size(1)} friendships that it never saw."
    )

    explainer = Explainer(
        model,
        NSEG(),
        explanation_type="model",
        edge_mask_type="object",
        model_config={"mode": "binary_classification", "task_level": "edge", "return_type": "raw"},
    )
    explanations = explain_many(explainer, data)

    same_circle = data.circle[data.edge_index[0]] == data.circle[data.edge_index[1]]
    for one in explanations[:3]:
        pair = data.edge_label_index[:, one.output_id].tolist()
        friend, person = data.edge_index[:, one.edge_id[one.hard_edge_mask]]
        print(f"\n{PEOPLE[pair[0]]} and {PEOPLE[pair[1]]} are suggested because")
        for node in pair:
            print(f"  {PEOPLE[node]} knows {', '.join(PEOPLE[n] for n in friend[person == node].tolist())}")
        print(f"  p is {one.p_factual:.2f} with these friendships alone, {one.p_complement:.2f} without them.")

    kept = torch.cat([one.edge_id[one.hard_edge_mask] for one in explanations])
    reachable = torch.cat([one.edge_id[one.reached] for one in explanations])
    print(
        f"\nOver {len(explanations)} suggestions, explanations keep {len(kept) / len(reachable):.0%} of the reachable "
        "friendships. "
        f"{same_circle[kept].float().mean():.0%} of the kept friendships are within one circle, compared with "
        f"{same_circle[reachable].float().mean():.0%} of all reachable ones."
    )
    classes = ("do not know each other", "know each other")
    page = report(explanations, folder / "links.html", data=data, explainer=explainer, names=PEOPLE, class_names=classes)
    print(f"Report: {page}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/examples"))
