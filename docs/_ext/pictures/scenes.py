"""What is explained by boxes and arrows: who stands in line, the life of a term, who ends with
whom, which offset store.
"""

from __future__ import annotations

from pictures.canvas import Canvas


def line() -> Canvas:
    """Candidates in a line, the leader, Kafka, and the fence as a gate."""
    picture = Canvas(
        760,
        300,
        "Three candidates stand in a line in ZooKeeper. The first one leads term 7, reads from "
        "Kafka, and writes its results through the fence. A leader of term 6, frozen and resumed, "
        "is refused at the fence.",
    )
    picture.text(20, 30, "the line, in ZooKeeper", "small quiet")
    picture.box(20, 42, 150, 54, "lead", "candidate a", "first: leads term 7")
    picture.box(20, 112, 150, 54, "", "candidate b", "next: warm, waits")
    picture.box(20, 182, 150, 54, "", "candidate c", "waits")
    picture.arrow((95, 112), (95, 96))
    picture.arrow((95, 182), (95, 166))
    picture.text(20, 262, "each watches the one in front of it;", "small quiet")
    picture.text(20, 278, "b leads milliseconds after a's process dies", "small quiet")

    picture.box(300, 42, 160, 54, "lead", "the leader's work", "inaugurate, execute")
    picture.arrow((170, 69), (300, 69), kind="lead")
    picture.text(235, 61, "elected", "small quiet", "middle")
    picture.box(300, 130, 160, 44, "", "Kafka", "partitions, in order")
    picture.arrow((380, 130), (380, 96))
    picture.text(388, 118, "reads", "small quiet")

    picture.box(300, 208, 160, 54, "bad", "leader of term 6", "frozen, then resumed")

    gate = 570
    picture.line((gate, 30), (gate, 58), kind="line lead")
    picture.line((gate, 80), (gate, 270), kind="line lead")
    picture.text(gate, 20, "the fence: only term 7 passes", "small strong", "middle")
    picture.arrow((460, 69), (636, 69), kind="good")
    picture.text(515, 61, "term 7", "small quiet", "middle")
    picture.line((460, 235), (gate - 12, 235), kind="line bad dashed")
    picture.line((gate - 16, 227), (gate, 243), kind="line bad")
    picture.line((gate - 16, 243), (gate, 227), kind="line bad")
    picture.text(513, 226, "term 6", "small quiet", "middle")
    picture.text(gate + 12, 239, "refused", "small strong")
    picture.box(636, 42, 114, 54, "good", "results", "offset with them")
    picture.text(636, 118, "Kafka, ZooKeeper,", "small quiet")
    picture.text(636, 134, "or your database", "small quiet")
    return picture


def term() -> Canvas:
    """The life of a term, beside that of the next leader."""
    picture = Canvas(
        760,
        250,
        "The life of a term: a candidate claims it, is inaugurated, executes unit after unit, "
        "hands over and releases it. The next candidate claims its term only after the release.",
    )
    top, next_top, lease = 48, 128, 206
    picture.text(12, top + 22, "leader", "strong")
    picture.text(12, next_top + 22, "next", "strong")
    picture.text(12, lease + 14, "lease", "strong")
    stages = [
        (80, 52, "", "claim"),
        (136, 96, "lead", "inaugurate"),
        (236, 74, "lead", "execute"),
        (314, 74, "lead", "execute"),
        (392, 74, "lead", "execute"),
        (470, 84, "lead", "handOver"),
        (558, 62, "", "release"),
    ]
    for x, width, kind, word in stages:
        picture.box(x, top, width, 34, kind, word)
    picture.arrow((448, 22), (448, top))
    picture.text(440, 26, "it should end: step-down, SIGTERM, a failure ...", "small quiet", "end")
    picture.text(80, top + 52, "one multi in ZooKeeper", "small quiet")
    picture.text(236, top + 52, "units of work, one after the other", "small quiet")

    picture.box(80, next_top, 534, 34, "", "waits, prepared: connections open, metadata read")
    picture.box(618, next_top, 134, 34, "lead", "claim, inaugurate")
    picture.arrow((620, top + 17), (685, top + 17), (685, next_top), kind="good")
    picture.text(752, top + 12, "only then", "small quiet", "end")
    picture.line((136, lease + 10), (620, lease + 10), kind="line good")
    for x in range(136, 620, 44):
        picture.line((x, lease + 3), (x, lease + 17), kind="line good")
    picture.text(
        136,
        lease + 36,
        "proven again and again; if proofs stay away, the term ends before another can begin",
        "small quiet",
    )
    return picture


