"""Figures of a benchmark: percentiles, a table on the terminal, JSON in ``benchmarks/results``."""

from __future__ import annotations

import json
import math
import os
import platform
import shutil
import time
from pathlib import Path
from typing import Any


def is_fit_for(what: str, *programs: str) -> bool:
    """Whether these programs are installed; if not, says so: ``make bench`` then goes on."""
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        print(f"{what}: left out, because {', '.join(missing)} cannot be found; install it first")
    return not missing


def percentile(values: list[float], share: float) -> float:
    """The smallest value that at least ``share`` of ``values`` do not exceed (nearest rank)."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def summary(values: list[float]) -> dict[str, float]:
    """What is printed of a row of measurements."""
    return {
        "n": len(values),
        "min": round(min(values), 2),
        "median": round(percentile(values, 0.5), 2),
        "p99": round(percentile(values, 0.99), 2),
        "max": round(max(values), 2),
    }


def print_table(title: str, rows: dict[str, dict[str, Any]]) -> None:
    """One line a row, the columns of the first row."""
    columns = list(next(iter(rows.values())))
    width = max(len(name) for name in rows)
    print(f"\n{title}")
    print(" " * width, *(f"{column:>12}" for column in columns))
    for name, row in rows.items():
        print(f"{name:<{width}}", *(f"{row.get(column, ''):>12}" for column in columns))


def print_lost(
    rows: dict[str, dict[str, Any]], ours: str, column: str, *, more_is_better: bool
) -> None:
    """Name the sides that do better than ours, and how much: what others are better at is said
    first.
    """
    mine = rows[ours][column]
    for name, row in rows.items():
        factor = row[column] / mine if more_is_better else mine / row[column]
        if factor > 1 and not name.startswith(ours):
            print(
                f"  we lose: {name} is {factor:.2f}x as good ({column} {row[column]:,} beside"
                f" {mine:,})"
            )


def verdict(value: float, bar: float, *, at_most: bool = False) -> dict[str, Any]:
    """A ratio beside what it has to be; a bar of 0 is none."""
    if not bar:
        return {"ratio": round(value, 2), "bar": "none", "met": "we lose" if value < 1 else ""}
    is_met = value <= bar if at_most else value >= bar
    return {
        "ratio": round(value, 2),
        "bar": f"{'<=' if at_most else '>='} {bar:g}",
        "met": "yes" if is_met else "NO",
    }


def out_of_order(keys: list[int]) -> float:
    """The share of all pairs with different keys of which the greater comes first."""
    pairs = [(a, b) for at, a in enumerate(keys) for b in keys[at + 1 :] if a != b]
    return sum(a > b for a, b in pairs) / len(pairs) if pairs else 0.0


def save(name: str, figures: dict[str, Any]) -> Path:
    """Write the figures with the circumstances they were measured in."""
    folder = Path(__file__).parent / "results"
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}.json"
    circumstances = {
        "python": platform.python_version(),
        "system": platform.platform(),
        "cores": os.cpu_count(),
    }
    path.write_text(json.dumps({"circumstances": circumstances, **figures}, indent=2) + "\n")
    return path
