"""Make everything the notebooks need:  python3 env/create.py

Two things come out of it: `.venv`, the environment that the notebooks and the tests run in, and
under `.torches` an older torch, so that a case can be run on both. Nothing outside this folder
is changed. Run it as often as you like: what is there already is left alone.

    python3 env/create.py                     .venv and an older torch
    python3 env/create.py --only main         .venv alone
    python3 env/create.py torch-2.6           that torch alone; torches.toml lists them
    python3 env/create.py --cuda torch-2.6    as its CUDA build, several gigabytes
    python3 env/create.py --remove torch-2.6  deletes it

It uses the standard library only, because it runs before anything is installed, and no syntax
that an old Python cannot read, so that an old Python gets a sentence and not a SyntaxError.
"""

import argparse
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ENV = ROOT / "env"
LOG = ROOT / "build" / "create.log"
OLDEST, NEWEST = (3, 10), (3, 14)  # the Pythons that torch 2.13.0 has wheels for
MAIN, DEBIAN, STAND_IN = "torch-2.13", "torch-1.13", "torch-2.0"
INDEX = {
    "cpu": "https://download.pytorch.org/whl/cpu",
    "cuda": "https://download.pytorch.org/whl/cu130",
}
# Gigabytes free before a start: measured size of the result (a CUDA build: 4.3 to 6.8), and room
# for pip to unpack in.
ROOM = {"cpu": 2.5, "cuda": 10.0, "older": 1.5}
# What is imported over and over: by cases in any torch, and by notebooks and tests.
LLAMA = ["transformers.models.llama.modeling_llama", "transformers.generation.utils"]
USED = LLAMA + [
    "transformers.models.glm.modeling_glm", "matplotlib.pyplot", "ipywidgets", "anywidget",
    "ipykernel.kernelapp", "ipykernel.inprocess", "jupyterlab.labapp", "nbconvert.exporters",
    "papermill", "nbval.plugin", "pytest_timeout", "playwright.sync_api",
]
BEGAN = time.monotonic()


class Stop(Exception):
    """A reason to stop, in one line that says what to do about it."""


class Unavailable(Exception):
    """Why another torch cannot be had here. The notebooks go on without it."""


def say(text):
    print(f"{time.monotonic() - BEGAN:6.1f} s  {text}", flush=True)


# ------------------------------------------------------------------ what this machine is


def check_python(version):
    """Stop unless torch has a wheel for this Python; `version` is (major, minor)."""
    if OLDEST <= tuple(version) <= NEWEST:
        return
    old = tuple(version) < OLDEST
    raise Stop(
        "Python {}.{} is too {}: torch 2.13.0 needs Python {}.{} to {}.{}. Name another one, "
        "such as: python3.12 env/create.py, or: make PYTHON=python3.12".format(
            version[0], version[1], "old" if old else "new", *(OLDEST + NEWEST)
        )
    )


def check_platform(system, machine):
    """Stop where torch 2.13.0 is not published at all."""
    if system == "Darwin" and machine == "x86_64":
        raise Stop("torch 2.13.0 has no build for Intel Macs: use Binder or another machine.")
    if system == "Windows" and machine.lower() == "arm64":
        raise Stop("torch 2.13.0 has no build for Windows on Arm: use WSL or Binder.")


def check_room(gigabytes, free=None):
    """Stop before a disk is filled; `free` is in bytes."""
    if free is None:
        free = shutil.disk_usage(ROOT).free
    if free < gigabytes * 1e9:
        raise Stop(
            f"not enough room on the disk: {free / 1e9:.1f} GB free at {ROOT}, "
            f"{gigabytes:.1f} GB needed."
        )


