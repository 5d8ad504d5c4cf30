"""The virtual clock and its scheduler."""

from __future__ import annotations

import threading

import pytest

from world.base.clock import TIMED_OUT, Call, CallStuck, Clock, Deadlock, Killed, LimitReached, ProcessFailed, Timeout


@pytest.fixture
def clock() -> Clock:
    return Clock()


def sleeper(clock: Clock, seconds: float, log: list):
    yield seconds
    log.append(clock.elapsed())


def test_time_moves_only_inside_run_and_only_to_what_is_due(clock):
    log: list[float] = []
    clock.spawn(sleeper(clock, 72_000, log), "sleeper")
    assert clock.elapsed() == 0
    assert clock.run() == 72_000
    assert log == [72_000]


def test_run_with_a_limit_stands_at_the_limit(clock):
    log: list[float] = []
    clock.spawn(sleeper(clock, 100, log), "sleeper")
    assert clock.run(limit=60) == 60
    assert log == []
    assert clock.run(limit=200) == 200
    assert log == [100]


def test_at_counts_from_the_start_and_after_from_now(clock):
    log: list[tuple[str, float]] = []
    clock.run(limit=50)
    clock.at(60, lambda: log.append(("at", clock.elapsed())))
    clock.after(60, lambda: log.append(("after", clock.elapsed())))
    clock.at(10, lambda: log.append(("past", clock.elapsed())))
    clock.run()
    assert log == [("past", 50), ("at", 60), ("after", 110)]


def test_a_cancelled_timer_neither_runs_nor_holds_the_clock(clock):
    timer = clock.at(60, lambda: pytest.fail("cancelled"))
    timer.cancel()
    assert clock.run() == 0


def test_at_one_instant_the_world_comes_before_sleepers_and_both_in_order(clock):
    log: list[str] = []

    def process(name: str):
        yield 10
        log.append(name)

    clock.spawn(process("a"), "a")
    clock.spawn(process("b"), "b")
    clock.run(limit=0)
    clock.at(10, lambda: log.append("first"))
    clock.at(10, lambda: log.append("second"))
    clock.run()
    assert log == ["first", "second", "a", "b"]


def test_until_is_asked_when_nothing_can_run(clock):
    log: list[float] = []
    clock.spawn(sleeper(clock, 10, log), "early")
    clock.spawn(sleeper(clock, 20, log), "late")
    assert clock.run(until=lambda: bool(log)) == 10


def test_a_condition_that_cannot_come_true_is_a_deadlock_that_names_who_waits(clock):
    never = clock.signal("a bus that never comes")

    def waiter():
        yield never

    clock.spawn(waiter(), "passenger")
    with pytest.raises(Deadlock, match=r"passenger \(for a bus that never comes\)"):
        clock.run(until=lambda: False)


def test_a_condition_that_comes_too_late_reaches_the_limit(clock):
    log: list[float] = []
    clock.spawn(sleeper(clock, 100, log), "sleeper")
    with pytest.raises(LimitReached):
        clock.run(until=lambda: bool(log), limit=60)


def test_a_signal_wakes_its_waiters_with_a_value_and_stays_fired(clock):
    signal = clock.signal()
    log: list[tuple[float, object]] = []

    def waiter():
        value = yield signal
        log.append((clock.elapsed(), value))

    clock.spawn(waiter(), "early")
    clock.at(5, lambda: signal.fire("go"))
    clock.at(9, lambda: clock.spawn(waiter(), "late"))
    clock.run()
    assert log == [(5, "go"), (9, "go")]


@pytest.mark.parametrize(("fires_at", "expected"), [(5, (5, "go")), (50, (10, TIMED_OUT))])
def test_a_timeout_bounds_the_wait_for_a_signal(clock, fires_at, expected):
    signal = clock.signal()
    log: list[tuple[float, object]] = []

    def waiter():
        value = yield Timeout(signal, 10)
        log.append((clock.elapsed(), value))
        yield 100

    clock.spawn(waiter(), "waiter")
    clock.at(fires_at, lambda: signal.fire("go"))
    clock.run()
    assert log == [expected]


def test_a_process_ends_with_its_result_and_fires_ended(clock):
    def work():
        yield 3
        return 42

    def parent():
        child = clock.spawn(work(), "child")
        return (yield child.ended)

    process = clock.spawn(parent(), "parent")
    clock.run()
    assert (process.done, process.result) == (True, 42)


def test_an_unhandled_exception_fails_the_run_and_names_the_process(clock):
    def broken():
        yield 7
        raise KeyError("boom")

    clock.spawn(broken(), "broken")
    with pytest.raises(ProcessFailed, match="'broken' failed at 7 s"):
        clock.run()


def test_a_killed_process_unwinds_before_anything_else_runs(clock):
    log: list[str] = []

    def inner():
        try:
            yield 1000
        finally:
            log.append("inner unwound")

    def outer():
        child = clock.spawn(inner(), "inner")
        try:
            yield 1000
        except Exception:
            pytest.fail("Killed is no Exception")
        finally:
            child.kill()
            log.append("outer unwound")

    def other():
        yield 10
        log.append("other")

    process = clock.spawn(outer(), "outer")
    clock.at(10, process.kill)
    clock.spawn(other(), "other")
    clock.run()
    assert log == ["outer unwound", "inner unwound", "other"]
    assert process.done and process.result is None


