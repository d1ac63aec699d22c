"""Parameters, activation memory and forward time of the networks against the number of entities.

python -m benchmarks.networks [--out results/networks] writes OUT.csv and OUT.png, prints the tables, and ends with one
JSON line. It checks the paper's complexity paragraph (appendix, "Training and inference speed") claim by claim.
"""

import argparse
import csv
import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import Tensor, nn

from efmdp.entities import EntityDims
from efmdp.networks import Kind, NetworkConfig, make_actor, make_critic

DIMS = EntityDims(agent=10, entity=16, goal=3, action=4)  # the sizes of the Fetch tasks
COUNTS = [1, 2, 3, 4, 6, 8, 16, 32, 64]
KINDS: tuple[Kind, ...] = ("mlp", "deep-set", "self-attention")
BATCH = 256
Row = dict[str, str | int | float]


def activation_bytes(net: nn.Module, inputs: tuple[Tensor, ...]) -> int:
    """Bytes that a forward pass keeps for its backward pass, parameters aside, each storage counted once."""
    kept: dict[int, torch.UntypedStorage] = {}  # held until the count is done, so that no address is used twice
    weights = {p.untyped_storage().data_ptr() for p in net.parameters()}

    def pack(tensor: Tensor) -> None:
        """Only the storage is noted: a graph that held its own outputs would never be freed."""
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda nothing: nothing):
        net(*inputs)
    return sum(storage.nbytes() for storage in kept.values())


def milliseconds(run: Callable[[], object], budget: float) -> float:
    """Median time of a call, after warming up, over at least 5 calls and about `budget` seconds."""
    for _ in range(3):
        run()
    times: list[float] = []
    while len(times) < 5 or (sum(times) < budget and len(times) < 1000):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return 1e3 * median(times)


