import sys

# These need no torch, whose import takes longer than the answer, or is the script's to make.
if sys.argv[1:2] == ["explain"]:
    from cases.halftruths.messages.reader import main

    raise SystemExit(main(sys.argv[2:]))
if sys.argv[1:2] == ["autopsy"]:
    from cases.halftruths.script import main

    raise SystemExit(main(sys.argv[2:]))

from cases.cli import main

raise SystemExit(main())
