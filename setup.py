"""The compiled decoder. The project's metadata is in setup.cfg."""

from setuptools import Extension, setup

COMPILED = ("rscylla.types.compiled", "rscylla.cdc.compiled")

# Optional: without a compiler, the installation goes on, and the decoder in Python does the work.
setup(ext_modules=[Extension(name, [name.replace(".", "/") + ".pyx"], optional=True) for name in COMPILED])
