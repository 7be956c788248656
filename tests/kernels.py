"""Kernels that are there at once: forked from a process that has imported the rest.

A kernel takes two to four seconds of processor time to import IPython, pandas,
matplotlib, gradlab and torch, and a hundred of them are started by `make test`.

    python tests/kernels.py run COMMAND...

runs a command with such kernels under the name of the usual one. A notebook notices
nothing: it has a process, an environment and names of its own. torch is there only
where the notebook imports it, for gradlab asks whether it is. Where nothing can be
forked the usual kernel is started.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import socket
import sys

SOCKET = "GRADLAB_KERNELS"  # in the environment: where they are to be had
USUAL = "ipykernel_launcher"
TORCH = ".torch"  # what is added to that place for kernels with torch
PREPARED = (
    *("IPython", "ipykernel.kernelapp", "ipykernel.zmqshell", "jedi"),
    *("matplotlib.backends.backend_agg", "matplotlib.figure", "numpy", "pandas"),
)
# Registers with the shell that is there when it is imported: the kernel's, or none.
NOT_BEFORE = "ipywidgets"
LATE = ("presentation.widgets", "teaching", "pytest_plugin", "cli", "_")  # or seldom
MOST = 1_000_000  # bytes of a request: an environment


def kernel(*words):
    """Be a kernel for Jupyter: ask for one, and hand on to it what is asked of it."""
    request = {
        "argv": [USUAL, *words],
        "cwd": str(pathlib.Path.cwd()),
        "environment": dict(os.environ),
    }
    place = os.environ.get(SOCKET, "")
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        line.connect(place + TORCH if _wants_torch() else place)
    except OSError:
        _usual(words)
    pid = None
    pending = []

    def hand_on(number, frame):
        if pid is None:
            pending.append(number)
        else:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, hand_on)
    message = json.dumps(request).encode()
    socket.send_fds(line, [len(message).to_bytes(8, "big")], [0, 1, 2])
    line.sendall(message)
    answer = b""
    with contextlib.suppress(ConnectionResetError):
        answer = line.recv(8)
    if not answer:  # whoever was to fork it has come to an end
        _usual(words)
    pid = int.from_bytes(answer, "big")
    for number in pending:
        hand_on(number, None)
    line.recv(1)  # comes to its end with the kernel


def _usual(words):
    os.execv(sys.executable, [sys.executable, "-m", USUAL, *words])


def _wants_torch():
    """Whether the notebook that this kernel is for imports torch.

    Jupyter's server tells its name, and so does pytest.
    """
    test = os.environ.get("PYTEST_CURRENT_TEST", "").partition("::")[0]
    name = os.environ.get("JPY_SESSION_NAME") or test
    try:
        text = pathlib.Path(pathlib.Path(name).name).read_text(encoding="utf-8")
    except OSError:
        return False
    return "import torch" in text


def serve(place):
    """Import what kernels need, and fork one for each that asks."""
    import gc
    import select

    door, other = _door(place), _door(place + TORCH)  # who comes early waits
    _prepare()
    if os.fork() == 0:
        door, other = other, door
        other.close()
        select.select([door], [], [])  # it may be that nobody asks
        with contextlib.suppress(ImportError):
            import torch  # noqa: F401
    else:
        other.close()
    gc.freeze()  # kernels share what is there until they change it
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how they ended
    while True:
        line, _ = door.accept()
        if os.fork() == 0:
            door.close()
            _become(line)
            return
        line.close()


def _door(place):
    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    door.bind(place)
    door.listen(32)
    return door


def _prepare():
    """Import all that comes to nobody's notice."""
    import importlib
    import pkgutil

    import gradlab

    # As a kernel does before anything can ask for matplotlib.
    os.environ.setdefault("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    for name in PREPARED:
        importlib.import_module(name)
    for module in pkgutil.walk_packages(gradlab.__path__, "gradlab."):
        ours = module.name.removeprefix("gradlab.")
        if not ours.startswith(LATE):
            with contextlib.suppress(ImportError):
                importlib.import_module(module.name)
    if NOT_BEFORE in sys.modules:
        raise RuntimeError(f"{NOT_BEFORE} must be imported by the kernel itself")


def _become(line):
    """Turn this process into the kernel that is asked for."""
    import random
    import runpy
    import threading

    import numpy as np

    head, files, *_ = socket.recv_fds(line, 8, 3)
    size = int.from_bytes(head, "big")
    message = b""
    while len(message) < size:
        message += line.recv(min(MOST, size - len(message)))
    request = json.loads(message)
    for target, file in enumerate(files):
        os.dup2(file, target)
        os.close(file)
    os.setsid()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    os.environ["JPY_PARENT_PID"] = "1"  # not to be watched: the line tells its end
    np.random.seed()  # or all kernels would draw the same
    random.seed()
    line.sendall(os.getpid().to_bytes(8, "big"))
    threading.Thread(target=_end_with, args=(line,), daemon=True).start()
    sys.argv = request["argv"]
    sys.path[0] = ""
    runpy.run_module(USUAL, run_name="__main__")


def _end_with(line):
    """End when the process that Jupyter knows as the kernel has been killed."""
    line.recv(1)
    os.kill(os.getpid(), signal.SIGKILL)


@contextlib.contextmanager
def prepared(environment):
    """Have such kernels while this lasts; yields an environment that finds them."""
    import shutil
    import subprocess
    import tempfile

    home = pathlib.Path(tempfile.mkdtemp(prefix="gradlab-kernels-"))
    place = home / "door"
    command = [sys.executable, "-I", "-S", __file__, "kernel"]
    folder = home / "kernels" / "python3"
    folder.mkdir(parents=True)
    usual = pathlib.Path(sys.prefix, "share", "jupyter", "kernels", "python3")
    spec = json.loads((usual / "kernel.json").read_text(encoding="utf-8"))
    spec["argv"] = [*command, "-f", "{connection_file}"]
    # JupyterLab asks a kernel how its debugger does, and complains in the console when
    # the answer is cut off: one that ends as soon as it has started has no time for it.
    spec["metadata"] = spec.get("metadata", {}) | {"debugger": False}
    (folder / "kernel.json").write_text(json.dumps(spec), encoding="utf-8")
    paths = (str(home), environment.get("JUPYTER_PATH", ""))
    found = environment | {"JUPYTER_PATH": os.pathsep.join(filter(None, paths))}
    server = subprocess.Popen(
        [sys.executable, __file__, "serve", str(place)],
        env=environment,
        start_new_session=True,
    )
    try:
        yield found | {SOCKET: str(place)}
    finally:
        os.killpg(server.pid, signal.SIGTERM)  # our own process group only
        server.wait()
        shutil.rmtree(home, ignore_errors=True)


def run(*command):
    """Run a command with prepared kernels, and end as it ends."""
    import subprocess

    with prepared(dict(os.environ)) as environment:
        return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    task, *rest = sys.argv[1:]
    sys.exit({"run": run, "serve": serve, "kernel": kernel}[task](*rest))
