"""Where there is no terminal: a line for everything that changes."""

from __future__ import annotations

from demo.watch import Moment, clock_face


class Lines:
    """Tells what changed since it was last asked."""

    def __init__(self) -> None:
        self._told: dict[str, str] = {}

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, moment: Moment) -> None:
        for subject, state in described(moment).items():
            if self._told.get(subject) != state:
                self._told[subject] = state
                print(f"{clock_face(moment.elapsed)}  {subject:<28} {state}", flush=True)


def described(moment: Moment) -> dict[str, str]:
    """Everything by its name."""
    old = next(iter(moment.instances))
    told = {f"{'old instance' if each == old else 'instance'} {each[:10]}…": state for each, state in moment.instances.items()}
    told["old node"] = moment.node
    told |= {f"pod {name}": f"{kind}: {where}" for name, (kind, where) in moment.pods.items()}
    if moment.progress:
        told["recycle-eks/progress"] = moment.progress
    told["execution"] = moment.state
    return told
