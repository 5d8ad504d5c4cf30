"""A real terminal, that of tmux: the screen of a program, the keys and the size of the window.

terminal = Terminal(["recycle-eks", "status"], environment, folder, columns=104, rows=40)
terminal.shows("draining")
terminal.resize(60, 40)
terminal.press("C-c")
assert terminal.ends() == 130
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

#: The screen remains visible after the program has ended.
SETTINGS = """
set -g remain-on-exit on
set -g remain-on-exit-format ""
set -g status off
set -g history-limit 100000
set -g default-terminal tmux-256color
"""
#: Real seconds without a change on the screen until a test fails, and between two checks. Shorter than the timeout of pytest
#: (`timeout` in pytest.ini). A slow machine takes long in total, but still changes the screen.
PATIENCE, GLANCE = 300.0, 0.05
#: Runs the program and writes its exit code to a file. If a program ends at once, tmux 3.3a misses its end in one of ten cases.
#: Ctrl-C reaches the program only.
NOTING = ["sh", "-c", 'trap : INT; code="$1"; shift; "$@"; echo $? >"$code.part"; mv "$code.part" "$code"', "sh"]


class Terminal:
    """One program in a terminal of its own."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], folder: Path, columns: int, rows: int) -> None:
        """`environment` is the whole environment of the program. The terminal's own files are in the folder."""
        settings = folder / "tmux.conf"
        settings.write_text(SETTINGS)
        self._code = folder / "exit-code"
        self._tmux = ["tmux", "-u", "-f", str(settings), "-S", str(folder / "tmux.socket")]
        self._environment = {**environment, "LC_ALL": "C.UTF-8"}
        # The pane is as large as the whole of the window.
        self._ask("new-session", "-d", "-x", str(columns), "-y", str(rows), "--", *NOTING, str(self._code), *command)

    @property
    def text(self) -> str:
        """Returns the text on the screen."""
        return self._ask("capture-pane", "-p")

    @property
    def coloured(self) -> str:
        """The same with the escapes of its colours."""
        return self._ask("capture-pane", "-e", "-p")

    @property
    def written(self) -> str:
        """Returns the same text with the lines above the screen. A wrapped line is one line."""
        return self._ask("capture-pane", "-J", "-p", "-S", "-")

    @property
    def pid(self) -> int:
        """The process that has started the program."""
        return int(self._read("pane_pid"))

    @property
    def is_under_way(self) -> bool:
        """Whether it still runs, or some of its output is not on the screen yet."""
        return not self._code.exists() or self._read("pane_dead") == "0"

    def shows(self, *texts: str) -> str:
        """Waits until the screen has all of these, and answers it."""

        def has_them(screen: str) -> bool:
            missing = any(text not in screen for text in texts)
            assert not missing or self.is_under_way, f"it has ended without showing {texts}:\n{screen}"
            return not missing

        return self._await(has_them, f"it has not shown {texts}")

    def ends(self) -> int:
        """Waits until it has ended, and answers its exit code."""
        self._await(lambda screen: not self.is_under_way, "it does not end")
        return self.code

    def _await(self, holds: Callable[[str], bool], complaint: str) -> str:
        """Reads the screen until the condition holds. Fails with the complaint when the screen no longer changes."""
        before, end = None, 0.0
        while not holds(screen := self.text):
            if screen != before:
                before, end = screen, time.monotonic() + PATIENCE
            assert time.monotonic() < end, f"{complaint}, and nothing has changed for {PATIENCE:g} seconds:\n{screen}"
            time.sleep(GLANCE)
        return screen

    @property
    def code(self) -> int:
        """The exit code of a program that has ended."""
        return int(self._code.read_text())

    def press(self, key: str) -> None:
        """A key as tmux calls it, such as C-c."""
        self._ask("send-keys", key)

    def resize(self, columns: int, rows: int) -> None:
        """Another size of the window."""
        self._ask("resize-window", "-x", str(columns), "-y", str(rows))

    def stop(self) -> None:
        """Closes it, with what still runs in it; a second time, too."""
        subprocess.run([*self._tmux, "kill-server"], env=self._environment, capture_output=True, check=False)

    def _read(self, what: str) -> str:
        return self._ask("display-message", "-p", f"#{{{what}}}").strip()

    def _ask(self, *arguments: str) -> str:
        done = subprocess.run([*self._tmux, *arguments], env=self._environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"tmux {arguments[0]}: {done.stderr}"
        return done.stdout
