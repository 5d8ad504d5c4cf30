"""The command line, as operators and pipelines use it: the real binary, on the local world."""

import contextlib
import http.server
import json
import re
import subprocess
import threading

import pytest

from cli_page import BINARY


@pytest.fixture
def draining(world, node):
    """A node whose drain is waiting for a job, and the job."""
    job = node.job("train", labels={"app": "train"})
    execution = world.recycle(node, label_selector="app=train")
    world.run("20m")
    return execution, job


def test_a_node_is_recycled_and_watched_to_its_end(world, cli, node):
    job = node.job("train", labels={"app": "train"})
    node.deployment("web", replicas=2)
    world.at("40m", job.finishes)

    printed = cli("recycle", node.name, "--label-selector", "app=train", pace=300)

    assert printed.code == 0, printed
    lines = printed.text.splitlines()
    assert lines[0].startswith("started arn:aws:states:eu-west-1:123456789012:execution:recycle-eks-recycle-node:")
    assert any(line.endswith(f"node                     {node.name} ({node.instance_id}) of group workers") for line in lines)
    assert any("pod default/train" in line and line.endswith("awaited") for line in lines)
    assert any("pod default/train" in line and line.endswith("gone") for line in lines)
    assert lines[-1].startswith("recycled: ")
    assert [each.status for each in world.executions()] == ["SUCCEEDED"]
    assert printed.errors == "" and "\x1b" not in printed.text


def test_a_pipeline_reads_documents_and_the_exit_code_reports_a_failed_execution(world, cli, node):
    printed = cli("recycle", node.instance_id, "--output", "json")

    assert printed.code == 0
    end = printed.document
    assert (end["outcome"], end["status"], end["node"], end["exit"]) == ("recycled", "SUCCEEDED", node.name, 0)
    assert {json.loads(line)["execution_arn"] for line in printed.text.splitlines()} == {end["execution_arn"]}

    other = node.group.nodes[0]
    other.job("train", labels={"app": "train"})
    failed = cli("recycle", other.name, "--label-selector", "app=train", "--drain-timeout", "60")
    assert failed.code == 9 and "DrainTimedOut" in failed.text, failed
    refused = cli("recycle", "i-0123456789abcdef0")
    assert refused.code in (0, 8) and world.executions()[-1].status != "RUNNING", refused


def test_with_no_wait_it_returns_at_once_and_ctrl_c_leaves_the_execution_running(world, cli, node):
    job = node.job("train", labels={"app": "train"})
    printed = cli("recycle", node.name, "--label-selector", "app=train", "--no-wait")
    assert printed.code == 0 and f"recycle-eks status --watch {node.instance_id}" in printed.text
    (execution,) = world.executions()

    watching = cli.start("status", "--watch", node.name)
    watching.sees("awaited")
    left = watching.is_interrupted()

    assert left.code == 130
    assert f"{execution.arn} goes on" in left.text
    assert execution.status == "RUNNING"

    # The same while all nodes are watched.
    watching = cli.start("status", "--watch", pace=0)
    watching.sees(node.name)
    left = watching.is_interrupted()

    assert (left.code, execution.status) == (130, "RUNNING")
    assert "stopped watching; running executions go on" in left.text
    job.finishes()
    assert execution.finishes().outcome == "recycled"


def test_the_end_of_a_drain_is_moved_and_then_set_to_now(world, cli, node, draining):
    execution, _ = draining
    # A node without a claim has no drain to move, and nothing to abort.
    unclaimed = node.group.nodes[1]
    for arguments, words in [
        (["finish", unclaimed.name], "has no claim, so there is no drain whose end can be moved"),
        (["extend", unclaimed.name, "--until", "2027-02-01T00:00:00Z"], "has no claim"),
        (["extend", unclaimed.name, "--by", "1h"], "has none yet"),
        (["abort", unclaimed.name], "no execution works on node"),
    ]:
        refused = cli(*arguments, pace=0)
        assert refused.code == 8 and words in refused.errors, refused

    before = cli("status", "--output", "json").document["nodes"][0]["until"]
    assert cli("extend", node.name, "--by", "1d").code == 0
    world.run("30m")
    after = cli("status", "--output", "json").document["nodes"][0]["until"]
    assert (before[8:10], after[8:10]) == ("03", "04")
    assert cli("extend", node.name, "--until", "2027-01-20T00:00:00Z").code == 0
    assert cli("extend", node.name, "--by", "1d").code == 0
    assert node.records["recycle-eks/drain-until"] == "2027-01-21T00:00:00Z"
    cut = cli("extend", node.instance_id, "--until", "2027-02-01T00:00:00Z")
    assert cut.code == 0 and "ends at 2027-01-31 00:0" in cut.text and "30 days after it began" in cut.text, cut
    assert node.records["recycle-eks/drain-until"].startswith("2027-01-31T00:0")

    printed = cli("finish", node.name)
    assert printed.code == 0 and "ends now" in printed.text
    assert execution.finishes().error == "DrainTimedOut"


