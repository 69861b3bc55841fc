"""Write the Python modules and stubs of every ``.proto`` file: ``python protocol/generate.py``.

They are committed, so that no user needs a compiler to install or to run Geminga; run this after a
``.proto`` file or the pinned grpcio-tools or mypy-protobuf changed. A test says when it was
forgotten.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import sysconfig
from pathlib import Path

PROTOCOL_FOLDER = Path(__file__).resolve().parent
PACKAGE = "geminga_protocol"


def generate(folder: Path) -> None:
    """Write all modules below ``folder``, as they stand below this file's own.

    Raises ``CalledProcessError``; the compiler has then said why.
    """
    stubs_plugin = Path(sysconfig.get_path("scripts")) / "protoc-gen-mypy"
    sources = sorted(PROTOCOL_FOLDER.glob(f"{PACKAGE}/**/*.proto"))
    command = [
        *(sys.executable, "-m", "grpc_tools.protoc"),
        f"--proto_path={PROTOCOL_FOLDER}",
        f"--plugin=protoc-gen-mypy={stubs_plugin}",
        f"--python_out={folder}",
        f"--mypy_out=quiet:{folder}",
        *(str(source.relative_to(PROTOCOL_FOLDER)) for source in sources),
    ]
    subprocess.run(command, cwd=PROTOCOL_FOLDER, check=True)  # noqa: S603 - nothing from outside


def main() -> None:
    """Take the folder from the command line; by default this file's own."""
    parser = argparse.ArgumentParser(description="Write the Python modules of the .proto files.")
    parser.add_argument("--out", type=Path, default=PROTOCOL_FOLDER, help="where to write them")
    generate(parser.parse_args().out.resolve())


if __name__ == "__main__":
    main()
