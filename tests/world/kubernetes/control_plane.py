"""A real Kubernetes control plane on 127.0.0.1: etcd, API server, controllers, scheduler, aws-iam-authenticator.

It starts in two to three seconds and needs no privilege. It is deliberately not a cluster. There is no kubelet:
`kubelet.py` runs nodes and pods on the virtual clock. For the same reason every controller that uses a real-time timer is
left out or disabled here, and simulated there.

Controllers and scheduler can be frozen (SIGSTOP) and thawed: `running_cluster.py` lets them act only while it settles the
cluster, so everything that runs between two settlings sees a fixed state.
"""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time
import warnings
from collections.abc import Callable

from world.kubernetes.kube_client import KubeClient
from world.process.folders import temporary_folder
from world.process.pki import Authority, Certificate
from world.process.processes import never_outlives

CONTROLLERS = (
    "serviceaccount-controller",  # makes each namespace's "default" account; pods are refused without it
    "namespace-controller",  # finishes the deletion of a namespace
    "deployment-controller",  # evicted pods come back
    "replicaset-controller",
    "statefulset-controller",
    "daemonset-controller",  # pods that a drain must leave alone
    "job-controller",  # long-running work that a recycle waits for
    "disruption-controller",  # a budget's status; without it every eviction under a budget is refused
    "garbage-collector-controller",  # owner references: deleting a Deployment deletes its pods
    "node-lifecycle-controller",  # taints of nodes that are not ready or cordoned
)
"""The controllers that do not run. Pod garbage collection and eviction by NoExecute taints count real seconds (`kubelet.py` does
both on the virtual clock). No scenario needs endpoints, services, quota, volumes, autoscaling."""

FROZEN_BETWEEN_SETTLES = ("kube-controller-manager", "kube-scheduler")

_START_LIMIT = 180.0
"""Seconds; a start takes 2-3 on two idle cores, and several clones may start at once."""

_POLL = 0.02
"""Seconds between two checks of a component that is starting."""

_START_ATTEMPTS = 3
"""A port that was free a moment ago may be taken by another session's control plane. On a machine with many times more to do than
it has cores, an API server that cannot reach etcd for ten seconds ends."""

_AUTHENTICATOR_HEALTH_PORT = 21363
"""Hard-coded in aws-iam-authenticator, which answers "ok" there on every address of the machine."""

_FRUGAL = {"GOMAXPROCS": "1", "GOGC": "1000"}
"""There are few callers: more threads would mostly search for work, and the garbage of a small heap would be collected all
the time. This saves a quarter of the processor time of API server and etcd, and lets the API server grow to 550 MB."""

_MOST_RESTARTS = 3
"""The number of restarts of a controller or the scheduler in a scenario. The scheduler ends itself by design when it has missed
the end of a pod and finds another pod of the same name on another node ("Scheduler cache is corrupted", UpdatePod in
pkg/scheduler/backend/cache). That happens when it loses its connection while it is frozen. A kubelet starts it again."""

_PATIENT = {"HTTP2_READ_IDLE_TIMEOUT_SECONDS": "0"}
"""Disables health checks of connections (readIdleTimeoutSeconds in apimachinery/pkg/util/net). A component that was frozen for 45
seconds would treat its connections as lost, and would not know the results of its last requests."""