def test_an_aborted_node_is_restored(world, cli, node):
    """By the name of the node, and another one by the name of its execution."""
    nodes = [node, world.group("others", size=2, minimum=1, maximum=4).nodes[0]]
    executions = []
    for number, each in enumerate(nodes):
        each.job(f"train-{number}", labels={"app": "train"})
        executions.append(world.recycle(each, label_selector="app=train"))
    world.run("20m")
    world.let_sweep()

    for each, execution, aborted in zip(nodes, executions, (node.name, executions[1].arn.rpartition(":")[2]), strict=True):
        printed = cli("abort", "--yes", aborted, pace=60)

        assert printed.code == 0, printed
        assert execution.status == "ABORTED"
        assert printed.text.splitlines()[-1].endswith("restored: it carries no mark of recycle-eks")
        assert not each.unschedulable and not each.has_taint("recycle-eks/draining")
        assert "recycle-eks/claim" not in each.annotations
        assert sorted(each.group.states.values()) == ["InService", "InService"]


def test_abort_warns_of_a_group_without_room_and_status_has_the_commands_for_the_node_that_stays_in_standby(world, cli):
    workers = world.group("workers", size=2, minimum=1, maximum=2)
    node = workers.nodes[0]
    node.job("train", labels={"app": "train"})
    world.recycle(node, label_selector="app=train")
    world.run("20m")
    workers.newest.bare_pod("new")
    room = "warning: group workers has no room for another member (desired capacity 2, maximum 2)"
    command = "aws autoscaling update-auto-scaling-group --auto-scaling-group-name workers --max-size 3"

    aborted = cli("abort", "--all", "--yes", pace=0)
    assert aborted.code == 0 and room in aborted.text and f"To make room first: {command}" in aborted.text, aborted
    world.sweep().finishes()
    assert workers.states[node.instance_id] == "Standby"
    again = cli("restore", "--all", pace=60)
    assert again.code == 4 and f"an operator must act on {node.instance_id}" in again.text, again
    lines = cli("status", node.name, pace=0).text.splitlines()
    assert f"{node.name} ({node.instance_id}) of group workers: manual for" in lines[0] and command in lines, lines
    (row,) = cli("status", "--output", "json", pace=0).document["nodes"]
    assert (row["step"], row["group"]) == ("manual", "workers") and command in row["commands"]
    (problem,) = [each for each in cli("doctor", "-o", "json", pace=0).document["findings"] if each["check"] == "restores"]
    assert problem["level"] == "problem" and node.instance_id in problem["found"]


def test_restore_restores_a_stopped_node_and_refuses_a_claimed_one(world, cli, node, draining):
    execution, _ = draining
    held = cli("restore", node.name)
    assert held.code == 8 and f"recycle-eks abort {node.instance_id}" in held.errors
    nothing = cli("restore", node.group.nodes[1].name)
    assert nothing.code == 8 and "carries no mark of recycle-eks" in nothing.errors

    execution.stop()
    printed = cli("restore", node.name)

    assert printed.code == 0, printed
    assert not node.unschedulable and "recycle-eks/claim" not in node.annotations
    every = cli("restore", "--all")
    assert every.code == 0 and every.text.splitlines()[-1].endswith("there was nothing to restore"), every


