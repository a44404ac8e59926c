"""Prepared bodies sent by the HTTP session of a client of botocore, which knows proxies, and signed by it where it must.

Of botocore's way the model is left out, by which each value of a request and of its answer is walked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from botocore.awsrequest import AWSPreparedRequest, create_request_object, prepare_request_dict

from migrator.dynamodb.answers import Received
from migrator.runtime.retry import cut_to_end
from migrator.runtime.system import Places

CONTENT_TYPE = "application/x-amz-json-1.0"


class Signing(Protocol):
    def signed(
        self, client: Any, operation: str, params: Mapping[str, Any], body: bytes
    ) -> AWSPreparedRequest:
        """A request that is to be sent now. `params`: what the body was made of."""


class BotocoreSigning:
    """Requests to where the endpoint's rules say, signed as they say, as a client of botocore makes its own of a body."""

    def __init__(self, client: Any) -> None:
        self._user_agent = client._user_agent_creator.to_string()

    def signed(
        self, client: Any, operation: str, params: Mapping[str, Any], body: bytes
    ) -> AWSPreparedRequest:
        model = client.meta.service_model.operation_model(operation)
        context = {
            "client_region": client.meta.region_name,
            "client_config": client.meta.config,
            "has_streaming_input": False,
            "auth_type": model.resolved_auth_type,
            "unsigned_payload": model.unsigned_payload,
            "auth_options": client.meta.service_model.metadata.get("auth"),
        }
        url, headers, properties = client._resolve_endpoint_ruleset(model, params, context)
        if properties:
            context["endpoint_properties"] = properties
        target = {"X-Amz-Target": f"DynamoDB_20120810.{operation}", "Content-Type": CONTENT_TYPE}
        words = {"method": "POST", "url_path": "/", "query_string": "", "headers": {**headers, **target}}
        prepare_request_dict(words, endpoint_url=url, context=context, user_agent=self._user_agent)
        request = create_request_object({**words, "body": body})
        client._request_signer.sign(operation, request)
        return client._endpoint.prepare_request(request)


class SessionTransport:
    """The HTTP session of a client of botocore, which knows proxies; `at_most` requests at once."""

    def __init__(self, signing: Signing, at_most: int) -> None:
        self.signing = signing
        self._places = Places(at_most)

    def send(self, client: Any, operation: str, params: Mapping[str, Any], body: bytes) -> Received:
        with self._places.free:
            request = self.signing.signed(client, operation, params, body)
            client.meta.events.emit(f"before-send.dynamodb.{operation}", request=request)
            session = client._endpoint.http_session
            timeout_s = cut_to_end(session._timeout.read_timeout)
            request.context = {**(getattr(request, "context", None) or {}), "read_timeout": timeout_s}
            answer = session.send(request)
            headers = {name.lower(): value for name, value in answer.headers.items()}
            return Received(answer.status_code, headers, answer.content, ends=False)

    def close(self) -> None:
        """Its connections are those of the client, which closes them."""
