"""Print the packages of the lock that only tests and development need: the image is made without them."""

from importlib.metadata import distribution, distributions

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

WANTED = "chartferry[celery,cluster,kubernetes,lineage,postgres,traces]"


def walk(wanted: Requirement, met: set[tuple[str, str]]) -> None:
    """Add to `met` what a requirement needs: names, each with an extra of it or none."""
    name = canonicalize_name(wanted.name)
    for extra in {"", *wanted.extras}:
        if (name, extra) in met:
            continue
        met.add((name, extra))
        for each in map(Requirement, distribution(name).requires or ()):
            if each.marker is None or each.marker.evaluate({"extra": extra}):
                walk(each, met)


def unneeded() -> list[str]:
    met: set[tuple[str, str]] = set()
    walk(Requirement(WANTED), met)
    return sorted({canonicalize_name(each.name) for each in distributions()} - {name for name, _ in met})


if __name__ == "__main__":
    print("\n".join(unneeded()))