def test_groups_are_paused_and_resumed_by_their_tag(world, cli, node):
    def paused():
        answer = world.aws.client("autoscaling").describe_tags(Filters=[{"Name": "key", "Values": ["recycle-eks:paused"]}])
        return {tag["ResourceId"]: tag["Value"] for tag in answer["Tags"]}

    assert cli("pause", "workers").code == 0
    assert paused() == {"workers": "true"}
    assert cli("resume", "--all").code == 0
    assert paused() == {}
    unknown = cli("pause", "others")
    assert unknown.code == 2 and 'GROUP must be a group of cluster world (workers), but is "others"' in unknown.errors


def test_a_plan_says_everything_and_touches_nothing(world, cli, node):
    node.job("train", labels={"app": "train"})
    web = node.deployment("web", replicas=1)
    world.run("5m")

    world.budget(web, max_unavailable=0)

    printed = cli("plan", node.name, "--label-selector", "app=train")

    assert printed.code == 0, printed
    assert [call for call in world.writes() if call.function] == []
    assert re.search(r"^awaited +1 +label_selector matches it +default/train", printed.text, re.MULTILINE), printed.text
    assert re.search(r"^evictable +1 +its budget allows no eviction now +default/web", printed.text, re.MULTILINE), printed.text
    assert "longest wait: up to 2d (drain_timeout), for 2 pods whose end is not known" in printed.text
    assert "blocked: budget default/web allows no eviction now of 1 pod (default/web" in printed.text
    assert "if it fails" not in printed.text

    printed = cli("plan", node.name, "--label-selector", "app=train", "--details")
    rows = {line.split()[0]: line.split()[1:] for line in printed.text.splitlines() if line.startswith("default/")}
    (web_row,) = [row for name, row in rows.items() if name.startswith("default/web")]
    (train,) = [row for name, row in rows.items() if name.startswith("default/train")]
    assert (train, web_row[:2]) == (["awaited", "label_selector", "matches", "it"], ["evictable", "its"])
    assert "if it fails: with an empty replacement: back in service, the group has 2 as before" in printed.text


#: Arguments, and the words of the refusal.
BAD = [
    (["recycle", "i-0123456789abcdef0", "--evict", "every"], "invalid value 'every' for '--evict <WHAT>'"),
    (
        ["recycle", "i-0123456789abcdef0", "--drain-timeout", "5"],
        'must be a duration from 60s to 30d, such as 20h, 10d or a number of seconds, but is "5"',
    ),
    (["recycle", "nowhere"], 'there is no instance and no node "nowhere" in cluster world'),
    (
        ["recycle", "i-0123456789abcdef0", "--name", "other"],
        'there is no installation "other" in account 123456789012, region eu-west-1',
    ),
    (
        ["recycle", "i-0123456789abcdef0", "--cluster", "other"],
        'no installation for the cluster "other" in account 123456789012, region eu-west-1 (there: recycle-eks of cluster world)',
    ),
    (["status", "--name", "recycle-eks", "--cluster", "other"], '--cluster must be "world"'),
    (["status", "--region", "eu west"], '--region must be a region such as eu-west-1, but is "eu west"'),
    (["rotate"], "the selection needs one of --launch-template"),
    (["extend", "i-0123456789abcdef0"], "--until <TIME>|--by <DURATION>"),
    (
        ["extend", "i-0123456789abcdef0", "--by", "soon"],
        "'--by <DURATION>': must be a duration of at least 1s, such as 20h, 10d or a number of seconds",
    ),
    (["finish", "i-0123456789abcdef0"], "there is no instance and no node"),
    (["rotate", "--all", "--group", "others"], '--group must be a group of cluster world (workers), but is "others"'),
    (["plan", "--all", "--group", "others"], '--group must be a group of cluster world (workers), but is "others"'),
    (["rotate", "--all", "--node-labels", "a=b,"], "must be a Kubernetes label selector"),
    (["rotate", "--instance", "ip-1.ec2.internal"], "must be an instance id"),
    (["abort", "arn:aws:states:eu-west-1:123456789012:execution:recycle-eks-recycle-node:no"], "there is no execution"),
]


