#!/usr/bin/env python3
"""Installs what the local world needs and builds what it runs; prints the Python to go on with.

    python3 tests/prepare.py            what the demo and scenarios need
    python3 tests/prepare.py linters    what all tests need
    python3 tests/prepare.py tools      only say what is missing on this machine

Everything goes into a cache folder outside the clone (RECYCLE_EKS_CACHE, else ~/.cache/recycle-eks), named by a hash of its
pins, so that clones share it and a second run does nothing. Only the Lambda binaries are built inside the clone (target/).
Standard library only: it runs before anything is installed.
"""

import contextlib
import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import time
import tomllib
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import trim_sdk

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
#: The functions that are steps of a state machine, and all of them.
STEPS = [
    "claim-node",
    "standby-node",
    "taint-node",
    "check-pods",
    "evict-pods",
    "detach-terminate",
    "restore-node",
    "select-nodes",
]
LAMBDAS = [*STEPS, "serve-operator", "start-rotation"]

#: command, arguments for its version, the least version, its source
TOOLS = [
    ("cargo", ["cargo", "--version"], (1, 95), "Rust: https://rustup.rs"),
    ("rustc", ["rustc", "--version"], (1, 95), "Rust: https://rustup.rs"),
    ("go", ["go", "version"], (1, 26), "Go, to build the Kubernetes control plane and the linter of prose: https://go.dev/dl"),
    ("terraform", ["terraform", "version"], (1, 9), "Terraform: https://developer.hashicorp.com/terraform/install"),
    (
        "node",
        ["node", "--version"],
        (20, 0),
        "Node.js, for the state machine's linter and the simulator of IAM: https://nodejs.org",
    ),
    ("npm", ["npm", "--version"], (9, 0), "npm, it comes with Node.js"),
    ("tmux", ["tmux", "-V"], (3, 2), "tmux, the terminal of the demo's pictures and their tests, from your package manager"),
    ("setpriv", ["setpriv", "--version"], (2, 33), "util-linux, from your package manager"),
    ("cc", ["cc", "--version"], (0, 0), "a C compiler: gcc or clang from your package manager"),
]
#: Tools that only `make test` needs.
TEST_TOOLS = [
    ("clippy-driver", ["clippy-driver", "--version"], (0, 0), "Clippy: rustup component add clippy"),
    ("java", ["java", "-version"], (17, 0), "a JDK, for AWS's engine of event patterns: https://adoptium.net"),
    ("mvn", ["mvn", "--version"], (3, 6), "Maven, from your package manager"),
]


def say(text: str) -> None:
    """Progress goes to standard error; standard output has only the result."""
    print(text, file=sys.stderr, flush=True)


def fail(text: str) -> None:
    say(text)
    sys.exit(1)


def cache_folder() -> Path:
    """Returns the folder of all installations outside the clone."""
    if chosen := os.environ.get("RECYCLE_EKS_CACHE"):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "recycle-eks"


def missing_tools(*wanted_names: str) -> list[str]:
    """One sentence for each tool that is absent or too old: of those named, or else of those that every command needs."""
    problems = []
    if sys.version_info < (3, 11):
        problems.append(f"Python 3.11 or newer is needed, this is {sys.version.split()[0]}")
    if not sys.platform.startswith("linux"):
        problems.append(f"Linux is needed, this is {sys.platform}")
    for name, ask, least, source in [*TOOLS, *TEST_TOOLS] if wanted_names else TOOLS:
        if wanted_names and name not in wanted_names:
            continue
        wanted = f"{name} {'.'.join(map(str, least))} or newer" if any(least) else name
        if shutil.which(name) is None:
            problems.append(f"{wanted} is needed and not on the PATH ({source})")
            continue
        environment = {**os.environ, "CHECKPOINT_DISABLE": "1", "TF_CLI_CONFIG_FILE": os.devnull}
        answer = subprocess.run(ask, capture_output=True, text=True, env=environment, check=False)
        if answer.returncode != 0:
            # rustup has commands of components that are not installed.
            problems.append(f"{wanted} is needed and does not run ({source})")
            continue
        found = re.search(r"(\d+)\.(\d+)", answer.stdout + answer.stderr)
        if found and (int(found[1]), int(found[2])) < least:
            problems.append(f"{wanted} is needed, this is {found[0]} ({source})")
    return problems


