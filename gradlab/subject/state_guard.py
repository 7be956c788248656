"""Nothing of the user's is different after a check: saved, compared, put back.

`StateGuard` is the context that every entry point opens around its work. `HiddenState`
uses the same records between evaluations, to rewind a function that keeps state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import numpy as np

from gradlab.subject.guarding.alone import begun, ended
from gradlab.subject.guarding.interrupts import MOST_RETRIES, DeferredInterrupt
from gradlab.subject.guarding.paths import path_text
from gradlab.subject.guarding.random_state import (
    GlobalRandom,
    RandomFreeze,
    SavedRandom,
    save_random,
)
from gradlab.subject.guarding.reachable import reach
from gradlab.subject.guarding.saved_state import SavedDict
from gradlab.subject.guarding.settings import save_numpy_settings, save_torch_settings
from gradlab.subject.guarding.snapshot import (
    Bindings,
    Memory,
    changes_of,
    save_objects,
    save_torch_hooks,
)
from gradlab.subject.guarding.torch_state import quiet_torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gradlab.subject.guarding.saved_state import Change, Saved, SavedBinding

__all__ = ["HiddenState", "StateGuard"]

_GIB = 1 << 30


class StateGuard:
    """Put back, bitwise, everything that the body of a ``with`` block changed.

    On entry what `roots` can reach is saved: memory of arrays and tensors (once per
    owner), ``.grad``, ``requires_grad``, versions, modules (mode, buffers, hooks,
    parameters), containers and attributes (same objects, same items), closures,
    globals that the code names, random generators, and the global state of random,
    NumPy and torch. On exit, however it comes, all of it is restored; a Ctrl-C during
    the restoring is delivered after it. Meanwhile NumPy neither warns of an overflow or
    a division by zero nor raises: what the user asked for by ``np.seterr`` was not
    meant for arithmetic of ours, and a step may lead anywhere.

    Parameters
    ----------
    *roots
        Callables, arrays, tensors, modules, optimisers, containers. What several roots
        reach is named after the first, so put inputs before the function.
    names
        One name per root; default `root_names`.
    limit_bytes
        Bytes copied at most, 1 GiB. What does not fit (the largest first) is watched by
        sums of its words: a change is reported, with ``restorable=False``, unless it
        cancels within 64 KiB, as an exchange of two numbers does. So are modules'
        parameters and their ``.grad`` that together take more than 64 MiB: a large
        model is never doubled, and what perturbs a parameter must undo it itself.
    keep_tallies
        Whether integers that grew, and lists, sets and deques that only gained items,
        are left as the body made them, where they are the user's own and not a
        library's: so a function that counts or logs its calls can still be read after
        a check. False rewinds these too. May also be set on the guard before its exit.
    seconds
        Bound on the walk, see `reach`.

    Notes
    -----
    Not covered: what lives outside the process, data frames, iterators that were
    consumed, functools caches, generators of the operating system, modules that are
    imported while the function runs, globals that it makes; environment variables,
    warning filters, print options, thread-locals and context variables. What of the
    first few was met is in `unguarded`.

    Examples
    --------
    >>> x = np.ones(2)
    >>> with StateGuard(x, names=["x"]) as guard:
    ...     x += 1
    >>> x
    array([1., 1.])
    >>> [str(change) for change in guard.changes()]
    ['array x changed']
    """

    def __init__(
        self,
        *roots: object,
        names: Sequence[str] | None = None,
        limit_bytes: int = _GIB,
        keep_tallies: bool = True,
        seconds: float = 1.0,
    ) -> None:
        self._roots, self._names = roots, names
        self._limit, self._seconds = limit_bytes, seconds
        self.keep_tallies = keep_tallies
        self._interrupt = DeferredInterrupt(
            self, StateGuard.__enter__, StateGuard.__exit__
        )
        self._records: list[Saved] = []
        self._final: tuple[Change, ...] | None = None
        self._unguarded: tuple[str, ...] = ()
        self._failed: list[str] = []

    def __enter__(self) -> Self:
        self._interrupt.install()  # first, so that entering is not cut in two either
        begun(self)
        self._quiet = np.errstate(all="ignore")
        self._quiet.__enter__()
        try:
            self._save()
            if self._interrupt.pending:
                self._interrupt.remove()
                self._interrupt.deliver()
        except BaseException:
            self._quiet.__exit__(None, None, None)
            self._interrupt.remove()
            ended(self)
            raise
        return self

    def _save(self) -> None:
        self._final, self._failed = None, []
        self._settings: list[Saved] = [*save_numpy_settings(), *save_torch_settings()]
        with quiet_torch():
            walk = reach(self._roots, names=self._names, seconds=self._seconds)
            memory = Memory(walk, self._limit)
            self._bindings: Bindings | None = Bindings(walk)
            self._records = [
                *save_objects(walk),
                *save_torch_hooks(),
                *memory.blocks,
                *memory.tensors,  # after the blocks: versions are rewound last
            ]
            self._random: list[SavedRandom] = save_random(walk)
        self._unguarded = tuple(
            f"{path_text(path)}: {reason}" for path, reason in walk.unguarded
        )

    def __exit__(self, *_exception: object) -> None:
        interrupted: KeyboardInterrupt | None = None
        for _ in range(MOST_RETRIES):
            try:
                self._finish()
                break
            except KeyboardInterrupt as error:  # raised in here, by no signal of ours
                interrupted = error
        self._quiet.__exit__(None, None, None)
        self._interrupt.remove()
        ended(self)
        self._interrupt.deliver()
        if interrupted is not None:
            raise interrupted

    def _finish(self) -> None:
        """Compare, then restore; every step may be repeated."""
        if self._final is None:
            self._final = self._look()
        with quiet_torch():
            if self._bindings is not None:
                self._bindings.restore_with(
                    self._restore, keep_tallies=self.keep_tallies
                )
            for record in self._records:
                self._restore(record.restore)
        drawn = {change.where for change in self._final if change.kind == "random"}
        for source in self._random:
            if source.where in drawn:  # setting NumPy's global state costs 40 us
                self._restore(source.restore)
        if any(change.kind == "setting" for change in self._final):
            for record in self._settings:
                self._restore(record.restore)
        # Give the copies' memory back.
        self._bindings, self._records = None, []
        self._random, self._settings = [], []

    def _restore(self, restore: Callable[[], None]) -> None:
        try:
            restore()
        except Exception as error:  # noqa: BLE001 - the others must still be restored
            failure = f"{type(error).__name__}: {error}"
            if failure not in self._failed:
                self._failed.append(failure)

    def _look(self) -> tuple[Change, ...]:
        with quiet_torch():
            found = changes_of((*(self._bindings or ()), *self._records, *self._random))
        return (*found, *changes_of(self._settings))

    def changes(self) -> tuple[Change, ...]:
        """Compare with the state on entry; after the block, what differed at its end.

        Returns
        -------
        tuple of Change
            Empty if the body left no trace. An engine that perturbs in place must have
            undone it, or its own writes are in here.
        """
        return self._look() if self._final is None else self._final

    def hidden_state(self) -> HiddenState:
        """Rewind between evaluations to the state on entry, by the guard's own copies.

        Cheaper than a `HiddenState` of one's own: no second walk, no second copy.
        """
        return HiddenState.from_records((*(self._bindings or ()), *self._records))

    def random_freeze(self) -> RandomFreeze:
        """Rewind random sources to the state on entry, without a second walk."""
        return RandomFreeze.from_sources(self._random)

    @property
    def generators(self) -> tuple[SavedRandom, ...]:
        """Random sources of the user's own, beside those that every process has."""
        return tuple(s for s in self._random if not isinstance(s, GlobalRandom))

    @property
    def remarks(self) -> tuple[str, ...]:
        """What is not as it was, after the block, in sentences; mostly nothing."""
        lost = [str(change) for change in self._final or () if not change.restorable]
        return (
            *(f"{change} and cannot be put back" for change in lost),
            *(f"not everything could be put back: {told}" for told in self._failed),
        )

    @property
    def unguarded(self) -> tuple[str, ...]:
        """What was reached and can neither be saved nor watched, with the reason."""
        return self._unguarded


