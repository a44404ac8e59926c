"""Credentials of a role, assumed when they are first needed and again before they run out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import boto3
from botocore.config import Config
from botocore.credentials import AssumeRoleCredentialFetcher, DeferredRefreshableCredentials


@dataclass(frozen=True, slots=True)
class Role:
    """A role to act as. `life_s`: of each set of credentials, within what the role allows (900 s at least on AWS)."""

    arn: str
    session_name: str
    external_id: str | None = None
    life_s: int = 3600


def assume(session: boto3.Session, role: Role, region: str, endpoint: str | None) -> boto3.Session:
    """A session that acts as the role. `endpoint`: where STS is asked; None is AWS.

    Nothing is asked of STS yet; a request of a client raises botocore's error when it refuses.
    """
    words: dict[str, Any] = {"RoleSessionName": role.session_name, "DurationSeconds": role.life_s}
    if role.external_id is not None:
        words["ExternalId"] = role.external_id

    def client(service: str, **keys: Any) -> Any:
        # Unchecked here, as with our other clients: STS itself says what it does not take.
        config = Config(parameter_validation=False)
        return session.client(service, region_name=region, endpoint_url=endpoint, config=config, **keys)

    fetcher = AssumeRoleCredentialFetcher(client, session.get_credentials(), role.arn, words)
    acting = boto3.Session(region_name=region)
    # boto3 has no door for credentials that refresh themselves; this is where botocore's own providers put them.
    acting._session._credentials = DeferredRefreshableCredentials(
        refresh_using=fetcher.fetch_credentials, method="assume-role"
    )
    return acting
