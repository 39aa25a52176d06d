"""Settings that hold for all tests."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# Machines that run tests are shared: how long one example takes says nothing of the code.
settings.register_profile("rscylla", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("rscylla")