class HiddenState:
    """State that one evaluation changes, and how to rewind it before the next.

    Take it, evaluate once, ask `changes`. If the function is stateful, `restore` before
    each further evaluation puts back what changed the first time, and only that.

    Parameters
    ----------
    *roots, names, limit_bytes
        As for `StateGuard`. Tallies are rewound here: the value may depend on them.

    Examples
    --------
    >>> class Drifting:
    ...     calls = 0
    ...
    ...     def __call__(self, x):
    ...         self.calls += 1
    ...         return x * self.calls
    >>> f = Drifting()
    >>> state = HiddenState(f, names=["f"])
    >>> f(1.0), [change.where for change in state.changes()]
    (1.0, ['f.calls'])
    >>> state.restore()
    >>> f(1.0)
    1.0
    """

    def __init__(
        self,
        *roots: object,
        names: Sequence[str] | None = None,
        limit_bytes: int = _GIB,
    ) -> None:
        with quiet_torch():
            walk = reach(roots, names=names)
            memory = Memory(walk, limit_bytes)
            self._records: tuple[Saved | SavedBinding, ...] = (
                *Bindings(walk),
                *save_objects(walk),
                *memory.blocks,
                *memory.tensors,
            )
        self._moved: list[Saved | SavedBinding] = []

    @classmethod
    def from_records(cls, records: Iterable[Saved | SavedBinding]) -> Self:
        """Use records that a guard holds already, see `StateGuard.hidden_state`."""
        state = cls.__new__(cls)
        state._records, state._moved = tuple(records), []  # noqa: SLF001 - its own
        return state

    def changes(self) -> tuple[Change, ...]:
        """Name what changed since the last `restore`, and note it for the next."""
        with quiet_torch():
            found = [(record, changes_of((record,))) for record in self._records]
        for record, changed in found:
            if changed and record not in self._moved:
                self._moved.append(record)
                if isinstance(record, SavedDict):
                    record.note()
        return tuple(dict.fromkeys(change for _, seen in found for change in seen))

    def restore(self) -> None:
        """Rewind what `changes` has seen to change."""
        if self._moved:
            with quiet_torch():
                for record in self._moved:
                    record.restore()