def test_killed_while_ready_it_takes_no_further_step(clock):
    log: list[str] = []

    def victim():
        yield signal
        log.append("ran on")

    def killer():
        yield signal
        process.kill()

    signal = clock.signal()
    clock.spawn(killer(), "killer")
    process = clock.spawn(victim(), "victim")
    clock.at(5, signal.fire)
    clock.run()
    assert log == [] and process.done


def test_reset_unwinds_every_process_and_starts_a_new_world(clock):
    log: list[str] = []

    def work():
        try:
            yield 1000
        except Killed:
            log.append("unwound")
            raise

    clock.spawn(work(), "work")
    clock.run(limit=10)
    clock.reset("2030-01-01T00:00:00Z")
    assert log == ["unwound"]
    assert clock.elapsed() == 0 and clock.run() == 0


def interleaving(seed: int | None) -> list[tuple[int, int]]:
    clock = Clock(seed=seed)
    log: list[tuple[int, int]] = []

    def work(name: int):
        for step in range(3):
            yield 1
            log.append((name, step))

    for name in range(4):
        clock.spawn(work(name), str(name))
    clock.run()
    return log


def test_a_seed_gives_another_order_that_is_the_same_in_every_run():
    assert interleaving(None) == interleaving(None)
    assert all(interleaving(seed) == interleaving(seed) for seed in range(5))
    assert len({str(interleaving(seed)) for seed in range(8)}) > 1


def test_the_clock_stands_still_and_nothing_runs_while_a_call_is_out(clock):
    log: list[object] = []

    def start(call: Call) -> None:
        threading.Timer(0.05, lambda: (log.append("answering"), call.answer("done"))).start()

    def caller():
        log.append((yield Call(start)))
        log.append(clock.elapsed())

    def other():
        log.append("other")
        yield 0

    clock.spawn(caller(), "caller")
    clock.spawn(other(), "other")
    clock.run()
    assert log == ["answering", "other", "done", 0]


def test_a_failed_call_raises_in_the_process(clock):
    log: list[str] = []

    def caller():
        try:
            yield Call(lambda call: call.fail(ValueError("refused")))
        except ValueError as error:
            log.append(str(error))

    clock.spawn(caller(), "caller")
    clock.run()
    assert log == ["refused"]


def test_a_call_may_borrow_time_in_which_others_run(clock):
    log: list[tuple[str, float]] = []

    def start(call: Call) -> None:
        def work() -> None:
            call.borrow(20)
            log.append(("request", clock.elapsed()))
            call.answer()

        threading.Thread(target=work).start()

    def caller():
        yield Call(start)
        log.append(("answer", clock.elapsed()))

    def other():
        yield 5
        log.append(("other", clock.elapsed()))
        yield 25
        log.append(("other", clock.elapsed()))

    clock.spawn(caller(), "caller")
    clock.spawn(other(), "other")
    clock.run()
    assert log == [("other", 5), ("request", 20), ("answer", 20), ("other", 30)]


def test_threads_of_one_call_share_a_loan(clock):
    done: list[float] = []
    noting = threading.Lock()

    def start(call: Call) -> None:
        def work() -> None:
            call.borrow(10)
            with noting:  # or the other thread may act between reading the clock and recording it
                done.append(clock.elapsed())
                if len(done) == 2:
                    call.answer()

        with clock._changed:  # both threads borrow before the driver can jump
            threads = [threading.Thread(target=work) for _ in range(2)]
            for thread in threads:
                thread.start()

    def caller():
        yield Call(start)

    clock.spawn(caller(), "caller")
    clock.run()
    # A thread may read the clock only after the other's ten seconds.
    assert done in ([10, 10], [10, 20], [20, 20])
    assert clock.elapsed() == done[-1]


def test_the_answer_to_a_killed_process_is_dropped_but_waited_for(clock):
    log: list[str] = []

    def start(call: Call) -> None:
        def work() -> None:
            call.borrow(10)
            log.append("worked on")
            call.answer("too late")

        threading.Thread(target=work).start()

    def caller():
        yield Call(start)
        log.append("never")

    process = clock.spawn(caller(), "caller")
    clock.at(5, process.kill)
    clock.run()
    assert log == ["worked on"] and process.done


def test_a_call_without_an_answer_fails_the_run(clock):
    clock.patience = 0.02

    def caller():
        yield Call(lambda call: None, "a deaf function")

    clock.spawn(caller(), "caller")
    with pytest.raises(CallStuck, match="a deaf function"):
        clock.run()


def test_before_a_jump_the_rest_of_the_world_settles_and_may_add_work(clock):
    log: list[float] = []
    todo = [lambda: clock.at(5, lambda: log.append(clock.elapsed()))]

    def settle() -> None:
        if todo:
            todo.pop()()

    clock.before_jump.append(settle)
    clock.at(10, lambda: log.append(clock.elapsed()))
    clock.run()
    assert log == [5, 10]


def test_every_jump_is_announced(clock):
    jumps: list[float] = []
    clock.on_jump.append(lambda now: jumps.append(now - clock.start))
    clock.at(5, lambda: None)
    clock.at(5, lambda: None)
    clock.run(limit=8)
    assert jumps == [5, 8]


def test_run_does_not_nest(clock):
    clock.at(1, lambda: clock.run())
    with pytest.raises(RuntimeError, match="running already"):
        clock.run()
