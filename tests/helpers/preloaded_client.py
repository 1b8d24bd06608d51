"""The process that a test starts through `preloaded_python`: passes its streams on and returns the program's status."""

import json
import os
import signal
import socket
import sys
from pathlib import Path


def is_open(stream: int) -> bool:
    try:
        os.fstat(stream)
    except OSError:
        return False
    return True


def main() -> int:
    address, *arguments = sys.argv[1:]
    streams = [stream for stream in range(3) if is_open(stream)]
    request = {"arguments": arguments, "cwd": str(Path.cwd()), "environment": dict(os.environ), "streams": streams}
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(address)
    socket.send_fds(connection, [b" "], streams)
    connection.sendall(json.dumps(request).encode() + b"\n")
    for stream in streams:  # only the program may keep the other end of a pipe waiting
        os.close(stream)
    status = int(connection.recv(100))
    if status < 0:
        if -status != signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    return status


if __name__ == "__main__":
    os._exit(main())