def test_bad_arguments_are_refused_in_one_sentence_before_anything_is_touched(world, cli, node):
    world.forget_calls()
    for arguments, words in BAD:
        printed = cli(*arguments)
        assert printed.code == 2 and words in printed.errors, (arguments, printed)
        assert printed.text == "", (arguments, printed)
        assert world.writes() == [], arguments


def test_missing_credentials_and_a_missing_region_are_reported_with_a_remedy(cli, node, tmp_path):
    printed = cli("status", AWS_ACCESS_KEY_ID=None, AWS_SECRET_ACCESS_KEY=None)
    assert printed.code == 1 and "there are no AWS credentials" in printed.errors, printed
    nowhere = cli("status", AWS_REGION=None, AWS_DEFAULT_REGION=None)
    assert nowhere.code == 2 and "there is no region: use --region" in nowhere.errors, nowhere

    # A profile that is written counts more than credentials in the environment.
    config = tmp_path / "config"
    config.write_text("[profile other]\nregion = eu-west-1\naws_access_key_id = other\naws_secret_access_key = other\n")
    elsewhere = cli("status", "--profile", "nowhere", AWS_CONFIG_FILE=str(config))
    assert elsewhere.code == 2 and 'there is no profile "nowhere": check --profile or AWS_PROFILE' in elsewhere.errors, elsewhere
    assert elsewhere.errors.endswith("have other\n"), elsewhere
    known = cli("status", "--profile", "other", AWS_CONFIG_FILE=str(config))
    assert known.code == 0, known


def test_each_error_of_access_says_what_is_wrong_and_what_to_type(world, cli):
    key = world.iam.user("expired", world.deployment.outputs["operator_policy_json"])
    identity = "sts:GetCallerIdentity"
    for code, words in (
        ("ExpiredToken", "the AWS credentials have expired: log in as for the AWS CLI"),
        ("InvalidClientTokenId", "AWS does not accept the credentials: log in as for the AWS CLI"),
    ):
        world.faults.refuse(identity, code=code, message="no", status=403, times=None)
        refused = cli("status", AWS_ACCESS_KEY_ID=key[0], AWS_SECRET_ACCESS_KEY=key[1])
        world.faults.clear()
        assert refused.code == 1 and words in refused.errors, refused

    nothing = cli("status", AWS_ENDPOINT_URL="http://127.0.0.1:9")
    words = "the endpoint http://127.0.0.1:9 does not answer: check AWS_ENDPOINT_URL, HTTPS_PROXY and the network"
    assert nothing.code == 1 and words in nothing.errors, nothing
    with page_server() as endpoint:
        page = cli("status", AWS_ENDPOINT_URL=endpoint)
    assert page.code == 1 and f"the answer of the endpoint {endpoint} is not one of AWS: check AWS_ENDPOINT_URL" in page.errors, (
        page
    )


