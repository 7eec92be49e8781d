"""Carries a run: master and workers, on threads, processes or MPI ranks."""
