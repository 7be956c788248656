"""Cost of probes and of the audit as models grow, in training steps and bytes.

Run it as a program: ``python tests/benchmarks/bench_large.py [width ...]``. The model
is a transformer of four layers that predicts 64 tokens, in float64 (``--float32``: in
float32); all of it is right. Each size has a process of its own. A training step is
forward and backward; steps before and after a check are measured in processor time, and
so is the check, without what the first check of a process imports. Memory is the peak
of the resident set above what it was before, over the size of the parameters. With
``--device cuda`` the model is on a GPU: seconds of the clock, memory allocated there.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import time

from bench_blame import Peak

VOCABULARY, TOKENS = 4096, 64
WIDTHS = (384, 832, 1760)  # 10, 40 and 163 million parameters


def _model(width):
    from torch import nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(VOCABULARY, width)
            layer = {"dim_feedforward": 4 * width, "dropout": 0.0, "batch_first": True}
            self.layers = nn.ModuleList(
                nn.TransformerEncoderLayer(width, 8, **layer) for _ in range(4)
            )
            self.head = nn.Linear(width, VOCABULARY)

        def forward(self, ids):
            x = self.tokens(ids)
            for layer in self.layers:
                x = layer(x)
            return self.head(x).flatten(0, 1)

    return Model()


class DevicePeak:
    """Bytes allocated on a GPU above what was before, at most, while a block runs."""

    def __enter__(self):
        import torch

        torch.cuda.reset_peak_memory_stats()
        self._before = torch.cuda.memory_allocated()
        return self

    def __exit__(self, *_):
        import torch

        self.extra = torch.cuda.max_memory_allocated() - self._before


def _clock(device):
    """Seconds of the processor, or of the clock once a GPU has done its work."""
    import torch

    if device == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def measure(width, dtype, device, queue):
    """Put what a check and an audit of one size cost into a queue."""
    import torch

    import gradlab as gl

    torch.manual_seed(0)
    model = _model(width).to(device, getattr(torch, dtype))
    ids = torch.randint(0, VOCABULARY, (1, TOKENS)).to(device)
    goal = torch.randint(0, VOCABULARY, (TOKENS,)).to(device)
    count = sum(p.numel() for p in model.parameters())
    size = sum(p.nbytes for p in model.parameters())

    def loss(out):
        return torch.nn.functional.cross_entropy(out, goal)

    def step():
        start = _clock(device)
        loss(model(ids)).backward()
        seconds = _clock(device) - start
        model.zero_grad(set_to_none=True)
        return seconds

    def cost(work):
        with Peak() if device == "cpu" else DevicePeak() as peak:
            start = _clock(device)
            found = work()
            seconds = _clock(device) - start
        return found, seconds, peak.extra / size

    small = torch.nn.Linear(3, 2).to(model.head.weight)
    few = torch.randn(4, 3).to(model.head.weight)
    gl.check(small, few, loss=torch.sum, coverage="probe")  # imports what is needed
    gl.blame(small, few, loss=torch.sum)
    step()
    seconds = [step() for _ in range(3)]
    report, checked, beside = cost(
        lambda: gl.check(model, ids, loss=loss, coverage="probe")
    )
    seconds += [step() for _ in range(3)]
    audit, audited, beside_audit = cost(lambda: gl.blame(model, ids, loss=loss))
    seconds += [step() for _ in range(3)]
    one = statistics.median(seconds)
    queue.put(
        f"{count:11,}  {one:6.3f}  {checked / one:11.1f}  {report.evaluations:11d}  "
        f"{beside:6.2f}  {report.verdict.name:9}  {audited / one:11.1f}  "
        f"{beside_audit:6.2f}  {', '.join(audit.culprits) or 'none'}"
    )


def main():
    """Print one row for each width."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("width", nargs="*", type=int, default=WIDTHS)
    parser.add_argument("--float32", action="store_true")
    parser.add_argument("--device", default="cpu")
    chosen = parser.parse_args()
    print(
        " parameters  step s  check steps  evaluations  memory  verdict    "
        "blame steps  memory  culprits"
    )
    for width in chosen.width:
        context = multiprocessing.get_context("spawn")
        queue = context.Queue()
        dtype = "float32" if chosen.float32 else "float64"
        process = context.Process(
            target=measure, args=(width, dtype, chosen.device, queue)
        )
        process.start()
        print(queue.get(), flush=True)
        process.join()


if __name__ == "__main__":
    main()