class ControlPlane:
    """One control plane with its data, keys and logs in one temporary folder. Start it from a thread that lives as long as
    it: the kernel kills the components when their parent *thread* ends."""

    def __init__(self, binaries: pathlib.Path, cluster: str, sts_proxy: str, sts_authority_file: str) -> None:
        """`sts_proxy`: URL of the HTTPS proxy that stands in for STS (`sts.py`); `sts_authority_file`: its authority."""
        self._binaries = binaries
        self._cluster = cluster
        self._sts_proxy = sts_proxy
        self._sts_authority_file = sts_authority_file
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._frozen: set[str] = set()
        #: Since the scenario began.
        self.restarts = 0
        self._health_port_holder: socket.socket | None = None
        self._authenticator_port = 0
        self.folder: pathlib.Path
        self.authority: Authority
        self.serving: Certificate
        self.admin: Certificate
        self.api_port = 0
        self.etcd_port = 0
        self.kubeconfig = ""

    # -- start and stop ------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Returns when the API server is ready. If it fails, every process is stopped, and the error quotes the guilty log."""
        for attempt in range(1, _START_ATTEMPTS + 1):
            try:
                self._start_once()
                return
            except ComponentDied:
                self.stop()
                if attempt == _START_ATTEMPTS:
                    raise
            except BaseException:
                self.stop()
                raise

    def stop(self) -> None:
        """Kills all components at once (nothing they hold is worth a farewell) and removes the folder."""
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait()
        self._processes.clear()
        self._frozen.clear()
        if self._health_port_holder:
            self._health_port_holder.close()
            self._health_port_holder = None
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder, ignore_errors=True)

    def _start_once(self) -> None:
        self.folder = temporary_folder("cluster", in_memory=True)
        self.authority = Authority(self.folder / "pki", "world-authority")
        self.serving = self.authority.issue("kube-apiserver", hosts=["127.0.0.1", "localhost", "kubernetes.default.svc"])
        self.admin = self.authority.issue("world-admin", organization="system:masters")
        self.api_port, self.etcd_port, peer_port, self._authenticator_port = free_ports(4)
        self.kubeconfig = self._write_kubeconfig("admin.kubeconfig", f"https://127.0.0.1:{self.api_port}", self.admin)
        self._start_etcd(peer_port)
        self._start_authenticator()
        self._start_api_server()
        self._wait_until("the API server is ready", self._api_server_is_ready)
        # Not earlier, because the controller manager checks an unready API server only once a second.
        self._start_controller_manager()
        self._start_scheduler()

    # -- while it runs -------------------------------------------------------------------------------------------

    def client(self) -> KubeClient:
        """A client with every right, straight to the API server."""
        return KubeClient(self.api_port, self.authority.file, self.admin)

    def freeze(self, *components: str) -> None:
        """Stops components where they are (SIGSTOP); they stand still on return. The signal alone takes effect when one of their
        threads gets a processor, and on a busy machine the others work on for milliseconds until then."""
        stopping = [self._processes[name] for name in components if name not in self._frozen]
        self._frozen.update(components)
        for process in stopping:
            process.send_signal(signal.SIGSTOP)
        for process in stopping:
            if process.poll() is None:
                # The process stays waitable, so that `poll` still gets its end if it has ended instead.
                os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def thaw(self, *components: str) -> None:
        """Lets frozen components go on (SIGCONT)."""
        self._frozen.difference_update(components)
        for name in components:
            self._processes[name].send_signal(signal.SIGCONT)

    def check_alive(self) -> None:
        """Starts a controller manager or a scheduler that ended again, as a kubelet does.

        Raises ComponentDied, with the end of its log, if another component ended, or one of these again and again."""
        for name, process in list(self._processes.items()):
            if process.poll() is None:
                continue
            if name not in FROZEN_BETWEEN_SETTLES or self.restarts == _MOST_RESTARTS:
                raise ComponentDied(f"{name} ended with exit code {process.returncode}:\n{self.log(name)[-2000:]}")
            self.restarts += 1
            warnings.warn(f"{name} ended and is started again: {self.log(name)[-500:]}", stacklevel=2)
            self._frozen.discard(name)
            if name == "kube-scheduler":
                self._start_scheduler()
            else:
                self._start_controller_manager()

    def is_at_work(self) -> bool:
        """Checks whether any component computes, or would if it had a processor: one of its threads can run, or waits for a disk.
        A request between two components keeps one of them at work; a wait for a later time does not."""
        return any(_can_run(thread) for each in self._processes.values() for thread in _threads(each.pid))

    def log(self, component: str) -> str:
        """Returns the output of a component so far."""
        return (self.folder / f"{component}.log").read_text(errors="replace")

    # -- the components ------------------------------------------------------------------------------------------

    def _start_etcd(self, peer_port: int) -> None:
        client_url = f"http://127.0.0.1:{self.etcd_port}"
        peer_url = f"http://127.0.0.1:{peer_port}"
        self._spawn(
            "etcd",
            f"--data-dir={self.folder / 'etcd'}",
            "--unsafe-no-fsync",
            "--log-level=warn",
            f"--listen-client-urls={client_url}",
            f"--advertise-client-urls={client_url}",
            f"--listen-peer-urls={peer_url}",
            f"--initial-advertise-peer-urls={peer_url}",
            f"--initial-cluster=default={peer_url}",
            "--heartbeat-interval=100",
            "--election-timeout=1000",
        )

    def _start_api_server(self) -> None:
        account_key = self.authority.bare_key("service-accounts")
        authenticator_url = f"https://127.0.0.1:{self._authenticator_port}/authenticate"
        webhook = self._write_kubeconfig("webhook.kubeconfig", authenticator_url)
        self._spawn(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{self.etcd_port}",
            # `cluster_state.py` follows the cluster by reading etcd itself, which is only readable as JSON.
            "--storage-media-type=application/json",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self.api_port}",
            f"--tls-cert-file={self.serving.certificate}",
            f"--tls-private-key-file={self.serving.key}",
            f"--client-ca-file={self.authority.file}",
            f"--cert-dir={self.folder / 'pki'}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            f"--authentication-token-webhook-config-file={webhook}",
            # No own cache of tokens, so that a new access entry takes effect at once. (Successes are kept for ten
            # seconds regardless: the API server has a second cache that no flag reaches.)
            "--authentication-token-webhook-cache-ttl=0s",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--endpoint-reconciler-type=none",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={account_key}",
            f"--service-account-signing-key-file={account_key}",
            "--profiling=false",
            # It would share a busy API server between its callers. This one is never busy.
            "--enable-priority-and-fairness=false",
            "--shutdown-delay-duration=0s",
        )

    def _start_authenticator(self) -> None:
        self.access_entries_file.write_text("{}")
        state = self.folder / "authenticator"
        state.mkdir()
        certificate = self.authority.issue("aws-iam-authenticator", hosts=["127.0.0.1"])
        shutil.copy(certificate.certificate, state / "cert.pem")
        shutil.copy(certificate.key, state / "key.pem")
        server = {
            "address": "127.0.0.1",
            "hostname": "127.0.0.1",
            "port": self._authenticator_port,
            "stateDir": str(state),
            "kubeconfigPregenerated": True,
            "backendMode": ["DynamicFile"],
            "dynamicfilepath": str(self.access_entries_file),
        }
        config = state / "config.json"
        config.write_text(json.dumps({"clusterID": self._cluster, "server": server}))
        self._health_port_holder = _hold_health_port()
        self._spawn(
            "aws-iam-authenticator",
            "server",
            f"--config={config}",
            # Or it asks the EC2 metadata service at its start.
            AWS_EC2_METADATA_DISABLED="true",
            AWS_REGION="eu-west-1",
            HTTPS_PROXY=self._sts_proxy,
            SSL_CERT_FILE=self._sts_authority_file,
        )

    @property
    def access_entries_file(self) -> pathlib.Path:
        """The authenticator's mapping of principals to users and groups. Rewrite it in place: the authenticator watches
        the inode, and a rename over the file costs it a second."""
        return self.folder / "access-entries.json"

    def authenticator_client(self) -> KubeClient:
        """A client of the authenticator's own webhook, for asking it what it makes of a token."""
        return KubeClient(self._authenticator_port, self.authority.file)

    def _start_controller_manager(self) -> None:
        self._spawn(
            "kube-controller-manager",
            f"--kubeconfig={self.kubeconfig}",
            "--leader-elect=false",
            "--secure-port=0",
            f"--controllers={','.join(CONTROLLERS)}",
            "--use-service-account-credentials=false",
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
            "--concurrent-deployment-syncs=10",
            "--concurrent-replicaset-syncs=20",
            # Nodes have no heartbeat here: whether one is ready is what the scenario says.
            "--node-monitor-grace-period=100h",
            "--node-startup-grace-period=100h",
            # Taints of a node that stopped being ready follow at once, however many do.
            "--node-monitor-period=100ms",
            "--node-eviction-rate=1000",
            "--secondary-node-eviction-rate=1000",
            "--min-resync-period=12h",
        )

    def _start_scheduler(self) -> None:
        config = self.folder / "scheduler.json"
        connection = {"kubeconfig": self.kubeconfig, "qps": 1000, "burst": 2000}
        config.write_text(
            json.dumps(
                {
                    "apiVersion": "kubescheduler.config.k8s.io/v1",
                    "kind": "KubeSchedulerConfiguration",
                    "leaderElection": {"leaderElect": False},
                    "clientConnection": connection,
                    # Real seconds; the smallest it takes.
                    "podInitialBackoffSeconds": 1,
                    "podMaxBackoffSeconds": 1,
                }
            )
        )
        self._spawn("kube-scheduler", f"--config={config}", "--secure-port=0")

    # -- helpers -------------------------------------------------------------------------------------------------

    def _spawn(self, name: str, *arguments: str, **environment: str) -> None:
        with open(self.folder / f"{name}.log", "ab") as log:
            self._processes[name] = subprocess.Popen(
                never_outlives(os.getpid(), [str(self._binaries / name), *arguments]),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={"PATH": os.environ.get("PATH", ""), "HOME": str(self.folder), **_FRUGAL, **_PATIENT, **environment},
                process_group=0,
            )

    def _wait_until(self, what: str, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _START_LIMIT
        while not holds():
            self.check_alive()
            if time.monotonic() > deadline:
                raise ComponentDied(f"gave up after {_START_LIMIT:.0f} s waiting until {what}")
            time.sleep(_POLL)

    def _api_server_is_ready(self) -> bool:
        try:
            return self.client().call("GET", "/readyz").status == 200
        except OSError:
            return False

    def _write_kubeconfig(self, name: str, server: str, user: Certificate | None = None) -> str:
        credentials = {"client-certificate": user.certificate, "client-key": user.key} if user else {}
        path = self.folder / name
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "current-context": "world",
                    "clusters": [{"name": "world", "cluster": {"server": server, "certificate-authority": self.authority.file}}],
                    "users": [{"name": "world", "user": credentials}],
                    "contexts": [{"name": "world", "context": {"cluster": "world", "user": "world"}}],
                }
            )
        )
        return str(path)


class ComponentDied(RuntimeError):
    """A component ended, or did not start in time."""


def _threads(pid: int) -> list[pathlib.Path]:
    return list(pathlib.Path(f"/proc/{pid}/task").glob("[0-9]*"))


def _can_run(thread: pathlib.Path) -> bool:
    try:
        return (thread / "stat").read_text().rpartition(")")[2].split()[0] in ("R", "D")
    except OSError:
        # It has ended since.
        return False


def free_ports(count: int) -> list[int]:
    holders = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [holder.getsockname()[1] for holder in holders]
    for holder in holders:
        holder.close()
    return ports


def _hold_health_port() -> socket.socket | None:
    """Holds the authenticator's hard-coded port so that it cannot answer on every address of the machine (it carries on
    without). SO_REUSEPORT lets every session on the machine hold it, whichever ends first."""
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        holder.bind(("127.0.0.1", _AUTHENTICATOR_HEALTH_PORT))
        holder.listen()
        return holder
    except OSError:
        # Another process uses the port, so the authenticator cannot use it either.
        holder.close()
        return None
