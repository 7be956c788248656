"""Random sources that a function may draw from, and how to rewind them."""

from __future__ import annotations

import ctypes
import random
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.random import mtrand as _legacy

from gradlab.subject.guarding.paths import Found, path_text
from gradlab.subject.guarding.reachable import reach
from gradlab.subject.guarding.saved_state import Change

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from gradlab.subject.guarding.reached import Reach

__all__ = [
    "GlobalRandom",
    "RandomFreeze",
    "SavedRandom",
    "same_state",
    "save_random",
]

_TWISTER = 4 * 624 + 4  # bytes: the words, and the position among them
_TOLD = 8  # words at the end of a state that are compared, the position among them


class SavedRandom:
    """The state of one random source, global or found on the way."""

    __slots__ = ("_get", "_set", "state", "where")

    def __init__(
        self,
        where: str,
        get: Callable[[], Any],
        put: Callable[[Any], Any],
    ) -> None:
        self.where = where
        self._get, self._set = get, put
        self.state = get()

    def now(self) -> Any:
        """Return the state that it has now."""
        return self._get()

    def put(self, state: Any) -> None:
        """Let it go on from a state that it had once."""
        self._set(state)

    def moved(self) -> bool:
        """Whether something was drawn (or seeded) since the state was saved."""
        return not same_state(self._get(), self.state)

    def changes(self) -> Iterator[Change]:
        """Yield what differs, see `Saved`."""
        if self.moved():
            yield Change("random", self.where)

    def restore(self) -> None:
        """Put back what differs, see `Saved`."""
        self._set(self.state)


class GlobalRandom(SavedRandom):
    """A source that every process has one of: sent elsewhere, it is the one there."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return _global_again, (self.where, self.state)


class NumpyGlobal(GlobalRandom):
    """NumPy's legacy source, whose state takes 70 us to be read, and as long to be put.

    The state of its Mersenne Twister lies at the address that NumPy publishes for other
    languages (``BitGenerator.ctypes``). Where what lies there was seen to be what NumPy
    says, and no normal number is kept in reserve, the same bytes are the same state.
    """

    __slots__ = ("_address", "_bytes", "_generator", "_read")

    def __init__(self, generator: Any, put: Callable[[Any], Any]) -> None:
        super().__init__("numpy.random", _numpy_state, put)
        self._generator, self._address, self._read = generator, 0, self.state
        address, known = _twister(generator), self.state.get("state", {})
        if address and not self.state.get("has_gauss"):
            self._bytes = ctypes.string_at(address, _TWISTER)
            position = int(known["pos"]).to_bytes(4, sys.byteorder)
            if self._bytes == known["key"].tobytes() + position:
                self._address = address

    def moved(self) -> bool:
        """Whether something was drawn (or seeded) since the state was saved."""
        here = self._address and self.state is self._read  # not sent from elsewhere
        if not here or _legacy.get_bit_generator() is not self._generator:
            return super().moved()
        return ctypes.string_at(self._address, _TWISTER) != self._bytes


def _twister(generator: Any) -> int:
    """Address of the state of a Mersenne Twister; 0 of anything else."""
    if type(generator) is not np.random.MT19937:
        return 0
    return int(generator.ctypes.state_address)


def _numpy_state() -> Any:
    return np.random.get_state(legacy=False)  # noqa: NPY002 - the user's global


class PythonGlobal(GlobalRandom):
    """The source of the module `random`."""

    __slots__ = ()

    def moved(self) -> bool:
        """Whether something was drawn (or seeded) since the state was saved.

        Every draw moves the position, which comes last, until all 624 words are new.
        """
        now, then = self._get(), self.state
        kept = now[0] == then[0] and now[2:] == then[2:]
        return not (kept and now[1][-_TOLD:] == then[1][-_TOLD:])


def _global_again(where: str, state: Any) -> SavedRandom:
    """Take hold of this process's own source of that name."""
    source = next(found for found in _save_globals() if found.where == where)
    source.state = state
    return source


def _save_globals() -> Iterator[SavedRandom]:
    yield PythonGlobal("random", random.getstate, random.setstate)
    yield _save_numpy_global()
    yield from _save_torch()


def same_state(now: Any, then: Any) -> bool:
    """Compare states: nested dicts and tuples of ints, arrays or byte tensors."""
    if isinstance(then, dict):
        return now.keys() == then.keys() and all(
            same_state(now[key], item) for key, item in then.items()
        )
    if hasattr(then, "untyped_storage"):  # torch's states are byte tensors
        return bool(now.equal(then))
    if isinstance(then, np.ndarray):
        return bool(now.tobytes() == then.tobytes())  # of one kind, and of no nan
    return bool(now == then)


