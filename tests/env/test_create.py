"""env/create.py without a network: what it decides, what it refuses, and in how many words."""

import ast
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def create(tmp_path, monkeypatch):
    """A fresh create.py that believes an empty folder to be the project."""
    spec = importlib.util.spec_from_file_location("create", ROOT / "env" / "create.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "LOG", tmp_path / "build" / "create.log")
    return module


def pretend(monkeypatch, create, *answers):
    """Answer commands from (word in the command, succeeded, output), and list the commands.

    An installation into a folder makes the folder, as pip would.
    """
    asked = []

    def run(command, extra=None, cwd=None):
        line = " ".join(map(str, command))
        asked.append(line)
        for word, ok, text in answers:
            if word in line:
                return ok, text
        if "--target" in command:
            command[command.index("--target") + 1].mkdir(parents=True)
        return True, ""

    monkeypatch.setattr(create, "run", run)
    return asked


def one_line(capsys):
    """What went to standard error, which must be one line and no traceback."""
    text = capsys.readouterr().err
    assert text.count("\n") == 1 and "Traceback" not in text
    return text


@pytest.mark.parametrize("version", [(2, 7), (3, 6), (3, 9), (3, 15)])
def test_a_python_without_a_torch_is_refused_in_one_line(create, monkeypatch, capsys, version):
    monkeypatch.setattr(create.sys, "version_info", (*version, 0))
    assert create.main([]) == 1
    assert f"Python {version[0]}.{version[1]} is too" in one_line(capsys)


@pytest.mark.parametrize("version", [(3, 10), (3, 14)])
def test_the_oldest_and_newest_python_pass(create, version):
    create.check_python(version)


def test_no_syntax_that_an_old_python_cannot_read():
    source = (ROOT / "env" / "create.py").read_text(encoding="utf-8")
    ast.parse(source, feature_version=(3, 7))
    assert "annotations" not in re.findall(r"from __future__ import (\w+)", source)


def test_a_full_disk_is_noticed_before_anything_is_made(create, monkeypatch, capsys):
    pretend(monkeypatch, create, ("import torch", False, ""))
    usage = type("usage", (), {"free": 4e8})
    monkeypatch.setattr(create.shutil, "disk_usage", lambda path: usage)
    monkeypatch.setattr(create.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(create.platform, "system", lambda: "Linux")
    assert create.main(["--only", "main"]) == 1
    assert "0.4 GB free" in one_line(capsys)
    assert not (create.ROOT / ".venv").exists()


OFFLINE = """WARNING: Retrying after connection broken by NewConnectionError
ERROR: No matching distribution found for torch==2.13.0
"""


def test_pip_failing_is_one_line_that_names_the_log(create, monkeypatch, capsys):
    monkeypatch.setattr(create, "has_gpu", lambda: False)
    monkeypatch.setattr(create.platform, "machine", lambda: "x86_64")
    pretend(monkeypatch, create, (" --version", True, "pip 26.3"), ("pip install", False, OFFLINE))
    assert create.main(["--only", "main"]) == 1
    text = one_line(capsys)
    assert "No matching distribution" in text and "[no network?]" in text
    assert str(Path("build", "create.log")) in text


def test_without_the_venv_module_it_says_what_to_install(create, monkeypatch):
    pretend(monkeypatch, create, ("import ensurepip", False, "No module named ensurepip"))
    with pytest.raises(create.Stop, match="apt-get install python3-venv"):
        create.make_venv(create.ROOT / ".venv", sys.executable)


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["torch-9"], "allowed: main, torch-2.13, torch-1.13, torch-2.0, "),
        (["--only", "torch-9"], "unknown torch 'torch-9'; allowed: main, "),
        (["main2"], "unknown torch 'main2'; allowed: main, "),
        (["--gpu"], "unrecognized arguments: --gpu"),
        (["--remove", "torch-9"], "unknown torch 'torch-9'; allowed: main, "),
    ],
)
def test_bad_arguments_exit_2_in_one_line(create, capsys, arguments, said):
    with pytest.raises(SystemExit) as stopped:
        create.main(arguments)
    assert stopped.value.code == 2
    assert said in one_line(capsys)


@pytest.mark.parametrize(
    "system, gpu, cuda, sources",
    [
        ("Linux", False, False, ["cpu", "default"]),
        ("Linux", True, False, ["default"]),
        ("Linux", False, True, ["default"]),
        ("Darwin", False, False, ["default"]),
        ("Windows", True, False, ["default"]),
        ("Windows", True, True, ["cuda"]),
    ],
)
def test_where_torch_comes_from(create, system, gpu, cuda, sources):
    assert create.torch_sources(system, gpu, cuda) == sources


