"""What the live views share: one lock, answers to the page, errors as sentences.

JupyterLab serves widget messages on a thread of their own, even while a cell is
running. So everything here happens under one lock, with the floating-point error
handling of the thread that made the widget and with gradients on, and an exception
becomes a sentence in the page: nobody reads the log of a server.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING, Any, ClassVar

import anywidget
import numpy as np
import traitlets

from gradlab.errors import GradlabError, InputTypeError
from gradlab.keywords import no_such_option
from gradlab.presentation.figures import DRAWING
from gradlab.presentation.html import script_path

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

__all__ = ["Answer", "LiveView", "shows"]

# Words for the page, and planes of bytes by name.
Answer = tuple[dict[str, Any], "Mapping[str, bytes]"]


def shows(
    view: LiveView, given: object, member: str, wanted: str, values: Mapping[str, Any]
) -> None:
    """Refuse what a view cannot show, and keywords that it does not have.

    Parameters
    ----------
    view
        The view, before it is made.
    given, member, wanted
        What it is to show, something that all that is wanted has, and that in words.
    values
        Keywords: traits by name.

    Raises
    ------
    InputTypeError
        If `given` lacks the `member`, or a trait is none that can be set.

    Examples
    --------
    >>> gl.JacobianExplorer(np.sin)
    Traceback (most recent call last):
        ...
    gradlab.errors.InputTypeError: JacobianExplorer shows a gradlab.Report: gl.check(...); got ufunc
    """  # noqa: E501 - the message as it is printed
    if not hasattr(given, member):
        msg = f"{type(view).__name__} shows {wanted}; got {type(given).__name__}"
        raise InputTypeError(msg)
    for name in values:
        if name not in view.settable and not anywidget.AnyWidget.class_traits().get(
            name
        ):
            raise no_such_option(type(view).__name__, name, view.settable)


class LiveView(anywidget.AnyWidget):
    """The page with a kernel behind it; `kind` says which view it shows."""

    settable: ClassVar[tuple[str, ...]] = ()  # traits that a user may set

    # the text, not the path: anywidget would watch the file, and never let go of us
    _esm = script_path().read_text(encoding="utf-8")
    kind = traitlets.Unicode().tag(sync=True)
    page = traitlets.Dict().tag(sync=True)
    picked = traitlets.Unicode("").tag(sync=True)
    method = traitlets.Unicode("").tag(sync=True)
    h = traitlets.Float(0.0).tag(sync=True)
    can_recompute = traitlets.Bool(default_value=False).tag(sync=True)

    def __init__(self, **values: Any) -> None:
        super().__init__(**values)
        self._errors = np.geterr()
        self._answers: dict[str, Callable[[dict[str, Any]], Answer]] = {}
        self.on_msg(self._on_message)

    def _choices(self, trait: str) -> Collection[str] | None:  # noqa: ARG002 - for all
        """Name what a trait may be set to; None leaves it open."""
        return None

    @traitlets.validate("picked", "method", "dtype")
    def _one_of(self, proposal: Any) -> str:
        """Refuse what is not there to be shown; empty stands for no choice."""
        trait, value = str(proposal["trait"].name), str(proposal["value"])
        known = self._choices(trait)
        if value and known is not None and value not in known:
            there = ", ".join(map(repr, known)) or "nothing yet"
            msg = f"{trait} must be one of {there}; got {value!r}"
            raise traitlets.TraitError(msg)
        return value

    def _on_message(
        self, _: object, message: dict[str, Any], __: list[memoryview]
    ) -> None:
        """Answer a question of the page; late ones are dropped there by number."""
        answer = self._answers.get(message.get("type", ""))
        if answer is None:
            return
        planes: Mapping[str, bytes] = {}
        try:
            with self._undisturbed():
                words, planes = answer(message)
        except Exception as error:  # noqa: BLE001 - whatever the user's function raises
            words = {"error": _sentence(error)}
        self.send(
            {**words, "id": message["id"], "names": list(planes)}, list(planes.values())
        )

    def _repr_mimebundle_(self, **options: Any) -> Any:
        """Add the page that needs no kernel, where a site is made from notebooks.

        GRADLAB_PAGES asks for it (`make notebooks` does); a notebook that is saved
        with its outputs would hold every report twice.
        """
        bundle = super()._repr_mimebundle_(**options)
        if bundle is None or not os.environ.get("GRADLAB_PAGES"):
            return bundle
        data, metadata = bundle
        # what is shown: an audit of layers, a sweep, a report
        things = (getattr(self, name, None) for name in ("audit", "sweep", "report"))
        thing = next((each for each in things if each is not None), None)
        page = thing._repr_mimebundle_() if thing is not None else {}
        if "text/html" in page:  # none in a terminal
            data = {**data, "text/html": page["text/html"]}
        return data, metadata

    @contextlib.contextmanager
    def _undisturbed(self) -> Iterator[None]:
        """Compute one at a time, gradients on, errors as in the thread of the maker."""
        torch = sys.modules.get("torch")
        mode = torch.enable_grad() if torch else contextlib.nullcontext()
        with DRAWING, np.errstate(**self._errors), mode:
            yield


def _sentence(error: Exception) -> str:
    """First line of what went wrong, for a line in the page.

    What gradlab refuses is a sentence; of other errors the kind says half of it.
    """
    text = (str(error).strip().splitlines() or ["no reason given"])[0]
    return (
        text if isinstance(error, GradlabError) else f"{type(error).__name__}: {text}"
    )
