"""Credentials that expire: asked for at every request, renewed once when refused, an error that says so in the end."""

import asyncio
import datetime as dt

import pytest
from aiobotocore.credentials import AioRefreshableCredentials
from aiobotocore.session import AioSession

from serverless_gc.aws.identity import Identity
from serverless_gc.errors import ConfigError, InvokeError
from serverless_gc.invoke import LambdaInvoker
from serverless_gc.store import S3Store
from serverless_gc.testing.http_double import http_double, response, s3_error
from serverless_gc.types import TaskSpec
from serverless_gc.wire.sigv4 import Credentials

pytestmark = pytest.mark.usefixtures("aws_environment")

EXPIRED_LAMBDA = response(403, b'{"message": "expired"}', headers="x-amzn-ErrorType: ExpiredTokenException\r\n")


@pytest.fixture(params=["http", "sdk"])
def transport(request):
    return request.param


class Issuer:
    """Gives out numbered credentials; a test sets how long they live on its own clock."""

    def __init__(self, lifetime=3600.0, fails_from=10**9):
        self.issued, self.now, self.lifetime, self.fails_from = 0, 0.0, lifetime, fails_from

    def time(self):
        return dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=self.now)

    async def issue(self):
        if self.issued >= self.fails_from:
            raise OSError("the login is over")
        self.issued += 1
        return {
            "access_key": f"AKID{self.issued}",
            "secret_key": "secret",
            "token": f"token{self.issued}",
            "expiry_time": (self.time() + dt.timedelta(seconds=self.lifetime)).isoformat(),
        }

    def session(self):
        session = AioSession()
        session._credentials = AioRefreshableCredentials(
            None, None, None, None, self.issue, "stub", time_fetcher=self.time,
            advisory_timeout=60, mandatory_timeout=10,
        )  # fmt: skip
        session._credentials._expiry_time = self.time()
        return session


def accepting(good):
    """Answer as S3 does: tokens that ``good`` refuses have expired."""

    def answer(asked, _):
        number = int(asked.headers["x-amz-security-token"].removeprefix("token"))
        return response(200, b"content" if asked.method == "GET" else b"") if good(number) else expired(asked)

    def expired(asked):
        if "/functions/" in asked.path:
            return EXPIRED_LAMBDA
        return s3_error(400, "ExpiredToken", "The provided token has expired.")

    return answer


def s3_at(server, session, transport, **options):
    return S3Store(
        "bucket", region="us-east-1", endpoint=server.endpoint, session=session, transport=transport, **options
    )


async def test_every_request_asks_and_what_is_about_to_expire_refreshes_itself(transport):
    issuer = Issuer(lifetime=900.0)
    with http_double(accepting(lambda _: True)) as server:
        store = s3_at(server, issuer.session(), transport)
        for _ in range(5):
            await store.get("k")
            issuer.now += 300.0
        await store.close()
        used = [asked.headers["x-amz-security-token"] for asked in server.asked]
    assert used == ["token1", "token1", "token1", "token2", "token2"]
    assert issuer.issued == 2


async def test_requests_refused_together_renew_once_and_are_sent_again(transport):
    issuer = Issuer()
    with http_double(accepting(lambda number: number > 1)) as server:
        store = s3_at(server, issuer.session(), transport)
        assert {bytes(x) for x in await asyncio.gather(*(store.get(f"k{i}") for i in range(12)))} == {b"content"}
        assert await store.put("k", b"x", if_absent=True) is True
        await store.close()
    assert issuer.issued == 2
    assert len(server.asked) <= 2 * 12 + 1
    assert store.stats.retries == 0


async def test_refused_again_is_an_error_that_says_so(transport):
    issuer = Issuer()
    with http_double(accepting(lambda _: False)) as server:
        store = s3_at(server, issuer.session(), transport)
        with pytest.raises(ConfigError, match=r"ExpiredToken .*asked for again.*renew them"):
            await store.get("k")
        await store.close()
    assert issuer.issued == 2  # the first, and one renewal
    assert len(server.asked) == 2


async def test_no_renewal_to_be_had_is_an_error_that_says_so(transport):
    issuer = Issuer(fails_from=1)
    with http_double(accepting(lambda number: number > 1)) as server:
        store = s3_at(server, issuer.session(), transport)
        with pytest.raises(ConfigError, match="login is over"):
            await store.get("k")
        await store.close()


async def test_an_invocation_refused_for_its_credentials_is_sent_again_once(transport):
    issuer = Issuer()
    good = {"number": 2}

    def answer(asked, _):
        number = int(asked.headers["x-amz-security-token"].removeprefix("token"))
        return response(200, b'{"sgc":"AAAA"}') if number >= good["number"] else EXPIRED_LAMBDA

    with http_double(answer) as server:
        invoker = LambdaInvoker(
            "worker", region="us-east-1", endpoint=server.endpoint, session=issuer.session(), transport=transport
        )
        await invoker.open()
        assert await invoker.invoke(TaskSpec("t", 0, 0), b"x", timeout=10.0) == b"\0\0\0"
        assert (invoker.stats.invocations, len(server.asked), issuer.issued) == (2, 2, 2)
        good["number"] = 10**6
        with pytest.raises(InvokeError, match="asked for again") as caught:
            await invoker.invoke(TaskSpec("t", 0, 0), b"x", timeout=10.0)
        assert (caught.value.kind, caught.value.reason) == ("denied", "credentials expired")
        assert (len(server.asked), issuer.issued) == (4, 3)
        await invoker.close()


async def test_credentials_of_a_file_are_read_again(transport, monkeypatch, tmp_path):
    """Where ``aws sso login`` and its like leave new ones."""
    path = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(path))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")

    def write(number):
        lines = ["[default]", "aws_access_key_id=A", "aws_secret_access_key=s", f"aws_session_token=token{number}"]
        path.write_text("\n".join(lines))

    write(1)
    with http_double(accepting(lambda number: number > 1)) as server:
        store = s3_at(server, None, transport)
        with pytest.raises(ConfigError, match="expired"):
            await store.get("k")
        assert len(server.asked) == 1  # nothing newer was there: not asked again
        write(2)
        assert bytes(await store.get("k")) == b"content"
        await store.close()
    assert len(server.asked) == 3


async def test_credentials_given_by_hand_are_not_replaced_by_others():
    session = AioSession()
    session.set_credentials("AKIDMINE", "secret", "old")
    identity = Identity(session, await session.get_credentials())
    mine = await identity.frozen()
    assert mine == Credentials("AKIDMINE", "secret", "old")
    assert await identity.renew(mine) is False
    assert await identity.frozen() == mine
