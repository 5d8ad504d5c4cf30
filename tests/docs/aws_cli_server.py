"""Keeps the AWS CLI loaded, for a Python that has `awscli`: each command is a fork of this process.

    python aws_cli_server.py SOCKET

Most of a command's processor time is the loading of the CLI and of its models. The fork has the arguments, the environment, the
folder and the standard streams of the `aws` that asks for it, and runs what the CLI's own `aws` runs.
"""

import io
import os
import signal
import socket
import sys
import threading
from typing import Any

from awscli import clidriver
from awscli.botocore import loaders

#: The services whose models are loaded beforehand: those that pages and printed commands call.
SERVICES = ("autoscaling", "cloudwatch", "ec2", "lambda", "scheduler", "sns", "ssm", "stepfunctions", "sts")


def keep_files() -> None:
    """The models are files. Each is read once, here."""
    kept: dict[str, Any] = {}
    load = loaders.JSONFileLoader.load_file

    def load_once(self: Any, path: str) -> Any:
        if path not in kept:
            kept[path] = load(self, path)
        return kept[path]

    loaders.JSONFileLoader.load_file = load_once
    session = clidriver.create_clidriver().session
    for service in SERVICES:
        session.create_client(service, "us-east-1", aws_access_key_id="none", aws_secret_access_key="none")


def receive(connection: socket.socket) -> tuple[str, list[str], dict[str, str], list[int]]:
    """The folder, the arguments, the environment, and the three standard streams."""
    sizes, streams, _, _ = socket.recv_fds(connection, 48, 3)
    folder, arguments, environment = (
        receive_all(connection, int(sizes[start : start + 16])).decode("utf-8", "surrogateescape") for start in (0, 16, 32)
    )
    pairs = (each.split("=", 1) for each in environment.split("\0")[:-1])
    return folder, arguments.split("\0")[:-1], dict(pairs), streams


def receive_all(connection: socket.socket, size: int) -> bytes:
    """Ends this process if the `aws` that asks has ended."""
    text = b""
    while len(text) < size:
        part = connection.recv(size - len(text))
        if not part:
            os._exit(130)
        text += part
    return text


def run(connection: socket.socket) -> int:
    """Returns the exit code of one command."""
    folder, arguments, environment, streams = receive(connection)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(folder)
    # awscli sets it when it is imported.
    data = os.environ["AWS_DATA_PATH"]
    os.environ.clear()
    os.environ.update(environment, AWS_DATA_PATH=data)
    sys.argv = arguments
    sys.stdin, sys.stdout, sys.stderr = (
        io.TextIOWrapper(open(number, mode, closefd=False), encoding="utf-8", line_buffering=number == 2)
        for number, mode in enumerate(("rb", "wb", "wb"))
    )
    # If the `aws` that asked has ended, as by Ctrl-C, this ends too.
    threading.Thread(target=lambda: connection.recv(1) or os._exit(130), daemon=True).start()
    try:
        # None is a success, as for `sys.exit`.
        return clidriver.main() or 0
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


def main() -> None:
    keep_files()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(sys.argv[1])
        server.listen(16)
        print("ready", flush=True)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        while True:
            connection, _ = server.accept()
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                server.close()
                connection.sendall(bytes([run(connection)]))
                os._exit(0)
            connection.close()


if __name__ == "__main__":
    main()
