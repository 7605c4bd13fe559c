"""Make everything the notebooks need:  python3 env/create.py

Two things come out of it: `.venv`, the environment that the notebooks and the tests run in, and
under `.torches` an older torch, so that a case can be run on both. Nothing outside this folder
is changed, and nothing in it that this script did not make: a link or a stranger's folder in one of
these places is refused. Run it as often as you like: what is there already is left alone, and what
an interrupted run left is made anew.

    python3 env/create.py                     .venv and an older torch
    python3 env/create.py --only main         .venv alone
    python3 env/create.py torch-2.6           that torch alone; torches.toml lists them
    python3 env/create.py --cuda torch-2.6    as its CUDA build, several gigabytes
    python3 env/create.py --remove torch-2.6  deletes it; without ID all that was made
    python3 env/create.py --unpack            as if Debian's python3-torch were not installed

It uses the standard library only, because it runs before anything is installed, and no syntax
that an old Python cannot read, so that an old Python gets a sentence and not a SyntaxError.
"""

import argparse
import contextlib
import errno
import hashlib
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ENV = ROOT / "env"
LOG = ROOT / "build" / "create.log"
MARK = "half_truths.json"  # in every folder made here, as its first file: who made it, and how far
DPKG_STATUS = "/var/lib/dpkg/status"
SYSTEM_PYTHON = "/usr/bin/python3"  # the one that Debian's python3-torch belongs to
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


class Stopped(KeyboardInterrupt):
    """A signal asked to stop; `number` is which."""

    def __init__(self, number=signal.SIGINT):
        super().__init__(number)
        self.number = number


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


def check_room(gigabytes, old=None):
    """Stop before a disk is filled. `old` is a folder that will make room first."""
    free = shutil.disk_usage(ROOT).free
    if old is not None:
        free += sum(os.lstat(os.path.join(top, name)).st_size
                    for top, _, names in os.walk(str(old)) for name in names)
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


waiting = None  # a list while signals must wait: then they are noted in it


def stop(number, frame):
    if waiting is None:
        raise Stopped(number)
    waiting.append(number)


def listen():
    """From now on every signal that asks this process to stop raises Stopped."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number and signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, stop)


@contextlib.contextmanager
def undisturbed():
    """Let signals wait until the block is done."""
    global waiting
    waiting = []
    try:
        yield
    finally:
        arrived, waiting = waiting, None
        if arrived:
            raise Stopped(arrived[0])


def run(command, extra=None, cwd=ROOT):
    """Run a command; return (whether it succeeded, its output). The log keeps every line.

    It gets a process group of its own, so that all that it started can be ended with it.
    """
    command, process = [str(part) for part in command], None
    try:
        with undisturbed():  # a signal between the start and the name would leave an orphan
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, env=environment(extra), cwd=str(cwd), encoding="utf-8",
                errors="replace", start_new_session=os.name != "nt",
            )
        text = process.communicate()[0]
        ok = process.returncode == 0
    except OSError as error:
        ok, text = False, f"{error}\n"
    except BaseException:
        if process is not None:
            end(process)
        raise
    note("$ {}\n{}\n".format(" ".join(command), text))
    return ok, text


def end(process):
    """End a process and all that it started: asked first, because pip then tidies up."""
    ways = [signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGKILL", None)]
    with undisturbed():
        for way in ways if os.name != "nt" else ():
            for _ in range(30):
                try:
                    os.killpg(process.pid, way)
                except ProcessLookupError:
                    break
                way = 0  # asked once; from now on: is anyone still there?
                process.poll()
                time.sleep(0.1)
        if os.name == "nt":
            subprocess.call(["taskkill", "/T", "/F", "/PID", str(process.pid)],
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        process.wait()


def note(text):
    """Add to the log. It is no reason to stop: a checkout that is ready may be read-only."""
    try:
        LOG.parent.mkdir(exist_ok=True)
        with LOG.open("a", encoding="utf-8") as log:
            log.write(text)
    except OSError:
        pass


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
    line = conflict(text) or (marked or lines or ["it said nothing"])[-1][:160]
    return line + (" [no network?]" if offline else "")


def conflict(text):
    """What pip's resolver says that it could not bring together, in one line; '' if it did not.

    Its own last line is "ResolutionImpossible: for help visit …", which says nothing.
    """
    found = re.search(r"Cannot install (.+?) because", text)
    if not found:
        return ""
    parts = re.search(r"conflict is caused by:\n((?:[ \t]+\S.*\n?)+)", text)
    lacking = re.search(r"no matching distributions available.*:\n((?:[ \t]+\S.*\n?)+)", text)
    said = [line.strip() for line in parts.group(1).splitlines()] if parts else []
    if lacking:
        said.append("found nowhere: " + ", ".join(lacking.group(1).split()))
    return f"cannot install {found.group(1)[:100]}: {'; '.join(said)}"[:400]


def pip_says(python, text):
    """pip's complaint and, where a constraint had a part in it, who set that."""
    line = complaint(text)
    return line + (constraint_set(python) if "(constraint)" in text else "")


