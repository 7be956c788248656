"""What tests of executors share: what the workers have done, as it is told."""

from __future__ import annotations


def spread(report):
    """How many evaluations the workers made, by the words of a report or a sweep."""
    told = [r for r in report.remarks if " workers of " in r]
    return int(told[0].split()[0].replace(",", "")) if told else 0
