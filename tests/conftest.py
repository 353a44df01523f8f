"""Threads of a step sleep when they wait: tests share their cores with others."""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")
