"""Makes the fake database of this folder importable, and the contract suite's assertions readable."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
pytest.register_assert_rewrite(
    "rscylla.testing.contracts", "rscylla.testing.leasecontracts", "rscylla.testing.lettercontracts"
)
