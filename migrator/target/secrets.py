"""Secrets of AWS Secrets Manager, read by their ARN or name."""

from __future__ import annotations

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, ProfileNotFound

from migrator.errors import SettingsError
from migrator.target.failures import denied, error_code

_ADVICE = {
    "ResourceNotFoundException": "there is no such secret in this account and region",
    "DecryptionFailure": "its key cannot be used; allow kms:Decrypt",
}


def read_secret(name: str, *, region: str | None, profile: str | None) -> str:
    """The text of a secret. An ARN says its own region.

    Raises: SettingsError, which names the secret and holds nothing of it.
    """
    place = f"the secret {name}"
    config = Config(retries={"total_max_attempts": 5, "mode": "standard"}, connect_timeout=5, read_timeout=20)
    try:
        session = boto3.Session(profile_name=profile, region_name=_region_of(name) or region)
        answer = session.client("secretsmanager", config=config).get_secret_value(SecretId=name)
    except ProfileNotFound:
        raise SettingsError(f"{place}: there is no AWS profile {profile}") from None
    except ClientError as error:
        known = denied(error, "secretsmanager") or _ADVICE.get(error_code(error))
        advice = known or "see the API reference of AWS Secrets Manager for this error"
        raise SettingsError(f"{place} was refused ({error_code(error)}): {advice}") from None
    except (BotoCoreError, ValueError) as error:
        what = "look at region, credentials and network"
        raise SettingsError(f"{place} cannot be read ({type(error).__name__}); {what}") from None
    text = answer.get("SecretString")
    if not isinstance(text, str):
        raise SettingsError(f"{place} is binary; keep the URL in it as text")
    return text


def _region_of(name: str) -> str | None:
    """arn:aws:secretsmanager:REGION:account:secret:name; None for a plain name."""
    parts = name.split(":")
    return parts[3] if parts[0] == "arn" and len(parts) > 6 else None
