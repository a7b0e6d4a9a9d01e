"""``make quick`` runs the unit tests, and of each package one test on servers: that in
``quick.txt``.
"""

from __future__ import annotations

from pathlib import Path

from standing import stands

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
ELSEWHERE = {"cli": "acceptance/cli", "testing": "integration/servers"}
LISTED = (TESTS / "quick.txt").read_text().splitlines()


def test_each_package_with_tests_on_servers_has_one_that_stands_in_the_quick_run() -> None:
    packages = [path.parent.name for path in ROOT.glob("leaderq/*/__init__.py")]
    homes = [TESTS / ELSEWHERE.get(package, f"integration/{package}") for package in packages]
    wanted = {str(home.relative_to(ROOT)) for home in homes if home.is_dir()}
    assert sorted(str(Path(line.partition("::")[0]).parent) for line in LISTED) == sorted(wanted)
    assert all(stands(line) for line in LISTED)
