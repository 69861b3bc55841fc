"""An instance that knows the channel and no broker: what it does stands in its user config.

It is started as instances are: with the number of its descriptor, and its parent's process id.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading

from geminga_functions.instance.messages import (
    INSTANCE_CHANNEL,
    Expired,
    Failed,
    Lease,
    Start,
    Started,
    StatusAnswer,
    StatusRequest,
    Stop,
    Stopped,
)
from geminga_protocol.functions.functions_pb2 import FunctionDetails
from geminga_runtime.control_codec import MessageReader


def main() -> None:
    channel = socket.socket(fileno=int(sys.argv[1]))
    reader = MessageReader(INSTANCE_CHANNEL)
    does = ""
    lease = 0.0
    while chunk := channel.recv(65536):
        for message in reader.feed(chunk):
            match message:
                case Start():
                    lease = message.lease_until_s
                    does = FunctionDetails.FromString(message.details).userConfig
                    begin(does, channel)
                case Lease(until_s):
                    lease = until_s
                case StatusRequest() if does == "exit when asked":
                    return
                case StatusRequest(request_id):
                    send(channel, StatusAnswer(request_id, f'{{"lease": {lease}}}'))
                case Stop() if does != "ignore stop":
                    send(channel, Stopped())
                    return
                case _:
                    pass


def send(channel: socket.socket, message: object) -> None:
    channel.sendall(INSTANCE_CHANNEL.encode(message))


def begin(does: str, channel: socket.socket) -> None:
    match does:
        case "hang while loading":
            return
        case "fail":
            send(channel, Failed("Traceback: no such thing", is_user_error=True))
            sys.exit(1)
        case _:
            send(channel, Started())
    match does:
        case "exit":
            sys.stdout.write("goodbye\n")
            sys.exit(3)
        case "expire":
            send(channel, Expired())
            os.kill(os.getpid(), signal.SIGKILL)
        case "crash" | "be killed":
            os.kill(os.getpid(), signal.SIGSEGV if does == "crash" else signal.SIGKILL)
        case "fork" | "fork and leave":
            child = subprocess.Popen(["sleep", "600"], start_new_session=does != "fork")
            sys.stdout.write(f"child {child.pid}\n")
        case "print":
            threading.Thread(target=print_on, daemon=True).start()
        case "eat memory":
            threading.Thread(target=eat, args=(channel,), daemon=True).start()
        case "loop":
            while True:
                pass
        case _:
            pass


def print_on() -> None:
    while True:
        sys.stdout.write("x" * 1023 + "\n")


def eat(channel: socket.socket) -> None:
    held = []
    try:
        while True:
            held.append(bytearray(16 * 1024 * 1024))
    except MemoryError:
        count = len(held)
        held.clear()
        send(channel, Failed(f"MemoryError after {count * 16} MiB", is_user_error=True))
        os._exit(1)


if __name__ == "__main__":
    main()
