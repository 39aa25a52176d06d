"""The compiled decoder. The project's metadata is in setup.cfg."""

import runpy

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

# The module by its path: what rscylla imports need not be there yet.
decoder = runpy.run_path("rscylla/_decoder.py")


def extension(room: str, sources: tuple[str, ...]) -> Extension:
    """Return the compiled module of a room, which knows what it was built from."""
    return Extension(
        f"rscylla.{room}.compiled",
        [f"rscylla/{sources[0]}"],
        depends=[f"rscylla/{name}" for name in sources],
        define_macros=[("SUM_OF_SOURCES", f"{decoder['sum_of_sources'](room)}u")],
        # Without a compiler, the installation goes on, and the decoder in Python does the work.
        optional=True,
    )


class BuildAtOnce(build_ext):
    """Compiles the modules side by side; Cython, which is not made for threads, writes their C one after the other."""

    def build_extensions(self) -> None:
        for each in self.extensions:
            each.sources = cythonize(each, force=self.force, quiet=True)[0].sources
        self.parallel = True
        super().build_extensions()


setup(
    cmdclass={"build_ext": BuildAtOnce},
    ext_modules=[extension(room, sources) for room, sources in decoder["SOURCES"].items()],
)
