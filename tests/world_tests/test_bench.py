"""The evaluation of samples in `bench`. Only `make bench` itself can show that it runs."""

from __future__ import annotations

import pytest

from bench.figures import PAGE, Measure, cell, distance_goal, goal_lines, goals_of, summary, table, with_figures


def measure(recycle_eks, python, name="check"):
    return Measure(name, "ms", recycle_eks, python)


def test_a_summary_is_the_median_and_the_middle_half():
    assert summary([1, 2, 3, 4, 100]) == {"median": 3, "low": 2, "high": 4, "n": 5}
    assert summary([7.5]) == {"median": 7.5, "low": 7.5, "high": 7.5, "n": 1}


@pytest.mark.parametrize(
    ("samples", "unit", "text"),
    [
        ([12.34, 12.34], "ms", "12.3 ms"),
        ([10.04, 12.34, 15.06], "ms", "12.3 ms (11.2–13.7)"),
        ([0.0571], "ms", "0.0571 ms"),
        ([1234.5, 1234.5], "ms", "1,234 ms"),
        ([3883, 3883], "", "3,883"),
        ([100.0, 102.0, 104.0], "ms", "102 ms (101–103)"),
        ([], "ms", "–"),
    ],
)
def test_a_cell_has_three_digits_and_brackets_only_if_samples_differ(samples, unit, text):
    assert cell(samples, unit) == text


def test_the_table_is_markdown_with_aligned_columns():
    polls = Measure("polls", "", [422])
    lines = table([measure([10.0], [450.0]), polls]).splitlines()
    assert lines == [
        "| measure | recycle-eks | plain Python | ratio |",
        "|---------|-------------|--------------|-------|",
        "| check   | 10 ms       | 450 ms       | 45×   |",
        "| polls   | 422         | –            |       |",
    ]


def goals(cpu=(10, 400), memory=(10, 70), size=3_500_000, small=10, large=12.5):
    checks = [(measure([small], [1]), measure([large], [1], "a check with 5,000 pods"))]
    return goals_of(measure([cpu[0]], [cpu[1]]), measure([memory[0]], [memory[1]]), {"a.zip": size, "b.zip": 1}, checks)


def test_goals_are_met_at_their_limits_and_say_by_which_figure():
    assert goal_lines(goals()).splitlines() == [
        "- met: start-up needs at least 40 times less CPU (40 times less)",
        "- met: at least 7 times less memory (7 times less)",
        "- met: no package is larger than 3.5 MB (the largest is a with 3.50 MB)",
        "- met: a check costs the same in a cluster of any size (1.25 times the time of the smallest)",
    ]


@pytest.mark.parametrize(
    ("missed", "number"),
    [({"cpu": (10, 399)}, 0), ({"memory": (10, 69)}, 1), ({"size": 3_500_001}, 2), ({"large": 12.6}, 3)],
)
def test_a_goal_is_missed_just_beyond_its_limit(missed, number):
    assert [goal.is_met for goal in goals(**missed)] == [each != number for each in range(4)]


@pytest.mark.parametrize(("python", "is_met"), [(200.0, True), (199.0, False)])
def test_the_goal_for_distant_calls_compares_the_same_reads(python, is_met):
    far = [measure([100.0], [50.0], "a check, and Python only lists"), measure([100.0], [python], "Python makes the same reads")]
    assert distance_goal(far).is_met == is_met


def test_json_has_all_samples_of_both_sides():
    written = measure([10.0, 20.0, 30.0], [400.0]).to_json()
    assert written["recycle-eks"]["samples"] == [10.0, 20.0, 30.0] and written["recycle-eks"]["median"] == 20
    assert written["python"]["samples"] == [400.0] and written["ratio"] == 20
    assert "python" not in Measure("polls", "", [422]).to_json()


def test_figures_replace_those_of_the_page_and_nothing_else():
    page = PAGE.read_text()
    once = with_figures(page, "\nMedians.\n")
    assert "-->\nMedians.\n<!-- end of figures -->" in once
    before, after = page.partition("<!-- figures")[0], page.partition("end of figures -->")[2]
    assert before and after and once.startswith(before) and once.endswith(after)
    assert with_figures(once, "\nMedians.\n") == once
