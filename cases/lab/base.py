"""Where this checkout stands, and its files of TOML."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def read_toml(path):
    """Return a TOML file as a dict."""
    return parse_toml(path.read_text(encoding="utf-8"))


def parse_toml(text):
    """Return TOML as a dict."""
    try:
        import tomllib
    except ImportError:  # Python 3.10; pip carries the same parser
        from pip._vendor import tomli as tomllib
    return tomllib.loads(text)
