"""Why was this account flagged? A node classifier on made-up transfers, explained transfer by transfer.

Run it: python examples/fraud.py [FOLDER]. It needs no data, takes a few seconds, and writes fraud.html into the folder.

Accounts are nodes, transfers are directed edges with attributes. A pattern is planted: a mule account gets several transfers
at night from accounts that were opened only days before. Neither fact alone says anything; many honest accounts get
transfers at night, or from new customers. A small network learns the pattern, and NSEG says which transfers made it flag an
account. Since we planted the pattern, we can check the answer.
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


def transfers(seed: int = 0) -> Data:
    """Accounts and transfers; ``planted`` marks the transfers of the pattern."""
    rng = torch.Generator().manual_seed(seed)

    def chance(p: float, number: int) -> Tensor:
        return torch.rand(number, generator=rng) < p

    new = chance(0.25, ACCOUNTS)  # opened within the last days
    mule = torch.zeros(ACCOUNTS, dtype=torch.bool)
    mule[torch.randperm(ACCOUNTS, generator=rng)[:MULES]] = True
    usual = torch.randint(ACCOUNTS, (2, 8 * ACCOUNTS), generator=rng)
    night = chance(0.2, usual.size(1)) & ~new[usual[0]]  # honest new customers pay by day
    receivers = mule.nonzero().flatten().repeat_interleave(4)
    senders = new.nonzero().flatten()
    senders = senders[torch.randint(len(senders), (len(receivers),), generator=rng)]
    edge_index = torch.cat([usual, torch.stack([senders, receivers])], 1)
    planted = torch.arange(edge_index.size(1)) >= usual.size(1)
    euros = torch.rand(edge_index.size(1), generator=rng) * 900 + 20
    at_night = torch.cat([night, torch.ones(len(receivers), dtype=torch.bool)])
    return Data(
        x=torch.stack([new.float(), torch.rand(ACCOUNTS, generator=rng)], 1),  # new?, and something that does not matter
        edge_index=edge_index,
        edge_attr=torch.stack([at_night.float(), euros / 1000], 1),
        y=mule.long(),
        planted=planted,
        train=chance(0.6, ACCOUNTS),
    )


class Detector(nn.Module):
    """One round of messages over transfers with attributes, and a verdict on each account."""

    def __init__(self) -> None:
        super().__init__()
        self.widen = nn.Linear(2, 16)
        self.listen = GINEConv(nn.Sequential(nn.Linear(16, 16), nn.ReLU()), edge_dim=2)
        self.judge = nn.Linear(16, 2)

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        """Scores of honest and mule, [N, 2]."""
        scores: Tensor = self.judge(self.listen(self.widen(x), edge_index, edge_attr))
        return scores


def trained(data: Data) -> Detector:
    """A detector that has seen the accounts marked ``train``."""
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
    """Train, explain the flagged accounts, print and write a report."""
    folder.mkdir(parents=True, exist_ok=True)
    data = transfers()
    model = trained(data)
    with torch.no_grad():
        flagged = model(data.x, data.edge_index, data.edge_attr).argmax(-1)
    right = (flagged == data.y)[~data.train].float().mean()
    print(f"{data.num_nodes} accounts, {data.num_edges} transfers. The detector is right on {right:.1%} of unseen accounts.")

    explainer = Explainer(
        model,
        NSEG(),
        explanation_type="model",
        edge_mask_type="object",
        model_config={"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"},
    )
    accounts = ((flagged == 1) & ~data.train).nonzero().flatten()[:SHOWN]
    found = explain_many(explainer, data, accounts)

    for one in found[:3]:
        kept = one.edge_id[one.hard_edge_mask]
        print(f"\nAccount {one.output_id} was flagged for {len(kept)} of the {int(one.reached.sum())} transfers it got:")
        for edge in kept.tolist():
            sender, (night, euros) = int(data.edge_index[0, edge]), data.edge_attr[edge].tolist()
            when, who = "at night" if night else "by day", "new" if data.x[sender, 0] else "old"
            print(f"  {1000 * euros:4.0f} euros {when} from account {sender}, which is {who}")
        print(f"  With these alone p(mule) = {one.p_factual:.2f}, without them {one.p_complement:.2f}.")
    print("\nThe first one in full:", certify(explainer, data, found[0])[0].words())

    kept = torch.cat([one.edge_id[one.hard_edge_mask] for one in found])
    within = torch.cat([one.edge_id[one.reached] for one in found])
    print(
        f"\nOver {len(found)} flagged accounts, {data.planted[kept].float().mean():.0%} of the transfers that explanations "
        "keep are part of the planted pattern; of all transfers that these accounts got, "
        f"{data.planted[within].float().mean():.0%} are."
    )
    page = report(found, folder / "fraud.html", data=data, explainer=explainer, class_names=("honest", "mule"))
    print(f"Look at them: {page}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/examples"))