@contextlib.contextmanager
def page_server():
    """A server whose every answer is a page of HTML, as a proxy's."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            body = b"<html>Sign in</html>"
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_arguments):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_the_cluster_or_the_kube_context_chooses_the_installation(world, cli, tmp_path):
    """A second installation is only a state machine and its logs: its functions are missing, and the error names them."""
    states, logs = world.aws.client("stepfunctions"), world.aws.client("logs")
    first = states.describe_state_machine(stateMachineArn=world.deployment.outputs["rotate_state_machine_arn"])
    definition = first["definition"].replace('"world"', '"second"')
    created = states.create_state_machine(name="blue-rotate-nodes", definition=definition, roleArn=first["roleArn"])
    logs.create_log_group(logGroupName="/aws/vendedlogs/states/blue-rotate-nodes")
    config = tmp_path / "kubeconfig"
    try:
        root = world.environment()
        for cluster, words in (
            ("world", None),
            ("second", "there is no function blue-serve-operator"),
            ("third", 'is of the cluster "third", which has no installation in account'),
        ):
            arn = f"arn:aws:eks:eu-west-1:123456789012:cluster/{cluster}"
            context = {"name": "here", "context": {"cluster": arn, "user": "me"}}
            config.write_text(json.dumps({"current-context": "here", "contexts": [context]}))
            context = cli("status", **{**root, "KUBECONFIG": str(config)})
            named = cli("status", "--cluster", cluster, **{**root, "RECYCLE_EKS_CLUSTER": "fourth"})
            set_by_variable = cli("status", **{**root, "RECYCLE_EKS_CLUSTER": cluster})
            if words is None:
                assert (context.code, named.code, set_by_variable.code) == (0, 0, 0), (context, named, set_by_variable)
            else:
                assert context.code == 2 and words in context.errors, context
                assert (named.code, set_by_variable.code) == (2, 2) and named.errors == set_by_variable.errors, named
                assert cluster == "third" or words in named.errors, named
        assert "(there: blue of cluster second, recycle-eks of cluster world)" in context.errors
        # An operator who may read only one installation is shown this one.
        own = cli("status", KUBECONFIG=str(config))
        assert own.code == 2 and "(there: recycle-eks of cluster world)" in own.errors, own
        assert cli("status", "--name", "recycle-eks", KUBECONFIG=str(config)).code == 0
    finally:
        states.delete_state_machine(stateMachineArn=created["stateMachineArn"])
        logs.delete_log_group(logGroupName="/aws/vendedlogs/states/blue-rotate-nodes")


def test_help_is_a_command_and_the_usual_flags_are_short(cli, node):
    assert cli("help", "rotate", pace=0).text.startswith("Recycle the nodes of a selection")
    assert cli("help", pace=0).code == 0
    typo = cli("statsu", pace=0)
    assert typo.code == 2 and "a similar subcommand exists: 'status'" in typo.errors, typo
    printed = cli("plan", node.name, "-l", "app=train", "-n", "default", "-o", "json")
    assert printed.code == 0 and printed.document["outcome"] == "planned", printed


def test_a_closed_pipe_ends_it_quietly():
    completions = f"{BINARY} completions bash | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", completions], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("_recycle") and done.stderr == "", done


def test_a_watch_that_ends_before_its_execution_is_no_success(world, cli, node):
    # Ctrl-C before the first check names the started execution.
    node.job("train", labels={"app": "train"})
    watching = cli.start("recycle", node.name, "--label-selector", "app=train", pace=0)
    watching.sees("started arn:")
    left = watching.is_interrupted()
    (execution,) = world.executions()
    assert left.code == 130 and f"{execution.arn} goes on" in left.text
    assert f"status --watch {node.instance_id}" in left.text or f"status --watch {execution.arn}" in left.text

    # A closed pipe during a watch.
    other = world.group("others", size=2, minimum=1, maximum=4).nodes[0]
    other.job("other", labels={"app": "train"})
    watching = cli.in_a_shell(f"recycle-eks recycle {other.name} --label-selector app=train | head -1", pace=0)
    watching.sees("started arn:")
    # Its other lines come once head has gone.
    printed = watching.ends(pace=60)
    assert (printed.code, printed.errors) == (130, "") and printed.text.startswith("started arn:"), printed
    assert [execution.status for execution in world.executions()] == ["RUNNING"] * 2


def test_status_shows_the_wait_reason_of_a_rotation_and_its_begin(world, cli):
    workers = world.group("workers", size=3, minimum=1, maximum=6)
    # The watch of a node without an execution ends at once.
    quiet = cli("status", "--watch", workers.nodes[0].name, pace=0)
    assert quiet.code == 0 and quiet.text.splitlines()[-1] == f"{workers.nodes[0].name} carries no mark of recycle-eks", quiet
    assert cli("pause", "workers").code == 0
    rotation = world.rotate({"outdated": {"all": True}}, at_once=1)
    world.run("10m")

    printed = cli("status")
    assert printed.code == 0 and "\n  0 of 3 done\n" in printed.text, printed
    assert f"rotation {rotation.arn}: 3 nodes to recycle, in 1 of 1 group\n" in printed.text
    (line,) = [line for line in printed.text.splitlines() if line.startswith("  group workers: ")]
    assert (
        " waits since 2027-01-01 00:0" in line
        and ": group workers has the tag recycle-eks:paused (next check 2027-01-01 00:" in line
    )
    (group,) = cli("status", "--output", "json").document["rotations"][0]["groups"]
    assert [wait["instance_id"] for wait in group["waits"]] == [min(workers.instances)]

    assert cli("resume", "workers").code == 0
    for _ in range(30):
        (group,) = cli("status", "--output", "json").document["rotations"][0]["groups"]
        if group["done"]:
            break
        world.run("1m")
    assert 0 < group["done"] < 3, group
    watched = cli("status", "--watch", rotation.arn, pace=300)
    assert watched.code == 0 and "rotated: 3 recycled" in watched.text, watched
    assert rotation.finishes().outcome == "rotated"


def test_a_plan_of_a_rotation_names_the_criterion_of_each_node_and_the_rotation_reports_each_group(world, cli):
    workers = world.group("workers", size=2, minimum=1, maximum=4)
    workers.gets_a_new_template()

    first = workers.nodes[0]
    budget = world.kubernetes.budget("web", first.deployment("web", replicas=1), max_unavailable=0)
    group_tag = {"ResourceId": "workers", "ResourceType": "auto-scaling-group", "PropagateAtLaunch": False}
    tags = [
        {"Key": "kubernetes.io/cluster/world", "Value": "owned"},
        {"Key": "aws-node-termination-handler/managed", "Value": ""},
    ]
    world.aws.client("autoscaling").create_or_update_tags(Tags=[{**group_tag, **tag} for tag in tags])
    printed = cli("plan", "--launch-template", "--all")
    assert printed.code == 0, printed
    rows = {line.split()[1]: line for line in printed.text.splitlines() if line.startswith("workers ")}
    assert sorted(rows) == sorted(node.name for node in workers.nodes)
    assert all(re.search(r"  all, launch_template  ", row) for row in rows.values()), rows
    assert re.search(r"  1 evictable +2d +budget default/web allows no eviction now of 1 pod", rows[first.name]), rows
    assert printed.text.count("if it fails") == 0
    assert "note on 2 nodes: group workers does not set the tag kubernetes.io/cluster/world" in printed.text
    assert "note on 2 nodes: group workers has the tag aws-node-termination-handler/managed" in printed.text
    second = workers.nodes[1]
    world.aws.client("ec2").delete_tags(Resources=[second.instance_id], Tags=[{"Key": "kubernetes.io/cluster/world"}])
    refused = cli("plan", "--instance", second.instance_id)
    assert refused.code == 8 and "PreflightRefused: missing_cluster_tag: " in refused.text, refused
    world.aws.client("ec2").create_tags(Resources=[second.instance_id], Tags=[tags[0]])
    printed = cli("plan", "--launch-template", "--all", "--details")
    assert printed.text.count("if it fails: with an empty replacement: ") == 2
    nodes = cli("plan", "--launch-template", "--output", "json").document["nodes"]
    assert [(each["group"], each["criteria"]) for each in nodes] == [("workers", ["launch_template"])] * 2

    # A rotation of all nodes asks. Without a terminal it names the command that does not ask.
    printed = cli("rotate", "--all", "--at-once", "25%")
    assert (printed.code, printed.text) == (8, ""), printed
    assert "--all recycles 2 instances of cluster world (workers: 2)." in printed.errors
    assert printed.errors.endswith("run: recycle-eks rotate --all --at-once '25%' --yes\n"), printed.errors
    assert [each for each in world.executions("rotate-nodes") if each.status == "RUNNING"] == []

    # A rotation that starts nothing reports its group, and remaining nodes are no success.
    printed = cli("rotate", "--all", "--yes", "--start-no-new-node-after", "2026-12-31T00:00:00Z")
    assert printed.code == 3, printed
    assert "in account 123456789012, region eu-west-1, cluster world" in printed.text
    *_while_it_ran, line = [line for line in printed.text.splitlines() if "group workers" in line]
    assert "0 recycled, 2 skipped: " in line
    assert "rotated: 0 recycled, 0 failed, 2 skipped" in printed.text
    assert len(workers.nodes) == 2

    budget.deleted()
    world.aws.client("autoscaling").create_or_update_tags(Tags=[{**group_tag, **tags[0], "PropagateAtLaunch": True}])
    printed = cli("rotate", "--no-wait", *(word for node in workers.nodes for word in ("--instance", node.instance_id)))
    assert printed.code == 0, printed
    assert "rotate-nodes" in printed.text.splitlines()[0]