def _save_numpy_global() -> SavedRandom:
    """Legacy functions (``np.random.rand``); a bit generator put in is taken out."""
    generator = _legacy.get_bit_generator()

    def put(state: Any) -> None:
        if _legacy.get_bit_generator() is not generator:
            _legacy.set_bit_generator(generator)
        np.random.set_state(state)  # noqa: NPY002 - the user's global is the object

    return NumpyGlobal(generator, put)


def _save_found(found: Found) -> SavedRandom | None:
    value, path = found
    where = path_text(path)
    if isinstance(value, np.random.Generator):
        value = value.bit_generator
    if isinstance(value, np.random.BitGenerator):
        source: Any = value
        return SavedRandom(
            where, lambda: source.state, lambda state: setattr(source, "state", state)
        )
    if isinstance(value, np.random.RandomState):
        legacy = value
        return SavedRandom(
            where, lambda: legacy.get_state(legacy=False), legacy.set_state
        )
    if isinstance(value, random.SystemRandom):
        return None
    if isinstance(value, random.Random):
        return SavedRandom(where, value.getstate, value.setstate)
    return SavedRandom(where, value.get_state, value.set_state)


def _save_torch() -> Iterator[SavedRandom]:
    torch: Any = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "default_generator"):
        return
    generator = torch.default_generator
    yield GlobalRandom("torch", generator.get_state, generator.set_state)
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        for index, device in enumerate(torch.cuda.default_generators):
            where = f"torch.cuda[{index}]"
            yield GlobalRandom(where, device.get_state, device.set_state)


def save_random(walk: Reach) -> list[SavedRandom]:
    """Save the global sources and the generators that a walk found.

    Parameters
    ----------
    walk
        Result of `reach`. A ``random.SystemRandom`` has no state to rewind; it is
        appended to ``walk.unguarded``.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> [source.where for source in save_random(reach([lambda: rng.normal()]))][:3]
    ['random', 'numpy.random', 'rng']
    """
    sources = [
        PythonGlobal("random", random.getstate, random.setstate),
        _save_numpy_global(),
    ]
    torch: Any = sys.modules.get("torch")
    shared = {  # a bound global function, such as random.gauss, leads to these
        id(_legacy.get_bit_generator()),
        id(random.random.__self__),  # type: ignore[attr-defined] # a bound builtin
        id(getattr(torch, "default_generator", None)),
    }
    for found in walk.random:
        value = found.value
        bits = getattr(value, "bit_generator", value)
        legacy = getattr(value, "_bit_generator", bits)
        if id(legacy) in shared:
            continue
        shared.add(id(legacy))
        saved = _save_found(found)
        if saved is None:
            why = "draws from the operating system, which cannot be rewound"
            walk.unguarded.append((found.path, why))
        else:
            sources.append(saved)
    return [*sources, *_save_torch()]


class RandomFreeze:
    """Every random source that some objects can draw from, held at one state.

    A random function becomes a deterministic one if all sources are rewound before
    each evaluation. Looking at all of them costs about 10 microseconds, so an engine
    asks `consumed` once after the first evaluation and then rewinds only those.

    Parameters
    ----------
    *roots
        The user's callables and data; generators are looked for in what they reach.
    names
        One name per root, for messages.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> def noisy(x):
    ...     return x + rng.normal()
    >>> freeze = RandomFreeze(noisy)
    >>> first = noisy(1.0)
    >>> freeze.consumed()
    ('rng',)
    >>> freeze.restore(only=("rng",))
    >>> noisy(1.0) == first
    True
    """

    def __init__(self, *roots: object, names: Sequence[str] | None = None) -> None:
        self._sources = save_random(reach(roots, names=names))

    @classmethod
    def from_sources(cls, sources: Iterable[SavedRandom]) -> RandomFreeze:
        """Use sources that a guard saved already, to spare a second walk."""
        freeze = cls.__new__(cls)
        freeze._sources = list(sources)  # noqa: SLF001 - its own maker
        return freeze

    def consumed(self) -> tuple[str, ...]:
        """Names of the sources whose state moved since they were captured."""
        return tuple(source.where for source in self._sources if source.moved())

    def restore(self, *, only: Collection[str] | None = None) -> None:
        """Rewind all sources, or those named in `only`; an empty `only` costs nothing.

        Parameters
        ----------
        only
            Names as given by `consumed`; None rewinds whatever has moved.
        """
        for source in self._sources:
            if source.moved() if only is None else source.where in only:
                source.restore()