def has_gpu():
    """True where nvidia-smi lists a GPU. An installed driver alone proves nothing."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return False
    try:
        listed = subprocess.run([tool, "-L"], stdout=subprocess.PIPE, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return listed.returncode == 0 and b"GPU 0" in listed.stdout


def torch_sources(system, gpu, cuda):
    """Return where to look for torch, in order: 'cpu', 'cuda' (PyTorch's), 'default' (pip's own).

    On Linux, on Arm too, the wheel that PyPI has is the CUDA build. PyPI's wheels for macOS and
    Windows are CPU builds.
    """
    if cuda and system == "Darwin":
        raise Stop("torch has no CUDA build for macOS: leave --cuda out.")
    if system == "Windows" and cuda:
        return ["cuda"]
    if system == "Linux" and not (gpu or cuda):
        return ["cpu", "default"]
    return ["default"]


# ------------------------------------------------------------------ running things


def environment(extra=None):
    """This process's environment without what would lead a fresh interpreter astray."""
    astray = ("PYTHONPATH", "PYTHONHOME", "PYTHONDONTWRITEBYTECODE")
    kept = {name: value for name, value in os.environ.items() if name not in astray}
    kept.update(PIP_USER="0", PIP_NO_INPUT="1", PIP_DISABLE_PIP_VERSION_CHECK="1")
    kept.update(PYTHONNOUSERSITE="1", LC_ALL="C.UTF-8", DEBIAN_FRONTEND="noninteractive")
    kept.update(extra or {})
    return kept


def run(command, extra=None, cwd=ROOT):
    """Run a command; return (whether it succeeded, its output). The log keeps every line."""
    command = [str(part) for part in command]
    try:
        done = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment(extra),
            cwd=str(cwd), encoding="utf-8", errors="replace", check=False,
        )
        ok, text = done.returncode == 0, done.stdout
    except OSError as error:
        ok, text = False, f"{error}\n"
    LOG.parent.mkdir(exist_ok=True)
    with LOG.open("a", encoding="utf-8") as log:
        log.write("$ {}\n{}\n".format(" ".join(command), text))
    return ok, text


def pip(python, *arguments):
    return run([python, "-m", "pip", *arguments])


def install(python, *arguments):
    """pip install, without compiling every file: start() compiles what is used."""
    return pip(python, "install", "--no-compile", *arguments)


def start(command, extra=None, modules=()):
    """Import torch and `modules` in an interpreter; return torch's version, or None.

    It proves that they start, and leaves them compiled: where PYTHONDONTWRITEBYTECODE is set, as
    in many containers, every later import would compile again, half a minute for transformers.
    """
    lines = ["import torch"]
    lines += [f"try: import {name}\nexcept ImportError: pass" for name in modules]
    lines += ["print('torch=' + torch.__version__)"]
    ok, text = run([*command, "-c", "\n".join(lines)], extra)
    found = re.search(r"^torch=(.+)$", text, re.M)
    return found.group(1) if ok and found else None


def complaint(text):
    """The line in a tool's output that says most, for an error of one line."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    marked = [line for line in lines if re.match(r"(ERROR|E|\w*Error):", line)]
    offline = re.search(r"connection broken|could not resolve|timed out|unreachable", text, re.I)
    line = (marked or lines or ["it said nothing"])[-1][:160]
    return line + (" [no network?]" if offline else "")


def pip_failed(what, text):
    return Stop(
        f"pip could not install {what}: {complaint(text)} (whole output: {LOG.relative_to(ROOT)})"
    )


def write_json(path, value):
    """Write under a temporary name first, so that an interrupted run leaves no half stamp."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".new")
    temporary.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    os.replace(temporary, path)


def read_json(path):
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}


def stamp(torch_id):
    """A hash of everything that decides what gets installed, and where."""
    entry = torches()[torch_id]
    total = hashlib.sha256(repr((str(ROOT), entry["version"], entry.get("packages"))).encode())
    for name in ["create.py"] + (["requirements.txt"] if torch_id == MAIN else []):
        total.update((ENV / name).read_bytes())
    return total.hexdigest()


def torches():
    """Return {id: entry} from torches.toml."""
    try:
        import tomllib
    except ImportError:  # Python 3.10, whose pip carries the same parser
        try:
            from pip._vendor import tomli as tomllib
        except ImportError:
            raise Stop("Python 3.10 needs pip here: install it (Debian: python3-pip).") from None
    text = (ENV / "torches.toml").read_text(encoding="utf-8")
    return {entry["id"]: entry for entry in tomllib.loads(text)["torch"]}


# ------------------------------------------------------------------ torch, and only the right one