def constraint_set(python):
    """Where pip's constraint comes from, as words to be added; '' if that cannot be found."""
    if os.environ.get("PIP_CONSTRAINT"):
        return f" [the constraint: PIP_CONSTRAINT={os.environ['PIP_CONSTRAINT']}]"
    place = None
    for line in pip(python, "config", "debug")[1].splitlines():
        if ", exists: " in line:
            place = line.strip().split(", exists: ")[0]
        found = re.match(r"\s+[\w-]+\.constraint: (.+)", line)
        if found and place:
            return f" [the constraint: {found.group(1)}, which {place} names]"
    return ""


FULL = "No space left on device"


def pip_failed(what, python, text):
    """Return the exception that says so. A full disk leaves halves, so it is no mere Stop."""
    if FULL in text:
        return OSError(errno.ENOSPC, FULL)
    reason = pip_says(python, text)
    return Stop(f"pip could not install {what}: {reason} (whole output: {LOG.relative_to(ROOT)})")


def write_json(path, value):
    """Write under a temporary name first, so that an interrupted run leaves no half stamp."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".new")
    try:
        temporary.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def read_json(path):
    """Return the object in a file; an empty one where there is none, or the file is damaged."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def stamp(torch_id):
    """A hash of everything that decides what gets installed, and where."""
    entry = torches()[torch_id]
    total = hashlib.sha256(repr((str(ROOT), entry["version"], entry.get("packages"))).encode())
    for name in ["create.py"] + (["requirements.txt"] if torch_id == MAIN else []):
        total.update((ENV / name).read_bytes())
    if torch_id == MAIN:  # the others have the Python that they need
        total.update(repr(tuple(sys.version_info[:2])).encode())
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


# ------------------------------------------------------------------ what is ours


def is_link(path):
    return os.path.islink(str(path)) or getattr(os.path, "isjunction", os.path.islink)(str(path))


def check_ours(path):
    """Stop unless a place is free, or holds a folder that this script made."""
    name = path.relative_to(ROOT)
    if is_link(path):
        raise Stop(f"{name} is a link, to {os.path.realpath(str(path))}: what is there stays as it "
                   f"is. Remove the link (not what it points to), then run this again.")
    if path.exists() and not path.is_dir():
        raise Stop(f"{name} is not a folder: move it away or remove it, then run this again.")
    if path.name != ".torches" and not is_ours(path):
        raise Stop(f"{name} was not made by this script, so it stays as it is: move it away or "
                   f"remove it, then run this again.")


def is_ours(folder):
    """True for a folder that carries our mark, and for one that is empty or is not there.

    Torches made before there was a mark have interpreter.json.
    """
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    return bool(names & {MARK, "interpreter.json"}) or names <= {MARK + ".new"}


def check_place(torch_id):
    """Stop if the place of a torch is taken by what is not ours; return that place."""
    if torch_id == MAIN:
        check_ours(ROOT / ".venv")
        return ROOT / ".venv"
    check_ours(ROOT / ".torches")
    check_ours(ROOT / ".torches" / torch_id)
    return ROOT / ".torches" / torch_id


def clear(folder):
    """Empty a folder of ours but for its mark, which is the last to go."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.name == MARK:
            continue
        if path.is_dir() and not is_link(path):
            shutil.rmtree(str(path))
        else:
            path.unlink()


# ------------------------------------------------------------------ torch, and only the right one


def python_in(venv):
    return venv / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def has_pip(venv):
    return python_in(venv).exists() and pip(python_in(venv), "--version")[0]


def make_venv(venv, python):
    """Make an empty virtual environment, in a folder of ours, unless a working one is there."""
    if has_pip(venv):
        return
    ok, text = run([python, "-c", "import ensurepip, venv"])
    if not ok:
        raise Stop(
            "this Python cannot make virtual environments: on Debian and Ubuntu install "
            "python3-venv (apt-get install python3-venv), then run this again."
        )
    clear(venv)
    ok, text = run([python, "-m", "venv", venv])
    if not ok and (FULL in text or shutil.disk_usage(ROOT).free < 5e7):
        raise OSError(errno.ENOSPC, FULL)  # ensurepip's own words do not come through
    if not ok:
        raise Stop(f"could not make {venv.relative_to(ROOT)}: {complaint(text)}")


def cuda_packages(report):
    """Names in pip's installation report that only a CUDA build of torch brings."""
    names = [item["metadata"]["name"].lower() for item in report.get("install", [])]
    return sorted(n for n in names if n == "triton" or n.startswith(("nvidia-", "cuda-")))


