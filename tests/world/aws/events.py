"""EventBridge's default bus and SNS's topics in the world: moto's rules, targets and subscriptions on the virtual clock, and
deliveries that can go wrong.

    events = Events(clock, engine, ACCOUNT, REGION, READING)
    uninstall = events.install()
    events.emit("aws.ec2", "EC2 Spot Instance Interruption Warning", {"instance-id": "i-1"})
    events.lose("*:topic")                                   # the next delivery to a target whose ARN matches is lost
    events.notifications                                     # the messages to SNS topics
    events.run_schedules()                                   # rules with `rate(15 minutes)` run from now on

Rules and targets are those of moto's events backend, patterns are those of `event_patterns`. Targets are state machines
(StartExecution), Lambda functions (asynchronously) and SNS topics; moto handles all others. Delivery is best effort, as with AWS:
a refusal by a target is recorded in `deliveries`, not retried. A rule whose name matches `silent` gets no event. Functions that
subscribe to a topic get its messages in the same way, other subscribers get them from moto. If an invocation finally fails, it
goes to the destination of the function's asynchronous configuration, if that is a queue.

The policies of roles, topics and functions see the keys of a condition that AWS documents. To take a role, EventBridge names the
rule and the account (EventBridge user guide, "Cross-service confused deputy prevention"). The Scheduler names the group of the
schedule, not the schedule (its user guide, "Confused deputy prevention"). SNS names the topic to a function
(Lambda developer guide, "Granting function access to AWS services"). To a topic EventBridge names nothing: "You can't use
Condition blocks in Amazon SNS topic policies" (EventBridge user guide, "Troubleshooting").
"""

from __future__ import annotations

import contextlib
import datetime
import json
import re
import uuid
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from moto.awslambda.models import LambdaBackend
from moto.awslambda.utils import get_backend
from moto.core.exceptions import ServiceException
from moto.events.models import EventsBackend, Rule, events_backends
from moto.sns.models import SNSBackend, Subscription, Topic, sns_backends
from moto.sqs.models import sqs_backends
from werkzeug.exceptions import HTTPException

from world.aws import event_patterns
from world.aws.identity import PARTITION
from world.base.clock import Clock
from world.stepfunctions.engine import Engine
from world.stepfunctions.executions import Execution
from world.stepfunctions.state_errors import ApiError

# Virtual seconds from an event to its targets. AWS docs give about half a second, and no guarantee.
EVENT_LATENCY = 1.0

# AWS docs, "Events from Step Functions": input and output are left out of an event above this size, in bytes.
LARGEST_EVENT_DATA = 248 * 1024

EVENTS = "events.amazonaws.com"
STATUS_CHANGE = "Step Functions Execution Status Change"

# The action for each kind of target, and the parameter that names the target.
_CALLS = {
    "states": ("states:StartExecution", "stateMachineArn"),
    "lambda": ("lambda:InvokeFunction", "FunctionName"),
    "sns": ("sns:Publish", "TopicArn"),
}
_MOTO_PUT = EventsBackend.put_events
_MOTO_SEND = Rule.send_to_targets
_MOTO_PUBLISH = Topic.publish
_MOTO_DELIVER = Subscription.publish


#: The answer to an entry whose source is an AWS service. Only the services themselves put such events on a bus.
RESERVED = {"ErrorCode": "NotAuthorizedForSourceException", "ErrorMessage": "Not authorized for the source."}


def is_reserved(entry: dict[str, Any]) -> bool:
    """EventBridge API reference, PutEventsRequestEntry: a source must not begin with `aws.`."""
    return str(entry.get("Source", "")).startswith("aws.")


@dataclass(frozen=True)
class Emitted:
    """An event that was put on the bus; `moment` in virtual seconds since the start."""

    moment: float
    source: str
    detail_type: str
    detail: dict[str, Any]


@dataclass(frozen=True)
class Delivery:
    """The delivery of an event to one target: `outcome` is delivered, lost, or the target's refusal. `rule` is the topic's or
    schedule's ARN if one of these delivered."""

    moment: float
    rule: str
    target: str
    payload: str
    outcome: str


@dataclass(frozen=True)
class Notification:
    """A message that was published to an SNS topic, as a queue or a function gets it, and as an email."""

    moment: float
    topic: str
    message: str
    subject: str | None = None
    attributes: dict[str, Any] = field(default_factory=dict)
    email: str | None = None


