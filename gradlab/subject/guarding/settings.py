"""Switches of libraries that a function may leave turned, saved and put back."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.subject.guarding.saved_state import Change

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["SavedSetting", "save_numpy_settings", "save_torch_settings"]


class SavedSetting:
    """One switch, of a library (the default dtype) or of a TorchScript module."""

    __slots__ = ("_get", "_kind", "_put", "_value", "_where")

    def __init__(
        self,
        where: str,
        get: Callable[[], Any],
        put: Callable[[Any], Any],
        kind: str = "setting",
    ) -> None:
        self._where, self._get, self._put, self._kind = where, get, put, kind
        self._value = get()

    def changes(self) -> Iterator[Change]:
        """Yield what differs, see `Saved`."""
        if self._get() != self._value:
            yield Change(self._kind, self._where)

    def restore(self) -> None:
        """Put back what differs, see `Saved`."""
        if self._get() != self._value:
            self._put(self._value)


def save_numpy_settings() -> list[SavedSetting]:
    """How NumPy treats floating-point errors (``np.seterr``)."""
    return [
        SavedSetting("numpy.errstate", np.geterr, lambda old: np.seterr(**old)),
        SavedSetting("numpy.errstate(call=)", np.geterrcall, np.seterrcall),
    ]


def save_torch_settings() -> list[SavedSetting]:
    """Torch's switches that a function could leave turned; empty without torch."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "default_generator"):
        return []

    def deterministic() -> tuple[bool, bool]:
        enabled = torch.are_deterministic_algorithms_enabled()
        return enabled, torch.is_deterministic_algorithms_warn_only_enabled()

    def put_deterministic(value: tuple[bool, bool]) -> None:
        torch.use_deterministic_algorithms(value[0], warn_only=value[1])

    def autocast() -> Any:
        kinds = "cpu", "cuda"
        return [
            (k, torch.is_autocast_enabled(k), torch.get_autocast_dtype(k))
            for k in kinds
        ]

    def put_autocast(value: Any) -> None:
        for kind, enabled, dtype in value:
            torch.set_autocast_enabled(kind, enabled)
            torch.set_autocast_dtype(kind, dtype)

    def device() -> Any:
        context = getattr(torch, "_GLOBAL_DEVICE_CONTEXT", None)
        mode = getattr(context, "device_context", None)
        return None if mode is None else mode.device

    switches = (
        ("grad mode", torch.is_grad_enabled, torch.set_grad_enabled),
        ("default dtype", torch.get_default_dtype, torch.set_default_dtype),
        ("deterministic algorithms", deterministic, put_deterministic),
        (
            "anomaly detection",
            torch.is_anomaly_enabled,
            torch.autograd.set_detect_anomaly,
        ),
        ("autocast", autocast, put_autocast),
        ("default device", device, torch.set_default_device),
        (
            "precision of matrix products",
            torch.get_float32_matmul_precision,
            torch.set_float32_matmul_precision,
        ),
        ("number of threads", torch.get_num_threads, torch.set_num_threads),
    )
    saved = []
    for name, get, put in switches:
        # torch refuses to tell what was set by `fp32_precision`, its other interface
        with contextlib.suppress(RuntimeError):
            saved.append(SavedSetting(f"torch's {name}", get, put))
    return saved
