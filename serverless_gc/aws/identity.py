"""As whom requests are made: botocore's credentials, asked anew for every request, renewed once when refused."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from serverless_gc.wire.sigv4 import Credentials

__all__ = ["EXPIRED_CODES", "Identity"]

EXPIRED_CODES = frozenset({"ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"})
"""What services answer to credentials that were good once."""


class Identity:
    """The credentials of an aiobotocore session.

    Parameters
    ----------
    session
        An ``aiobotocore.session.AioSession``.
    credentials
        What its ``get_credentials()`` returned: None if it found none.
    """

    def __init__(self, session: Any, credentials: Any) -> None:
        self._session = session
        self._credentials = credentials
        self._lock = asyncio.Lock()

    async def frozen(self) -> Credentials:
        """Return what to sign the next request with; credentials about to expire refresh themselves here.

        Raises
        ------
        botocore.exceptions.BotoCoreError
            If there are none, or none can be had.
        """
        from botocore.exceptions import NoCredentialsError

        if self._credentials is None:
            raise NoCredentialsError
        with self._retrieval():
            found = await self._credentials.get_frozen_credentials()
        return Credentials(found.access_key, found.secret_key, found.token or "")

    @property
    def _method(self) -> str:
        """How botocore came by the credentials."""
        return str(getattr(self._credentials, "method", "unknown"))

    @contextmanager
    def _retrieval(self) -> Iterator[None]:
        """Give one class to whatever a source of credentials raises: a service's error, a process's, a login's."""
        from botocore.exceptions import BotoCoreError, CredentialRetrievalError

        try:
            yield
        except BotoCoreError:
            raise
        except Exception as error:
            raise CredentialRetrievalError(provider=self._method, error_msg=str(error)) from error

    async def renew(self, refused: Credentials) -> bool:
        """Get other credentials in place of expired ones; False if there are none.

        Requests refused together renew once. Refreshable credentials are refreshed, though they think themselves
        good; others are read again from where they came from, where ``aws sso login`` and its like leave new ones.

        Raises
        ------
        botocore.exceptions.BotoCoreError
            If renewing them fails.
        """
        async with self._lock:
            if await self.frozen() == refused:
                await self._renew()
            return await self.frozen() != refused

    async def _renew(self) -> None:
        # botocore has no public way to say that credentials were refused before their time.
        refresh = getattr(self._credentials, "_protected_refresh", None)
        if refresh is not None:
            with self._retrieval():
                await refresh(is_mandatory=True)
        elif self._method != "explicit":
            with self._retrieval():
                found = await self._session.get_component("credential_provider").load_credentials()
            if found is not None:
                fresh = await found.get_frozen_credentials()
                # In place, because clients made from the session hold this object.
                self._credentials.access_key = fresh.access_key
                self._credentials.secret_key = fresh.secret_key
                self._credentials.token = fresh.token
