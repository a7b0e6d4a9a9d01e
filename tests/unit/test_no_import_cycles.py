"""No module imports itself by a detour; imports for types and inside functions count."""

from __future__ import annotations

import grimp


def cycles(graph: grimp.ImportGraph) -> set[frozenset[str]]:
    """The sets of modules that import each other, directly or not."""
    upstream = {module: graph.find_upstream_modules(module) for module in graph.modules}
    found = set()
    for module, others in upstream.items():
        if back := {other for other in others if module in upstream[other]}:
            found.add(frozenset({module, *back}))
    return found


def test_no_module_imports_itself_by_a_detour() -> None:
    graph = grimp.build_graph("leaderq", exclude_type_checking_imports=False, cache_dir=None)
    assert [sorted(cycle) for cycle in cycles(graph)] == []
