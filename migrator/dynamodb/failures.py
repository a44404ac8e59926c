"""AWS errors as our errors: which are permanent, and which may pass on a retry."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    CredentialRetrievalError,
    EndpointConnectionError,
    HTTPClientError,
    NoCredentialsError,
    PartialCredentialsError,
    ProxyConnectionError,
    SSLError,
    SSOError,
    TokenRetrievalError,
)
from botocore.exceptions import (
    ConnectionError as BotoConnectionError,
)

from migrator.dynamodb.answers import IncompleteAnswerError, has_answered
from migrator.runtime.errors import (
    AwayError,
    FullCollectionError,
    ItemRefusedError,
    MigratorError,
    NeverTakenError,
    StoppedError,
    TargetError,
)
from migrator.runtime.retry import Result, Retry

_THROTTLES = frozenset(
    {
        "ProvisionedThroughputExceededException",
        "ThrottlingException",
        "Throttling",
        "RequestLimitExceeded",
    }
)

_PASSING = _THROTTLES | frozenset(
    {
        "ContinuousBackupsUnavailableException",
        "InternalServerError",
        "InternalFailure",
        "ServiceUnavailable",
        "ServiceUnavailableException",
        "ReplicatedWriteConflictException",
        "TransactionConflictException",
        "TransactionInProgressException",
        "ResourceInUseException",
        "LimitExceededException",
        "RequestTimeout",
        "RequestTimeoutException",
        # Statuses without a code, by a proxy: Request Timeout, Too Many Requests.
        *("408", "429"),
    }
)

_PASSING_IN_BATCH = frozenset(
    {
        "ProvisionedThroughputExceeded",
        "ThrottlingError",
        "RequestLimitExceeded",
        "InternalServerError",
        "TransactionConflict",
    }
)
"""Codes of one statement of a batch, or one action of a transaction, that may pass.