def python_in(venv):
    return venv / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def make_venv(venv, python=sys.executable):
    """Make an empty virtual environment unless a working one is there."""
    if python_in(venv).exists() and pip(python_in(venv), "--version")[0]:
        return
    ok, text = run([python, "-c", "import ensurepip, venv"])
    if not ok:
        raise Stop(
            "this Python cannot make virtual environments: on Debian and Ubuntu install "
            "python3-venv (apt-get install python3-venv), then run this again."
        )
    ok, text = run([python, "-m", "venv", "--clear", venv])
    if not ok:
        raise Stop(f"could not make {venv.relative_to(ROOT)}: {complaint(text)}")


def cuda_packages(report):
    """Names in pip's installation report that only a CUDA build of torch brings."""
    names = [item["metadata"]["name"].lower() for item in report.get("install", [])]
    return sorted(n for n in names if n == "triton" or n.startswith(("nvidia-", "cuda-")))


def check_plan(python, requirement):
    """Ask pip what it would install, and stop if that is a CUDA build nobody asked for.

    fast-deps: of a wheel whose metadata the index does not offer, read the end and not all of it.
    """
    plan = LOG.with_name("plan.json")
    ok, text = pip(
        python, "install", "--dry-run", "--quiet", "--use-feature=fast-deps", "--report", plan,
        requirement,
    )
    if not ok:
        raise pip_failed(requirement, text)
    found = cuda_packages(read_json(plan))
    if found:
        raise Stop(
            f"pip would install {requirement} as a CUDA build, with {found[0]} and "
            f"{len(found) - 1} more packages of several gigabytes, which nobody asked for: "
            f"PyTorch's CPU index ({INDEX['cpu']}) gave nothing. --cuda permits the CUDA build."
        )


def install_torch(python, version, sources, allow_cuda, exact=False):
    """Install one version of torch from the first source that has it.

    `exact` takes only the build without a local label such as +cpu: on Linux, CUDA's.
    """
    plain = f"torch==={version}" if exact else f"torch=={version}"
    for source in sources:
        if source == "default":
            if not allow_cuda:
                check_plan(python, plain)
            ok, text = install(python, plain)
            if not ok:
                raise pip_failed(plain, text)
            return
        # One package from this index and nothing else: what torch depends on comes from pip's
        # usual index. Two short tries, because a machine without this index must not hang.
        # The label, because pip looks into an extra index of its settings too, and a CUDA build
        # without what it depends on does not start. On Arm, CPU builds may have none.
        cpu = "+cpu" if platform.machine() == "x86_64" else ""
        wanted = "torch=={}{}".format(version, "+cu130" if source == "cuda" else cpu)
        ok, text = install(
            python, "--no-deps", "--index-url", INDEX[source], "--retries", "1",
            "--timeout", "8", wanted,
        )
        if ok:
            return
        say(f"    not from {INDEX[source]} ({complaint(text)[:80]})")
        if source == sources[-1]:
            raise pip_failed(wanted, text)


# ------------------------------------------------------------------ .venv


def link_project(python):
    """Make `import cases` work in this environment, wherever it is started.

    A .pth line, relative so that it survives a move; an editable install would need setuptools
    from the network.
    """
    ok, text = run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"])
    site = os.path.realpath(text.strip().splitlines()[-1])
    line = os.path.relpath(os.path.realpath(str(ROOT)), site)
    Path(site, "half_truths.pth").write_text(line + "\n", encoding="utf-8")


def main_is_ready(cuda):
    """True if .venv was made by these very files, here, and still starts."""
    made = read_json(ROOT / ".venv" / "half_truths.json")
    if made.get("stamp") != stamp(MAIN) or (cuda and not made["cuda"]):
        return False
    probe = (
        "import importlib.metadata as m, importlib.util as u; m.version('torch'); "
        "m.version('jupyterlab'); assert u.find_spec('cases')"
    )
    return run([python_in(ROOT / ".venv"), "-c", probe])[0]


