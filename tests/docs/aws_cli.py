"""An `aws` for a shell of the tests: the AWS CLI, without its start."""

import atexit
import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

from prepare import install_python
from world.process.folders import temporary_folder
from world.process.processes import never_outlives

#: Asks the server for a command, and ends with its exit code. Its message is the sizes of three parts, and then these parts: the
#: folder, the arguments and the environment.
ASKS = """#!{python} -IS
import os, socket, sys
parts = [os.fsencode(os.getcwd())]
parts.append(b"".join(os.fsencode(each) + b"\\0" for each in ["aws", *sys.argv[1:]]))
parts.append(b"".join(name + b"=" + value + b"\\0" for name, value in os.environb.items()))
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    socket.send_fds(server, [b"".join(b"%-16d" % len(part) for part in parts)], [0, 1, 2])
    server.sendall(b"".join(parts))
    code = server.recv(1)
os._exit(code[0] if code else 255)
"""


def installed_python() -> Path:
    """The Python that has the AWS CLI, with its own `aws` beside it."""
    return install_python(Path(__file__).with_name("aws-cli-requirements.txt"), "aws-cli")


@functools.cache
def folder_with_aws() -> Path:
    """A folder with an `aws`, whose server runs until this process ends."""
    folder = temporary_folder("awscli")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    address = folder / "socket"
    server = Path(__file__).with_name("aws_cli_server.py")
    process = subprocess.Popen(
        never_outlives(os.getpid(), [str(installed_python()), str(server), str(address)]),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
    )
    atexit.register(process.kill)
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    aws = folder / "aws"
    aws.write_text(ASKS.format(python=sys.executable, address=str(address)))
    aws.chmod(0o755)
    return folder