Source: API reference, BatchStatementError; TransactWriteItems, "TransactionCanceledException".
"""

_ADVICE = {
    "ResourceNotFoundException": "table not found; run `migrator table create` with this job file",
    "UnrecognizedClientException": "these credentials are not known; look at the profile, the region and the endpoint",
    "InvalidSignatureException": "the signature is refused; look at the secret key and at this machine's clock",
    "MissingAuthenticationTokenException": "the request was not signed; look at the credentials",
    "ExpiredTokenException": "the credentials have expired; get new ones and run the same command again",
    "ExpiredToken": "the credentials have expired; get new ones and run the same command again",
    "407": "the proxy wants another user and password; look at HTTPS_PROXY (HTTP_PROXY)",
    "RequestExpired": "the request arrived too late; check the credentials, then run the same command again",
    "ItemCollectionSizeLimitExceededException": "an item collection passed 10 GB, the limit of a table with local indexes",
    "ValidationException": "the request is not valid for this table; run `migrator table check` with this job file",
}


_EXPIRED = frozenset({"ExpiredTokenException", "ExpiredToken", "RequestExpired"})
"""New credentials are needed; the checkpoint stays."""

_OF_CLOCKS = frozenset(
    {
        "InvalidSignatureException",
        "SignatureDoesNotMatch",
        "RequestTimeTooSkewed",
        "RequestExpired",
        "RequestInTheFuture",
    }
)
"""Errors for a signature when the clocks differ; each of them has other causes as well."""
_SIGNED_S = 300
"""Maximum age of a signature, or how far it may be ahead. Source: IAM User Guide, "Signature Version 4 troubleshooting"."""


_OF_ONE_ITEM: dict[str, type[MigratorError]] = {
    "ValidationException": ItemRefusedError,
    "ItemCollectionSizeLimitExceededException": FullCollectionError,
}
_WRITES = ("put_item", "transact_write_items", "batch_write_item")


UNPROCESSED = "DynamoDB left the item unprocessed however often it was sent"
"""Why one item is missing from a table that took others."""


class Unprocessed(Exception):
    """A part of a batch that the service returned as unprocessed."""


_NO_CONNECTION = (EndpointConnectionError, ConnectTimeoutError)


def can_pass(error: BaseException) -> bool:
    """Whether a retry may succeed: throttles, server faults, broken connections."""
    if isinstance(error, Unprocessed):
        return True
    if isinstance(error, ClientError):
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        return error_code(error) in _PASSING or int(status) >= 500 or _grew_old(error)
    if isinstance(error, SSLError):
        return False
    return isinstance(error, (BotoConnectionError, HTTPClientError))


def _grew_old(error: ClientError) -> bool:
    """Whether the request was too old although the clocks agree: this process was suspended while it was sent.

    It had no effect; the next one is checked and signed again.
    """
    message = str(error.response.get("Error", {}).get("Message", ""))
    is_late = error_code(error) in _OF_CLOCKS and message.startswith("Signature expired")
    off_s = _clock_off_s(error) if is_late else None
    return off_s is not None and abs(off_s) < _SIGNED_S


def _clock_off_s(error: ClientError) -> float | None:
    """How far this machine's clock is ahead of the service's, by an answer that just arrived."""
    headers = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    try:
        return time.time() - parsedate_to_datetime(str(headers["date"])).timestamp()
    except (LookupError, ValueError):
        return None


def _wrong_clock(error: ClientError) -> str:
    off_s = _clock_off_s(error) if error_code(error) in _OF_CLOCKS else None
    if off_s is None or abs(off_s) < _SIGNED_S:
        return ""
    where = f"{abs(off_s):.0f} s {'ahead of' if off_s > 0 else 'behind'} the service's"
    return f"this machine's clock is {where}; set it right (`timedatectl` shows whether NTP does), the same command resumes"


def passes_at(client: Any, error: BaseException) -> bool:
    """`can_pass`, except that a failed first connection is reported at once, as for a source.

    Once TLS was agreed on, it fails because the connection broke.
    """
    if has_answered(client):
        return can_pass(error) or isinstance(error, SSLError)
    return can_pass(error) and not _is_unconnected(error)


def _is_unconnected(error: BaseException) -> bool:
    """Whether nothing listens at the endpoint. A proxy that ends a connection raises the same error, for another
    reason.
    """
    if isinstance(error, ProxyConnectionError):
        return "NewConnectionError" in repr(error.kwargs.get("error"))
    return isinstance(error, _NO_CONNECTION)


def may_have_worked(error: BaseException) -> bool:
    """Whether a request without a clear answer may have taken effect, or may do so later."""
    if isinstance(error, ClientError):
        return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)) >= 500
    return isinstance(error, (BotoConnectionError, HTTPClientError))


def passes_in_batch(code: str) -> bool:
    return code in _PASSING_IN_BATCH


def is_throttle(error: BaseException) -> bool:
    """Whether the request was throttled: it consumed nothing."""
    return error_code(error) in _THROTTLES


def gave_up(what: str, error: BaseException, tried: str) -> StoppedError:
    is_incomplete = isinstance(error, IncompleteAnswerError)
    if isinstance(error, (BotoConnectionError, HTTPClientError)) and not is_incomplete:
        return _unanswered(what, error, f" (gave up after {tried})")
    throttled = isinstance(error, Unprocessed) or is_throttle(error)
    made = NeverTakenError if throttled else AwayError
    code = error_code(error)
    why = str(error) if is_incomplete else code or type(error).__name__
    is_its_own = bool(code) and not code.isdigit()
    advice = _THROTTLED if throttled else _FAILING if is_its_own else _NOT_ITS if code else _KEPT
    return made(f"{what} gave up after {tried} ({why}); {advice}")


_THROTTLED = (
    "the table, or one key of it, takes less than is sent: give it more capacity, or send less"
    " (`migrator pace --max-write-units N`); checkpoints are kept, the same command resumes"
)
_KEPT = "checkpoints are kept, the same command resumes"
_NOT_ITS = (
    f"the answer is not DynamoDB's own: check target.endpoint in the job and proxies before it; {_KEPT}"
)
_FAILING = (
    "DynamoDB responds with its own failures: check the health of its region; checkpoints are kept, the same"
    " command resumes"
)


def retried(
    client: Any,
    retry: Retry,
    operation: str,
    table: str,
    work: Callable[[], Result],
    passes: Callable[[Any, BaseException], bool] = passes_at,
) -> Result:
    """Retry while the error can pass. Raises: StoppedError, TargetError, Interrupted."""
    what = f"DynamoDB {operation} on table {table}"
    try:
        return retry.call(what, work, partial(passes, client), partial(gave_up, what))
    except (ClientError, BotoCoreError) as error:
        raise in_words(error, operation, table, client.meta.endpoint_url) from None


def holds(work: Callable[[], object]) -> bool:
    try:
        work()
    except ClientError as error:
        if error_code(error) != "ConditionalCheckFailedException":
            raise
        return False
    return True


def error_code(error: BaseException) -> str:
    """AWS's code; '' for an error that is not a ClientError."""
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, ClientError) else ""


def in_words(error: Exception, operation: str, table: str, endpoint: str) -> MigratorError:
    """Our error for one of boto's, without AWS's own message, which can quote an item."""
    if of_credentials := without_credentials(error):
        return of_credentials
    if isinstance(error, ClientError):
        code = error_code(error)
        if wrong_clock := _wrong_clock(error):
            return StoppedError(f"DynamoDB refused {operation} on table {table} ({code}): {wrong_clock}")
        advice = denied(error, "dynamodb") or _ADVICE.get(
            code, "see the DynamoDB API reference for this error"
        )
        made: type[MigratorError] = StoppedError if can_pass(error) or code in _EXPIRED else TargetError
        if code in _OF_ONE_ITEM and operation in _WRITES:
            made = _OF_ONE_ITEM[code]
        return made(f"DynamoDB refused {operation} on table {table} ({code}): {advice}")
    return _unanswered(f"DynamoDB {operation} on table {table}", error, endpoint=endpoint)