def run(command: list[str], what: str, **options) -> None:
    """Runs a command; its output is shown only if it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **options)
    if done.returncode != 0:
        fail(f"{done.stdout}\nfailed: {what} (see above)")


@contextlib.contextmanager
def locked(name: str, folder: Path | None = None) -> Iterator[None]:
    """Keeps two parallel runs, from any clone, from making the same thing twice. `folder` is its place, if not in the cache."""
    folder = folder or cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def fingerprint(*files: Path) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


class Steps:
    """Numbered progress lines with the time each step took."""

    def __init__(self, total: int) -> None:
        self.total, self.number = total, 0

    @contextlib.contextmanager
    def step(self, what: str, usually: str) -> Iterator[None]:
        self.number += 1
        say(f"[{self.number}/{self.total}] {what} ({usually})")
        started = time.monotonic()
        yield
        say(f"      done after {time.monotonic() - started:.0f} s")


def install_pins(pip: list[str], pins: Path, *options: str) -> None:
    """Installs the packages of a file of pins, which is complete: no others are installed. Each has to have a pinned hash, and
    none is built here, because that would run code that no hash pins."""
    strictly = ["--no-deps", "--require-hashes", "--only-binary=:all:"]
    # Python compiles a module when it is imported first. Most modules of the AWS packages never are.
    run([*pip, "install", "--quiet", "--no-compile", *strictly, "-r", str(pins), *options], "pip install")


def install_python(pins: Path = TESTS / "requirements.txt", name: str = "python") -> Path:
    """A virtual environment with pinned packages; returns its python."""
    folder = cache_folder() / f"{name}-{sys.version_info.major}.{sys.version_info.minor}-{fingerprint(pins)}"
    python = folder / "bin" / "python"
    with locked(name):
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            run([sys.executable, "-m", "venv", str(folder)], "python3 -m venv (Debian: apt-get install python3-venv)")
            install_pins([str(python), "-m", "pip"], pins)
            (folder / "complete").touch()
    return python


def install_from_npm(name: str, finish: Callable[[Path], None] = lambda folder: None) -> Path:
    """Installs the pins of the lockfile in the named folder, without running code of theirs. Returns the folder of the
    installation, for `finish` to add to."""
    pins = TESTS / name / "package-lock.json"
    folder = cache_folder() / f"{name}-{fingerprint(pins)}"
    with locked(name):
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            for file in ("package.json", "package-lock.json"):
                shutil.copy(TESTS / name / file, folder)
            run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], "npm ci", cwd=folder)
            finish(folder)
            (folder / "complete").touch()
    return folder


def install_linter() -> Path:
    """asl-validator; returns the folder of its commands."""
    return install_from_npm("lint") / "node_modules" / ".bin"


def install_cfn_lint() -> str:
    """The linter of CloudFormation, for its rules of Step Functions; returns its command."""
    return str(install_python(TESTS / "lint" / "requirements.txt", "cfn-lint").parent / "cfn-lint")


def install_shellcheck() -> str:
    """The linter of shell scripts; returns its command."""
    return str(Path(install_cfn_lint()).with_name("shellcheck"))


def install_iam() -> Path:
    """A simulator of IAM policies; returns the folder that `tests/iam/decide.mjs` finds it in."""
    return install_from_npm("iam")


def install_ruler() -> Path:
    """AWS's engine of EventBridge's patterns; returns the folder of its JAR files."""
    pins = TESTS / "ruler" / "pom.xml"
    folder = cache_folder() / f"ruler-{fingerprint(pins)}"
    with locked("ruler"):
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            command = ["mvn", "--quiet", "--batch-mode", "--file", str(pins), "dependency:copy-dependencies"]
            run([*command, f"-DoutputDirectory={folder}"], "mvn dependency:copy-dependencies")
            (folder / "complete").touch()
    return folder


def install_browser() -> Path:
    """A headless Chromium, which its npm package holds itself, and what drives it; returns their folder. It is unpacked into
    `unpacked`, which is its home, too: its fonts are there."""
    return install_from_npm("browser", unpack_browser)


def unpack_browser(folder: Path) -> None:
    home = folder / "unpacked"
    home.mkdir()
    unpack = "import chromium from '@sparticuz/chromium'; await chromium.executablePath()"
    places = {**os.environ, "HOME": str(home), "TMPDIR": str(home)}
    run(["node", "--input-type=module", "--eval", unpack], "unpacking Chromium", cwd=folder, env=places)
    run([str(home / "chromium"), "--version"], f"starting Chromium ({missing_libraries(home / 'chromium')})", env=places)


def missing_libraries(binary: Path) -> str:
    """Returns the libraries that a downloaded binary does not find on this machine."""
    listed = subprocess.run(["ldd", str(binary)], capture_output=True, text=True, check=False).stdout
    missing = [line.split()[0] for line in listed.splitlines() if "not found" in line]
    return (
        f"it misses {', '.join(missing)}; Debian: apt-get install libnss3 libnspr4" if missing else "all its libraries are there"
    )


def build_lambdas() -> Path:
    """Builds functions, command line and what writes the generated pages, for this machine. Zips the functions as Terraform
    uploads them, and returns the zips' folder.

    The whole workspace, as the tests build it: another selection of packages would build dependencies again, with other features.
    """
    with locked("cargo"):
        trim_sdk.trim()
    target = cargo_target()
    command = ["cargo", "build", "--locked", "--workspace", "--bins", "--examples"]
    with dependencies_of_another_clone(target / "debug"):
        done = subprocess.run(command, cwd=ROOT, env=cargo_environment(), stdout=sys.stderr, check=False)
        if done.returncode != 0:
            fail("failed: cargo build (see above)")
    pack({name: target / "debug" / name for name in LAMBDAS}, target / "world" / host_architecture())
    return target / "world"


def cargo_environment() -> dict[str, str]:
    """The environment of all debug builds. If Clippy is installed, it is the compiler, so that functions and tests share one
    build and the lints are part of it. (`cargo clippy` would check all dependencies once more.)

    Builds are not incremental in a new clone, which takes a quarter less time. After the first command of Cargo that a person
    gives, they are: it fills the folder `incremental`, which Cargo makes in any case.
    """
    environment = dict(os.environ)
    if not missing_tools("clippy-driver"):
        environment["RUSTC_WORKSPACE_WRAPPER"] = "clippy-driver"
    if not any((cargo_target() / "debug" / "incremental").glob("*")):
        environment.setdefault("CARGO_INCREMENTAL", "0")
    return environment


def cargo_target() -> Path:
    """Returns Cargo's folder of build results."""
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))


