"""``Fate``: injects errors on purpose, to expose code that is not idempotent."""

from __future__ import annotations

import logging
import math
import os
import random
import sys
import threading
from collections.abc import Mapping
from datetime import UTC, datetime, tzinfo
from zoneinfo import ZoneInfo

from .._timeuuid import datetime_of
from ..clock import Clock, SystemClock
from ..errors import ConfigError, FateError

__all__ = ["ENVIRONMENT", "NO_FATE", "OFFICE_HOURS", "Fate", "NoFate"]

ENVIRONMENT = "RSCYLLA_FATE"
"""Environment variable: ``0`` switches every ``Fate`` off, another number replaces its general probability."""

OFFICE_HOURS = (9, 17)
"""A window for ``Fate``: 09:00 to 17:00, end excluded, when people are at work to see what breaks."""

logger = logging.getLogger("rscylla.fate")


class NoFate:
    """Never raises. The fate of runs that are given none."""

    def tempt(self, point: str = "") -> None:
        """Do nothing."""

    def __repr__(self) -> str:
        return "NO_FATE"


NO_FATE = NoFate()
"""The fate that never strikes."""


class Fate:
    """Raises ``FateError`` with a given probability each time ``tempt`` is called. Thread-safe.

    The same seed produces the same errors for the same sequence of calls. The seed is logged when the object is created
    and named in each error, together with the number of the draw.

    Args:
        probability: Probability of an error for each call, 0 to 1, unless one of the next two arguments applies.
        per_module: Probabilities by module name of the caller of ``tempt``; the longest matching package prefix wins.
        per_point: Probabilities by the name of the point; they override those of modules.
        window: ``(first_hour, end_hour)``, half-open, Monday to Friday: errors happen only inside. None: at any time.
        tz: Time zone of the window, or its IANA name; default: UTC.
        seed: Makes errors repeatable; default: random.
        enabled: False switches this fate off permanently. By default, the environment variable ``RSCYLLA_FATE``,
            which is read once here, can switch it off (``0``) or replace *probability* (a number up to 1). ``0`` there
            also overrides ``enabled=True``.
        clock: The clock for the window.

    Raises:
        ConfigError: a probability, hour, time zone, or the environment variable is invalid.
    """

    def __init__(
        self,
        probability: float,
        *,
        per_module: Mapping[str, float] | None = None,
        per_point: Mapping[str, float] | None = None,
        window: tuple[int, int] | None = None,
        tz: tzinfo | str | None = None,
        seed: int | None = None,
        enabled: bool | None = None,
        clock: Clock | None = None,
    ) -> None:
        override = _environment()
        self._default = _probability("probability", probability)
        if override is not None and override > 0 and enabled is not False:
            self._default = override
        self._per_module = {m: _probability(f"per_module[{m!r}]", p) for m, p in (per_module or {}).items()}
        self._per_point = {n: _probability(f"per_point[{n!r}]", p) for n, p in (per_point or {}).items()}
        self._window = _hours(window)
        self._tz = _zone(tz)
        self._clock = clock or SystemClock()
        self.enabled = enabled is not False and override != 0
        self.seed = random.SystemRandom().getrandbits(32) if seed is None else seed
        """The seed; pass it to another ``Fate`` to repeat the same errors."""
        self.tempted = 0
        """How often ``tempt`` was called inside the window."""
        self.struck = 0
        """How often ``tempt`` raised."""
        self._random = random.Random(self.seed)
        self._lock = threading.Lock()
        if self.enabled:
            logger.info("fate is on: probability %g, seed %d", self._default, self.seed)

    def tempt(self, point: str = "") -> None:
        """Maybe raise ``FateError``. *point* names the call, for the message and for ``per_point``."""
        if not self.enabled or not self._inside_window():
            return
        # The frame of the direct caller, whose module the probabilities are for.
        module = sys._getframe(1).f_globals.get("__name__", "") if self._per_module else ""  # noqa: SLF001
        probability = self._chance(point, module)
        with self._lock:
            self.tempted += 1
            draw = self.tempted
            # Drawn even if the probability is 0: else a changed probability would shift the errors of other calls.
            if self._random.random() >= probability:
                return
            self.struck += 1
        where = f" at {point}" if point else ""
        raise FateError(
            f"fate struck{where} (seed {self.seed}, draw {draw}), injected on purpose; set {ENVIRONMENT}=0 to "
            "disable it"
        )

    def _chance(self, point: str, module: str) -> float:
        if point in self._per_point:
            return self._per_point[point]
        if self._per_module:
            prefix = module
            while prefix:
                if prefix in self._per_module:
                    return self._per_module[prefix]
                prefix = prefix.rpartition(".")[0]
        return self._default

    def _inside_window(self) -> bool:
        if self._window is None:
            return True
        local: datetime = datetime_of(self._clock.now_us()).astimezone(self._tz)
        first, end = self._window
        return local.weekday() < 5 and first <= local.hour < end

    def __repr__(self) -> str:
        return f"Fate({self._default:g}, seed={self.seed}{'' if self.enabled else ', enabled=False'})"


def _probability(name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value) or not 0 <= value <= 1:
        raise ConfigError(f"fate: {name} is {value!r}; it must be a number from 0 to 1")
    return float(value)


def _hours(window: tuple[int, int] | None) -> tuple[int, int] | None:
    if window is None:
        return None
    try:
        first, end = window
        valid = 0 <= first < end <= 24 and int(first) == first and int(end) == end
    except (TypeError, ValueError):
        valid = False
    if not valid:
        raise ConfigError(f"fate: window is {window!r}; it must be (first_hour, end_hour) with 0 <= first < end <= 24")
    return first, end


def _zone(tz: tzinfo | str | None) -> tzinfo:
    if tz is None:
        return UTC
    if isinstance(tz, tzinfo):
        return tz
    try:
        return ZoneInfo(tz)
    except (KeyError, ValueError, OSError, TypeError) as error:
        raise ConfigError(
            f"fate: {tz!r} is not a time zone; use a tzinfo or an IANA name such as Europe/Paris"
        ) from error


def _environment() -> float | None:
    text = os.environ.get(ENVIRONMENT, "").strip()
    if not text:
        return None
    try:
        return _probability(ENVIRONMENT, float(text))
    except ValueError as error:
        raise ConfigError(
            f"the environment variable {ENVIRONMENT} is {text!r}; it must be a number from 0 to 1"
        ) from error
