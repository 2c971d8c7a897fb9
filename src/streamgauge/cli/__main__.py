"""`python -m streamgauge.cli` is the command `streamgauge`."""

from streamgauge.cli import main

main()
