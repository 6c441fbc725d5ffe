"""`python -m seglog` is the command `seglog`."""

import sys

from seglog_command import main

sys.exit(main())
