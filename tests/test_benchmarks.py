"""The scripts in benchmarks/ that need something which may be missing say how to get it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent.parent / "benchmarks"


def test_the_peer_script_without_a_peer(tmp_path):
    command = [sys.executable, FOLDER / "llama_cpp_peer.py", "--bin", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert f"llama-server is not in {tmp_path}" in done.stderr
    assert "cmake --build build" in done.stderr
