"""Clients by their addresses, so that one of them delays others little, however many connections it has."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from ipaddress import IPv6Address, ip_address
from typing import Any, Generic, TypeVar

T = TypeVar("T")


def address_of(scope: Mapping[str, Any]) -> str:
    """The address of the client of a request. Of IPv6, the first 64 bits: a client may have all the others.

    >>> address_of({"client": ("10.0.0.1", 4000)}), address_of({"client": ("::ffff:10.0.0.1", 4000)})
    ('10.0.0.1', '10.0.0.1')
    >>> address_of({"client": ("2001:db8:0:1:a::b", 4000)}), address_of({"client": None})
    ('2001:db8:0:1::', '')
    """
    host = (scope.get("client") or ("",))[0]
    try:
        found = ip_address(host)
    except ValueError:  # of a socket in a file, or what a proxy passes on
        return str(host)
    if isinstance(found, IPv6Address):
        found = found.ipv4_mapped or IPv6Address(int(found) >> 64 << 64)
    return str(found)


class RoundRobin(Generic[T]):
    """Items that wait. The addresses take turns; of an address, the first item is next."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[T]] = {}  # none is empty; the address whose turn is next comes first

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, address: str, item: T) -> None:
        self._waiting.setdefault(address, deque()).append(item)

    def first(self) -> T:
        return next(iter(self._waiting.values()))[0]

    def pop(self) -> T:
        address = next(iter(self._waiting))
        items = self._waiting.pop(address)
        item = items.popleft()
        if items:
            self._waiting[address] = items  # the last from now on
        return item

    def remove(self, address: str, item: T) -> bool:
        """Whether it was there."""
        items = self._waiting.get(address, ())
        if item not in items:
            return False
        self._waiting[address].remove(item)
        if not items:
            del self._waiting[address]
        return True