def check_plan(python, requirement, refused=""):
    """Ask pip what it would install, and stop if that is a CUDA build nobody asked for.

    `refused` says why the CPU build could not be had.
    fast-deps: of a wheel whose metadata the index does not offer, read the end and not all of it.
    """
    plan = LOG.with_name("plan.json")
    ok, text = pip(
        python, "install", "--dry-run", "--quiet", "--use-feature=fast-deps", "--report", plan,
        requirement,
    )
    if not ok:
        raise pip_failed(requirement, python, text)
    found = cuda_packages(read_json(plan))
    if found:
        raise Stop(
            f"pip would install {requirement} as a CUDA build, with {found[0]} and "
            f"{len(found) - 1} more packages of several gigabytes, which nobody asked for"
            f"{refused}. --cuda permits the CUDA build."
        )


def install_torch(python, version, sources, allow_cuda, exact=False):
    """Install one version of torch from the first source that has it.

    `exact` takes only the build without a local label such as +cpu: on Linux, CUDA's.
    """
    plain, refused = f"torch==={version}" if exact else f"torch=={version}", ""
    for source in sources:
        if source == "default":
            if not allow_cuda:
                check_plan(python, plain, refused)
            ok, text = install(python, plain)
            if not ok:
                raise pip_failed(plain, python, text)
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
        if source == sources[-1] or FULL in text:
            raise pip_failed(wanted, python, text)
        reason = pip_says(python, text)
        say(f"    not from {INDEX[source]} ({reason})")
        refused = f". The CPU build, from {INDEX[source]}, was not to be had: {reason}"


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
    """True if .venv was made by these very files and this Python, here, and still starts."""
    made = read_json(ROOT / ".venv" / MARK)
    if made.get("stamp") != stamp(MAIN) or (cuda and not made.get("cuda")):
        return False
    return main_starts()


def main_starts():
    """True if .venv starts and has its packages; without its configuration it would half work."""
    try:
        settings = (ROOT / ".venv" / "pyvenv.cfg").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    if not re.search(r"^home\s*=", settings, re.M):
        return False
    probe = (
        "import importlib.metadata as m, importlib.util as u; m.version('torch'); "
        "m.version('jupyterlab'); assert u.find_spec('cases')"
    )
    return run([python_in(ROOT / ".venv"), "-c", probe])[0]


def why_anew(venv):
    """Why what is in .venv cannot be renewed in place; None if it can, or nothing is there."""
    made, version = read_json(venv / MARK), "{}.{}".format(*sys.version_info[:2])
    if not (venv / MARK).exists():
        return None
    if "busy" in made:
        return "the last run was not finished"
    if made.get("root") != str(ROOT):  # its scripts still point at the old place
        return "it was moved or copied here, or is damaged"
    show = "import sys; print('python=%d.%d' % sys.version_info[:2])"
    ok, text = run([python_in(venv), "-c", show])
    found = re.search(r"^python=(\S+)$", text, re.M) if ok else None
    if found and found.group(1) != version:
        return f"it has Python {found.group(1)}, and this is Python {version}"
    if not found or not has_pip(venv):
        return "it does not start"
    if made.get("stamp") == stamp(MAIN) and not main_starts():
        return "it is damaged"
    return None


def own_python(venv):
    """Path of this Python that is still there when `venv` is emptied, even if it runs from it."""
    python = getattr(sys, "_base_executable", None) or sys.executable
    return os.path.realpath(python) if str(venv) in python else python


