"""`python -m seglog` is the command `seglog`."""

import sys

from seglog.cli.main import main

sys.exit(main())