#: The folders of Cargo's build results, below `target/debug`.
BUILT = ["deps", "build", ".fingerprint"]


@contextlib.contextmanager
def dependencies_of_another_clone(profile: Path) -> Iterator[None]:
    """A new clone gets the crates of crates.io that another new clone has built with this compiler: those with the same pins and
    profiles, or else the newest others, most of which can be used. The project's own crates are built in each clone.

    These 260 crates are most of a first build. Cargo decides which of the files it can use, as with
    every file in `target/`.
    """
    compiler = subprocess.run(["rustc", "-vV"], capture_output=True, check=True).stdout
    pins = fingerprint(ROOT / "Cargo.lock", ROOT / "Cargo.toml", trim_sdk.CONFIGURATION)
    with_compiler = hashlib.sha256(compiler).hexdigest()[:12]
    kept = cache_folder() / f"cargo-{pins}-{with_compiler}"
    with locked("cargo"):
        is_new = not profile.exists()
        others = sorted(cache_folder().glob(f"cargo-*-{with_compiler}"), key=lambda folder: folder.stat().st_mtime)
        source = kept if kept.exists() else others[-1] if others else None
        if is_new and source is not None:
            partial = profile.with_name(f"{profile.name}-partial")
            shutil.rmtree(partial, ignore_errors=True)
            shutil.copytree(source, partial)
            partial.rename(profile)
    yield
    with locked("cargo"):
        if is_new and not kept.exists():
            for older in cache_folder().glob("cargo-*"):
                # cargo-lambda has its folder there, too.
                if re.fullmatch(r"cargo-\w+-[0-9a-f]{12}", older.name):
                    shutil.rmtree(older)
            own = re.compile(rf"(lib)?({'|'.join(own_crates())})-[0-9a-f]{{16}}\b.*")
            partial = cache_folder() / f"cargo-partial-{os.getpid()}"
            for part in BUILT:
                shutil.copytree(profile / part, partial / part, ignore=lambda _, names: set(filter(own.fullmatch, names)))
            partial.rename(kept)


