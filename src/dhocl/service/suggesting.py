"""When features of new images are computed, and when the pool is ranked."""

from __future__ import annotations

import asyncio
import logging
import sqlite3

from dhocl.core.errors import lacks_memory
from dhocl.service.aside import Aside
from dhocl.service.ranking import Ranked, Ranking

logger = logging.getLogger(__name__)

WAIT = 2.0  # seconds that a request waits for features of new images


class Suggesting:
    """Computes features of new images step by step, until all have theirs, and ranks them for all who ask."""

    def __init__(self, ranking: Ranking, aside: Aside) -> None:
        self._ranking = ranking
        self._aside = aside
        self._catching_up: asyncio.Task[None] | None = None
        self._came = False  # an image, since the last step began
        self._coming: asyncio.Task[Ranked] | None = None  # the next ranking, which has not begun

    def catch_up(self) -> asyncio.Task[None]:
        """Also with images that came during the last step."""
        self._came = True
        if self._catching_up is None or self._catching_up.done():
            self._catching_up = asyncio.create_task(self._catch_up())
        return self._catching_up

    async def _catch_up(self) -> None:
        try:
            more = True
            while more or self._came:
                self._came = False
                more = await self._aside(self._ranking.advance)
        except Exception as error:
            if not isinstance(error, sqlite3.Error) and not lacks_memory(error):
                raise
            # The service stops, memory is short, or the file is damaged. Requests report it, and the next tries again.
            logger.warning("features of images without a label are not computed: %s", error)

    async def ranked(self) -> Ranked:
        """The pool as it is now. All who ask before a ranking begins share it."""
        await asyncio.wait([self.catch_up()], timeout=WAIT)
        if self._coming is None or self._coming.done():
            self._coming = asyncio.create_task(self._rank())
        return await asyncio.shield(self._coming)

    async def _rank(self) -> Ranked:
        return await self._aside(self._begin)

    def _begin(self) -> Ranked:
        self._coming = None  # who asks from now on gets the next one
        return self._ranking.rank()
