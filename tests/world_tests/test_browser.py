"""The browser sees what a reader would: that is what the report's page is judged by."""

from world.process.browser import look

PAGE = """<!doctype html><title>A page</title><style>body {{ margin: 0; font: 16px sans-serif }}</style><h1>Heading</h1>{}"""


def seen(tmp_path, more, width=400):
    page = tmp_path / "page.html"
    page.write_text(PAGE.format(more))
    return look(page, width)


def test_a_correct_page_has_no_errors(tmp_path):
    found = seen(tmp_path, "<p id=there>A line.</p><a href='#there'>to it</a>")
    assert (found["title"], found["headings"]) == ("A page", ["Heading"])
    for error in ("said", "requests", "overlapping", "sticks_out", "broken_links"):
        assert found[error] == [], error
    assert not found["wider_than_the_screen"]


def test_every_error_of_a_page_is_found(tmp_path):
    across = "<p style='position: absolute; top: 22px'>across it</p>"
    wide = "<p style='white-space: nowrap; margin-top: 9em'>" + "long " * 40 + "</p>"
    found = seen(
        tmp_path, across + wide + "<script>throw Error('boom')</script><img src='file:///nowhere.png'><a href='#nowhere'>lost</a>"
    )
    assert found["overlapping"] == [["Heading", "across it"]]
    assert found["wider_than_the_screen"] and found["sticks_out"] == [("long " * 40).strip()]
    assert any("boom" in each for each in found["said"])
    assert (found["requests"], found["broken_links"]) == (["file:///nowhere.png"], ["#nowhere"])