def own_crates() -> list[str]:
    """Names of packages, programs and examples as they begin the files that Cargo writes."""
    packages = {tomllib.loads(manifest.read_text())["package"]["name"] for manifest in ROOT.glob("crates/**/Cargo.toml")}
    examples = {example.stem for example in ROOT.glob("crates/**/examples/*.rs")}
    return [spelling for name in packages | examples for spelling in (name, name.replace("-", "_"))]


def pack(binaries: Mapping[str, Path], folder: Path) -> None:
    """A zip for each function, quickly made, and their version, as Terraform takes them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, binary in binaries.items():
        zip_bootstrap(binary, folder / f"{name}.zip")
    (folder / "version.txt").write_text(f"{version()}\n")


def host_architecture() -> str:
    """Lambda's name of this machine's processor."""
    return "arm64" if platform.machine() in ("aarch64", "arm64") else "x86_64"


def version() -> str:
    """The workspace's version: the one of every crate, of the packages and of the Terraform module."""
    found = re.search(r'^version = "(.+)"$', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)
    assert found is not None, "Cargo.toml has no version"
    return found[1]


def zip_bootstrap(binary: Path, archive: Path) -> None:
    """The same binary gives the same bytes. An archive as old as the binary was made of it, and is left alone."""
    made = binary.stat()
    if archive.exists() and archive.stat().st_mtime_ns == made.st_mtime_ns:
        return
    entry = zipfile.ZipInfo("bootstrap", date_time=(1980, 1, 1, 0, 0, 0))
    entry.external_attr = 0o755 << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    temporary = archive.with_suffix(f".{os.getpid()}")
    with zipfile.ZipFile(temporary, "w") as out:
        out.writestr(entry, binary.read_bytes(), compresslevel=1)
    os.utime(temporary, ns=(made.st_atime_ns, made.st_mtime_ns))
    temporary.replace(archive)


def main() -> None:
    if problems := missing_tools():
        fail("Something is missing on this machine:\n" + "\n".join(f"  - {problem}" for problem in problems))
    if sys.argv[1:] == ["tools"]:
        return
    with_linters = sys.argv[1:] == ["linters"]
    steps = Steps(5 if with_linters else 3)
    with control_plane() as built:
        with steps.step("Python packages of the local world", "half a minute the first time"):
            python = install_python()
        with steps.step("Simulator of IAM policies", "3 seconds the first time"):
            install_iam()
        if with_linters:
            install_linters(steps, python)
        with steps.step("Kubernetes control plane and Lambda functions", "about 10 minutes on 2 cores the first time"):
            build_lambdas()
            built()
    print(python)


@contextlib.contextmanager
def control_plane() -> Iterator[Callable[[], None]]:
    """Builds the control plane beside all other steps, which wait for the network, or keep one core busy only. `built` waits."""
    command = [sys.executable, "-m", "world.kubernetes.kube_binaries"]
    process = subprocess.Popen(command, cwd=TESTS, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)

    def built() -> None:
        if process.wait() != 0:
            fail("failed: building the Kubernetes control plane (see above)")

    try:
        yield built
    finally:
        process.terminate()
        process.wait()


def install_linters(steps: Steps, python: Path) -> None:
    """The linters of the tests; the demo and single scenarios need none."""
    with steps.step("Linters of the state machine", "25 seconds the first time"):
        install_linter()
        install_cfn_lint()
    with steps.step("Linters of prose and of workflows, terraform-docs", "three minutes on 2 cores the first time"):
        command = [str(python), "-m", "go_programs"]
        if subprocess.run(command, cwd=TESTS, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL, check=False).returncode:
            fail("failed: building the linters (see above)")


def stoppable(work: Callable[[], None]) -> None:
    """Runs a command; Ctrl-C ends it with one line."""
    try:
        work()
    except KeyboardInterrupt:
        say("stopped; what is finished already is kept")
        sys.exit(130)


if __name__ == "__main__":
    stoppable(main)
