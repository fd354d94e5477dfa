"""Addresses of targets."""

from ipaddress import ip_address
from urllib.parse import urlsplit


def is_loopback(url: str) -> bool:
    """True if an address stays on this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