def test_cuda_on_a_mac_is_refused(create):
    with pytest.raises(create.Stop, match="no CUDA build for macOS"):
        create.torch_sources("Darwin", False, True)


def test_platforms_without_a_wheel_are_refused(create):
    for system, machine in [("Darwin", "x86_64"), ("Windows", "ARM64")]:
        with pytest.raises(create.Stop, match="no build for"):
            create.check_platform(system, machine)
    for system, machine in [("Darwin", "arm64"), ("Linux", "aarch64"), ("Windows", "AMD64")]:
        create.check_platform(system, machine)


def plan(*names):
    return {"install": [{"metadata": {"name": name}} for name in names]}


def test_a_cuda_plan_is_refused_before_anything_is_fetched(create, monkeypatch):
    asked = pretend(monkeypatch, create, ("/whl/cpu", False, OFFLINE))
    found = plan("torch", "nvidia-cublas", "Triton", "cuda-bindings", "sympy")
    create.write_json(create.LOG.with_name("plan.json"), found)
    with pytest.raises(create.Stop, match="--cuda permits") as stopped:
        create.install_torch("python", "2.13.0", ["cpu", "default"], allow_cuda=False)
    assert "\n" not in str(stopped.value)
    assert "--no-deps --index-url" in asked[0] and "--dry-run" in asked[-1] and len(asked) == 2


def test_a_cpu_plan_is_installed_and_cuda_when_it_was_asked_for(create, monkeypatch):
    create.write_json(create.LOG.with_name("plan.json"), plan("torch", "sympy"))
    asked = pretend(monkeypatch, create, ("/whl/cpu", False, OFFLINE))
    create.install_torch("python", "2.13.0", ["cpu", "default"], allow_cuda=False)
    assert asked[-1].endswith("torch==2.13.0") and "--dry-run" not in asked[-1]
    asked = pretend(monkeypatch, create)
    create.install_torch("python", "2.13.0", ["default"], allow_cuda=True, exact=True)
    assert len(asked) == 1 and asked[0].endswith("torch===2.13.0")  # never the +cpu build


@pytest.mark.parametrize("machine, label", [("x86_64", "+cpu"), ("aarch64", "")])
def test_only_a_cpu_build_is_taken_from_the_cpu_index(create, monkeypatch, machine, label):
    """Pip's own settings may name an extra index, where the same version is a CUDA build."""
    monkeypatch.setattr(create.platform, "machine", lambda: machine)
    asked = pretend(monkeypatch, create)
    create.install_torch("python", "2.6.0", ["cpu", "default"], allow_cuda=False)
    assert len(asked) == 1 and asked[0].endswith(f" torch==2.6.0{label}")


def test_no_older_torch_is_a_line_and_no_failure(create, monkeypatch, capsys):
    def never(torch_id, unpack):
        raise create.Unavailable(f"no {torch_id} today")

    monkeypatch.setattr(create, "make_main", lambda cuda: None)
    monkeypatch.setattr(create, "make_older", never)
    assert create.main([]) == 0
    assert "recorded evidence" in capsys.readouterr().out
    monkeypatch.setattr(create, "make_older", lambda *ids, **how: pytest.fail("tried again"))
    assert create.main([]) == 0
    assert "as before" in capsys.readouterr().out


def test_an_older_torch_asked_for_by_name_is_a_failure(create, monkeypatch, capsys):
    monkeypatch.setattr(create.platform, "freedesktop_os_release", lambda: {"ID": "fedora"})
    assert create.main(["torch-1.13"]) == 1
    assert "Debian 12" in one_line(capsys)


def test_what_interpreter_json_says(create, monkeypatch):
    monkeypatch.setattr(create, "debian_torch", lambda home, unpack: (["/usr/bin/python3"], {}))
    version, torch = ("version_info", True, "3.11\n"), ("import torch", True, "torch=1.13.0a0\n")
    pretend(monkeypatch, create, version, torch)
    home = create.ROOT / ".torches" / "torch-1.13"
    create.make_older("torch-1.13")
    made = json.loads((home / "interpreter.json").read_text(encoding="utf-8"))
    assert made["id"] == "torch-1.13" and made["torch"] == "1.13.0a0"
    assert made["command"] == ["/usr/bin/python3"]
    assert made["env"] == {"PYTHONPATH": str(home / "site")}
    assert sorted(path.name for path in home.iterdir()) == [
        "half_truths.json", "interpreter.json", "site"]