def attention_only(n: int, budget: float) -> float:
    """Time of one block's pairwise part, the call that the blocks make, at batch BATCH."""
    heads, width = NetworkConfig().heads, NetworkConfig().width
    q, k, v = torch.randn(BATCH, n, 3, heads, width // heads).transpose(1, 3).unbind(2)  # (B, H, N, D) each
    with torch.no_grad():
        return milliseconds(lambda: nn.functional.scaled_dot_product_attention(q, k, v), budget)


def measure(kind: Kind, role: str, n: int, budget: float) -> Row:
    torch.manual_seed(0)
    config = NetworkConfig(kind, max_entities=n if kind == "mlp" else None)
    net: nn.Module = make_actor(config, DIMS) if role == "actor" else make_critic(config, DIMS)
    forward = {}
    for batch in (1, BATCH):
        sizes = [(batch, DIMS.agent), (batch, n, DIMS.entity), (batch, n, DIMS.goal), (batch, DIMS.action)]
        inputs = tuple(torch.randn(size) for size in (sizes[:3] if role == "actor" else sizes))
        with torch.no_grad():
            forward[batch] = milliseconds(lambda inputs=inputs: net(*inputs), budget)  # type: ignore[misc]
    return {
        "network": kind,
        "role": role,
        "entities": n,
        "parameters": sum(p.numel() for p in net.parameters()),
        f"activation_bytes_batch{BATCH}": activation_bytes(net, inputs),
        "forward_ms_batch1": round(forward[1], 4),
        f"forward_ms_batch{BATCH}": round(forward[BATCH], 4),
        f"attention_only_ms_batch{BATCH}": round(attention_only(n, budget), 4) if kind == "self-attention" else "",
    }


def order(y: np.ndarray) -> np.ndarray:
    """The power of N by which y, (sweeps, counts), grows beyond its value at N = 1, from N = 16 to 64: (sweeps,).

    a + b N gives 1 whatever a is, and a + b N^2 nearly 2. A line's R squared would not do: it is 0.94 for N^2 itself on
    these counts. Nor would a plain log-log slope: a constant part hides in it.

    >>> n = np.array([COUNTS])
    >>> order(7 + 3 * n).round(2), order(n**2).round(2)
    (array([1.]), array([1.93]))
    """
    n = np.array(COUNTS)
    with np.errstate(invalid="ignore", divide="ignore"):  # noise may make a short time shrink: NaN, of no order
        grown = (y[:, -1] - y[:, 0]) / (y[:, -3] - y[:, 0])
        return np.log(grown) / np.log((n[-1] - n[0]) / (n[-3] - n[0]))


def is_order(powers: np.ndarray, wanted: int) -> str:
    """Is it nearer to this power than to its neighbours? A verdict needs every sweep to give it."""
    near = np.abs(powers - wanted) < 0.5
    return "yes" if near.all() else "unclear" if near.any() else "no"


def shown(powers: np.ndarray) -> str:
    low, high = powers.min(), powers.max()
    return f"N^{low:.2f}" if f"{low:.2f}" == f"{high:.2f}" else f"N^{low:.2f} to N^{high:.2f}"


def claims(rows: list[Row], role: str) -> list[dict[str, str]]:
    """What the paper's paragraph says, what was measured, and whether they agree."""
    n = np.array(COUNTS)
    found = []

    def column(kind: Kind, name: str) -> np.ndarray:
        values = [row[name] for row in rows if row["network"] == kind and row["role"] == role]
        return np.array(values, float).reshape(-1, len(COUNTS))  # (sweeps, counts)

    def claim(kind: Kind, quantity: str, paper: str, measured: str, agrees: str) -> None:
        found.append(dict(role=role, network=kind, quantity=quantity, paper=paper, measured=measured, agrees=agrees))

    def fixed(y: np.ndarray) -> str:
        return "yes" if np.ptp(y) == 0 else "no"

    for kind in KINDS:
        parameters = column(kind, "parameters")
        memory = column(kind, f"activation_bytes_batch{BATCH}")
        times = column(kind, f"forward_ms_batch{BATCH}")
        growth = f"x{parameters[0, -1] / parameters[0, 0]:.2f} from N = 1 to 64"
        if kind == "mlp":
            claim(kind, "parameters", "linear", growth, is_order(order(parameters), 1))
            # The input itself is kept too, and it is no hidden layer.
            width = DIMS.agent + n * (DIMS.entity + DIMS.goal) + (DIMS.action if role == "critic" else 0)
            hidden = memory - 4 * BATCH * width
            measured = f"hidden layers {hidden[0, 0] / 2**20:.2f} to {hidden[0, -1] / 2**20:.2f} MiB, the input grows"
            claim(kind, "activations", "fixed", measured, fixed(hidden))
        else:
            claim(kind, "parameters", "fixed", growth, fixed(parameters))
            powers = order(memory)
            if kind == "deep-set":
                claim(kind, "activations", "linear", shown(powers), is_order(powers, 1))
            else:
                measured = f"{shown(powers)}: torch's fused attention keeps no N x N weights"
                claim(kind, "activations", "quadratic (pairs)", measured, is_order(powers, 2))
        powers = order(times)
        if kind == "self-attention":
            alone = column(kind, f"attention_only_ms_batch{BATCH}")
            claim(
                kind, "pairs' time", "quadratic", f"{shown(order(alone))}, attention alone", is_order(order(alone), 2)
            )
            share = np.median(alone[:, -1] * NetworkConfig(kind).blocks / times[:, -1])
            measured = f"{shown(powers)}, attention is {share:.0%} of it at N = 64"
            claim(kind, "forward time", "quadratic (pairs)", measured, is_order(powers, 2))
        else:
            claim(kind, "forward time", "linear", shown(powers), is_order(powers, 1))
    return found


def medians(rows: list[Row]) -> list[Row]:
    """One row for each network, role and N: the medians over sweeps."""
    groups: dict[tuple, list[Row]] = {}
    for row in rows:
        groups.setdefault((row["network"], row["role"], row["entities"]), []).append(row)
    typical = []
    for group in groups.values():
        row = {name: value for name, value in group[0].items() if name != "sweep"}
        for name in row:
            if "_ms_" in name and row[name] != "":
                row[name] = median(float(one[name]) for one in group)
        typical.append(row)
    return typical


def plot(rows: list[Row], path: Path, threads: int) -> None:
    panels = {
        "parameters": ("parameters", 1.0),
        f"activation_bytes_batch{BATCH}": (f"activations kept, batch {BATCH} (MiB)", 2.0**-20),
        "forward_ms_batch1": ("forward, one observation (ms)", 1.0),
        f"forward_ms_batch{BATCH}": (f"forward, batch {BATCH} (ms)", 1.0),
    }
    figure, axes = plt.subplots(2, 4, figsize=(16, 7), sharex=True, layout="constrained")
    for line, role in zip(axes, ("actor", "critic"), strict=True):
        for axis, (name, (label, unit)) in zip(line, panels.items(), strict=True):
            for kind in KINDS:
                chosen = [row for row in rows if row["network"] == kind and row["role"] == role]
                axis.plot(
                    [row["entities"] for row in chosen], [float(row[name]) * unit for row in chosen], "o-", label=kind
                )
            axis.set(xscale="log", yscale="log", title=f"{role}: {label}")
            axis.set_xticks(COUNTS, [str(n) for n in COUNTS])
            axis.minorticks_off()
            if name == "parameters":  # within one decade, which alone would show no tick
                axis.set_ylim(1e5, 1e6)
            axis.grid(alpha=0.3)
    for axis in axes[-1]:
        axis.set_xlabel("entities N")
    axes[0, 0].legend()
    figure.suptitle(f"Cost of the networks against N (CPU, {threads} thread{'s' * (threads > 1)})")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/networks"), help="OUT.csv and OUT.png are written")
    parser.add_argument("--threads", type=int, default=1, help="torch threads, fixed for the whole run")
    parser.add_argument("--budget", type=float, default=0.1, help="seconds for each timing")
    parser.add_argument("--sweeps", type=int, default=5, help="times that everything is measured")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    print(f"torch {torch.__version__}, {args.threads} thread(s), medians over {args.sweeps} sweeps; dims {DIMS}")
    measure("mlp", "actor", 1, args.budget)  # the process's first calls are slow, whatever they are
    rows: list[Row] = []
    for sweep in range(args.sweeps):
        for kind in KINDS:
            for role in ("actor", "critic"):
                rows += [{"sweep": sweep, **measure(kind, role, n, args.budget)} for n in COUNTS]
        print(f"sweep {sweep + 1} of {args.sweeps} done", flush=True)
    typical = medians(rows)
    print(
        f"{'network':15} {'role':7} {'N':>3} {'parameters':>11} {'activations':>13} {'1 obs':>9} {f'batch {BATCH}':>11}"
    )
    for row in typical:
        kind_, role_, n, parameters, memory, one, many, _ = row.values()
        mib = float(memory) / 2**20
        print(f"{kind_:15} {role_:7} {n:3} {parameters:11,} {mib:9.2f} MiB {one:6.3f} ms {many:8.2f} ms")
    found = [verdict for role in ("actor", "critic") for verdict in claims(rows, role)]
    print("\nThe paper's complexity paragraph, claim by claim (p of N^p within 0.5 in every sweep)")
    for v in found:
        print(f"{v['role']:7} {v['network']:15} {v['quantity']:13} paper: {v['paper']:18} agrees: {v['agrees']}")
        print(f"{'':24}{v['measured']}")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    table, picture = args.out.with_suffix(".csv"), args.out.with_suffix(".png")
    with table.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    plot(typical, picture, args.threads)
    at_three = [row for row in typical if row["entities"] == 3]
    summary = {"benchmark": "networks", "torch": torch.__version__, "threads": args.threads, "batch": BATCH}
    files = [str(table), str(picture)]
    print(json.dumps(summary | {"three_entities": at_three, "claims": found, "files": files}))


if __name__ == "__main__":
    main()
