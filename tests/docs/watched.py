"""The shell of pages whose command lines watch executions, or wait for them."""

from concurrent.futures import ThreadPoolExecutor

from cli_page import BINARY
from docs.pages import Shell


class Watched(Shell):
    """A shell in which command lines watch the world: `pace` virtual seconds between two of their updates, for one block."""

    def __init__(self, cli, folder, environment):
        super().__init__(folder, {**cli.settings(), **environment})
        self._cli, self._pace = cli, 0.0
        self.set("PATH", f"{BINARY.parent}:{self.environment()['PATH']}")

    def goes_at(self, seconds):
        self._pace = seconds

    def run(self, script):
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(super().run, script)
            while not running.done():
                self._cli.lets_pass(self._pace, by_others=True)
        self._pace = 0.0
        return running.result()