def make_main(cuda):
    if main_is_ready(cuda):
        say(".venv is ready")
        return
    gpu, system = has_gpu(), platform.system()
    check_platform(system, platform.machine())
    venv, version = ROOT / ".venv", torches()[MAIN]["version"]
    sources = torch_sources(system, gpu, cuda)
    if not run([python_in(venv), "-c", "import torch, jupyterlab"])[0]:
        check_room(ROOM["cuda" if cuda or (gpu and system == "Linux") else "cpu"])
    if read_json(venv / "half_truths.json").get("root", str(ROOT)) != str(ROOT):
        shutil.rmtree(str(venv))  # moved or copied: its scripts still point at the old place
    say(f"Python {platform.python_version()}, {system} {platform.machine()}, "
        + ("a GPU" if gpu else "no GPU"))
    say("making .venv")
    make_venv(venv)
    python = python_in(venv)
    upgrade_pip(python)
    say(f"installing torch {version} (half a minute or more)")
    install_torch(python, version, sources, cuda or gpu, exact=cuda and system == "Linux")
    say("installing the other packages (a minute or two)")
    ok, text = install(python, "-r", ENV / "requirements.txt")
    if not ok:
        raise pip_failed("env/requirements.txt", text)
    link_project(python)
    say("starting them once")
    version = start([python], modules=USED)
    if version is None:
        raise Stop(f"torch is installed but does not start (whole output: {LOG.relative_to(ROOT)})")
    write_json(venv / "half_truths.json", {"stamp": stamp(MAIN), "root": str(ROOT), "cuda": cuda})
    say(f".venv is ready, torch {version}")


def upgrade_pip(python):
    """Old pips resolve twice as slowly, and before 23.2 fetch whole wheels to read metadata."""
    ok, text = pip(python, "--version")
    found = re.search(r"pip (\d+)", text).group(1)
    if int(found) < 24:
        say(f"renewing pip {found}")
        ok, text = pip(python, "install", "--upgrade", "pip>=24")
        if not ok:
            raise pip_failed("a newer pip", text)


# ------------------------------------------------------------------ the other torches


def debian_torch(home):
    """Return (command, env) that starts Debian 12's torch 1.13: installed, or unpacked here."""
    try:
        system = platform.freedesktop_os_release()
    except OSError:
        system = {}
    if (system.get("ID"), system.get("VERSION_ID")) != ("debian", "12"):
        raise Unavailable("torch 1.13 is taken from Debian 12's python3-torch")
    command = ["/usr/bin/python3"]
    if (start(command) or "").startswith("1.13"):
        return command, {}
    if not run([*command, "--version"])[0]:
        raise Unavailable("Debian's own python3 is not installed")
    say("unpacking Debian's python3-torch under .torches, without installing it")
    root = unpack_debian(home)
    # Debian keeps BLAS and others in folders that only an installation would link to.
    found = [f for top in ("lib", "usr/lib") for f in (root / top).rglob("lib*.so*")]
    libraries = {str(library.parent) for library in found}
    return command, {
        "PYTHONPATH": str(root / "usr/lib/python3/dist-packages"),
        "LD_LIBRARY_PATH": os.pathsep.join(sorted(libraries)),
    }


def unpack_debian(home):
    """Fetch python3-torch and what it lacks here with apt's own checks, and unpack it all.

    The lists and the cache are private ones, so no rights are needed. apt simulates the
    installation; packages that are installed in any version already are not touched.
    """
    root, work = home / "root", home / "apt"
    shutil.rmtree(str(home), ignore_errors=True)
    for part in (root, work / "lists" / "partial", work / "cache" / "archives" / "partial"):
        part.mkdir(parents=True)
    options = {
        "Dir::State::Lists": work / "lists", "Dir::Cache": work / "cache",
        "Debug::NoLocking": 1, "APT::Sandbox::User": "root", "APT::Install-Recommends": 0,
        "Acquire::Retries": 1, "Acquire::http::Timeout": 10, "Acquire::https::Timeout": 10,
    }
    apt = ["apt-get", *(f"-o{name}={value}" for name, value in options.items())]
    run([*apt, "update"])  # one dead third-party source fails this; the next line decides
    ok, text = run([*apt, "--simulate", "install", "python3-torch"])
    wanted = ["=".join(found) for found in re.findall(r"^Inst (\S+) \((\S+)", text, re.M)]
    if not ok or not wanted:
        raise Unavailable(f"apt cannot find python3-torch: {complaint(text)}")
    ok, text = run([*apt, "download", *wanted], cwd=work)
    if not ok:
        raise Unavailable(f"apt could not fetch python3-torch: {complaint(text)}")
    for package in sorted(work.glob("*.deb")):
        ok, text = run(["dpkg-deb", "--extract", package, root])
        if not ok:
            raise Unavailable(f"{package.name} did not unpack: {complaint(text)}")
    shutil.rmtree(str(work))
    return root


