"""The workflow files: valid by GitHub's schema, and of the torches that are listed."""

import subprocess
import sys

from ruamel.yaml import YAML

from cases.lab import torches

FOLDER = torches.ROOT / ".github" / "workflows"
CHECK = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows"]


def check(*paths):
    return subprocess.run([*CHECK, *paths], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def test_the_workflows_fit_the_schema():
    paths = sorted(FOLDER.glob("*.yml"))
    assert {"test.yml", "evidence.yml"} <= {path.name for path in paths}
    done = check(*paths)
    assert done.returncode == 0, done.stdout.decode()


def test_a_workflow_that_does_not_is_found(tmp_path):
    wrong = tmp_path / "wrong.yml"
    text = (FOLDER / "evidence.yml").read_text(encoding="utf-8")
    wrong.write_text(text.replace("runs-on:", "run-on:"), encoding="utf-8")
    assert check(wrong).returncode == 1


def test_the_matrix_has_every_listed_torch_once():
    job = YAML(typ="safe").load(FOLDER / "evidence.yml")["jobs"]["record"]
    matrix = job["strategy"]["matrix"]
    found = matrix["torch"] + [entry["torch"] for entry in matrix["include"]]
    assert sorted(found) == sorted(entry["id"] for entry in torches.listed())


def commands(text):
    """The lines of a script or workflow that are commands, without comments."""
    return [line.strip().removeprefix("- run: ") for line in text.splitlines()
            if not line.strip().startswith("#")]


def test_the_check_walks_a_newcomers_road():
    """Both commands of the README, in its order, with the older torch unpacked, not installed."""
    lines = commands((torches.ROOT / ".ci" / "run").read_text(encoding="utf-8"))
    assert lines[-2:] == ["make run", "make test"]
    assert "set -euo pipefail" in lines and "export SETUP=--unpack" in lines
    assert not any("python3-torch" in line for line in lines)
    assert "$(PYTHON) env/create.py $(SETUP)" in (torches.ROOT / "Makefile").read_text("utf-8")


def test_github_runs_both_commands_and_the_check_itself():
    lines = commands((FOLDER / "test.yml").read_text(encoding="utf-8"))
    assert lines.index("make run") < lines.index("make test")
    assert "bash .ci/run" in lines
