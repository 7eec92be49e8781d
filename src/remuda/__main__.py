"""`python -m remuda`: the command, where its script is not on the PATH (as for MPI's ranks)."""

from remuda.cli import main

main()
