from cases.lab.cli import main

raise SystemExit(main())