def _unanswered(what: str, error: BaseException, tried: str = "", *, endpoint: str = "") -> StoppedError:
    details = getattr(error, "kwargs", {})
    # botocore has removed user and password from the proxy's address.
    asked = details.get("endpoint_url") or details.get("proxy_url") or endpoint
    where, text = str(asked).rstrip("/"), f"{type(error).__name__} {details.get('error', '')}"
    why = next(why for pattern, why in _UNANSWERED if re.search(pattern, text, re.IGNORECASE))
    return AwayError(f"{what}: no answer from {where}: {type(error).__name__}: {why}, then {_AGAIN}{tried}")


_AGAIN = "the same command resumes"
_UNANSWERED = (
    (r"^Proxy.*: 407\b", _ADVICE["407"]),
    (
        r"^Proxy",
        "the proxy takes no connection, or ended it; look at HTTPS_PROXY (HTTP_PROXY), at NO_PROXY and at the proxy",
    ),
    (r"refused", "no server listens there; start it or correct target.endpoint in the job"),
    (
        r"resolve|getaddrinfo|name or service|nodename",
        "host not found; correct target.endpoint or target.region in the job",
    ),
    (r"SSL|certificate", "no agreement on TLS; correct the certificates or target.endpoint in the job"),
    (
        r"time(d )?out",
        "no answer in time; look at the network, the firewall and target.endpoint in the job",
    ),
    (r"", "the connection broke; look at the network and at target.endpoint in the job"),
)
"""Meaning and fix for names and texts of botocore's errors, and of urllib3's beneath them."""


def without_credentials(error: Exception) -> MigratorError | None:
    """The error if valid credentials to sign with are missing; None for other errors."""
    what = f"the credentials cannot be renewed ({type(error).__name__})"
    if isinstance(error, ClientError):
        return _not_assumed(error) if error.operation_name == "AssumeRole" else None
    if isinstance(error, (SSOError, TokenRetrievalError)):
        return StoppedError(f"{what}; sign in again (`aws sso login`) and run the same command again")
    if isinstance(error, CredentialRetrievalError):
        provided = "check what provides them (`aws sts get-caller-identity` shows why)"
        return StoppedError(f"{what}; {provided} and run the same command again")
    return no_credentials() if isinstance(error, (NoCredentialsError, PartialCredentialsError)) else None


def _not_assumed(error: ClientError) -> MigratorError:
    """The error if STS does not let us assume a role. Expired credentials can be renewed, so the run continues."""
    code = error_code(error)
    if why := _wrong_clock(error) or (_ADVICE[code] if code in _EXPIRED else ""):
        return StoppedError(f"STS refused to assume the role ({code}): {why}")
    if can_pass(error):
        return StoppedError(f"STS refused to assume the role ({code}); the same command resumes")
    what = (
        "look at target.role_arn and target.external_id in the job, and at whom the role's trust policy names"
    )
    lacks = f"{denied(error, 'sts')}; " if denied(error, "sts") else ""
    return TargetError(f"STS refused to assume the role ({code}): {lacks}{what}")


_DENIED = frozenset({"AccessDenied", "AccessDeniedException", "403"})
_DENIAL = re.compile(
    r"User: (?P<who>\S+) is not authorized to perform: (?P<action>[\w-]+:\w+)"
    r"(?: on resource: \"?(?P<on>[^\s\"]+)\"?)?"
)
_ACTIONS = {"HeadObject": "GetObject", "HeadBucket": "ListBucket"}


def denied(error: ClientError, service: str) -> str:
    """The denied principal, action and resource, and the fix; '' for other errors. `service`: as in policies.

    Quotes only these parts of AWS's message.
    """
    if error_code(error) not in _DENIED:
        return ""
    message = str(error.response.get("Error", {}).get("Message", ""))
    matched = _DENIAL.search(message)
    if matched is None:
        action = _ACTIONS.get(error.operation_name, error.operation_name)
        return f"these credentials may not do this; allow {service}:{action} to the role or user that the job names"
    on = f" on {matched['on']}" if matched["on"] else ""
    explicit = "explicit deny" in message
    mend = (
        "a policy denies it by name: take that out"
        if explicit
        else "allow that action in a policy of its own"
    )
    return f"{matched['who']} may not {matched['action']}{on}; {mend}"


def no_credentials() -> TargetError:
    return TargetError(
        "no AWS credentials were found; set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or target.profile "
        "in the job (or endpoint: embedded to try without AWS)"
    )