def test_a_missing_transformers_leaves_torch_usable_and_is_tried_again(create, monkeypatch):
    monkeypatch.setattr(create, "debian_torch", lambda home, unpack: (["/usr/bin/python3"], {}))
    pretend(
        monkeypatch, create, ("version_info", True, "3.11\n"), ("pip install", False, OFFLINE),
        ("import torch", True, "torch=1.13.0a0\n"),
    )
    create.make_older("torch-1.13")
    made = create.read_json(create.ROOT / ".torches" / "torch-1.13" / "interpreter.json")
    assert made["env"] == {} and made["stamp"] is None
    assert not create.older_is_ready(create.ROOT / ".torches" / "torch-1.13")


VENV = Path(".torches", "torch-2.6")


def linux(monkeypatch, create, *answers):
    """Pretend to be on Linux with every Python there is; torch 2.6 starts."""
    monkeypatch.setattr(create.platform, "system", lambda: "Linux")
    monkeypatch.setattr(create.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(create.shutil, "which", lambda name: name)
    started = ("import torch", True, "torch=2.6.0+cpu\n")
    return pretend(monkeypatch, create, *answers, (" --version", True, "pip 26.3"), started)


def test_any_torch_is_made_in_a_venv_of_its_own(create, monkeypatch, capsys):
    asked = linux(monkeypatch, create)
    assert create.main(["torch-2.6"]) == 0
    made = create.read_json(create.ROOT / VENV / "interpreter.json")
    assert made["command"] == [str(create.python_in(create.ROOT / VENV))] and made["env"] == {}
    assert made["torch"] == "2.6.0+cpu" and made["stamp"] == create.stamp("torch-2.6")
    installed = [line.split("--no-compile ")[1] for line in asked if "--no-compile" in line]
    index = create.INDEX["cpu"]
    assert installed == [
        f"--no-deps --index-url {index} --retries 1 --timeout 8 torch==2.6.0+cpu",
        # One run, so that all pins hold, with torch for the sake of what it depends on.
        " ".join(["torch==2.6.0", *create.torches()["torch-2.6"]["packages"]]),
    ]


def test_its_cuda_build_is_taken_only_when_asked_for(create, monkeypatch, capsys):
    create.write_json(create.LOG.with_name("plan.json"), plan("torch", "nvidia-cublas-cu12"))
    linux(monkeypatch, create, ("/whl/cpu", False, OFFLINE))
    assert create.main(["torch-2.6"]) == 1
    assert "torch==2.6.0 as a CUDA build" in one_line(capsys)
    asked = linux(monkeypatch, create)
    assert create.main(["--cuda", "torch-2.6"]) == 0
    assert not any("/whl/cpu" in line for line in asked)
    assert any(line.endswith("torch===2.6.0") for line in asked)


def test_a_cpu_build_does_not_do_where_cuda_is_asked_for(create, monkeypatch):
    linux(monkeypatch, create)
    home = create.ROOT / VENV
    create.make_older("torch-2.6")
    create.python_in(home).parent.mkdir()
    create.python_in(home).touch()
    assert create.older_is_ready(home) and not create.older_is_ready(home, cuda=True)


@pytest.mark.parametrize("failing", ["-m venv", "pip install", "import torch"])
@pytest.mark.parametrize("existed", [False, True])
def test_a_failed_make_leaves_nothing(create, monkeypatch, capsys, failing, existed):
    linux(monkeypatch, create)
    if existed:
        create.make_older("torch-2.6")
        (create.ROOT / VENV / "bin").mkdir()
    linux(monkeypatch, create, (failing, False, OFFLINE))
    assert create.main(["torch-2.6"]) == 1
    one_line(capsys)
    assert not (create.ROOT / VENV).exists()


def test_an_interrupted_make_leaves_nothing(create, monkeypatch, capsys):
    def interrupt(*arguments, **options):
        (create.ROOT / VENV / "bin").mkdir(parents=True)
        raise KeyboardInterrupt

    linux(monkeypatch, create)
    monkeypatch.setattr(create, "install_torch", interrupt)
    assert create.main(["torch-2.6"]) == 130
    assert "run it again" in one_line(capsys)
    assert not (create.ROOT / VENV).exists()


def test_what_a_killed_make_left_is_made_afresh(create, monkeypatch):
    half = create.ROOT / VENV / "lib" / "torch"
    half.mkdir(parents=True)
    create.write_json(create.ROOT / VENV / create.MARK, {})
    linux(monkeypatch, create)
    create.make_older("torch-2.6")
    assert not half.exists() and create.read_json(create.ROOT / VENV / "interpreter.json")


def test_without_room_a_torch_that_is_here_stays(create, monkeypatch):
    linux(monkeypatch, create)
    create.make_older("torch-2.6")
    usage = type("usage", (), {"free": 5e9})
    monkeypatch.setattr(create.shutil, "disk_usage", lambda path: usage)
    create.make_older("torch-2.6")  # what is there is only renewed
    create.make_older("torch-2.4")
    with pytest.raises(create.Stop, match="5.0 GB free .* 10.0 GB needed"):
        create.make_older("torch-2.9", allow_cuda=True)


def test_without_its_packages_a_torch_works_and_the_next_run_tries_again(
        create, monkeypatch, capsys):
    linux(monkeypatch, create, ("transformers==5.24.0 ", False, OFFLINE))
    assert create.main(["torch-2.6"]) == 0
    assert "without transformers==" in capsys.readouterr().out
    assert create.read_json(create.ROOT / VENV / "interpreter.json")["stamp"] is None
    linux(monkeypatch, create)
    assert create.main(["torch-2.6"]) == 0
    assert create.read_json(create.ROOT / VENV / "interpreter.json")["stamp"]


def test_removed_is_gone(create, monkeypatch, capsys):
    linux(monkeypatch, create)
    create.make_older("torch-2.6")
    create.make_older("torch-2.4")
    assert create.main(["--remove", "torch-2.6", "torch-2.0"]) == 0
    assert [path.name for path in (create.ROOT / ".torches").iterdir()] == ["torch-2.4"]


@pytest.mark.parametrize(
    "here, there, chosen",
    [
        ((3, 10), ["python3.11", "python3.14"], "python3.11"),  # 2.6 has wheels for 3.11 to 3.13
        ((3, 14), ["python3.12", "python3.13"], "python3.13"),
        ((3, 12), ["python3.13"], sys.executable),
        ((3, 14), ["python3.10"], None),
    ],
)
def test_a_python_that_the_torch_has_wheels_for(create, monkeypatch, here, there, chosen):
    pretend(monkeypatch, create)
    monkeypatch.setattr(create.sys, "version_info", here)
    monkeypatch.setattr(create.shutil, "which", lambda name: name if name in there else None)
    assert create.python_for(create.torches()["torch-2.6"]) == chosen


def test_a_python_that_does_not_start_is_passed_over(create, monkeypatch):
    pretend(monkeypatch, create, ("python3.13", False, "pyenv: command not found"))
    monkeypatch.setattr(create.sys, "version_info", (3, 14))
    monkeypatch.setattr(create.shutil, "which", lambda name: name)
    assert create.python_for(create.torches()["torch-2.6"]) == "python3.12"


def test_another_torch_in_the_list_leaves_those_that_are_here(create, monkeypatch):
    before = create.stamp("torch-2.6")
    listed = create.torches()
    listed["torch-3.0"] = listed["torch-2.4"]
    listed["torch-2.6"]["for"] = "something else"
    monkeypatch.setattr(create, "torches", lambda: listed)
    assert create.stamp("torch-2.6") == before
    listed["torch-2.6"]["packages"] = ["transformers==5.20.2"]
    assert create.stamp("torch-2.6") != before


def pins(path):
    """{(name, marker): version} of a requirements file; every line must be an exact pin."""
    found = {}
    for line in (ROOT / path).read_text(encoding="utf-8").splitlines():
        line = line.split("#")[0].strip()
        if line and not line.startswith("--"):
            name, version, marker = re.fullmatch(r"([\w-]+)==([\w.+]+)(?:; (.+))?", line).groups()
            found[name, marker] = version
    return found


def test_binder_installs_the_versions_that_are_tested():
    tested = pins("env/requirements.txt")
    for (name, marker), version in pins("binder/requirements.txt").items():
        assert marker is None
        expected = tested.get((name, None)) or tested[name, 'python_version >= "3.11"']
        assert version == (expected + "+cpu" if name == "torch" else expected), name
    assert (ROOT / "binder" / "runtime.txt").read_text().strip() == "python-3.11"


def test_pins_say_why():
    for line in (ROOT / "env" / "requirements.txt").read_text(encoding="utf-8").splitlines():
        if "==" in line and '< "3.11"' not in line:
            assert len(line.partition("#")[2]) > 5, line


def number(torch_id):
    """'torch-2.13' as (2, 13), to tell older from newer."""
    return tuple(map(int, torch_id[len("torch-"):].split(".")))


def test_torches_toml(create):
    torches = create.torches()
    main, *others = torches
    assert main == create.MAIN  # the notebooks' own first, then by age
    assert others == sorted(others, key=number) and {create.DEBIAN, create.STAND_IN} <= set(others)
    for torch_id, entry in torches.items():
        assert {"id", "version", "python", "how", "for"} <= set(entry)
        assert torch_id == "torch-" + ".".join(entry["version"].split(".")[:2])
        for pin in entry.get("packages", []):
            assert re.fullmatch(r"[\w-]+==[\w.]+", pin), pin
    assert torches["torch-2.13"]["version"] == pins("env/requirements.txt")["torch", None]


# ------------------------------------------------------------------ what is not ours


def listing(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_all_that_was_made_here_is_gone_and_nothing_else(create, monkeypatch):
    main_made(create, monkeypatch)
    linux(monkeypatch, create)
    create.make_older("torch-2.6")
    create.write_json(create.ROOT / ".torches" / "declined.json", {})
    (create.ROOT / "mine").write_text("")
    assert create.main(["--remove"]) == 0
    assert [name for name in listing(create.ROOT) if not name.startswith("build")] == ["mine"]


@pytest.mark.parametrize("place, arguments", [
    (".venv", []),
    (".venv", ["--remove"]),
    (".venv", ["--only", "main"]),
    (".torches", ["torch-2.6"]),
    (".torches", ["--remove", "torch-2.6"]),
    (".torches/torch-2.6", ["torch-2.6"]),
    (".torches/torch-2.6", ["--remove", "torch-2.6"]),
])
@pytest.mark.parametrize("broken", [False, True])
def test_a_link_is_refused_and_its_target_untouched(
        create, monkeypatch, capsys, tmp_path_factory, place, arguments, broken):
    target = tmp_path_factory.mktemp("elsewhere") / "target"
    if not broken:
        (target / "torch-2.6").mkdir(parents=True)
        for folder in (target, target / "torch-2.6"):
            (folder / "interpreter.json").write_text("{}")
            (folder / create.MARK).write_text("{}")
    before, link = listing(target), create.ROOT / place
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(target)
    linux(monkeypatch, create)
    assert create.main(arguments) == 1
    said = one_line(capsys)
    assert f"{place} is a link, to " in said and "Remove the link" in said
    assert listing(target) == before and link.is_symlink()


@pytest.mark.parametrize("place, arguments", [
    (".venv", []),
    (".venv", ["--remove"]),
    (".torches/torch-2.6", ["torch-2.6"]),
    (".torches/torch-2.6", ["--remove", "torch-2.6"]),
])
@pytest.mark.parametrize("kind", ["folder", "file"])
def test_what_someone_else_made_stays(create, monkeypatch, capsys, place, arguments, kind):
    stranger = create.ROOT / place
    (stranger / "bin" if kind == "folder" else stranger.parent).mkdir(parents=True, exist_ok=True)
    (stranger / "pyvenv.cfg" if kind == "folder" else stranger).write_text("home = /usr/bin\n")
    before = listing(create.ROOT)
    linux(monkeypatch, create)
    assert create.main(arguments) == 1
    assert "move it away or remove it, then run this again" in one_line(capsys)
    assert [path for path in listing(create.ROOT) if path != "build"] == before


def test_with_one_refused_none_is_removed(create, monkeypatch, capsys):
    linux(monkeypatch, create)
    create.make_older("torch-2.4")
    (create.ROOT / VENV / "mine").mkdir(parents=True)
    assert create.main(["--remove", "torch-2.4", "torch-2.6"]) == 1
    assert (create.ROOT / ".torches" / "torch-2.4" / "interpreter.json").exists()


# ------------------------------------------------------------------ another Python, damage, halves


def main_made(create, monkeypatch, **mark):
    """A .venv with a mark and a file in it; the commands that would make it are pretended."""
    venv = create.ROOT / ".venv"
    create.python_in(venv).parent.mkdir(parents=True)
    create.python_in(venv).touch()
    (venv / "old").touch()
    made = {"root": str(create.ROOT), "stamp": "older", "cuda": False, **mark}
    create.write_json(venv / create.MARK, made)
    monkeypatch.setattr(create, "has_gpu", lambda: False)
    monkeypatch.setattr(create, "link_project", lambda python: None)
    usage = type("usage", (), {"free": 5e9})
    monkeypatch.setattr(create.shutil, "disk_usage", lambda path: usage)
    return venv


HERE = ("python=", True, "python={}.{}\n".format(*sys.version_info[:2]))


def anew(create, monkeypatch, capsys, *answers):
    """Run it; return (was .venv emptied, what was said)."""
    linux(monkeypatch, create, *answers)
    assert create.main(["--only", "main"]) == 0
    made = create.read_json(create.ROOT / ".venv" / create.MARK)
    assert made["stamp"] == create.stamp(create.MAIN) and "busy" not in made
    return not (create.ROOT / ".venv" / "old").exists(), capsys.readouterr().out


def test_another_python_makes_venv_anew_and_says_so(create, monkeypatch, capsys):
    main_made(create, monkeypatch, stamp=create.stamp(create.MAIN))
    monkeypatch.setattr(create.sys, "version_info", (3, 13, 0))
    emptied, said = anew(create, monkeypatch, capsys, ("python=", True, "python=3.11\n"))
    assert emptied and "it has Python 3.11, and this is Python 3.13" in said


def test_the_stamp_knows_the_python(create, monkeypatch):
    monkeypatch.setattr(create.sys, "version_info", (3, 11, 2))
    before, older = create.stamp(create.MAIN), create.stamp("torch-2.6")
    monkeypatch.setattr(create.sys, "version_info", (3, 11, 9))
    assert create.stamp(create.MAIN) == before
    monkeypatch.setattr(create.sys, "version_info", (3, 13, 0))
    assert create.stamp(create.MAIN) != before and create.stamp("torch-2.6") == older


def test_an_older_set_up_with_this_python_is_renewed_in_place(create, monkeypatch, capsys):
    main_made(create, monkeypatch)
    emptied, said = anew(create, monkeypatch, capsys, HERE)
    assert not emptied and "anew" not in said


@pytest.mark.parametrize("mark, answers, why", [
    ({"busy": True}, (HERE,), "the last run was not finished"),
    ({"root": "/elsewhere"}, (HERE,), "it was moved or copied here"),
    ({}, (("python=", False, "junk"),), "it does not start"),
    ({}, (HERE, ("pip --version", False, "No module named pip")), "it does not start"),
])
def test_what_cannot_be_gone_on_with_is_made_anew(
        create, monkeypatch, capsys, mark, answers, why):
    main_made(create, monkeypatch, **mark)
    monkeypatch.setattr(create, "upgrade_pip", lambda python: None)
    emptied, said = anew(create, monkeypatch, capsys, *answers)
    assert emptied and f"making .venv anew: {why}" in said


@pytest.mark.parametrize("text, damaged", [("home = /usr/bin\n", False), ("junk", True)])
def test_a_damaged_pyvenv_cfg_is_no_ready_environment(
        create, monkeypatch, capsys, text, damaged):
    venv = main_made(create, monkeypatch, stamp=create.stamp(create.MAIN))
    (venv / "pyvenv.cfg").write_text(text)
    emptied, said = anew(create, monkeypatch, capsys, HERE)
    assert emptied == damaged and ("it is damaged" in said) == damaged


@pytest.mark.parametrize("text", ["", '{"root": ', "[]"])
def test_a_truncated_mark_is_still_ours(create, monkeypatch, capsys, text):
    venv = main_made(create, monkeypatch)
    (venv / create.MARK).write_text(text)
    emptied, _ = anew(create, monkeypatch, capsys, HERE)
    assert emptied


def test_a_mark_is_there_before_anything_else(create, monkeypatch):
    """Whenever it is killed, the next run knows what it finds."""
    seen = []

    def make_venv(venv, python):
        seen.append((listing(venv), create.read_json(venv / create.MARK)))
        raise KeyboardInterrupt

    monkeypatch.setattr(create, "has_gpu", lambda: False)
    linux(monkeypatch, create, ("jupyterlab", False, ""))
    monkeypatch.setattr(create, "make_venv", make_venv)
    assert create.main(["--only", "main"]) == 130 and create.main(["torch-2.6"]) == 130
    assert [names for names, _ in seen] == [[create.MARK]] * 2 and seen[0][1]["busy"]


def test_after_pips_own_no_the_next_run_goes_on_in_place(create, monkeypatch, capsys):
    venv = main_made(create, monkeypatch)
    linux(monkeypatch, create, HERE, ("-r ", False, OFFLINE))
    assert create.main(["--only", "main"]) == 1
    assert (venv / "old").exists() and not create.main_is_ready(False)
    emptied, said = anew(create, monkeypatch, capsys, HERE)
    assert not emptied and "anew" not in said


@pytest.mark.parametrize("step", ["-m venv", "/whl/cpu", "-r "])
def test_a_disk_that_fills_up_is_one_line_and_the_next_run_mends_it(
        create, monkeypatch, capsys, step):
    main_made(create, monkeypatch, busy=True)
    create.python_in(create.ROOT / ".venv").unlink()
    full = (step, False, "ERROR: Could not install: [Errno 28] No space left on device\n")
    linux(monkeypatch, create, HERE, full)
    assert create.main(["--only", "main"]) == 1
    assert "the disk is full at " in one_line(capsys)
    assert create.read_json(create.ROOT / ".venv" / create.MARK)["busy"]
    (create.ROOT / ".venv" / "old").touch()
    emptied, said = anew(create, monkeypatch, capsys, HERE)
    assert emptied and "not finished" in said


def test_a_file_that_could_not_be_written_leaves_no_half(create, monkeypatch):
    def full(*paths):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(create.os, "replace", full)
    with pytest.raises(OSError):
        create.write_json(create.ROOT / ".venv" / create.MARK, {})
    assert listing(create.ROOT / ".venv") == []


@pytest.mark.parametrize("number, said", [(28, "the disk is full"), (30, "cannot write in")])
def test_what_the_system_refuses_is_one_line(create, monkeypatch, capsys, number, said):
    def refuse(path, *arguments, **options):
        raise OSError(number, "no", str(path))

    linux(monkeypatch, create)
    monkeypatch.setattr(create.Path, "mkdir", refuse)
    assert create.main(["torch-2.6"]) == 1
    assert said in one_line(capsys)


# ------------------------------------------------------------------ stopped by a signal

# As from a terminal: what runs the tests may ignore signals, as nohup and a shell's & do, and its
# children inherit that. create.py leaves it so: who starts it under nohup wants it.
DRIVER = """
import signal, sys
from pathlib import Path
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGTERM, signal.SIG_DFL)
sys.path.insert(0, {env!r})
import create
create.ROOT = Path({root!r})
create.LOG = create.ROOT / "create.log"
create.make_main = lambda cuda: create.run(["sh", "-c", {command!r}])
create.listen()
sys.exit(create.main(["--only", "main"]))
"""


@pytest.mark.skipif(os.name == "nt", reason="signals and process groups of POSIX")
@pytest.mark.parametrize("name, code", [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129)])
@pytest.mark.parametrize("stubborn", [False, True])
def test_a_signal_ends_all_that_was_started(tmp_path, name, code, stubborn):
    deaf = "trap '' INT TERM; " if stubborn else ""  # such a child must be killed
    new = f"{tmp_path}/new"
    command = f"{deaf}sleep 100 & echo $! $$ > {new}; mv {new} {tmp_path}/pids; wait"
    driver = DRIVER.format(env=str(ROOT / "env"), root=str(tmp_path), command=command)
    process = subprocess.Popen([sys.executable, "-c", driver], stderr=subprocess.PIPE, text=True)
    limit = time.monotonic() + 30
    while not (tmp_path / "pids").exists():
        assert time.monotonic() < limit and process.poll() is None
        time.sleep(0.05)
    process.send_signal(getattr(signal, name))
    assert process.communicate(timeout=30)[1] == (
        "env/create.py: stopped; run it again to go on\n")
    assert process.returncode == code
    for pid in (tmp_path / "pids").read_text().split():
        status = Path("/proc", pid, "status")
        assert not status.exists() or "State:\tZ" in status.read_text()


def test_a_signal_waits_while_a_child_is_being_started(create):
    with pytest.raises(create.Stopped) as stopped:
        with create.undisturbed():
            create.stop(signal.SIGTERM, None)
            reached = True
    assert reached and stopped.value.number == signal.SIGTERM and create.waiting is None


# ------------------------------------------------------------------ pip's true reason

CONFLICT = """WARNING: Location 'file:///x/torch/' is ignored: it is neither a file nor a directory.
ERROR: Cannot install torch==2.14.1+cpu because these package versions have conflicting \
dependencies.

The conflict is caused by:
    The user requested torch==2.14.1+cpu
    The user requested (constraint) torch<=2.13

Additionally, some packages in these conflicts have no matching distributions available for your \
environment:
    torch

To fix this you could try to:
1. loosen the range of package versions you've specified

ERROR: ResolutionImpossible: for help visit https://pip.pypa.io/en/latest/topics/
"""
DEBUG = """env_var:
  PIP_CERT='x'
global:
  /etc/xdg/pip/pip.conf, exists: True
    global.constraint: /etc/caps.txt
  /etc/pip.conf, exists: False
"""


def test_pips_conflict_is_said_and_who_set_the_constraint(create, monkeypatch):
    monkeypatch.delenv("PIP_CONSTRAINT", raising=False)
    pretend(monkeypatch, create, ("config debug", True, DEBUG))
    said = create.pip_says("python", CONFLICT)
    assert said == (
        "cannot install torch==2.14.1+cpu: The user requested torch==2.14.1+cpu; "
        "The user requested (constraint) torch<=2.13; found nowhere: torch "
        "[the constraint: /etc/caps.txt, which /etc/xdg/pip/pip.conf names]")
    monkeypatch.setenv("PIP_CONSTRAINT", "caps.txt")
    assert create.pip_says("python", CONFLICT).endswith("[the constraint: PIP_CONSTRAINT=caps.txt]")


def test_a_constraint_is_not_blamed_for_what_it_did_not_do(create, monkeypatch):
    monkeypatch.setenv("PIP_CONSTRAINT", "caps.txt")
    assert "constraint" not in create.pip_says("python", OFFLINE).lower()


def test_the_cuda_refusal_says_why_there_was_no_cpu_build(create, monkeypatch):
    create.write_json(create.LOG.with_name("plan.json"), plan("torch", "nvidia-cublas"))
    pretend(monkeypatch, create, ("/whl/cpu", False, CONFLICT))
    with pytest.raises(create.Stop, match="found nowhere: torch") as stopped:
        create.install_torch("python", "2.13.0", ["cpu", "default"], allow_cuda=False)
    assert "\n" not in str(stopped.value) and "(constraint) torch<=2.13" in str(stopped.value)
    pretend(monkeypatch, create)
    with pytest.raises(create.Stop) as stopped:  # here the CPU index was never asked
        create.install_torch("python", "2.13.0", ["default"], allow_cuda=False)
    assert "CPU build" not in str(stopped.value)


# ------------------------------------------------------------------ Debian's torch, both roads

STARTS = """#!/bin/sh
PYTHONPATH=$PYTHONPATH:{site} exec {python} "$@"
"""
APT = """#!/bin/sh
echo "$@" >> {log}
case "$*" in
    *autoremove*) echo "Remv python3-torch [1.13]" ;;
    *--simulate*) echo "Inst python3-torch (1.13.0 Debian:12 [amd64])" ;;
    *download*) touch python3-torch.deb ;;
esac
"""
DPKG = """#!/bin/sh
mkdir -p "$3/usr/lib/python3/dist-packages"
touch "$3/usr/lib/libblas.so.3"
echo '__version__ = "1.13.0a0+unpacked"' > "$3/usr/lib/python3/dist-packages/torch.py"
"""


@pytest.fixture
def debian(create, monkeypatch, tmp_path):
    """Debian 12 with python3-torch installed: real commands, in which only the files are small."""
    site, tools = tmp_path / "dist-packages", tmp_path / "tools"
    for folder in (site, tools):
        folder.mkdir()
    (site / "torch.py").write_text('__version__ = "1.13.0a0"\n')
    log = tmp_path / "asked"
    starts = STARTS.format(site=site, python=sys.executable)
    for name, text in [("python3", starts), ("apt-get", APT.format(log=log)), ("dpkg-deb", DPKG)]:
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    (tmp_path / "status").write_text("Package: make\n\nPackage: python3-torch\n\nPackage: zip\n")
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(create, "SYSTEM_PYTHON", str(tools / "python3"))
    monkeypatch.setattr(create, "DPKG_STATUS", str(tmp_path / "status"))
    monkeypatch.setattr(create.platform, "freedesktop_os_release",
                        lambda: {"ID": "debian", "VERSION_ID": "12"})
    monkeypatch.setattr(create, "install", lambda *arguments: (True, ""))
    return log


DEBIAN_HOME = Path(".torches", "torch-1.13")


def test_an_installed_torch_is_taken_as_it_is(create, debian, capsys):
    assert create.main(["torch-1.13"]) == 0
    made = create.read_json(create.ROOT / DEBIAN_HOME / "interpreter.json")
    assert made["torch"] == "1.13.0a0" and "LD_LIBRARY_PATH" not in made["env"]
    assert not debian.exists(), "apt was asked"
    assert not (create.ROOT / DEBIAN_HOME / "root").exists()


def test_unpack_does_not_see_an_installed_one(create, debian, capsys):
    assert create.main(["torch-1.13"]) == 0
    assert create.main(["--unpack", "torch-1.13"]) == 0
    made = create.read_json(create.ROOT / DEBIAN_HOME / "interpreter.json")
    root = create.ROOT / DEBIAN_HOME / "root"
    assert made["torch"] == "1.13.0a0+unpacked"
    assert made["env"]["LD_LIBRARY_PATH"] == str(root / "usr/lib")
    assert not (create.ROOT / DEBIAN_HOME / "apt").exists()
    asked = debian.read_text()
    assert "-oDir::State::status=" in asked and "download python3-torch=1.13.0" in asked
    for arguments in (["--unpack", "torch-1.13"], ["torch-1.13"]):  # either is content with it
        debian.unlink(missing_ok=True)
        assert create.main(arguments) == 0 and not debian.exists()


def test_apt_is_shown_a_machine_without_it(create, debian, tmp_path):
    text = Path(create.status_without_torch(tmp_path / "shown")).read_text()
    assert text == "Package: make\n\nPackage: zip\n"


HERE_MADE = (ROOT / ".venv" / "half_truths.json").exists() and not (ROOT / ".venv").is_symlink()


@pytest.mark.skipif(not HERE_MADE, reason="made otherwise")
def test_a_second_run_has_nothing_to_do():
    done = subprocess.run(
        [sys.executable, "env/create.py", "--only", "main"], cwd=ROOT, env=dict(os.environ),
        stdout=subprocess.PIPE, text=True, timeout=60, check=True,
    )
    assert done.stdout.endswith(".venv is ready\n") and done.stdout.count("\n") == 1
