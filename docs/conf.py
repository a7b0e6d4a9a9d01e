"""How ``make docs`` builds the documentation."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.metadata import version as version_of
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "leaderq"
copyright = "2026, the founders of leaderq"
release = version = version_of("leaderq")
extensions = [
    "myst_parser",
    "pictures",
    "settings_table",
    "sphinx.ext.autodoc",
    "sphinx.ext.intersphinx",
    "sphinx_copybutton",
    "verbs_page",
]
html_theme = "furo"
html_title = f"leaderq {release}"
html_favicon = "../leaderq/dashboard/static/icon.svg"
copybutton_prompt_text = "$ "  # of what a terminal shows only what is typed is copied
exclude_patterns = ["_build"]
smartquotes = False  # "--json" is an option, not a dash

# Designs link to files of the repository, which are not pages.
suppress_warnings = ["myst.xref_missing"]
myst_heading_anchors = 3

autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
autodoc_preserve_defaults = True

# What a reader calls stands first; autodoc goes by __all__.
CALLED_FIRST = {
    "coalescing": "QueueCoordinator AsyncQueueCoordinator DistributedQueueCoordinator",
    "dyno": "DynoQueue AsyncDynoQueue Delivery Worker Message DynoDeadLetters QueueSettings",
    "fencing": "SqlFence FencedRows term_header check_response judge_header conditional_put",
    "kafka": "KafkaLeaderCareer AsyncKafkaLeaderCareer Record retry dead_letter skip"
    " DatabaseOffsets OffsetStore",
    "producing": "BufferedProducer Block WhenFull Journal KafkaSink QueueSink CallableSink",
    "queues": "DistributedQueue DistributedPriorityQueue DistributedDelayQueue DistributedIdQueue"
    " SimpleDistributedQueue Item AsyncQueue QueueSharder QueueBuilder",
    "singular": "SingularUpdateQueue",
    "testing": "drive adrive records term tick check_fencing eventually OffsetStoreContract",
    "zookeeper": "connect Session as_session",
}
for package, first in CALLED_FIRST.items():
    module = import_module(f"leaderq.{package}")
    names = dict.fromkeys([*first.split(), *module.__all__])
    missing = [name for name in names if not hasattr(module, name)]
    if missing:
        raise ValueError(f"leaderq.{package} has no {', '.join(missing)}; see CALLED_FIRST")
    # Names of some packages are loaded when first used; autodoc looks at what is there already.
    vars(module).update({name: getattr(module, name) for name in names})
    module.__all__ = list(names)
leaderq = import_module("leaderq")
vars(leaderq).update({name: getattr(leaderq, name) for name in leaderq.__all__})
