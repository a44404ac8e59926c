"""boto3 clients for DynamoDB and S3: credentials, roles, secrets. Retries are ours."""

from __future__ import annotations

import functools
import gzip
import ipaddress
import os
from contextlib import suppress
from threading import RLock
from typing import Any
from urllib.parse import urlsplit

import boto3
import botocore.session
from botocore.config import Config
from botocore.credentials import AssumeRoleCredentialFetcher, DeferredRefreshableCredentials
from botocore.exceptions import BotoCoreError, ClientError, ProfileNotFound
from botocore.loaders import JSONFileLoader, Loader, create_loader
from msgspec import Raw, Struct
from msgspec.json import decode

from migrator.dynamodb.answers import WholeAnswers, watch_requests
from migrator.dynamodb.exchange import (
    AT_MOST,
    BOTOCORE,
    BotocoreSigning,
    Connections,
    Exchange,
    KeptSigning,
    SessionTransport,
    SocketTransport,
    with_exchange,
)
from migrator.dynamodb.failures import denied, error_code, no_credentials, without_credentials
from migrator.runtime.errors import SettingsError, TargetError
from migrator.runtime.logs import get_logger
from migrator.runtime.system import Forked, tell_of_forks

log = get_logger("dynamodb")

EMBEDDED, DYNOXIDE = "embedded", "dynoxide"
"""A job's endpoint for an embedded DynamoDB: MiniStack, or dynoxide."""

# ── Credentials of a role, assumed on first use and again before they expire ──


class AssumedRole(Struct, frozen=True):
    """A role to assume.

    `life_s`: of credentials, at least 900 s on AWS.
    `policy`: session policy, which narrows the role's rights; '' for none.
    """

    arn: str
    session_name: str
    external_id: str | None = None
    life_s: int = 3600
    policy: str = ""


def assume(session: boto3.Session, role: AssumedRole, region: str, endpoint: str | None) -> boto3.Session:
    """A session that acts as the role. `endpoint`: of STS; None is AWS.

    Sends no request yet; a client's first request raises botocore's error if STS denies the role.
    """
    words: dict[str, Any] = {"RoleSessionName": role.session_name, "DurationSeconds": role.life_s}
    if role.external_id is not None:
        words["ExternalId"] = role.external_id
    if role.policy:
        words["Policy"] = role.policy

    def client(service: str, **keys: Any) -> Any:
        # Unchecked, as in our other clients: STS itself rejects invalid parameters.
        config = Config(parameter_validation=False)
        with _OPENING:
            return session.client(service, region_name=region, endpoint_url=endpoint, config=config, **keys)

    fetcher = AssumeRoleCredentialFetcher(client, session.get_credentials(), role.arn, words)
    acting = _open_session(None, region)
    # boto3 has no public way to pass refreshing credentials; botocore's own providers put them here.
    acting._session._credentials = DeferredRefreshableCredentials(
        refresh_using=fetcher.fetch_credentials, method="assume-role"
    )
    return acting


# ── A client for DynamoDB: credentials, regions and signing are botocore's, trying again is ours ──

_LOCAL = {"aws_access_key_id": "local", "aws_secret_access_key": "local"}
_LOCAL_REGION = "us-east-1"
CONNECT_TIMEOUT_S = 5.0
TIMEOUT_S = 20.0


def service_client(
    service: str,
    *,
    region: str | None,
    profile: str | None,
    endpoint: str | None,
    connections: int = 10,
    role: AssumedRole | None = None,
    timeout_s: float = TIMEOUT_S,
) -> Any:
    """A low-level client. Thread-safe. `timeout_s`: wait for an answer.

    An incomplete answer raises IncompleteAnswerError (dynamodb/answers.py). A loopback endpoint needs no
    credentials and no region.
    Raises: TargetError if credentials, region or profile are missing.
    """
    local = endpoint is not None and is_loopback(endpoint)
    session = _session(profile)
    credentials = session.get_credentials()
    where = region or _region_of_environment() or session.region_name or (_LOCAL_REGION if local else None)
    if where is None:
        raise TargetError(
            "no AWS region is set; write target: {region: eu-central-1} in the job, or set AWS_REGION"
        )
    if credentials is None and (role is not None or not local):
        raise no_credentials()
    if role is not None:
        session = assume(session, role, where, endpoint if local else None)
    keys = _LOCAL if credentials is None else {}
    config = Config(
        retries={"total_max_attempts": 1, "mode": "standard"},
        connect_timeout=min(CONNECT_TIMEOUT_S, timeout_s),
        read_timeout=timeout_s,
        max_pool_connections=connections,
        parameter_validation=False,
        s3={"addressing_style": "path"} if local else None,
    )
    try:
        with _OPENING:
            return _guarded(session, service, region_name=where, endpoint_url=endpoint, config=config, **keys)
    except (BotoCoreError, ValueError) as error:
        what = f"no client for {service} can be made ({type(error).__name__}: {error})"
        raise TargetError(
            f"{what}; correct target.endpoint and target.region in the job, or the AWS configuration"
        ) from None


