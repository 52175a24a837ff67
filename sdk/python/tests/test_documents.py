"""The README's examples and the programs in examples/python print what the documents say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tidewheel.testing import Server

ROOT = Path(__file__).resolve().parents[3]
README = (ROOT / "sdk/python/README.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", README, re.DOTALL)
PROGRAMS = re.findall(r"```text\n\$ python (\S+)\n(.*?)```", (ROOT / "docs/python.md").read_text(), re.DOTALL)


def run(server: Server, tenant: str, *command: str) -> str:
    environment = {**os.environ, "TIDEWHEEL_URL": server.url, "TIDEWHEEL_TENANT": tenant}
    ran = subprocess.run(
        [sys.executable, *command], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    return ran.stdout


def test_there_are_examples() -> None:
    assert len(EXAMPLES) == README.count("```python\n") == 5
    assert len(PROGRAMS) == 2


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_of_the_readme(server: Server, number: int) -> None:
    program, output = EXAMPLES[number]
    assert run(server, f"readme-{number}", "-c", program) == output


@pytest.mark.parametrize(("path", "output"), PROGRAMS)
def test_a_program(server: Server, path: str, output: str, tmp_path: Path) -> None:
    arguments = [str(tmp_path)] if "email" in path else []
    printed = run(server, f"program-{Path(path).stem}", str(ROOT / path), *arguments)
    # Jobs have no order among them, so neither have the lines.
    assert sorted(printed.splitlines()) == sorted(output.splitlines())
