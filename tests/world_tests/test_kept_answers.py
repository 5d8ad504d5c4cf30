"""The kept answers to reads: never an answer that moto would not give now."""

import io

from world.aws.kept_answers import KEPT, KeptAnswers
from world.aws.moto_internals import LOCK, READING
from world.aws.server import Answer

READ = "autoscaling:DescribeAutoScalingGroups"


class Moto:
    """Answers with the number of the question."""

    def __init__(self) -> None:
        self.asked = 0
        self._answers = KeptAnswers()

    def _answer(self) -> Answer:
        self.asked += 1
        return Answer(200, [], str(self.asked).encode())

    def ask(self, action: str = READ, body: bytes = b"a", region: str = "eu-west-1") -> int:
        signed = f"AWS4-HMAC-SHA256 Credential=AKID/20270101/{region}/autoscaling/aws4_request, Signature=0"
        environ = {"RAW_URI": "/", "HTTP_AUTHORIZATION": signed}
        return int(self._answers.answer(action, environ, body, self._answer).body)


def test_an_equal_read_is_asked_again_only_after_a_change():
    moto = Moto()
    assert moto.ask() == 1
    with READING:
        assert moto.ask() == 1
    with LOCK:
        assert moto.ask() == 2
    assert moto.ask() == 2


def test_another_request_and_a_read_that_depends_on_the_time_are_asked():
    moto = Moto()
    requests = [(READ, b"a"), (READ, b"b"), (READ, b"a", "eu-west-2"), ("autoscaling:DescribeScalingActivities", b"a")]
    assert [moto.ask(*request) for request in requests * 2] == [1, 2, 3, 4, 1, 2, 3, 5]


def test_in_a_scenario_each_kept_answer_is_the_one_that_moto_gives_now(world, node, job, monkeypatch):
    kept, other = [], []
    answer_of = KeptAnswers.answer

    def compared(self, action, environ, body, ask):
        asked = []
        answer = answer_of(self, action, environ, body, lambda: asked.append(action) or ask())
        if action in KEPT and not asked:
            now = world.aws._ask_moto({**environ, "wsgi.input": io.BytesIO(body)})
            (kept if now == answer else other).append(action)
        return answer

    monkeypatch.setattr(KeptAnswers, "answer", compared)
    world.at("2h", job.finishes)
    assert world.recycle(node, label_selector="app=train").finishes().outcome == "recycled"
    assert other == []
    assert len(kept) > 100