def deaths() -> Canvas:
    """Guardian, worker and what the worker has started; who ends with whom."""
    picture = Canvas(
        760,
        330,
        "The guardian is the parent of the worker, which starts processes of its own and holds "
        "the ZooKeeper session. A killed worker: the guardian kills what it has started and closes "
        "the session, the next leads in milliseconds. A killed guardian: the worker hands over "
        "and leaves. Both killed: the next leads after the session time-out. A frozen worker is "
        "killed before another can lead, if it goes on working.",
    )
    picture.box(20, 20, 130, 46, "", "guardian", "small, waits")
    picture.box(220, 20, 150, 46, "lead", "worker", "your career")
    picture.box(440, 20, 140, 46, "", "its children", "and theirs")
    picture.box(640, 20, 104, 46, "good", "session", "in ZooKeeper")
    picture.arrow((150, 43), (220, 43))
    picture.text(185, 36, "starts", "small quiet", "middle")
    picture.arrow((370, 43), (440, 43))
    picture.text(405, 36, "starts", "small quiet", "middle")
    picture.line((295, 66), (295, 84), (692, 84), kind="line")
    picture.arrow((692, 84), (692, 66))
    picture.text(494, 98, "keeps alive", "small quiet", "middle")
    rows = [
        (
            "worker killed",
            "the guardian kills the children and closes the session",
            "next leads in milliseconds",
            "good",
        ),
        (
            "guardian killed",
            "the worker hands over and leaves, its children with it",
            "next leads after handOver",
            "good",
        ),
        (
            "worker frozen",
            "its children die after its lease; thawed, it begins no unit",
            "next leads after T",
            "lead",
        ),
        (
            "both killed, or host lost",
            "nobody closes the session; its children may live on",
            "next leads after T",
            "bad",
        ),
    ]
    for number, (event, then, result, kind) in enumerate(rows):
        y = 118 + 52 * number
        picture.box(20, y, 186, 40, kind, event)
        picture.text(220, y + 25, then, "small")
        picture.text(752, y + 25, result, "small strong", "end")
        picture.line((214, y + 46), (752, y + 46), kind="rule")
    return picture


def stores() -> Canvas:
    """Which offset store, as a tree."""
    picture = Canvas(
        760,
        250,
        "Where do results go? To a database: external. To Kafka: transaction. To znodes: "
        "zookeeper. To an idempotent service, or results that may count twice: kafka.",
    )
    picture.box(280, 14, 200, 40, "lead", "Where do results go?")
    leaves = [
        (14, "a database", '"external"', "exactly once:", "your transaction", "good"),
        (204, "Kafka topics", '"transaction"', "exactly once, for", "read_committed", "good"),
        (394, "znodes", '"zookeeper"', "exactly once:", "those znodes", "good"),
        (584, "anything else", '"kafka"', "at least once, or", "at most once", ""),
    ]
    for x, where, store, first, second, kind in leaves:
        middle = x + 81
        picture.line((380, 54), (380, 74), (middle, 74), kind="line")
        picture.arrow((middle, 74), (middle, 92))
        picture.text(middle, 110, where, "", "middle")
        picture.arrow((middle, 118), (middle, 136))
        picture.box(x, 136, 162, 92, kind)
        picture.text(middle, 164, store, "code", "middle")
        picture.text(middle, 190, first, "small quiet", "middle")
        picture.text(middle, 207, second, "small quiet", "middle")
    return picture
