"""Import this before nbformat: it saves some seconds of every start.

nbformat imports jsonschema, which imports rfc3987_syntax where that is installed, which builds a
grammar for international web addresses. Without it jsonschema does not check those.
"""

import sys

sys.modules.setdefault("rfc3987_syntax", None)
