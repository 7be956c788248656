"""Run the benchmarks and write what they measured into CONTRIBUTING.md.

``OMP_NUM_THREADS=1 python tests/benchmarks/write_table.py [script ...]`` replaces what
stands under "Measured"; scripts left out keep what they had, and so does all that is
written below a table.
"""

from __future__ import annotations

import datetime as dt
import os
import pathlib
import platform
import re
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
PAGE = HERE.parents[1] / "CONTRIBUTING.md"
SCRIPTS = (
    "bench_gradcheck",
    "bench_dropin",
    "bench_numpy_overhead",
    "bench_peers",
    "bench_large",
    "bench_sparse",
    "bench_planted",
    "bench_whole_models",
)


def section(name):
    """Run one script; its first sentence and its output, as Markdown."""
    run = [sys.executable, str(HERE / f"{name}.py")]
    done = subprocess.run(run, check=True, capture_output=True, text=True)
    text = (HERE / f"{name}.py").read_text(encoding="utf-8")
    first = re.search(r'"""(.+?)\n\n', text, re.DOTALL).group(1).replace("\n", " ")
    today = dt.datetime.now(tz=dt.UTC).date()
    where = (
        f"{today}, {os.cpu_count()} cores ({platform.machine()}), "
        f"{os.environ.get('OMP_NUM_THREADS', 'all')} thread, load "
        f"{os.getloadavg()[0]:.0f}"
    )
    return f"### `{name}.py`\n\n{first} ({where})\n\n```text\n{done.stdout}```\n"


def main():
    """Replace the sections of the scripts that were named, or of all."""
    wanted = [pathlib.Path(a).stem for a in sys.argv[1:]] or list(SCRIPTS)
    for name in wanted:
        fresh = section(name)
        page = PAGE.read_text(encoding="utf-8")
        # what somebody wrote below a table stays
        old = re.compile(rf"### `{name}\.py`\n.*?```text\n.*?```\n", re.DOTALL)
        if old.search(page):
            page = old.sub(lambda _, fresh=fresh: fresh, page)
        else:
            page = page.replace("\n## Release", f"\n{fresh}\n## Release", 1)
        PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
