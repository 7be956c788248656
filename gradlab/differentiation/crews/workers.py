"""Evaluations spread over the workers of a `concurrent.futures.Executor`.

The displaced points of one input are cut into contiguous pieces, a few for each worker;
each is evaluated by the same code as in one process, one point after the other or in
the same batches, so that the numbers are the same to the bit, whoever computes them and
in which order they come back. A process pool that broke, because a worker died, is
replaced; points that end the process they are evaluated in have no value.
"""

from __future__ import annotations

import os
import time
import uuid
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from typing import TYPE_CHECKING, Any

import numpy as np

from gradlab.differentiation.crews import silence
from gradlab.differentiation.crews.pieces import (
    Job,
    Piece,
    batch_size,
    cut,
    halves,
    singles,
    works_alone,
)
from gradlab.differentiation.crews.pools import (
    another_pool,
    breadth_of,
    call_off,
    first_line,
    killed,
)
from gradlab.differentiation.crews.work import (
    Done,
    Parcel,
    beside,
    evaluated,
    forget,
    pickled_subject,
    torch_threads,
    work,
)
from gradlab.errors import GradlabError, InputError, InputTypeError, SubjectError
from gradlab.subject.subject import output_rows

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from numpy.typing import NDArray

    from gradlab.differentiation.metering.meter import Meter
    from gradlab.subject.subject import Subject

__all__ = ["Workers"]

_WORTHWHILE = 5e-3  # seconds of work; less is over before a worker has heard of it
_AHEAD = 2  # pieces on their way for each worker, so that none waits for the next
_FAILURES = 3  # of an executor that are no deaths, before it is given up
_HERE = "evaluated in this process instead"
_SILENT = "workers were still silent when the seconds were over; perhaps one hangs"
_ROUNDED = (
    "the workers may differ in the last digits (other processors, or fewer threads)"
)


class _Member:
    """One subject that the workers know: its name, its parcel, its price."""

    def __init__(self, subject: Subject, parcel: Parcel, each: float) -> None:
        self.subject = subject  # kept, so that its id stays its own
        self.parcel = parcel
        self.each = max(each, 1e-7)  # seconds of one evaluation
        self.token = uuid.uuid4().hex
        self.sent = 0  # parcels since the pool was new
        self.alone = works_alone(subject)