dynamodb_client = functools.partial(service_client, "dynamodb")


class _ClosedInChild(Forked):
    """A child must not use its parent's connections: it would read the parent's answers."""

    def __init__(self, client: Any) -> None:
        self.client = client
        tell_of_forks(self)

    def after_fork(self, *, in_child: bool) -> None:
        if in_child:
            self.client.close()


def _guarded(session: boto3.Session, service: str, **words: Any) -> Any:
    client = session.client(service, **words)
    if "@" in client.meta.endpoint_url:
        # The environment may also set one (AWS_ENDPOINT_URL); a job's endpoint is validated when the job is read.
        raise TargetError(
            "the endpoint holds a user or a password; leave them out, credentials are AWS's own"
        )
    watch_requests(client)
    if service == "dynamodb":
        open_exchange(client)
    client.forked = _ClosedInChild(client)
    return client


_OPENING = RLock()
"""Held while a session is opened or makes a client, which may assume a role: neither is thread-safe. Source: boto3's guide,
"Session".
"""


def _session(profile: str | None) -> boto3.Session:
    """Shared by this process: opening a session takes as long as two clients."""
    try:
        with _OPENING:
            session = _session_of(profile, _settings())
            session.get_credentials()
    except ProfileNotFound:
        raise TargetError(f"AWS profile {profile} not found; see `aws configure list-profiles`") from None
    except BotoCoreError as error:
        what = (
            f"the AWS settings cannot be read ({type(error).__name__}); correct ~/.aws/config and credentials"
        )
        raise without_credentials(error) or TargetError(what) from None
    return session


def _settings() -> frozenset[tuple[str, object]]:
    words = {name: value for name, value in os.environ.items() if name == "HOME" or name.startswith("AWS_")}
    files = {
        words.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"),
        words.get("AWS_CONFIG_FILE", "~/.aws/config"),
    }
    written: dict[str, object] = {}
    for file in map(os.path.expanduser, files):
        with suppress(OSError):
            written[file] = os.stat(file).st_mtime_ns
    return frozenset((words | written).items())


@functools.lru_cache(maxsize=8)
def _session_of(profile: str | None, settings: frozenset[tuple[str, object]]) -> boto3.Session:
    return _open_session(profile)


def _open_session(profile: str | None, region: str | None = None) -> boto3.Session:
    """Its DynamoDB clients send through an exchange and reject incomplete answers. Reuses models of services and
    endpoints (2 MB of JSON).
    """
    core = botocore.session.Session()
    loader = models(core.get_config_variable("data_path"))
    core.register_component("data_loader", loader)
    # No public API; the session keeps its own where botocore looks it up.
    core.register_component("response_parser_factory", WholeAnswers())
    session = boto3.Session(botocore_session=core, profile_name=profile, region_name=region)
    session.events.register("creating-client-class.dynamodb", with_exchange)
    # Each boto3 session adds the same folder again.
    loader.search_paths[:] = dict.fromkeys(loader.search_paths)
    return session


@functools.cache
def models(data_path: str | None) -> Loader:
    loader = create_loader(data_path)
    loader.file_loader = _ModelFiles()
    return loader


class _ModelFiles(JSONFileLoader):  # type: ignore[misc]
    """Models as plain dicts with their large parts unread: a client needs 1 of 400 services, and few shapes.

    botocore's own takes three times the memory.
    """

    def load_file(self, file_path: str) -> Any:
        for ending, opened in ((".json", open), (".json.gz", gzip.open)):
            if os.path.isfile(file_path + ending):
                with opened(file_path + ending, "rb") as file:
                    return _model(file.read())
        return None


class _Unread(dict[str, Any]):
    """Objects by name, each read at first use."""

    def __getitem__(self, name: str) -> Any:
        value = super().__getitem__(name)
        if isinstance(value, Raw):
            value = self[name] = decode(value)
        return value

    def get(self, name: str, default: Any = None) -> Any:
        try:
            return self[name]
        except KeyError:
            return default

    def items(self) -> Any:
        return {name: self[name] for name in self}.items()

    def values(self) -> Any:
        return [self[name] for name in self]


