import sys

if sys.argv[1:2] == ["explain"]:  # needs no torch, whose import takes longer than the answer
    from cases.lab.explain import main

    raise SystemExit(main(sys.argv[2:]))

from cases.lab.cli import main

raise SystemExit(main())
