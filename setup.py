"""The packages of a wheel: the folder `conf` becomes `nas_lightning/conf`; all else is in `setup.cfg`."""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["nas_lightning", "nas_lightning.*"]), "nas_lightning.conf"],
    package_dir={"nas_lightning.conf": "conf"},
)
