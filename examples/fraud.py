"""Why was this account flagged? Explain a node classifier on synthetic transfers.

Run it with: python examples/fraud.py [FOLDER]. It needs no data, takes a few seconds, and writes fraud.html into the folder.

Accounts are nodes and transfers are directed edges with attributes. We plant a pattern: a mule account receives several
transfers at night from accounts that were opened only days before. Neither fact alone is suspicious: many honest accounts
receive transfers at night, or from new customers. A small network learns the pattern, and NSEG finds the transfers that made
the network flag an account. Because we planted the pattern, we can check the explanations.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import GINEConv

from nseg import NSEG, Explainer, certify, explain_many, report

ACCOUNTS, MULES, SHOWN = 1200, 120, 40


def make_transfers(seed: int = 0) -> Data:
    """Graph of accounts and transfers; ``planted`` marks the transfers of the pattern."""
    rng = torch.Generator().manual_seed(seed)

    def sample_bernoulli(p: float, count: int) -> Tensor:
        return torch.rand(count, generator=rng) < p

    is_new = sample_bernoulli(0.25, ACCOUNTS)  # opened within the last days
    mule = torch.zeros(ACCOUNTS, dtype=torch.bool)
    mule[torch.randperm(ACCOUNTS, generator=rng)[:MULES]] = True
    ordinary = torch.randint(ACCOUNTS, (2, 8 * ACCOUNTS), generator=rng)
    night = sample_bernoulli(0.2, ordinary.size(1)) & ~is_new[ordinary[0]]  # honest new customers only pay by day
    receivers = mule.nonzero().flatten().repeat_interleave(4)
    senders = is_new.nonzero().flatten()
    senders = senders[torch.randint(len(senders), (len(receivers),), generator=rng)]
    edge_index = torch.cat([ordinary, torch.stack([senders, receivers])], 1)
    planted = torch.arange(edge_index.size(1)) >= ordinary.size(1)
    euros = torch.rand(edge_index.size(1), generator=rng) * 900 + 20
    at_night = torch.cat([night, torch.ones(len(receivers), dtype=torch.bool)])
    return Data(
        x=torch.stack([is_new.float(), torch.rand(ACCOUNTS, generator=rng)], 1),  # the second feature is irrelevant
        edge_index=edge_index,
        edge_attr=torch.stack([at_night.float(), euros / 1000], 1),
        y=mule.long(),
        planted=planted,
        train=sample_bernoulli(0.6, ACCOUNTS),
    )


class Detector(nn.Module):
    """One message passing layer over transfers with attributes, and a linear classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Linear(2, 16)
        self.conv = GINEConv(nn.Sequential(nn.Linear(16, 16), nn.ReLU()), edge_dim=2)
        self.classify = nn.Linear(16, 2)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        """Class scores (honest, mule), [N, 2]."""
        scores: Tensor = self.classify(self.conv(self.encode(x), edge_index, edge_attr))
        return scores


def train_detector(data: Data) -> Detector:
    """Detector trained on the accounts marked ``train``."""
    torch.manual_seed(0)
    model = Detector()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(150):
        optimiser.zero_grad()
        scores = model(data.x, data.edge_index, data.edge_attr)
        nn.functional.cross_entropy(scores[data.train], data.y[data.train]).backward()
        optimiser.step()
    return model.eval()


def main(folder: Path) -> None:
    """Train a detector, explain the flagged accounts, print the explanations and write a report."""
    folder.mkdir(parents=True, exist_ok=True)
    data = make_transfers()
    model = train_detector(data)
    with torch.no_grad():
        predicted = model(data.x, data.edge_index, data.edge_attr).argmax(-1)
    accuracy = (predicted == data.y)[~data.train].float().mean()
    print(f"{data.num_nodes} accounts, {data.num_edges} transfers. Accuracy on unseen accounts: {accuracy:.1%}.")

    explainer = Explainer(
        model,
        NSEG(),
        explanation_type="model",
        edge_mask_type="object",
        model_config={"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"},
    )
    accounts = ((predicted == 1) & ~data.train).nonzero().flatten()[:SHOWN]
    explanations = explain_many(explainer, data, accounts)

    for one in explanations[:3]:
        kept = one.edge_id[one.hard_edge_mask]
        print(f"\nAccount {one.output_id}: {len(kept)} of {int(one.reached.sum())} incoming transfers explain the flag:")
        for edge in kept.tolist():
            sender, (night, euros) = int(data.edge_index[0, edge]), data.edge_attr[edge].tolist()
            when, age = "at night" if night else "by day", "new" if data.x[sender, 0] else "old"
            print(f"  {1000 * euros:4.0f} euros {when} from the {age} account {sender}")
        print(f"  p(mule) is {one.p_factual:.2f} with these transfers alone, {one.p_complement:.2f} without them.")
    certificate = certify(explainer, data, explanations[0])[0]
    print(f"\nCertificate of account {explanations[0].output_id}: {certificate.words()}")

    kept = torch.cat([one.edge_id[one.hard_edge_mask] for one in explanations])
    reachable = torch.cat([one.edge_id[one.reached] for one in explanations])
    print(
        f"\nOver {len(explanations)} flagged accounts, {data.planted[kept].float().mean():.0%} of the kept transfers belong "
        f"to the planted pattern, compared with {data.planted[reachable].float().mean():.0%} of all incoming transfers."
    )
    page = report(explanations, folder / "fraud.html", data=data, explainer=explainer, class_names=("honest", "mule"))
    print(f"Report: {page}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/examples"))