def make_main(cuda):
    venv = check_place(MAIN)
    if main_is_ready(cuda):
        say(".venv is ready")
        return
    system = platform.system()
    check_platform(system, platform.machine())
    gpu, before, anew = has_gpu(), read_json(venv / MARK), why_anew(venv)
    if anew or "stamp" not in before:
        check_room(ROOM["cuda" if cuda or (gpu and system == "Linux") else "cpu"], venv)
    say(f"Python {platform.python_version()}, {system} {platform.machine()}, "
        + ("a GPU" if gpu else "no GPU"))
    say(f"making .venv anew: {anew}" if anew else "making .venv")
    python = own_python(venv)
    write_json(venv / MARK, {"root": str(ROOT), "busy": True})
    if anew:
        clear(venv)
    try:
        make_venv(venv, python)
        fill_main(python_in(venv), cuda, gpu)
    except Stop:  # pip gave up by itself: what is there is whole, and the next run goes on with it
        write_json(venv / MARK, {"root": str(ROOT), "stamp": None, "cuda": cuda})
        raise
    version = start([python_in(venv)], modules=USED)
    if version is None:
        raise Stop(f"torch is installed but does not start (whole output: {LOG.relative_to(ROOT)})")
    write_json(venv / MARK, {"stamp": stamp(MAIN), "root": str(ROOT), "cuda": cuda})
    say(f".venv is ready, torch {version}")


def fill_main(python, cuda, gpu):
    """Install into .venv what belongs there."""
    version, system = torches()[MAIN]["version"], platform.system()
    upgrade_pip(python)
    say(f"installing torch {version} (half a minute or more)")
    sources = torch_sources(system, gpu, cuda)
    install_torch(python, version, sources, cuda or gpu, exact=cuda and system == "Linux")
    say("installing the other packages (a minute or two)")
    ok, text = install(python, "-r", ENV / "requirements.txt")
    if not ok:
        raise pip_failed("env/requirements.txt", python, text)
    link_project(python)
    say("starting them once")


def upgrade_pip(python):
    """Old pips resolve twice as slowly, and before 23.2 fetch whole wheels to read metadata."""
    ok, text = pip(python, "--version")
    found = re.search(r"pip (\d+)", text).group(1)
    if int(found) < 24:
        say(f"renewing pip {found}")
        ok, text = pip(python, "install", "--upgrade", "pip>=24")
        if not ok:
            raise pip_failed("a newer pip", python, text)


# ------------------------------------------------------------------ the other torches