def _model(text: bytes | Raw) -> dict[str, Any]:
    parts: dict[str, Any] = decode(text, type=dict[str, Raw])
    for name, part in parts.items():
        if name in ("services", "operations", "shapes"):
            parts[name] = _Unread(decode(part, type=dict[str, Raw]))
        elif name == "partitions":
            parts[name] = [_model(partition) for partition in decode(part, type=list[Raw])]
        else:
            parts[name] = decode(part)
    return parts


def default_region(region: str | None, profile: str | None) -> str | None:
    try:
        found = region or _region_of_environment() or boto3.Session(profile_name=profile).region_name
    except BotoCoreError:
        return None
    return None if found is None else str(found)


def _region_of_environment() -> str | None:
    """AWS_REGION, which ECS sets and other SDKs read; boto3 reads AWS_DEFAULT_REGION only."""
    return os.environ.get("AWS_REGION") or None


def endpoint_of(written: str | None) -> str | None:
    """A job's endpoint; an embedded server's name starts that server if needed."""
    if written not in (EMBEDDED, DYNOXIDE):
        return written
    from migrator.dynamodb import embedded  # imported here, so that a job on AWS does not load it

    return embedded.ensure_running(embedded.folder(written), lasting=written == DYNOXIDE)


def is_loopback(endpoint: str) -> bool:
    host = urlsplit(endpoint).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


# ── Sending ──


def open_exchange(client: Any) -> None:
    """Open the exchange; log once if botocore signs or sends, and why."""
    session, url = client._endpoint.http_session, client.meta.endpoint_url
    at_most = max(AT_MOST, int(client.meta.config.max_pool_connections))
    reason = _signed_by_botocore(client)
    signing = BotocoreSigning(client) if reason else KeptSigning(client)
    if session._proxy_config.proxy_url_for(url):
        reason = reason or "a proxy is set"
    if isinstance(signing, KeptSigning) and not reason:
        client.exchange = Exchange(SocketTransport(signing, Connections(session, url, at_most)))
        return
    _say_bodies(reason)
    client.exchange = Exchange(SessionTransport(signing, at_most))


@functools.cache
def _say_bodies(reason: str) -> None:
    log.info("botocore_sends_prepared_bodies", reason=reason)


def _signed_by_botocore(client: Any) -> str:
    config = client.meta.config
    if os.environ.get("MIGRATOR_LANE") == BOTOCORE:
        return "MIGRATOR_LANE is set"
    if client._request_signer._credentials is None:
        return "no credentials"
    if config.signature_version != "v4":
        return "another signature is set"
    if config.account_id_endpoint_mode == "required":
        return "an account's own endpoint is required"
    return ""


# ── Secrets of AWS Secrets Manager, read by their ARN or name ──

_ADVICE = {
    "ResourceNotFoundException": "secret not found in this account and region",
    "DecryptionFailure": "its key cannot be used; allow kms:Decrypt",
}


def read_secret(name: str, *, region: str | None, profile: str | None) -> str:
    """The text of a secret. An ARN contains its region.

    Raises: SettingsError, which names the secret and contains nothing of it.
    """
    secret = f"the secret {name}"
    config = Config(retries={"total_max_attempts": 5, "mode": "standard"}, connect_timeout=5, read_timeout=20)
    try:
        where = _region_of(name) or region or _region_of_environment()
        session = boto3.Session(profile_name=profile, region_name=where)
        answer = session.client("secretsmanager", config=config).get_secret_value(SecretId=name)
    except ProfileNotFound:
        raise SettingsError(f"{secret}: AWS profile {profile} not found") from None
    except ClientError as error:
        advice_known = denied(error, "secretsmanager") or _ADVICE.get(error_code(error))
        advice = advice_known or "see the API reference of AWS Secrets Manager for this error"
        raise SettingsError(f"{secret} was refused ({error_code(error)}): {advice}") from None
    except (BotoCoreError, ValueError) as error:
        what = "look at region, credentials and network"
        raise SettingsError(f"{secret} cannot be read ({type(error).__name__}); {what}") from None
    text = answer.get("SecretString")
    if not isinstance(text, str):
        raise SettingsError(f"{secret} is binary; keep the URL in it as text")
    return text


def _region_of(name: str) -> str | None:
    parts = name.split(":")
    return parts[3] if parts[0] == "arn" and len(parts) > 6 else None
