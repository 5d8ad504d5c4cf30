"""docs/events.md: its commands, and the first event of a node."""

import json

from docs.pages import Shell, follow_page
from prepare import ROOT

PAGE = ROOT / "docs" / "events.md"


def test_the_commands_of_the_page_show_the_events_of_a_node(world, tmp_path, node):
    def recycle(_: str) -> str:
        assert world.recycle(node).finishes().outcome == "recycled"
        first = next(each for each in world.events.deliveries if each.rule == "node-events")
        assert first.outcome == "delivered"
        return json.dumps(json.loads(first.payload), indent=2)

    follow_page(PAGE, Shell(tmp_path / "here", world.environment()), {"recycle": recycle})
