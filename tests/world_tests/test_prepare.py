"""The parts of another clone's build that a new clone gets."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

import prepare

HASH = "0123456789abcdef"
THIRD_PARTY = {
    f"deps/libserde-{HASH}.rlib",
    f"deps/recycle_tool-{HASH}.d",
    f"build/ring-{HASH}/output",
    f".fingerprint/serde-{HASH}/lib-serde",
}
OWN = {
    f"deps/librecycle-{HASH}.rlib",
    f"deps/check_pods-{HASH}",
    f"deps/contract-{HASH}.d",
    f".fingerprint/check-pods-{HASH}/bin-check-pods",
}


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], set[str]]:
    """Builds in the named clone, and returns the files that existed when Cargo started."""
    monkeypatch.setenv("RECYCLE_EKS_CACHE", str(tmp_path / "cache"))

    def build(clone: str) -> set[str]:
        profile = tmp_path / clone / "debug"
        with prepare.dependencies_of_another_clone(profile):
            found = {str(file.relative_to(profile)) for file in profile.rglob("*") if file.is_file()}
            for file in THIRD_PARTY | OWN:
                (profile / file).parent.mkdir(parents=True, exist_ok=True)
                (profile / file).write_text(clone)
        return found

    return build


def test_a_new_clone_gets_what_another_new_one_has_built_of_others(build):
    assert build("first") == set()
    assert build("second") == THIRD_PARTY
    assert build("second") == THIRD_PARTY | OWN


def test_a_clone_with_new_pins_starts_from_a_build_with_other_pins(build, tmp_path, monkeypatch):
    build("first")
    monkeypatch.setattr(prepare, "fingerprint", lambda *_: "others")
    assert build("second") == THIRD_PARTY
    (kept,) = (tmp_path / "cache").glob("cargo-*")
    assert kept.name.startswith("cargo-others-")


def test_other_programs_in_the_cache_stay_when_a_build_is_kept(build, tmp_path):
    folder, lock = tmp_path / "cache" / "cargo-lambda-3.11-0123456789ab", tmp_path / "cache" / "cargo-lambda.lock"
    folder.mkdir(parents=True)
    lock.touch()
    build("first")
    assert folder.is_dir() and lock.is_file()


def test_the_build_of_another_compiler_is_not_used_and_not_kept(build, tmp_path, monkeypatch):
    build("first")
    (tmp_path / "rustc").write_text("#!/bin/sh\necho another\n")
    (tmp_path / "rustc").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert build("second") == set()
    assert len(list((tmp_path / "cache").glob("cargo-*"))) == 1


def test_a_clone_that_had_built_before_keeps_nothing_for_others(build, tmp_path):
    (tmp_path / "old" / "debug").mkdir(parents=True)
    build("old")
    assert build("new") == set()


def test_a_build_that_fails_keeps_nothing_for_others(build, tmp_path):
    with pytest.raises(RuntimeError), prepare.dependencies_of_another_clone(tmp_path / "first" / "debug"):
        raise RuntimeError
    assert build("second") == set()


def test_the_demo_waits_for_no_linter(monkeypatch, capsys):
    done = []
    for name in ("install_python", "install_iam", "install_linters", "build_lambdas"):
        monkeypatch.setattr(prepare, name, lambda *_, name=name: done.append(name) or Path("python"))
    monkeypatch.setattr(prepare, "control_plane", lambda: contextlib.nullcontext(lambda: done.append("control plane")))
    for arguments, linters in ((), []), (("linters",), ["install_linters"]):
        done.clear()
        monkeypatch.setattr(prepare.sys, "argv", ["prepare.py", *arguments])
        prepare.main()
        assert done == ["install_python", "install_iam", *linters, "build_lambdas", "control plane"]
        assert capsys.readouterr().out == "python\n"


def test_a_new_clone_is_built_as_a_whole_until_cargo_has_built_incrementally(tmp_path, monkeypatch):
    monkeypatch.setenv("CARGO_TARGET_DIR", str(tmp_path))
    monkeypatch.delenv("CARGO_INCREMENTAL", raising=False)
    assert prepare.cargo_environment()["CARGO_INCREMENTAL"] == "0"
    # Cargo makes the folder in each build.
    (tmp_path / "debug" / "incremental").mkdir(parents=True)
    assert prepare.cargo_environment()["CARGO_INCREMENTAL"] == "0"
    (tmp_path / "debug" / "incremental" / "recycle-0123456789abc").mkdir()
    assert "CARGO_INCREMENTAL" not in prepare.cargo_environment()
    monkeypatch.setenv("CARGO_INCREMENTAL", "1")
    assert prepare.cargo_environment()["CARGO_INCREMENTAL"] == "1"
