"""Benchmarks that are scripts: run by hand, not collected for their doctests."""

from __future__ import annotations

collect_ignore_glob = ["bench_*.py", "write_table.py"]
