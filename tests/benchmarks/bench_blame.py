"""Cost of `gradlab.blame` on a large transformer, in training steps and bytes.

Run it as a program: ``python tests/benchmarks/bench_blame.py [blocks ...]``. For each
size it builds a model (width 768, vocabulary 50257, float64, 64 tokens) whose
activation in one block is wrong by 0.1 %, measures a training step (forward, backward,
without the optimiser), and then the audit. Memory is the peak resident set of a fresh
process, read from the system by a thread every few milliseconds.
"""

from __future__ import annotations

import argparse
import ctypes
import multiprocessing
import os
import statistics
import threading
import time

WIDTH, VOCABULARY, TOKENS, HEADS = 768, 50257, 64, 12


def _model(blocks):
    import torch
    import torch.nn.functional as F
    from torch import nn

    from tests.localisation.networks import Swish

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln1, self.ln2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.up, self.down = (
                nn.Linear(WIDTH, 4 * WIDTH),
                nn.Linear(4 * WIDTH, WIDTH),
            )
            self.act = Swish()

        def forward(self, x):
            q, k, v = self.qkv(self.ln1(x)).chunk(3, -1)
            split = [t.unflatten(-1, (HEADS, -1)).transpose(1, 2) for t in (q, k, v)]
            mixed = F.scaled_dot_product_attention(*split, is_causal=True)
            x = x + self.out(mixed.transpose(1, 2).flatten(2))
            return x + self.down(self.act(self.up(self.ln2(x))))

    class Transformer(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(VOCABULARY, WIDTH)
            self.places = nn.Parameter(torch.randn(TOKENS, WIDTH))
            self.blocks = nn.ModuleList(Block() for _ in range(blocks))
            self.norm = nn.LayerNorm(WIDTH)
            self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

        def forward(self, ids):
            x = self.tokens(ids) + self.places
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))

    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    model = Transformer()
    model.blocks[blocks // 2].act.slip = "slip of 0.1 %"
    ids = torch.randint(0, VOCABULARY, (1, TOKENS))
    goal = torch.randint(0, VOCABULARY, (TOKENS,))
    return model, ids, lambda out: F.cross_entropy(out.flatten(0, 1), goal)


class Peak:
    """Peak resident set of this process while a block runs, above that before it.

    What earlier work has freed is given back to the system first, or it would be in
    the base and hide as much of the peak. Looking costs a few microseconds each time.
    """

    def __enter__(self):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
        self._file = os.open("/proc/self/statm", os.O_RDONLY)
        self.start = self.peak = self._resident()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self):
        while not self._stop.wait(0.003):
            self.peak = max(self.peak, self._resident())

    def _resident(self):
        pages = os.pread(self._file, 64, 0).split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()
        os.close(self._file)
        self.extra = self.peak - self.start


def _measure(blocks, queue):
    import gradlab as gl

    model, ids, loss = _model(blocks)
    parameters = sum(p.numel() for p in model.parameters())

    def step():
        began = time.perf_counter()
        loss(model(ids)).backward()
        seconds = time.perf_counter() - began
        model.zero_grad(set_to_none=True)
        return seconds

    step()
    seconds = [step() for _ in range(3)]
    with Peak() as peak:
        began = time.perf_counter()
        audit = gl.blame(model, ids, loss=loss)
        took = time.perf_counter() - began
    seconds += [step() for _ in range(3)]
    queue.put(
        {
            "blocks": blocks,
            "parameters": parameters,
            "step": statistics.median(seconds),
            "audit": took,
            "steps": took / statistics.median(seconds),
            "memory": peak.extra / (8 * parameters),
            "own count": audit.steps,
            "culprits": audit.culprits,
            "finding": audit.findings[0].evidence if audit.findings else "",
        }
    )


def main():
    """Measure each size in a process of its own, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("blocks", nargs="*", type=int, default=[12])
    print("blocks  parameters  step s  audit s  steps  memory/parameters  culprits")
    for blocks in parser.parse_args().blocks:
        context = multiprocessing.get_context("spawn")
        queue = context.Queue()
        process = context.Process(target=_measure, args=(blocks, queue))
        process.start()
        row = queue.get()
        process.join()
        print(
            f"{row['blocks']:6d}  {row['parameters']:10,}  {row['step']:6.2f}  "
            f"{row['audit']:7.2f}  {row['steps']:5.2f}  {row['memory']:17.2f}  "
            f"{', '.join(row['culprits'])}"
        )
        print(f"        {row['finding']} (own count: {row['own count']:.2f} steps)")


if __name__ == "__main__":
    main()
