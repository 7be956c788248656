"""Memory that torch and NumPy take together, counted instead of measured."""

from __future__ import annotations

import importlib
import tracemalloc

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Allocations(TorchDispatchMode):
    """Bytes of all storages that torch's operations made, and of NumPy's arrays.

    A deterministic count: every storage is counted from the operation that made it to
    its end, whatever the allocator does with the memory.
    """

    def __init__(self, *known):
        super().__init__()
        self._known = {StorageWeakRef(t.untyped_storage()).cdata for t in known}
        self._alive = {}
        self._total = self.peak = 0  # the total may count what has ended since

    def __enter__(self):
        # the first operation in such a mode imports it: traced, that takes ten seconds
        importlib.import_module("torch._dynamo")
        tracemalloc.start()
        return super().__enter__()

    def __exit__(self, *exception):
        super().__exit__(*exception)
        self._look()
        tracemalloc.stop()

    def _look(self):
        arrays = tracemalloc.get_traced_memory()[1]
        if self._total + arrays > self.peak:
            for key in [k for k, (ref, _) in self._alive.items() if ref.expired()]:
                self._total -= self._alive.pop(key)[1]
            self.peak = max(self.peak, self._total + arrays)
        tracemalloc.reset_peak()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                ref = StorageWeakRef(storage)
                if ref.cdata not in self._known and ref.cdata not in self._alive:
                    self._alive[ref.cdata] = ref, storage.nbytes()
                    self._total += storage.nbytes()
        self._look()
        return result
