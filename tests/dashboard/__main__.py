"""Runs two days of two groups' life on the local world, and writes the dashboard and the messages."""

import sys

from dashboard.run import live_through, pages
from world.world import World


def main() -> int:
    world = World(print)
    world.start()
    try:
        live_through(world)
        for page, text in pages(world).items():
            page.write_text(text)
            print(f"wrote {page}")
    finally:
        world.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
