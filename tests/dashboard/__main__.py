"""Runs three days of a group's life on the local world, and draws the module's dashboard from what the functions counted."""

import sys

from dashboard.picture import PICTURE, draw_a_run
from world.world import World


def main() -> int:
    world = World(print)
    world.start()
    try:
        PICTURE.write_text(draw_a_run(world))
    finally:
        world.stop()
    print(f"wrote {PICTURE}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
