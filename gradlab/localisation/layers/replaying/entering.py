"""The state in which a call began, put in place while it is run again."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any

from gradlab.localisation.layers.recording.frames import walk
from gradlab.localisation.layers.recording.owners import standing_in
from gradlab.localisation.layers.recording.state import enter, entry_of
from gradlab.localisation.layers.variables import double_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gradlab.localisation.layers.recording.frames import Frame
    from gradlab.localisation.layers.recording.state import Entry
    from gradlab.localisation.layers.replaying.replay import Piece

__all__ = ["entered"]


@contextlib.contextmanager
def entered(piece: Piece, *, rewind: bool) -> Iterator[None]:
    """Put what a call finds into the state it had, and undo it afterwards.

    In the precision of the piece: a layer whose weight is frozen in half precision
    could not be run in double otherwise. Where the calls inside run as well, the
    buffers and attributes of their modules are those of the first call: else each run
    would begin where the last one ended. Those that the model reads without calling
    them, and that remember, do so as the model found them.

    Parameters
    ----------
    piece
        The call, and how it is run.
    rewind
        Whether global random generators matter to it.
    """
    frame, cast = piece.frame, piece.cast
    if frame.aside is not None:
        frame.aside.put_back()
    with contextlib.ExitStack() as stack:
        if piece.raised:
            stack.enter_context(standing_in(piece.owners, _raised(piece)))
        for module, entry in _inside(frame) if piece.whole else ():
            stack.enter_context(enter(module, entry, cast, rewind=False))
        # Last, for what both hold (a list, say) is as it was before anything ran.
        stack.enter_context(enter(frame.target, frame.entry, cast, rewind=rewind))
        yield


def _raised(piece: Piece) -> list[tuple[Any, Callable[[], Any]]]:
    """List what nobody trains, and what makes it wider."""
    return [
        (parameter, functools.partial(piece.cast, parameter.detach()))
        for parameter in piece.owners.frozen(piece.frame, whole=piece.whole)
        if parameter.dtype != double_of(parameter)
    ]


def _inside(frame: Frame) -> list[tuple[Any, Entry]]:
    """List the modules inside with their state; what was called first comes last.

    Those that are not called by themselves are as they are now.
    """
    first: dict[int, Entry] = {}
    for call in walk(frame.children):
        first.setdefault(id(call.target), call.entry)
    called, others = [], []
    for module in frame.target.modules():
        if module is frame.target:
            continue
        if id(module) in first:
            called.append((module, first[id(module)]))
        else:
            others.append((module, entry_of(module, frame.entry.random, {})))
    order = {key: k for k, key in enumerate(first)}
    called.sort(key=lambda pair: -order[id(pair[0])])
    return others + called