def debian_torch(home, unpack=False):
    """Return (command, env) that starts Debian 12's torch 1.13: installed, or unpacked here.

    With `unpack` it is unpacked even where it is installed, as on a newcomer's machine.
    """
    try:
        system = platform.freedesktop_os_release()
    except OSError:
        system = {}
    if (system.get("ID"), system.get("VERSION_ID")) != ("debian", "12"):
        raise Unavailable("torch 1.13 is taken from Debian 12's python3-torch")
    command = [SYSTEM_PYTHON]
    if not unpack and (start(command) or "").startswith("1.13"):
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
    clear(home)
    for part in (root, work / "lists" / "partial", work / "cache" / "archives" / "partial"):
        part.mkdir(parents=True)
    options = {
        "Dir::State::status": status_without_torch(work / "status"),
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


def status_without_torch(path):
    """Write dpkg's list of what is installed, less python3-torch and what only it needs.

    So apt names all that a machine without it lacks. Return the path of that list.
    """
    ok, text = run(["apt-get", "--simulate", "autoremove", "python3-torch"])
    hidden = set(re.findall(r"^Remv (\S+)", text, re.M)) if ok else set()
    if not hidden:
        return DPKG_STATUS
    listed = Path(DPKG_STATUS).read_text(encoding="utf-8", errors="replace")
    kept = [entry for entry in listed.split("\n\n")
            if not hidden & set(re.findall(r"^Package: (\S+)", entry, re.M))]
    path.write_text("\n\n".join(kept), encoding="utf-8")
    return path


def add_packages(home, entry, command, extra):
    """Put the transformers of its time into a folder beside Debian's torch.

    Everything is pinned and nothing is resolved, so neither torch nor a second numpy comes in.
    Return (the environment to start it with, whether the packages are there).
    """
    ok, text = run([*command, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"])
    venv, site = ROOT / ".venv", home / "site"
    inside = python_in(venv) if has_pip(venv) and is_ours(venv) else sys.executable
    shutil.rmtree(str(site), ignore_errors=True)
    ok, text = install(
        inside, "--target", site, "--no-deps",
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


def older_is_ready(home, cuda=False, unpack=False):
    """True if a torch was made by these very files and is still where it was."""
    made = read_json(home / "interpreter.json")
    if made.get("stamp") != stamp(home.name) or not Path(made["command"][0]).exists():
        return False
    if cuda and made["torch"].endswith("+cpu"):
        return False
    if unpack and home.name == DEBIAN and "LD_LIBRARY_PATH" not in made["env"]:
        return False
    find = "import importlib.util as u, sys; sys.exit(u.find_spec('torch') is None)"
    return run([*made["command"], "-c", find], made["env"])[0]


def make_older(torch_id, allow_cuda=False, unpack=False):
    """Make `.torches/<id>/interpreter.json`: how to start that torch.

    That file is written last and taken away first: a folder without it is half-made, and is made
    afresh. Raises Unavailable or Stop, and then leaves nothing.
    """
    home, entry = check_place(torch_id), torches()[torch_id]
    path = home / "interpreter.json"
    damaged = read_json(path).get("stamp") == stamp(torch_id) and not older_is_ready(home)
    if damaged or not path.exists():
        remove(torch_id)
        check_room(ROOM["cuda" if allow_cuda and torch_id != DEBIAN else "older"])
    say(f"making {torch_id} (a minute or more)")
    try:
        write_json(home / MARK, {"root": str(ROOT)})
        path.unlink(missing_ok=True)
        if torch_id == DEBIAN:
            command, extra = debian_torch(home, unpack)
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
    """Delete an environment made here, if there is one. Debian's own torch stays installed."""
    home = check_place(torch_id)
    if not home.exists():
        return
    if (home / "interpreter.json").exists():
        if not (home / MARK).exists():
            write_json(home / MARK, {"root": str(ROOT)})
        (home / "interpreter.json").unlink()  # first: what is left is not live
    clear(home)
    (home / MARK).unlink(missing_ok=True)
    home.rmdir()


def make_any_older(unpack=False):
    """Debian's torch where that works, else the stand-in, else a line that says so."""
    for torch_id in (DEBIAN, STAND_IN):
        if older_is_ready(check_place(torch_id), unpack=unpack):
            say(f"{torch_id} is ready")
            return
    declined, reasons = ROOT / ".torches" / "declined.json", []
    stamps = [stamp(DEBIAN), stamp(STAND_IN), list(sys.version_info[:2]), unpack]
    if read_json(declined).get("stamps") == stamps:
        say(f"no older torch, as before: recorded evidence ({DEBIAN} or {STAND_IN} tries again)")
        return
    for torch_id in (DEBIAN, STAND_IN):
        try:
            make_older(torch_id, unpack=unpack)
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
    parser.add_argument("--unpack", action="store_true",
                        help="unpack Debian's torch even where it is installed")
    parser.add_argument("--remove", action="store_true",
                        help="delete these, if they were made here; without ID all of them")
    given = parser.parse_args(arguments)
    named = given.ids + ([given.only] if given.only else [])
    given.ids = [MAIN if torch_id == "main" else torch_id for torch_id in named]
    for torch_id in given.ids:
        if torch_id not in allowed:
            parser.error(f"unknown torch {torch_id!r}; allowed: main, {', '.join(allowed)}")
    if given.remove and not given.ids:
        given.ids = allowed
    return given


def main(arguments):
    """Return the exit status: 0 made, 1 stopped with one line; bad arguments exit 2."""
    try:
        check_python(sys.version_info[:2])
        given = parse(arguments)
        with contextlib.suppress(OSError):  # as in note()
            LOG.unlink()
        for torch_id in given.ids:
            check_place(torch_id)
        if given.remove:
            for torch_id in given.ids:
                if check_place(torch_id).exists():
                    remove(torch_id)
                    say(f"{torch_id} is gone")
            with contextlib.suppress(OSError):
                (ROOT / ".torches" / "declined.json").unlink()
            with contextlib.suppress(OSError):  # another torch is in it
                (ROOT / ".torches").rmdir()
            return 0
        if not given.ids or MAIN in given.ids:
            make_main(given.cuda)
        if not given.ids:
            make_any_older(given.unpack)
        for torch_id in given.ids:
            if torch_id == MAIN:
                continue
            home = ROOT / ".torches" / torch_id
            if older_is_ready(home, given.cuda, given.unpack):
                say(f"{torch_id} is ready")
            else:
                make_older(torch_id, given.cuda, given.unpack)
    except (Stop, Unavailable) as reason:
        print(f"env/create.py: {reason}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as signalled:
        print("env/create.py: stopped; run it again to go on", file=sys.stderr)
        return 128 + getattr(signalled, "number", signal.SIGINT)
    except OSError as error:
        print(f"env/create.py: {what_the_system_says(error)}", file=sys.stderr)
        return 1
    return 0


def what_the_system_says(error):
    """One line about an OSError, with what to do where that is plain."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk is full at {ROOT}: make room there, then run this again"
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return f"cannot write in {ROOT} ({error}): use a checkout that you may write to"
    return str(error)


if __name__ == "__main__":
    listen()
    sys.exit(main(sys.argv[1:]))