@dataclass
class DeliveryFault:
    """Strikes the `nth` delivery to a target that matches, once. `kind`: lose, repeat, postpone."""

    kind: str
    target: str
    nth: int
    seconds: float = 0.0
    seen: int = 0


class Events:
    """The default event bus of one account and region."""

    def __init__(self, clock: Clock, engine: Engine, account: str, region: str, lock: AbstractContextManager[Any] | None = None):
        self._clock = clock
        self._engine = engine
        self._account, self._region = account, region
        self._lock = lock or contextlib.nullcontext()
        #: Returns the reason why a target's role may not make a call, or None: (its ARN, the action, the call's parameters).
        self.refusal: Callable[[str, str, dict[str, Any]], str | None] = lambda role, action, parameters: None
        #: Returns the reason why a service may not take a role, or None: (the service, the role's ARN, the condition's keys).
        self.trust_refusal: Callable[[str, str, dict[str, str]], str | None] = lambda service, role, context: None
        #: Returns the reason why the policy of a topic or function does not let a service call it, or None.
        self.policy_refusal: Callable[[str, str, str, str, dict[str, str]], str | None] = lambda *_: None
        self.reset()
        engine.listeners.append(self._status_changed)
        engine.on_abandoned.append(self._abandoned)

    def reset(self) -> None:
        """Forgets what was emitted, delivered and published, and every fault."""
        self.latency = EVENT_LATENCY
        self.emitted: list[Emitted] = []
        self.deliveries: list[Delivery] = []
        self.notifications: list[Notification] = []
        self.faults: list[DeliveryFault] = []
        self.silent = ""
        self._ids = 0

    def install(self) -> Callable[[], None]:
        """Lets moto's PutEvents, and every Publish to a topic, arrive here too. The returned function undoes this."""
        events = self
        before = EventsBackend.put_events, Rule.send_to_targets, Topic.publish, Subscription.publish

        def put_events(backend: EventsBackend, entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
            answers = iter(_MOTO_PUT(backend, [entry for entry in entries if not is_reserved(entry)]))
            return [RESERVED if is_reserved(entry) else next(answers) for entry in entries]

        def send_to_targets(rule: Rule, event: dict[str, Any], transform_input: bool = True) -> None:
            events._sent_by_moto(rule, event, transform_input)

        def publish(topic: Topic, message: str, *arguments: Any, **options: Any) -> str:
            events._published(topic, message, *arguments, **options)
            return _MOTO_PUBLISH(topic, message, *arguments, **options)

        def deliver(subscription: Subscription, message: str, message_id: str, **options: Any) -> None:
            if subscription.protocol == "lambda":
                events._deliver_to_function(subscription, message, message_id, options)
            else:
                _MOTO_DELIVER(subscription, message, message_id, **options)

        EventsBackend.put_events = put_events
        Rule.send_to_targets = send_to_targets
        Topic.publish = publish
        Subscription.publish = deliver
        uninstall_patterns = event_patterns.install()

        def uninstall() -> None:
            uninstall_patterns()
            EventsBackend.put_events, Rule.send_to_targets, Topic.publish, Subscription.publish = before

        return uninstall

    # Events

    def emit(self, source: str, detail_type: str, detail: dict[str, Any], resources: list[str] | None = None) -> None:
        """Puts an AWS service's event on the bus, from any thread; its targets get it `latency` virtual seconds later."""
        self.emitted.append(Emitted(self._clock.elapsed(), source, detail_type, detail))
        event = self._event(source, detail_type, detail, resources or [])
        self._clock.after(self.latency, lambda: self._route(event))

    def _event(self, source: str, detail_type: str, detail: dict[str, Any], resources: list[str]) -> dict[str, Any]:
        self._ids += 1
        return {
            "version": "0",
            "id": str(uuid.UUID(int=self._ids, version=4)),
            "detail-type": detail_type,
            "source": source,
            "account": self._account,
            "time": self._time(),
            "region": self._region,
            "resources": list(resources),
            "detail": detail,
        }

    def _time(self) -> str:
        now = datetime.datetime.fromtimestamp(int(self._clock.now()), datetime.UTC)
        return now.strftime("%Y-%m-%dT%H:%M:%SZ")

    def _status_changed(self, execution: Execution) -> None:
        self.emit("aws.states", STATUS_CHANGE, _status_detail(self._engine, execution), [execution.arn])

    # Rules

    def run_schedules(self) -> None:
        """Runs every rule with a rate until a `reset`, the first time after one interval."""
        with self._lock:
            rates = [(rule, interval) for rule in self._rules() if (interval := interval_of(rule)) and rule.state == "ENABLED"]
        for rule, interval in rates:
            self._clock.after(interval, lambda rule=rule, interval=interval: self._tick(rule, interval))

    def _tick(self, rule: Rule, interval: float) -> None:
        self._clock.after(interval, lambda: self._tick(rule, interval))
        event = self._event("aws.events", "Scheduled Event", {}, [rule.arn])
        for target in list(rule.targets):
            self._deliver(rule.name, target, event)

    def _rules(self) -> list[Rule]:
        return list(events_backends[self._account][self._region].event_buses["default"].rules.values())

    def _route(self, event: dict[str, Any]) -> None:
        with self._lock:
            rules = [rule for rule in self._rules() if not fnmatchcase(rule.name, self.silent)]
            matching = [(rule.name, target) for rule in rules if _takes(rule, event) for target in list(rule.targets)]
        for rule_name, target in matching:
            self._deliver(rule_name, target, event)

    def _sent_by_moto(self, rule: Rule, event: dict[str, Any], transform_input: bool) -> None:
        """Delivers an event from moto's own bus (PutEvents): targets of the world after the latency, others by moto."""
        every = rule.targets
        known = [target for target in every if _service(target) in _CALLS]
        if known and _takes(rule, event):
            # No event of EventBridge has moto's ingestion time. Input transformers have a variable of this name.
            shown = {name: value for name, value in event.items() if name != "ingestion-time"} | {"time": self._time()}
            for target in known:
                self._clock.after(self.latency, lambda target=target: self._deliver(rule.name, target, shown))
        rule.targets = [target for target in every if target not in known]
        try:
            _MOTO_SEND(rule, event, transform_input)
        finally:
            rule.targets = every

    # Deliveries

    def lose(self, target: str = "*", nth: int = 1) -> None:
        """The nth delivery to a target whose ARN matches the pattern never arrives."""
        self.faults.append(DeliveryFault("lose", target, nth))

    def repeat(self, target: str = "*", nth: int = 1, seconds: float = 5.0) -> None:
        """The nth delivery arrives, and again `seconds` later."""
        self.faults.append(DeliveryFault("repeat", target, nth, seconds))

    def postpone(self, seconds: float, target: str = "*", nth: int = 1) -> None:
        """The nth delivery arrives `seconds` late."""
        self.faults.append(DeliveryFault("postpone", target, nth, seconds))

    def _deliver(self, rule_name: str, target: dict[str, Any], event: dict[str, Any]) -> None:
        source = f"arn:{PARTITION}:events:{self._region}:{self._account}:rule/{rule_name}"
        self.send(rule_name, target["Arn"], payload_for(target, event), EVENTS, source, target.get("RoleArn"))

    def send(self, sender: str, arn: str, payload: str, service: str, source: str, role: str | None = None) -> None:
        """Delivers a text to a target, or what a fault makes of that. The service takes the target's role, if it has one, for the
        source that a trust policy sees."""

        def hand_over() -> None:
            refusal = self._role_refusal(service, source, role, arn) if role else self._target_refusal(service, source, arn)
            self._note(sender, arn, payload, refusal or self._hand_over(arn, payload))

        fault = self._due_fault(arn)
        if fault is None or fault.kind == "repeat":
            hand_over()
        if fault is not None and fault.kind in ("repeat", "postpone"):
            self._clock.after(fault.seconds, hand_over)
        if fault is not None and fault.kind == "lose":
            self._note(sender, arn, payload, "lost")

    def _role_refusal(self, service: str, source: str, role: str, arn: str) -> str | None:
        """Returns the reason why a service may not take a target's role, or the role not reach the target."""
        refusal = self.trust_refusal(service, role, {"aws:SourceArn": source, "aws:SourceAccount": self._account})
        call = _CALLS.get(arn.split(":")[2])
        return refusal or (self.refusal(role, call[0], {call[1]: arn}) if call else None)

    def _target_refusal(self, service: str, source: str, arn: str) -> str | None:
        """Returns the reason why the policy of a target without a role does not let the service reach it."""
        kind = arn.split(":")[2]
        with self._lock:
            if kind == "sns":
                topic = sns_backends[self._account][self._region].topics.get(arn)
                policy, context = topic and topic.policy, {}
            else:
                function = _function(get_backend(self._account, self._region), arn.split(":")[6]) if kind == "lambda" else None
                policy = json.loads(function.policy.wire_format())["Policy"] if function else None
                context = {"aws:SourceArn": source}
        return self.policy_refusal(service, _CALLS[kind][0], arn, policy, context) if policy else None

    def _due_fault(self, arn: str) -> DeliveryFault | None:
        due = None
        for fault in self.faults:
            if fnmatchcase(arn, fault.target):
                fault.seen += 1
                if fault.seen == fault.nth and due is None:
                    due = fault
        return due

    def _note(self, rule_name: str, arn: str, payload: str, outcome: str) -> None:
        self.deliveries.append(Delivery(self._clock.elapsed(), rule_name, arn, payload, outcome))

    def _hand_over(self, arn: str, payload: str) -> str:
        service = arn.split(":")[2]
        try:
            if service == "states":
                self._engine.start_execution(arn, payload)
            elif service == "lambda":
                self._engine.invoke_async(arn, json.loads(payload))
            elif service == "sns":
                self.publish(arn, payload)
            else:
                return f"a target of this kind is not part of the world: {arn}"
        except (ApiError, ServiceException, HTTPException, ValueError) as error:
            return str(error)
        return "delivered"

    # Topics

    def publish(self, topic: str, message: str, subject: str | None = None) -> None:
        """Publishes as an AWS service does."""
        with self._lock:
            backend: SNSBackend = sns_backends[self._account][self._region]
            backend.publish(message, arn=topic, subject=subject)

    def _deliver_to_function(self, subscription: Subscription, message: str, message_id: str, options: dict[str, Any]) -> None:
        """SNS developer guide, "Fanout to Lambda functions": one record for each delivery."""
        attributes, matcher = options.get("message_attributes"), subscription._filter_policy_matcher
        if matcher is not None and not matcher.matches(attributes, message):
            return
        if options.get("message_structure") == "json":
            message = subscription._parse_message_structure(message, "lambda")
        notification = {
            "Type": "Notification",
            "MessageId": message_id,
            "TopicArn": subscription.topic_arn,
            "Subject": options.get("subject"),
            "Message": message,
            "Timestamp": self._time(),
            "MessageAttributes": attributes or {},
        }
        record = {"EventSource": "aws:sns", "EventVersion": "1.0", "EventSubscriptionArn": subscription.arn, "Sns": notification}
        payload, topic = json.dumps({"Records": [record]}), subscription.topic_arn
        self._clock.after(self.latency, lambda: self.send(topic, subscription.endpoint, payload, "sns.amazonaws.com", topic))

    def _abandoned(self, function_arn: str, payload: Any) -> None:
        """Lambda developer guide, "Capturing records of Lambda asynchronous invocations": the record for a destination."""
        with self._lock:
            backend = get_backend(self._account, self._region)
            destination = _destination(backend, function_arn.split(":")[6])
            if destination is None:
                return
            context = {"functionArn": function_arn, "condition": "RetriesExhausted", "approximateInvokeCount": 3}
            record = {"version": "1.0", "timestamp": self._time(), "requestContext": context, "requestPayload": payload}
            name, role = destination.split(":")[-1], _function(backend, function_arn.split(":")[6]).role
            if self.refusal(role, "sqs:SendMessage", {"QueueName": name}) is None:
                sqs_backends[self._account][self._region].send_message(name, json.dumps(record))

    def _published(
        self, topic: Topic, message: str, subject: str | None = None, message_attributes: Any = None, *_: Any, **options: Any
    ) -> None:
        bodies = {"default": message}
        if options.get("message_structure") == "json":
            bodies = json.loads(message)
        email = bodies.get("email", bodies["default"])
        notification = Notification(self._clock.elapsed(), topic.arn, bodies["default"], subject, message_attributes or {}, email)
        self.notifications.append(notification)


def interval_of(rule: Rule) -> float | None:
    """Seconds between two runs of a rule with a rate; None for any other rule."""
    found = re.fullmatch(r"rate\((\d+) (minute|hour|day)s?\)", rule.scheduled_expression or "")
    return int(found[1]) * {"minute": 60, "hour": 3_600, "day": 86_400}[found[2]] if found else None


def _function(backend: LambdaBackend, name: str) -> Any:
    return next((each for each in backend.list_functions() if each.function_name == name), None)


def _destination(backend: LambdaBackend, function: str) -> str | None:
    """Returns the destination of asynchronous invocations that finally failed."""
    known = _function(backend, function)
    configured = known.event_invoke_config if known else []
    return configured[-1].config.get("DestinationConfig", {}).get("OnFailure", {}).get("Destination") if configured else None


def _service(target: dict[str, Any]) -> str:
    return target["Arn"].split(":")[2]


def _takes(rule: Rule, event: dict[str, Any]) -> bool:
    """A rule without a pattern is a schedule."""
    pattern = rule.event_pattern.get_pattern()
    return rule.state == "ENABLED" and bool(pattern) and event_patterns.matches(pattern, event)


def _status_detail(engine: Engine, execution: Execution) -> dict[str, Any]:
    """AWS docs, "Events from Step Functions": every field is there, null where it does not apply; dates in milliseconds."""
    about = engine.describe(execution.arn)
    detail = {name: about.get(name) for name in _STATUS_FIELDS}
    for name in ("startDate", "stopDate", "redriveDate"):
        detail[name] = round(detail[name] * 1000) if detail[name] is not None else None
    for name in ("input", "output"):
        if detail[name] is not None:
            included = len(detail[name].encode()) <= LARGEST_EVENT_DATA
            detail[f"{name}Details"] = {"included": included}
            detail[name] = detail[name] if included else None
    return detail


_STATUS_FIELDS = (
    "executionArn",
    "stateMachineArn",
    "stateMachineVersionArn",
    "stateMachineAliasArn",
    "name",
    "status",
    "startDate",
    "stopDate",
    "input",
    "inputDetails",
    "output",
    "outputDetails",
    "error",
    "cause",
    "redriveCount",
    "redriveDate",
    "redriveStatus",
    "redriveStatusReason",
)


# The input of a target


def payload_for(target: dict[str, Any], event: dict[str, Any]) -> str:
    """The text for a target: its constant Input, the part at InputPath, the filled InputTransformer, or the whole event."""
    if target.get("Input"):
        return target["Input"]
    if target.get("InputPath"):
        return json.dumps(value_at(event, target["InputPath"]))
    transformer = target.get("InputTransformer")
    if not transformer:
        return json.dumps(event)
    values = {name: value_at(event, path) for name, path in transformer.get("InputPathsMap", {}).items()}
    values["aws.events.event.json"] = event
    values["aws.events.event"] = {name: value for name, value in event.items() if name != "detail"}
    values["aws.events.event.ingestion-time"] = event["time"]
    return fill_template(transformer["InputTemplate"], values)


def value_at(event: dict[str, Any], path: str) -> Any:
    """The value at a JSON path of names and indices ($.detail.responses[0]['instance-id']); None if there is none."""
    value: Any = event
    for name, index, quoted in re.findall(r"\.([^.\[\]]+)|\[(\d+)\]|\['([^']+)'\]", path):
        if index:
            value = value[int(index)] if isinstance(value, list) and int(index) < len(value) else None
        else:
            value = value.get(name or quoted) if isinstance(value, dict) else None
    return value


def fill_template(template: str, values: dict[str, Any]) -> str:
    """AWS docs, "Input transformation": `<name>` outside quotes becomes a JSON value, inside a string its bare text.

    "EventBridge doesn't escape values extracted by Input Path", so a quotation mark inside a string ends that string. A value
    that does not exist leaves nothing, so `{"a": <missing>}` is no JSON and its delivery fails.
    """
    filled: list[str] = []
    quoted = False
    for part in re.findall(r"<[A-Za-z0-9_.\-]+>|\\.|[^\\]", template, re.DOTALL):
        name = part[1:-1] if len(part) > 2 and part.startswith("<") else None
        if name is None or name not in values:
            quoted = quoted != (part == '"')
            filled.append(part)
        else:
            filled.append(_inserted(values[name], quoted))
    return "".join(filled)


def _inserted(value: Any, quoted: bool) -> str:
    if value is None:
        return ""
    if not quoted:
        return json.dumps(value)
    return value if isinstance(value, str) else json.dumps(value).replace('"', "")
