"""The house of the code is held: layers, circles, sizes (tests/rooms.py lists the rooms and prints the measures)."""

import pytest

from architecture_page import PAGE, with_rooms
from rooms import FOLLOWS_ITS_FIELDS, HELD, LONGEST_FILE, MOST_FIELDS, House, Import, houses, production, structs, used_by

HOUSES = {house.place: house for house in houses()}


@pytest.mark.parametrize("place", HELD)
def test_rooms_import_downwards_only(place):
    assert HOUSES[place].upward() == []


@pytest.mark.parametrize("place", HELD)
def test_no_files_import_each_other_in_a_circle(place):
    assert HOUSES[place].circles() == []


@pytest.mark.parametrize("place", HELD)
def test_every_room_is_listed_and_every_listed_room_is_there(place):
    house = HOUSES[place]
    assert {room for _, room in map(house.layer_of, house.files)} - {"."} == {
        room for rooms in house.layers for room in rooms
    } - {"."}


@pytest.mark.parametrize(("place", "at_least"), [("crates", 150), ("tests/world", 60)])
def test_no_production_file_is_longer_than_one_can_read(place, at_least):
    files = production(place) if place == "crates" else HOUSES[place].files
    lines = {path: text.count("\n") for path, text in files.items()}
    assert len(lines) > at_least
    assert {path: count for path, count in lines.items() if count > LONGEST_FILE[place]} == {}


def test_structs_have_few_fields():
    found = {name: fields for fields, name, _ in structs() if fields > MOST_FIELDS and name not in FOLLOWS_ITS_FIELDS}
    assert found == {}


def test_an_upward_import_is_named_with_both_files():
    low, high = "crates/recycle/src/base/text.rs", "crates/recycle/src/drain/survey.rs"
    house = House("crates/recycle/src", HOUSES["crates/recycle/src"].layers, {low: "", high: ""}, {Import(low, high)})
    assert house.upward() == [f"{low} imports {high}: base is not above drain"]


def test_files_that_import_each_other_are_a_circle():
    one, other = "crates/recycle/src/drain/a.rs", "crates/recycle/src/drain/b.rs"
    both = {Import(one, other), Import(other, one)}
    assert House("crates/recycle/src", [["drain"]], {one: "", other: ""}, both).circles() == [[one, other]]


def test_every_form_of_import_is_found_and_a_link_in_a_comment_is_not_an_import():
    code = """
//! See [`crate::plan::dry_run`].
use crate::base::{
    ids::InstanceId,
    text::{cut_text, fit_names},
};
use super::terms::Terms;
fn look() -> bool { crate::cluster::node::is_ready() } // crate::notify::status
"""
    assert {"::".join(path) for path in used_by(code, ("drain", "survey"))} == {
        "base::ids::InstanceId",
        "base::text::cut_text",
        "base::text::fit_names",
        "drain::terms::Terms",
        "cluster::node::is_ready",
    }


def test_the_picture_of_crates_and_rooms_is_that_of_the_code():
    assert PAGE.read_text() == with_rooms(PAGE.read_text()), "run `make generate`"
