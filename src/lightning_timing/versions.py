"""The versions of installed packages."""

from __future__ import annotations


def version_of(package: str) -> str | None:
    """The version of a package as it was installed; None where it was not."""
    # Imported here, since it would be half of what importing this package costs.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None
