"""The screen of ``leaderq top``: draws rows, and asks before it acts. It decides nothing.

Reading and acting run on Textual's threads, one of each at a time, so the keyboard works while a
server does not answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Input, Static

from leaderq.admin.actions import Action, Deed
from leaderq.admin.careers import career_row
from leaderq.admin.queue_states import queue_row
from leaderq.admin.snapshot import PageSnapshot
from leaderq.admin.text import Row, cut, harmless
from leaderq.cli import top_rows
from leaderq.cli.top_rows import Sort
from leaderq.errors import LeaderqError

_MOST_EVENTS = 3
STYLES = {"bad": "bold #ff9c94", "warn": "#f0c069", "good": "#7fd3bb", "faint": "#a1b0ac", "": ""}
"""The style of each tone. The words say the same without colours. If Textual turns the colours into
greys (``NO_COLOR``), they are still bright enough.
"""


class ConfirmScreen(ModalScreen["tuple[Action, str] | None"]):
    """Shows what is going to happen, and asks for the reason. Enter in the last field returns the
    action and the reason; Escape returns ``None``.
    """

    BINDINGS: ClassVar[list[Any]] = [Binding("escape", "dismiss(None)", "No")]
    CSS = """
    ConfirmScreen { align: center middle; }
    ConfirmScreen > Vertical { width: 58; height: auto; border: solid; padding: 0 1; }
    """

    def __init__(self, action: Action) -> None:
        super().__init__()
        self._action = action

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(Text(harmless(self._action.sentence)))
            if self._action.deed is Deed.TRANSFER:
                yield Input(self._action.detail, id="to", compact=True)
            yield Static("reason (Enter: do it, Escape: do not)")
            yield Input(id="reason", compact=True)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if event.input.id == "to":
            self._action = replace(self._action, detail=event.value.strip())
            self.query_one("#reason").focus()
        else:
            self.dismiss((self._action, event.value.strip()))


class CareerScreen(ModalScreen[None]):
    """One career in full; it is drawn again after each reading."""

    BINDINGS: ClassVar[list[Any]] = [Binding("escape,q,enter", "dismiss(None)", "Back")]
    CSS = "CareerScreen > VerticalScroll { height: 1fr; }"

    def __init__(self, career: str) -> None:
        super().__init__()
        self._career = career

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(id="lines")
        yield Footer()

    def on_mount(self) -> None:
        app = self.app
        if isinstance(app, TopApp):
            self.draw(app.snapshot)

    def draw(self, snapshot: PageSnapshot) -> None:
        """Show what was read last."""
        state = snapshot.career(self._career)
        lines = top_rows.career_lines(state, snapshot.at_ms) if state else ["it is forgotten"]
        self.query_one("#lines", Static).update(Text("\n".join(lines)))


class TopApp(App[None]):
    """The application. ``read(before)`` returns the next snapshot. ``act(action, why)`` does the
    action and returns a sentence, or raises a ``LeaderqError``. Both may wait. ``wanted`` filters
    the careers that are shown.
    """

    TITLE = "leaderq top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #careers { height: 1fr; }
    #queues { height: auto; max-height: 5; }
    #events { height: auto; max-height: 3; }
    #filter { height: 1; display: none; }
    FooterKey .footer-key--key { padding: 0 1 0 0; }
    """
    BINDINGS: ClassVar[list[Any]] = [
        Binding("enter", "show", "Show"),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("s", "sort", "Sort"),
        Binding("p", "ask('PAUSE')", "Pause"),
        Binding("r", "ask('RESUME')", "Resume"),
        Binding("d", "ask('STEP_DOWN')", "Down"),
        Binding("t", "ask('TRANSFER')", "Transfer"),
        Binding("escape", "all", "All", show=False),
        Binding("q", "quit", "Quit"),
    ]

    def __init__(
        self,
        read: Callable[[PageSnapshot], PageSnapshot],
        act: Callable[[Action, str], str],
        *,
        wanted: str = "",
        every_s: float = 2.0,
    ) -> None:
        super().__init__()
        self._read, self._act, self._every_s = read, act, every_s
        self.snapshot = PageSnapshot()
        self.sort = Sort.TROUBLE
        self.wanted = wanted
        self._is_reading = False

    def compose(self) -> ComposeResult:
        yield Static(id="summary")
        yield Input(placeholder="part of a name, a pattern, or held up", id="filter", compact=True)
        yield DataTable(id="careers", cursor_type="row")
        yield DataTable(id="queues", cursor_type="none")
        yield Static(id="events")
        yield Footer()

    def on_mount(self) -> None:
        self.query_one("#careers").focus()
        self.set_interval(self._every_s, self.read_again)
        self.read_again()

    def on_resize(self) -> None:
        self.call_after_refresh(self.draw)

    # ---- reading and drawing ---------------------------------------------------------------------

    def read_again(self) -> None:
        """Begin to read, unless a reading is still under way."""
        if not self._is_reading:
            self._is_reading = True
            self.run_worker(self._read_now, thread=True, group="reading")

    def _read_now(self) -> None:
        found = self._read(self.snapshot)
        self.call_from_thread(self._take, found)

    def _take(self, snapshot: PageSnapshot) -> None:
        self._is_reading, self.snapshot = False, snapshot
        self.draw()

    def draw(self) -> None:
        """Draw the snapshot; the cursor stays on its career."""
        snapshot, base = self.snapshot, self.screen_stack[0]
        found = top_rows.chosen(snapshot, self.wanted, self.sort)
        heading = f"{top_rows.summary(snapshot, len(found))} | by {self.sort.value}"
        width = self.size.width
        base.query_one("#summary", Static).update(Text(cut(heading, width)))
        rows = [career_row(*each, snapshot.at_ms) for each in found]
        table = base.query_one("#careers", DataTable)
        self._fill(table, top_rows.CAREER_COLUMNS, rows, [one.career for _, one in found])
        queues = top_rows.queues_in_order(snapshot.queues)
        rows = [queue_row(one, snapshot.at_ms) for one in queues]
        table = base.query_one("#queues", DataTable)
        table.display = bool(queues)
        self._fill(table, top_rows.QUEUE_COLUMNS, rows, [one.path for one in queues])
        events = [cut(one, width) for one in top_rows.last_events(snapshot, _MOST_EVENTS)]
        base.query_one("#events", Static).update(Text("\n".join(events)))
        if isinstance(self.screen, CareerScreen):
            self.screen.draw(snapshot)

    def _fill(
        self,
        table: DataTable[Any],
        columns: Mapping[str, int],
        rows: Sequence[Row],
        keys: Sequence[str],
    ) -> None:
        under, at = self._under_cursor(table), table.cursor_row
        table.clear(columns=True)
        names, cells = top_rows.fitting(columns, rows, self.size.width - 2)
        table.add_columns(*map(str.upper, names))
        for key, row, texts in zip(keys, rows, cells, strict=True):
            tones = [getattr(row[name], "tone", "") for name in names]
            shown = map(Text, texts, map(STYLES.__getitem__, tones))
            table.add_row(*shown, key=key)
        table.move_cursor(row=keys.index(under) if under in keys else at, scroll=False)

    def _under_cursor(self, table: DataTable[Any]) -> str | None:
        if not 0 <= table.cursor_row < table.row_count:
            return None
        return table.ordered_rows[table.cursor_row].key.value

    @property
    def selected(self) -> str | None:
        """The career under the cursor."""
        return self._under_cursor(self.screen_stack[0].query_one("#careers", DataTable))

    # ---- keys ------------------------------------------------------------------------------------

    def on_data_table_row_selected(self, _event: DataTable.RowSelected) -> None:
        self.action_show()

    def action_show(self) -> None:
        """Show the career under the cursor in full."""
        if self.selected is not None and len(self.screen_stack) == 1:
            self.push_screen(CareerScreen(self.selected))

    def action_sort(self) -> None:
        """Take the next order."""
        self.sort = self.sort.next
        self.draw()

    def action_filter(self) -> None:
        """Ask which careers to show."""
        field = self.query_one("#filter", Input)
        field.display = True
        field.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        if event.input.id == "filter":
            self.wanted = event.value
            self.draw()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        if event.input.id == "filter":
            event.input.display = bool(event.value)
            self.query_one("#careers").focus()

    def action_all(self) -> None:
        """Show all careers again."""
        field = self.query_one("#filter", Input)
        field.value, field.display = "", False
        self.query_one("#careers").focus()

    def action_ask(self, name: str) -> None:
        """Ask for a reason; then do the deed ``name`` to the career under the cursor."""
        state = self.snapshot.career(self.selected or "")
        if state is not None and len(self.screen_stack) == 1:
            deed = Deed[name]
            to = top_rows.may_lead_next(state) if deed is Deed.TRANSFER else ""
            self.push_screen(ConfirmScreen(Action(deed, state.career, to)), self._do)

    def _do(self, asked: tuple[Action, str] | None) -> None:
        if asked is not None:
            self.run_worker(lambda: self._do_now(*asked), thread=True, group="acting")

    def _do_now(self, action: Action, why: str) -> None:
        try:
            said, severity = self._act(action, why), "information"
        except LeaderqError as error:
            said, severity = str(error), "error"
        self.call_from_thread(self._tell, said, severity)

    def _tell(self, said: str, severity: Any) -> None:
        self.notify(harmless(said), severity=severity, markup=False)
        self.read_again()