class Workers:
    """Evaluates for a `Meter` on an executor; see `Crew` there.

    Parameters
    ----------
    executor
        Any `concurrent.futures.Executor`, or an object with ``get_executor`` (Dask's
        client). It stays open, and the user's.

    Raises
    ------
    InputTypeError
        If it has no ``submit``.

    Examples
    --------
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> x = np.ones(3)
    >>> with ThreadPoolExecutor(2) as pool:
    ...     report = gl.check(
    ...         np.sin, x, jac=lambda x: np.diag(np.cos(x)), executor=pool
    ...     )
    >>> report.verdict.name
    'AGREES'
    """

    def __init__(self, executor: Executor) -> None:
        given: Any = executor
        if not isinstance(executor, type) and hasattr(executor, "get_executor"):
            given = given.get_executor()
        if isinstance(given, type) or not callable(getattr(given, "submit", None)):
            msg = (
                f"executor must be a concurrent.futures.Executor (something with "
                f"submit), got {type(executor).__name__}"
            )
            raise InputTypeError(msg)
        self._executor = given
        self._own: ProcessPoolExecutor | None = None  # in place of one that broke
        self._members: dict[int, _Member] = {}
        self._refused: list[Subject] = []
        self._lost = ""  # why nobody but this process evaluates any more
        self._failures = 0
        self._killed = False  # a worker died, by the executor's own word
        self._silence = silence.Silence()
        self._seen: set[str] = set()
        self._spread = 0
        self._notes: dict[str, None] = {}
        self.breadth: int = breadth_of(given)

    # ------------------------------------------------------------- set-up
    def enlist(self, subject: Subject, meter: Meter) -> None:
        """Make a subject known: pickle it, once.

        Parameters
        ----------
        subject
            Evaluated once already, so that all that was found out goes along.
        meter
            Charged with the two evaluations that every worker has to reproduce.

        Raises
        ------
        InputError
            If it cannot be pickled, cloudpickle is missing, or the executor takes no
            work.
        """
        try:
            self._executor.submit(os.getpid)
        except BrokenExecutor:
            self._renew()
        except RuntimeError as cause:
            msg = (
                f"executor= takes no more work ({first_line(cause)}); pass one that "
                f"is open"
            )
            raise InputError(msg) from cause
        try:
            pickled = pickled_subject(subject)
        except InputError:
            raise
        except Exception as cause:
            msg = (
                f"the function cannot be sent to the workers of executor=: pickling it "
                f"raised {type(cause).__name__} ({first_line(cause)}); make locks, "
                f"files, connections and generators inside of it, or leave executor= "
                f"out"
            )
            raise InputError(msg) from cause
        meter.spend(2)
        began = time.perf_counter()
        expected = beside(subject, meter.timeouts)
        each = (time.perf_counter() - began) / 2
        parcel = Parcel(pickled, expected, subject.epsilon, torch_threads())
        self._members[id(subject)] = _Member(subject, parcel, each)

    def _member(self, subject: Subject, meter: Meter) -> _Member | None:
        if self._lost or any(subject is other for other in self._refused):
            return None
        if id(subject) not in self._members:
            try:
                self.enlist(subject, meter)
            except InputError as cause:
                self._refused.append(subject)
                self._note(f"{cause}: {_HERE}")
                return None
        return self._members[id(subject)]

    # ------------------------------------------------------------- evaluations
    def rows(
        self,
        subject: Subject,
        which: int,
        positions: NDArray[np.intp],
        displacements: NDArray[np.float64],
        meter: Meter,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """As `evaluation.displaced_rows`; None where it is not worth it, or lost."""
        member = self._member(subject, meter)
        if member is None or len(positions) * member.each < _WORTHWHILE:
            return None
        batched = subject.batches(which, len(positions))
        unit = batch_size(subject, which) if batched else 2
        moves = np.asarray(positions, dtype=np.intp), displacements
        alone = member.alone or batched
        piece = Piece("rows", (which,), *moves, batched=batched, alone=alone)
        return self._run(member, cut(piece, self.breadth, member.each, unit), meter)

    def sets(
        self,
        subject: Subject,
        inputs: tuple[int, ...],
        displacements: NDArray[np.float64],
        meter: Meter,
    ) -> NDArray[np.float64] | None:
        """As `evaluation.displaced_sets`; None as for `rows`."""
        member = self._member(subject, meter)
        if member is None or len(displacements) * member.each < _WORTHWHILE:
            return None
        moves = np.empty(0, dtype=np.intp), displacements
        piece = Piece("sets", inputs, *moves, batched=False, alone=member.alone)
        return self._run(member, cut(piece, self.breadth, member.each, 1), meter)[0]

    def _run(
        self, member: _Member, jobs: list[Job], meter: Meter
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Have all jobs done, here if nobody else can; results in their order."""
        waiting, done = list(jobs), list[tuple[int, Done]]()
        flying: dict[Future[Done], Job] = {}
        try:
            while waiting or flying:
                narrow = any(job.suspect for job in (*waiting, *flying.values()))
                room = 1 if narrow else _AHEAD * self.breadth
                while waiting and len(flying) < room:
                    job = waiting.pop(0)
                    if not job.paid:
                        meter.spend(job.piece.count, show=False)
                        job.paid = True
                    future = None if self._lost else self._sent(member, job)
                    if future is None:
                        done.append((job.start, evaluated(member.subject, job.piece)))
                        meter.bar.advance(job.piece.count)
                    else:
                        flying[future] = job
                patience = min(silence.LOOK, meter.grace())
                landed, _ = wait(flying, patience, FIRST_COMPLETED)
                if flying and not landed and patience < silence.LOOK:
                    self._note(_SILENT)
                    meter.in_time()
                elif flying and not landed:
                    most = max(job.piece.count for job in flying.values())
                    self._silence.lasts(
                        self._own or self._executor,
                        killed=self._killed,
                        longest=most * member.each,
                    )
                for future in landed:
                    job = flying.pop(future)
                    result = self._received(member, job, future, meter)
                    if isinstance(result, Done):
                        done.append((job.start, result))
                        meter.bar.advance(job.piece.count)
                    else:
                        waiting[:0] = result
        finally:
            call_off(flying, self._own or self._executor)
        parts = [part for _, part in sorted(done, key=lambda pair: pair[0])]
        for part in parts:  # as one process would have met them
            meter.timeouts.ended += part.given_up
            for _ in range(part.raised):
                meter.failed(part.cause or RuntimeError("unknown"), part.nearest)
        values = [part.values for part in parts if part.values is not None]
        taken = [part.taken for part in parts if part.taken is not None]
        return np.concatenate(values), np.concatenate(taken)

    def _sent(self, member: _Member, job: Job) -> Future[Done] | None:
        """Submit a job; None if nobody takes it."""
        # whoever has not heard of the subject asks for it, and is sent it then
        first = job.asked or job.suspect or member.sent < self.breadth
        parcel = member.parcel if first else None
        member.sent += first
        for _ in range(2):
            try:
                pool: Any = self._own or self._executor
                future: Future[Done] = pool.submit(
                    work, member.token, parcel, job.piece
                )
                return future
            except BrokenExecutor:
                self._renew()
                parcel = member.parcel
            except RuntimeError as cause:
                self._give_up(f"the executor took no more work ({first_line(cause)})")
            if self._lost:
                break
        return None

    def _received(
        self, member: _Member, job: Job, future: Future[Done], meter: Meter
    ) -> Done | list[Job]:
        """Take in what came back: results, or the jobs that have to be done again."""
        try:
            answer = future.result()
        except GradlabError:
            raise  # the function misbehaves, as it would have in this process
        except Exception as cause:  # noqa: BLE001 - whatever an executor raises
            return self._failed(member, job, cause)
        self._silence.heard()
        meter.evaluations += answer.extra
        self._seen.add(answer.worker)
        if answer.rounded:
            self._note(_ROUNDED)
        match answer.answer:
            case "values":
                self._spread += job.piece.count
                return answer
            case "who is that?":
                job.asked = True
            case "cannot load":
                self._give_up(f"a worker could not load the function ({answer.words})")
            case "other numbers":
                self._give_up("on a worker the function computes something else")
        return [job]

    def _failed(self, member: _Member, job: Job, cause: Exception) -> Done | list[Job]:
        """Plan another attempt at what was lost."""
        died = isinstance(cause, BrokenExecutor) or killed(cause)
        if isinstance(cause, BrokenExecutor):
            self._renew()
        if not died:
            self._failures += 1
            if self._failures >= _FAILURES:
                self._give_up(f"the executor failed ({type(cause).__name__}: {cause})")
            return [job]
        self._killed = True
        self._note("a worker died, and its work was done again")
        if killed(cause) and not job.suspect:  # it has killed several workers already
            if job.piece.count > 1:
                return singles(job)
            job.deaths = 1  # or it was only waiting beside what did
        if not job.suspect:
            job.deaths += 1
            return [job]
        if job.piece.count > 1:
            return halves(job)
        # a single evaluation that ends its process, time and again: no value there
        piece = job.piece
        names = [member.subject.inputs[which].name for which in piece.inputs]
        moved = f"{', '.join(names)} {'were' if len(names) > 1 else 'was'}"
        msg = f"the process ended while {moved} displaced"
        values = np.full((1, output_rows(member.subject.outputs)), np.nan)
        taken = piece.displacements if piece.kind == "rows" else np.empty(0)
        return Done("values", "", values, taken, 1, SubjectError(msg))

    # ------------------------------------------------------------- the pool
    def _renew(self) -> None:
        """Put a new process pool in the place of one that broke."""
        broken = self._own or self._executor
        for member in self._members.values():
            member.sent = 0
        if not isinstance(broken, ProcessPoolExecutor):
            self._give_up("the executor broke")
            return
        if not getattr(broken, "_broken", True):
            return  # another job that was lost with it has seen to that
        self._own = another_pool(self._executor, self.breadth)
        if broken is not self._executor:
            broken.shutdown(wait=False)

    def _give_up(self, why: str) -> None:
        self._lost = self._lost or why
        self._note(f"{why}: {_HERE}")

    def _note(self, words: str) -> None:
        self._notes[words] = None

    def close(self) -> None:
        """Let go of what this made; the user's executor stays open."""
        for member in self._members.values():
            forget(member.token)
        self._members.clear()
        if self._own is not None:
            self._own.shutdown(wait=False, cancel_futures=True)
            self._own = None

    @property
    def remarks(self) -> tuple[str, ...]:
        """Return what a reader of the report must know."""
        kind = type(self._executor).__name__
        count = len(self._seen)
        told = f"{self._spread:,} evaluations by {count} workers of {kind}"
        return (told, *self._notes) if self._spread or self._notes else ()