def add_packages(home, entry, command, extra):
    """Put the transformers of its time into a folder beside Debian's torch.

    Everything is pinned and nothing is resolved, so neither torch nor a second numpy comes in.
    Return (the environment to start it with, whether the packages are there).
    """
    ok, text = run([*command, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"])
    venv, site = python_in(ROOT / ".venv"), home / "site"
    shutil.rmtree(str(site), ignore_errors=True)
    ok, text = install(
        venv if venv.exists() else sys.executable, "--target", site, "--no-deps",
        "--only-binary", ":all:", "--python-version", text.strip(), *entry["packages"],
    )
    if not ok:
        say(f"    without {entry['packages'][0]}: {complaint(text)}")
        return extra, False
    path = [str(site)] + ([extra["PYTHONPATH"]] if extra else [])
    return dict(extra, PYTHONPATH=os.pathsep.join(path)), True


def venv_torch(home, entry, cuda):
    """Make a venv with that torch. Return (its Python, whether the packages are there)."""
    sources = torch_sources(platform.system(), False, cuda)
    if sources == ["cuda"]:
        raise Unavailable("only torch 2.13 has a CUDA build here on Windows: leave --cuda out.")
    python = python_for(entry)
    if python is None:
        raise Unavailable(f"torch {entry['version']} needs a Python {entry['python']}")
    make_venv(home, python)
    inside = python_in(home)
    upgrade_pip(inside)
    install_torch(inside, entry["version"], sources, cuda, exact=cuda)
    say(f"    adding {entry['packages'][0]}")
    # torch once more: from the CPU index it came without what it depends on.
    ok, text = install(inside, f"torch=={entry['version']}", *entry["packages"])
    if not ok:
        say(f"    without {entry['packages'][0]}: {complaint(text)}")
    return inside, ok


def python_for(entry):
    """Path of a Python that a torch has wheels for, or None: this one, or the newest that starts.

    pyenv's shims exist and may not start.
    """
    ends = [int(minor) for minor in re.findall(r"3\.(\d+)", entry["python"])]
    found = [sys.executable] if ends[0] <= sys.version_info[1] <= ends[-1] else []
    found += [shutil.which(f"python3.{n}") for n in range(ends[-1], ends[0] - 1, -1)]
    return next((p for p in found if p and run([p, "-c", "import ensurepip, venv"])[0]), None)


def older_is_ready(home, cuda=False):
    """True if a torch was made by these very files and is still where it was."""
    made = read_json(home / "interpreter.json")
    if made.get("stamp") != stamp(home.name) or not Path(made["command"][0]).exists():
        return False
    if cuda and made["torch"].endswith("+cpu"):
        return False
    find = "import importlib.util as u, sys; sys.exit(u.find_spec('torch') is None)"
    return run([*made["command"], "-c", find], made["env"])[0]


def make_older(torch_id, allow_cuda=False):
    """Make `.torches/<id>/interpreter.json`: how to start that torch.

    That file is written last and taken away first: a folder without it is half-made, and is made
    afresh. Raises Unavailable or Stop, and then leaves nothing.
    """
    home, entry = ROOT / ".torches" / torch_id, torches()[torch_id]
    path = home / "interpreter.json"
    if not path.exists():
        remove(torch_id)
        check_room(ROOM["cuda" if allow_cuda and torch_id != DEBIAN else "older"])
    say(f"making {torch_id} (a minute or more)")
    try:
        path.unlink(missing_ok=True)
        if torch_id == DEBIAN:
            command, extra = debian_torch(home)
            say(f"    adding {entry['packages'][0]}")
            extra, whole = add_packages(home, entry, command, extra)
        else:
            python, whole = venv_torch(home, entry, allow_cuda)
            command, extra = [str(python)], {}
        version = start(command, extra, LLAMA)
        if version is None:
            raise Unavailable(f"{torch_id} does not start ({LOG.relative_to(ROOT)})")
    except BaseException:  # Control-C too
        remove(torch_id)
        raise
    made = {"id": torch_id, "command": command, "env": extra, "torch": version}
    # Without a stamp the next run tries again to get what is missing.
    made["stamp"] = stamp(torch_id) if whole else None
    write_json(path, made)
    say(f"{torch_id} is ready, torch {version}")


def remove(torch_id):
    """Delete a torch made here, if there is one. Debian's own stays installed."""
    home = ROOT / ".torches" / torch_id
    (home / "interpreter.json").unlink(missing_ok=True)  # first: what is left is not live
    if home.exists():
        shutil.rmtree(str(home))


def make_any_older():
    """Debian's torch where that works, else the stand-in, else a line that says so."""
    for torch_id in (DEBIAN, STAND_IN):
        if older_is_ready(ROOT / ".torches" / torch_id):
            say(f"{torch_id} is ready")
            return
    declined, reasons = ROOT / ".torches" / "declined.json", []
    stamps = [stamp(DEBIAN), stamp(STAND_IN)]
    if read_json(declined).get("stamps") == stamps:
        say(f"no older torch, as before: recorded evidence ({DEBIAN} or {STAND_IN} tries again)")
        return
    for torch_id in (DEBIAN, STAND_IN):
        try:
            make_older(torch_id)
            return
        except (Unavailable, Stop) as reason:
            reasons.append(str(reason))
    write_json(declined, {"stamps": stamps, "reasons": reasons})
    say("no older torch here, so recorded evidence stands in for it: " + "; ".join(reasons))


# ------------------------------------------------------------------ the command line


class Parser(argparse.ArgumentParser):
    def error(self, message):
        """Bad arguments: one line on standard error, exit 2."""
        self.exit(2, f"{self.prog}: {message}\n")


def parse(arguments):
    """Return the arguments; no `ids` means everything. 'main' in them is MAIN."""
    allowed = list(torches())
    parser = Parser(prog="env/create.py", description=__doc__.splitlines()[0])
    parser.add_argument("ids", nargs="*", metavar="ID", help=", ".join(allowed))
    parser.add_argument("--only", metavar="ID", help="the same, and 'main' for " + MAIN)
    parser.add_argument("--cuda", action="store_true", help="permit torch's CUDA build")
    parser.add_argument("--remove", action="store_true", help="delete torches that were made")
    given = parser.parse_args(arguments)
    named = given.ids + ([given.only] if given.only else [])
    given.ids = [MAIN if torch_id == "main" else torch_id for torch_id in named]
    for torch_id in given.ids:
        if torch_id not in allowed:
            parser.error(f"unknown torch {torch_id!r}; allowed: main, {', '.join(allowed)}")
    if given.remove and (not given.ids or MAIN in given.ids):
        parser.error(f"--remove takes one or more of: {', '.join(allowed[1:])}")
    return given


def main(arguments):
    """Return the exit status: 0 made, 1 stopped with one line; bad arguments exit 2."""
    try:
        check_python(sys.version_info[:2])
        given = parse(arguments)
        if LOG.exists():
            LOG.unlink()
        if given.remove:
            for torch_id in given.ids:
                remove(torch_id)
                say(f"{torch_id} is gone")
            return 0
        if not given.ids or MAIN in given.ids:
            make_main(given.cuda)
        if not given.ids:
            make_any_older()
        for torch_id in given.ids:
            if torch_id == MAIN:
                continue
            if older_is_ready(ROOT / ".torches" / torch_id, given.cuda):
                say(f"{torch_id} is ready")
            else:
                make_older(torch_id, given.cuda)
    except (Stop, Unavailable) as reason:
        print(f"env/create.py: {reason}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("env/create.py: stopped; run it again to go on", file=sys.stderr)
        return 130
    except OSError as error:
        print(f"env/create.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
