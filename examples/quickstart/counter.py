"""Counts once a second, in one process at a time; each leader counts on from the last one."""

from leaderq import LeaderCareer, Term
from leaderq.zookeeper import SetData

PATH = "/counter"


class Counter(LeaderCareer):
    def inaugurate(self, term: Term) -> None:
        self.session.ensure_path(PATH)
        self.count = int(self.session.get(PATH)[0] or b"0")
        print(
            f"term {term.number}: {term.candidate} leads and goes on from {self.count}", flush=True
        )

    def execute(self, term: Term) -> None:
        term.write([SetData(PATH, str(self.count + 1).encode())])  # refused if another leads
        self.count += 1
        print(f"term {term.number}: {self.count}", flush=True)
        term.wait(1.0)  # wakes early when the term ends

    def handOver(self, term: Term) -> None:  # noqa: N802
        why = term.reason.sentence if term.reason else "its work is done"
        print(f"term {term.number}: handing over at {self.count}, because {why}", flush=True)
